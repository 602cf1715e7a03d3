//! Responses in the words of a policy.

use std::{
    io::{self, Write},
    time::Duration,
};

use anstyle::Style;
use serde_json::{Map, Value, json};

use crate::{
    response::{Action, Response, RuleGlob, Threshold, Trigger},
    sink::{record::line::verdict, text::printable},
};

/// A paragraph for each response; nothing if there are none.
pub(super) fn show(responses: &[Response], mut out: impl Write) -> io::Result<()> {
    let bold = Style::new().bold();
    if !responses.is_empty() {
        writeln!(out, "\nwhat is done about it:")?;
    }
    for response in responses {
        writeln!(
            out,
            "  {bold}{}{bold:#}: {} {}",
            printable(response.id.as_bytes()),
            response.action.name(),
            printable(when(response).as_bytes()),
        )?;
        if !response.reason.is_empty() {
            writeln!(out, "    {}", printable(response.reason.as_bytes()))?;
        }
        if let Action::Alert(alert) = &response.action {
            if !alert.command.is_empty() {
                let command = alert.command.join(" ");
                writeln!(out, "    command {}", printable(command.as_bytes()))?;
            }
            if let Some(webhook) = &alert.webhook {
                writeln!(out, "    webhook {}", printable(webhook.url.as_bytes()))?;
            }
        }
    }
    out.flush()
}

/// `after 5 events in 10 s: verdict deny, rule secrets.*; again after 60 s`.
fn when(response: &Response) -> String {
    let Threshold { count, within } = response.threshold;
    let after = match count {
        1 => "at the first event".to_owned(),
        count => format!("after {count} events in {} s", within.as_secs()),
    };
    let parts: Vec<String> = trigger(&response.on)
        .into_iter()
        .map(|(key, value)| match value {
            Value::Array(all) => {
                let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
                format!("{key} {}", all.join(" or "))
            }
            Value::String(least) => format!("{key} {least} or graver"),
            other => format!("{key} {other}"),
        })
        .collect();
    let again = match response.action {
        Action::Note | Action::Alert(_) if response.repeat_after > Duration::ZERO => {
            format!("; again after {} s", response.repeat_after.as_secs())
        }
        _ => String::new(),
    };
    format!("{after} with {}{again}", parts.join(", "))
}

/// In the form that a policy has them in, with where they were written.
pub(super) fn json(responses: &[Response]) -> Value {
    responses.iter().map(response_json).collect()
}

fn response_json(response: &Response) -> Value {
    let mut json = json!({
        "id": response.id,
        "on": trigger(&response.on),
        "do": response.action.name(),
        "reason": response.reason,
    });
    let mut put = |key: &str, value: Value| json[key] = value;
    if response.threshold.count > 1 {
        let Threshold { count, within } = response.threshold;
        put(
            "threshold",
            json!({"count": count, "within_s": within.as_secs()}),
        );
    }
    match &response.action {
        Action::Alert(alert) => {
            put("repeat_after_s", response.repeat_after.as_secs().into());
            if !alert.command.is_empty() {
                put("command", json!(alert.command));
            }
            if let Some(webhook) = &alert.webhook {
                put("webhook", webhook.url.as_str().into());
            }
        }
        Action::Note => put("repeat_after_s", response.repeat_after.as_secs().into()),
        Action::Freeze | Action::Kill => {}
    }
    if let Some(origin) = &response.origin {
        put("origin", json!(origin));
    }
    json
}

fn trigger(on: &Trigger) -> Map<String, Value> {
    let verdicts: Vec<&str> = on.verdicts.iter().copied().map(verdict).collect();
    let rules: Vec<&str> = on.rules.iter().map(RuleGlob::source).collect();
    let mut map = Map::new();
    for (key, all) in [
        ("event", &on.events),
        ("verdict", &verdicts),
        ("rule", &rules),
        ("denied_by", &on.denied_by),
    ] {
        if !all.is_empty() {
            map.insert(key.to_owned(), json!(all));
        }
    }
    if let Some(severity) = on.severity {
        map.insert("severity".to_owned(), severity.name().into());
    }
    if let Some(enforced) = on.enforced {
        map.insert("enforced".to_owned(), enforced.into());
    }
    map
}
