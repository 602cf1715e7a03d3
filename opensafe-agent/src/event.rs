//! What the kernel saw, decoded: one value per record of the ring buffer.

use std::{
    net::Ipv6Addr,
    time::{SystemTime, UNIX_EPOCH},
};

use opensafe_common::{
    operation::{How, Operation},
    verdict::{Access, Verdict},
};

use crate::view::Dev;

/// Nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct UnixNano(pub u64);

impl UnixNano {
    /// What the clock says.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A process id in the initial pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

/// Counts up with every policy that is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct Generation(pub u32);

/// Which policy of a run it is: 0 is the one with which it was started, and each that is applied later counts up.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct PolicyNumber(pub u32);

impl PolicyNumber {
    /// The one with which the run was started.
    pub const FIRST: Self = Self(0);

    /// The one that is applied after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time: UnixNano,
    /// Who.
    pub task: Task,
    /// What.
    pub what: What,
}

/// The task that did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Pid,
    /// The process's parent.
    pub parent_pid: Pid,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Inode number of its cgroup v2 directory.
    pub cgroup: u64,
    /// Its `comm`, without trailing NULs.
    pub comm: Vec<u8>,
}

/// The error that a refused operation fails with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Errno {
    /// `EACCES`, from the LSM's hooks.
    #[default]
    Eacces,
    /// `EPERM`, from the cgroup's hooks, which cannot choose.
    Eperm,
}

impl Errno {
    /// As errno(3) has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eacces => "EACCES",
            Self::Eperm => "EPERM",
        }
    }
}

/// What a decision was, as the kernel made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Whether the kernel refused the operation because of it.
    pub enforced: bool,
    /// With which error it did, if it did.
    pub errno: Errno,
    /// Whether it is the verdict for objects without a name in the sandbox's view.
    pub nameless: bool,
    /// The policy that decided.
    pub generation: Generation,
}

/// Where an object with a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its superblock's device.
    pub dev: Dev,
    /// Its superblock's magic number.
    pub magic: u64,
    /// Path below the superblock's root, starting with `/` (the root itself is `/`).
    pub path: Vec<u8>,
    /// Whether `path` is only the end of the whole path.
    pub partial: bool,
    /// Inode number, 0 where it does not exist.
    pub inode: u64,
    /// `i_mode`, 0 where it does not exist.
    pub mode: u32,
}

/// What was done or tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A program runs.
    Exec {
        /// Verdict on the program (`Allow` or `Audit`: a denied one does not run).
        decision: Decision,
        /// The program.
        place: Place,
        /// As it was asked for.
        requested: Vec<u8>,
        /// Its arguments.
        args: Vec<Vec<u8>>,
        /// Whether more arguments follow.
        args_truncated: bool,
    },
    /// A program, or the interpreter of one, met a denial or an audit rule before it ran.
    ExecGate {
        /// The verdict.
        decision: Decision,
        /// The program or interpreter.
        place: Place,
        /// As it was asked for; empty if unknown.
        requested: Vec<u8>,
    },
    /// A file was opened, or was to be.
    File {
        /// The verdict.
        decision: Decision,
        /// The file.
        place: Place,
        /// As it was asked for; empty if unknown.
        requested: Vec<u8>,
        /// Doing what.
        access: Access,
        /// Void if [`What::NotCreated`] of the same thread follows.
        tentative: bool,
        /// Why it was decided as it was, beyond the rules on the file itself.
        because: Because,
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
    /// The last tentative denial of this thread did not take place.
    NotCreated,
    /// A peer was contacted, or was to be.
    Connect {
        /// The verdict.
        decision: Decision,
        /// The peer.
        peer: PeerAddress,
        /// `transport` number of `opensafe_common::tables::transport`.
        transport: u16,
        /// The kernel's protocol number.
        protocol: u16,
        /// `SOCK_*`.
        socket_type: u16,
        /// By sending without connecting.
        by_send: bool,
    },
    /// A socket was made, or was to be.
    Socket {
        /// The verdict.
        decision: Decision,
        /// `AF_*`.
        family: u16,
        /// `SOCK_*`.
        socket_type: u16,
        /// `IPPROTO_*`, or the family's own.
        protocol: u16,
    },
    /// A socket was bound to a local address, or was to be.
    Bind {
        /// The verdict.
        decision: Decision,
        /// Address, IPv4 as mapped.
        address: Ipv6Addr,
        /// Port, 0 for any.
        port: u16,
        /// `transport` number of `opensafe_common::tables::transport`.
        transport: u16,
        /// The kernel's protocol number.
        protocol: u16,
    },
    /// An operation on others, the mounts or the kernel was done, or was to be.
    Operation {
        /// The verdict.
        decision: Decision,
        /// Which.
        operation: Operation,
        /// Which way.
        how: How,
        /// What `how` says that it is.
        number: u32,
        /// The process that it was done to.
        target: Option<Pid>,
        /// The place that it was done at.
        place: Option<Place>,
    },
    /// A process was made by `task`.
    Fork {
        /// The new one.
        child: Pid,
    },
    /// The process is gone.
    Exit {
        /// As wait(2) gives it.
        status: u32,
    },
    /// A file lies on a superblock that the policy in force does not know.
    UnknownSuperblock {
        /// Where.
        place: Place,
    },
}

/// What decided about a file, beyond the rules on the file itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Because {
    /// Nothing else.
    #[default]
    Itself,
    /// It is a directory, and rules that speak below it would not hold under the other name; or a link
    /// that would lead away from what they protect.
    Below,
    /// It was open already, and came with a message or from another process.
    Received,
    /// It is the record of a run.
    Record,
}

/// Who was contacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// IPv4 as mapped IPv6.
    Ip {
        /// Address.
        address: Ipv6Addr,
        /// Port, 0 where there is none.
        port: u16,
    },
    /// A Unix socket with a path.
    UnixPath(Place),
    /// An abstract Unix name, without its leading NUL.
    UnixAbstract(Vec<u8>),
    /// Something else.
    Other {
        /// `AF_*`.
        family: u16,
    },
}

/// What was lost on the way, by cause. All counts are since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Losses {
    /// Events the kernel meant to send.
    pub seen: u64,
    /// Events that arrived at the sinks.
    pub sent: u64,
    /// No room in the ring buffer.
    pub ring_full: u64,
    /// No scratch memory in the kernel.
    pub no_scratch: u64,
    /// No room in the queue between reader and sinks.
    pub queue_full: u64,
    /// Could not be decoded.
    pub malformed: u64,
    /// Had been read and were not on record when whoever attended to the run was killed.
    pub agent_killed: u64,
    /// Could not be written to the record.
    pub record_failed: u64,
}

/// A program's arguments, which lie one after the other, each with a NUL behind it; but for the last if it was cut off.
pub(crate) fn split_args(bytes: &[u8]) -> Vec<Vec<u8>> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arguments_come_back_as_they_were_given_empty_ones_too(
            args in prop::collection::vec(prop::collection::vec(1..=u8::MAX, 0..4), 0..5),
        ) {
            let bytes: Vec<u8> = args.iter().flat_map(|arg| [arg.as_slice(), b"\0"].concat()).collect();
            prop_assert_eq!(split_args(&bytes), args);
        }
    }

    #[test]
    fn an_argument_that_was_cut_off_is_as_much_as_is_left_of_it() {
        assert_eq!(split_args(b"a\0\0bc"), [&b"a"[..], b"", b"bc"]);
    }
}
