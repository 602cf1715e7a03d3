//! Tables in the making: on a thread of their own, as they take seconds where a policy is long, and events and signals do not
//! wait.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError, channel},
    },
    thread,
    time::Instant,
};

use super::Life;
use crate::{
    kernel::Call,
    response::Response,
    rules::RuleSet,
    sandbox::{sight::Lookout, state::State},
    tables::Tables,
    view::View,
};

/// What is being compiled.
pub(super) struct Next {
    lookout: Lookout,
    since: Instant,
    compiled: Receiver<Result<Compiled, String>>,
    /// Who waits for it, if it is another policy.
    call: Option<Call>,
}

/// What came of it.
pub(super) struct Compiled {
    pub(super) view: View,
    pub(super) tables: Tables,
    /// If it is another policy.
    pub(super) replacing: Option<Box<Replacing>>,
}

/// Another policy, evaluated.
pub(super) struct Replacing {
    pub(super) state: State,
    pub(super) rules: Arc<RuleSet>,
    pub(super) responses: Arc<[Response]>,
}

/// How much longer than it took to compile what was met is waited before it is done again.
pub(super) const COMPILING_TO_PAUSE: u32 = 3;

impl Life {
    /// Has it compiled what is to take the place of what there is, for a call if it is another policy.
    pub(super) fn compile_next(
        &mut self,
        lookout: Lookout,
        call: Option<Call>,
        work: impl FnOnce() -> Result<Compiled, String> + Send + 'static,
    ) {
        let since = Instant::now();
        let done = Arc::clone(&self.compiled);
        let (sender, compiled) = channel();
        let work = move || {
            // Nobody asks for it once the run has ended.
            let _ = sender.send(work());
            done.notify_one();
        };
        match thread::Builder::new().name("tables".to_owned()).spawn(work) {
            Ok(_) => {
                self.next = Some(Next {
                    lookout,
                    since,
                    compiled,
                    call,
                });
            }
            Err(error) => self.stays(call, &error),
        }
    }

    /// Switches to what was compiled, once it is there. If that fails what there was stays.
    pub(super) fn use_what_is_compiled(&mut self) {
        let compiled = match self.next.as_ref().map(|next| next.compiled.try_recv()) {
            None | Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(compiled)) => compiled,
            Some(Err(TryRecvError::Disconnected)) => Err("the compiler panicked".to_owned()),
        };
        let Some(next) = self.next.take() else { return };
        if next.call.is_none() {
            // A sandbox that mounts without end does not have this compile without end.
            self.again_at = Instant::now() + next.since.elapsed() * COMPILING_TO_PAUSE;
        }
        match (next.call, compiled) {
            (call, Err(why)) => self.stays(call, &why),
            (Some(call), Ok(compiled)) => self.apply(next.lookout, compiled, call),
            (None, Ok(compiled)) => self.carry_over(next.lookout, compiled),
        }
    }

    /// Nothing came of it, and what there was stays.
    fn stays(&mut self, call: Option<Call>, why: &dyn std::fmt::Display) {
        match call {
            Some(call) => self.refuse(call, why),
            None => self.keeps(why),
        }
    }

    /// Since when something is being compiled.
    pub(super) fn is_compiling(&self) -> bool {
        self.next.is_some()
    }
}
