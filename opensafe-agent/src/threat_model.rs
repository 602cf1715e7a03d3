//! Holds `docs/threat-model.md` to the tests: what it says is proved has to be there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const PAGE: &str = include_str!("../../docs/threat-model.md");
/// What a row says whose threat has no test.
const NO_TEST: &str = "**no test yet**";
/// Where unit tests are, and where scenarios.
const UNIT_TESTS: [&str; 2] = ["opensafe-agent/src", "opensafe-common/src"];
const SCENARIOS: &str = "tests/src/bin/scenarios/families";

#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let there = tests();
    let named: BTreeSet<&str> = PAGE.lines().flat_map(names).collect();
    assert!(named.len() > 50, "it names tests: {named:?}");
    let missing: Vec<_> = named
        .iter()
        .filter(|name| !there.contains(**name))
        .collect();
    assert!(missing.is_empty(), "there is no test {missing:?}");
}

#[test]
fn every_threat_names_its_tests_or_says_that_it_has_none() {
    let threats: Vec<&str> = PAGE.lines().filter(|line| is_threat(line)).collect();
    assert!(threats.len() > 40, "{} threats", threats.len());
    for threat in threats {
        let cells: Vec<&str> = threat.trim_matches('|').split(" | ").collect();
        let [_, _, _, proof] = cells[..] else {
            panic!("a threat has four cells: {threat}");
        };
        let says_so = names(proof).next().is_some() || proof.contains(NO_TEST);
        assert!(says_so, "neither a test nor {NO_TEST}: {threat}");
    }
}

/// A row "| S1 | …": a letter of STRIDE, and a number.
fn is_threat(line: &str) -> bool {
    let id = line
        .strip_prefix("| ")
        .and_then(|row| row.split(' ').next());
    let letter = id.and_then(|id| id.split_at_checked(1));
    letter
        .is_some_and(|(letter, number)| "STRIDE".contains(letter) && number.parse::<u32>().is_ok())
}

/// What stands in backticks and reads like a sentence: five words or more. Hooks and system calls have fewer.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(move |name| name.chars().all(word) && name.matches('_').count() >= 4)
}

/// Unit tests, and the scenarios that are in their family's list.
fn tests() -> BTreeSet<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut tests = BTreeSet::new();
    for source in UNIT_TESTS
        .iter()
        .flat_map(|place| sources(&top.join(place)))
    {
        let mut is_test = false;
        for line in source.lines().map(str::trim) {
            let function = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once("()"));
            if let Some((name, _)) = function.filter(|_| is_test) {
                tests.insert(name.to_owned());
            }
            // Other attributes may stand between.
            is_test = line == "#[test]" || is_test && line.starts_with("#[");
        }
    }
    for source in sources(&top.join(SCENARIOS)) {
        let lists = source.split("scenarios![").skip(1);
        let listed = lists.filter_map(|rest| rest.split_once(']'));
        for name in listed.flat_map(|(list, _)| list.split(',')).map(str::trim) {
            if source.contains(&format!("fn {name}()")) {
                tests.insert(name.to_owned());
            }
        }
    }
    tests
}

/// The text of every Rust file in a directory.
fn sources(directory: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let mut pending: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(place) = pending.pop() {
        for entry in fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                texts.push(fs::read_to_string(&path).unwrap());
            }
        }
    }
    texts
}
