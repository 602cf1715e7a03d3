mod checking;
mod loading;
mod responding;

use std::fs;

use opensafe_common::operation::Operation;
use opensafe_common::verdict::{Access, Verdict};
use tempfile::TempDir;

use super::*;
use crate::rules::{Defaults, Peer, Rule, Severity, Subject, access};

/// A directory with these files, which is removed when it is dropped.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::with_prefix("policy").unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn load(directory: &TempDir) -> Result<Policy, PolicyError> {
    Policy::load(&[directory.path().to_owned()])
}

fn input() -> Input {
    Input {
        agent: "coder".into(),
        workspace: "/home/me/work".into(),
        home: "/home/me".into(),
        tmp: "/tmp".into(),
        ..Input::default()
    }
}

fn sandbox(body: &str) -> String {
    format!("package opensafe.sandbox\n\n{body}\n")
}

fn evaluate(body: &str) -> Result<RuleSet, PolicyError> {
    let directory = directory(&[("a.rego", &sandbox(body))]);
    load(&directory).and_then(|policy| policy.evaluate(&input()))
}

/// The whole error, with the policy's directory replaced by `DIR`.
#[track_caller]
fn error_of(files: &[(&str, &str)]) -> String {
    let directory = directory(files);
    let error = load(&directory)
        .and_then(|policy| policy.evaluate(&input()))
        .unwrap_err();
    error
        .to_string()
        .replace(&directory.path().display().to_string(), "DIR")
}

#[track_caller]
fn error(body: &str) -> String {
    error_of(&[("a.rego", &sandbox(body))])
}

/// The error of one rule, on line 3, given its keys but `id`.
#[track_caller]
fn rule_error(keys: &str) -> String {
    let error = error(&format!("rules contains {{\"id\": \"r\", {keys}}}"));
    let start = "policy DIR: rule \"r\" (a.rego:3): ";
    error
        .strip_prefix(start)
        .unwrap_or_else(|| panic!("{error}"))
        .to_owned()
}
