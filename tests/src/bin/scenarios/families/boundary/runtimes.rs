//! `opensafe boundary test --runtime`: the attempts in bubblewrap and in a container.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::asked;
use crate::{
    harness::{Leftovers, Outcome, Problems, directory},
    scenarios,
};

scenarios![
    boundary_test_in_a_runtime_tells_what_that_stops_from_what_only_opensafe_stops,
    boundary_test_takes_nothing_for_stopped_in_a_runtime_that_does_not_start,
];

fn boundary_test_in_a_runtime_tells_what_that_stops_from_what_only_opensafe_stops()
-> Result<Outcome> {
    let mut problems = Problems::default();
    let before = Leftovers::now()?;
    // In bubblewrap, processes outside are those of nobody; a container's root has no right to mount.
    let (in_proc, mounting) = (["names.proc-fd", "names.proc-pid-root"], ["mounts.bind"]);
    for (runtime, kind, stopped, hidden) in [
        ("bwrap", "names", 20, &in_proc[..]),
        ("crun", "mounts", 2, &mounting[..]),
    ] {
        let words = [
            "boundary",
            "test",
            "--json",
            "--only",
            kind,
            "--runtime",
            runtime,
        ];
        let (status, text, said) = asked(&words)?;
        let report: Value = serde_json::from_str(&text)
            .with_context(|| format!("{runtime}: no JSON: status {status}: {text}{said}"))?;
        let count = |name: &str| report["counts"][name].as_u64().unwrap_or_default();
        problems.equal("the runtime", report["runtime"].as_str(), Some(runtime));
        problems.equal("the exit status", status, 0);
        problems.check(
            count("recorded") >= stopped && count("got_through") == 0,
            || format!("{runtime}: {}", report["counts"]),
        );
        problems.equal("those stopped", count("stopped"), count("recorded"));
        problems.check(count("work_passed") >= 10, || report["work"].to_string());
        for attempt in report["attempts"].as_array().into_iter().flatten() {
            let name = attempt["name"].as_str().unwrap_or_default();
            problems.check(
                !hidden.contains(&name) || attempt["outcome"] == "by_runtime",
                || format!("{runtime}: {attempt}"),
            );
        }
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn boundary_test_takes_nothing_for_stopped_in_a_runtime_that_does_not_start() -> Result<Outcome> {
    let mut problems = Problems::default();
    // It starts what it is given, and no policy names it.
    let directory = directory()?;
    let unlisted = directory.path().join("runtime");
    std::fs::copy("/usr/bin/env", &unlisted)?;
    let unlisted = unlisted.display().to_string();
    let denied = format!("denied: exec {unlisted}");
    for (runtime, says) in [
        ("docker", "no children of the sandbox"),
        ("no-such-runtime", "not found on PATH"),
        ("false", "false starts nothing here"),
        (&unlisted, &denied),
    ] {
        let words = [
            "boundary",
            "test",
            "--only",
            "membership",
            "--runtime",
            runtime,
        ];
        let (status, text, said) = asked(&words)?;
        problems.check(
            status == 2 && text.is_empty() && said.contains(says),
            || format!("{runtime}: status {status}, and not {says:?}: {text}{said}"),
        );
    }
    problems.outcome()
}
