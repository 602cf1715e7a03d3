//! The record: one JSON line per event, from the run's start to its end.
//!
//! A record that cannot be written stops nothing. Lines wait in memory until there is room again, as
//! many as fit into [`KEEP`] bytes; those beyond are counted, and the count is put on record as soon as
//! something can be. Half a line is taken back, or, if that fails too, ended, so that every line is
//! either whole or recognisably none.

pub mod file;
pub mod line;
pub mod place;
pub mod read;
pub mod written;

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::{Sink, SinkError};
use crate::{
    enrich::Enriched,
    event::{Losses, UnixNano},
    response::Responded,
    run::{Adopted, Applied, RunEnd, RunId, RunStart},
};
use file::{CreateError, Existing, Owner};
use opensafe_common::verdict::Verdict;
use written::Written;

/// Bytes that are collected before they are written without anyone asking.
const BATCH: usize = 64 << 10;

/// Bytes of lines that wait for room on a full disk.
pub const KEEP: usize = 1 << 20;

/// What a record is written to. All of it is appended.
pub trait Store {
    /// Appends a part of `bytes` and says how much.
    ///
    /// # Errors
    /// Those of the medium.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Takes the last `count` bytes back.
    ///
    /// # Errors
    /// Those of the medium.
    fn take_back(&mut self, count: usize) -> io::Result<()>;
}

impl Store for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }

    fn take_back(&mut self, count: usize) -> io::Result<()> {
        let length = self.metadata()?.len();
        self.set_len(length.saturating_sub(count as u64))
    }
}

/// Writes a record. Memory: [`KEEP`] bytes and one line.
#[derive(Debug)]
pub struct Record<S = File> {
    run: RunId,
    path: PathBuf,
    store: S,
    /// Whole lines that are not written yet.
    pending: Vec<u8>,
    /// For each pending line, whether it is an event's.
    pending_events: VecDeque<bool>,
    /// Whether what was written ends within a line.
    torn: bool,
    /// Lines about events that were written, and bytes of all.
    lines: u64,
    bytes: u64,
    /// Events that did not get into the record.
    failed: u64,
    /// The losses of the last `loss` line, and those that are known.
    noted: Losses,
    known: Losses,
    /// Of those that did not get into the record, how many it says to be lost.
    told: u64,
}

impl Record {
    /// Creates the record of `run` at `path`; see [`file::create`].
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create(
        run: RunId,
        path: &Path,
        existing: Existing,
        owner: Option<Owner>,
    ) -> Result<Self, CreateError> {
        let store = file::create(path, existing, owner)?;
        Ok(Self::to_store(run, path, store))
    }

    /// The record of a run that is taken up, as it was left.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn reopen(
        run: RunId,
        path: &Path,
        owner: Option<Owner>,
        written: &Written,
    ) -> Result<Self, CreateError> {
        let store = file::reopen(path, owner)?;
        Ok(Self {
            torn: written.torn,
            lines: written.lines,
            bytes: written.bytes,
            failed: written.losses.record_failed,
            told: written.losses.record_failed,
            noted: written.losses,
            ..Self::to_store(run, path, store)
        })
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.store
    }
}

impl<S: Store> Record<S> {
    /// The record of `run` in `store`, which messages call `path`.
    pub fn to_store(run: RunId, path: &Path, store: S) -> Self {
        Self {
            run,
            path: path.to_owned(),
            store,
            pending: Vec::new(),
            pending_events: VecDeque::new(),
            torn: false,
            lines: 0,
            bytes: 0,
            failed: 0,
            noted: Losses::default(),
            known: Losses::default(),
            told: 0,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines about events that it has, whoever has written them.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Events that it neither has nor says to be lost.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        let pending = self.pending_events.iter().filter(|event| **event).count() as u64;
        pending + self.failed.saturating_sub(self.told)
    }

    /// How far it has come, if all of it is whole lines and nothing waits; without what was decided.
    #[must_use]
    pub fn written(&self) -> Option<Written> {
        (self.pending.is_empty() && !self.torn).then(|| Written {
            bytes: self.bytes,
            lines: self.lines,
            losses: self.noted,
            ..Written::default()
        })
    }

    /// Writes that the run was taken up.
    ///
    /// # Errors
    /// If it cannot be written now; it will be tried again.
    pub fn adopted(&mut self, adopted: &Adopted) -> Result<(), SinkError> {
        self.push(false, |run, out| line::adopted(run, adopted, out))?;
        self.flush()
    }

    /// Writes that another policy is in force.
    ///
    /// # Errors
    /// If it cannot be written now; it will be tried again.
    pub fn applied(&mut self, applied: &Applied) -> Result<(), SinkError> {
        self.push(false, |run, out| line::applied(run, applied, out))?;
        self.flush()
    }

    /// Writes the first line.
    ///
    /// # Errors
    /// If it cannot be written now; it will be tried again.
    pub fn start(&mut self, run: &RunStart) -> Result<(), SinkError> {
        self.push(false, |_, out| line::start(run, out))?;
        self.flush()
    }

    /// Writes what was done about an event, at once.
    ///
    /// # Errors
    /// If it cannot be written now; it will be tried again.
    pub fn respond(&mut self, responded: &Responded) -> Result<(), SinkError> {
        self.push(false, |run, out| line::response(run, responded, out))?;
        self.flush()
    }

    /// Notes what was lost, if it is more than what the record says already.
    ///
    /// # Errors
    /// If the record cannot be written now; it will be tried again.
    pub fn loss(&mut self, time: UnixNano, losses: &Losses) -> Result<(), SinkError> {
        self.known = *losses;
        self.note_losses(time)
    }

    /// `losses` with what this record itself lost: [`Losses::record_failed`], and that much less
    /// [`Losses::sent`]. What still cannot be written counts as lost from here on.
    pub fn account(&mut self, losses: &Losses) -> Losses {
        if self.flush().is_err() {
            self.failed += self.pending_events.iter().filter(|event| **event).count() as u64;
            self.pending.clear();
            self.pending_events.clear();
        }
        self.with_own(losses)
    }

    /// Writes the last line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end(&mut self, end: &RunEnd) -> Result<(), SinkError> {
        self.push(false, |run, out| line::end(run, end, out))?;
        self.flush()
    }

