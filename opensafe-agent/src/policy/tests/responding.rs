//! What a policy wants done, and what is wrong with it.

use std::time::Duration;

use super::*;
use crate::response::{Action, Response, Threshold};

const RULES: &str = r#"
rules contains {"id": "secrets.ssh", "on": "file", "match": "/x/**", "verdict": "deny", "severity": "high"}
rules contains {"id": "other", "on": "exec", "match": "/y", "verdict": "deny"} if input.agent == "another"
"#;

fn responses_of(body: &str) -> Result<Vec<Response>, PolicyError> {
    let directory = files(body);
    let policy = load(&directory)?;
    let rules = policy.evaluate(&input())?;
    policy.responses(&input(), &rules)
}

fn files(body: &str) -> TempDir {
    directory(&[
        ("a.rego", &sandbox(RULES)),
        ("b.rego", &format!("package opensafe.response\n\n{body}\n")),
    ])
}

/// What is wrong with the responses, after the policy's name and their place.
#[track_caller]
fn wrong(body: &str) -> String {
    let error = responses_of(body).unwrap_err().to_string();
    let lines: Vec<&str> = error
        .lines()
        .map(|line| line.split_once("): ").map_or(line, |(_, wrong)| wrong))
        .collect();
    lines.join("\n")
}

#[test]
fn the_documented_form_of_a_response_is_understood() {
    let responses = responses_of(
        r#"
responses contains {
	"id": "keys", "on": {"rule": ["secrets.*", "other"], "verdict": "deny", "severity": "medium", "enforced": true,
		"event": ["file", "exec"], "denied_by": "opensafe"},
	"do": "alert", "threshold": {"count": 5, "within_s": 10}, "repeat_after_s": 300,
	"command": ["/usr/bin/logger", "-t", "opensafe"], "webhook": "http://localhost:9093/x",
	"reason": "somebody looks\n for keys",
}

responses contains {"id": "all", "on": {"verdict": ["audit", "deny"]}, "do": "note"}
responses contains {"id": "stop", "on": {"rule": "defaults.connect"}, "do": "freeze"}
responses contains {"id": "end", "on": {"severity": "critical"}, "do": "kill"}
"#,
    )
    .unwrap();
    let ids: Vec<_> = responses.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["all", "end", "keys", "stop"]);
    let [all, end, keys, stop] = &responses[..] else {
        panic!("{responses:?}");
    };
    assert_eq!(all.threshold, Threshold::default());
    assert_eq!(
        (&all.action, all.repeat_after.as_secs()),
        (&Action::Note, 60)
    );
    assert_eq!(
        (&end.action, &stop.action),
        (&Action::Kill, &Action::Freeze)
    );
    assert_eq!(keys.threshold.count, 5);
    assert_eq!(keys.threshold.within, Duration::from_secs(10));
    assert_eq!(keys.repeat_after, Duration::from_secs(300));
    assert_eq!(keys.reason, "somebody looks for keys");
    assert_eq!(keys.on.events, ["file", "exec"]);
    let origin = keys.origin.as_ref().unwrap();
    assert!(
        origin.file.ends_with("/b.rego") && origin.line == 5,
        "{origin}"
    );
    let Action::Alert(alert) = &keys.action else {
        panic!("{keys:?}");
    };
    assert_eq!(alert.command, ["/usr/bin/logger", "-t", "opensafe"]);
    assert_eq!(
        alert.webhook.as_ref().unwrap().url,
        "http://localhost:9093/x"
    );
}

#[test]
fn a_policy_without_the_package_has_no_responses() {
    let directory = directory(&[("a.rego", &sandbox(RULES))]);
    let policy = load(&directory).unwrap();
    let rules = policy.evaluate(&input()).unwrap();
    assert!(policy.responses(&input(), &rules).unwrap().is_empty());
}

#[test]
fn a_response_is_for_this_sandbox() {
    let body = r#"
responses contains {"id": "a", "on": {"verdict": "deny"}, "do": "note"} if input.agent == "coder"
responses contains {"id": "b", "on": {"verdict": "deny"}, "do": "note"} if input.agent == "another"
"#;
    let ids: Vec<_> = responses_of(body)
        .unwrap()
        .into_iter()
        .map(|it| it.id)
        .collect();
    assert_eq!(ids, ["a"]);
}

#[test]
fn everything_that_is_wrong_with_responses_is_said_with_its_place() {
    let directory = files(
        r#"
responses contains {
	"id": "keys", "on": {"rules": "x", "verdict": "denied", "severity": "grave", "enforced": "yes", "rule": 7,
		"event": [], "denied_by": "selinux"},
	"do": "alarm", "threshold": {"count": 0, "within": 5}, "reson": "x", "repeat_after_s": -1,
}

responses contains {"id": "mail", "on": {}, "do": "alert", "command": "mail me", "webhook": "https://x/"}
responses contains {"id": "shell", "on": {"verdict": "deny"}, "do": "alert", "command": ["sh", "-c", "x"]}
responses contains {"id": "still", "on": "deny", "do": "freeze", "command": ["/x"], "repeat_after_s": 5}
responses contains {"id": "typo", "on": {"rule": "secret.ssh"}, "do": "kill"}
responses contains "kill"
"#,
    );
    let policy = load(&directory).unwrap();
    let rules = policy.evaluate(&input()).unwrap();
    let error = policy.responses(&input(), &rules).unwrap_err().to_string();
    let place = directory.path().display().to_string();
    let name = directory.path().file_name().unwrap().to_string_lossy();
    insta::assert_snapshot!(error.replace(&place, "DIR").replace(&*name, "DIR"));
}

#[test]
fn a_rule_that_this_sandbox_does_not_get_may_be_named() {
    let on = |rule: &str| {
        format!(
            "responses contains {{\"id\": \"a\", \"on\": {{\"rule\": \"{rule}\"}}, \"do\": \"kill\"}}"
        )
    };
    assert!(responses_of(&on("other")).is_ok());
    assert!(responses_of(&on("opensafe.records")).is_ok());
    assert_eq!(
        wrong(&on("nonsense.*")),
        "on.rule \"nonsense.*\": there is no such rule"
    );
}

#[test]
fn two_responses_with_one_id_and_one_that_is_undefined_are_errors() {
    let body = r#"
responses contains {"id": "a", "on": {"verdict": "deny"}, "do": "note"}
responses contains {"id": "a", "on": {"verdict": "deny"}, "do": "kill"}
responses contains {"id": "b", "on": {"verdict": data.nowhere}, "do": "kill"}
"#;
    let wrong = wrong(body);
    assert!(
        wrong.contains("2 different responses have this id"),
        "{wrong}"
    );
    assert!(
        wrong.contains("is undefined, though it has no condition"),
        "{wrong}"
    );
}

#[test]
fn a_package_that_defines_no_responses_is_an_error() {
    let error = responses_of("response := []").unwrap_err().to_string();
    assert!(
        error.contains("data.opensafe.response.responses is undefined"),
        "{error}"
    );
    assert!(responses_of("responses := []").unwrap().is_empty());
}

#[test]
fn an_unknown_input_is_an_error_in_responses_too() {
    let body = r#"responses contains {"id": "a", "on": {"verdict": "deny"}, "do": "note"} if input.agnt == "x""#;
    let error = responses_of(body).unwrap_err().to_string();
    assert!(error.contains("did you mean \"agent\"?"), "{error}");
}
