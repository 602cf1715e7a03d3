//! What a sandbox sees of the file systems: its mounts, and where the links in its rules lead.
//!
//! Rules are written with the names that a process in the sandbox uses; the kernel matches where a
//! file is: its superblock, and its path below that superblock's root. This module's types carry what
//! is needed to go from one to the other. They are plain data; `sandbox` fills them.

use std::collections::BTreeMap;

/// A device number as the kernel keeps it in `s_dev`: major << 20 | minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dev(pub u32);

impl Dev {
    /// From the two halves that `/proc/PID/mountinfo` shows.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self(major << 20 | minor & 0xf_ffff)
    }

    /// From what stat(2) gives (gnu_dev_major(3)).
    #[must_use]
    pub fn of_stat(device: u64) -> Self {
        let half = |half: u64| u32::try_from(half).unwrap_or(u32::MAX);
        Self::new(
            half(nix::sys::stat::major(device)),
            half(nix::sys::stat::minor(device)),
        )
    }
}

/// One mount of a sandbox's mount namespace. Paths are bytes: they need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Device of the mounted superblock.
    pub dev: Dev,
    /// Type of the mounted file system, as in mountinfo (`ext4`, `proc`, `fuse.sshfs`).
    pub fs_type: String,
    /// The mounted directory's path below the superblock's root; `/` if it is the root itself.
    pub root: Vec<u8>,
    /// Where it is mounted, in the sandbox's view.
    pub point: Vec<u8>,
}

/// A sandbox's view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Mounts in mountinfo's order: a later one at the same point hides an earlier one.
    pub mounts: Vec<Mount>,
    /// Mounts of the sandbox's own tmpfs in other mount namespaces of its processes. They hide nothing here.
    pub elsewhere: Vec<Mount>,
    /// For a rule's literal leading directories (or whole path) that are not where they seem to be:
    /// name in the rule → name after following symbolic links. Only names that differ are here.
    pub links: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Device of the kernel's own tmpfs, on which `memfd_create(2)` files lie.
    pub memfd_dev: Option<Dev>,
}
