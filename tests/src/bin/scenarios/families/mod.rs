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
    let others = [
        life::SCENARIOS,
        terminal::SCENARIOS,
        refusals::SCENARIOS,
        commands::SCENARIOS,
    ];
    let mut all = of_kernel();
    all.extend(others.into_iter().flatten());
    all
}

/// Those whose outcome depends on the kernel; the others are about processes, terminals and words.
pub(crate) fn of_kernel() -> Vec<&'static Scenario> {
    [
        operations::SCENARIOS,
        membership::SCENARIOS,
        files::SCENARIOS,
        ordinary::SCENARIOS,
        load::SCENARIOS,
        boundary::SCENARIOS,
    ]
    .into_iter()
    .chain(escapes::all())
    .flatten()
    .collect()
}
