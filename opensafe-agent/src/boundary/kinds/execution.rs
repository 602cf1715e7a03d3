//! Running what is denied, by whatever runs something.

use std::{
    ffi::{CStr, CString},
    fs::{self, File},
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::fs::symlink,
    },
    path::Path,
    process::{Command, Stdio},
};

use nix::{
    fcntl::{AtFlags, OFlag},
    sys::{
        memfd::{MFdFlags, memfd_create},
        stat::Mode,
    },
    unistd::{execveat, fexecve},
};

use super::super::{
    ATTEMPT,
    attempt::{Attempt, Expects, Make, command},
};

const fn program(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::place(name, shows, make)
}

/// Programs that no list names: only a policy that lists what may run stops them.
const fn unlisted(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt {
        expects: Expects::Events(&["exec", "file"]),
        ..program(name, shows, make)
    }
    .by_default("exec")
}

pub(super) const ALL: &[Attempt] = &[
    program("execution.plain", "a denied program", |site| {
        run(&site.closed_program())
    }),
    program("execution.symlink", "by a symbolic link", |site| {
        run(&site.open("linked-program"))
    }),
    program("execution.proc-root", "by /proc/self/root", |site| {
        let path = format!("/proc/self/root{}", site.closed_program().display());
        run(Path::new(&path))
    }),
    program("execution.hard-link", "by a hard link", |site| {
        let link = site.open("hard-linked-program");
        fs::hard_link(site.closed_program(), &link)?;
        run(&link)
    }),
    program(
        "execution.descriptor",
        "by a descriptor (fexecve)",
        |site| {
            let file = File::open(site.closed_program())?;
            Ok(fexecve(&file, &name()?, NOTHING).map(drop)?)
        },
    ),
    program(
        "execution.empty-path",
        "by execveat with an empty path",
        |site| {
            let file = File::open(site.closed_program())?;
            let flags = AtFlags::AT_EMPTY_PATH;
            Ok(execveat(file.as_fd(), c"", &name()?, NOTHING, flags).map(drop)?)
        },
    ),
    program(
        "execution.interpreter",
        "as a script's interpreter",
        |site| run(&site.open("script-of-closed")),
    ),
    program(
        "execution.loader",
        "by the loader (ld.so PROGRAM)",
        |site| {
            let loader = [
                "/lib64/ld-linux-x86-64.so.2",
                "/lib/ld-linux-aarch64.so.1",
                "/lib/ld-musl-x86_64.so.1",
            ]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .ok_or(io::ErrorKind::NotFound)?;
            command(loader, &[site.path("bin/closed/dynamic")])
        },
    )
    .or_ends(&["status 127", "status 126", "status 1"]),
    program("execution.shell", "by a shell", |site| {
        let script = format!("'{}' {ATTEMPT}", site.closed_program().display());
        command("sh", &["-c", &script])
    })
    .or_ends(&["status 126"]),
    unlisted(
        "execution.copy",
        "an unlisted program: a copy in the workspace",
        |site| run(&site.open("copy")),
    ),
    unlisted("execution.script", "a script in the workspace", |site| {
        run(&site.open("script"))
    }),
    unlisted("execution.memory", "from memory (memfd)", |site| {
        let mut file = File::from(memfd_create("program", MFdFlags::empty())?);
        file.write_all(&fs::read(site.program())?)?;
        Ok(fexecve(&file, &name()?, NOTHING).map(drop)?)
    }),
    unlisted("execution.deleted", "one that was deleted", |site| {
        let copy = site.open("deleted");
        fs::copy(site.program(), &copy)?;
        let file = File::open(&copy)?;
        fs::remove_file(&copy)?;
        Ok(fexecve(&file, &name()?, NOTHING).map(drop)?)
    }),
    unlisted(
        "execution.nameless",
        "one that never had a name (O_TMPFILE)",
        |site| {
            let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
            let file = nix::fcntl::open(&site.open("elsewhere"), flags, Mode::S_IRWXU)?;
            let mut file = File::from(file);
            file.write_all(&fs::read(site.program())?)?;
            // Who may be written to may not be run.
            let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
            drop(file);
            Ok(fexecve(&again, &name()?, NOTHING).map(drop)?)
        },
    ),
    unlisted(
        "execution.linked-away",
        "a link in place of a listed name",
        |site| {
            let link = site.open("elsewhere/opensafe");
            symlink(site.open("copy"), &link)?;
            run(&link)
        },
    ),
];

/// Runs it so that it does nothing.
fn run(program: &Path) -> io::Result<()> {
    let mut command = Command::new(program);
    command.arg(ATTEMPT).stdin(Stdio::piped());
    match command.output()?.status.success() {
        true => Ok(()),
        false => Err(io::Error::other("it failed")),
    }
}

const NOTHING: &[&CStr] = &[];

/// The arguments of a program that replaces the process and says that it did: `opensafe __attempt ran`.
fn name() -> io::Result<[CString; 3]> {
    Ok([
        c"opensafe".to_owned(),
        CString::new(ATTEMPT)?,
        c"ran".to_owned(),
    ])
}
