//! Attempts to run programs.

use std::{
    ffi::{CString, OsString},
    fs::File,
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::ffi::OsStrExt as _,
    },
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

use nix::{
    fcntl::{AtFlags, OFlag},
    libc,
    sys::{
        memfd::{MFdFlags, memfd_create},
        stat::Mode,
    },
    unistd::{execveat, fexecve},
};

use super::{Verb, argument};

/// The exit status by which a probe that should have become another program says that it has not.
const STILL_HERE: i32 = 77;

/// Verbs on programs.
pub(super) const VERBS: &[(&str, Verb)] = &[
    // The program, and its arguments. Its exit status does not matter.
    ("exec", |a| {
        let (program, arguments) = a
            .split_first()
            .ok_or_else(|| io::Error::other("no program"))?;
        // Pipes, as /dev/null would be opened.
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .output()
            .map(drop)
    }),
    ("exec-by-descriptor", |a| {
        in_child("become-by-descriptor", a)
    }),
    ("exec-by-empty-path", |a| {
        in_child("become-by-empty-path", a)
    }),
    ("exec-from-memory", |a| in_child("become-from-memory", a)),
    ("exec-deleted", |a| in_child("become-deleted", a)),
    // The second argument is a directory.
    ("exec-nameless", |a| in_child("become-nameless", a)),
    // Another thread writes another program's path over this one's and back, while it is run again and again. It has
    // to end well once, which the other program never does.
    ("exec-in-a-race", |a| {
        for _ in 0..200 {
            let mut child = probe()?;
            child.args(["replaced", "+", "become-in-a-race"]).args(a);
            let status = child.stdin(Stdio::piped()).output()?.status;
            if status.success() {
                return Ok(());
            }
        }
        Err(nix::errno::Errno::EACCES.into())
    }),
    ("map-as-code", |a| {
        map(argument(a, 0)?, libc::PROT_READ | libc::PROT_EXEC, 0)
    }),
    ("map-then-make-code", |a| {
        map(
            argument(a, 0)?,
            libc::PROT_READ,
            libc::PROT_READ | libc::PROT_EXEC,
        )
    }),
    // These replace the probe, so they are for `in_child`.
    ("become-by-descriptor", |a| {
        let file = File::open(argument(a, 0)?)?;
        let name = name(a)?;
        fexecve(file.as_fd(), &[name.as_c_str()], NOTHING)?;
        Ok(())
    }),
    ("become-by-empty-path", |a| {
        let file = File::options().read(true).open(argument(a, 0)?)?;
        let name = name(a)?;
        execveat(
            file.as_fd(),
            c"",
            &[name.as_c_str()],
            NOTHING,
            AtFlags::AT_EMPTY_PATH,
        )?;
        Ok(())
    }),
    ("become-from-memory", |a| {
        let program = std::fs::read(argument(a, 0)?)?;
        let mut file = File::from(memfd_create("program", MFdFlags::empty())?);
        file.write_all(&program)?;
        let name = name(a)?;
        fexecve(file.as_fd(), &[name.as_c_str()], NOTHING)?;
        Ok(())
    }),
    ("become-deleted", |a| {
        let copy = format!("{}-deleted", argument(a, 0)?.to_string_lossy());
        std::fs::copy(argument(a, 0)?, &copy)?;
        let file = File::open(&copy)?;
        std::fs::remove_file(&copy)?;
        let name = name(a)?;
        fexecve(file.as_fd(), &[name.as_c_str()], NOTHING)?;
        Ok(())
    }),
    ("become-nameless", |a| {
        let program = std::fs::read(argument(a, 0)?)?;
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRWXU;
        let directory = std::path::Path::new(argument(a, 1)?);
        let mut file = File::from(nix::fcntl::open(directory, flags, mode)?);
        file.write_all(&program)?;
        // Who may be written to may not be run.
        let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        drop(file);
        let name = name(a)?;
        fexecve(again.as_fd(), &[name.as_c_str()], NOTHING)?;
        Ok(())
    }),
    ("become-in-a-race", become_in_a_race),
    // So many processes at once, each of which reads the path; all have to end alike.
    ("fork-and-read", |a| {
        let times: usize = argument(a, 1)?
            .to_string_lossy()
            .parse()
            .map_err(io::Error::other)?;
        let mut children = Vec::new();
        for _ in 0..times {
            let child = probe()?
                .args(["plain", "+", "read"])
                .arg(argument(a, 0)?)
                .stdout(Stdio::piped())
                .spawn()?;
            children.push(child);
        }
        let mut results = std::collections::BTreeSet::new();
        for child in children {
            let output = child.wait_with_output()?;
            results.insert(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        match results.into_iter().collect::<Vec<_>>().as_slice() {
            [one] if one == "0 ok" => Ok(()),
            [one] if one == "0 EACCES" => Err(nix::errno::Errno::EACCES.into()),
            several => Err(io::Error::other(format!("{several:?}"))),
        }
    }),
];

/// Paths of one length, of which one is written over the other meanwhile.
#[allow(unsafe_code, reason = "the race is what is tried")]
fn become_in_a_race(arguments: &[OsString]) -> io::Result<()> {
    let denied = name(arguments)?;
    let harmless = format!("{:/>1$}", "bin/false", denied.as_bytes().len());
    let shared: Vec<AtomicU8> = harmless.bytes().chain([0]).map(AtomicU8::new).collect();
    let shared: &'static [AtomicU8] = Vec::leak(shared);
    let copies = [denied.as_bytes().to_vec(), harmless.into_bytes()];
    let (begin, begun) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for copy in copies.iter().cycle() {
            for (to, from) in shared.iter().zip(copy) {
                to.store(*from, Ordering::Relaxed);
            }
            let _ = begin.send(());
            std::thread::yield_now();
        }
    });
    // On one processor that is busy, a thread may begin late.
    let _ = begun.recv();
    drop(begun);
    std::thread::sleep(std::time::Duration::from_millis(2));
    for _ in 0..20 {
        let none: [*const libc::c_char; 2] = [c"x".as_ptr(), std::ptr::null()];
        // SAFETY: the path's last byte is always NUL and nobody writes there; what lies before it is the kernel's to
        // copy, whatever it is at that moment.
        unsafe {
            libc::execve(
                shared.as_ptr().cast(),
                none.as_ptr(),
                none[1..].as_ptr().cast(),
            )
        };
    }
    Err(io::Error::last_os_error())
}

