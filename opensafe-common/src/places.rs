//! Who has which place in maps that several runs share.
//!
//! The kernel programs know nothing of it: an agent reads and writes it while it holds the lock that goes with the maps.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::tables::MAX_SANDBOXES;

/// All places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Places {
    /// Looks that were taken at the mounts so far, for any sandbox: the epoch of the policy that comes from one.
    pub looks: u32,
    /// By the sandbox's index: process id of the agent whose it is; 0 for a free place, [`Places::LEFT`] for one whose agent was
    /// killed and whose processes may live on.
    pub owners: [u32; MAX_SANDBOXES as usize],
}

impl Places {
    /// No process's id (`PID_MAX_LIMIT` of include/linux/threads.h).
    pub const LEFT: u32 = u32::MAX;
}
