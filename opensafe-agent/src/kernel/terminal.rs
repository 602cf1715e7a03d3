//! Which terminal a descriptor is, as the kernel programs tell them apart.

use std::{
    fs,
    os::{
        fd::RawFd,
        unix::fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::Path,
};

use nix::sys::stat::{major, makedev, minor};
use opensafe_common::guarded::{MASTER, is_somebodys_terminal};

use crate::view::Dev;

/// A terminal at which somebody may sit, by where it is: its file system, and its inode's number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Device of the file system: a devpts, or that of `/dev`.
    pub device: Dev,
    /// Number of the inode.
    pub inode: u32,
}

impl Terminal {
    /// That of one of our descriptors, if it is one.
    #[must_use]
    pub fn of(descriptor: RawFd) -> Option<Self> {
        Self::at(Path::new(&format!("/proc/self/fd/{descriptor}")))
    }

    /// The one that we were started on: the first of standard input, output and error that is one, else the controlling
    /// one, if it is a pseudoterminal.
    #[must_use]
    pub fn own() -> Option<Self> {
        (0..=2).find_map(Self::of).or_else(Self::controlling)
    }

    fn controlling() -> Option<Self> {
        let number = procfs::process::Process::myself().ok()?.stat().ok()?;
        let (major, minor) = number.tty_nr();
        let index = (major - PTS.start()) * 256 + minor;
        let number = (PTS.contains(&major)).then_some(index)?;
        Self::at(Path::new(&format!("/dev/pts/{number}")))
    }

    fn at(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        let half = |half: u64| u32::try_from(half).ok();
        let (of, which) = (half(major(found.rdev()))?, half(minor(found.rdev()))?);
        if !found.file_type().is_char_device() || !is_somebodys_terminal(of, which) {
            return None;
        }
        Some(Self {
            device: Dev::new(half(major(found.dev()))?, half(minor(found.dev()))?),
            inode: half(found.ino())?,
        })
    }
}

/// Whether a descriptor is the master of a pseudoterminal, by which one types into it.
#[must_use]
pub fn is_master(descriptor: RawFd) -> bool {
    let master = makedev(MASTER.0.into(), MASTER.1.into());
    fs::metadata(format!("/proc/self/fd/{descriptor}"))
        .is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == master)
}

/// Major numbers of pseudoterminals' slaves.
const PTS: std::ops::RangeInclusive<i32> = 136..=143;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn terminals_are_told_apart_and_a_master_is_none() {
        let (one, two) = (
            nix::pty::openpty(None, None).unwrap(),
            nix::pty::openpty(None, None).unwrap(),
        );
        let first = Terminal::of(one.slave.as_raw_fd());
        assert!(first.is_some());
        assert_eq!(first, Terminal::of(one.slave.as_raw_fd()));
        assert_ne!(first, Terminal::of(two.slave.as_raw_fd()));
        assert_eq!(Terminal::of(one.master.as_raw_fd()), None);
        assert!(is_master(one.master.as_raw_fd()));
        assert!(!is_master(one.slave.as_raw_fd()));
    }

    #[test]
    fn a_file_is_no_terminal() {
        let file = fs::File::open("/dev/null").unwrap();
        assert_eq!(Terminal::of(file.as_raw_fd()), None);
        assert!(!is_master(file.as_raw_fd()));
    }
}