/// Maps a file's first page, and gives it other rights if these are not 0.
#[allow(unsafe_code, reason = "mmap(2) and mprotect(2) have no safe wrapper")]
fn map(path: &OsString, rights: i32, then: i32) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: a mapping of its own, which nobody looks at.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            rights,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    if then != 0 && unsafe { libc::mprotect(place, 4096, then) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

const NOTHING: &[&std::ffi::CStr] = &[];

fn name(arguments: &[OsString]) -> io::Result<CString> {
    Ok(CString::new(argument(arguments, 0)?.as_bytes())?)
}

/// This program, as a probe.
pub(super) fn probe() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("probe");
    Ok(command)
}

/// Runs a verb in a child, as it replaces the process that it succeeds in.
fn in_child(verb: &str, arguments: &[OsString]) -> io::Result<()> {
    let mut child = probe()?;
    child
        .args(["replaced", "+", verb])
        .args(arguments)
        .stdin(Stdio::piped());
    let output = child.output()?;
    if output.status.code() != Some(STILL_HERE) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let errno = said.trim().parse().map_err(io::Error::other)?;
    Err(io::Error::from_raw_os_error(errno))
}

/// The shape of `in_child`'s child: makes one attempt, and says its errno if it is still here.
pub(super) fn replaced(attempts: &[OsString]) -> io::Result<()> {
    let (verb, arguments) = match attempts {
        [_, verb, arguments @ ..] => (verb.to_string_lossy(), arguments),
        _ => return Err(io::Error::other("no verb")),
    };
    let errno = match super::attempt(&verb, arguments) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or_default(),
    };
    println!("{errno}");
    std::process::exit(STILL_HERE);
}
