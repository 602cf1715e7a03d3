use super::*;
use crate::rules::Origin;

/// A policy in a directory of its own.
fn policy(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

const POLICY: &str = r#"package opensafe.sandbox

defaults := {"exec": "allow", "file": "deny", "connect": "audit", "signal": "allow"}

rules contains {
	"id": "secrets.ssh", "on": "file", "match": sprintf("%s/.ssh/**", [input.home]),
	"access": ["read", "write"], "verdict": "deny", "severity": "high",
	"reason": "SSH keys stay outside the sandbox",
}

rules contains {"id": "work", "on": "file", "match": sprintf("%s/**", [input.workspace]), "verdict": "allow"}

rules contains {
	"id": "net.private", "on": "connect", "match": ["10.0.0.0/8", "fd00::/8"],
	"ports": [443, "8000-8099"], "protocol": "tcp", "verdict": "deny", "reason": "not ours",
}

rules contains {"id": "docker", "on": "connect", "match": ["unix:/run/docker.sock", "unix:@/containerd-*"], "verdict": "deny"}

rules contains {
	"id": "inbox", "on": "file", "match": "/srv/in/*", "access": ["create", "rename", "map_exec"], "verdict": "allow",
}

rules contains {"id": "serve", "on": "bind", "match": ["127.0.0.0/8", "::1"], "ports": ["8000-8099"], "protocol": "tcp", "verdict": "allow"}

rules contains {"id": "raw", "on": "socket", "match": ["packet", "*:raw"], "verdict": "audit", "reason": "who looks at the wire"}

rules contains {"id": "debug", "on": "ptrace", "verdict": "deny", "reason": "debuggers stay inside"}

rules contains {"id": "sudo", "on": "exec", "match": ["/usr/bin/sudo", "/usr/bin/su"], "verdict": "deny"}
"#;

fn sandbox() -> Input {
    Input {
        agent: "coder".into(),
        workspace: "/home/me/work".into(),
        home: "/home/me".into(),
        tmp: "/tmp".into(),
        ..Input::default()
    }
}

fn evaluated() -> RuleSet {
    let directory = policy(&[("policy.rego", POLICY)]);
    let mut rules = Policy::load(&[directory.path().into()])
        .unwrap()
        .evaluate(&sandbox())
        .unwrap();
    rules.revision = "team@9c41e07b".into();
    for rule in &mut rules.rules {
        rule.origin = Some(Origin {
            file: "policy.rego".into(),
            line: rule.origin.as_ref().unwrap().line,
        });
    }
    rules
}

fn plain(out: &[u8]) -> String {
    anstream::adapter::strip_str(std::str::from_utf8(out).unwrap()).to_string()
}

#[test]
fn rules_are_a_table() {
    let mut out = Vec::new();
    show_rules(&evaluated(), None, &mut out).unwrap();
    insta::assert_snapshot!(plain(&out));
}

#[test]
fn rules_that_are_too_wide_for_a_terminal_are_shown_whole_one_below_the_other() {
    let mut out = Vec::new();
    show_rules(&evaluated(), Some(80), &mut out).unwrap();
    insta::assert_snapshot!(plain(&out));
}

#[test]
fn rules_as_json_are_in_the_form_of_a_policy() {
    let json = rules_json(&evaluated());
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
}

#[test]
fn tests_are_listed_and_failures_explained() {
    let tests = r#"package opensafe.sandbox_test

import data.opensafe.sandbox

test_sudo if { some rule in sandbox.rules; rule.id == "sudo" }

test_wrong if { print("seen", 1); 1 == 2 }

todo_test_later if { false }
"#;
    let directory = policy(&[("policy.rego", POLICY), ("policy_test.rego", tests)]);
    let results = run_tests(&[directory.path().into()]).unwrap();
    let mut out = Vec::new();
    tests_text(&results, &mut out).unwrap();
    let directory = directory.path().to_str().unwrap();
    insta::assert_snapshot!(plain(&out).replace(directory, "[policy]"));
}

#[test]
fn responses_are_shown_below_the_rules() {
    let text = r#"package opensafe.response

responses contains {
	"id": "keys", "on": {"rule": ["secrets.*", "docker"], "verdict": "deny"}, "do": "alert",
	"threshold": {"count": 5, "within_s": 10}, "command": ["/usr/bin/logger", "keys"],
	"webhook": "http://localhost:9093/x", "reason": "somebody looks for keys",
}

responses contains {"id": "all", "on": {"event": "connect", "verdict": ["audit", "deny"]}, "do": "note", "repeat_after_s": 0}
responses contains {"id": "end", "on": {"severity": "high", "enforced": true, "denied_by": "opensafe"}, "do": "kill"}
"#;
    let directory = policy(&[("policy.rego", POLICY), ("respond.rego", text)]);
    let policy = Policy::load(&[directory.path().into()]).unwrap();
    let rules = policy.evaluate(&sandbox()).unwrap();
    let responses = policy.responses(&sandbox(), &rules).unwrap();
    let mut out = Vec::new();
    responses::show(&responses, &mut out).unwrap();
    let shown = anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string();
    insta::assert_snapshot!(shown);
    let mut json = responses::json(&responses);
    for response in json.as_array_mut().unwrap() {
        assert!(
            response["origin"]["file"]
                .as_str()
                .unwrap()
                .ends_with("respond.rego")
        );
        response["origin"]["file"] = "respond.rego".into();
    }
    insta::assert_snapshot!(
        "responses_as_json",
        serde_json::to_string_pretty(&json).unwrap()
    );
    assert_eq!(counted(1, 0), "1 rule");
    assert_eq!(counted(2, 1), "2 rules and 1 response");
}
