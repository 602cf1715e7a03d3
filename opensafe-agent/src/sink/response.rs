//! What was done about an event, in words for a person.

use std::path::Path;

use super::{
    object::{object_text, operation_word, who},
    text::printable,
};
use crate::{
    enrich::{Action, Enriched},
    response::{Deed, Outcome, Responded},
    run::RunId,
};
use opensafe_common::verdict::Verdict;

/// A line that is shown: the word first, then the rest, in parts between ` · `.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What it is.
    pub word: &'static str,
    /// Whether it is trouble of `opensafe`'s own.
    pub is_failure: bool,
    /// What is to be said of it.
    pub parts: Vec<String>,
}

impl Said {
    /// `WORD  PART · PART`.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}  {}", self.word, self.parts.join(" · "))
    }
}

/// What is said of it, with `~` for `home`; `None` if it is for the record only.
#[must_use]
pub fn said(responded: &Responded, run: &RunId, home: &Path) -> Option<Said> {
    let id = printable(responded.response.as_bytes());
    let reason = printable(responded.reason.as_bytes());
    let what = if reason.is_empty() {
        format!("response {id}")
    } else {
        format!("response {id}: {reason}")
    };
    let event = event_text(responded, home);
    let is_failure = matches!(responded.outcome, Outcome::Failed { .. });
    let (word, parts) = match (&responded.outcome, responded.deed) {
        (Outcome::Failed { why, .. }, deed) => {
            let why = printable(why.as_bytes());
            let what = format!("response {id}: {}: {why}", deed.name());
            ("failed", vec![what, event])
        }
        (_, Deed::Note)
        | (Outcome::Done, Deed::Command | Deed::Webhook)
        | (Outcome::Observed | Outcome::Late, Deed::Thaw | Deed::Command | Deed::Webhook) => {
            return None;
        }
        (_, Deed::Alert) => ("alert", vec![what, event]),
        (Outcome::Done, Deed::Freeze) => (
            "frozen",
            vec![
                what,
                event,
                format!("opensafe thaw {run} lets it go on, Ctrl-C or opensafe kill {run} ends it"),
            ],
        ),
        (Outcome::Done, Deed::Thaw) => {
            ("thawed", vec![format!("what response {id} froze goes on")])
        }
        (Outcome::Done, Deed::Kill) => ("killed", vec![what, event]),
        (Outcome::Observed, Deed::Freeze) => ("would freeze", vec![what, event]),
        (Outcome::Observed, _) => ("would kill", vec![what, event]),
        (Outcome::Late, deed) => {
            let late = format!("the sandbox had ended before the {}", deed.name());
            ("late", vec![what, event, late])
        }
    };
    Some(Said {
        word,
        is_failure,
        parts,
    })
}

/// `3 events, the last: denied read ~/x by cat (4711) ← bash, rule secrets`.
fn event_text(responded: &Responded, home: &Path) -> String {
    let event = event_words(&responded.event, home);
    match responded.count {
        0 | 1 => event,
        count => format!("{count} events, the last: {event}"),
    }
}

fn event_words(event: &Enriched, home: &Path) -> String {
    let Enriched {
        process, action, ..
    } = event;
    let who = who(
        &process.executable,
        &process.comm,
        u64::from(process.pid.0),
        &process.ancestors,
    );
    let did = done_to(action, home);
    let Some(ruling) = action.ruling() else {
        return format!("{did} by {who}");
    };
    let word = match (ruling.verdict, ruling.enforced) {
        (Verdict::Deny, true) => "denied",
        (Verdict::Deny, false) => "would deny",
        (Verdict::Audit, _) => "audited",
        (Verdict::Allow, _) => "allowed",
    };
    let rule = match &ruling.rule {
        Some(rule) => printable(rule.0.as_bytes()).into_owned(),
        None => format!("defaults.{}", action.default_name()),
    };
    format!("{word} {did} by {who}, rule {rule}")
}

/// `read ~/x`.
#[must_use]
pub fn done_to(action: &Action, home: &Path) -> String {
    format!("{} {}", operation_word(action), object_text(action, home))
}
