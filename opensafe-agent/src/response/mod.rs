//! Responses: what a policy wants done about events, as plain data, and when it is due.
//!
//! ```text
//! policy ─responses(&Input)→ Response ─watch→ Due ─carry out→ Responded ─→ sinks
//! ```
//! [`watch::Watch`] is pure: it is told of every event and says which responses it makes due. A verdict never waits for it;
//! what is done is done after the kernel has decided. `sandbox` carries out, `sink` puts on record.

pub mod watch;
mod window;

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use nix::errno::Errno;
use opensafe_common::verdict::Verdict;

use crate::{
    enrich::{Enriched, Ruling},
    event::UnixNano,
    rules::{Origin, Severity, peer::AbstractGlob},
};

/// What to do about events of a kind.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its name, unique in its policy.
    pub id: String,
    /// About which events.
    pub on: Trigger,
    /// What.
    pub action: Action,
    /// After how many of them.
    pub threshold: Threshold,
    /// How long after it was carried out it is not again, whatever happens. Events are counted meanwhile.
    pub repeat_after: Duration,
    /// Why, for the person who reads of it; empty if the policy gives none.
    pub reason: String,
    /// Where it was written, if that could be found.
    pub origin: Option<Origin>,
}

/// How long a note or an alert is not repeated, if the policy does not say.
pub const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// How long after a freeze or a kill that did not succeed, or that somebody has undone, it is tried again.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Which events: those that all of this holds for. What is empty, or `None`, holds for each.
#[derive(Clone, Debug, Default)]
pub struct Trigger {
    /// `opensafe.event` of its line in a record: `file`, `connect`.
    pub events: Vec<&'static str>,
    /// The verdict.
    pub verdicts: Vec<Verdict>,
    /// The id of the rule that decided, or `defaults.` and the event's name.
    pub rules: Vec<RuleGlob>,
    /// At least this grave.
    pub severity: Option<Severity>,
    /// Whether the kernel refused it.
    pub enforced: Option<bool>,
    /// Who refused it, a name of [`DENIED_BY`].
    pub denied_by: Vec<&'static str>,
}

/// Who can refuse an operation, as far as records tell.
pub const DENIED_BY: [&str; 1] = ["opensafe"];

/// A glob over rule ids: `*` takes any characters, dots included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleGlob(AbstractGlob);

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A line in the record.
    Note,
    /// A line in the record and on standard error, and somebody is told.
    Alert(Alert),
    /// All processes of the sandbox stop where they are.
    Freeze,
    /// All processes of the sandbox are ended.
    Kill,
}

/// Who else is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alert {
    /// A program, by its absolute path, and its arguments; empty if there is none.
    pub command: Vec<String>,
    /// Where it is posted.
    pub webhook: Option<Webhook>,
}

/// An `http://` address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// As the policy has it.
    pub url: String,
    /// Whom it means.
    pub address: SocketAddr,
}

/// So many events within that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// At least 1.
    pub count: u32,
    /// From the first of them to the last. No influence if it takes one.
    pub within: Duration,
}

impl Default for Threshold {
    /// The first event.
    fn default() -> Self {
        Self {
            count: 1,
            within: Duration::ZERO,
        }
    }
}

/// That something was done, or could not be.
#[derive(Clone, Debug)]
pub struct Responded {
    /// When.
    pub time: UnixNano,
    /// The response that asked for it.
    pub response: String,
    /// What was to be done.
    pub deed: Deed,
    /// The response's reason.
    pub reason: String,
    /// Events that it is about and that came since it was last carried out, or since the run began.
    pub count: u64,
    /// The event that made it due.
    pub event: Arc<Enriched>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What is done, in the words of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Deed {
    Note,
    Alert,
    /// An alert's program was started.
    Command,
    /// An alert was posted.
    Webhook,
    Freeze,
    /// Somebody has undone a freeze.
    Thaw,
    Kill,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It would have been done if the run were not only observed.
    Observed,
    /// The sandbox had ended before.
    Late,
    /// It could not be done.
    Failed {
        /// The error's name: `ETIMEDOUT`, `exit_status`.
        error: String,
        /// In words.
        why: String,
    },
}

impl Trigger {
    /// Whether it is about this event.
    #[must_use]
    pub fn holds(&self, event: &Enriched) -> bool {
        let Some(ruling) = event.action.ruling() else {
            return false;
        };
        let any = |given: bool, empty: bool| given || empty;
        any(
            self.events.contains(&event.action.name()),
            self.events.is_empty(),
        ) && any(
            self.verdicts.contains(&ruling.verdict),
            self.verdicts.is_empty(),
        ) && self.severity.is_none_or(|least| ruling.severity >= least)
            && self
                .enforced
                .is_none_or(|enforced| ruling.enforced == enforced)
            && any(
                denied_by(ruling).is_some_and(|who| self.denied_by.contains(&who)),
                self.denied_by.is_empty(),
            )
            && any(self.names_rule(event, ruling), self.rules.is_empty())
    }

