//! Stopping, letting go on and ending the sandbox of a run from outside of it.

use std::{fs::File, io::Write as _, os::unix::fs::MetadataExt as _};

use rustix::fs::{Mode, OFlags, open, openat};

use super::{
    cgroup::{CgroupError, count_processes, mount_point},
    freezer,
};
use crate::{kernel::CGROUP_PARENT, run::RunId};

/// What is to be done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All stop where they are.
    Freeze,
    /// They go on.
    Thaw,
    /// All are ended.
    Kill,
}

/// The cgroup of a run that goes on.
#[derive(Debug)]
pub struct Sandboxed {
    directory: File,
    path: std::path::PathBuf,
}

/// What was found, and done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obeyed {
    /// Processes that are, or were, in it.
    pub processes: u64,
    /// Whether it stood still before.
    pub was_frozen: bool,
}

impl Sandboxed {
    /// The one of this run; `None` if there is none any more. It goes by the run's id, not by a path that its record has,
    /// so that no record can name another; `inode` is its directory's number.
    ///
    /// # Errors
    /// If the host has no cgroup v2, or it cannot be opened.
    pub fn of(run: &RunId, inode: u64) -> Result<Option<Self>, CgroupError> {
        let path = mount_point()?.join(CGROUP_PARENT).join(run.as_str());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let error = |source| CgroupError::Io {
            what: "open",
            path: path.clone(),
            source,
        };
        let directory = match open(&path, flags, Mode::empty()) {
            Ok(directory) => File::from(directory),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(error(errno.into())),
        };
        let found = directory.metadata().map_err(error)?.ino();
        Ok((found == inode).then_some(Self { directory, path }))
    }

    /// Whether it stands still.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        freezer::is_asked_for(&self.directory).unwrap_or(false)
    }

    /// Does it.
    ///
    /// # Errors
    /// If it cannot be done.
    pub fn obey(&self, order: Order) -> Result<Obeyed, CgroupError> {
        let obeyed = Obeyed {
            processes: count_processes(&self.directory),
            was_frozen: self.is_frozen(),
        };
        let (what, done) = match order {
            Order::Freeze => ("freeze", freezer::freeze(&self.directory)),
            Order::Thaw => ("thaw", freezer::thaw(&self.directory)),
            Order::Kill => ("kill all in", self.kill()),
        };
        done.map(|()| obeyed).map_err(|source| CgroupError::Io {
            what,
            path: self.path.clone(),
            source,
        })
    }

    fn kill(&self) -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let control = openat(&self.directory, "cgroup.kill", flags, Mode::empty())?;
        File::from(control).write_all(b"1")
    }
}
