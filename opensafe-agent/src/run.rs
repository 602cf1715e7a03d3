//! A run: its id (`id.rs`), what is known when it starts, and what is known when it has ended.
//!
//! [`RunStart`] is the record's first line, [`RunEnd`] its last.

mod id;

use std::{fmt, path::PathBuf, time::Duration};

pub use id::{RunId, RunIdError};

use opensafe_common::operation::Operation;
use serde::{Deserialize, Serialize};

use crate::{
    enforcement::Enforcement,
    event::{Losses, Pid, PolicyNumber, UnixNano},
    response::{Deed, Outcome, Responded},
    rules::{Defaults, RuleSet},
};

/// What becomes of a denial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The kernel refuses what the policy denies.
    #[default]
    Enforce,
    /// Nothing is refused; everything is decided and recorded as it would have been.
    Observe,
}

impl Mode {
    /// `enforce` or `observe`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

/// What is known when a run starts.
#[derive(Clone, Debug)]
pub struct RunStart {
    /// Its id.
    pub id: RunId,
    /// When.
    pub time: UnixNano,
    /// What becomes of denials.
    pub mode: Mode,
    /// Whether the user accepted that the host cannot enforce everything.
    pub partial: bool,
    /// What decides.
    pub policy: PolicyInfo,
    /// What the kernel enforces.
    pub enforcement: Enforcement,
    /// The agent's name.
    pub agent: String,
    /// The directory that the agent works on.
    pub workspace: PathBuf,
    /// The command and its arguments. The record shows them with what looks like a credential replaced.
    pub command: Vec<Vec<u8>>,
    /// The directory in which the command starts.
    pub directory: PathBuf,
    /// As whom the command runs.
    pub user: UserInfo,
    /// Where.
    pub host: HostInfo,
    /// The sandbox's cgroup.
    pub cgroup: CgroupInfo,
    /// `opensafe`'s own process.
    pub pid: Pid,
    /// Whether the sandbox stays confined if that is killed.
    pub outlives: bool,
}

/// A run was taken up that nobody attended to, or taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// When.
    pub time: UnixNano,
    /// By which process.
    pub pid: Pid,
    /// The one that attended to it and was asked to hand it over.
    pub from: Option<Pid>,
    /// For how long nobody attended to it, within a few seconds.
    pub unattended: Duration,
    /// Events for which there was no room meanwhile.
    pub lost: u64,
}

/// A run got another policy while it went on.
#[derive(Clone, Debug)]
pub struct Applied {
    /// When it was in force.
    pub time: UnixNano,
    /// Which of the run's it is.
    pub number: PolicyNumber,
    /// What it is.
    pub policy: PolicyInfo,
    /// The revision of the one before.
    pub before: String,
}

/// A policy, as a record names it.
#[derive(Clone, Debug)]
pub struct PolicyInfo {
    /// `NAME@HASH`, from the rule set.
    pub revision: String,
    /// The files and directories that it was loaded from.
    pub sources: Vec<PathBuf>,
    /// How many rules it has for this sandbox.
    pub rules: usize,
    /// What holds where none of them matches.
    pub defaults: Defaults,
}

impl PolicyInfo {
    /// Of these rules, from those files and directories.
    #[must_use]
    pub fn of(rules: &RuleSet, sources: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            revision: rules.revision.clone(),
            sources: sources.into_iter().map(Into::into).collect(),
            rules: rules.rules.len(),
            defaults: rules.defaults,
        }
    }
}

/// A user.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct UserInfo {
    /// Login name; empty if the id has none.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Home directory: what `~` stands for in what a person reads.
    #[serde(with = "crate::bytes")]
    pub home: PathBuf,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostInfo {
    /// Its name.
    pub name: String,
    /// Its kernel's release, as `uname -r` has it.
    pub kernel: String,
}

