//! Where events go: the record, a person's terminal, the summary at the end.
//!
//! [`Sinks`] is all of them for one run; `run` calls, in this order, [`Sinks::start`],
//! [`Sinks::write`] for every event, [`Sinks::tick`] every 100 ms, [`Sinks::loss`] whenever it has read
//! the counters, and [`Sinks::end`]. No sink waits for a person or a disk, and none can stop a run.

pub mod fold;
pub mod object;
pub mod record;
pub mod redact;
pub mod response;
pub mod screen;
pub mod summary;
pub mod terminal;
pub mod text;

use std::{
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    enrich::Enriched,
    event::{Losses, PolicyNumber, UnixNano},
    response::Responded,
    run::{Adopted, Applied, Ending, Responses, RunEnd, RunStart, lost},
};
use record::{Record, Store, line, written::Written};
use screen::{Screen, StandardError};
use summary::Summary;
use terminal::Terminal;

/// Somewhere that events go.
pub trait Sink {
    /// Takes an event.
    ///
    /// # Errors
    /// If something is wrong with the sink. It goes on; what it loses it counts.
    fn write(&mut self, event: &Enriched) -> Result<(), SinkError>;

    /// Called every 100 ms or so, for what a sink wants to do in its own time.
    ///
    /// # Errors
    /// As for [`Sink::write`].
    fn tick(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// What can be wrong with a sink.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum SinkError {
    #[error("cannot write the record {}: {cause}", path.display())]
    Record { path: PathBuf, cause: io::Error },
    #[error("cannot put an event into a line: {0}")]
    Line(serde_json::Error),
}

/// What a run shows on stderr; stdout is the command's.
pub enum Show<O> {
    /// Lines for a person.
    Lines(Terminal<O>),
    /// The record's lines.
    Json(O),
    /// Nothing, but for trouble.
    Nothing(Terminal<O>),
}

impl Show<StandardError> {
    /// Lines for a person on stderr, coloured where that is wanted, with `~` for `home`.
    #[must_use]
    pub fn lines(home: &Path) -> Self {
        Self::Lines(Self::terminal(home))
    }

    /// The record's lines on stderr.
    #[must_use]
    pub fn json() -> Self {
        Self::Json(StandardError::for_json())
    }

    /// Nothing on stderr, but for trouble.
    #[must_use]
    pub fn nothing(home: &Path) -> Self {
        Self::Nothing(Self::terminal(home))
    }

    fn terminal(home: &Path) -> Terminal<StandardError> {
        Terminal::new(StandardError::for_lines(), home, StandardError::colour())
    }
}

/// All sinks of one run.
pub struct Sinks<S, O> {
    run: RunStart,
    record: Record<S>,
    show: Show<O>,
    summary: Summary,
    responses: Responses,
    /// Which policy of the run's is in force.
    policy: PolicyNumber,
    /// Whether the user was told that the record cannot be written.
    trouble_told: bool,
    /// Losses of which a line was shown.
    lost_shown: u64,
}

impl<S: Store, O: Screen> Sinks<S, O> {
    fn new(run: RunStart, record: Record<S>, show: Show<O>, before: &Written) -> Self {
        Self {
            summary: Summary::with(before.counts),
            policy: before.policy,
            responses: Responses::default(),
            trouble_told: false,
            lost_shown: 0,
            run,
            record,
            show,
        }
    }

    /// Puts the run's start on record and shows it.
    pub fn start(run: RunStart, record: Record<S>, show: Show<O>) -> Self {
        let mut sinks = Self::new(run, record, show, &Written::default());
        let recorded = sinks.record.start(&sinks.run);
        sinks.tell_trouble(recorded);
        match &mut sinks.show {
            Show::Lines(terminal) => terminal.started(&sinks.run),
            Show::Json(screen) => screen.show(&json_line(|out| line::start(&sinks.run, out))),
            Show::Nothing(_) => {}
        }
        sinks
    }

    /// Goes on with a run that was taken up, and has something on record already. A record that does not have the run's start
    /// gets it.
    pub fn resume(
        run: RunStart,
        record: Record<S>,
        has_start: bool,
        show: Show<O>,
        before: &Written,
        adopted: &Adopted,
    ) -> Self {
        let mut sinks = Self::new(run, record, show, before);
        if !has_start {
            let recorded = sinks.record.start(&sinks.run);
            sinks.tell_trouble(recorded);
        }
        let recorded = sinks.record.adopted(adopted);
        sinks.tell_trouble(recorded);
        match &mut sinks.show {
            Show::Lines(terminal) => terminal.adopted(&sinks.run, adopted),
            Show::Json(screen) => {
                screen.show(&json_line(|out| line::adopted(&sinks.run.id, adopted, out)));
            }
            Show::Nothing(_) => {}
        }
        sinks
    }

