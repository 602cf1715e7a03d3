//! Asking whoever attends to a run for something, and waiting for the answer.
//!
//! It has the sandbox's view, its record and its events, so it does what is asked; see [`crate::kernel::Call`] for the way there
//! and back.

use std::{
    ffi::OsString,
    io,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::job::Left as LeftProcess;
use crate::{
    event::PolicyNumber,
    kernel::{Asked, kept::Left},
    policy::KeptPolicy,
    run::RunId,
};

/// What is asked for. JSON; what a later version adds, an earlier one refuses.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Another policy is to be in force.
    Policy(Change),
    /// Whoever asks is to attend to the run from now on.
    HandOver,
}

/// Another policy. What a later version adds, an earlier one passes over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Change {
    /// Where it was found.
    pub(super) sources: Vec<OsString>,
    pub(super) policy: KeptPolicy,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The policy is in force.
    Applied(InForceNow),
    /// Nobody but the caller attends to the run.
    HandedOver,
    /// It was not done, and all is as before, for this reason.
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

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CallError {
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
}

/// How long the answer may take: evaluating and compiling both have limits below it. Who asks at the same time takes turns.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the answer is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// What is sent to whoever attends to a run, to have it look for a call. Does nothing to a process that knows nothing of it
/// (signal(7)).
pub(super) const CALLED: Signal = Signal::SIGURG;

/// Asks whoever attends to a run, and waits for the answer.
///
/// # Errors
/// If there is none. Then it may have been done all the same.
pub(super) fn call(run: &RunId, left: &Left, request: &Request) -> Result<Answer, CallError> {
    let asked = ask(left, request)?;
    wake(left);
    wait(run, left, &asked)
}

fn ask(left: &Left, request: &Request) -> Result<Asked, CallError> {
    let bytes = serde_json::to_vec(request).map_err(io::Error::other);
    let asked = bytes.and_then(|bytes| left.call(&bytes));
    asked.map_err(system("ask whoever attends to the run"))
}

/// It would look by itself, within a few seconds.
fn wake(left: &Left) {
    if let Some(agent) = left.agent {
        LeftProcess::new(agent, left.agent_began_cs).signal(CALLED);
    }
}

fn wait(run: &RunId, left: &Left, asked: &Asked) -> Result<Answer, CallError> {
    let read = "read the answer of whoever attends to the run";
    let deadline = Instant::now() + LIMIT;
    loop {
        let is_attended = left.is_attended();
        if let Some(answer) = asked.answer().map_err(system(read))? {
            let answer = serde_json::from_slice(&answer).map_err(io::Error::other);
            return answer.map_err(system(read));
        }
        if !is_attended {
            return Err(CallError::Killed(run.clone()));
        }
        if Instant::now() > deadline {
            return Err(CallError::NoAnswer { run: run.clone() });
        }
        sleep(LOOK);
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> CallError {
    move |source| CallError::System { what, source }
}
