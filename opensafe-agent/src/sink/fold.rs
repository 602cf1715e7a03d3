//! Folds floods of denials: the first of each kind is shown at once, those like it as a count.
//!
//! A kind is a program, an operation, an object and a rule. A count is shown when its kind has been
//! quiet for [`QUIET`] or not been shown for [`LONG`], but only once it has doubled, so that a flood
//! of n denials makes log₂ n lines; the rest is shown at the end. A program that meets one rule at more
//! than [`OBJECTS`] objects is a flood too (a search of the whole disk): further objects are counted
//! together, except where the rule's severity is high.

use std::{
    borrow::Cow,
    collections::HashMap,
    time::{Duration, Instant},
};

/// A kind that was quiet so long has stopped.
pub const QUIET: Duration = Duration::from_secs(2);

/// A kind that goes on is counted up again after so long.
pub const LONG: Duration = Duration::from_secs(10);

/// Objects that one program and one rule are shown with.
pub const OBJECTS: u64 = 20;

/// Kinds that are remembered. Beyond, the half that has been quiet the longest is forgotten: its counts
/// are shown, and its next denials count as the first.
pub const KINDS: usize = 4096;

/// A denial, as the fold sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Program, operation and rule.
    pub group: Group,
    /// What the operation was about.
    pub object: String,
}

/// Denials that differ in their object only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The program's path.
    pub program: Vec<u8>,
    /// The operation's word.
    pub operation: Cow<'static, str>,
    /// The rule's id.
    pub rule: String,
}

/// What is to be shown. `T` is what the caller wants to have back of the first denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due<T> {
    /// A kind of denial has been met `times` times so far.
    Again {
        /// Of its first denial.
        first: T,
        /// In all.
        times: u64,
    },
    /// A group's program has met its rule `times` times so far at objects that were not shown.
    Others {
        /// Of the group's first denial.
        first: T,
        /// In all.
        times: u64,
    },
}

#[derive(Debug)]
struct Count<T> {
    first: T,
    times: u64,
    shown: u64,
    last: Instant,
    last_shown: Instant,
}

impl<T> Count<T> {
    const fn new(first: T, times: u64, now: Instant) -> Self {
        Self {
            first,
            times,
            shown: times,
            last: now,
            last_shown: now,
        }
    }

    const fn add(&mut self, now: Instant) {
        self.times += 1;
        self.last = now;
    }

    /// The count, if it is time to show it.
    fn due(&mut self, now: Instant) -> Option<u64> {
        let calm = now.saturating_duration_since(self.last) >= QUIET
            || now.saturating_duration_since(self.last_shown) >= LONG;
        (calm && self.times >= 2 * self.shown.max(1)).then(|| self.show(now))
    }

    /// The count, if it was not shown.
    fn rest(&mut self, now: Instant) -> Option<u64> {
        (self.times > self.shown).then(|| self.show(now))
    }

    const fn show(&mut self, now: Instant) -> u64 {
        self.shown = self.times;
        self.last_shown = now;
        self.times
    }
}

#[derive(Debug)]
struct Objects<T> {
    /// How many were shown.
    shown: u64,
    /// Those that were not.
    others: Count<T>,
}

/// Remembers what was shown. Memory: [`KINDS`] kinds.
#[derive(Debug)]
pub struct Fold<T> {
    kinds: HashMap<Kind, Count<T>>,
    groups: HashMap<Group, Objects<T>>,
    overflow: Vec<Due<T>>,
}

impl<T> Default for Fold<T> {
    fn default() -> Self {
        Self {
            kinds: HashMap::new(),
            groups: HashMap::new(),
            overflow: Vec::new(),
        }
    }
}

impl<T: Clone> Fold<T> {
    /// Takes a denial and says whether to show it now. `important` ones are always shown with their
    /// object.
    pub fn see(&mut self, kind: Kind, denial: &T, important: bool, now: Instant) -> bool {
        if let Some(count) = self.kinds.get_mut(&kind) {
            count.add(now);
            return false;
        }
        self.make_room(now);
        let objects = self
            .groups
            .entry(kind.group.clone())
            .or_insert_with(|| Objects {
                shown: 0,
                others: Count::new(denial.clone(), 0, now),
            });
        if objects.shown >= OBJECTS && !important {
            objects.others.add(now);
            return false;
        }
        objects.shown += 1;
        self.kinds.insert(kind, Count::new(denial.clone(), 1, now));
        true
    }

    /// Counts that are to be shown now.
    pub fn due(&mut self, now: Instant) -> Vec<Due<T>> {
        self.collect(|count| count.due(now))
    }

    /// Every count that was not shown.
    pub fn finish(&mut self, now: Instant) -> Vec<Due<T>> {
        self.collect(|count| count.rest(now))
    }

