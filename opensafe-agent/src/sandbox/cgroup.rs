//! A sandbox's cgroup.
//!
//! It is worked on by descriptors that are opened when it is made: a sandbox that may unmount could otherwise take away
//! the path to it, or put another file system there, and not be ended.

mod tree;

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            ffi::OsStrExt as _,
            fs::{FileExt as _, MetadataExt as _},
        },
    },
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::unistd::Pid;
use rustix::{
    fs::{
        AtFlags, Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, mkdirat, open, openat, unlinkat,
    },
    io::Errno,
    path::Arg,
};

use tree::{DIRECTORY, directory_at, each_below, remove_at};

use super::{
    freezer,
    view::{Mountinfo, mountinfo},
};
use crate::kernel::CGROUP_PARENT;

/// What can be wrong with cgroups.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// There is no cgroup v2.
    #[error("this host has no cgroup v2 mounted\n  mount it: mount -t cgroup2 none /sys/fs/cgroup")]
    NotMounted,
    /// One of its files cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was to be done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl CgroupError {
    /// What the system said.
    pub(super) fn source(&self) -> io::Error {
        match self {
            Self::NotMounted => io::ErrorKind::NotFound.into(),
            Self::Io { source, .. } => source
                .raw_os_error()
                .map_or_else(|| source.kind().into(), io::Error::from_raw_os_error),
        }
    }
}

/// A cgroup that we made. Removed, with all in it, when it is dropped.
#[derive(Debug)]
pub struct Cgroup {
    /// Where it was when it was made; to be shown.
    path: PathBuf,
    name: String,
    /// The directory that it is in.
    parent: OwnedFd,
    directory: File,
    /// Its `cgroup.kill`. As long as it is open for writing, nobody can make the file system read-only.
    kill: File,
    /// The `cgroup.procs` of the cgroup in which we are, and of the root.
    homes: Vec<File>,
    /// Our own cgroup, as the kernel tells it whenever it is read.
    own: Option<File>,
    id: u64,
    gone: bool,
}

/// How often that is made if others remove it at the same time.
const ATTEMPTS: usize = 20;
/// How long processes that are being killed may take to go.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Where cgroup v2 is mounted.
pub fn mount_point() -> Result<PathBuf, CgroupError> {
    let mounts =
        mountinfo(Path::new("/proc/self/mountinfo")).map_err(|source| CgroupError::Io {
            what: "read",
            path: "/proc/self/mountinfo".into(),
            source,
        })?;
    mounts
        .into_iter()
        .find(|Mountinfo { mount, .. }| mount.fs_type == "cgroup2" && mount.root == b"/")
        .map(|found| found.point())
        .ok_or(CgroupError::NotMounted)
}

