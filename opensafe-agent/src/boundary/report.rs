//! What came of it, as data.

use serde::Serialize;

use super::attempt::Kind;

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "why")]
pub enum Outcome {
    /// It failed as it has to, and that is on record.
    Stopped,
    /// It failed, and is not on record.
    NotRecorded,
    /// It worked, and the record names who let it pass: a rule, or a default.
    Allowed,
    /// It worked.
    GotThrough,
    /// It ended in another way than those that mean that it was stopped.
    Odd,
    /// It does not work in the runtime without OpenSafe, and does without both.
    ByRuntime(String),
    /// It does not work outside either, or nothing in the policy is about it.
    NotTried(String),
}

impl Outcome {
    /// Whether the boundary did not hold.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Stopped | Self::ByRuntime(_) | Self::NotTried(_))
    }

    /// For a person.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::NotRecorded => "stopped, not on record",
            Self::Allowed => "allowed by the policy",
            Self::GotThrough => "GOT THROUGH",
            Self::Odd => "ended otherwise",
            Self::ByRuntime(_) => "stopped by the runtime",
            Self::NotTried(_) => "not tried",
        }
    }
}

/// An attempt and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// What was tried.
    pub shows: &'static str,
    /// How it ends where it is stopped: `denied`.
    pub expected: &'static str,
    /// How it ended in the sandbox: `ok`, an error's name, or what a program said.
    pub happened: String,
    /// Whether a denial of it is on record.
    pub recorded: bool,
    /// The event that says so, or, if it was allowed, that says this.
    pub event: Option<String>,
    /// The rule that decided, of that event.
    pub rule: Option<String>,
    /// What it comes to.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A piece of ordinary work and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Worked {
    /// Its name.
    pub name: &'static str,
    /// What was done.
    pub shows: &'static str,
    /// How it ended in the sandbox.
    pub happened: String,
    /// Denials that are on record about it.
    pub denials: Vec<String>,
    /// Whether it passed; nothing if it was not tried.
    pub passed: Option<bool>,
}

/// How many there were of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Counts {
    pub attempts: usize,
    pub stopped: usize,
    pub recorded: usize,
    pub got_through: usize,
    pub by_runtime: usize,
    pub not_tried: usize,
    pub work: usize,
    pub work_passed: usize,
    pub work_not_tried: usize,
}

/// All that came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The kernel's release.
    pub kernel: String,
    /// The policy's name and revision.
    pub policy: String,
    /// In what the attempts were made outside and inside; nothing if by themselves.
    pub runtime: Option<String>,
    /// The policies that were given; none if it was the built-in one.
    pub given: Vec<String>,
    /// The attempts.
    pub attempts: Vec<Tried>,
    /// The ordinary work.
    pub work: Vec<Worked>,
    /// Events that were lost on their way to the record.
    pub lost: u64,
}

impl Report {
    /// The numbers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |is: &dyn Fn(&Tried) -> bool| self.attempts.iter().filter(|a| is(a)).count();
        let work = |passed| self.work.iter().filter(|w| w.passed == passed).count();
        Counts {
            attempts: self.attempts.len(),
            stopped: of(&|a| matches!(a.outcome, Outcome::Stopped | Outcome::NotRecorded)),
            recorded: of(&|a| a.outcome == Outcome::Stopped),
            got_through: of(&|a| {
                matches!(
                    a.outcome,
                    Outcome::Allowed | Outcome::GotThrough | Outcome::Odd
                )
            }),
            by_runtime: of(&|a| matches!(a.outcome, Outcome::ByRuntime(_))),
            not_tried: of(&|a| matches!(a.outcome, Outcome::NotTried(_))),
            work: self.work.len(),
            work_passed: work(Some(true)),
            work_not_tried: work(None),
        }
    }

    /// Whether all was stopped and recorded, and all ordinary work passed.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.attempts
            .iter()
            .all(|tried| !tried.outcome.is_failure())
            && self.work.iter().all(|work| work.passed != Some(false))
            // Where a runtime lets nothing be tried, nothing is known of the sandbox.
            && (self.runtime.is_none() || self.counts().stopped > 0)
    }
}
