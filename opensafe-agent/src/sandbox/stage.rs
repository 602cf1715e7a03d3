//! How a sandbox's first process comes to life inside.
//!
//! `opensafe` starts itself once more as `opensafe __enter`, which waits. The waiting process is put
//! into the armed cgroup; then it is told to go on, becomes the wanted user, and replaces itself with
//! the command. So the command's first instruction is already confined, and nothing is forked in a
//! process with threads.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, ExitCode},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    sys::{prctl, signal::Signal},
    unistd::{Gid, Pid, Uid, pipe2, setgid, setgroups, setuid},
};

use super::{command::CommandError, signals::Signals};

/// What the waiting process is to become.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file to execute.
    pub program: PathBuf,
    /// Its arguments, with the command's name as typed first.
    pub argv: Vec<OsString>,
    /// The identity to take on, if another.
    pub identity: Option<Identity>,
    /// The directory to be in.
    pub directory: PathBuf,
    /// Variables to set.
    pub environment: Vec<(String, OsString)>,
}

/// Ids to take on.
#[derive(Clone, Debug)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
}

/// A process that waits to be told to go on.
pub struct Waiting {
    child: Child,
    go: OwnedFd,
    failure: File,
}

/// What becomes of a command whose opensafe is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// It is killed, too: nothing would confine it any more.
    Opensafes = b'!',
    /// It goes on, confined.
    ItsOwn = b'+',
}

/// The name of the hidden command.
pub const ENTER: &str = "__enter";

impl Waiting {
    /// Starts it; returns once it waits.
    pub fn start(plan: &Plan) -> io::Result<Self> {
        let (go_read, go_write) = pipe2(OFlag::O_CLOEXEC)?;
        let (failure_read, failure_write) = pipe2(OFlag::O_CLOEXEC)?;
        for inherited in [&go_read, &failure_write] {
            fcntl(inherited, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("opensafe")
            .arg(ENTER)
            .arg(go_read.as_raw_fd().to_string())
            .arg(failure_write.as_raw_fd().to_string())
            .arg(
                plan.identity
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), Identity::encode),
            )
            .arg(&plan.program)
            .args(&plan.argv)
            .current_dir(&plan.directory)
            .envs(plan.environment.iter().map(|(name, value)| (name, value)));
        let child = command.spawn()?;
        drop((go_read, failure_write));
        let mut waiting = Self {
            child,
            go: go_write,
            failure: File::from(failure_read),
        };
        // What it does before it waits is opensafe's doing, not the command's.
        match waiting.failure.read_exact(&mut [0]) {
            Ok(()) => Ok(waiting),
            Err(error) => {
                waiting.abandon();
                Err(error)
            }
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// Lets it go on; returns once it has become the command, or could not.
    pub fn release(mut self, fate: Fate) -> Result<Child, Failed> {
        let released = nix::unistd::write(&self.go, &[fate as u8]);
        drop(self.go);
        let mut words = String::new();
        let told = self.failure.read_to_string(&mut words);
        if let (Ok(_), Ok(_), true) = (released, told, words.is_empty()) {
            return Ok(self.child);
        }
        let (errno, what) = words
            .split_once(' ')
            .unwrap_or(("", "it ended before it began"));
        let source = errno.parse().map_or_else(
            |_| io::Error::other("no reason given"),
            io::Error::from_raw_os_error,
        );
        Err(Failed {
            child: self.child,
            what: what.to_owned(),
            source,
        })
    }

    /// Ends it before it became anything.
    pub fn abandon(mut self) {
        drop(self.go);
        let _ = self.child.wait();
    }
}

/// A first process that did not become the command.
#[derive(Debug)]
pub struct Failed {
    /// The process, which has ended or is about to.
    pub child: Child,
    /// What it was about to do.
    pub what: String,
    /// Why that failed.
    pub source: io::Error,
}

impl Failed {
    /// As an error about the command.
    #[must_use]
    pub fn into_error(self, program: PathBuf) -> CommandError {
        let source = if self.what == EXECUTE {
            self.source
        } else {
            io::Error::new(
                self.source.kind(),
                format!("cannot {}: {}", self.what, self.source),
            )
        };
        CommandError::NotExecutable {
            path: program,
            source,
        }
    }
}

const EXECUTE: &str = "execute it";
/// What the waiting process says first.
const READY: &[u8; 1] = b"+";

/// The hidden command: waits, then becomes the command. Returns only if it cannot.
pub fn enter(arguments: &[OsString]) -> ExitCode {
    let Some(stage) = Stage::parse(arguments) else {
        return ExitCode::from(125);
    };
    let (what, source) = stage.run();
    // The other side reads: errno, a space, what was to be done.
    let line = format!("{} {what}", source.raw_os_error().unwrap_or(0));
    if let Some(mut failure) = stage.failure {
        let _ = failure.write_all(line.as_bytes());
    }
    ExitCode::from(126)
}

struct Stage<'a> {
    go: File,
    failure: Option<File>,
    identity: Option<Identity>,
    program: &'a OsString,
    argv: &'a [OsString],
}

impl<'a> Stage<'a> {
    fn parse(arguments: &'a [OsString]) -> Option<Self> {
        let [go, failure, identity, program, argv @ ..] = arguments else {
            return None;
        };
        Some(Self {
            go: reopen(go, false)?,
            failure: reopen(failure, true),
            identity: Identity::decode(identity.to_str()?),
            program,
            argv,
        })
    }