/// A cgroup.
#[derive(Clone, Debug)]
pub struct CgroupInfo {
    /// Its directory.
    pub path: PathBuf,
    /// The directory's inode number, by which the kernel knows it.
    pub id: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this exit status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Status {
    /// From what wait(2) gives.
    #[must_use]
    pub const fn from_wait(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code(status >> 8 & 0xff),
            signal => Self::Signal(signal),
        }
    }

    /// What a shell would make of it: a signal's number plus 128.
    #[must_use]
    pub const fn shell(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal + 128,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => match nix::sys::signal::Signal::try_from(signal) {
                Ok(known) => write!(f, "killed by {known}"),
                Err(_) => write!(f, "killed by signal {signal}"),
            },
        }
    }
}

/// What `run` knows when the command has ended and all is cleaned up; the rest of [`RunEnd`] is what
/// the sinks counted.
#[derive(Clone, Debug)]
pub struct Ending {
    /// When.
    pub time: UnixNano,
    /// From the command's start to its end.
    pub duration: Duration,
    /// How the command ended; `None` if it never ran.
    pub status: Option<Status>,
    /// What was lost on the way to the sinks; [`Losses::record_failed`] is the sinks' to fill.
    pub losses: Losses,
    /// What went other than it should.
    pub trouble: Trouble,
    /// What was cleaned up.
    pub cleanup: Cleanup,
}

/// What is known when a run has ended.
#[derive(Clone, Debug)]
pub struct RunEnd {
    /// When.
    pub time: UnixNano,
    /// From the command's start to its end.
    pub duration: Duration,
    /// How the command ended; `None` if it never ran.
    pub status: Option<Status>,
    /// The policy in force then.
    pub policy: String,
    /// What was decided.
    pub counts: Counts,
    /// What was touched.
    pub touched: Touched,
    /// What was done about it.
    pub responses: Responses,
    /// What was lost.
    pub losses: Losses,
    /// What went other than it should.
    pub trouble: Trouble,
    /// What was cleaned up.
    pub cleanup: Cleanup,
}

/// What became of attending to a run.
#[derive(Clone, Debug)]
pub enum Finished {
    /// The run has ended.
    Ended(Box<RunEnd>),
    /// Another process attends to it; how its command ended, if this process is the one that knows.
    HandedOver(Option<Status>),
}

/// How often each verdict was given, for each thing that rules can be on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// On running programs.
    pub exec: PerVerdict,
    /// On files.
    pub file: PerVerdict,
    /// On contacting peers.
    pub connect: PerVerdict,
    /// On making sockets.
    pub socket: PerVerdict,
    /// On binding to local addresses.
    pub bind: PerVerdict,
    /// On each [`Operation`], by its number.
    pub operations: [PerVerdict; Operation::ALL.len()],
}

impl Counts {
    /// Every count with its name in policies and records.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, PerVerdict)> {
        let objects = [
            ("exec", self.exec),
            ("file", self.file),
            ("connect", self.connect),
            ("socket", self.socket),
            ("bind", self.bind),
        ];
        let names = Operation::ALL.map(Operation::name);
        objects
            .into_iter()
            .chain(names.into_iter().zip(self.operations))
    }

    /// Those of one name.
    pub fn of_mut(&mut self, name: &str) -> Option<&mut PerVerdict> {
        match name {
            "exec" => Some(&mut self.exec),
            "file" => Some(&mut self.file),
            "connect" => Some(&mut self.connect),
            "socket" => Some(&mut self.socket),
            "bind" => Some(&mut self.bind),
            _ => {
                let operation = Operation::ALL
                    .into_iter()
                    .find(|operation| operation.name() == name)?;
                self.operations.get_mut(operation as usize)
            }
        }
    }

    /// Denials, of whatever.
    #[must_use]
    pub fn denials(&self) -> u64 {
        self.all().map(|(_, counts)| counts.deny).sum()
    }
}

/// How often each verdict was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct PerVerdict {
    pub allow: u64,
    pub audit: u64,
    pub deny: u64,
}

/// What was done about events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Responses {
    /// Notes, alerts, freezes and kills that were carried out.
    pub done: u64,
    /// What could not be done, whom could not be told.
    pub failed: u64,
    /// The response that killed the sandbox.
    pub killed_by: Option<String>,
}

