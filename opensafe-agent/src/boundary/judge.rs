//! What an attempt's end and the record say together.

use std::path::{Path, PathBuf};

use super::{
    TestError,
    attempt::{Attempt, Expects},
    honest::{self, Work},
    inside::process_name,
    report::{Outcome, Report, Tried, Worked},
    site::Site,
};
use crate::sink::record::read::{Line, read};

pub(super) struct Judge<'a> {
    pub(super) site: &'a Site,
    pub(super) given: &'a [PathBuf],
    pub(super) attempts: &'a [&'static Attempt],
    /// How each attempt, and then each piece of work, ended outside.
    pub(super) control: &'a [String],
    /// The names of those that were tried inside.
    pub(super) tried: &'a [&'a str],
    /// How they ended.
    pub(super) ends: &'a [String],
}

/// What of the record is needed.
struct Record {
    start: Option<Line>,
    lost: u64,
    lines: Vec<Line>,
}

impl Record {
    fn read(path: &Path) -> Result<Self, TestError> {
        let mut record = Self {
            start: None,
            lost: 0,
            lines: Vec::new(),
        };
        for line in read(path)? {
            let line = line?;
            match line.event() {
                "run.start" => record.start = Some(line),
                "run.end" => {
                    let number = |key| line.number(key).unwrap_or_default();
                    let (seen, sent) =
                        (number("opensafe.loss.seen"), number("opensafe.loss.sent"));
                    record.lost = seen.saturating_sub(sent);
                }
                _ if line.text("opensafe.verdict").is_some() => record.lines.push(line),
                _ => {}
            }
        }
        Ok(record)
    }

    fn about(&self, field: &str) -> String {
        let start = self.start.as_ref();
        let text = start.and_then(|start| start.text(field));
        text.unwrap_or_default().to_owned()
    }

    /// Lines about the process of the attempt with this number, and what it started.
    fn of(&self, number: usize) -> impl Iterator<Item = &Line> {
        let name = process_name(number).into_bytes();
        self.lines.iter().filter(move |line| {
            line.bytes("opensafe.process.comm").as_ref() == Some(&name)
                || line
                    .list("opensafe.process.ancestors")
                    .contains(&name)
        })
    }
}

impl Judge<'_> {
    pub(super) fn report(&self) -> Result<Report, TestError> {
        let record = Record::read(&self.site.record)?;
        let attempts = self.attempts.iter().enumerate();
        let work = honest::ALL.iter().enumerate();
        Ok(Report {
            kernel: record.about("os.version"),
            policy: record.about("opensafe.policy.revision"),
            given: self
                .given
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            attempts: attempts
                .map(|(at, attempt)| self.attempt(at, attempt, &record))
                .collect(),
            work: work
                .map(|(at, work)| self.work(at + self.attempts.len(), work, &record))
                .collect(),
            lost: record.lost,
        })
    }

    /// Its number and its end inside.
    fn inside(&self, name: &str) -> Option<(usize, &str)> {
        let number = self.tried.iter().position(|tried| *tried == name)?;
        Some((number, self.ends.get(number)?))
    }

    fn outside(&self, at: usize) -> String {
        let end = self.control.get(at).map_or("it did not end", String::as_str);
        match end {
            "it is not here" | "ENOENT" => "what it takes is not here".to_owned(),
            end => format!("does not work outside either: {end}"),
        }
    }

    fn attempt(&self, at: usize, attempt: &Attempt, record: &Record) -> Tried {
        let mut tried = Tried {
            name: attempt.name,
            kind: attempt.kind,
            shows: attempt.shows,
            expected: "denied",
            happened: String::new(),
            recorded: false,
            event: None,
            rule: None,
            outcome: Outcome::GotThrough,
        };
        let Some((number, end)) = self.inside(attempt.name) else {
            tried.outcome = Outcome::NotTried(self.outside(at));
            return tried;
        };
        end.clone_into(&mut tried.happened);
        let expected = |line: &&Line| self.is_expected(attempt, line);
        let denial = record.of(number).filter(expected).find(is_enforced);
        let (outcome, line) = if attempt.is_stopped_by(end) {
            match denial {
                Some(line) => (Outcome::Stopped, Some(line)),
                None => (Outcome::NotRecorded, None),
            }
        } else if end != "ok" {
            (Outcome::Odd, denial)
        } else {
            let allowed = record.of(number).filter(expected).find(|line| !line.is_denial());
            self.let_pass(attempt, allowed, record)
        };
        tried.recorded = denial.is_some();
        tried.event = line.map(|line| line.event().to_owned());
        tried.rule = line.and_then(|line| Some(line.text("opensafe.rule.id")?.to_owned()));
        tried.outcome = outcome;
        tried
    }

    /// It worked: because the policy says so?
    fn let_pass<'l>(
        &self,
        attempt: &Attempt,
        allowed: Option<&'l Line>,
        record: &Record,
    ) -> (Outcome, Option<&'l Line>) {
        if let Some(default) = attempt.by_default
            && record.about(&format!("opensafe.policy.defaults.{default}")) == "allow"
        {
            let why = format!("the policy's default for {default} is allow");
            return (Outcome::NotTried(why), allowed);
        }
        match allowed {
            // Only what the throwaway rules do not deny can be left open by the policy.
            Some(line) if attempt.expects != Expects::Place => (Outcome::Allowed, Some(line)),
            other => (Outcome::GotThrough, other),
        }
    }

    fn is_expected(&self, attempt: &Attempt, line: &Line) -> bool {
        match attempt.expects {
            Expects::Any => true,
            Expects::Events(events) => events.contains(&line.event()),
            Expects::Place => line
                .bytes("file.path")
                .is_some_and(|path| self.is_here(&path)),
        }
    }

    fn is_here(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        path.starts_with(&self.site.root)
    }

    fn work(&self, at: usize, work: &Work, record: &Record) -> Worked {
        let mut worked = Worked {
            name: work.name,
            shows: work.shows,
            happened: String::new(),
            denials: Vec::new(),
            passed: None,
        };
        let Some((number, end)) = self.inside(work.name) else {
            worked.happened = self.outside(at);
            return worked;
        };
        end.clone_into(&mut worked.happened);
        worked.passed = Some(end == "ok");
        for line in record.of(number).filter(|line| line.is_denial()) {
            let object = line.text("file.path").unwrap_or_default();
            let rule = line.text("opensafe.rule.id").unwrap_or_default();
            let denial = format!("{} {object} ({rule})", line.event());
            if !worked.denials.contains(&denial) {
                worked.denials.push(denial);
            }
        }
        worked
    }
}

/// A denial that the kernel carried out for us.
fn is_enforced(line: &&Line) -> bool {
    line.is_denial()
        && line.is("opensafe.enforced")
        && line.text("opensafe.denied_by") == Some("opensafe")
        && line.text("opensafe.rule.id").is_some_and(|rule| !rule.is_empty())
}
