//! What an attempt is: data, and the function that makes it.

use std::{ffi::OsStr, fmt, io, process::Stdio};

use clap::ValueEnum;
use serde::Serialize;

use super::{namespaces::Namespace, site::Site};

/// What kind of way out it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reading what is denied, by another name, mount or descriptor
    Names,
    /// Changing what is protected
    Writes,
    /// Running what is denied
    Execution,
    /// Contacting who is denied
    Network,
    /// Reading, changing and ending processes outside
    Processes,
    /// Changing what is mounted where
    Mounts,
    /// Reaching into the kernel
    Kernel,
    /// Leaving the sandbox
    Membership,
    /// Stopping or blinding what confines
    AgainstOpensafe,
}

impl Kind {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Self; 9] = [
        Self::Names,
        Self::Writes,
        Self::Execution,
        Self::Network,
        Self::Processes,
        Self::Mounts,
        Self::Kernel,
        Self::Membership,
        Self::AgainstOpensafe,
    ];

    /// As it is typed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Writes => "writes",
            Self::Execution => "execution",
            Self::Network => "network",
            Self::Processes => "processes",
            Self::Mounts => "mounts",
            Self::Kernel => "kernel",
            Self::Membership => "membership",
            Self::AgainstOpensafe => "against-opensafe",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What the record has to say about a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expects {
    /// That of a place in the throwaway directory: on `file` or `exec`.
    Place,
    /// Any of these events.
    Events(&'static [&'static str]),
    /// Any event: it may be stopped at more than one step.
    Any,
}

/// What makes it.
pub(super) type Make = fn(&Site) -> io::Result<()>;

/// One way to try it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// Kind and name, with a dot between: unique.
    pub(super) name: &'static str,
    /// What is tried, for a person.
    pub(super) shows: &'static str,
    pub(super) expects: Expects,
    /// How it may end when it was stopped, besides with EACCES or EPERM: a program says it in its own way.
    pub(super) or_ends: &'static [&'static str],
    /// The default that has to be other than `allow`, if it is that which stops it.
    pub(super) by_default: Option<&'static str>,
    /// The namespace that it has to share with others to reach anything of theirs.
    pub(super) of_others: Option<Namespace>,
    pub(super) make: Make,
}

impl Attempt {
    /// One that is stopped at a file or program in the throwaway directory.
    pub(super) const fn place(name: &'static str, shows: &'static str, make: Make) -> Self {
        Self {
            name,
            shows,
            expects: Expects::Place,
            or_ends: &[],
            by_default: None,
            of_others: None,
            make,
        }
    }

    /// One that shows in the record as one of these events.
    pub(super) const fn event(
        name: &'static str,
        shows: &'static str,
        events: &'static [&'static str],
        make: Make,
    ) -> Self {
        Self {
            expects: Expects::Events(events),
            ..Self::place(name, shows, make)
        }
    }

    /// One that may be stopped at any of several steps.
    pub(super) const fn any(name: &'static str, shows: &'static str, make: Make) -> Self {
        Self {
            expects: Expects::Any,
            ..Self::place(name, shows, make)
        }
    }

    /// It may also end so when it was stopped.
    pub(super) const fn or_ends(mut self, ends: &'static [&'static str]) -> Self {
        self.or_ends = ends;
        self
    }

    /// Only a policy whose default for this is not `allow` can stop it.
    pub(super) const fn by_default(mut self, default: &'static str) -> Self {
        self.by_default = Some(default);
        self
    }

    /// It means nothing to others where this namespace is its own.
    pub(super) const fn of_others(mut self, which: Namespace) -> Self {
        self.of_others = Some(which);
        self
    }

    /// Makes it, unless it would reach nobody.
    pub(super) fn make_at(&self, site: &Site) -> io::Result<()> {
        match self.of_others {
            Some(which) if !site.namespaces.has_this_process(which) => {
                let own = format!("it has {} of its own", which.as_str());
                Err(io::Error::other(own))
            }
            _ => (self.make)(site),
        }
    }

    /// Whether ending so means that it was stopped.
    pub(super) fn is_stopped_by(&self, end: &str) -> bool {
        matches!(end, "EACCES" | "EPERM") || self.or_ends.contains(&end)
    }
}

/// A program that the host may have or not; succeeds if it does.
pub(super) fn command<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> io::Result<()> {
    use std::os::unix::process::ExitStatusExt as _;
    // Pipes: opening /dev/null would be one more thing to be decided.
    let output = std::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .output()?;
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(io::Error::other(format!("status {code}"))),
        (None, signal) => Err(io::Error::other(format!(
            "signal {}",
            signal.unwrap_or_default()
        ))),
    }
}
