//! The other commands, on what a run left.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{
    harness::{Leftovers, Outcome, Policy, Problems, Run, ask, deny, directory, opensafe, write},
    scenarios,
};

scenarios![
    doctor_finds_everything_here_and_leaves_nothing_behind,
    a_record_is_shown_and_listed_as_it_is,
    policies_that_ship_are_sound_and_pass_their_tests,
];

fn doctor_finds_everything_here_and_leaves_nothing_behind() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let (status, text, said) = ask(opensafe().args(["doctor", "--json"]))?;
    let mut problems = Problems::default();
    problems.check(status == 0, || {
        format!("exit status {status}: {text} {said}")
    });
    let parsed: Result<Value, _> = serde_json::from_str(&text);
    problems.check(matches!(parsed, Ok(Value::Object(_))), || {
        format!("no JSON object: {text}")
    });
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn a_record_is_shown_and_listed_as_it_is() -> Result<Outcome> {
    let folder = directory()?;
    let closed = folder.path().join("closed");
    write(&closed, "x")?;
    let home = folder.path().join("state");
    let policy = Policy::open().rule(deny("closed").file(&closed));
    let rego = folder.path().join("policy.rego");
    policy.write(&rego)?;
    let mut problems = Problems::default();
    let (status, _, said) = ask(opensafe()
        .args(["run", "--policy"])
        .arg(&rego)
        .args(["--agent", "shown", "--", "cat"])
        .arg(&closed)
        .env("XDG_STATE_HOME", &home))?;
    problems.equal("the status of cat", status, 1);
    problems.check(said.contains("rule closed"), || {
        format!("the denial is not shown: {said}")
    });

    let shown = |arguments: &[&str]| ask(opensafe().args(arguments).env("XDG_STATE_HOME", &home));
    let (status, listed, _) = shown(&["runs"])?;
    problems.check(status == 0 && listed.contains("shown"), || {
        format!("runs: {status}: {listed}")
    });
    let (status, denied, _) = shown(&["events", "--denied"])?;
    problems.check(
        status == 0 && denied.contains("closed") && denied.contains(&*closed.to_string_lossy()),
        || format!("events --denied: {status}: {denied}"),
    );
    let (status, lines, _) = shown(&["events", "--denied", "--json"])?;
    problems.check(status == 0 && lines.lines().count() == 1, || {
        format!("events --denied --json: {status}: {lines}")
    });
    let (status, lines, _) = shown(&["events", "--json"])?;
    let record = std::fs::read_dir(home.join("opensafe/runs"))?
        .flatten()
        .map(|entry| std::fs::read_to_string(entry.path()))
        .next()
        .context("no record")??;
    problems.check(status == 0 && lines == record, || {
        format!("events --json is not the record: {status}: {lines}")
    });
    let (status, lines, _) = shown(&["events", "--event", "exec", "--json"])?;
    problems.check(
        status == 0
            && lines
                .lines()
                .all(|line| line.contains("\"opensafe.event\":\"exec\"")),
        || format!("events --event exec: {status}: {lines}"),
    );
    problems.outcome()
}

fn policies_that_ship_are_sound_and_pass_their_tests() -> Result<Outcome> {
    let installed = Path::new("/usr/share/opensafe/policies");
    let mut problems = Problems::default();
    let mut count = 0;
    for entry in std::fs::read_dir(installed).context("policies")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        count += 1;
        for what in [&["check"][..], &["rules", "--json"], &["rules"], &["test"]] {
            let (command, options) = what.split_first().context("no command")?;
            let (status, text, said) = ask(opensafe()
                .args(["policy", command, &name])
                .args(options)
                .env("COLUMNS", "100"))?;
            problems.check(status == 0 && !(text.is_empty() && said.is_empty()), || {
                format!("policy {command} {name}: {status}: {text} {said}")
            });
        }
        // As an agent's user would run it.
        let finished = Run::with_policy_file(directory()?, Path::new(&name))?
            .options(&["--user", "agent"])
            .run(&["sh", "-c", "cat /etc/shadow; echo done"])?;
        finished.sound()?;
        problems.check(finished.text() == "done\n", || {
            format!("under {name}: {} {}", finished.text(), finished.said())
        });
    }
    problems.check(count >= 2, || format!("only {count} policies ship"));
    problems.outcome()
}
