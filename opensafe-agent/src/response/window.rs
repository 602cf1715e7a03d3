//! So many within that time.

use std::collections::VecDeque;

use super::Threshold;
use crate::event::UnixNano;

/// The latest events of a kind, as many as can matter: [`Threshold::count`] of them at most, 8 bytes each.
#[derive(Debug)]
pub(super) struct Window {
    count: usize,
    within: u64,
    /// Rising.
    times: VecDeque<u64>,
}

impl Window {
    pub(super) fn new(threshold: Threshold) -> Self {
        Self {
            count: usize::try_from(threshold.count)
                .unwrap_or(usize::MAX)
                .max(1),
            within: u64::try_from(threshold.within.as_nanos()).unwrap_or(u64::MAX),
            times: VecDeque::new(),
        }
    }

    /// Takes an event in, and says whether the threshold is reached with it. Events of different processors come out of
    /// order by a little: each counts at its own time.
    pub(super) fn reached(&mut self, time: UnixNano) -> bool {
        let at = self.times.partition_point(|before| *before <= time.0);
        self.times.insert(at, time.0);
        if self.times.len() > self.count {
            self.times.pop_front();
        }
        let (Some(first), Some(last)) = (self.times.front(), self.times.back()) else {
            return false;
        };
        self.times.len() == self.count && last - first <= self.within
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn window(count: u32, within_ns: u64) -> Window {
        Window::new(Threshold {
            count,
            within: Duration::from_nanos(within_ns),
        })
    }

    #[test]
    fn one_less_than_the_threshold_does_not_reach_it() {
        let mut window = window(5, 10);
        let reached: Vec<bool> = (0..6).map(|time| window.reached(UnixNano(time))).collect();
        assert_eq!(reached, [false, false, false, false, true, true]);
    }

    #[test]
    fn what_is_too_long_ago_does_not_count() {
        let mut window = window(2, 10);
        assert!(!window.reached(UnixNano(0)));
        assert!(!window.reached(UnixNano(11)));
        assert!(window.reached(UnixNano(21)));
    }

    #[test]
    fn a_threshold_of_one_is_reached_by_each() {
        let mut window = window(1, 0);
        assert!(
            [5, 5, 1_000_000]
                .into_iter()
                .all(|time| window.reached(UnixNano(time)))
        );
    }

    proptest! {
        /// Against all that ever came: the latest `count` of what has come so far lie within the time.
        #[test]
        fn a_window_says_what_all_events_together_say(
            count in 1u32..8,
            within in 0u64..50,
            times in prop::collection::vec(0u64..200, 0..60),
        ) {
            let mut window = window(count, within);
            let mut all = Vec::new();
            for time in times {
                all.push(time);
                all.sort_unstable();
                let latest = all.len().checked_sub(count as usize).map(|from| &all[from..]);
                let expected = latest.is_some_and(|latest| latest[latest.len() - 1] - latest[0] <= within);
                prop_assert_eq!(window.reached(UnixNano(time)), expected);
                prop_assert!(window.times.len() <= count as usize);
            }
        }
    }
}
