//! What a start does while it waits for another run: it says so once, and ends if it is asked to.

use std::{ops::ControlFlow, time::Duration};

use nix::sys::signal::Signal;

use super::signals::{Received, Signals};

/// A shorter wait is not worth a word.
const WORTH_A_WORD: Duration = Duration::from_secs(1);

pub(super) struct Wait<'a, S> {
    signals: &'a Signals,
    /// Says that it waits; gone once it has.
    say: Option<S>,
    end: Option<Received>,
}

impl<'a, S: FnOnce()> Wait<'a, S> {
    pub(super) fn new(signals: &'a Signals, say: S) -> Self {
        Self {
            signals,
            say: Some(say),
            end: None,
        }
    }

    /// After having waited so long.
    pub(super) fn goes_on(&mut self, waited: Duration) -> ControlFlow<()> {
        if let Some(say) = self.say.take_if(|_| waited >= WORTH_A_WORD) {
            say();
        }
        match self.asked_to_end() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    /// The signal that asked for an end, if one has come by now.
    pub(super) fn asked_to_end(&mut self) -> Option<Received> {
        while self.end.is_none()
            && let Some(received) = self.signals.pending()
        {
            match received.signal {
                // There is no command yet to stop with. If it cannot be, it goes on.
                Signal::SIGTSTP => drop(Signals::stop()),
                _ => self.end = Some(received).filter(|received| received.asks_to_end()),
            }
        }
        self.end
    }
}
