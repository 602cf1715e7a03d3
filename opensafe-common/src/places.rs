//! Who has which place in maps that several runs share.
//!
//! The kernel programs know nothing of it: an agent reads and writes it while it holds the lock that goes with the maps.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::tables::MAX_SANDBOXES;

/// All places.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Places {
    /// Policies that were installed so far, by any sandbox.
    pub epochs: u32,
    /// Always 0: keeps the layout free of implicit padding.
    pub reserved: u32,
    /// By the sandbox's index.
    pub places: [Place; MAX_SANDBOXES as usize],
}

/// What one sandbox has.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Place {
    /// Process id of the agent whose sandbox it is; 0 for a free place.
    pub owner: u32,
    /// Its first chunk of the arena.
    pub first_chunk: u32,
    /// How many chunks it has.
    pub chunks: u32,
    /// Always 0.
    pub reserved: u32,
}
