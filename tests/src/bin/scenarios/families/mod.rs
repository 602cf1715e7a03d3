//! The scenarios, by what they are about.

mod boundary;
mod commands;
mod escapes;
mod files;
mod life;
mod load;
mod membership;
mod operations;
mod ordinary;
mod refusals;
mod terminal;

use crate::harness::Scenario;

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<&'static Scenario> {
    [
        operations::SCENARIOS,
        membership::SCENARIOS,
        files::SCENARIOS,
        ordinary::SCENARIOS,
        load::SCENARIOS,
        life::SCENARIOS,
        terminal::SCENARIOS,
        refusals::SCENARIOS,
        commands::SCENARIOS,
        boundary::SCENARIOS,
    ]
    .into_iter()
    .chain(escapes::all())
    .flatten()
    .collect()
}
