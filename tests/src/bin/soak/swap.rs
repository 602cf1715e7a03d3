//! Gives the run another policy every second, one after the other.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{ground::Ground, order::FILES};

/// At least this is between two changes.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Swaps {
    /// How long each took, from the start of the program to its end.
    pub(crate) took: Vec<Duration>,
    /// Those that nobody was there for.
    pub(crate) unattended: u64,
    /// What else went wrong.
    pub(crate) failures: Vec<String>,
}

/// Until it is told to stop. The run began with policy 0.
pub(crate) fn swap(run: &str, ground: &Ground, stop: &AtomicBool) -> Swaps {
    let mut swaps = Swaps::default();
    let mut which = 1;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let output = Command::new("opensafe")
            .args(["policy", "apply", run])
            .arg(ground.policy(which % FILES))
            .output();
        let said = output.as_ref().map_or_else(ToString::to_string, |output| {
            String::from_utf8_lossy(&output.stderr).into_owned()
        });
        match output {
            Ok(output) if output.status.success() => {
                swaps.took.push(began.elapsed());
                which += 1;
            }
            // The same again: it may be in force, or will be once the run is taken up.
            _ if ["nobody attends to", "was killed before it answered"]
                .iter()
                .any(|words| said.contains(words)) =>
            {
                swaps.unattended += 1;
            }
            _ => swaps.failures.push(said),
        }
        sleep(EVERY);
    }
    swaps
}
