//! `opensafe boundary`, as a user runs it on a host of theirs.

pub(super) mod runtimes;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{
    harness::{Leftovers, Outcome, Problems, ask, opensafe},
    scenarios,
};

scenarios![every_attempt_of_boundary_test_is_stopped_and_recorded];

/// Those to which a kernel makes no difference.
pub(super) mod words {
    use super::{
        boundary_audit_lists_what_is_open_and_names_no_value,
        what_boundary_prints_for_a_person_says_how_many_held,
    };

    crate::scenarios![
        what_boundary_prints_for_a_person_says_how_many_held,
        boundary_audit_lists_what_is_open_and_names_no_value,
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
