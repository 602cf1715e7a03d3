//! What `cargo xtask soak` runs in a guest: many processes in one sandbox that try what is closed, while its policy changes every
//! second, whoever attends to it is killed, and new versions take it over.
//!
//! ```text
//! opensafe-soak [--minutes N] [--workers N] [--pace-ms N] [--kill-ms N] [--seed N]   a line for each claim, counts and figures
//! opensafe-soak inside …                                                            what works inside the sandbox
//! ```
//! As root, in a guest. Like the scenarios it says `ok`, `FAILED` and at the end the counts; figures are left in `/out/soak.json`.

mod attend;
mod check;
mod counts;
mod ground;
mod order;
mod swap;
mod work;

use std::{ffi::OsString, fs, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};

/// What to do.
#[derive(Clone, Debug)]
struct Plan {
    lasts: Duration,
    workers: usize,
    /// How long a worker pauses after each round; 0 for none.
    pace: Duration,
    /// How often whoever attends is killed.
    kill_every: Duration,
    /// What differs from one soak to the next.
    seed: u64,
}

/// Where figures go: the guest's way out.
const FIGURES: &str = "/out/soak.json";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let inside = arguments
        .split_first()
        .filter(|(first, _)| *first == "inside");
    let done = match inside {
        Some((_, rest)) => work::inside(rest).map(|()| true),
        None => plan(&arguments).and_then(|plan| soak(&plan)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAILED soak: {error:#}");
            println!("0 passed, 1 failed, 0 skipped");
            ExitCode::FAILURE
        }
    }
}

fn plan(arguments: &[OsString]) -> Result<Plan> {
    let mut plan = Plan {
        lasts: Duration::from_secs(120),
        workers: 64,
        pace: Duration::from_millis(150),
        kill_every: Duration::from_secs(20),
        seed: 1,
    };
    let mut words = arguments.iter();
    while let Some(name) = words.next() {
        let value = words.next().and_then(|value| value.to_str());
        let value: u64 = value
            .and_then(|value| value.parse().ok())
            .with_context(|| format!("{} takes a number", name.display()))?;
        match name.to_str() {
            Some("--minutes") => plan.lasts = Duration::from_secs(60 * value),
            Some("--workers") => plan.workers = usize::try_from(value)?,
            Some("--pace-ms") => plan.pace = Duration::from_millis(value),
            Some("--kill-ms") => plan.kill_every = Duration::from_millis(value),
            Some("--seed") => plan.seed = value,
            _ => bail!(
                "no option {}: --minutes, --workers, --pace-ms, --kill-ms, --seed",
                name.display()
            ),
        }
    }
    Ok(plan)
}

/// Whether all held.
fn soak(plan: &Plan) -> Result<bool> {
    let ground = ground::Ground::make(plan)?;
    let done = attend::go(plan, &ground)?;
    let told = check::check(plan, &ground, &done)?;
    for (name, why) in &told.claims {
        match why {
            None => println!("ok {name}"),
            Some(why) => println!("FAILED {name}: {}", why.replace('\n', "\n    ")),
        }
    }
    println!("{}", told.table());
    fs::write(FIGURES, told.figures.to_string() + "\n").context(FIGURES)?;
    let failed = told.claims.iter().filter(|(_, why)| why.is_some()).count();
    println!(
        "{} passed, {failed} failed, 0 skipped",
        told.claims.len() - failed
    );
    Ok(failed == 0)
}
