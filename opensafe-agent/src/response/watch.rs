//! Which responses an event makes due.

use std::sync::Arc;

use super::{Response, window::Window};
use crate::{enrich::Enriched, event::UnixNano};

/// Watches a run's events. Memory: 8 bytes for each event that a threshold takes.
#[derive(Debug)]
pub struct Watch {
    responses: Arc<[Response]>,
    /// One for each of them.
    states: Vec<State>,
}

/// A response that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Its place among the responses.
    pub response: usize,
    /// Events that it is about and that came since it was last due, or since the run began.
    pub count: u64,
}

#[derive(Debug)]
struct State {
    window: Window,
    count: u64,
    /// When it was due, if it was.
    due: Option<UnixNano>,
}

impl Watch {
    /// Watches for these.
    #[must_use]
    pub fn new(responses: Arc<[Response]>) -> Self {
        let states = responses
            .iter()
            .map(|response| State {
                window: Window::new(response.threshold),
                count: 0,
                due: None,
            })
            .collect();
        Self { responses, states }
    }

    /// Which responses are due with this event.
    ///
    /// One that was due is quiet for [`Response::repeat_after`]: events are counted, and the first after that time with
    /// which the threshold is reached (by events of the quiet time, too) makes it due again.
    pub fn see(&mut self, event: &Enriched) -> Vec<Due> {
        let mut due = Vec::new();
        for (at, (response, state)) in self.responses.iter().zip(&mut self.states).enumerate() {
            if !response.on.holds(event) {
                continue;
            }
            state.count += 1;
            let reached = state.window.reached(event.time);
            if reached && !state.is_quiet(event.time, response) {
                state.due = Some(event.time);
                due.push(Due {
                    response: at,
                    count: std::mem::take(&mut state.count),
                });
            }
        }
        due
    }
}

impl State {
    fn is_quiet(&self, now: UnixNano, response: &Response) -> bool {
        let quiet = response.repeat_after.as_nanos();
        self.due
            .is_some_and(|due| u128::from(now.0.saturating_sub(due.0)) < quiet)
    }
}
