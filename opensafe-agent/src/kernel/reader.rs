//! Empties the ring buffer on a thread of its own and hands events over through a bounded queue.
//!
//! The kernel wakes the reader for what cannot wait, for what comes after a pause, and when the buffer fills; for the rest it
//! looks by itself, ever less often while nothing comes ([`Periods`]). So a sandbox that does nothing costs nothing, and one
//! that does much has not every event wake somebody. If the queue is full the event is dropped and counted: the kernel never
//! waits for us, and memory stays bounded.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use aya::maps::{MapData, RingBuf};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
    time::{ClockId, clock_gettime},
};
use opensafe_common::event::PAUSE_NS;
use ringbuf::{
    HeapCons, HeapProd, HeapRb,
    traits::{Consumer, Producer, Split},
};
use tokio::sync::Notify;

use super::decode::decode;
use crate::event::Event;

/// How soon after an event the ring buffer is looked at again.
const FIRST_PERIOD_MS: u16 = 10;
/// And how seldom at last. The kernel will have woken us by then.
const LAST_PERIOD_MS: u16 = 5000;
// What wakes nobody comes within the kernel's pause after what was read, and is to be found in the second period at the latest.
const _: () = assert!(FIRST_PERIOD_MS as u64 * 3 * 1_000_000 > PAUSE_NS);
/// Rounds that empty a full ring buffer of the smallest records.
const LAST_ROUNDS: u32 = 64;
/// Records that are read before anything else is looked at.
const RECORDS_A_ROUND: usize = 4096;
/// Events that may wait for the sinks.
const QUEUE_EVENTS: usize = 65_536;

/// The other end of the reader's queue.
pub struct Events {
    queue: HeapCons<Event>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Asks the thread to empty the buffer once more and end.
    stop: AtomicBool,
    /// How often it was asked to empty the buffer, and up to which of these times it has.
    asked: AtomicU64,
    answered: AtomicU64,
    /// Wakes it for either.
    wanted: EventFd,
    /// Set by the thread when it has.
    ended: AtomicBool,
    queue_full: AtomicU64,
    malformed: AtomicU64,
    /// Records that were read.
    read: AtomicU64,
    /// Set once the buffer was found empty.
    caught_up: AtomicBool,
    news: Notify,
}

impl Events {
    /// Starts the thread.
    pub(super) fn start(ring: RingBuf<MapData>) -> io::Result<Self> {
        let (producer, queue) = HeapRb::new(QUEUE_EVENTS).split();
        let shared = Arc::new(Shared {
            stop: AtomicBool::default(),
            asked: AtomicU64::default(),
            answered: AtomicU64::default(),
            wanted: EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?,
            ended: AtomicBool::default(),
            queue_full: AtomicU64::default(),
            malformed: AtomicU64::default(),
            read: AtomicU64::default(),
            caught_up: AtomicBool::default(),
            news: Notify::default(),
        });
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || run(ring, producer, &for_thread))?;
        Ok(Self {
            queue,
            shared,
            thread: Some(thread),
        })
    }

    /// The next event, if one is there.
    pub fn take(&mut self) -> Option<Event> {
        self.queue.try_pop()
    }

    /// Waits until there may be events.
    pub async fn changed(&self) {
        self.shared.news.notified().await;
    }

    /// Has the ring buffer emptied: see [`Events::has_emptied`].
    pub fn empty(&self) {
        self.shared.asked.fetch_add(1, Ordering::AcqRel);
        // If that fails, it is done a period later.
        let _ = self.shared.wanted.write(1);
    }

    /// Whether all that was sent before it was last asked for is to be had by [`Events::take`].
    #[must_use]
    pub fn has_emptied(&self) -> bool {
        let asked = self.shared.asked.load(Ordering::Acquire);
        self.shared.answered.load(Ordering::Acquire) >= asked
    }

    /// Has the ring buffer emptied a last time; after that, [`Events::take`] gives all that is left.
    pub fn finish(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // If that fails, the thread ends a period later.
            let _ = self.shared.wanted.write(1);
            // It ends at once, also if the queue is full: then it drops and counts.
            let _ = thread.join();
        }
    }

    /// Records that were read so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.shared.read.load(Ordering::Acquire)
    }

    /// Whether all was read that was there in the beginning.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.shared.caught_up.load(Ordering::Acquire)
    }

    /// Events dropped because the queue was full, and records that were malformed.
    #[must_use]
    pub fn lost(&self) -> (u64, u64) {
        (
            self.shared.queue_full.load(Ordering::Relaxed),
            self.shared.malformed.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.finish();
    }
}

