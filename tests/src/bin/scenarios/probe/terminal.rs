//! Attempts on terminals.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    process::Stdio,
    thread::sleep,
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    pty::openpty,
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
    // What leaves a terminal unfit for the next to use it, undone where it can be; `new` is one made for it.
    ("set-discipline", |a| {
        // N_NULL, which gives nothing on, and N_TTY (include/uapi/linux/tty.h).
        on_terminal(a, |terminal| {
            [27, 0].iter().try_for_each(|discipline: &i32| {
                command(
                    terminal,
                    libc::TIOCSETD,
                    Some(std::ptr::from_ref(discipline).cast()),
                )
            })
        })
    }),
    ("lock-settings", |a| {
        on_terminal(a, |terminal| {
            // A `struct termios` takes less: first each setting is locked, then none.
            [0xff_u8, 0]
                .map(|all| [all; 64])
                .iter()
                .try_for_each(|lock| {
                    command(terminal, libc::TIOCSLCKTRMIOS, Some(lock.as_ptr().cast()))
                })
        })
    }),
    ("have-it-alone", |a| {
        on_terminal(a, |terminal| {
            command(terminal, libc::TIOCEXCL, None)?;
            command(terminal, libc::TIOCNXCL, None)
        })
    }),
    ("hang-up-by-ioctl", |a| {
        // include/uapi/asm-generic/ioctls.h.
        const TIOCVHANGUP: libc::Ioctl = 0x5437;
        on_terminal(a, |terminal| command(terminal, TIOCVHANGUP, None))
    }),
    // Asks a console by one command, and with another one tells it what it has answered: as it is, the number that it begins
    // with, or nothing.
    ("tell-console", |a| {
        let number = |at| -> io::Result<libc::Ioctl> {
            let word = argument(a, at)?.to_string_lossy();
            let number = word
                .strip_prefix("0x")
                .map(|hex| u32::from_str_radix(hex, 16));
            let number = number.and_then(Result::ok).map(libc::Ioctl::from);
            Ok(number.ok_or(io::ErrorKind::InvalidInput)?)
        };
        let console: OwnedFd = open(argument(a, 0)?)?.into();
        // GIO_CMAP answers most of them: 16 colours.
        let mut answer = [0_u8; 64];
        ask(&console, number(1)?, &mut answer)?;
        let Some(how) = a.get(3) else {
            return Ok(());
        };
        let value = match how.to_str() {
            Some("same") => answer.as_ptr(),
            Some("byte") => std::ptr::without_provenance(usize::from(answer[0])),
            Some("number") => std::ptr::without_provenance(usize::from(u16::from_ne_bytes([
                answer[0], answer[1],
            ]))),
            _ => std::ptr::null(),
        };
        command(&console, number(2)?, Some(value))
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

fn on_terminal(
    arguments: &[OsString],
    act: impl FnOnce(&OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    let which = argument(arguments, 0)?;
    if which == "new" {
        return act(&openpty(None, None)?.slave);
    }
    act(&open(which)?.into())
}

/// `argument` is what the command takes; none for those that take no argument.
#[allow(unsafe_code, reason = "ioctl(2) has no safe wrapper for these")]
fn command(
    terminal: &OwnedFd,
    command: libc::Ioctl,
    argument: Option<*const u8>,
) -> io::Result<()> {
    let argument = argument.unwrap_or(std::ptr::null());
    // SAFETY: the kernel reads at most an integer or a `struct termios` there, or what it has answered before, for which the callers
    // have room; a number it does not read at all.
    Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), command, argument) })?;
    Ok(())
}

#[allow(unsafe_code, reason = "ioctl(2) has no safe wrapper for these")]
fn ask(terminal: &OwnedFd, command: libc::Ioctl, answer: &mut [u8; 64]) -> io::Result<()> {
    // SAFETY: what the callers ask for is not longer.
    Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), command, answer.as_mut_ptr()) })?;
    Ok(())
}

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
