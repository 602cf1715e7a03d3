//! What a record has that somebody else has begun: who goes on with it counts from there.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::read::{Line, ReadError, read};
use crate::{
    event::{Losses, PolicyNumber},
    run::{Counts, PerVerdict},
};

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Bytes of the record that this is about, from its beginning: whole lines.
    pub bytes: u64,
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
    /// Reads it to its end: from its beginning, or from where `noted` ends, if that is of this record. Else a run would be taken
    /// up the later the longer it has lasted.
    ///
    /// # Errors
    /// If it cannot be read, or is no record. Lines of it that are none are passed over.
    pub fn of(path: &Path, noted: Option<Self>) -> Result<Self, ReadError> {
        let failed = |cause| ReadError::Io {
            path: path.to_owned(),
            cause,
        };
        let mut lines = read(path)?;
        let noted = noted.filter(|noted| ends_line(path, noted.bytes).unwrap_or(false));
        if let Some(noted) = &noted {
            lines.skip_to(noted.bytes).map_err(failed)?;
        }
        let bytes = File::open(path).and_then(|file| file.metadata());
        let bytes = bytes.map_err(failed)?.len();
        let mut written = Self {
            bytes,
            torn: bytes > 0 && !ends_line(path, bytes).map_err(failed)?,
            ..noted.unwrap_or_default()
        };
        for line in lines.flatten() {
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

/// Whether a line ends after so many bytes.
fn ends_line(path: &Path, bytes: u64) -> std::io::Result<bool> {
    let Some(last) = bytes.checked_sub(1) else {
        return Ok(false);
    };
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(last))?;
    let mut byte = [0];
    Ok(file.read(&mut byte)? == 1 && byte == *b"\n")
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
        let written = Written::of(&path, None).unwrap();
        assert_eq!((written.lines, written.torn), (4, false));
        assert_eq!(
            (written.counts.file.deny, written.counts.file.allow),
            (1, 1)
        );
        assert_eq!(written.counts.denials(), 2);
        assert_eq!(written.losses.ring_full, 7);
        assert_eq!(written.policy, PolicyNumber(3));
        let more = line("file", ",\"opensafe.verdict\":\"deny\"");
        std::fs::write(&path, format!("{text}{more}{{\"time")).unwrap();
        let whole = Written::of(&path, None).unwrap();
        assert!(whole.torn && whole.counts.file.deny == 2);
        // What was noted is not read again.
        let noted = Written {
            lines: 1000,
            ..written
        };
        let read_on = Written::of(&path, Some(noted.clone())).unwrap();
        assert_eq!((read_on.lines, whole.lines), (1001, 5));
        assert_eq!(read_on.counts, whole.counts);
        assert!(read_on.torn && read_on.bytes == whole.bytes);
        // What was noted of another record is not believed.
        for bytes in [0, noted.bytes - 3, noted.bytes * 2] {
            let noted = Written {
                bytes,
                ..noted.clone()
            };
            assert_eq!(Written::of(&path, Some(noted)).unwrap(), whole, "{bytes}");
        }
    }
}