    fn names_rule(&self, event: &Enriched, ruling: &Ruling) -> bool {
        let matches = |id: &str| self.rules.iter().any(|glob| glob.matches(id));
        match &ruling.rule {
            Some(rule) => matches(&rule.0),
            None => {
                !self.rules.is_empty()
                    && matches(&format!("defaults.{}", event.action.default_name()))
            }
        }
    }
}

/// `opensafe.denied_by` of the event's line in a record.
fn denied_by(ruling: &Ruling) -> Option<&'static str> {
    (ruling.enforced && ruling.verdict == Verdict::Deny).then_some(DENIED_BY[0])
}

impl RuleGlob {
    /// Reads one.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty".to_owned());
        }
        AbstractGlob::parse(text)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// Whether it takes this id.
    #[must_use]
    pub fn matches(&self, id: &str) -> bool {
        self.0.matches(id.as_bytes())
    }

    /// As the policy has it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }
}

impl Action {
    /// As a policy names it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.deed().name()
    }

    /// What it is to do.
    #[must_use]
    pub const fn deed(&self) -> Deed {
        match self {
            Self::Note => Deed::Note,
            Self::Alert(_) => Deed::Alert,
            Self::Freeze => Deed::Freeze,
            Self::Kill => Deed::Kill,
        }
    }
}

impl Webhook {
    /// Reads an address: `http://HOST[:PORT][/PATH]`, where the host is an IP address or `localhost`. Names are not looked
    /// up: `opensafe` is a static binary, into which no name service can be loaded.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, String> {
        const HTTP_PORT: u16 = 80;
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(match url.strip_prefix("https://") {
                Some(_) => "is https, which opensafe does not speak: name a relay on this host, or have a \"command\" post it",
                None => "does not start with \"http://\"",
            }
            .to_owned());
        };
        if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("has blanks or control characters in it".to_owned());
        }
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if host.contains('@') {
            return Err("has a password, or a name, in it".to_owned());
        }
        let numeric = match host.strip_prefix("localhost") {
            Some(port) => format!("127.0.0.1{port}"),
            None => host.to_owned(),
        };
        let bare = numeric.trim_start_matches('[').trim_end_matches(']');
        let address = numeric
            .parse()
            .or_else(|_| bare.parse().map(|ip| SocketAddr::new(ip, HTTP_PORT)));
        match address {
            Ok(address) => Ok(Self {
                url: url.to_owned(),
                address,
            }),
            Err(_) => Err(format!(
                "{host:?} is neither an address nor localhost, with or without a port; names are not looked up"
            )),
        }
    }
}

impl Webhook {
    /// The URL, with the address for the host's name.
    #[must_use]
    pub fn by_address(&self) -> String {
        let after = self.url.strip_prefix("http://").unwrap_or_default();
        let path = after.find(['/', '?', '#']).map_or("", |at| &after[at..]);
        format!("http://{}{path}", self.address)
    }
}

impl Deed {
    /// As a record has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Alert => "alert",
            Self::Command => "command",
            Self::Webhook => "webhook",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Kill => "kill",
        }
    }
}

impl Outcome {
    /// A failure by an error of the system.
    #[must_use]
    pub fn failed(error: &io::Error, why: impl Into<String>) -> Self {
        let errno = error.raw_os_error().map(Errno::from_raw);
        let name = match (errno, error.kind()) {
            (Some(errno), _) if errno != Errno::UnknownErrno => format!("{errno:?}"),
            (_, ErrorKind::TimedOut) => "ETIMEDOUT".to_owned(),
            _ => "other".to_owned(),
        };
        Self::Failed {
            error: name,
            why: why.into(),
        }
    }

    /// As a record has it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Observed => "observed",
            Self::Late => "late",
            Self::Failed { .. } => "failed",
        }
    }
}

#[cfg(test)]
mod tests;
