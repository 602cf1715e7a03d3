//! Who is who: what is known of the sandbox's processes.
//!
//! Kernel events keep it up to date, so that a process which lives for a millisecond is known by the
//! time its events are read; `/proc` is asked only about processes that were there before.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use opensafe_common::event::MAX_ARGS_BYTES;

use crate::{
    event::{Pid, split_args},
    sink::redact::redact_args,
};

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
/// Processes, and cgroups, that are remembered at most; of a sandbox that has more they are asked for again.
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
        if self.containers.len() > MAX_KNOWN {
            self.containers.clear();
        }
        self.containers
            .entry(cgroup)
            .or_insert_with(|| container_of(pid))
            .clone()
    }
}

fn from_proc(pid: Pid) -> Option<Known> {
    let directory = directory_of(pid)?;
    let comm = comm_of(pid)?;
    let arguments = first_of(&directory.join("cmdline"), MAX_ARGS_BYTES);
    Some(Known {
        executable: fs::read_link(directory.join("exe"))
            .map(|path| path.into_os_string().into_vec())
            .unwrap_or_default(),
        args: redact_args(&split_args(&arguments.unwrap_or_default())),
        comm,
        // Not followed beyond: the parent may be outside the sandbox.
        parent: None,
    })
}

/// A process's `comm`; `None` if it is gone.
pub(super) fn comm_of(pid: Pid) -> Option<Vec<u8>> {
    let mut comm = fs::read(directory_of(pid)?.join("comm")).ok()?;
    // One line end is the file's; what else there is at the end is the name's.
    comm.pop_if(|last| *last == b'\n');
    Some(comm)
}

fn container_of(pid: Pid) -> Option<String> {
    container_id(&fs::read(directory_of(pid)?.join("cgroup")).ok()?)
}

fn directory_of(pid: Pid) -> Option<PathBuf> {
    // Longer ones are no process's.
    i32::try_from(pid.0).ok()?;
    Some(PathBuf::from(format!("/proc/{}", pid.0)))
}

/// As much as the kernel's programs tell of arguments, of which there may be megabytes.
fn first_of(path: &Path, bytes: usize) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    File::open(path)?
        .take(u64::try_from(bytes).unwrap_or(u64::MAX))
        .read_to_end(&mut first)?;
    Ok(first)
}

/// Docker, Podman, containerd and CRI-O name a container's cgroup by its id, 64 hexadecimal digits,
/// alone or within `docker-….scope` and the like.
pub(crate) fn container_id(cgroups: &[u8]) -> Option<String> {
    const DIGITS: usize = 64;
    cgroups
        .rsplit(|byte| !byte.is_ascii_hexdigit())
        .find(|part| part.len() == DIGITS)
        .map(|id| String::from_utf8_lossy(id).into_owned())
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
    fn a_process_is_known_by_its_bytes_whatever_they_are_and_by_no_more_than_is_told_of_others() {
        use std::{
            ffi::OsStr,
            io::Write as _,
            os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
            process::{Command, Stdio},
        };

        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(OsStr::from_bytes(b"\xff) R 1(\n\n"));
        fs::copy("/bin/cat", &program).unwrap();
        let long = "x".repeat(3 * MAX_ARGS_BYTES);
        let mut child = Command::new(&program)
            .arg0(OsStr::from_bytes(b"\xfe"))
            .args(["-", "", &long])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Once it answers, it is the program.
        let mut answer = [0];
        child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut answer)
            .unwrap();
        let known = from_proc(Pid(child.id())).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(known.comm, b"\xff) R 1(\n\n");
        assert_eq!(known.executable, program.into_os_string().into_vec());
        assert_eq!(known.args[..3], [&b"\xfe"[..], b"-", b""]);
        let told: usize = known.args.iter().map(|arg| arg.len() + 1).sum();
        assert!(told <= MAX_ARGS_BYTES + 1, "{told}");
    }

    #[test]
    fn a_container_is_known_by_its_cgroup() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("0::/docker/{id}\n"),
        ] {
            assert_eq!(container_id(path.as_bytes()), Some(id.clone()));
        }
        let beside = [b"0::/\xff/".as_slice(), id.as_bytes(), b"/\xfe\n"].concat();
        assert_eq!(container_id(&beside), Some(id));
        assert_eq!(container_id(b"0::/user.slice/session-1.scope\n"), None);
    }
}
