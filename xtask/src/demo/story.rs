//! What happened in both sessions: the calls that were to be made, how they ended, and what the records say of them.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// Both sessions.
pub(crate) struct Story {
    pub(crate) honest: Session,
    pub(crate) astray: Session,
}

/// A session as it was played.
pub(crate) struct Session {
    pub(crate) steps: Vec<Step>,
    pub(crate) after: After,
    /// `run.start` and `run.end` of its record.
    pub(crate) start: Value,
    pub(crate) end: Value,
    /// Denials that belong to no step.
    pub(crate) stray: Vec<Denial>,
}

/// A call, and what became of it.
pub(crate) struct Step {
    pub(crate) call: Call,
    pub(crate) status: Option<i64>,
    pub(crate) denials: Vec<Denial>,
}

/// A line of `tests/sessions/*.jsonl`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) args: Value,
    pub(crate) why: String,
    #[serde(default)]
    pub(crate) fails: bool,
    #[serde(default)]
    pub(crate) astray: bool,
}

impl Call {
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.tool == other.tool && self.args == other.args
    }
}

/// A denial on record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Denial {
    pub(crate) operation: String,
    pub(crate) object: String,
    pub(crate) rule: String,
    pub(crate) reason: String,
    pub(crate) enforced: bool,
}

/// What the session left behind, as it was found from outside.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct After {
    pub(crate) secret_seen: bool,
    pub(crate) hook: bool,
    pub(crate) start_up_file_changed: bool,
    pub(crate) commits: u32,
    pub(crate) tests_pass: bool,
}

/// A line of the player's log.
#[derive(Deserialize)]
struct Played {
    began: u64,
    status: Option<i64>,
}

impl Story {
    /// From what the player left in `out`.
    pub(crate) fn read(out: &Path) -> Result<Self> {
        Ok(Self {
            honest: Session::read(out, "honest")?,
            astray: Session::read(out, "astray")?,
        })
    }
}

impl Session {
    fn read(out: &Path, name: &str) -> Result<Self> {
        let calls: Vec<Call> = lines(&super::folder().join(format!("{name}.jsonl")))?;
        let played: Vec<Played> = lines(&out.join(format!("{name}.steps")))?;
        let record: Vec<Value> = lines(&out.join(format!("{name}.jsonl")))?;
        let after = text(&out.join(format!("{name}.after")))?;
        let mut steps: Vec<Step> = calls
            .into_iter()
            .enumerate()
            .map(|(number, call)| Step {
                call,
                status: played.get(number).and_then(|played| played.status),
                denials: Vec::new(),
            })
            .collect();
        let mut stray = Vec::new();
        let find = |event: &str| {
            let found = record.iter().find(|line| line["opensafe.event"] == event);
            found.cloned().unwrap_or_default()
        };
        for line in &record {
            let Some(denial) = Denial::of(line, &find("run.start")) else {
                continue;
            };
            // The calls were made one after the other, so it belongs to the last that had begun.
            let time = line["time_unix_nano"].as_u64().unwrap_or(0);
            let step = played.iter().rposition(|played| played.began <= time);
            match step.and_then(|step| steps.get_mut(step)) {
                Some(step) => step.denials.push(denial),
                None => stray.push(denial),
            }
        }
        Ok(Self {
            steps,
            after: serde_json::from_str(&after)?,
            start: find("run.start"),
            end: find("run.end"),
            stray,
        })
    }

    /// Every denial, in order.
    pub(crate) fn denials(&self) -> impl Iterator<Item = &Denial> {
        let steps = self.steps.iter().flat_map(|step| &step.denials);
        steps.chain(&self.stray)
    }

    /// Each different denial, with how often it happened, in the order of the first.
    pub(crate) fn distinct_denials(&self) -> Vec<(&Denial, u32)> {
        let mut counts: BTreeMap<&Denial, u32> = BTreeMap::new();
        for denial in self.denials() {
            *counts.entry(denial).or_default() += 1;
        }
        let mut found = Vec::new();
        for denial in self.denials() {
            if let Some(count) = counts.remove(denial) {
                found.push((denial, count));
            }
        }
        found
    }

    /// A number of `run.end`.
    pub(crate) fn total(&self, key: &str) -> Option<u64> {
        self.end[key].as_u64()
    }
}

impl Denial {
    fn of(line: &Value, start: &Value) -> Option<Self> {
        if line["opensafe.verdict"] != "deny" {
            return None;
        }
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let access = line["opensafe.file.access"].as_array();
        let operation = match access {
            Some(access) => {
                let access: Vec<&str> = access.iter().filter_map(Value::as_str).collect();
                access.join("+")
            }
            None => text("opensafe.event"),
        };
        let object = match (&line["network.peer.address"], &line["network.peer.port"]) {
            (Value::String(address), Value::Number(port)) => format!("{address}:{port}"),
            (Value::String(address), _) => address.clone(),
            _ => short(&text("file.path"), start),
        };
        Some(Self {
            operation,
            object,
            rule: text("opensafe.rule.id"),
            reason: text("opensafe.reason"),
            enforced: line["opensafe.enforced"] == true,
        })
    }
}

/// A path as a person calls it: from the workspace, or from home.
fn short(path: &str, start: &Value) -> String {
    let below = |key: &str| {
        let directory = start[key].as_str()?;
        path.strip_prefix(directory)?.strip_prefix('/')
    };
    if let Some(below) = below("opensafe.workspace") {
        below.to_owned()
    } else if let Some(below) = below("opensafe.user.home") {
        format!("~/{below}")
    } else {
        path.to_owned()
    }
}

fn text(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| file.display().to_string())
}

fn lines<T: for<'de> Deserialize<'de>>(file: &Path) -> Result<Vec<T>> {
    text(file)?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| file.display().to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Denial;

    #[test]
    fn a_denial_names_what_a_person_would() {
        let start = json!({"opensafe.workspace": "/home/a/w", "opensafe.user.home": "/home/a"});
        let of = |line| {
            let denial = Denial::of(&line, &start)?;
            Some(format!("{} {}", denial.operation, denial.object))
        };
        let file = |path| json!({"opensafe.verdict": "deny", "opensafe.event": "file", "opensafe.file.access": ["write", "create"], "file.path": path});
        assert_eq!(of(file("/home/a/w/x")).as_deref(), Some("write+create x"));
        assert_eq!(
            of(file("/home/a/.ssh")).as_deref(),
            Some("write+create ~/.ssh")
        );
        let connect = json!({"opensafe.verdict": "deny", "opensafe.event": "connect", "network.peer.address": "192.0.2.1", "network.peer.port": 80});
        assert_eq!(of(connect).as_deref(), Some("connect 192.0.2.1:80"));
        assert_eq!(of(json!({"opensafe.verdict": "allow"})), None);
    }
}
