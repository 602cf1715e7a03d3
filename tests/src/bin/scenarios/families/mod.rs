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
mod sharing;
mod terminal;

use crate::harness::Scenario;

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<&'static Scenario> {
    of_kernel().into_iter().chain(others()).collect()
}

/// Those to which a kernel may make a difference, in a quarter of the time: every operation, file and way of being
/// in a sandbox, ordinary work, `opensafe boundary`, whose attempts are of the kinds that the whole list of escapes has,
/// in one run, and of that list what the kernel decides by itself.
pub(crate) fn of_kernel() -> Vec<&'static Scenario> {
    [
        operations::SCENARIOS,
        membership::SCENARIOS,
        files::SCENARIOS,
        ordinary::SCENARIOS,
        load::SCENARIOS,
        sharing::SCENARIOS,
        boundary::SCENARIOS,
    ]
    .into_iter()
    .chain(escapes::OF_KERNEL)
    .flatten()
    .collect()
}

/// The others: the rest of the list of escapes, and what is about runtimes, processes, terminals and words.
pub(crate) fn others() -> Vec<&'static Scenario> {
    let others = [
        boundary::runtimes::SCENARIOS,
        life::SCENARIOS,
        sharing::ends::SCENARIOS,
        terminal::SCENARIOS,
        refusals::SCENARIOS,
        commands::SCENARIOS,
    ];
    others
        .into_iter()
        .chain(escapes::others())
        .flatten()
        .collect()
}