    /// Puts on record that another policy is in force, and shows it.
    pub fn applied(&mut self, applied: &Applied) {
        let recorded = self.record.applied(applied);
        self.tell_trouble(recorded);
        match &mut self.show {
            Show::Lines(terminal) => terminal.applied(applied),
            Show::Json(screen) => {
                screen.show(&json_line(|out| line::applied(&self.run.id, applied, out)));
            }
            Show::Nothing(_) => {}
        }
        self.run.policy = applied.policy.clone();
        self.policy = applied.number;
    }

    /// Lines about events that are on record.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.record.lines()
    }

    /// What the record has, if nothing waits to be written: for whoever goes on with it, should this process be killed.
    #[must_use]
    pub fn written(&self) -> Option<Written> {
        let written = self.record.written()?;
        Some(Written {
            counts: self.summary.counts(),
            policy: self.policy,
            ..written
        })
    }

    /// Events that the record neither has nor says to be lost.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        self.record.unwritten()
    }

    /// Takes an event.
    pub fn write(&mut self, event: &Enriched) {
        self.summary.add(event);
        let recorded = self.record.write(event);
        self.tell_trouble(recorded);
        match &mut self.show {
            Show::Lines(terminal) => terminal.event(event, Instant::now()),
            Show::Json(screen) => {
                screen.show(&json_line(|out| line::event(&self.run.id, event, out)));
            }
            Show::Nothing(_) => {}
        }
    }

    /// Takes what was done about an event, or could not be.
    pub fn respond(&mut self, responded: &Responded) {
        self.responses.add(responded);
        let recorded = self.record.respond(responded);
        self.tell_trouble(recorded);
        match &mut self.show {
            Show::Lines(terminal) | Show::Nothing(terminal) => {
                terminal.responded(responded, &self.run);
            }
            Show::Json(screen) => screen.show(&json_line(|out| {
                line::response(&self.run.id, responded, out)
            })),
        }
    }

    /// What those who are told of an alert are told: an object with lines of the record, and a sentence.
    #[must_use]
    pub fn told_of(&self, responded: &Responded) -> Vec<u8> {
        let mut out = Vec::new();
        // None with the values that the types allow.
        let _ = line::told(&self.run, responded, &mut out);
        out
    }

    /// Writes what waits. To be called every 100 ms.
    pub fn tick(&mut self) {
        let recorded = self.record.tick();
        self.tell_trouble(recorded);
        match &mut self.show {
            Show::Lines(terminal) => terminal.tick(Instant::now()),
            Show::Json(screen) => screen.settle(),
            Show::Nothing(terminal) => terminal.tick(Instant::now()),
        }
    }

    /// Notes what was lost since the run began. `losses.record_failed` need not be filled.
    pub fn loss(&mut self, time: UnixNano, losses: &Losses) {
        let recorded = self.record.loss(time, losses);
        self.tell_trouble(recorded);
        if let Show::Json(screen) = &mut self.show
            && lost(losses) > self.lost_shown
        {
            self.lost_shown = lost(losses);
            screen.show(&json_line(|out| {
                line::loss(&self.run.id, time, losses, out)
            }));
        }
    }

    /// Tells the user something that is no event: trouble, in a sentence. What counts is on record.
    pub fn notice(&mut self, sentence: &str) {
        match &mut self.show {
            Show::Lines(terminal) | Show::Nothing(terminal) => terminal.notice(sentence),
            Show::Json(_) => {}
        }
    }

    /// Puts the run's end on record, shows the summary, and gives what it says.
    pub fn end(mut self, ending: Ending) -> RunEnd {
        let end = RunEnd {
            time: ending.time,
            duration: ending.duration,
            status: ending.status,
            policy: self.run.policy.revision.clone(),
            counts: self.summary.counts(),
            touched: self.summary.touched(),
            responses: std::mem::take(&mut self.responses),
            losses: self.record.account(&ending.losses),
            trouble: ending.trouble,
            cleanup: ending.cleanup,
        };
        let recorded = self.record.end(&end);
        self.tell_trouble(recorded);
        match &mut self.show {
            Show::Lines(terminal) => terminal.ended(&self.run, &end, self.record.path()),
            Show::Json(screen) => {
                screen.finish(&json_line(|out| line::end(&self.run.id, &end, out)));
            }
            Show::Nothing(_) => {}
        }
        end
    }

    /// Tells the user once that the record cannot be written.
    fn tell_trouble(&mut self, result: Result<(), SinkError>) {
        let Err(error) = result else { return };
        if std::mem::replace(&mut self.trouble_told, true) {
            return;
        }
        match &mut self.show {
            Show::Lines(terminal) | Show::Nothing(terminal) => terminal.notice(&format!(
                "{error}; the policy stays in force, what is not recorded is counted"
            )),
            // The counts in `loss` and `run.end` say it.
            Show::Json(_) => {}
        }
    }
}

/// A line of the record as text; empty if it cannot be made.
fn json_line(make: impl FnOnce(&mut Vec<u8>) -> Result<(), line::Error>) -> String {
    let mut out = Vec::new();
    match make(&mut out) {
        Ok(()) => String::from_utf8(out).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
