//! A run's command as a job: signals are passed on, its stops are followed, its end is noticed.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use rustix::process::{Pid, PidfdFlags, Signal as RawSignal, pidfd_open, pidfd_send_signal};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    call::CALLED,
    cgroup::{Cgroup, CgroupError},
    children::{Children, bury_all},
    signals::{GRACE, Received, Signals},
};
use crate::{kernel::began_cs, run::Status};

/// The command, and who speaks to it.
pub(super) struct Job<'a> {
    first: First,
    signals: UnboundedReceiver<Received>,
    cgroup: &'a Cgroup,
    /// When it is ended, since it was asked to end.
    kill_at: Option<Instant>,
    /// When children are looked at, if no signal tells of them before.
    look_at: Instant,
}

/// The first process.
pub(super) enum First {
    /// One of our children.
    Ours(Children),
    /// A process that somebody has left who is gone; how it ends is another's to know.
    Left(Left),
}

/// A process that is no child of ours.
pub(super) struct Left {
    /// `None` if it was gone before.
    process: Option<OwnedFd>,
}

/// How far the command is.
pub(super) enum Progress {
    Running,
    Ended(Status),
    /// It has ended, and nobody has told us how.
    Gone,
}

/// How often children are looked at, of which a signal tells too.
const SELDOM: Duration = Duration::from_secs(1);

impl<'a> Job<'a> {
    pub(super) fn new(
        first: First,
        signals: UnboundedReceiver<Received>,
        cgroup: &'a Cgroup,
    ) -> Self {
        Self {
            first,
            signals,
            cgroup,
            kill_at: None,
            look_at: Instant::now(),
        }
    }

    /// The command and who speaks to it, for whoever goes on waiting.
    pub(super) fn into_parts(self) -> (First, UnboundedReceiver<Received>) {
        (self.first, self.signals)
    }

    /// Whether the command is a child of this process.
    pub(super) const fn is_ours(&self) -> bool {
        matches!(self.first, First::Ours(_))
    }

    /// The next signal; to be acted on by [`Job::act_on`].
    pub(super) async fn signal(&mut self) -> Option<Received> {
        self.signals.recv().await
    }

    /// When something is due, whether or not a signal comes.
    pub(super) fn due(&self) -> Instant {
        self.kill_at
            .map_or(self.look_at, |kill_at| kill_at.min(self.look_at))
    }

    pub(super) fn act_on(&mut self, received: Received) {
        match received.signal {
            Signal::SIGCHLD => self.look_at = Instant::now(),
            // The terminal tells the command itself.
            Signal::SIGWINCH => {}
            CALLED => {} // what for is looked for by whoever got it
            // Whoever stopped us has us and the command go on, in one group or not.
            Signal::SIGCONT => self.first.signal(Signal::SIGCONT),
            _ if !received.by_process => {}
            signal => {
                if received.asks_to_end() && self.kill_at.replace(Instant::now() + GRACE).is_some()
                {
                    return self.end();
                }
                self.first.signal(signal);
            }
        }
    }

    /// How far the command is. Ends it if that is due.
    pub(super) fn look(&mut self) -> io::Result<Progress> {
        let now = Instant::now();
        if self.kill_at.is_some_and(|at| now >= at) {
            self.end();
        }
        if now < self.look_at && !self.first.more() {
            return Ok(Progress::Running);
        }
        self.look_at = now + SELDOM;
        self.first.look()
    }

    /// Stops with the command, if it has stopped; returns when both go on. All of the sandbox stands still meanwhile.
    ///
    /// # Errors
    /// If it does not: then this process does not stop either, since events would be lost.
    pub(super) fn stop_with_it(&mut self) -> Result<(), CgroupError> {
        // One that was left is no job of this process's shell.
        let First::Ours(children) = &mut self.first else {
            return Ok(());
        };
        if !children.has_stopped() {
            return Ok(());
        }
        let was_frozen = self.cgroup.is_frozen().unwrap_or(false);
        let frozen = self.cgroup.freeze();
        if frozen.is_ok() {
            // If we cannot stop, the command stays stopped, and its shell does not know.
            let _ = Signals::stop();
        }
        // What a response has frozen stays so.
        let thawed = if was_frozen {
            Ok(())
        } else {
            self.cgroup.thaw()
        };
        frozen.and(thawed)
    }

    /// Ends the command and all else. If the cgroup cannot be killed, the command is, and then
    /// [`super::life::Life::clean_up`] sees to the others.
    pub(super) fn end(&self) {
        if self.cgroup.kill().is_err() {
            self.first.signal(Signal::SIGKILL);
        }
    }
}

impl First {
    fn more(&self) -> bool {
        matches!(self, Self::Ours(children) if children.more())
    }

    fn look(&mut self) -> io::Result<Progress> {
        match self {
            Self::Ours(children) => Ok(match children.look()? {
                Some(status) => Progress::Ended(status),
                None => Progress::Running,
            }),
            Self::Left(left) => {
                // Children that the sandbox has given us.
                bury_all();
                Ok(left.look())
            }
        }
    }

    fn signal(&self, signal: Signal) {
        match self {
            Self::Ours(children) => children.signal_first(signal),
            Self::Left(left) => left.signal(signal),
        }
    }
}

impl Left {
    /// The process with that id that began then.
    pub(super) fn new(pid: u32, began: u32) -> Self {
        let opened = Pid::from_raw(pid.cast_signed())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Asked when it is open: whoever has the id now has it as long as that.
        let is_it = began_cs(pid) == Some(began);
        Self {
            process: opened.filter(|_| is_it),
        }
    }

    fn look(&self) -> Progress {
        let Some(process) = &self.process else {
            return Progress::Gone;
        };
        let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(1..) => Progress::Gone,
            _ => Progress::Running,
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        let signal = RawSignal::from_named_raw(signal as i32);
        if let (Some(process), Some(signal)) = (&self.process, signal) {
            // One that has ended is no trouble.
            let _ = pidfd_send_signal(process, signal);
        }
    }
}
