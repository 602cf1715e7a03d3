//! `opensafe boundary`, as a user runs it on a host of theirs.

pub(super) mod runtimes;

use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    harness::{Leftovers, Outcome, Problems, ask, opensafe, wait_for},
    scenarios,
};

scenarios![every_attempt_of_boundary_test_is_stopped_and_recorded];

/// Those to which a kernel makes no difference.
pub(super) mod words {
    use super::{
        a_boundary_test_ends_between_attempts_when_it_is_asked_to,
        boundary_audit_lists_what_is_open_and_names_no_value,
        what_a_killed_boundary_test_has_left_is_gone_after_the_next,
        what_boundary_prints_for_a_person_says_how_many_held,
    };

    crate::scenarios![
        what_boundary_prints_for_a_person_says_how_many_held,
        boundary_audit_lists_what_is_open_and_names_no_value,
        a_boundary_test_ends_between_attempts_when_it_is_asked_to,
        what_a_killed_boundary_test_has_left_is_gone_after_the_next,
    ];
}

/// What was asked for, with a credential in the environment: status, standard output, standard error.
fn asked(arguments: &[&str]) -> Result<(i32, String, String)> {
    ask(opensafe()
        .args(arguments)
        .env("BOUNDARY_API_TOKEN", "never-shown"))
}

fn every_attempt_of_boundary_test_is_stopped_and_recorded() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let (status, text, said) = asked(&["boundary", "test", "--json"])?;
    let mut problems = Problems::default();
    let report: Value = serde_json::from_str(&text)
        .with_context(|| format!("no JSON: status {status}: {text}{said}"))?;
    let empty = Vec::new();
    for attempt in report["attempts"].as_array().unwrap_or(&empty) {
        let (name, outcome) = (&attempt["name"], &attempt["outcome"]);
        problems.check(*outcome == "stopped" || *outcome == "not_tried", || {
            format!("{name}: {attempt}")
        });
        if *outcome == "not_tried" {
            println!("  left out: {name}: {}", attempt["why"]);
        }
    }
    for work in report["work"].as_array().unwrap_or(&empty) {
        problems.check(
            work["passed"] == true && work["denials"] == Value::Array(Vec::new()),
            || format!("{}: {work}", work["name"]),
        );
    }
    let count = |name: &str| report["counts"][name].as_u64().unwrap_or_default();
    problems.equal("the exit status", status, 0);
    problems.check(count("recorded") >= 120, || {
        format!("only {} were tried", count("recorded"))
    });
    problems.equal("those stopped", count("stopped"), count("recorded"));
    problems.equal("what got through", count("got_through"), 0);
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn what_boundary_prints_for_a_person_says_how_many_held() -> Result<Outcome> {
    let (status, text, said) = asked(&["boundary", "test", "--only", "writes"])?;
    let mut problems = Problems::default();
    problems.equal("the exit status", status, 0);
    let rows = text
        .lines()
        .filter(|line| line.starts_with("writes ") && line.contains("yes: "))
        .count();
    let counted = format!("{rows} attempts: {rows} stopped, {rows} of them on record");
    problems.check(rows > 15 && text.contains(&counted), || {
        format!("{rows} rows, and not {counted:?}: {text}{said}")
    });
    problems.check(text.ends_with("the boundary holds\n"), || text.clone());
    let (status, listed, _) = asked(&["boundary", "test", "--list", "--only", "writes"])?;
    problems.check(status == 0 && listed.lines().count() >= rows, || listed);
    problems.outcome()
}

fn boundary_audit_lists_what_is_open_and_names_no_value() -> Result<Outcome> {
    let mut problems = Problems::default();
    let (status, text, said) = asked(&["boundary", "audit", "--policy", "coding-agent", "--json"])?;
    let report: Value = serde_json::from_str(&text)
        .with_context(|| format!("no JSON: status {status}: {text}{said}"))?;
    let ids: Vec<&str> = report["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|finding| finding["id"].as_str())
        .collect();
    // It is started by root, and nothing limits it.
    for id in ["user.root", "limits.memory", "environment.credentials"] {
        problems.check(ids.contains(&id), || format!("no {id}: {text}"));
    }
    problems.check(
        !text.contains("never-shown") && text.contains("BOUNDARY_API_TOKEN"),
        || text.clone(),
    );
    problems.equal("the exit status", status, 1);
    let (status, text, said) = asked(&["boundary", "audit", "--pid", "1"])?;
    problems.check(status == 1 && text.contains("no policy"), || {
        format!("--pid 1: {status}: {text}{said}")
    });
    problems.outcome()
}

/// The throwaway directories that there are.
fn throwaway() -> Vec<PathBuf> {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| name.starts_with("opensafe-boundary-"))
    };
    paths.filter(is_one).collect()
}

/// A test that has begun, with a file of some length in its directory.
fn begun(kind: &str, file: &str) -> Result<Child> {
    let before = throwaway();
    let child = opensafe()
        .args(["boundary", "test", "--only", kind])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    wait_for(file, || {
        let new = throwaway()
            .into_iter()
            .filter(|path| !before.contains(path));
        new.into_iter()
            .any(|path| fs::metadata(path.join(file)).is_ok_and(|file| file.len() > 0))
    })?;
    Ok(child)
}

fn a_boundary_test_ends_between_attempts_when_it_is_asked_to() -> Result<Outcome> {
    // All of them take a quarter of a minute and more.
    const SOON: Duration = Duration::from_secs(12);
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let child = begun("names", "workspace/results")?;
        let start = Instant::now();
        kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
        let output = child.wait_with_output()?;
        let (took, said) = (start.elapsed(), String::from_utf8_lossy(&output.stderr));
        problems.check(took < SOON, || format!("{signal}: it took {took:?}"));
        problems.equal("its exit status", output.status.code(), Some(2));
        problems.check(said.contains(&format!("interrupted by {signal}")), || {
            format!("{signal}: it said {said}")
        });
        problems.equal("directories left", throwaway(), Vec::new());
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn what_a_killed_boundary_test_has_left_is_gone_after_the_next() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    // While attempts are made outside, and inside.
    for file in ["workspace/results", "boundary-test"] {
        let mut child = begun("membership", file)?;
        child.kill()?;
        child.wait()?;
        // What the first has left the second has removed.
        problems.equal("directories that were left", throwaway().len(), 1);
        // The one that all are in is there before if another run is.
        let mut cgroups = Leftovers::now()?.cgroups_since(&before);
        cgroups.retain(|cgroup| !cgroup.ends_with("/opensafe"));
        problems.check(cgroups.len() == 2, || format!("left were {cgroups:?}"));
    }
    let (status, text, said) = asked(&["boundary", "test", "--only", "membership"])?;
    problems.check(status == 0, || format!("{status}: {text}{said}"));
    problems.equal("directories left", throwaway(), Vec::new());
    // What it had in programs that another run has as well goes with those.
    let cgroups = Leftovers::now()?.cgroups_since(&before);
    problems.equal("cgroups left", cgroups, Vec::new());
    problems.outcome()
}
