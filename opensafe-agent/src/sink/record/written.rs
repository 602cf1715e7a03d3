//! What a record has that somebody else has begun: who goes on with it counts from there.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use super::read::{Line, ReadError, read};
use crate::{
    event::{Losses, PolicyNumber},
    run::{Counts, PerVerdict},
};

/// What is there.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Lines about events.
    pub lines: u64,
    /// What was decided, as far as it is on record.
    pub counts: Counts,
    /// The losses that are on record.
    pub losses: Losses,
    /// Which of the run's policies was in force, as far as it is on record.
    pub policy: PolicyNumber,
    /// Whether it ends within a line.
    pub torn: bool,
}

impl Written {
    /// Reads it from its beginning to its end.
    ///
    /// # Errors
    /// If it cannot be read, or is no record. Lines of it that are none are passed over.
    pub fn of(path: &Path) -> Result<Self, ReadError> {
        let mut written = Self {
            torn: !ends_with_newline(path).map_err(|cause| ReadError::Io {
                path: path.to_owned(),
                cause,
            })?,
            ..Self::default()
        };
        for line in read(path)?.flatten() {
            written.add(&line);
        }
        Ok(written)
    }

    fn add(&mut self, line: &Line) {
        match line.event() {
            "run.start" | "run.adopted" | "run.end" | "response" => {}
            "policy.applied" => {
                let number = line.number("opensafe.policy.number");
                self.policy = PolicyNumber(number.and_then(|it| it.try_into().ok()).unwrap_or(0));
            }
            "loss" => self.losses = losses(line),
            event => {
                self.lines += 1;
                if let (Some(counts), Some(verdict)) =
                    (self.counts.of_mut(event), line.text("opensafe.verdict"))
                {
                    count(counts, verdict);
                }
            }
        }
    }
}

fn count(counts: &mut PerVerdict, verdict: &str) {
    match verdict {
        "allow" => counts.allow += 1,
        "audit" => counts.audit += 1,
        "deny" => counts.deny += 1,
        _ => {}
    }
}

fn losses(line: &Line) -> Losses {
    let number = |name: &str| line.number(&format!("opensafe.loss.{name}")).unwrap_or(0);
    Losses {
        seen: number("seen"),
        sent: number("sent"),
        ring_full: number("ring_full"),
        no_scratch: number("no_scratch"),
        queue_full: number("queue_full"),
        malformed: number("malformed"),
        agent_killed: number("agent_killed"),
        record_failed: number("record_failed"),
    }
}

fn ends_with_newline(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_record_is_counted_and_a_torn_end_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let line = |event: &str, more: &str| {
            format!("{{\"time_unix_nano\":1,\"opensafe.event\":\"{event}\"{more}}}\n")
        };
        let text = [
            line("run.start", ""),
            line("file", ",\"opensafe.verdict\":\"deny\""),
            line("file", ",\"opensafe.verdict\":\"allow\""),
            line("exit", ""),
            line("mount", ",\"opensafe.verdict\":\"deny\""),
            line("policy.applied", ",\"opensafe.policy.number\":3"),
            line("loss", ",\"opensafe.loss.ring_full\":7"),
        ]
        .concat();
        std::fs::write(&path, &text).unwrap();
        let written = Written::of(&path).unwrap();
        assert_eq!((written.lines, written.torn), (4, false));
        assert_eq!(
            (written.counts.file.deny, written.counts.file.allow),
            (1, 1)
        );
        assert_eq!(written.counts.denials(), 2);
        assert_eq!(written.losses.ring_full, 7);
        assert_eq!(written.policy, PolicyNumber(3));
        std::fs::write(&path, text + "{\"time").unwrap();
        assert!(Written::of(&path).unwrap().torn);
    }
}
