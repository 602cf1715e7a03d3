//! What an attempt's end and the record say together.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    TestError,
    attempt::{Attempt, Expects, Kind},
    honest::{self, Work},
    inside::{End, process_name},
    report::{Outcome, Report, Tried, Worked},
    runtime::Runtime,
    site::Site,
};
use crate::sink::{
    record::read::{Line, read},
    text::printable,
};

pub(super) struct Judge<'a> {
    pub(super) site: &'a Site,
    pub(super) given: &'a [PathBuf],
    pub(super) attempts: &'a [(Kind, &'static Attempt)],
    /// In what all of them were made.
    pub(super) runtime: Option<&'a Runtime>,
    /// How each attempt, and then each piece of work, ended outside, in the runtime if there is one.
    pub(super) control: &'a [End],
    /// The names of those that ended otherwise there, and how they ended without the runtime.
    pub(super) alone: &'a [(&'a str, End)],
    /// The names of those that were tried inside.
    pub(super) tried: &'a [&'a str],
    /// How they ended.
    pub(super) ends: &'a [End],
}

/// What of the record is needed.
struct Record {
    start: Option<Line>,
    lost: u64,
    lines: Vec<Line>,
    /// Who started a process.
    parents: BTreeMap<u64, u64>,
    /// Processes by the names that they had.
    named: BTreeMap<Vec<u8>, BTreeSet<u64>>,
}

impl Record {
    fn read(path: &Path) -> Result<Self, TestError> {
        let mut record = Self {
            start: None,
            lost: 0,
            lines: Vec::new(),
            parents: BTreeMap::new(),
            named: BTreeMap::new(),
        };
        for line in read(path)? {
            let line = line?;
            if let (Some(process), Some(parent)) = (
                line.number("process.pid"),
                line.number("process.parent_pid"),
            ) {
                record.parents.insert(process, parent);
                if let Some(name) = line.bytes("opensafe.process.comm") {
                    record.named.entry(name).or_default().insert(process);
                }
            }
            match line.event() {
                "run.start" => record.start = Some(line),
                "run.end" => {
                    let number = |key| line.number(key).unwrap_or_default();
                    let (seen, sent) = (number("opensafe.loss.seen"), number("opensafe.loss.sent"));
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

    /// Lines about the process that made an attempt, what it started, and its daemon. Where the process's id is not
    /// known it is found by its name, which it takes before it does anything else.
    fn of(&self, number: usize, end: &End) -> impl Iterator<Item = &Line> {
        let named = self.named.get(process_name(number).as_bytes());
        let mut first = named.cloned().unwrap_or_default();
        first.extend(end.process);
        self.lines.iter().filter(move |line| {
            line.number("process.pid")
                .is_some_and(|process| self.descends(process, &first))
        })
    }

    fn descends(&self, process: u64, from: &BTreeSet<u64>) -> bool {
        let parents = std::iter::successors(Some(process), |at| self.parents.get(at).copied());
        // Ids come round again: no line of parents is longer than that.
        parents.take(64).any(|at| from.contains(&at))
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
            runtime: self.runtime.map(Runtime::to_string),
            given: self
                .given
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            attempts: attempts
                .map(|(at, (kind, attempt))| self.attempt(at, *kind, attempt, &record))
                .collect(),
            work: work
                .map(|(at, work)| self.work(at + self.attempts.len(), work, &record))
                .collect(),
            lost: record.lost,
        })
    }

    /// What was denied, if nothing could be tried for it: each once.
    pub(super) fn denials(&self) -> Result<Vec<String>, TestError> {
        let record = Record::read(&self.site.record)?;
        let mut denials = Vec::new();
        for line in record.lines.iter().filter(|line| line.is_denial()) {
            let text = |key| printable(line.text(key).unwrap_or_default().as_bytes());
            let (how, place) = (text("opensafe.operation.how"), text("file.path"));
            let object = if place.is_empty() { how } else { place };
            let denial = format!(
                "{} {object} by {} ({})",
                line.event(),
                text("opensafe.process.comm"),
                text("opensafe.rule.id")
            );
            if !denials.contains(&denial) {
                denials.push(denial);
            }
        }
        Ok(denials)
    }

    /// Its number and its end inside.
    fn inside(&self, name: &str) -> Option<(usize, &End)> {
        let number = self.tried.iter().position(|tried| *tried == name)?;
        Some((number, self.ends.get(number)?))
    }

    /// Why it was not tried inside.
    fn outside(&self, at: usize, name: &str) -> Outcome {
        let said = |end: Option<&'_ End>| {
            end.map_or_else(|| "it did not end".to_owned(), |end| end.said.clone())
        };
        let mut end = said(self.control.get(at));
        if self.runtime.is_some() {
            let alone = self.alone.iter().find(|(of, _)| *of == name);
            let alone = said(alone.map(|(_, end)| end));
            match (alone.as_str(), end.as_str()) {
                // That is no answer of anyone's.
                ("ok", "no end" | "it did not end" | "it is not here") => {}
                ("ok", _) => return Outcome::ByRuntime(end),
                _ => end = alone,
            }
        }
        Outcome::NotTried(match end.as_str() {
            "it is not here" | "ENOENT" => "what it takes is not here".to_owned(),
            end => format!("does not work outside either: {end}"),
        })
    }

    fn attempt(&self, at: usize, kind: Kind, attempt: &Attempt, record: &Record) -> Tried {
        let mut tried = Tried {
            name: attempt.name,
            kind,
            shows: attempt.shows,
            expected: "denied",
            happened: String::new(),
            recorded: false,
            event: None,
            rule: None,
            outcome: Outcome::GotThrough,
        };
        let Some((number, end)) = self.inside(attempt.name) else {
            tried.outcome = self.outside(at, attempt.name);
            return tried;
        };
        end.said.clone_into(&mut tried.happened);
        let expected = |line: &&Line| self.is_expected(attempt, line);
        let denial = record.of(number, end).filter(expected).find(is_enforced);
        let (outcome, line) = if attempt.is_stopped_by(&end.said) {
            match denial {
                Some(line) => (Outcome::Stopped, Some(line)),
                // What there is instead may help whoever asks why.
                None => (
                    Outcome::NotRecorded,
                    record.of(number, end).find(|line| line.is_denial()),
                ),
            }
        } else if end.said != "ok" {
            (Outcome::Odd, denial)
        } else {
            let allowed = record
                .of(number, end)
                .filter(expected)
                .find(|line| !line.is_denial());
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
            worked.happened = match (self.outside(at, work.name), self.runtime) {
                (Outcome::ByRuntime(said), Some(runtime)) => {
                    format!("does not work in {runtime} without OpenSafe either: {said}")
                }
                (Outcome::NotTried(why), _) => why,
                (other, _) => other.as_str().to_owned(),
            };
            return worked;
        };
        end.said.clone_into(&mut worked.happened);
        worked.passed = Some(end.said == "ok");
        for line in record.of(number, end).filter(|line| line.is_denial()) {
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
        && line
            .text("opensafe.rule.id")
            .is_some_and(|rule| !rule.is_empty())
}

#[cfg(test)]
mod tests;
