//! Why nothing ran, or not to its end.

use std::{io, path::PathBuf};

use nix::sys::signal::Signal;

use super::{
    call::CallError,
    cgroup::CgroupError,
    command::CommandError,
    needs::{Refused, refused},
};
use crate::{
    kernel::{KernelError, adopt::AdoptError},
    policy::PolicyError,
    run::RunId,
    sink::record::file::CreateError,
    tables::TableError,
};

/// Why nothing ran, or not to its end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RunError {
    #[error("there is no user {0}")]
    NoUser(String),
    #[error("cannot use the workspace {}: {source}", path.display())]
    Workspace { path: PathBuf, source: io::Error },
    #[error("cannot use the current directory: {0}")]
    Directory(io::Error),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Policy(Box<PolicyError>),
    #[error("policy {policy}: {source}")]
    Tables { policy: String, source: TableError },
    #[error(
        "only root can arm a sandbox\n  run it with sudo: the command runs as you all the same"
    )]
    NotRoot,
    #[error(
        "opensafe sees the processes of a container only, and the kernel's programs those of the host\n  run it in the \
         host's pid namespace (docker run --pid=host)"
    )]
    PidNamespace,
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("{}", refused(.0))]
    NotEnforced(Box<Refused>),
    #[error(transparent)]
    Record(#[from] CreateError),
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    #[error(
        "nothing is kept of a run {0}\n  `opensafe runs` lists those that nobody attends to as unattended"
    )]
    NotKept(RunId),
    #[error(
        "opensafe {theirs} attends to run {run}, or did last, and this one is {}\n  it stays confined; take it up with that version or a later one", env!("CARGO_PKG_VERSION")
    )]
    Downgrade { run: RunId, theirs: String },
    #[error("whoever attends to run {run} does not hand it over, and goes on: {why}")]
    NotHandedOver { run: RunId, why: String },
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("interrupted by {0} before the command was started")]
    Interrupted(Signal),
}

impl RunError {
    /// The exit status: a shell's for a command that cannot run, env(1)'s 125 otherwise.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Command(error) => error.exit_status(),
            Self::Interrupted(signal) => u8::try_from(128 + *signal as i32).unwrap_or(125),
            _ => 125,
        }
    }
}

impl From<PolicyError> for RunError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(Box::new(error))
    }
}

/// A system call that failed, with what it was for.
pub(super) fn system(what: &'static str, source: io::Error) -> RunError {
    RunError::System { what, source }
}
