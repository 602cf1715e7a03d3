//! `opensafe policy apply`: a run that goes on gets another policy.
//!
//! Whoever attends to the run does it ([`super::call`]): it has the sandbox's view, and puts on record from which event on the
//! other policy decides.

use std::path::PathBuf;

use nix::unistd::Uid;

pub use super::call::InForceNow;
use super::call::{Answer, CallError, Change, Request, call};
use crate::{
    kernel::kept::{self, LAYOUT, Left},
    policy::{KeptPolicy, PolicyError},
    run::RunId,
};

/// Why a run has the policy that it had.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ApplyError {
    #[error("only root can give a run another policy\n  run it with sudo")]
    NotRoot,
    #[error(
        "run {0} cannot be reached: it has ended, or what confines it goes with its opensafe\n  `opensafe runs` lists those that go on; the beginning of its record says whether it outlives its opensafe"
    )]
    NotKept(RunId),
    #[error(
        "run {run} was started by an opensafe whose kernel programs are others ({theirs}; those of this one are {LAYOUT})\n  apply the policy with the version that has started it"
    )]
    OtherLayout { run: RunId, theirs: String },
    #[error("nobody attends to run {0}\n  take it up first: `opensafe adopt {0}`")]
    Unattended(RunId),
    #[error("the policy is not applied: {0}")]
    Policy(Box<PolicyError>),
    #[error("the policy is not applied, and the one before stays in force: {0}")]
    Refused(String),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Has whoever attends to a run give it another policy.
///
/// # Errors
/// If the policy cannot be had or is not fit for the run's sandbox, or nobody is there to do it. The policy before stays.
pub fn apply(run: &RunId, sources: &[PathBuf]) -> Result<InForceNow, ApplyError> {
    if !Uid::effective().is_root() {
        return Err(ApplyError::NotRoot);
    }
    let left = left(run).ok_or_else(|| ApplyError::NotKept(run.clone()))?;
    if left.layout != LAYOUT {
        return Err(ApplyError::OtherLayout {
            run: run.clone(),
            theirs: left.layout,
        });
    }
    if left.agent.is_none() {
        return Err(ApplyError::Unattended(run.clone()));
    }
    // What is wrong with it is found out where it would be in force, and said in the same words.
    let policy = KeptPolicy::read(sources);
    let change = Change {
        sources: sources.iter().map(|path| path.clone().into()).collect(),
        policy: policy.map_err(|error| ApplyError::Policy(Box::new(error)))?,
    };
    match call(run, &left, &Request::Policy(change))? {
        Answer::Applied(now) => Ok(now),
        Answer::Refused(why) => Err(ApplyError::Refused(why)),
        Answer::HandedOver => Err(ApplyError::Refused(
            "it was taken for another call".to_owned(),
        )),
    }
}

/// Whether something is kept of a run, whoever attends to it.
#[must_use]
pub fn can_be_reached(run: &RunId) -> bool {
    left(run).is_some()
}

fn left(run: &RunId) -> Option<Left> {
    kept::left().into_iter().find(|it| it.run == run.as_str())
}
