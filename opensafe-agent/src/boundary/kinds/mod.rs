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

use super::attempt::Attempt;

/// All of them, kind by kind.
pub(super) fn all() -> impl Iterator<Item = &'static Attempt> {
    [
        names::ALL,
        writes::ALL,
        execution::ALL,
        network::ALL,
        processes::ALL,
        mounts::ALL,
        kernel::ALL,
        membership::ALL,
        against::ALL,
    ]
    .into_iter()
    .flatten()
}
