//! Attempts on terminals.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    process::Stdio,
    thread::sleep,
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    sys::signal::{SigSet, Signal},
    unistd::{Pid, getpgrp, setpgid, setsid, tcsetpgrp},
};

use super::{Verb, argument, programs::probe};

/// Verbs on terminals.
pub(super) const VERBS: &[(&str, Verb)] = &[
    // Types an empty line into the controlling terminal.
    ("type-into-terminal", |_| {
        let terminal = File::open("/dev/tty")?;
        tiocsti(&terminal)
    }),
    // And nothing more, as reading would wait for somebody to type.
    ("open-terminal", |a| open(argument(a, 0)?).map(drop)),
    // Makes a terminal its own that may be another session's.
    ("take-terminal", |a| {
        setsid()?;
        take(&open(argument(a, 0)?)?)
    }),
    // Leaves a child in its process group, goes to the foreground with another, and has the child read the terminal: the
    // kernel then stops all that is in the group that was left (SIGTTIN).
    ("read-behind", |_| {
        let terminal = File::options().read(true).write(true).open("/dev/tty")?;
        let mut child = probe()?
            .args([
                "plain", "+", "all", ",", "sleep", "300", ",", "read", "/dev/tty",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        // Who is not in the foreground yet would be stopped by asking for it.
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTTOU);
        signals.thread_block()?;
        tcsetpgrp(&terminal, getpgrp())?;
        sleep(Duration::from_millis(1500));
        child.kill()?;
        child.wait().map(drop)
    }),
];

fn open(path: &OsStr) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(path)
}

#[allow(unsafe_code, reason = "ioctl(2) has no safe wrapper for it")]
fn tiocsti(terminal: &File) -> io::Result<()> {
    // SAFETY: the kernel reads one byte.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, c"\n".as_ptr()) };
    Errno::result(result)?;
    Ok(())
}

#[allow(unsafe_code, reason = "ioctl(2) has no safe wrapper for it")]
fn take(terminal: &File) -> io::Result<()> {
    // SAFETY: the argument is a number, by which it is taken from whoever has it.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 1) };
    Errno::result(result)?;
    Ok(())
}
