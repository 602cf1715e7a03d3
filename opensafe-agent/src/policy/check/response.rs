//! Reading one response, key by key.

use std::time::Duration;

use serde_json::{Map, Value};

use super::super::error::Problem;
use super::{VERDICTS, kind, meant, operations, quoted, reader::Reader, unknown};
use crate::response::{
    Action, Alert, DENIED_BY, REPEAT_AFTER, RETRY_AFTER, Response, RuleGlob, Threshold, Trigger,
    Webhook,
};
use crate::rules::Severity;

const KEYS: [&str; 8] = [
    "id",
    "on",
    "do",
    "threshold",
    "repeat_after_s",
    "reason",
    "command",
    "webhook",
];
const ON_KEYS: [&str; 6] = [
    "event",
    "verdict",
    "rule",
    "severity",
    "enforced",
    "denied_by",
];
const THRESHOLD_KEYS: [&str; 2] = ["count", "within_s"];
const ACTIONS: [(&str, &str); 4] = [
    ("note", "note"),
    ("alert", "alert"),
    ("freeze", "freeze"),
    ("kill", "kill"),
];
/// Events that a threshold can take: as many times are remembered.
const MAX_COUNT: u64 = 10_000;
/// A day: longer than that no time of a response is.
const MAX_SECONDS: u64 = 86_400;
/// Words that a command can have.
const MAX_WORDS: usize = 64;

impl<'o> Reader<'o> {
    /// The response, if it makes sense so far, and what is wrong with it.
    pub(super) fn read_response(mut self) -> (Option<Response>, Vec<Problem>) {
        (self.response(), self.problems())
    }

    fn response(&mut self) -> Option<Response> {
        let object = self.object();
        self.known_keys("", object, &KEYS);
        let id = self.id();
        let on = self.trigger();
        let action = self.action();
        let threshold = self.threshold();
        let repeat_after = self.repeat_after();
        let reason = self.reason();
        let action = action?;
        Some(Response {
            id: id?.0,
            on: on?,
            threshold: threshold?,
            repeat_after: repeat_after?.unwrap_or(match action {
                Action::Note | Action::Alert(_) => REPEAT_AFTER,
                Action::Freeze | Action::Kill => RETRY_AFTER,
            }),
            action,
            reason: reason?,
            origin: None,
        })
    }

    fn trigger(&mut self) -> Option<Trigger> {
        let object = self.nested("on", &ON_KEYS)?;
        if object.is_empty() {
            self.whole(
                "\"on\" is empty: a response to whatever happens; say what it is about, such as {\"verdict\": \"deny\"}",
            );
            return None;
        }
        let events: Vec<(&str, &'static str)> = operations().map(|name| (name, name)).collect();
        let events = self.some_of("on.event", object.get("event"), &events);
        let verdicts = self.some_of("on.verdict", object.get("verdict"), &VERDICTS);
        let denied_by = DENIED_BY.map(|name| (name, name));
        let denied_by = self.some_of("on.denied_by", object.get("denied_by"), &denied_by);
        let rules = match object.get("rule") {
            None => Some(Vec::new()),
            Some(value) => self.each("on.rule", one_or_more(value), |value| {
                match value.as_str() {
                    Some(text) => RuleGlob::parse(text),
                    None => Err(format!("is {}, not a string", kind(value))),
                }
            }),
        };
        let severity = match object.get("severity") {
            None => Some(None),
            Some(value) => self
                .choice("on.severity", value, &Severity::ALL.map(|s| (s.name(), s)))
                .map(Some),
        };
        let enforced = match object.get("enforced") {
            None => Some(None),
            Some(Value::Bool(enforced)) => Some(Some(*enforced)),
            Some(value) => {
                let problem = format!("is {}, not true or false", kind(value));
                self.key("on.enforced", value, problem);
                None
            }
        };
        Some(Trigger {
            events: events?,
            verdicts: verdicts?,
            rules: rules?,
            severity: severity?,
            enforced: enforced?,
            denied_by: denied_by?,
        })
    }

    fn action(&mut self) -> Option<Action> {
        let name = self.required("do", &ACTIONS)?;
        if name != "alert" {
            for key in ["command", "webhook"] {
                if self.object().contains_key(key) {
                    self.whole(format!(
                        "has \"{key}\", which only alerts have; it is to {name}"
                    ));
                }
            }
        }
        match name {
            "alert" => {
                let (command, webhook) = (self.command(), self.webhook());
                Some(Action::Alert(Alert {
                    command: command?,
                    webhook: webhook?,
                }))
            }
            "freeze" => Some(Action::Freeze),
            "kill" => Some(Action::Kill),
            _ => Some(Action::Note),
        }
    }

    /// A program and its arguments; none is no problem.
    fn command(&mut self) -> Option<Vec<String>> {
        if !self.object().contains_key("command") {
            return Some(Vec::new());
        }
        let values = self.array("command", "leave it out for none")?;
        let words = self.each("command", values, |value| match value.as_str() {
            Some(text) if text.contains('\0') => Err("has a NUL in it".to_owned()),
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("is {}, not a string", kind(value))),
        })?;
        let problem = if !words[0].starts_with('/') {
            "is no absolute path; it is started without a shell, and not looked for"
        } else if words.len() > MAX_WORDS {
            "has too many words"
        } else {
            return Some(words);
        };
        self.key("command", &values[0], problem);
        None
    }

