//! Whose processes, mounts and names those are that an attempt sees: a runtime may give it others than those outside have.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use serde::{Deserialize, Serialize};

/// What can be a namespace's own, and is meant by attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Namespace {
    Processes,
    Mounts,
    HostName,
    Network,
}

impl Namespace {
    const ALL: [Self; 4] = [Self::Processes, Self::Mounts, Self::HostName, Self::Network];

    /// Its file in `/proc/PID/ns`, see namespaces(7).
    const fn file(self) -> &'static str {
        match self {
            Self::Processes => "pid",
            Self::Mounts => "mnt",
            Self::HostName => "uts",
            Self::Network => "net",
        }
    }

    /// What one has of one's own in one, for a person.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Mounts => "mounts",
            Self::HostName => "a host name",
            Self::Network => "a network",
        }
    }
}

/// The namespaces of a process, by inode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Namespaces(BTreeMap<Namespace, u64>);

impl Namespaces {
    /// Those of this process. Looking at them opens nothing that a policy would be asked about.
    pub(super) fn own() -> Self {
        let inode = |which: Namespace| {
            let file = fs::metadata(format!("/proc/self/ns/{}", which.file()));
            Some((which, file.ok()?.ino()))
        };
        Self(Namespace::ALL.into_iter().filter_map(inode).collect())
    }

    /// Whether this process is in it too. Where that cannot be seen it is not.
    pub(super) fn has_this_process(&self, which: Namespace) -> bool {
        self.0.get(&which) == Self::own().0.get(&which)
    }
}

/// A process outside, as it is known where an attempt is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Its id, for system calls.
    pub(super) id: i32,
    /// Its directory in `/proc`.
    pub(super) directory: PathBuf,
}

/// The id of no process: more than any kernel's `pid_max` (4,194,304, include/linux/threads.h).
const NOBODY: i32 = i32::MAX;

impl Process {
    pub(super) fn new(id: i32) -> Self {
        let directory = PathBuf::from(format!("/proc/{id}"));
        Self { id, directory }
    }

    /// This one.
    pub(super) fn own() -> Self {
        Self::new(i32::try_from(std::process::id()).unwrap_or(NOBODY))
    }

    /// Makes it nobody: among processes of one's own its id is somebody else's, or nobody's, and nobody else is to be
    /// hit. In a `/proc` that is still that of those outside it is who it was.
    pub(super) fn hide(&mut self) {
        let nobody = Self::new(NOBODY);
        self.id = nobody.id;
        if proc_is_of_own_processes() {
            self.directory = nobody.directory;
        }
    }
}

fn proc_is_of_own_processes() -> bool {
    let own = std::process::id().to_string();
    fs::read_link("/proc/self").map_or(true, |id| id.as_os_str() == own.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_its_own_namespaces_and_not_in_those_that_it_cannot_see() {
        let mut outside = Namespaces::own();
        assert!(outside.has_this_process(Namespace::Processes));
        outside.0.insert(Namespace::Processes, 1);
        assert!(!outside.has_this_process(Namespace::Processes));
        assert!(outside.has_this_process(Namespace::Mounts));
        assert!(!Namespaces::default().has_this_process(Namespace::Mounts));
    }

    #[test]
    fn a_hidden_process_is_nobody_also_for_the_kernel() {
        let mut process = Process::own();
        process.hide();
        let id = nix::unistd::Pid::from_raw(process.id);
        let nobody = nix::sys::signal::kill(id, None);
        assert_eq!(nobody, Err(nix::errno::Errno::ESRCH));
        assert!(!process.directory.exists());
    }
}
