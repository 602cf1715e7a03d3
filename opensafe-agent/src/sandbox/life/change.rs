//! A run that goes on gets another policy, at one instant; or keeps the one that it has.

use super::{
    Life,
    mounts::is_its_own,
    next::{Compiled, Replacing},
};
use crate::{
    enforcement::Enforcement,
    event::UnixNano,
    kernel::{Call, memory},
    policy::Policy,
    run::{Applied, PolicyInfo},
    sandbox::{
        call::{Answer, Change, InForceNow, Request},
        error::RunError,
        error::system,
        evaluated::Evaluated,
        needs::check,
        record_place::RecordPlace,
        run::compile,
        sight::Lookout,
        state::State,
        view::{Writable, view},
    },
    view::Mount,
};

impl Life {
    /// Takes a call, if there is one and nothing else is being compiled.
    pub(super) fn take_call(&mut self) {
        if self.next.is_some() {
            return; // it waits
        }
        let call = match self.kernel.call() {
            None => return,
            Some(Ok(call)) => call,
            Some(Err(error)) => {
                let why = format!("somebody's call could not be read, and was not heard: {error}");
                return self.notice(&why);
            }
        };
        match serde_json::from_slice(&call.bytes) {
            Ok(Request::Policy(change)) => self.compile(change, call),
            Ok(Request::HandOver) => self.hand_over(call),
            Err(error) => self.refuse(call, &format!("it could not be read: {error}")),
        }
    }

    /// What it takes to evaluate and compile a policy is done on a thread; then [`Life::apply`] is called.
    fn compile(&mut self, change: Change, call: Call) {
        let lookout = match Lookout::new(&mut self.kernel) {
            Ok(lookout) => lookout,
            Err(error) => return self.refuse(call, &error),
        };
        let state = State {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sources: change.sources,
            policy: change.policy,
            number: self.state.number.next(),
            ..self.state.clone()
        };
        let enforcement = self.kernel.enforcement();
        let elsewhere = self.sight.elsewhere(&mut self.kernel);
        let work = move || {
            let compiled = compiled(state, &enforcement, elsewhere);
            compiled.map_err(|error| error.to_string())
        };
        self.compile_next(lookout, Some(call), work);
    }

    /// Switches to the policy, and answers.
    pub(super) fn apply(&mut self, lookout: Lookout, compiled: Compiled, call: Call) {
        let Compiled {
            view,
            tables,
            replacing,
        } = compiled;
        let Some(replacing) = replacing else {
            return self.refuse(call, &"nothing was evaluated");
        };
        let Replacing {
            mut state,
            rules,
            responses,
        } = *replacing;
        if !call.waits() {
            return; // and was told that it is not applied
        }
        state.since = self.kernel.generation().0.saturating_add(1);
        // Before: if this process is killed in between, who takes up the run finds what was asked for, and puts it in force.
        if let Err(error) = self.keep(&state) {
            return self.refuse(call, &error);
        }
        let installed = self.kernel.install(&tables, lookout.look(), !state.observe);
        let generation = match installed {
            Ok(generation) => generation,
            Err(error) => {
                let before = self.state.clone();
                if let Err(error) = self.keep(&before) {
                    self.notice(&format!(
                        "should opensafe be killed, whoever takes up the run puts another policy in force, which was refused here: {error}"
                    ));
                }
                return self.refuse(call, &error);
            }
        };
        drop(tables);
        memory::give_back();
        self.sight = lookout.saw(view);
        let before = std::mem::replace(&mut self.rules, rules);
        self.state = state;
        self.enricher.policy_changed(generation, self.in_force());
        self.responder.policy_changed(responses);
        self.failed = None;
        let applied = applied(&self.state, &self.rules, before.revision.clone());
        self.sinks.applied(&applied);
        let now = InForceNow {
            time_unix_nano: applied.time.0,
            number: applied.number,
            revision: applied.policy.revision,
            rules: applied.policy.rules,
            before: applied.before,
        };
        self.answer(call, &Answer::Applied(now));
    }

    /// All stays as it is.
    pub(super) fn refuse(&mut self, call: Call, why: &dyn std::fmt::Display) {
        self.answer(call, &Answer::Refused(why.to_string()));
    }

    pub(super) fn answer(&mut self, call: Call, answer: &Answer) {
        let bytes = serde_json::to_vec(answer).map_err(std::io::Error::other);
        if let Err(error) = bytes.and_then(|bytes| call.answer(&bytes)) {
            self.notice(&format!(
                "whoever asked for something could not be answered: {error}"
            ));
        }
    }

    fn keep(&mut self, state: &State) -> Result<(), RunError> {
        let bytes = state.to_bytes()?;
        Ok(self.kernel.keep(self.run.as_str(), &bytes)?)
    }
}

/// What goes on record of a policy that is in force now.
pub(in crate::sandbox) fn applied(
    state: &State,
    rules: &crate::rules::RuleSet,
    before: String,
) -> Applied {
    Applied {
        time: UnixNano::now(),
        number: state.number,
        policy: PolicyInfo::of(rules, &state.sources),
        before,
    }
}

fn compiled(
    state: State,
    enforcement: &Enforcement,
    elsewhere: Vec<Mount>,
) -> Result<Compiled, RunError> {
    let policy = Policy::of_kept(state.policy.clone())?;
    let record = RecordPlace::of_kept(state.record.clone());
    let Evaluated {
        rules,
        responses,
        needs,
    } = Evaluated::of(&policy, &state.input, state.respond, &record)?;
    check(enforcement, &needs, state.partial)?;
    let writable = [state.input.workspace.as_path(), state.input.tmp.as_path()];
    let mut view =
        view(&rules, &Writable(&writable)).map_err(|source| system("read the mounts", source))?;
    // What got a name because the sandbox could leave there what it likes may be where it cannot now.
    view.elsewhere = elsewhere;
    view.elsewhere.retain(|mount| is_its_own(&rules, mount));
    let tables = compile(&rules, &view)?;
    Ok(Compiled {
        view,
        tables,
        replacing: Some(Box::new(Replacing {
            state,
            rules,
            responses,
        })),
    })
}
