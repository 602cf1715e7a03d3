//! The scenarios, by what they are about.

mod against;
mod applying;
mod boundary;
mod commands;
mod escapes;
mod files;
mod life;
mod load;
mod membership;
mod operations;
mod ordinary;
mod partial;
mod refusals;
mod responses;
mod sharing;
mod shortage;
mod survival;
mod terminal;
mod untrusted;

use crate::harness::Scenario;

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<&'static Scenario> {
    of_kernel()
        .into_iter()
        .chain(others())
        .chain(by_name())
        .collect()
}

/// Those that have a guest of their own: they run when they are named, or all are asked for.
fn by_name() -> impl Iterator<Item = &'static Scenario> {
    partial::SCENARIOS.iter()
}

/// Those to which a kernel may make a difference: every operation, file and way of being in a sandbox, ordinary work,
/// arguments of every kind, the list of escapes, and `opensafe boundary`.
pub(crate) fn of_kernel() -> Vec<&'static Scenario> {
    [
        operations::SCENARIOS,
        membership::SCENARIOS,
        files::SCENARIOS,
        ordinary::SCENARIOS,
        load::SCENARIOS,
        sharing::SCENARIOS,
        survival::SCENARIOS,
        applying::SCENARIOS,
        against::SCENARIOS,
        responses::SCENARIOS,
        boundary::SCENARIOS,
    ]
    .into_iter()
    .chain(escapes::SCENARIOS)
    .flatten()
    .chain(
        untrusted::SCENARIOS
            .iter()
            .filter(|one| untrusted::is_quick(one)),
    )
    .collect()
}

/// Of those, the list of escapes, and whatever it may matter to in which way programs are asked.
pub(crate) fn attacks() -> Vec<&'static Scenario> {
    [sharing::SCENARIOS, load::SCENARIOS, boundary::SCENARIOS]
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
        shortage::SCENARIOS,
        sharing::ends::SCENARIOS,
        against::others::SCENARIOS,
        terminal::SCENARIOS,
        refusals::SCENARIOS,
        responses::telling::SCENARIOS,
        commands::SCENARIOS,
        boundary::words::SCENARIOS,
    ]
    .into_iter()
    .flatten()
    .chain(
        untrusted::SCENARIOS
            .iter()
            .filter(|one| !untrusted::is_quick(one)),
    )
    .collect()
}
