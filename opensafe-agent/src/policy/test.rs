//! Rego's own unit tests, run the way `opa test` runs them.
//!
//! A test is a rule whose name starts with `test_`, in any package of any of the policy's files, its
//! `*_test.rego` files too. It passes if it is true, and fails if it is anything else or undefined;
//! `todo_test_` marks one that is left out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use regorus::{Engine, Value};

use super::ast;
use super::error::{Located, PolicyError};
use super::merge::Merged;
use super::source::{Sources, search_path};
use super::{merge, parse, query};
use crate::rules::Origin;

/// How a unit test went.
#[derive(Clone, Debug)]
pub struct TestResult {
    /// The rule's path: `data.opensafe.sandbox_test.test_keys`.
    pub name: String,
    /// Where it is written.
    pub origin: Origin,
    /// Whether it passed.
    pub passed: bool,
    /// Whether it was left out; then it did not pass.
    pub skipped: bool,
    /// How long it took.
    pub duration: Duration,
    /// Why it did not pass, where that is more than being untrue.
    pub error: Option<String>,
    /// What it printed.
    pub output: Vec<String>,
}

/// Runs all unit tests of a policy, which is found as by [`super::Policy::load`], in the order of
/// their files. There may be none.
///
/// # Errors
/// Nothing there, or files that do not parse. A test that does not evaluate is a result.
pub fn run_tests(sources: &[PathBuf]) -> Result<Vec<TestResult>, PolicyError> {
    let sources = Sources::find(sources, &search_path())?;
    let mut parsed = parse(&sources, sources.rego.iter().chain(&sources.tests))?;
    let tests = ast::tests(parsed.get_modules());
    let (mut engine, merged) = merge(parsed, &sources)?;
    engine.set_gather_prints(true);
    // Prepared once, for all clones.
    query(&mut engine, "true").map_err(|error| PolicyError::internal(&sources.shown, &error))?;
    Ok(tests
        .into_iter()
        .map(|test| run(engine.clone(), &merged, test))
        .collect())
}

fn run(mut engine: Engine, merged: &Merged, test: Test) -> TestResult {
    let started = Instant::now();
    let result = if test.skipped {
        Ok(None)
    } else {
        query(&mut engine, &test.path)
    };
    TestResult {
        passed: matches!(result, Ok(Some(Value::Bool(true)))),
        skipped: test.skipped,
        duration: started.elapsed(),
        error: match result {
            Err(error) => Some(merged.locate(Located::from_regorus(&error)).to_string()),
            Ok(Some(Value::Bool(_)) | None) => None,
            Ok(Some(other)) => Some(format!("is {other}, not true")),
        },
        output: engine.take_prints().unwrap_or_default(),
        name: test.path,
        origin: test.origin,
    }
}

/// A unit test in a policy's text.
pub(super) struct Test {
    /// Of its rule.
    pub(super) path: String,
    pub(super) origin: Origin,
    pub(super) skipped: bool,
}

/// Tests that are written in several parts are one.
pub(super) fn unique(tests: impl Iterator<Item = Test>) -> Vec<Test> {
    let mut seen = BTreeMap::new();
    tests
        .filter(|test| seen.insert(test.path.clone(), ()).is_none())
        .collect()
}
