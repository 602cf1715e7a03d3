//! From what the kernel saw to what a person can use: names in the sandbox's view, the rule that
//! decided, and who the process is.

mod enricher;
mod how;
mod names;
mod processes;
mod rulings;

pub use enricher::Enricher;
#[cfg(any(test, feature = "untrusted"))]
pub(crate) use processes::container_id;
pub use rulings::InForce;

use opensafe_common::{
    operation::Operation,
    verdict::{Access, Verdict},
};

use crate::{
    event::{Errno, Pid, PolicyNumber, UnixNano},
    rules::{RuleId, Severity},
};

/// Something to put on record.
#[derive(Clone, Debug)]
pub struct Enriched {
    /// When.
    pub time: UnixNano,
    /// Who.
    pub process: Process,
    /// What.
    pub action: Action,
}

/// A process, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Id in the initial pid namespace.
    pub pid: Pid,
    /// Its parent's.
    pub parent_pid: Pid,
    /// Effective user id.
    pub uid: u32,
    /// Path of its executable in the sandbox's view; empty if unknown.
    pub executable: Vec<u8>,
    /// Its arguments, with what looks like a credential replaced.
    pub args: Vec<Vec<u8>>,
    /// Its `comm`.
    pub comm: Vec<u8>,
    /// `comm` of its ancestors inside the sandbox, nearest first.
    pub ancestors: Vec<Vec<u8>>,
    /// Container id, where its cgroup's path has one.
    pub container_id: Option<String>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Action {
    /// A program ran or was to run.
    Exec {
        /// The verdict.
        ruling: Ruling,
        /// Where the program is, in the sandbox's view.
        path: Vec<u8>,
        /// As it was asked for; empty if unknown.
        requested: Vec<u8>,
    },
    /// A file was opened or was to be.
    File {
        /// The verdict.
        ruling: Ruling,
        /// Where it is, in the sandbox's view.
        path: Vec<u8>,
        /// As it was asked for; empty if unknown.
        requested: Vec<u8>,
        /// Doing what.
        access: Access,
        /// It was open already, and came with a message or from another process.
        received: bool,
    },
    /// A peer was contacted or was to be.
    Connect {
        /// The verdict.
        ruling: Ruling,
        /// The peer.
        peer: Peer,
        /// `network.transport`: `tcp`, `udp`, `sctp`, `icmp`, `unix`, or the family's or protocol's name.
        transport: String,
        /// By sending without connecting.
        by_send: bool,
    },
    /// A socket was made or was to be.
    Socket {
        /// The verdict.
        ruling: Ruling,
        /// The family's name: `packet`, `inet`, `af_N`.
        family: String,
        /// The type's: `stream`, `dgram`, `raw`.
        socket_type: String,
        /// The kernel's protocol number.
        protocol: u16,
    },
    /// A socket was bound to a local address or was to be.
    Bind {
        /// The verdict.
        ruling: Ruling,
        /// The address.
        address: std::net::IpAddr,
        /// The port, 0 for any.
        port: u16,
        /// `network.transport`, as in [`Action::Connect`].
        transport: String,
    },
    /// An operation on others, the mounts or the kernel was done or was to be.
    Operation {
        /// The verdict.
        ruling: Ruling,
        /// Which.
        operation: Operation,
        /// Which way, in a person's words: `attach`, `SIGKILL`, `TIOCSTI`.
        how: String,
        /// The process that it was done to.
        target: Option<Target>,
        /// The place that it was done at, in the sandbox's view.
        path: Option<Vec<u8>>,
    },
    /// A file could not be opened, and it was not us.
    OpenFailed {
        /// As it was asked for; empty if unknown.
        requested: Vec<u8>,
        /// Doing what.
        access: Access,
        /// The kernel's error number.
        errno: i32,
    },
    /// The process is gone.
    Exit {
        /// Exit code, if it ended by itself.
        code: Option<i32>,
        /// Signal, if it was ended by one.
        signal: Option<i32>,
    },
}

impl Action {
    /// `opensafe.event` of its line in a record, and `on` of the rules that are about it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exec { .. } => "exec",
            Self::File { .. } => "file",
            Self::Connect { .. } => "connect",
            Self::Socket { .. } => "socket",
            Self::Bind { .. } => "bind",
            Self::Operation { operation, .. } => operation.name(),
            Self::OpenFailed { .. } => "file.failed",
            Self::Exit { .. } => "exit",
        }
    }

    /// The name of the default that holds for it where no rule does.
    #[must_use]
    pub const fn default_name(&self) -> &'static str {
        match self {
            // A program that is mapped, not executed.
            Self::File { access, .. } if access.contains(Access::EXEC) => "exec",
            other => other.name(),
        }
    }

    /// The verdict on it, where there is one.
    #[must_use]
    pub const fn ruling(&self) -> Option<&Ruling> {
        match self {
            Self::Exec { ruling, .. }
            | Self::File { ruling, .. }
            | Self::Connect { ruling, .. }
            | Self::Socket { ruling, .. }
            | Self::Bind { ruling, .. }
            | Self::Operation { ruling, .. } => Some(ruling),
            Self::OpenFailed { .. } | Self::Exit { .. } => None,
        }
    }
}

/// A process outside to which something was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its id.
    pub pid: Pid,
    /// Its `comm`; empty if it is gone.
    pub comm: Vec<u8>,
}

/// A peer, in a person's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// IP.
    Ip(std::net::IpAddr, u16),
    /// Unix socket by path, in the sandbox's view.
    UnixPath(Vec<u8>),
    /// Abstract Unix socket, without the leading NUL.
    UnixAbstract(Vec<u8>),
    /// Another family's name (`netlink`, `vsock`, `packet`, `af_N`).
    Family(String),
}

/// A verdict with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// The verdict.
    pub verdict: Verdict,
    /// Whether the kernel refused the operation.
    pub enforced: bool,
    /// With which error it did, if it did.
    pub errno: Errno,
    /// The rule that decided; `None`: the default.
    pub rule: Option<RuleId>,
    /// How much it matters.
    pub severity: Severity,
    /// The rule's reason, or what the default or the lack of a name means.
    pub reason: String,
    /// Which of the run's policies decided; `None`: one that is not known any more.
    pub policy: Option<PolicyNumber>,
}

#[cfg(test)]
mod tests;
