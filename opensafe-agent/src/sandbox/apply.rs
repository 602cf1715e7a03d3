//! `opensafe policy apply`: a run that goes on gets another policy.
//!
//! Whoever attends to the run does it, and is asked by a call ([`crate::kernel::Call`]): it has the sandbox's view, and puts on
//! record from which event on the other policy decides.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{sys::signal::Signal, unistd::Uid};
use serde::{Deserialize, Serialize};

use super::{error::RunError, job::Left as LeftProcess, state::State};
use crate::{
    event::PolicyNumber,
    kernel::{
        Asked,
        kept::{self, LAYOUT, Left},
    },
    policy::{KeptPolicy, Policy, PolicyError},
    run::RunId,
};

/// What is asked for. JSON; what a later version adds, an earlier one passes over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Change {
    /// Where the policy was found.
    pub(super) sources: Vec<OsString>,
    pub(super) policy: KeptPolicy,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is in force.
    Applied(InForceNow),
    /// It is not, and the one before stays, for this reason.
    Refused(String),
}

/// A policy that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForceNow {
    /// Since when.
    pub time_unix_nano: u64,
    /// Which of the run's it is.
    pub number: PolicyNumber,
    /// Its name and the hash of its sources.
    pub revision: String,
    /// How many rules it has for this sandbox.
    pub rules: usize,
    /// The revision of the one before.
    pub before: String,
}

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
    #[error(
        "run {run} has been given another policy by somebody else for {} s\n  try again in a moment", TURN.as_secs()
    )]
    Busy { run: RunId },
    #[error("the policy is not applied: {0}")]
    Policy(Box<PolicyError>),
    #[error("the policy is not applied, and the one before stays in force: {0}")]
    Refused(String),
    #[error(
        "whoever attended to run {0} was killed before it answered\n  once it is taken up (`opensafe adopt {0}`), `opensafe events {0} --event policy.applied` says which policy it has"
    )]
    Killed(RunId),
    #[error(
        "whoever attends to run {run} has not answered for {} s, and was told to leave it\n  it may have been stopped: `opensafe events {run} --event policy.applied` says what it did", LIMIT.as_secs()
    )]
    NoAnswer { run: RunId },
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Run(#[from] RunError),
}

/// How long the answer may take: evaluating and compiling both have limits below it.
const LIMIT: Duration = Duration::from_secs(60);
/// How long somebody else is waited for who gives the run another policy.
const TURN: Duration = Duration::from_secs(10);
/// How often it is looked whether that has been done.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often the answer is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// What is sent to whoever attends to a run, to have it look for a call. Does nothing to a process that knows nothing of it
/// (signal(7)).
pub(super) const CALLED: Signal = Signal::SIGURG;

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
    let asked = ask(run, &left, sources)?;
    wake(&left);
    match wait(run, &left, &asked)? {
        Answer::Applied(now) => Ok(now),
        Answer::Refused(why) => Err(ApplyError::Refused(why)),
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

/// What is wrong with the policy is said here, in the words that `opensafe run` has for it.
fn ask(run: &RunId, left: &Left, sources: &[PathBuf]) -> Result<Asked, ApplyError> {
    let refused = |error| ApplyError::Policy(Box::new(error));
    let policy = Policy::load(sources).map_err(refused)?;
    let state = left.state().map_err(system("read the run's state"))?;
    let state = State::of_bytes(&state)?;
    let rules = policy.evaluate(&state.input).map_err(refused)?;
    policy.responses(&state.input, &rules).map_err(refused)?;
    let change = Change {
        sources: sources.iter().map(|path| path.clone().into()).collect(),
        policy: policy.kept(),
    };
    let change = serde_json::to_vec(&change).map_err(io::Error::other);
    let change = change.map_err(system("write the policy down"))?;
    let deadline = Instant::now() + TURN;
    loop {
        match left.call(&change) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if Instant::now() > deadline {
                    return Err(ApplyError::Busy { run: run.clone() });
                }
                // It takes out what somebody has left who was killed.
                wake(left);
                sleep(LOOK_AGAIN);
            }
            asked => return asked.map_err(system("ask whoever attends to the run")),
        }
    }
}

/// It would look by itself, within a few seconds.
fn wake(left: &Left) {
    if let Some(agent) = left.agent {
        LeftProcess::new(agent, left.agent_began_cs).signal(CALLED);
    }
}

fn wait(run: &RunId, left: &Left, asked: &Asked) -> Result<Answer, ApplyError> {
    let read = "read the answer of whoever attends to the run";
    let deadline = Instant::now() + LIMIT;
    loop {
        let is_attended = left.is_attended();
        if let Some(answer) = asked.answer().map_err(system(read))? {
            let answer = serde_json::from_slice(&answer).map_err(io::Error::other);
            return answer.map_err(system(read));
        }
        if !is_attended {
            return Err(ApplyError::Killed(run.clone()));
        }
        if Instant::now() > deadline {
            return Err(ApplyError::NoAnswer { run: run.clone() });
        }
        sleep(LOOK);
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> ApplyError {
    move |source| ApplyError::System { what, source }
}
