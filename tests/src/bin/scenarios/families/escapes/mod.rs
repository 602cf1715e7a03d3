//! Ways out of a sandbox, each tried outside, where it works, and inside, where it must not.
//!
//! Ids such as `g-05` are those of the list of escapes that these began with; what has none was added here.

mod addresses;
mod execution;
mod membership;
mod names;
mod network;
mod rights;
mod spreading;
mod writes;

use crate::harness::Scenario;

/// Those to which a kernel may make a difference: which address is meant where none is said, and how mounts spread.
pub(super) const OF_KERNEL: [&[Scenario]; 2] = [addresses::SCENARIOS, spreading::SCENARIOS];

/// The others.
pub(super) fn others() -> impl Iterator<Item = &'static [Scenario]> {
    [
        names::SCENARIOS,
        writes::SCENARIOS,
        execution::SCENARIOS,
        network::SCENARIOS,
        membership::SCENARIOS,
        rights::SCENARIOS,
    ]
    .into_iter()
}
