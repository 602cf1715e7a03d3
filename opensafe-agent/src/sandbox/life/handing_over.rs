//! Another process takes the run over: a new version of opensafe, mostly.
//!
//! What enforces is the kernel's, and goes on as it is. What was read is put on record, and how far that is noted for the other
//! process, which reads on from there. Then nothing is left to do here but to wait for the command, whose parent this process
//! may be.

use tokio::runtime::Runtime;

use super::Life;
use crate::{
    event::UnixNano,
    kernel::Call,
    run::Status,
    sandbox::{
        call::Answer,
        cgroup::Cgroup,
        error::{RunError, system},
        job::{Job, Progress},
    },
};

/// Why it is not done.
const RECORD_FULL: &str =
    "the record cannot be written just now, and what waits for it would be lost";

impl Life {
    /// Has it done as soon as nothing else is.
    pub(super) fn hand_over(&mut self, call: Call) {
        // As much as can be known before anything is given up.
        self.sinks.tick();
        match self.sinks.unwritten() {
            0 => self.leaving = Some(call),
            _ => self.refuse(call, &RECORD_FULL),
        }
    }

    /// Hands the run over, if that was asked for. Whether it is another's now.
    pub(super) fn hands_over(&mut self, cgroup: &Cgroup) -> bool {
        let Some(call) = self.leaving.take() else {
            return false;
        };
        if !call.waits() {
            return false;
        }
        self.events.finish();
        while !self.drain() {}
        let mut ready = std::mem::take(&mut self.ready);
        self.enricher.finish(&mut ready);
        self.write(ready);
        self.responder.carry_out(cgroup, &mut self.sinks);
        self.responder.settle(&mut self.sinks);
        let losses = self.losses();
        self.sinks.loss(UnixNano::now(), &losses);
        self.sinks.tick();
        self.note();
        if let Err(error) = self.kernel.hand_over(&call) {
            return self.goes_on(call, &error);
        }
        let to = call.caller();
        self.answer(call, &Answer::HandedOver);
        self.notice(&format!(
            "process {to} attends to run {} from now on · this one waits for its command",
            self.run
        ));
        self.sinks.tick();
        true
    }

    fn goes_on(&mut self, call: Call, why: &dyn std::fmt::Display) -> bool {
        let (queue_full, malformed) = self.events.lost();
        self.attended.done = self.progress().events;
        self.attended.lost.queue_full += queue_full;
        self.attended.lost.malformed += malformed;
        self.taken = 0;
        match self.kernel.unread_events() {
            Ok(events) => self.events = events,
            Err(error) => self.notice(&format!("events are not read any more: {error}")),
        }
        self.refuse(call, why);
        false
    }
}

/// Waits for the command of a run that is another's now; how it has ended, if this process is the one that knows.
pub(in crate::sandbox) fn wait(
    mut job: Job<'_>,
    runtime: &Runtime,
) -> Result<Option<Status>, RunError> {
    if !job.is_ours() {
        return Ok(None);
    }
    runtime.block_on(async {
        loop {
            let due = job.due();
            tokio::select! {
                biased;
                Some(received) = job.signal() => job.act_on(received),
                () = tokio::time::sleep_until(due.into()) => {}
            }
            match job.look() {
                Ok(Progress::Running) => {}
                Ok(Progress::Ended(status)) => return Ok(Some(status)),
                Ok(Progress::Gone) => return Ok(None),
                Err(source) => return Err(system("wait for the command", source)),
            }
            // If it cannot stop, its shell does not know that the command has.
            let _ = job.stop_with_it();
        }
    })
}
