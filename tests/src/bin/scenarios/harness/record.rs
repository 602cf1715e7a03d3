//! Records, read as docs/events.md describes them and by nothing else.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

/// A record's lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// In their order.
    pub(crate) events: Vec<Event>,
}

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Event(Map<String, Value>);

impl Record {
    /// What is on record of a run that goes on: it may be in the middle of a line.
    pub(crate) fn so_far(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        Self::parse(&bytes[..end.map_or(0, |end| end + 1)])
    }

    /// Reads a record; every line has to be an object, but for half a line that whoever was killed had begun. That is ended before
    /// the run is taken up, which the next line says.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).context("a record is UTF-8")?;
        let mut events: Vec<Event> = Vec::new();
        let mut half = None;
        for line in text.split_terminator('\n') {
            match serde_json::from_str(line) {
                Ok(Value::Object(object)) => events.push(Event(object)),
                other if half.is_none() => {
                    half = Some(format!("a record's line is no object ({other:?}): {line}"));
                    continue;
                }
                other => bail!("a record's line is no object ({other:?}): {line}"),
            }
            let is_adopted = |line: &Event| line.text("opensafe.event") == "run.adopted";
            if let Some(half) = half.take()
                && !events.last().is_some_and(is_adopted)
            {
                bail!(half);
            }
        }
        match half {
            None => Ok(Self { events }),
            Some(half) => bail!(half),
        }
    }

    /// The lines of one event.
    pub(crate) fn of(&self, event: &str) -> impl Iterator<Item = &Event> {
        self.events
            .iter()
            .filter(move |line| line.text("opensafe.event") == event)
    }

    /// Operations that were, or would have been, denied.
    pub(crate) fn denials(&self) -> impl Iterator<Item = &Event> {
        self.events
            .iter()
            .filter(|line| line.text("opensafe.verdict") == "deny")
    }

    /// Whether a process is another or descends from it, as far as the record tells.
    pub(crate) fn descends(&self, mut process: u64, from: u64) -> bool {
        // No family is larger than its record.
        for _ in 0..=self.events.len() {
            if process == from {
                return true;
            }
            let parent = self
                .events
                .iter()
                .filter(|line| line.number("process.pid") == process)
                .map(|line| line.number("process.parent_pid"))
                .find(|parent| *parent > 1);
            match parent {
                Some(parent) => process = parent,
                None => return false,
            }
        }
        false
    }

    /// The first line.
    pub(crate) fn start(&self) -> Result<&Event> {
        self.of("run.start")
            .next()
            .context("no run.start on record")
    }

    /// The last line.
    pub(crate) fn end(&self) -> Result<&Event> {
        self.of("run.end").next().context("no run.end on record")
    }

    /// What holds for every record of a run that came to its end.
    pub(crate) fn is_sound(&self) -> Result<()> {
        let (Some(first), Some(last)) = (self.events.first(), self.events.last()) else {
            bail!("the record is empty");
        };
        if first.text("opensafe.event") != "run.start" || last.text("opensafe.event") != "run.end" {
            bail!("a record goes from run.start to run.end, this one from {first} to {last}");
        }
        let run = first.text("opensafe.run.id");
        for line in &self.events {
            if line.text("opensafe.run.id") != run || line.number("time_unix_nano") == 0 {
                bail!("not of run {run}, or without a time: {line}");
            }
        }
        let loss = |what: &str| last.number(&format!("opensafe.loss.{what}"));
        let lost: u64 = [
            "ring_full",
            "no_scratch",
            "queue_full",
            "malformed",
            "agent_killed",
            "record_failed",
        ]
        .iter()
        .map(|cause| loss(cause))
        .sum();
        if loss("seen") != loss("sent") + lost {
            bail!("events seen are not those sent and those lost: {last}");
        }
        if last.flag("opensafe.cleanup.cgroup_removed") != Some(true) {
            bail!("the cgroup was not removed: {last}");
        }
        let cgroup = first.text("opensafe.cgroup.path");
        if Path::new(cgroup).exists() {
            bail!("the cgroup is still there: {cgroup}");
        }
        Ok(())
    }
}

impl Event {
    /// A text; empty if it is not there.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// The bytes that a text stands for; empty if it is not there.
    pub(crate) fn bytes(&self, key: &str) -> Vec<u8> {
        bytes_of(self.text(key))
    }

    /// A number; 0 if it is not there.
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or_default()
    }

    /// A flag.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.0.get(key).and_then(Value::as_bool)
    }

    /// Any value.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// An array's texts.
    pub(crate) fn texts(&self, key: &str) -> Vec<&str> {
        let array = self.0.get(key).and_then(Value::as_array);
        array.map_or_else(Vec::new, |array| {
            array.iter().filter_map(Value::as_str).collect()
        })
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LONG: usize = 2000;
        let text = Value::Object(self.0.clone()).to_string();
        match text.char_indices().nth(LONG) {
            None => f.write_str(&text),
            Some((at, _)) => write!(f, "{}… ({} bytes)", &text[..at], text.len()),
        }
    }
}

/// Undoes a record's escapes: every `\xHH` is that byte.
pub(crate) fn bytes_of(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = bytes
            .get(at..at + 4)
            .filter(|four| four.starts_with(b"\\x"))
            .and_then(|four| std::str::from_utf8(&four[2..]).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(escaped) => {
                out.push(escaped);
                at += 4;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}
