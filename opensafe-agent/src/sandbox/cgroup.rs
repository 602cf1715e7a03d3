//! A sandbox's cgroup.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::unistd::Pid;

use super::view::{Mountinfo, mountinfo};

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

/// A cgroup that we made. Removed, with all in it, when it is dropped.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    id: u64,
    gone: bool,
}

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
    /// Makes `opensafe/NAME` below the root of the hierarchy.
    pub fn create(name: &str) -> Result<Self, CgroupError> {
        let parent = mount_point()?.join("opensafe");
        let path = parent.join(name);
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| CgroupError::Io { what, path, source }
        };
        fs::create_dir_all(&parent).map_err(io("create", &parent))?;
        fs::create_dir(&path).map_err(io("create", &path))?;
        let id = match fs::metadata(&path) {
            Ok(metadata) => metadata.ino(),
            Err(source) => {
                let _ = fs::remove_dir(&path);
                return Err(io("look at", &path)(source));
            }
        };
        Ok(Self {
            path,
            id,
            gone: false,
        })
    }

    /// Its directory.
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
    pub fn open(&self) -> Result<File, CgroupError> {
        File::open(&self.path).map_err(|source| self.error("open", source))
    }

    /// Moves a process into it.
    pub fn add(&self, pid: Pid) -> Result<(), CgroupError> {
        let procs = self.path.join("cgroup.procs");
        fs::write(&procs, pid.to_string()).map_err(|source| CgroupError::Io {
            what: "move a process into",
            path: procs,
            source,
        })
    }

    /// Kills all that is left in it, waits until it is gone, and removes the cgroup and those below.
    /// Returns how many processes were left.
    pub fn finish(mut self) -> Result<u64, CgroupError> {
        self.clean()
    }

    /// Kills all that is in it, without waiting.
    pub fn kill(&self) -> Result<(), CgroupError> {
        // Linux ≥ 5.14.
        fs::write(self.path.join("cgroup.kill"), "1")
            .map_err(|source| self.error("kill all in", source))
    }

    fn clean(&mut self) -> Result<u64, CgroupError> {
        if self.gone {
            return Ok(0);
        }
        let left = count_processes(&self.path);
        let deadline = Instant::now() + KILL_PATIENCE;
        loop {
            // Whoever came in since is ended too.
            self.kill()?;
            match remove_tree(&self.path) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                // Dying processes are still in it.
                Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(2)),
                Err(source) => return Err(self.error("remove", source)),
            }
        }
        self.gone = true;
        // Ours too, once nobody uses it; that others still do is no error.
        if let Some(parent) = self.path.parent() {
            let _ = fs::remove_dir(parent);
        }
        Ok(left)
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
        let _ = self.clean();
    }
}

/// Processes in a cgroup and below it, zombies left out.
fn count_processes(path: &Path) -> u64 {
    let own = fs::read_to_string(path.join("cgroup.procs")).map_or(0, |pids| {
        pids.lines().filter(|pid| *pid != "0").count() as u64
    });
    own + children(path)
        .iter()
        .map(|child| count_processes(child))
        .sum::<u64>()
}

fn remove_tree(path: &Path) -> io::Result<()> {
    for child in children(path) {
        remove_tree(&child)?;
    }
    fs::remove_dir(path)
}

fn children(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).map_or_else(
        |_| Vec::new(),
        |entries| {
            entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path())
                .collect()
        },
    )
}
