//! Counts what a run did, for the lines at its end.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, Hash, RandomState},
};

use crate::{
    enrich::{Action, Enriched, Ruling},
    run::{Counts, PerVerdict, Touched},
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
    /// Counts an event.
    pub fn add(&mut self, event: &Enriched) {
        let program = &event.process.executable;
        match &event.action {
            Action::Exec { ruling, path, .. } => {
                count(&mut self.counts.exec, ruling);
                if ruling.verdict == Verdict::Deny {
                    self.denials.add(&(program, "exec", path, &ruling.rule));
                }
                if happened(ruling) {
                    self.programs.add(path);
                }
            }
            Action::File {
                ruling,
                path,
                access,
                ..
            } => {
                count(&mut self.counts.file, ruling);
                if ruling.verdict == Verdict::Deny {
                    self.denials.add(&(program, access.0, path, &ruling.rule));
                }
                if happened(ruling) {
                    if access.contains(Access::READ) {
                        self.files_read.add(path);
                    }
                    if access.contains(Access::WRITE) || access.contains(Access::CREATE) {
                        self.files_written.add(path);
                    }
                }
            }
            Action::Connect {
                ruling,
                peer,
                transport,
                ..
            } => {
                count(&mut self.counts.connect, ruling);
                let peer = super::terminal::peer_text(peer);
                if ruling.verdict == Verdict::Deny {
                    self.denials.add(&(program, transport, &peer, &ruling.rule));
                }
                if happened(ruling) {
                    self.destinations.add(&(transport, &peer));
                }
            }
            Action::Exit { .. } => {}
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

/// Whether the operation went ahead.
fn happened(ruling: &Ruling) -> bool {
    !(ruling.enforced && ruling.verdict == Verdict::Deny)
}

const fn count(counts: &mut PerVerdict, ruling: &Ruling) {
    match ruling.verdict {
        Verdict::Allow => counts.allow += 1,
        Verdict::Audit => counts.audit += 1,
        Verdict::Deny => counts.deny += 1,
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