fn run(mut ring: RingBuf<MapData>, mut queue: HeapProd<Event>, shared: &Shared) {
    let mut rounds_left = LAST_ROUNDS;
    let mut periods = Periods::default();
    // Whether the kernel has said that something is there, and nothing was read since.
    let mut unread = false;
    loop {
        let last = shared.stop.load(Ordering::Acquire);
        let asked = shared.asked.load(Ordering::Acquire);
        let boot_ns = boot_time_ns();
        let mut any = false;
        // Bounded, so that a flood does not keep the thread from looking up.
        for _ in 0..RECORDS_A_ROUND {
            let Some(record) = ring.next() else { break };
            any = true;
            shared.read.fetch_add(1, Ordering::Release);
            match decode(&record, boot_ns) {
                Ok(event) => {
                    if queue.try_push(event).is_err() {
                        shared.queue_full.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(_) => {
                    shared.malformed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if any {
            unread = false;
            periods = Periods::default();
            shared.news.notify_one();
        }
        if any && rounds_left > 0 {
            // There is more. After the end was asked for, only as much as fits the buffer: who still
            // sends then is not the command's.
            rounds_left -= u32::from(last);
            continue;
        }
        if !any {
            shared.caught_up.store(true, Ordering::Release);
            shared.answered.store(asked, Ordering::Release);
        }
        if last {
            shared.ended.store(true, Ordering::Release);
            shared.news.notify_one();
            return;
        }
        // A failed poll (EINTR) only means looking earlier.
        let woken_by = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let wanted = woken_by(shared.wanted.as_fd());
        let mut both = [wanted, woken_by(ring.as_fd())];
        // A record that is still being written by somebody who does not get to run counts as one that is there, and keeps those
        // behind it: to ask for it again and again would take the processor that its writer waits for.
        let watched = if unread {
            &mut both[..1]
        } else {
            &mut both[..]
        };
        let _ = poll(watched, PollTimeout::from(periods.next_ms()));
        let is_there = |fd: &PollFd<'_>| fd.any() == Some(true);
        unread = !unread && is_there(&both[1]);
        if is_there(&both[0]) {
            // What for is looked for in the next round.
            let _ = shared.wanted.read();
        }
    }
}

/// How long one waits for events that wake nobody: the longer, the longer there were none.
struct Periods {
    next_ms: u16,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            next_ms: FIRST_PERIOD_MS,
        }
    }
}

impl Periods {
    const fn next_ms(&mut self) -> u16 {
        let now = self.next_ms;
        let doubled = now.saturating_mul(2);
        self.next_ms = if doubled < LAST_PERIOD_MS {
            doubled
        } else {
            LAST_PERIOD_MS
        };
        now
    }
}

/// What `CLOCK_BOOTTIME`'s zero was, in nanoseconds since 1970. Asked anew each time, since the wall
/// clock may be set.
fn boot_time_ns() -> u64 {
    let now =
        |clock| clock_gettime(clock).map_or(0, |time| nanoseconds(time.tv_sec(), time.tv_nsec()));
    now(ClockId::CLOCK_REALTIME).saturating_sub(now(ClockId::CLOCK_BOOTTIME))
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    u64::try_from(seconds)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_nothing_comes_it_is_looked_for_ever_less_often() {
        let mut periods = Periods::default();
        let waited: Vec<u16> = (0..11).map(|_| periods.next_ms()).collect();
        assert_eq!(
            waited,
            [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000]
        );
    }
}
