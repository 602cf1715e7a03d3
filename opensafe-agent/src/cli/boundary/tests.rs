use super::*;
use crate::boundary::Kind;

fn tried(shows: &'static str, outcome: Outcome) -> Tried {
    let stopped = outcome == Outcome::Stopped;
    Tried {
        name: "names.plain",
        kind: Kind::Names,
        shows,
        expected: "denied",
        happened: if outcome.is_failure() { "ok" } else { "EACCES" }.to_owned(),
        recorded: stopped,
        event: stopped.then(|| "file".to_owned()),
        rule: stopped.then(|| "boundary.secret".to_owned()),
        outcome,
    }
}

fn worked(shows: &'static str, passed: Option<bool>) -> Worked {
    Worked {
        name: "work.git",
        shows,
        happened: "status 1".to_owned(),
        denials: Vec::new(),
        passed,
    }
}

fn report(attempts: Vec<Tried>, work: Vec<Worked>) -> Report {
    Report {
        kernel: "6.12.0".to_owned(),
        policy: "boundary@0123456789".to_owned(),
        runtime: None,
        given: Vec::new(),
        attempts,
        work,
        lost: 0,
    }
}

fn all_kinds_of_ends() -> Report {
    let not_recorded = Tried {
        happened: "EACCES".to_owned(),
        ..tried("not on record", Outcome::NotRecorded)
    };
    let allowed = Tried {
        rule: Some("defaults.ptrace".to_owned()),
        event: Some("ptrace".to_owned()),
        ..tried("allowed", Outcome::Allowed)
    };
    report(
        vec![
            tried("stopped", Outcome::Stopped),
            not_recorded,
            allowed,
            tried("not stopped at all", Outcome::GotThrough),
            tried("odd", Outcome::Odd),
            tried(
                "left out",
                Outcome::NotTried("what it takes is not here".to_owned()),
            ),
        ],
        vec![
            worked("good", Some(true)),
            worked("bad", Some(false)),
            worked("left out", None),
        ],
    )
}

fn shown(report: &Report, width: Option<usize>) -> String {
    let mut out = Vec::new();
    show(report, width, &mut out).unwrap();
    anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string()
}

#[test]
fn every_end_is_told_in_words_that_fit_a_terminal() {
    let text = shown(&all_kinds_of_ends(), Some(80));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

#[test]
fn the_policy_that_was_given_is_named() {
    let mut report = report(vec![tried("stopped", Outcome::Stopped)], Vec::new());
    report.given = vec!["coding-agent".to_owned(), "./more".to_owned()];
    assert!(
        shown(&report, None).starts_with("tested: coding-agent and ./more, on kernel 6.12.0\n")
    );
}

#[test]
fn what_the_runtime_stops_is_told_apart_and_no_failure() {
    let mut report = report(
        vec![
            tried("stopped", Outcome::Stopped),
            Tried {
                happened: String::new(),
                ..tried("hidden", Outcome::ByRuntime("ESRCH".to_owned()))
            },
        ],
        vec![worked("good", Some(true))],
    );
    report.runtime = Some("bwrap".to_owned());
    assert!(report.holds());
    insta::assert_snapshot!(shown(&report, Some(80)));
    let value = json(&report).unwrap();
    assert_eq!(value["runtime"], "bwrap");
    assert_eq!(value["counts"]["by_runtime"], 1);
    assert_eq!(value["attempts"][1]["outcome"], "by_runtime");
    assert_eq!(value["attempts"][1]["why"], "ESRCH");
}

#[test]
fn one_that_is_not_on_record_is_enough_not_to_hold() {
    let stopped = || tried("stopped", Outcome::Stopped);
    let left_out = || tried("x", Outcome::NotTried("no".to_owned()));
    assert!(report(vec![stopped(), left_out()], vec![worked("x", Some(true))]).holds());
    assert!(
        !report(
            vec![stopped(), tried("x", Outcome::NotRecorded)],
            Vec::new()
        )
        .holds()
    );
    assert!(!report(vec![stopped(), tried("x", Outcome::Allowed)], Vec::new()).holds());
    assert!(!report(vec![stopped()], vec![worked("x", Some(false))]).holds());
}

#[test]
fn json_has_the_same_facts() {
    let value = json(&all_kinds_of_ends()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap());
}
