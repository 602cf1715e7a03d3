//! `opensafe boundary audit`: what a sandbox could reach, by what is set, without trying anything.
//!
//! [Facts](facts) are read once, from `/proc`, the cgroup and the policy. A [check](checks) is a pure function from
//! them to [findings](Finding).

mod checks;
mod facts;
mod places;

use std::path::PathBuf;

use serde::Serialize;

pub use facts::{Capability, Facts, FactsError, Mounted, Who};

use crate::rules::{RuleSet, Severity};

/// Something that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of gap; the same from one version to the next.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is open.
    pub what: String,
    /// Why it matters.
    pub why: &'static str,
    /// How to close it.
    pub fix: String,
}

impl Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut all = to.serialize_struct("Finding", 5)?;
        all.serialize_field("id", self.id)?;
        all.serialize_field("severity", self.severity.name())?;
        all.serialize_field("what", &self.what)?;
        all.serialize_field("why", self.why)?;
        all.serialize_field("fix", &self.fix)?;
        all.end()
    }
}

/// What is audited.
#[derive(Clone, Debug)]
pub enum Of {
    /// What `opensafe run` would give here.
    Here,
    /// A process.
    Process(i32),
    /// The processes in a cgroup: the first of them stands for all.
    Cgroup(PathBuf),
}

/// The findings, the gravest first.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = checks::ALL.iter().flat_map(|check| check(facts)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// Whether one is above low.
#[must_use]
pub fn is_open(findings: &[Finding]) -> bool {
    findings
        .iter()
        .any(|finding| finding.severity > Severity::Low)
}

/// Reads what there is to know.
///
/// # Errors
/// If it may not be read, or there is no such process.
pub fn look(of: &Of, policy: Option<RuleSet>, who: Who) -> Result<Facts, FactsError> {
    facts::read(of, policy, who)
}

#[cfg(test)]
mod tests;