    fn collect(&mut self, mut take: impl FnMut(&mut Count<T>) -> Option<u64>) -> Vec<Due<T>> {
        let mut counted: Vec<(Instant, Due<T>)> = Vec::new();
        for count in self.kinds.values_mut() {
            if let Some(times) = take(count) {
                let first = count.first.clone();
                counted.push((count.last, Due::Again { first, times }));
            }
        }
        for Objects { others, .. } in self.groups.values_mut() {
            if let Some(times) = take(others) {
                let first = others.first.clone();
                counted.push((others.last, Due::Others { first, times }));
            }
        }
        counted.sort_by_key(|(last, _)| *last);
        let mut all = std::mem::take(&mut self.overflow);
        all.extend(counted.into_iter().map(|(_, due)| due));
        all
    }

    fn make_room(&mut self, now: Instant) {
        if self.kinds.len() < KINDS && self.groups.len() < KINDS {
            return;
        }
        let mut ages: Vec<Instant> = self.kinds.values().map(|count| count.last).collect();
        let middle = ages.len() / 2;
        let median = ages.get(middle).is_some().then(|| {
            let (_, median, _) = ages.select_nth_unstable(middle);
            *median
        });
        for (_, mut count) in self
            .kinds
            .extract_if(|_, count| median.is_some_and(|median| count.last <= median))
        {
            if let Some(times) = count.rest(now) {
                let first = count.first;
                self.overflow.push(Due::Again { first, times });
            }
        }
        if self.groups.len() >= KINDS {
            for (_, Objects { mut others, .. }) in self.groups.drain() {
                if let Some(times) = others.rest(now) {
                    let first = others.first;
                    self.overflow.push(Due::Others { first, times });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(object: &str) -> Kind {
        Kind {
            group: Group {
                program: b"/bin/bash".to_vec(),
                operation: "write".into(),
                rule: "git.hooks".into(),
            },
            object: object.into(),
        }
    }

    fn again(times: u64) -> Due<&'static str> {
        Due::Again { first: "a", times }
    }

    #[test]
    fn the_first_is_shown_and_those_like_it_are_counted_once_it_is_quiet() {
        let (mut fold, start) = (Fold::default(), Instant::now());
        assert!(fold.see(kind("a"), &"a", false, start));
        assert!(!fold.see(kind("a"), &"a", false, start));
        assert!(!fold.see(kind("a"), &"a", false, start));
        assert_eq!(fold.due(start + QUIET / 2), []);
        assert_eq!(fold.due(start + QUIET), [again(3)]);
        assert_eq!(fold.due(start + QUIET * 2), []);
        assert_eq!(fold.finish(start + QUIET * 3), []);
    }

    #[test]
    fn another_object_is_another_kind() {
        let (mut fold, now) = (Fold::default(), Instant::now());
        assert!(fold.see(kind("a"), &"a", false, now));
        assert!(fold.see(kind("b"), &"b", false, now));
    }

    #[test]
    fn a_flood_without_an_end_is_counted_as_it_doubles() {
        let (mut fold, start) = (Fold::default(), Instant::now());
        let mut lines = Vec::new();
        for step in 0..10_000_u32 {
            let now = start + Duration::from_millis(100) * step;
            fold.see(kind("a"), &"a", false, now);
            lines.extend(fold.due(now));
        }
        assert!((4..=12).contains(&lines.len()), "{lines:?}");
        lines.extend(fold.finish(start + Duration::from_secs(2000)));
        assert_eq!(lines.last(), Some(&again(10_000)));
    }

    #[test]
    fn a_search_of_the_disk_is_folded_but_important_objects_are_always_shown() {
        let (mut fold, now) = (Fold::default(), Instant::now());
        let shown = (0..1000)
            .filter(|n| fold.see(kind(&n.to_string()), &"a", false, now))
            .count();
        assert_eq!(shown as u64, OBJECTS);
        assert!(fold.see(kind("id_ed25519"), &"k", true, now));
        let others = Due::Others {
            first: "a",
            times: 1000 - OBJECTS,
        };
        assert_eq!(fold.finish(now), [others]);
    }

    #[test]
    fn memory_is_bounded_and_forgetting_loses_no_count() {
        let (mut fold, start) = (Fold::default(), Instant::now());
        let (mut shown, mut counted) = (0, 0);
        let mut count = |due: Vec<Due<&str>>| {
            for due in due {
                if let Due::Again { times, .. } = due {
                    counted += times - 1;
                }
            }
        };
        for n in 0..20_000_u32 {
            let now = start + Duration::from_micros(1) * n;
            for _ in 0..2 {
                shown += u64::from(fold.see(kind(&n.to_string()), &"a", true, now));
            }
            count(fold.due(now));
        }
        assert!(fold.kinds.len() <= KINDS);
        count(fold.finish(start + LONG));
        assert_eq!(shown, 20_000);
        assert_eq!(counted, 20_000);
    }
}