impl Responses {
    /// Counts one.
    pub fn add(&mut self, responded: &Responded) {
        match (&responded.outcome, responded.deed) {
            (Outcome::Failed { .. }, _) => self.failed += 1,
            (Outcome::Done, Deed::Kill) => {
                self.done += 1;
                self.killed_by = Some(responded.response.clone());
            }
            (Outcome::Done, Deed::Note | Deed::Alert | Deed::Freeze) => self.done += 1,
            _ => {}
        }
    }
}

/// How many different things were touched, as far as they are on record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Programs that ran.
    pub programs: u64,
    /// Files that were opened for reading.
    pub files_read: u64,
    /// Files that were opened for writing, made, or changed in any other way.
    pub files_written: u64,
    /// Peers that were contacted.
    pub destinations: u64,
    /// Kinds of denial: program, operation, object and rule together.
    pub denials: u64,
}

/// What went other than it should in the kernel, how often. Where something could not be decided, the
/// verdict for that held; this is where it shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Objects whose path could not be walked (detached, or over 4,096 bytes): the verdict for the
    /// nameless held.
    pub no_path: u64,
    /// Objects that could not be looked at for want of scratch memory: likewise.
    pub no_scratch: u64,
    /// Forks that were refused because the child could not be marked.
    pub forks_refused: u64,
    /// Cgroups made by the sandbox that could not be armed; its processes are held by their marks.
    pub cgroups_unarmed: u64,
    /// Processes in the sandbox's cgroup that could not be marked; the cgroup holds them.
    pub marks_failed: u64,
    /// File systems that the sandbox could not make, and tmpfs and terminals of its own that are not known as such, because it has
    /// its share of the room for them, or there is none.
    pub no_room: u64,
    /// Tasks that had left the cgroup and were still there when the run ended. From then on they are
    /// not confined.
    pub outlived: u64,
}

impl Trouble {
    /// Every count with its name in records and what it means in few words, for one and for more.
    #[must_use]
    pub const fn all(&self) -> [(&'static str, u64, [&'static str; 2]); 7] {
        [
            (
                "no_path",
                self.no_path,
                ["decision without a path", "decisions without a path"],
            ),
            (
                "no_scratch",
                self.no_scratch,
                [
                    "decision without scratch memory",
                    "decisions without scratch memory",
                ],
            ),
            (
                "forks_refused",
                self.forks_refused,
                ["fork refused", "forks refused"],
            ),
            (
                "cgroups_unarmed",
                self.cgroups_unarmed,
                ["cgroup not armed", "cgroups not armed"],
            ),
            (
                "marks_failed",
                self.marks_failed,
                ["process not marked", "processes not marked"],
            ),
            (
                "no_room",
                self.no_room,
                [
                    "file system or terminal for which there was no room",
                    "file systems or terminals for which there was no room",
                ],
            ),
            (
                "outlived",
                self.outlived,
                [
                    "task left the cgroup and outlived the run",
                    "tasks left the cgroup and outlived the run",
                ],
            ),
        ]
    }
}

/// What was cleaned up at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleanup {
    /// Processes that outlived the command and were killed.
    pub killed: u64,
    /// Why the cgroup is still there; `None` if it is gone.
    pub cgroup_left: Option<String>,
}

/// What was lost, of whatever cause.
#[must_use]
pub const fn lost(losses: &Losses) -> u64 {
    losses.ring_full
        + losses.no_scratch
        + losses.queue_full
        + losses.malformed
        + losses.agent_killed
        + losses.record_failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_tells_exit_from_signal() {
        assert_eq!(Status::from_wait(0x0100), Status::Code(1));
        assert_eq!(Status::from_wait(9), Status::Signal(9));
        assert_eq!(Status::from_wait(11 | 0x80), Status::Signal(11));
        assert_eq!(Status::Signal(9).shell(), 137);
    }
}
