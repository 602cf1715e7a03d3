//! Who is who: what is known of the sandbox's processes.
//!
//! Kernel events keep it up to date, so that a process which lives for a millisecond is known by the
//! time its events are read; `/proc` is asked only about processes that were there before.

use std::{collections::HashMap, os::unix::ffi::OsStrExt};

use procfs::process::Process as ProcEntry;

use crate::{event::Pid, sink::redact::redact_args};

/// What is known of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Path of its executable in the sandbox's view; empty if unknown.
    pub executable: Vec<u8>,
    /// Its arguments, redacted.
    pub args: Vec<Vec<u8>>,
    /// Its `comm`.
    pub comm: Vec<u8>,
    /// Its parent.
    pub parent: Option<Pid>,
}

/// The processes of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: HashMap<Pid, Known>,
    containers: HashMap<u64, Option<String>>,
}

/// Ancestors that are named at most.
const MAX_ANCESTORS: usize = 16;
/// Processes that are remembered at most; a sandbox that has more gets its names from `/proc`.
const MAX_KNOWN: usize = 100_000;

impl Processes {
    /// What is known of a process; asks `/proc` about one that is not known.
    pub(super) fn get(&mut self, pid: Pid) -> &Known {
        if self.known.len() > MAX_KNOWN {
            self.known.clear();
        }
        self.known
            .entry(pid)
            .or_insert_with(|| from_proc(pid).unwrap_or_default())
    }

    /// Whether anything is known of a process yet, or still.
    pub(super) fn is_known(&self, pid: Pid) -> bool {
        self.known.contains_key(&pid)
    }

    /// A process made another: the child is what the parent is.
    pub(super) fn fork(&mut self, parent: Pid, child: Pid) {
        let mut known = self.get(parent).clone();
        known.parent = Some(parent);
        self.known.insert(child, known);
    }

    /// A process runs another program.
    pub(super) fn exec(
        &mut self,
        pid: Pid,
        parent: Pid,
        executable: Vec<u8>,
        args: &[Vec<u8>],
        comm: Vec<u8>,
    ) {
        let args = redact_args(args);
        self.known.insert(
            pid,
            Known {
                executable,
                args,
                comm,
                parent: Some(parent),
            },
        );
    }

    /// A process is gone.
    pub(super) fn exit(&mut self, pid: Pid) {
        self.known.remove(&pid);
    }

    /// `comm` of a process's ancestors, nearest first, as far as they are in the sandbox.
    #[must_use]
    pub(super) fn ancestors(&self, pid: Pid) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let mut next = self.known.get(&pid).and_then(|known| known.parent);
        while let Some(known) = next.and_then(|pid| self.known.get(&pid)) {
            if names.len() == MAX_ANCESTORS || known.comm.is_empty() {
                break;
            }
            names.push(known.comm.clone());
            next = known.parent;
        }
        names
    }

    /// Id of the container whose cgroup a process is in, if it looks like one.
    pub(super) fn container(&mut self, cgroup: u64, pid: Pid) -> Option<String> {
        self.containers
            .entry(cgroup)
            .or_insert_with(|| container_of(pid))
            .clone()
    }
}

fn from_proc(pid: Pid) -> Option<Known> {
    let process = ProcEntry::new(i32::try_from(pid.0).ok()?).ok()?;
    let stat = process.stat().ok()?;
    let args: Vec<Vec<u8>> = process
        .cmdline()
        .unwrap_or_default()
        .into_iter()
        .map(String::into_bytes)
        .collect();
    Some(Known {
        executable: process
            .exe()
            .map(|path| path.as_os_str().as_bytes().to_vec())
            .unwrap_or_default(),
        args: redact_args(&args),
        comm: stat.comm.into_bytes(),
        // Not followed beyond: the parent may be outside the sandbox.
        parent: None,
    })
}

fn container_of(pid: Pid) -> Option<String> {
    let process = ProcEntry::new(i32::try_from(pid.0).ok()?).ok()?;
    process
        .cgroups()
        .ok()?
        .into_iter()
        .find_map(|cgroup| container_id(&cgroup.pathname).map(str::to_owned))
}

/// Docker, Podman, containerd and CRI-O name a container's cgroup by its id, 64 hexadecimal digits,
/// alone or within `docker-….scope` and the like.
fn container_id(cgroup: &str) -> Option<&str> {
    const DIGITS: usize = 64;
    cgroup
        .rsplit(|c: char| !c.is_ascii_hexdigit())
        .find(|part| part.len() == DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_what_its_parent_is_until_it_runs_something_else() {
        let mut processes = Processes::default();
        let (shell, child) = (Pid(u32::MAX - 1), Pid(u32::MAX - 2));
        processes.exec(
            shell,
            Pid(1),
            b"/bin/sh".to_vec(),
            &[b"sh".to_vec()],
            b"sh".to_vec(),
        );
        processes.fork(shell, child);
        assert_eq!(processes.get(child).executable, b"/bin/sh");
        assert_eq!(processes.ancestors(child), [b"sh".to_vec()]);
        processes.exec(
            child,
            shell,
            b"/bin/cat".to_vec(),
            &[b"cat".to_vec()],
            b"cat".to_vec(),
        );
        assert_eq!(processes.get(child).executable, b"/bin/cat");
        processes.exit(child);
        assert_eq!(processes.get(child).executable, b"");
    }

    #[test]
    fn this_process_is_found_in_proc() {
        let mut processes = Processes::default();
        assert!(!processes.get(Pid(std::process::id())).executable.is_empty());
    }

    #[test]
    fn a_container_is_known_by_its_cgroup() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(
            container_id(&format!("/system.slice/docker-{id}.scope")),
            Some(id.as_str())
        );
        assert_eq!(container_id(&format!("/docker/{id}")), Some(id.as_str()));
        assert_eq!(container_id("/user.slice/session-1.scope"), None);
    }
}