    /// Writes what is pending.
    ///
    /// # Errors
    /// If not all of it can be written now; it will be tried again.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        if self.torn && !self.pending.is_empty() {
            self.pending.insert(0, b'\n');
        }
        let torn = std::mem::take(&mut self.torn);
        let mut written = 0;
        let failure = loop {
            if written == self.pending.len() {
                self.lines += self.pending_events.iter().filter(|event| **event).count() as u64;
                self.pending.clear();
                self.pending_events.clear();
                self.told = self.noted.record_failed;
                return Ok(());
            }
            match self.store.append(&self.pending[written..]) {
                Ok(0) => break io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    written += count;
                    self.bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
        };
        self.keep_after(written, torn);
        Err(SinkError::Record {
            path: self.path.clone(),
            cause: failure,
        })
    }

    /// After the first `written` bytes of what was pending were written: takes back what is no whole
    /// line and keeps the rest. With `torn`, the first byte is the end of an earlier half line.
    fn keep_after(&mut self, written: usize, torn: bool) {
        let whole = self.pending[..written]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1);
        let lines = self.pending[..whole]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        let gone = self
            .pending_events
            .drain(..lines.saturating_sub(usize::from(torn)));
        self.lines += gone.filter(|event| *event).count() as u64;
        let half = written - whole;
        let is_taken_back = half > 0 && self.store.take_back(half).is_ok();
        if is_taken_back {
            self.bytes = self.bytes.saturating_sub(half as u64);
        }
        self.torn = (torn && written == 0) || (half > 0 && !is_taken_back);
        // Whether or not the newline that ends a half line was written, it goes: `torn` says it anew.
        self.pending.drain(..whole.max(usize::from(torn)));
    }

    /// Adds a line to what is pending.
    fn push(
        &mut self,
        event: bool,
        make: impl FnOnce(&RunId, &mut Vec<u8>) -> Result<(), line::Error>,
    ) -> Result<(), SinkError> {
        if self.pending.len() >= KEEP
            && let Err(error) = self.flush()
            && self.pending.len() >= KEEP
        {
            self.failed += u64::from(event);
            return Err(error);
        }
        if let Err(cause) = make(&self.run, &mut self.pending) {
            self.failed += u64::from(event);
            return Err(SinkError::Line(cause));
        }
        self.pending_events.push_back(event);
        Ok(())
    }

    fn with_own(&self, losses: &Losses) -> Losses {
        Losses {
            sent: losses.sent.saturating_sub(self.failed),
            record_failed: self.failed,
            ..*losses
        }
    }

    fn note_losses(&mut self, time: UnixNano) -> Result<(), SinkError> {
        let losses = self.with_own(&self.known);
        if crate::run::lost(&losses) == crate::run::lost(&self.noted) {
            return Ok(());
        }
        self.push(false, |run, out| line::loss(run, time, &losses, out))?;
        self.noted = losses;
        Ok(())
    }
}

impl<S: Store> Sink for Record<S> {
    /// Puts `event` on record: denials at once, others at the next [`Sink::tick`].
    fn write(&mut self, event: &Enriched) -> Result<(), SinkError> {
        if self.failed > self.noted.record_failed && self.pending.len() < KEEP {
            self.note_losses(event.time)?;
        }
        self.push(true, |run, out| line::event(run, event, out))?;
        if self.pending.len() >= BATCH || is_denial(event) {
            self.flush()?;
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

fn is_denial(event: &Enriched) -> bool {
    let ruling = event.action.ruling();
    ruling.is_some_and(|ruling| ruling.verdict == Verdict::Deny)
}

#[cfg(test)]
mod tests;
