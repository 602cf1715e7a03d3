//! Where a run's record goes, and the rule that keeps the run's hands off it.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use opensafe_common::verdict::{Access, Verdict};

use crate::{
    rules::{
        Rule, RuleId, Severity, Subject,
        glob::{PathGlob, escape},
    },
    run::RunId,
    sink::record::{
        Record,
        file::{CreateError, Existing, Owner},
        place::Invoker,
    },
};

/// Where a run's record is.
pub(super) struct RecordPlace {
    path: PathBuf,
    existing: Existing,
    owner: Option<Owner>,
}

impl RecordPlace {
    /// The place named by the user, relative to `directory`, or the customary one.
    pub(super) fn new(named: Option<&Path>, id: &RunId, directory: &Path) -> Self {
        let invoker = Invoker::current();
        let (path, existing) = match named {
            Some(path) => (directory.join(path), Existing::Replace),
            None => (directory.join(invoker.record(id)), Existing::Refuse),
        };
        Self {
            path,
            existing,
            owner: invoker.owner,
        }
    }

    /// Creates the record.
    pub(super) fn create(&self, id: &RunId) -> Result<Record, CreateError> {
        Record::create(id.clone(), &self.path, self.existing, self.owner)
    }

    /// Whatever the policy says, a run cannot change what is on record about it or others.
    pub(super) fn rule(&self) -> Option<Rule> {
        let mut places = vec![escape(self.path.as_os_str().as_bytes())];
        if self.existing == Existing::Refuse {
            // The directory of all records.
            let runs = self.path.parent()?;
            places = vec![format!("{}/**", escape(runs.as_os_str().as_bytes()))];
        }
        let globs: Vec<PathGlob> = places
            .iter()
            .filter_map(|glob| PathGlob::parse(glob).ok())
            .collect();
        (!globs.is_empty()).then(|| Rule {
            id: RuleId("opensafe.records".to_owned()),
            verdict: Verdict::Deny,
            severity: Severity::High,
            reason: "a run cannot change what is on record".to_owned(),
            origin: None,
            subject: Subject::File {
                globs,
                access: Access::CHANGING.union(Access::CREATE),
            },
        })
    }
}
