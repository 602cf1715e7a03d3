//! Attempts that count on the kernel using memory again.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::mpsc::channel,
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    sched::{CpuSet, sched_setaffinity},
    sys::stat::{Mode, SFlag, mknod},
    unistd::Pid,
};

use super::{Verb, argument, number};

/// Verbs on directories.
pub(super) const VERBS: &[(&str, Verb)] = &[("make-and-open-links", make_and_open_links)];

/// So often a file is made in the first directory, called 0, 1 and so on, which must fail; and after each of them, files
/// are opened in the second by names that another thread made meanwhile. One of those may lie where the kernel had the
/// name of the file that was not made.
fn make_and_open_links(arguments: &[OsString]) -> io::Result<()> {
    const LINKS: u32 = 400;
    /// After this time, what was freed may be used again.
    const GRACE: Duration = Duration::from_millis(15);
    let closed = Path::new(argument(arguments, 0)?);
    let open = Path::new(argument(arguments, 1)?).to_owned();
    let rounds = number(argument(arguments, 2)?)?;
    // Each processor has free memory of its own.
    let mut first = CpuSet::new();
    first.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &first)?;
    let name = {
        let open = open.clone();
        move |round: u32, link: u32| open.join(format!("{round}-{link}"))
    };
    let original = open.join("original");
    File::create(&original)?;
    let (begin, rounds_begun) = channel();
    let (done, rounds_done) = channel();
    let linker = {
        let name = name.clone();
        std::thread::spawn(move || -> io::Result<()> {
            for round in rounds_begun {
                for link in 0..LINKS {
                    fs::hard_link(&original, name(round, link))?;
                }
                if done.send(()).is_err() {
                    break;
                }
            }
            Ok(())
        })
    };
    for round in 0..rounds {
        let path = closed.join(round.to_string());
        match mknod(&path, SFlag::S_IFREG, Mode::S_IRUSR, 0) {
            Err(Errno::EACCES) => {}
            other => return Ok(other?),
        }
        std::thread::sleep(GRACE);
        begin.send(round).map_err(io::Error::other)?;
        rounds_done.recv().map_err(io::Error::other)?;
        for link in 0..LINKS {
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_CREAT)
                .open(name(round, link))?;
        }
    }
    drop(begin);
    linker
        .join()
        .map_err(|_| io::Error::other("the thread panicked"))??;
    Err(Errno::EACCES.into())
}
