//! Counts what a run did, for the lines at its end.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, Hash, RandomState},
    path::Path,
};

use super::object::{object_text, peer_text};
use crate::{
    enrich::{Action, Enriched},
    run::{Counts, Touched},
};
use opensafe_common::verdict::{Access, Verdict};

/// Things of one sort that are told apart. Beyond, they are no longer counted: 8 MiB a sort.
const DIFFERENT: usize = 1 << 20;

/// What was counted so far.
#[derive(Debug, Default)]
pub struct Summary {
    counts: Counts,
    programs: Different,
    files_read: Different,
    files_written: Different,
    destinations: Different,
    denials: Different,
}

impl Summary {
    /// With what is on record already.
    #[must_use]
    pub fn with(counts: Counts) -> Self {
        Self {
            counts,
            ..Self::default()
        }
    }

    /// Counts an event.
    pub fn add(&mut self, event: &Enriched) {
        let action = &event.action;
        let Some(ruling) = action.ruling() else {
            return;
        };
        count(&mut self.counts, action);
        if ruling.verdict == Verdict::Deny {
            let (program, object) = (&event.process.executable, object(action));
            self.denials
                .add(&(program, action.name(), object, &ruling.rule));
        }
        if ruling.enforced && ruling.verdict == Verdict::Deny {
            return;
        }
        match action {
            Action::Exec { path, .. } => self.programs.add(path),
            // A terminal is no file that anyone would look for.
            Action::File { path, .. } if is_device(path) => {}
            Action::File { path, access, .. } => {
                let changes = Access::CHANGING.union(Access::CREATE);
                if access.contains(Access::READ) {
                    self.files_read.add(path);
                }
                if access.0 & changes.0 != 0 {
                    self.files_written.add(path);
                }
            }
            Action::Connect {
                peer, transport, ..
            } => self.destinations.add(&(transport, peer_text(peer))),
            Action::Socket { .. }
            | Action::Bind { .. }
            | Action::Operation { .. }
            | Action::OpenFailed { .. }
            | Action::Exit { .. } => {}
        }
    }

    /// How often each verdict was given.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// How many different things were touched.
    #[must_use]
    pub fn touched(&self) -> Touched {
        Touched {
            programs: self.programs.count(),
            files_read: self.files_read.count(),
            files_written: self.files_written.count(),
            destinations: self.destinations.count(),
            denials: self.denials.count(),
        }
    }
}

/// Whether it is where a host has its devices, and nothing else but memory that programs share (filesystem hierarchy
/// standard 3.0, 3.5).
fn is_device(path: &[u8]) -> bool {
    path.starts_with(b"/dev/") && !path.starts_with(b"/dev/shm/")
}

/// Counts the verdict on an action.
const fn count(counts: &mut Counts, action: &Action) {
    let (counts, ruling) = match action {
        Action::Exec { ruling, .. } => (&mut counts.exec, ruling),
        Action::File { ruling, .. } => (&mut counts.file, ruling),
        Action::Connect { ruling, .. } => (&mut counts.connect, ruling),
        Action::Socket { ruling, .. } => (&mut counts.socket, ruling),
        Action::Bind { ruling, .. } => (&mut counts.bind, ruling),
        Action::Operation {
            ruling, operation, ..
        } => (&mut counts.operations[*operation as usize], ruling),
        Action::OpenFailed { .. } | Action::Exit { .. } => return,
    };
    match ruling.verdict {
        Verdict::Allow => counts.allow += 1,
        Verdict::Audit => counts.audit += 1,
        Verdict::Deny => counts.deny += 1,
    }
}

/// What tells denials of one operation and rule apart.
fn object(action: &Action) -> (Vec<u8>, u16) {
    match action {
        Action::Exec { path, .. } => (path.clone(), 0),
        Action::File { path, access, .. } => (path.clone(), access.0),
        Action::Connect {
            peer, transport, ..
        } => (format!("{transport} {}", peer_text(peer)).into_bytes(), 0),
        other => (object_text(other, Path::new("")).into_bytes(), 0),
    }
}

/// Counts different things by their hashes: of a million, two share one with a probability of 1 in 10⁷.
#[derive(Debug, Default)]
struct Different {
    seen: HashSet<u64>,
    hasher: RandomState,
}

impl Different {
    fn add(&mut self, thing: &impl Hash) {
        if self.seen.len() < DIFFERENT {
            self.seen.insert(self.hasher.hash_one(thing));
        }
    }

    fn count(&self) -> u64 {
        self.seen.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::samples::{allowed, event, file, process};

    #[test]
    fn devices_are_no_files_that_were_read_or_written() {
        let touched = |path: &[u8]| {
            let mut summary = Summary::default();
            let access = Access::READ.union(Access::WRITE);
            let action = file(allowed(), path, access);
            summary.add(&event(0, process("sh", 7), action));
            let touched = summary.touched();
            (touched.files_read, touched.files_written)
        };
        assert_eq!(touched(b"/dev/tty"), (0, 0));
        assert_eq!(touched(b"/dev/shm/shared"), (1, 1));
        assert_eq!(touched(b"/device"), (1, 1));
    }
}
