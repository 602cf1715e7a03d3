//! Attempts to run programs.

use std::{
    ffi::{CString, OsString},
    fs::File,
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    process::{Command, Stdio},
};

use nix::{
    fcntl::AtFlags,
    sys::memfd::{MFdFlags, memfd_create},
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
