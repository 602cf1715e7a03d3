//! Stopping all of a cgroup where it is, and letting it go on (`cgroup.freeze` of cgroup-v2.rst; Linux ≥ 5.2).
//!
//! By the open directory: whoever may unmount inside could otherwise take away the path to it.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::AsFd,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags, openat};

/// How long it may take until all have stopped. Usually some milliseconds; who waits for a disk that does not answer stops
/// only then.
const PATIENCE: Duration = Duration::from_secs(2);
const CONTROL: &str = "cgroup.freeze";
const EVENTS: &str = "cgroup.events";

/// Stops all in the cgroup and below, and waits until they have.
///
/// # Errors
/// If it cannot be asked for; `TimedOut` if not all have stopped in time. They will as soon as they can: it stays asked for.
pub(super) fn freeze(directory: impl AsFd) -> io::Result<()> {
    let directory = directory.as_fd();
    write(directory, b"1")?;
    let deadline = Instant::now() + PATIENCE;
    while !says(directory, EVENTS, "frozen 1")? {
        if Instant::now() >= deadline {
            let why = format!("not all have stopped within {} s", PATIENCE.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Lets all go on that have stopped by [`freeze`].
///
/// # Errors
/// If it cannot be asked for.
pub(super) fn thaw(directory: impl AsFd) -> io::Result<()> {
    write(directory, b"0")
}

/// Whether it was asked for that all stop.
///
/// # Errors
/// If that cannot be read.
pub(super) fn is_asked_for(directory: impl AsFd) -> io::Result<bool> {
    says(directory, CONTROL, "1")
}

fn write(directory: impl AsFd, word: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    File::from(openat(directory, CONTROL, flags, Mode::empty())?).write_all(word)
}

/// Whether one of the file's lines is this.
fn says(directory: impl AsFd, file: &str, line: &str) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut text = String::new();
    File::from(openat(directory, file, flags, Mode::empty())?).read_to_string(&mut text)?;
    Ok(text.lines().any(|said| said == line))
}
