//! A run while its command lives: events go on record, signals are passed on, the view is kept up to date.

use std::{
    fs::File,
    path::Path,
    process::Child,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{sys::signal::Signal, unistd::Pid as NixPid};
use opensafe_common::{
    counter::Counter,
    verdict::{Access, Verdict},
};
use tokio::{runtime::Runtime, sync::mpsc::UnboundedReceiver, time::MissedTickBehavior};

use super::{
    cgroup::Cgroup,
    children::{Children, bury_all},
    error::{RunError, system},
    sight::Sight,
    signals::{GRACE, Received},
    view::first_of_mountinfo,
};
use crate::{
    enrich::{Enriched, Enricher, InForce},
    event::{Losses, Pid, Place, UnixNano, What},
    kernel::{Events, Kernel, memory},
    rules::RuleSet,
    run::{Cleanup, Ending, RunEnd, Status, Trouble},
    sink::{Sinks, screen::StandardError},
    tables::{self, Limits, TableError, Tables},
    view::Mount,
};

/// A run while its command lives.
pub(super) struct Life {
    enforce: bool,
    rules: Arc<RuleSet>,
    sight: Sight,
    /// What was seen since, and whose tables are being compiled.
    next: Option<Next>,
    /// When it may be looked again because of what the sandbox has mounted, or is because the last look came to nothing.
    again_at: Instant,
    /// Why the last look came to nothing, if it did.
    failed: Option<String>,
    events: Events,
    kernel: Kernel,
    enricher: Enricher,
    sinks: Sinks<File, StandardError>,
    ready: Vec<Enriched>,
    /// Whether events came since losses were last noted.
    news: bool,
    /// When they are noted also if none came.
    losses_at: Instant,
    asked_to_end: bool,
}

/// What was seen, and its tables in the making: on a thread of their own, as they take seconds where a policy is long, and events
/// and signals do not wait.
struct Next {
    seen: Sight,
    since: Instant,
    tables: JoinHandle<Result<Tables, TableError>>,
}

/// Said when root inside has moved us.
const HELD: &str = "was moved into the sandbox's cgroup, and cannot leave it";
/// Said when it has left.
const MOVED: &str = "was moved into the sandbox's cgroup, and has left it";

/// Mounts in namespaces of the sandbox's own that are given a name at most.
const MAX_MET: usize = 64;
/// How much of a list of mounts of the sandbox's own is read for that: some ten thousand. What comes after has no name.
const MAX_MET_BYTES: u64 = 1 << 20;
/// Events that are put on record before anything else is looked after.
const MAX_DRAINED: usize = 4096;
/// How long who is marked, in the cgroup or not, is given to die.
const LEFT_PATIENCE: Duration = Duration::from_secs(5);
/// After how long a look that came to nothing is taken again.
const RETRY: Duration = Duration::from_secs(5);
/// How much longer than it took to compile what was met is waited before it is done again.
const COMPILING_TO_PAUSE: u32 = 3;
/// How often sinks write, and the mount table and our own cgroup are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often it is asked for what is told in another way too: losses by the events that came, children by a signal.
const SELDOM: Duration = Duration::from_secs(1);

impl Life {
    /// A run whose command is about to live.
    pub(super) fn new(
        enforce: bool,
        (rules, sight): (Arc<RuleSet>, Sight),
        (kernel, events, enricher): (Kernel, Events, Enricher),
        sinks: Sinks<File, StandardError>,
    ) -> Self {
        Self {
            enforce,
            rules,
            sight,
            next: None,
            again_at: Instant::now(),
            failed: None,
            events,
            kernel,
            enricher,
            sinks,
            ready: Vec::new(),
            news: false,
            losses_at: Instant::now(),
            asked_to_end: false,
        }
    }

    /// Tells the user of trouble.
    pub(super) fn notice(&mut self, sentence: &str) {
        self.sinks.notice(sentence);
    }

    /// Puts on record what no hook saw.
    pub(super) fn put_on_record(&mut self, event: Enriched) {
        self.write(vec![event]);
    }

    /// Puts events on record until the command has ended.
    pub(super) fn attend(
        &mut self,
        runtime: &Runtime,
        first: Child,
        mut signals: UnboundedReceiver<Received>,
        cgroup: &Cgroup,
    ) -> Result<Status, RunError> {
        let mut children = Children::of(first);
        runtime.block_on(async {
            let mut tick = tokio::time::interval(TICK);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut kill_at: Option<Instant> = None;
            let mut look_at = Instant::now();
            loop {
                tokio::select! {
                    biased;
                    received = signals.recv() => {
                        // It may be the one that tells of a child.
                        look_at = Instant::now();
                        if let Some(received) = received {
                            self.asked_to_end |= received.asks_to_end();
                            pass_on(received, &children, cgroup, &mut kill_at);
                        }
                    }
                    _ = tick.tick() => {
                        self.tick();
                        match cgroup.leave() {
                            Ok(false) => {}
                            Ok(true) => self.notice(MOVED),
                            Err(error) => self.notice(&format!("{HELD}: {error}")),
                        }
                    }
                    () = self.events.changed() => {
                        let _ = self.drain();
                    }
                }
                let now = Instant::now();
                if kill_at.is_some_and(|at| now >= at) {
                    end_all(&children, cgroup);
                }
                if now < look_at && !children.more() {
                    continue;
                }
                look_at = now + SELDOM;
                match children.look() {
                    Ok(None) => {}
                    Ok(Some(status)) => return Ok(status),
                    Err(source) => return Err(system("wait for the command", source)),
                }
            }
        })
    }

    fn tick(&mut self) {
        // What is left is taken by the next.
        let _ = self.drain();
        let mut ready = std::mem::take(&mut self.ready);
        let now = Instant::now();
        self.enricher.tick(now, &mut ready);
        self.write(ready);
        if std::mem::take(&mut self.news) || now >= self.losses_at {
            self.losses_at = now + SELDOM;
            let losses = self.losses();
            self.sinks.loss(UnixNano::now(), &losses);
        }
        for message in self.kernel.messages() {
            self.sinks.notice(&message);
        }
        self.sinks.tick();
        self.use_what_is_compiled();
        let is_due = self.failed.is_some() && Instant::now() >= self.again_at;
        if self.next.is_none() && (self.sight.has_changed() || is_due) {
            self.look_again(Vec::new);
        }
    }

    /// Puts on record what has come; not more at a time than leaves room for all else under a flood. Whether there was less.
    fn drain(&mut self) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        let mut room = MAX_DRAINED;
        while room > 0
            && let Some(event) = self.events.take()
        {
            room -= 1;
            self.news = true;
            if let What::UnknownSuperblock { place } = &event.what {
                let (pid, place) = (event.task.pid, place.clone());
                self.meet(pid, &place);
            }
            self.enricher.take(event, &mut ready);
            if ready.len() > 1024 {
                ready = self.write(ready);
            }
        }
        self.ready = self.write(ready);
        room > 0
    }

    fn write(&mut self, mut ready: Vec<Enriched>) -> Vec<Enriched> {
        for event in ready.drain(..) {
            self.sinks.write(&event);
        }
        ready
    }

    /// A sandboxed process met a tmpfs of the sandbox's own that the tables do not know: one that it mounted in a
    /// namespace of its own. It gets the name that it has there if the sandbox may leave there
    /// what it likes anyway; every other name (`/usr/bin`) would be one that it chose for itself. What shows other files (an
    /// overlay, a disk, a tmpfs of others) stays nameless, or rules could be walked around by mounting.
    fn meet(&mut self, pid: Pid, place: &Place) {
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
    fn look_again(&mut self, met: impl FnOnce() -> Vec<Mount>) {
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
    fn use_what_is_compiled(&mut self) {
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

    fn losses(&self) -> Losses {
        let (queue_full, malformed) = self.events.lost();
        let counts = self.kernel.counts();
        let sent = counts.of(Counter::Sent);
        Losses {
            seen: counts.of(Counter::Seen),
            sent: sent.saturating_sub(queue_full + malformed),
            ring_full: counts.of(Counter::LostRingFull),
            no_scratch: counts.of(Counter::LostNoScratch),
            queue_full,
            malformed,
            record_failed: 0,
        }
    }

    /// Ends all that is left in the cgroup, and removes it. Where that fails, whoever carries the sandbox's mark is ended
    /// instead.
    pub(super) fn clean_up(&mut self, cgroup: &mut Cgroup) -> Cleanup {
        let mut killed = 0;
        let mut finished = cgroup.finish();
        if let Err(error) = &finished {
            let why = error.to_string();
            let marked = self.marked_processes();
            killed = u64::try_from(marked.len()).unwrap_or(u64::MAX);
            self.sinks.notice(&format!(
                "{why}; whoever carries the sandbox's mark is ended instead: {killed} now"
            ));
            self.end_who_is_marked();
            finished = cgroup.finish();
        }
        let (left, cgroup_left) = match finished {
            Ok(left) => (left, None),
            Err(error) => (0, Some(error.to_string())),
        };
        Cleanup {
            killed: killed + left,
            cgroup_left,
        }
    }

    fn marked_processes(&mut self) -> Vec<Pid> {
        let mut marked = self.kernel.marked_processes().unwrap_or_default();
        // Whoever moved us into the cgroup is not to have us end ourselves.
        marked.retain(|process| process.0 != std::process::id());
        marked
    }

    /// Ends who is still marked, in the cgroup or not: nothing would confine them once the programs go. Gives how many
    /// marks remain when patience ends.
    fn end_who_is_marked(&mut self) -> u64 {
        if !self.kernel.unmarks() {
            return 0; // marks mean nothing here: no task's goes with it
        }
        let deadline = Instant::now() + LEFT_PATIENCE;
        loop {
            // The dead are marked until their parent has waited for them, which may be this process.
            bury_all();
            // And a grace period longer: a mark goes with the task's memory.
            let marked = self.kernel.marked();
            if marked == 0 || Instant::now() >= deadline {
                return u64::try_from(marked).unwrap_or(u64::MAX);
            }
            for process in self.marked_processes() {
                if let Ok(pid) = i32::try_from(process.0) {
                    // One that has just ended is no trouble.
                    let _ = nix::sys::signal::kill(NixPid::from_raw(pid), Signal::SIGKILL);
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything is gone from the cgroup: puts the rest on record, and the end.
    pub(super) fn end(
        mut self,
        status: Option<Status>,
        duration: Duration,
        cleanup: Cleanup,
    ) -> RunEnd {
        let escaped = self.end_who_is_marked();
        self.events.finish();
        while !self.drain() {}
        let mut ready = std::mem::take(&mut self.ready);
        self.enricher.finish(&mut ready);
        self.write(ready);
        let losses = self.losses();
        let counts = self.kernel.counts();
        let trouble = Trouble {
            no_path: counts.of(Counter::UndecidedNoPath),
            no_scratch: counts.of(Counter::UndecidedNoScratch),
            forks_refused: counts.of(Counter::ForksRefused),
            cgroups_unarmed: counts.of(Counter::CgroupsUnarmed),
            marks_failed: counts.of(Counter::MarksFailed),
            no_room: counts.of(Counter::NoRoom),
            outlived: escaped,
        };
        let end = self.sinks.end(Ending {
            time: UnixNano::now(),
            duration,
            status,
            losses,
            trouble,
            cleanup,
        });
        // Who asked for the end is to find nothing left; whoever waits for the command is not to wait for the kernel.
        if !self.asked_to_end {
            self.kernel.let_go();
        }
        end
    }
}

fn keeps(error: &dyn std::fmt::Display) -> String {
    format!(
        "the mounts changed, and the rules could not be carried over to what is new: {error}; it has no name until they can"
    )
}

/// Acts on a signal; see [`super::signals`].
fn pass_on(
    received: Received,
    children: &Children,
    cgroup: &Cgroup,
    kill_at: &mut Option<Instant>,
) {
    if matches!(received.signal, Signal::SIGCHLD | Signal::SIGWINCH) || !received.by_process {
        return;
    }
    if received.asks_to_end() {
        if kill_at.is_some() {
            end_all(children, cgroup);
            return;
        }
        *kill_at = Some(Instant::now() + GRACE);
    }
    children.signal_first(received.signal);
}

/// Ends the command and all else. If the cgroup cannot be killed, the command is, and then [`Life::clean_up`] sees to
/// the others.
fn end_all(children: &Children, cgroup: &Cgroup) {
    if cgroup.kill().is_err() {
        children.signal_first(Signal::SIGKILL);
    }
}
