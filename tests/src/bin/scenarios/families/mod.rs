//! The scenarios, by what they are about.

mod against;
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
mod sharing;
mod terminal;

use crate::harness::Scenario;

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<&'static Scenario> {
    of_kernel().into_iter().chain(others()).collect()
}

/// Those to which a kernel may make a difference: every operation, file and way of being in a sandbox, ordinary work,
/// the list of escapes, and `opensafe boundary`.
pub(crate) fn of_kernel() -> Vec<&'static Scenario> {
    [
        operations::SCENARIOS,
        membership::SCENARIOS,
        files::SCENARIOS,
        ordinary::SCENARIOS,
        load::SCENARIOS,
        sharing::SCENARIOS,
        against::SCENARIOS,
        boundary::SCENARIOS,
    ]
    .into_iter()
    .chain(escapes::SCENARIOS)
    .flatten()
    .collect()
}

/// The others: what is about runtimes, processes, terminals and words.
pub(crate) fn others() -> Vec<&'static Scenario> {
    [
        boundary::runtimes::SCENARIOS,
        life::SCENARIOS,
        sharing::ends::SCENARIOS,
        against::others::SCENARIOS,
        terminal::SCENARIOS,
        refusals::SCENARIOS,
        commands::SCENARIOS,
        boundary::words::SCENARIOS,
    ]
    .into_iter()
    .flatten()
    .collect()
}