    fn webhook(&mut self) -> Option<Option<Webhook>> {
        let Some(value) = self.object().get("webhook") else {
            return Some(None);
        };
        let url = self.string("webhook", value)?;
        match Webhook::parse(url) {
            Ok(webhook) => Some(Some(webhook)),
            Err(problem) => {
                self.key("webhook", value, problem);
                None
            }
        }
    }

    fn threshold(&mut self) -> Option<Threshold> {
        if !self.object().contains_key("threshold") {
            return Some(Threshold::default());
        }
        let object = self.nested("threshold", &THRESHOLD_KEYS)?;
        let (count, seconds) = (object.get("count"), object.get("within_s"));
        let count = self.whole_number("threshold.count", count, 1, MAX_COUNT);
        let within = self.whole_number("threshold.within_s", seconds, 1, MAX_SECONDS);
        Some(Threshold {
            count: u32::try_from(count?).ok()?,
            within: Duration::from_secs(within?),
        })
    }

    fn repeat_after(&mut self) -> Option<Option<Duration>> {
        let Some(value) = self.object().get("repeat_after_s") else {
            return Some(None);
        };
        if matches!(
            self.object().get("do").and_then(Value::as_str),
            Some("freeze" | "kill")
        ) {
            self.whole("has \"repeat_after_s\", which only notes and alerts have");
            return None;
        }
        self.whole_number("repeat_after_s", Some(value), 0, MAX_SECONDS)
            .map(|seconds| Some(Duration::from_secs(seconds)))
    }

    /// An object in an object, without keys that are not `known`.
    fn nested(
        &mut self,
        key: &'static str,
        known: &[&'static str],
    ) -> Option<&'o Map<String, Value>> {
        match self.object().get(key) {
            Some(Value::Object(object)) => {
                self.known_keys(&format!("\"{key}\" "), object, known);
                Some(object)
            }
            None => {
                self.whole(format!("has no \"{key}\""));
                None
            }
            Some(value) => {
                self.key(key, value, format!("is {}, not an object", kind(value)));
                None
            }
        }
    }

    fn known_keys(&mut self, whose: &str, object: &Map<String, Value>, known: &[&'static str]) {
        for key in object.keys() {
            if !known.contains(&key.as_str()) {
                let what = format!("{whose}has an unknown key {}", quoted(key));
                self.whole(unknown(&what, key, known.iter().copied()));
            }
        }
    }

    /// One or several of what is `known`; none if there is no value.
    fn some_of<T: Copy>(
        &mut self,
        key: &'static str,
        value: Option<&Value>,
        known: &[(&str, T)],
    ) -> Option<Vec<T>> {
        let Some(value) = value else {
            return Some(Vec::new());
        };
        let values = one_or_more(value);
        if values.is_empty() {
            self.key(key, value, "is empty; leave it out for any");
            return None;
        }
        self.each(key, values, |value| {
            let found = known.iter().find(|(name, _)| value == name);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let names = known.iter().map(|(name, _)| *name);
                meant(value.as_str().unwrap_or_default(), names)
            })
        })
    }

    fn whole_number(
        &mut self,
        key: &'static str,
        value: Option<&Value>,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let value = value.unwrap_or(&Value::Null);
        // Rego's numbers may come as decimals.
        let number = value
            .as_u64()
            .or_else(|| value.to_string().strip_suffix(".0")?.parse().ok());
        let fits = number.filter(|number| (least..=most).contains(number));
        if fits.is_none() {
            let problem = format!("is no whole number from {least} to {most}");
            self.key(key, value, problem);
        }
        fits
    }
}

fn one_or_more(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        one => std::slice::from_ref(one),
    }
}