    fn run(&self) -> (&'static str, io::Error) {
        if let Some(mut failure) = self.failure.as_ref()
            && let Err(error) = failure.write_all(READY)
        {
            return ("say that it waits", error);
        }
        let mut byte = [0];
        match (&self.go).read(&mut byte) {
            Ok(1) => {}
            Ok(_) => return ("go on", io::Error::from(nix::errno::Errno::ECANCELED)),
            Err(error) => return ("wait", error),
        }
        if let Some(identity) = &self.identity
            && let Err(errno) = identity.take_on()
        {
            return ("become the user", errno.into());
        }
        if let Err(errno) = Signals::unblock() {
            return ("let signals through", errno.into());
        }
        if byte[0] != Fate::ItsOwn as u8
            && let Err(error) = tie_to_parent()
        {
            return ("tie itself to opensafe", error);
        }
        let mut command = Command::new(self.program);
        if let Some((name, rest)) = self.argv.split_first() {
            command.arg0(name).args(rest);
        }
        (EXECUTE, command.exec())
    }
}

/// Has this process killed with opensafe.
fn tie_to_parent() -> io::Result<()> {
    let opensafe = nix::unistd::getppid();
    // Cleared by the kernel when a set-user-ID program runs.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid() != opensafe {
        // It was killed just before.
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(())
}

/// Opens an inherited pipe by its number and closes the inherited descriptor, so that the command
/// does not get it.
fn reopen(number: &OsString, write: bool) -> Option<File> {
    let number: RawFd = number.to_str()?.parse().ok()?;
    let file = File::options()
        .read(!write)
        .write(write)
        .open(format!("/proc/self/fd/{number}"))
        .ok()?;
    nix::unistd::close(number).ok()?;
    Some(file)
}

impl Identity {
    pub(super) fn encode(&self) -> String {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        format!("{}:{}:{}", self.uid, self.gid, groups.join(","))
    }

    pub(super) fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        Some(Self {
            uid: parts.next()?.parse().ok()?,
            gid: parts.next()?.parse().ok()?,
            groups: parts
                .next()?
                .split(',')
                .filter_map(|gid| gid.parse().ok())
                .collect(),
        })
    }

    pub(super) fn take_on(&self) -> nix::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups)?;
        setgid(Gid::from_raw(self.gid))?;
        setuid(Uid::from_raw(self.uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_the_command_line() {
        let identity = Identity {
            uid: 1000,
            gid: 100,
            groups: vec![100, 27],
        };
        let back = Identity::decode(&identity.encode()).unwrap();
        assert_eq!(
            (back.uid, back.gid, back.groups),
            (1000, 100, vec![100, 27])
        );
        assert!(Identity::decode("-").is_none());
    }
}