impl Cgroup {
    /// Makes `opensafe/NAME` below the root of the hierarchy. Linux ≥ 5.14.
    pub fn create(name: &str) -> Result<Self, CgroupError> {
        let mount_point = mount_point()?;
        let path = mount_point.join(CGROUP_PARENT).join(name);
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |errno: Errno| CgroupError::Io {
                what,
                path,
                source: errno.into(),
            }
        };
        let root =
            open(&mount_point, DIRECTORY, Mode::empty()).map_err(io("open", &mount_point))?;
        let parent = make_within(&root, name).map_err(io("create", &path))?;
        let homes = homes(&mount_point);
        Self::made(path.clone(), name, parent, homes).map_err(|source| CgroupError::Io {
            what: "open",
            path,
            source,
        })
    }

    /// Notes on the cgroup with that name whose it is; [`Cgroup::left`] asks for it.
    ///
    /// # Errors
    /// If it is not there, or this kernel keeps no such notes.
    pub fn note(name: &str, owner: &str) -> io::Result<()> {
        let mount_point = mount_point().map_err(io::Error::other)?;
        let parent = open(mount_point.join(CGROUP_PARENT), DIRECTORY, Mode::empty())?;
        let directory = directory_at(&parent, name)?;
        Ok(fsetxattr(
            directory,
            OWNER,
            owner.as_bytes(),
            XattrFlags::empty(),
        )?)
    }

    /// One with that name that somebody who is gone has made and left; `None` if there is none, or the note on it names another
    /// `owner`.
    #[must_use]
    pub fn left(name: &str, owner: Option<&str>) -> Option<Self> {
        let mount_point = mount_point().ok()?;
        let above = mount_point.join(CGROUP_PARENT);
        let parent = open(&above, DIRECTORY, Mode::empty()).ok()?;
        let directory = directory_at(&parent, name).ok()?;
        if let Some(owner) = owner {
            // Too short for a longer note, which is then none.
            let mut noted = vec![0; owner.len()];
            let len = fgetxattr(directory, OWNER, &mut noted[..]).ok()?;
            if len != owner.len() || noted != owner.as_bytes() {
                return None;
            }
        }
        let homes = homes(&mount_point);
        Self::made(above.join(name), name, parent, homes).ok()
    }

    fn made(path: PathBuf, name: &str, parent: OwnedFd, homes: Vec<File>) -> io::Result<Self> {
        let opened = || {
            let directory = File::from(directory_at(&parent, name)?);
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let kill = File::from(openat(&directory, "cgroup.kill", flags, Mode::empty())?);
            let id = directory.metadata()?.ino();
            Ok((directory, kill, id))
        };
        match opened() {
            Ok((directory, kill, id)) => Ok(Self {
                path,
                name: name.to_owned(),
                parent,
                directory,
                kill,
                homes,
                own: File::open(OWN).ok(),
                id,
                gone: false,
            }),
            Err(error) => {
                let _ = unlinkat(&parent, name, AtFlags::REMOVEDIR);
                Err(error)
            }
        }
    }

    /// Its directory's path when it was made.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory's inode number, by which the kernel's programs know it.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its directory, open.
    #[must_use]
    pub const fn directory(&self) -> &File {
        &self.directory
    }

    /// Moves a process into it.
    pub fn add(&self, pid: Pid) -> Result<(), CgroupError> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&self.directory, PROCESSES, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|processes| File::from(processes).write_all(pid.to_string().as_bytes()))
            .map_err(|source| self.error("move a process into", source))
    }

    /// It is not this process's to end and to remove any more.
    pub const fn leave_to_another(&mut self) {
        self.gone = true;
    }

    /// Kills all that is left in it, waits until it is gone, and removes the cgroup and those below. Returns how many
    /// processes were left. If it cannot be killed there is no waiting for that.
    pub fn finish(&mut self) -> Result<u64, CgroupError> {
        if self.gone {
            return Ok(0);
        }
        let left = count_processes(&self.directory);
        let deadline = Instant::now() + KILL_PATIENCE;
        loop {
            // Whoever came in since is ended too.
            let killed = self.kill();
            match (self.remove(), killed) {
                (Ok(()), _) => break,
                (Err(_), Err(error)) => return Err(error),
                // Dying processes are still in it.
                (Err(_), Ok(())) if Instant::now() < deadline => sleep(Duration::from_millis(2)),
                (Err(source), Ok(())) => return Err(self.error("remove", source)),
            }
        }
        self.gone = true;
        // Ours too, once nobody uses it; that others still do is no error.
        let _ = unlinkat(
            &self.parent,
            format!("../{CGROUP_PARENT}"),
            AtFlags::REMOVEDIR,
        );
        Ok(left)
    }

    /// Kills all that is in it, without waiting.
    pub fn kill(&self) -> Result<(), CgroupError> {
        // Else we are ended with the others.
        let _ = self.leave();
        self.kill
            .write_all_at(b"1", 0)
            .map_err(|source| self.error("kill all in", source))
    }

    /// Stops all that is in it, and waits until it has.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        // Else we stop with the others.
        let _ = self.leave();
        freezer::freeze(&self.directory).map_err(|source| self.error("freeze", source))
    }

    /// Lets all go on that has stopped.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        freezer::thaw(&self.directory).map_err(|source| self.error("thaw", source))
    }

    /// Whether all in it is to stop, whoever has asked for it.
    pub fn is_frozen(&self) -> Result<bool, CgroupError> {
        freezer::is_asked_for(&self.directory).map_err(|source| self.error("look at", source))
    }

    /// Goes back to where we were, or to the root, if somebody has moved us into it, as root inside can. Whether they have.
    pub fn leave(&self) -> io::Result<bool> {
        let below = format!("/{CGROUP_PARENT}/{}", self.name);
        let now = self.own.as_ref().map(read_anew);
        if let Some(Ok(now)) = now
            && let Some(path) = now.lines().find_map(|line| line.strip_prefix("0::"))
            && !is_within(path, &below)
        {
            return Ok(false);
        }
        let mut left = Err(io::ErrorKind::NotFound.into());
        for mut home in &self.homes {
            left = left.or_else(|_: io::Error| home.write_all(b"0"));
        }
        left.map(|()| true)
    }

    /// Removes it and those below.
    fn remove(&self) -> io::Result<()> {
        each_below(&self.directory, |parent, name| remove_at(parent, name))?;
        Ok(remove_at(&self.parent, self.name.as_str())?)
    }

    fn error(&self, what: &'static str, source: io::Error) -> CgroupError {
        CgroupError::Io {
            what,
            path: self.path.clone(),
            source,
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Whoever wanted to know what became of it has called `finish`.
        let _ = self.finish();
    }
}

