//! A run while its command lives: events go on record, signals are passed on, the view is kept up to date.

mod change;
mod handing_over;
mod mounts;
mod next;

use std::{
    fs::File,
    sync::Arc,
    thread::{self, sleep},
    time::{Duration, Instant},
};

use nix::{sys::signal::Signal, unistd::Pid as NixPid};
use opensafe_common::counter::Counter;
use tokio::{
    runtime::Runtime,
    sync::{Notify, mpsc::UnboundedReceiver},
};

use super::{
    call::CALLED,
    cgroup::Cgroup,
    children::bury_all,
    error::{RunError, system},
    job::{First, Job, Progress as Command},
    respond::Responder,
    sight::Sight,
    signals::Received,
    state::State,
};
use crate::{
    enrich::{Enriched, Enricher, InForce},
    event::{Losses, Pid, UnixNano, What},
    kernel::{Call, Events, Kernel, kept::Progress},
    rules::RuleSet,
    run::{Cleanup, Ending, Finished, RunEnd, RunId, Status, Trouble},
    sink::{Sinks, screen::StandardError},
};
pub(super) use change::applied;
use next::Next;

/// A run while its command lives.
pub(super) struct Life {
    run: RunId,
    /// As it is kept.
    state: State,
    rules: Arc<RuleSet>,
    sight: Sight,
    /// What is being compiled to take its place.
    next: Option<Next>,
    /// Tells that it is.
    compiled: Arc<Notify>,
    /// When it may be looked again because of what the sandbox has mounted, or is because the last look came to nothing.
    again_at: Instant,
    /// Why the last look came to nothing, if it did.
    failed: Option<String>,
    events: Events,
    kernel: Kernel,
    enricher: Enricher,
    sinks: Sinks<File, StandardError>,
    responder: Responder,
    ready: Vec<Enriched>,
    /// What the record had when nothing waited to be written, as it is noted.
    written: Vec<u8>,
    /// Whether events came since losses were last noted.
    news: bool,
    /// When they are noted also if none came.
    losses_at: Instant,
    attended: Attended,
    /// Events that were taken from the reader.
    taken: u64,
    asked_to_end: bool,
    /// Who wants to attend to the run instead.
    leaving: Option<Call>,
}

/// Why it is attended to no longer.
enum Attention {
    /// The command has ended; how, if that is known.
    Ended(Option<Status>),
    /// Another process attends to the run.
    HandedOver,
}

/// What is known of whoever attended to the run before.
#[derive(Debug)]
pub(super) struct Attended {
    /// The first process, if it is no child of ours.
    first: Option<Pid>,
    /// How that has ended, if it was told.
    first_ended: Option<Status>,
    /// Events that were done with.
    done: u64,
    /// Events that it had lost itself, and has put on record as lost.
    lost: Lost,
    /// Events that were lost with it are not more.
    killed_at_most: u64,
}

/// Events that were lost between the ring buffer and the record.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    queue_full: u64,
    malformed: u64,
}

impl Attended {
    /// Somebody has left the run when so many events were done with, and these losses were on record.
    pub(super) fn left(first: Pid, done: u64, losses: &Losses) -> Self {
        Self {
            first: Some(first),
            done,
            lost: Lost {
                queue_full: losses.queue_full,
                malformed: losses.malformed,
            },
            ..Self::default()
        }
    }
}

impl Attended {
    /// Events that had been read and were not on record when whoever attended before was killed: those that were sent, and
    /// neither are done with nor were read by this process. Known once the ring buffer was empty. `sent_at_most` is to be asked
    /// for after what was `read`: then each answer is too high by what was under way, and the least of them holds.
    fn killed(&mut self, read: u64, has_caught_up: bool, sent_at_most: u64) -> u64 {
        if self.first.is_none() || !has_caught_up {
            return 0;
        }
        let Lost {
            queue_full,
            malformed,
        } = self.lost;
        let accounted_for = self.done + queue_full + malformed + read;
        let killed = sent_at_most.saturating_sub(accounted_for);
        self.killed_at_most = self.killed_at_most.min(killed);
        self.killed_at_most
    }
}

impl Default for Attended {
    /// Nobody did.
    fn default() -> Self {
        Self {
            first: None,
            first_ended: None,
            done: 0,
            lost: Lost::default(),
            killed_at_most: u64::MAX,
        }
    }
}

/// Said when root inside has moved us.
const HELD: &str = "was moved into the sandbox's cgroup, and cannot leave it";
/// Said, once, when the command has stopped and we do not.
const GOES_ON: &str = "the command has stopped, and opensafe goes on, as events would be lost";
/// Said when it has left.
const MOVED: &str = "was moved into the sandbox's cgroup, and has left it";

