//! The mounts change while a run goes on: the rules are carried over to what is there now.

use std::{
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use opensafe_common::verdict::{Access, Verdict};

use super::Life;
use crate::{
    enrich::InForce,
    event::{Pid, Place},
    kernel::memory,
    sandbox::{sight::Sight, view::first_of_mountinfo},
    tables::{self, Limits, TableError, Tables},
    view::Mount,
};

/// What was seen, and its tables in the making: on a thread of their own, as they take seconds where a policy is long, and events
/// and signals do not wait.
pub(super) struct Next {
    seen: Sight,
    since: Instant,
    tables: JoinHandle<Result<Tables, TableError>>,
}

/// Mounts in namespaces of the sandbox's own that are given a name at most.
const MAX_MET: usize = 64;
/// How much of a list of mounts of the sandbox's own is read for that: some ten thousand. What comes after has no name.
const MAX_MET_BYTES: u64 = 1 << 20;
/// After how long a look that came to nothing is taken again.
const RETRY: Duration = Duration::from_secs(5);
/// How much longer than it took to compile what was met is waited before it is done again.
const COMPILING_TO_PAUSE: u32 = 3;

impl Life {
    /// A sandboxed process met a tmpfs of the sandbox's own that the tables do not know: one that it mounted in a
    /// namespace of its own. It gets the name that it has there if the sandbox may leave there
    /// what it likes anyway; every other name (`/usr/bin`) would be one that it chose for itself. What shows other files (an
    /// overlay, a disk, a tmpfs of others) stays nameless, or rules could be walked around by mounting.
    pub(super) fn meet(&mut self, pid: Pid, place: &Place) {
        if self.next.is_some() || Instant::now() < self.again_at {
            return; // it is met again
        }
        let has_it = |mount: &Mount| mount.dev == place.dev;
        let view = &self.sight.view;
        let named = view.mounts.iter().chain(&view.elsewhere).any(has_it);
        if named && !self.kernel.is_made_since(self.sight.look, place.dev)
            || view.elsewhere.len() >= MAX_MET
        {
            return;
        }
        let rules = Arc::clone(&self.rules);
        let own = |mount: &Mount| {
            let inside = [mount.point.as_slice(), b"/file"].concat();
            let access = Access::WRITE.union(Access::CREATE);
            let decided = rules.decide_path(&inside, access);
            mount.fs_type == "tmpfs" && decided.verdict != Verdict::Deny
        };
        let met = || {
            let lines = first_of_mountinfo(
                Path::new(&format!("/proc/{}/mountinfo", pid.0)),
                MAX_MET_BYTES,
            );
            let mounts = lines.unwrap_or_default().into_iter().map(|line| line.mount);
            mounts
                .filter(|mount| has_it(mount) && own(mount))
                .collect::<Vec<_>>()
        };
        // A look costs: not for what gets no name anyway. To find that out costs as well, where a sandbox has many mounts.
        let since = Instant::now();
        if named || !met().is_empty() {
            self.look_again(met);
        } else {
            self.again_at = Instant::now() + since.elapsed() * COMPILING_TO_PAUSE;
        }
    }

    /// Has the rules compiled for what is seen now.
    pub(super) fn look_again(&mut self, met: impl FnOnce() -> Vec<Mount>) {
        let since = Instant::now();
        let seen = match self.sight.again(&mut self.kernel, met) {
            Ok(Some(seen)) => seen,
            Ok(None) => {
                self.failed = None;
                return;
            }
            Err(error) => return self.keeps(&error),
        };
        let (rules, view) = (Arc::clone(&self.rules), seen.view.clone());
        let tables = move || tables::compile(&rules, &view, Limits::default());
        match thread::Builder::new()
            .name("tables".to_owned())
            .spawn(tables)
        {
            Ok(tables) => {
                self.next = Some(Next {
                    seen,
                    since,
                    tables,
                });
            }
            Err(error) => self.keeps(&error),
        }
    }

    /// Switches to the tables for what was seen, once they are there. If that fails what there was stays: what is new has no
    /// name then, and the verdict for the nameless.
    pub(super) fn use_what_is_compiled(&mut self) {
        let is_ready = |next: &mut Next| next.tables.is_finished();
        let Some(Next {
            seen,
            since,
            tables,
        }) = self.next.take_if(is_ready)
        else {
            return;
        };
        // A sandbox that mounts without end does not have this compile without end.
        self.again_at = Instant::now() + since.elapsed() * COMPILING_TO_PAUSE;
        let tables = match tables.join() {
            Ok(Ok(tables)) => tables,
            Ok(Err(error)) => return self.keeps(&error),
            Err(_) => return self.keeps(&"the compiler panicked"),
        };
        let generation = match self.kernel.install(&tables, seen.look, self.enforce) {
            Ok(generation) => generation,
            Err(error) => return self.keeps(&error),
        };
        drop(tables);
        memory::give_back();
        self.failed = None;
        let policy = InForce {
            rules: Arc::clone(&self.rules),
            view: Arc::new(seen.view.clone()),
        };
        self.enricher.policy_changed(generation, policy);
        self.sight = seen;
    }

    /// Says once that what there was stays, and has it tried again later.
    fn keeps(&mut self, error: &dyn std::fmt::Display) {
        self.again_at = Instant::now() + RETRY;
        let why = keeps(error);
        if self.failed.as_ref() != Some(&why) {
            self.sinks.notice(&why);
            self.failed = Some(why);
        }
    }
}

fn keeps(error: &dyn std::fmt::Display) -> String {
    format!(
        "the mounts changed, and the rules could not be carried over to what is new: {error}; it has no name until they can"
    )
}