/// The cgroups of this process.
const OWN: &str = "/proc/self/cgroup";
const PROCESSES: &str = "cgroup.procs";
/// Only root of the first user namespace writes what begins so (xattr(7)), and in a sandbox it takes a policy that lets it
/// change cgroups.
const OWNER: &str = "trusted.opensafe.owner";

/// Makes `opensafe/NAME`; gives `opensafe`. Another run that ends may take that away in between.
fn make_within(root: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(0o755);
    let attempt = || {
        match mkdirat(root, CGROUP_PARENT, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let ours = directory_at(root, CGROUP_PARENT)?;
        mkdirat(&ours, name, mode)?;
        Ok(ours)
    };
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(Errno::NOENT | Errno::NODEV) => {}
            made => return made,
        }
    }
    attempt()
}

/// Processes in a cgroup and below, zombies left out.
pub(super) fn count_processes(directory: impl AsFd) -> u64 {
    let directory = directory.as_fd();
    let mut count = processes_of(directory, PROCESSES);
    // Those that cannot be looked at are not counted.
    let _ = each_below(directory, |parent, name| {
        count += processes_of(parent, [name.as_bytes(), b"/cgroup.procs"].concat());
        Ok(())
    });
    count
}

fn processes_of(directory: impl AsFd, file: impl Arg) -> u64 {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut text = String::new();
    let read = openat(directory, file, flags, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|file| File::from(file).read_to_string(&mut text));
    match read {
        Ok(_) => text.lines().filter(|pid| *pid != "0").count() as u64,
        Err(_) => 0,
    }
}

/// Opens the `cgroup.procs` of our own cgroup, and of the root, in case that it goes with us.
fn homes(mount_point: &Path) -> Vec<File> {
    let cgroups = std::fs::read(OWN).unwrap_or_default();
    let directories = below_root(&cgroups).into_iter().chain([Path::new("")]);
    directories
        .filter_map(|directory| {
            let path = mount_point.join(directory).join(PROCESSES);
            File::options().write(true).open(path).ok()
        })
        .collect()
}

/// The cgroup v2 that a `/proc/PID/cgroup` names, below the root of the hierarchy (cgroups(7)).
pub(crate) fn below_root(cgroups: &[u8]) -> Option<&Path> {
    let path = cgroups
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::/"))?;
    Some(Path::new(OsStr::from_bytes(path)))
}

/// The text of a file of `/proc`, which is made anew whenever it is read from its start (`seq_read_iter` in fs/seq_file.c). What
/// fits is given at once.
fn read_anew(file: &File) -> io::Result<String> {
    const USUAL: usize = 1024;
    let mut bytes = vec![0; USUAL];
    let mut read = 0;
    loop {
        match file.read_at(&mut bytes[read..], read as u64) {
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if read < bytes.len() {
            bytes.truncate(read);
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.resize(2 * read, 0);
    }
}

/// Whether a path in `/proc/PID/cgroup` leads to a cgroup with that path or below it. The hierarchy may begin above what is
/// mounted.
fn is_within(path: &str, cgroup: &str) -> bool {
    path.match_indices(cgroup)
        .any(|(at, _)| matches!(path.as_bytes().get(at + cgroup.len()), None | Some(b'/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_proc_tells_what_is_now_and_all_of_it() {
        const COMM: &str = "/proc/thread-self/comm";
        let comm = File::open(COMM).unwrap();
        for name in ["one", "another"] {
            std::fs::write(COMM, name).unwrap();
            assert_eq!(read_anew(&comm).unwrap(), format!("{name}\n"));
        }
        let status = File::open("/proc/self/status").unwrap();
        let told = read_anew(&status).unwrap();
        assert!(told.starts_with("Name:") && told.ends_with('\n'));
        let long = tempfile::tempfile().unwrap();
        let text = "0::/deep\n".repeat(1000);
        long.write_all_at(text.as_bytes(), 0).unwrap();
        assert_eq!(read_anew(&long).unwrap(), text);
    }
}