/// Events that are put on record before anything else is looked after.
const MAX_DRAINED: usize = 4096;
/// How long who is marked, in the cgroup or not, is given to die.
const LEFT_PATIENCE: Duration = Duration::from_secs(5);
/// How often sinks write, and our own cgroup is looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often while nothing happens: a thousand runs that wait do not keep the processors busy.
const IDLE_TICK: Duration = Duration::from_secs(2);
/// For how long something is taken to go on after the last event: all that is kept back for a while is out by then.
const BUSY: Duration = Duration::from_secs(3);
/// How long what the first process has told last may take to be read, once that has gone: behind a full ring buffer, some time.
const GONE_PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked for.
const GONE_LOOK: Duration = Duration::from_millis(5);
/// How often losses are asked for, of which the events that come tell too.
const SELDOM: Duration = Duration::from_secs(1);

impl Life {
    /// A run whose command is about to live.
    pub(super) fn new(
        (run, state): (RunId, State),
        (rules, sight): (Arc<RuleSet>, Sight),
        (kernel, events, enricher): (Kernel, Events, Enricher),
        (sinks, responder): (Sinks<File, StandardError>, Responder),
        attended: Attended,
    ) -> Self {
        Self {
            run,
            state,
            rules,
            sight,
            next: None,
            compiled: Arc::default(),
            again_at: Instant::now(),
            failed: None,
            events,
            kernel,
            enricher,
            sinks,
            responder,
            ready: Vec::new(),
            written: Vec::new(),
            news: false,
            losses_at: Instant::now(),
            attended,
            taken: 0,
            asked_to_end: false,
            leaving: None,
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

    /// Attends to the run until its command has ended, and clears up then; or until another process does. `lasted` tells how
    /// long the run has. The cgroup comes after what enforces, so that it is dropped before whatever happens: nothing in it
    /// lives on when the programs go.
    pub(super) fn see_it_through(
        mut self,
        runtime: &Runtime,
        (first, signals): (First, UnboundedReceiver<Received>),
        mut cgroup: Cgroup,
        lasted: impl Fn() -> Duration,
    ) -> Result<Finished, RunError> {
        let mut job = Job::new(first, signals, &cgroup);
        let attended = self.attend(runtime, &mut job, &cgroup);
        let (first, signals) = job.into_parts();
        let status = match attended {
            Ok(Attention::HandedOver) => {
                cgroup.leave_to_another();
                drop(self);
                let status = handing_over::wait(Job::new(first, signals, &cgroup), runtime)?;
                return Ok(Finished::HandedOver(status));
            }
            Ok(Attention::Ended(status)) => Ok(status),
            Err(error) => Err(error),
        };
        let end = self.close(status.as_ref().ok().copied().flatten(), lasted(), cgroup);
        status.map(|_| Finished::Ended(Box::new(end)))
    }

    /// The command has ended, or never began: clears up.
    pub(super) fn close(
        mut self,
        status: Option<Status>,
        duration: Duration,
        mut cgroup: Cgroup,
    ) -> RunEnd {
        let cleanup = self.clean_up(&mut cgroup);
        self.end(status, duration, cleanup)
    }

    /// Puts events on record until the command has ended, or another process does.
    fn attend(
        &mut self,
        runtime: &Runtime,
        job: &mut Job<'_>,
        cgroup: &Cgroup,
    ) -> Result<Attention, RunError> {
        runtime.block_on(async {
            let mut active_at = Instant::now();
            let mut tick_at = active_at;
            let mut goes_on = false;
            let compiled = Arc::clone(&self.compiled);
            loop {
                let due = tick_at.min(job.due());
                let mut active = true;
                tokio::select! {
                    biased;
                    Some(received) = job.signal() => {
                        if received.signal == CALLED {
                            tick_at = Instant::now();
                        }
                        self.asked_to_end |= received.asks_to_end();
                        // What stands still cannot end by itself.
                        if received.asks_to_end() && self.responder.has_frozen() {
                            job.end();
                        }
                        job.act_on(received);
                    }
                    () = tokio::time::sleep_until(due.into()) => active = false,
                    () = self.sight.changed() => tick_at = Instant::now(),
                    () = compiled.notified() => tick_at = Instant::now(),
                    () = self.events.changed() => {
                        let _ = self.drain();
                    }
                }
                if self.responder.carry_out(cgroup, &mut self.sinks) {
                    job.end();
                }
                let now = Instant::now();
                if active {
                    active_at = now;
                    tick_at = tick_at.min(now + TICK);
                }
                if now >= tick_at {
                    self.tick();
                    self.stay_out_of(cgroup);
                    let idle = !self.is_compiling() && active_at + BUSY < now;
                    tick_at = Instant::now() + if idle { IDLE_TICK } else { TICK };
                }
                if self.hands_over(cgroup) {
                    return Ok(Attention::HandedOver);
                }
                match job.look() {
                    Ok(Command::Running) => {}
                    Ok(Command::Ended(status)) => return Ok(Attention::Ended(Some(status))),
                    Ok(Command::Gone) => {
                        self.look_how_it_ended();
                        return Ok(Attention::Ended(self.attended.first_ended));
                    }
                    Err(source) => return Err(system("wait for the command", source)),
                }
                if let Err(error) = job.stop_with_it()
                    && !std::mem::replace(&mut goes_on, true)
                {
                    self.notice(&format!("{GOES_ON}: {error}"));
                }
            }
        })
    }

    fn enforce(&self) -> bool {
        !self.state.observe
    }

    /// The policy that decides now.
    fn in_force(&self) -> InForce {
        InForce {
            rules: Arc::clone(&self.rules),
            view: Arc::new(self.sight.view.clone()),
            number: self.state.number,
        }
    }

    fn stay_out_of(&mut self, cgroup: &Cgroup) {
        match cgroup.leave() {
            Ok(false) => {}
            Ok(true) => self.notice(MOVED),
            Err(error) => self.notice(&format!("{HELD}: {error}")),
        }
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
        self.note();
        self.use_what_is_compiled();
        self.take_call();
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
            self.taken += 1;
            self.news = true;
            if let What::Exit { status } = event.what
                && Some(event.task.pid) == self.attended.first
            {
                self.attended.first_ended = Some(Status::from_wait(status.cast_signed()));
            }
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

    /// How the first process has ended is among what it has told last, which was sent before it could be seen to be gone
    /// (`do_exit` in kernel/exit.c).
    fn look_how_it_ended(&mut self) {
        self.events.empty();
        let deadline = Instant::now() + GONE_PATIENCE;
        while !self.events.has_emptied() && Instant::now() < deadline {
            let _ = self.drain();
            sleep(GONE_LOOK);
        }
        while !self.drain() {}
    }

    fn write(&mut self, mut ready: Vec<Enriched>) -> Vec<Enriched> {
        for event in ready.drain(..) {
            self.sinks.write(&event);
            self.responder.see(&event);
        }
        ready
    }

    /// Notes how far this process has come, for the one that comes should it be killed.
    fn note(&mut self) {
        let progress = self.progress();
        if let Some(written) = self.sinks.written() {
            // Without it, all of the record is read.
            self.written = serde_json::to_vec(&written).unwrap_or_default();
        }
        self.kernel.note(progress, &self.written);
    }

    /// How far it has come: what waits is not done with, nor what the record neither has nor says to be lost.
    fn progress(&self) -> Progress {
        let waiting = self.enricher.waiting() as u64 + self.sinks.unwritten();
        Progress {
            events: self.attended.done + self.taken.saturating_sub(waiting),
            lines: self.sinks.lines(),
        }
    }

    fn losses(&mut self) -> Losses {
        // Before it is asked what was sent: what comes in between is to be found there, not here.
        let (read, has_caught_up) = (self.events.read(), self.events.has_caught_up());
        let (queue_full, malformed) = self.events.lost();
        let before = self.kernel.counts();
        let counts = self.kernel.counts();
        let sent_at_most = counts.sent_at_most(&before);
        let agent_killed = self.attended.killed(read, has_caught_up, sent_at_most);
        let queue_full = queue_full + self.attended.lost.queue_full;
        let malformed = malformed + self.attended.lost.malformed;
        let sent = counts.of(Counter::Sent);
        Losses {
            seen: counts.of(Counter::Seen),
            sent: sent.saturating_sub(queue_full + malformed + agent_killed),
            agent_killed,
            ring_full: counts.of(Counter::LostRingFull),
            no_scratch: counts.of(Counter::LostNoScratch),
            queue_full,
            malformed,
            record_failed: 0,
        }
    }

    /// Ends all that is left in the cgroup, and removes it. Where that fails, whoever carries the sandbox's mark is ended
    /// instead.
    fn clean_up(&mut self, cgroup: &mut Cgroup) -> Cleanup {
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
        self.responder.finish(&mut self.sinks);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn left(done: u64) -> Attended {
        let losses = Losses {
            queue_full: 2,
            ..Losses::default()
        };
        Attended::left(Pid(7), done, &losses)
    }

    #[test]
    fn what_was_lost_with_whoever_attended_before_is_the_least_that_was_found() {
        let mut attended = left(90);
        // 100 were sent by then: 90 are done with, 2 were lost and said to be, 5 were left to be read.
        assert_eq!(attended.killed(0, false, 100), 0);
        assert_eq!(attended.killed(5, true, 110), 13);
        assert_eq!(attended.killed(15, true, 110), 3);
        assert_eq!(attended.killed(15, true, 130), 3);
        assert_eq!(attended.killed(35, true, 130), 3);
        assert_eq!(Attended::default().killed(0, true, 10), 0);
    }

    #[test]
    fn what_was_lost_before_is_not_forgotten_while_the_buffer_is_not_known_to_be_empty() {
        let mut attended = left(90);
        assert_eq!(attended.killed(5, true, 100), 3);
        assert_eq!(attended.killed(15, true, 110), 3);
    }
}
