//! Carries out what the policy wants done about events.
//!
//! [`Responder::see`] is told of every event as it goes on record; what is due is carried out once the loop comes round
//! ([`Responder::carry_out`]), and what cannot be known then is put on record when it is.

use std::{
    fs::File,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    alert::{Alerts, LIMIT, Whom},
    cgroup::Cgroup,
};
use crate::{
    enrich::Enriched,
    event::UnixNano,
    response::{
        Action, Deed, Outcome, Responded, Response,
        watch::{Due, Watch},
    },
    run::RunId,
    sink::{Sinks, screen::StandardError},
};

type RunSinks = Sinks<File, StandardError>;

/// Carries out one run's responses.
#[derive(Debug)]
pub(super) struct Responder {
    responses: Arc<[Response]>,
    watch: Watch,
    /// With the responses that they are among.
    due: Vec<(Due, Arc<Enriched>, Arc<[Response]>)>,
    alerts: Alerts,
    enforce: bool,
    /// The response that has frozen the sandbox.
    frozen: Option<Responded>,
    killed: bool,
}

/// How often it is looked, at a run's end, what came of telling somebody.
const LOOK: Duration = Duration::from_millis(20);

impl Responder {
    pub(super) fn new(run: RunId, responses: Arc<[Response]>, enforce: bool) -> Self {
        let mut responder = Self {
            watch: Watch::new(Arc::default()),
            responses: Arc::default(),
            due: Vec::new(),
            alerts: Alerts::new(run),
            enforce,
            frozen: None,
            killed: false,
        };
        responder.policy_changed(responses);
        responder
    }

    /// From now on it is by these that events are watched for. What is due by those before is carried out all the same, and
    /// what they have frozen stays so.
    pub(super) fn policy_changed(&mut self, responses: Arc<[Response]>) {
        let tells = |response: &Response| matches!(response.action, Action::Alert(_));
        if responses.iter().any(tells) {
            self.alerts.prepare();
        }
        self.watch = Watch::new(Arc::clone(&responses));
        self.responses = responses;
    }

    /// Takes note of an event.
    pub(super) fn see(&mut self, event: &Enriched) {
        let due = self.watch.see(event);
        if !due.is_empty() {
            let event = Arc::new(event.clone());
            let responses = &self.responses;
            let due = due.into_iter();
            self.due
                .extend(due.map(|due| (due, Arc::clone(&event), Arc::clone(responses))));
        }
    }

    /// Whether the sandbox stands still because a response has it, and so cannot end by itself.
    pub(super) const fn has_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Carries out what is due, and puts on record what is known by now of what was. Whether all is to be killed that could
    /// not be by the cgroup.
    pub(super) fn carry_out(&mut self, cgroup: &Cgroup, sinks: &mut RunSinks) -> bool {
        let mut failed_to_kill = false;
        self.see_whether_it_was_thawed(cgroup, sinks);
        for (due, event, responses) in std::mem::take(&mut self.due) {
            let Some(response) = responses.get(due.response) else {
                continue;
            };
            let responded = responded(response, due.count, event);
            match responded.deed {
                Deed::Freeze => self.freeze(responded, cgroup, sinks),
                Deed::Kill => failed_to_kill |= !self.kill(responded, cgroup, sinks),
                _ => self.tell(response, &responded, sinks),
            }
        }
        self.hear(sinks);
        failed_to_kill
    }

    /// The sandbox is gone: what is still due comes late, or is told, and whoever is being told is waited for.
    pub(super) fn finish(&mut self, sinks: &mut RunSinks) {
        for (due, event, responses) in std::mem::take(&mut self.due) {
            let Some(response) = responses.get(due.response) else {
                continue;
            };
            let responded = responded(response, due.count, event);
            match responded.deed {
                // What was frozen or killed before was so by one like it.
                Deed::Freeze | Deed::Kill if self.killed => {}
                Deed::Freeze | Deed::Kill => sinks.respond(&Responded {
                    outcome: if self.enforce {
                        Outcome::Late
                    } else {
                        Outcome::Observed
                    },
                    ..responded
                }),
                _ => self.tell(response, &responded, sinks),
            }
        }
        self.settle(sinks);
    }

    /// Waits for what comes of telling those who are being told.
    pub(super) fn settle(&mut self, sinks: &mut RunSinks) {
        let deadline = Instant::now() + 2 * LIMIT;
        self.hear(sinks);
        while !self.alerts.is_done() && Instant::now() < deadline {
            sleep(LOOK);
            self.hear(sinks);
        }
    }

    fn freeze(&mut self, responded: Responded, cgroup: &Cgroup, sinks: &mut RunSinks) {
        if self.killed || self.frozen.is_some() {
            return; // it is in force
        }
        let outcome = if self.enforce {
            match cgroup.freeze() {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::failed(&error.source(), error.to_string()),
            }
        } else {
            Outcome::Observed
        };
        let responded = Responded {
            outcome,
            ..responded
        };
        sinks.respond(&responded);
        // Where not all have stopped in time, they will.
        if self.enforce && matches!(cgroup.is_frozen(), Ok(true)) {
            self.frozen = Some(responded);
        }
    }

    /// Whether it is not for somebody else to do.
    fn kill(&mut self, responded: Responded, cgroup: &Cgroup, sinks: &mut RunSinks) -> bool {
        if self.killed {
            return true;
        }
        let outcome = if self.enforce {
            match cgroup.kill() {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::failed(&error.source(), error.to_string()),
            }
        } else {
            Outcome::Observed
        };
        self.killed = outcome == Outcome::Done;
        let left = matches!(outcome, Outcome::Failed { .. });
        sinks.respond(&Responded {
            outcome,
            ..responded
        });
        !left
    }

    /// Puts a note or an alert on record, and tells whom an alert names.
    fn tell(&mut self, response: &Response, responded: &Responded, sinks: &mut RunSinks) {
        sinks.respond(responded);
        let Action::Alert(alert) = &response.action else {
            return;
        };
        let mut all = Vec::new();
        if !alert.command.is_empty() {
            all.push((Deed::Command, Whom::Command(alert.command.clone())));
        }
        if let Some(webhook) = &alert.webhook {
            all.push((Deed::Webhook, Whom::Webhook(webhook.by_address())));
        }
        let text = sinks.told_of(responded);
        for (deed, whom) in all {
            let of = Responded {
                deed,
                ..responded.clone()
            };
            if let Err(error) = self.alerts.tell(&whom, &text, of.clone()) {
                sinks.respond(&Responded {
                    outcome: Outcome::failed(&error, error.to_string()),
                    ..of
                });
            }
        }
    }

    fn hear(&mut self, sinks: &mut RunSinks) {
        for told in self.alerts.told() {
            sinks.respond(&told);
        }
    }

    /// Somebody may have let it go on (`opensafe thaw`).
    fn see_whether_it_was_thawed(&mut self, cgroup: &Cgroup, sinks: &mut RunSinks) {
        let thawed = |_: &mut Responded| matches!(cgroup.is_frozen(), Ok(false));
        if let Some(frozen) = self.frozen.take_if(thawed) {
            sinks.respond(&Responded {
                time: UnixNano::now(),
                deed: Deed::Thaw,
                outcome: Outcome::Done,
                ..frozen
            });
        }
    }
}

/// What is to be put on record, if it succeeds.
fn responded(response: &Response, count: u64, event: Arc<Enriched>) -> Responded {
    Responded {
        time: UnixNano::now(),
        response: response.id.clone(),
        deed: response.action.deed(),
        reason: response.reason.clone(),
        count,
        event,
        outcome: Outcome::Done,
    }
}
