//! Ways out of a sandbox, each tried outside, where it works, and inside, where it must not.
//!
//! Ids such as `g-05` are those of the list of escapes that these began with; what has none was added here.

mod addresses;
mod consoles;
mod execution;
mod file_systems;
mod membership;
mod names;
mod network;
mod races;
mod rights;
mod spreading;
mod writes;

use crate::harness::Scenario;

/// All of them, by what they are about.
pub(super) const SCENARIOS: [&[Scenario]; 11] = [
    names::SCENARIOS,
    writes::SCENARIOS,
    execution::SCENARIOS,
    addresses::SCENARIOS,
    network::SCENARIOS,
    membership::SCENARIOS,
    consoles::SCENARIOS,
    rights::SCENARIOS,
    spreading::SCENARIOS,
    file_systems::SCENARIOS,
    races::SCENARIOS,
];
