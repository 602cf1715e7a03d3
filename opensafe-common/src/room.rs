//! Room that sandboxes have in common, and how much of it one may take: what one of them makes without end is not to be
//! missing to the others, or to what is outside.

use crate::tables::{MAX_CGROUPS, MAX_SUPERBLOCKS, MAX_TASKS};

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Room {
    /// Marks of tasks.
    Marks = 0,
    /// Cgroups below the sandbox's own.
    Cgroups = 1,
    /// tmpfs that the sandbox made.
    Tmpfs = 2,
    /// Pseudoterminals that it made.
    Terminals = 3,
    /// File systems that it made and has not mounted.
    Unmounted = 4,
    /// The programs' scratch memory, of which there is so much as the host has processors.
    Scratch = 5,
}

/// Places of each kind that a sandbox has taken, by [`Room`].
pub type Taken = [u64; Room::COUNT];

/// tmpfs, and pseudoterminals, that can be known as some sandbox's own at once.
pub const MAX_OWN: u32 = 4096;

/// Three that take all they can leave others as much as each of them has.
const SHARES: u32 = 4;

impl Room {
    /// How many there are.
    pub const COUNT: usize = 6;

    /// Places that all sandboxes have together.
    #[inline(always)]
    #[must_use]
    pub const fn of_all(self) -> u32 {
        match self {
            Self::Marks => MAX_TASKS,
            Self::Cgroups => MAX_CGROUPS,
            Self::Tmpfs | Self::Terminals => MAX_OWN,
            Self::Unmounted => MAX_SUPERBLOCKS,
            Self::Scratch => 0,
        }
    }

    /// Places that one sandbox may take.
    #[inline(always)]
    #[must_use]
    pub const fn of_one(self) -> u32 {
        self.of_all() / SHARES
    }
}
