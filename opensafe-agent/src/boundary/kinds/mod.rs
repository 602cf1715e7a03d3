//! The attempts, a file for each kind.

mod against;
mod execution;
mod kernel;
mod membership;
mod mounts;
mod names;
mod network;
mod processes;
mod writes;

pub(super) use mounts::{own_mounts, tmpfs};

use super::attempt::{Attempt, Kind};

/// All of them, kind by kind.
pub(super) fn all() -> impl Iterator<Item = (Kind, &'static Attempt)> {
    let of = |kind| match kind {
        Kind::Names => names::ALL,
        Kind::Writes => writes::ALL,
        Kind::Execution => execution::ALL,
        Kind::Network => network::ALL,
        Kind::Processes => processes::ALL,
        Kind::Mounts => mounts::ALL,
        Kind::Kernel => kernel::ALL,
        Kind::Membership => membership::ALL,
        Kind::AgainstOpensafe => against::ALL,
    };
    let each = Kind::ALL.into_iter();
    each.flat_map(move |kind| of(kind).iter().map(move |attempt| (kind, attempt)))
}
