//! The mounts change while a run goes on: the rules are carried over to what is there now.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use opensafe_common::verdict::{Access, Verdict};

use super::{
    Life,
    next::{COMPILING_TO_PAUSE, Compiled},
};
use crate::{
    event::{Pid, Place},
    kernel::memory,
    rules::RuleSet,
    sandbox::{sight::Lookout, view::first_of_mountinfo},
    tables::{self, Limits},
    view::Mount,
};

/// Mounts in namespaces of the sandbox's own that are given a name at most.
const MAX_MET: usize = 64;
/// How much of a list of mounts of the sandbox's own is read for that: some ten thousand. What comes after has no name.
const MAX_MET_BYTES: u64 = 1 << 20;
/// After how long a look that came to nothing is taken again.
const RETRY: Duration = Duration::from_secs(5);

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
        let met = || {
            let lines = first_of_mountinfo(
                Path::new(&format!("/proc/{}/mountinfo", pid.0)),
                MAX_MET_BYTES,
            );
            let mounts = lines.unwrap_or_default().into_iter().map(|line| line.mount);
            mounts
                .filter(|mount| has_it(mount) && is_its_own(&rules, mount))
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
        let (lookout, view) = match self.sight.again(&mut self.kernel, met) {
            Ok(Some(seen)) => seen,
            Ok(None) => {
                self.failed = None;
                return;
            }
            Err(error) => return self.keeps(&error),
        };
        let rules = Arc::clone(&self.rules);
        let work = move || match tables::compile(&rules, &view, Limits::default()) {
            Ok(tables) => Ok(Compiled {
                view,
                tables,
                replacing: None,
            }),
            Err(error) => Err(error.to_string()),
        };
        self.compile_next(lookout, None, work);
    }

    /// Switches to the tables for what was seen. If that fails what there was stays: what is new has no name then, and the
    /// verdict for the nameless.
    pub(super) fn carry_over(&mut self, lookout: Lookout, compiled: Compiled) {
        let Compiled { view, tables, .. } = compiled;
        let installed = self.kernel.install(&tables, lookout.look(), self.enforce());
        let generation = match installed {
            Ok(generation) => generation,
            Err(error) => return self.keeps(&error),
        };
        drop(tables);
        memory::give_back();
        self.failed = None;
        self.sight = lookout.saw(view);
        self.enricher.policy_changed(generation, self.in_force());
    }

    /// Says once that what there was stays, and has it tried again later.
    pub(super) fn keeps(&mut self, error: &dyn std::fmt::Display) {
        self.again_at = Instant::now() + RETRY;
        let why = keeps(error);
        if self.failed.as_ref() != Some(&why) {
            self.sinks.notice(&why);
            self.failed = Some(why);
        }
    }
}

/// Whether a mount is one that a sandbox may name as it likes, as it could leave there what it likes anyway.
pub(super) fn is_its_own(rules: &RuleSet, mount: &Mount) -> bool {
    let inside = [mount.point.as_slice(), b"/file"].concat();
    let access = Access::WRITE.union(Access::CREATE);
    let decided = rules.decide_path(&inside, access);
    mount.fs_type == "tmpfs" && decided.verdict != Verdict::Deny
}

fn keeps(error: &dyn std::fmt::Display) -> String {
    format!(
        "the mounts changed, and the rules could not be carried over to what is new: {error}; it has no name until they can"
    )
}
