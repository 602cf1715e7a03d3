//! Which pseudoterminal a descriptor is, as the kernel programs tell them apart.

use std::{
    fs,
    os::{
        fd::RawFd,
        unix::fs::{FileTypeExt as _, MetadataExt as _},
    },
};

use nix::sys::{
    stat::{major, makedev, minor},
    statfs::{FsType, statfs},
};

use crate::view::Dev;

/// A pseudoterminal, by where it is: its devpts, and its inode's number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Device of the devpts.
    pub device: Dev,
    /// Number of the inode.
    pub inode: u32,
}

impl Terminal {
    /// That of one of our descriptors, if it is one; a master, which is its holder's own, is none.
    #[must_use]
    pub fn of(descriptor: RawFd) -> Option<Self> {
        const DEVPTS: FsType = FsType(0x1cd1); // linux/magic.h
        let path = format!("/proc/self/fd/{descriptor}");
        let found = fs::metadata(&path).ok()?;
        // 5:2 is every master's (Documentation/admin-guide/devices.txt).
        if !found.file_type().is_char_device() || found.rdev() == makedev(5, 2) {
            return None;
        }
        if statfs(path.as_str()).ok()?.filesystem_type() != DEVPTS {
            return None;
        }
        let half = |half: u64| u32::try_from(half).ok();
        Some(Self {
            device: Dev::new(half(major(found.dev()))?, half(minor(found.dev()))?),
            inode: half(found.ino())?,
        })
    }

    /// The one that we were started on: the first of standard input, output and error that is one.
    #[must_use]
    pub fn own() -> Option<Self> {
        (0..=2).find_map(Self::of)
    }
}

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
    }

    #[test]
    fn a_file_is_no_terminal() {
        let file = fs::File::open("/dev/null").unwrap();
        assert_eq!(Terminal::of(file.as_raw_fd()), None);
    }
}
