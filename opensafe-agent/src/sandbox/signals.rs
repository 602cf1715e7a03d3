//! Signals while a command runs.
//!
//! `opensafe` and the command are in one process group, so what the terminal sends (Ctrl-C, Ctrl-\,
//! Ctrl-Z) reaches both: the command acts on it, `opensafe` does not. What someone sends to `opensafe` alone is passed on
//! to the command; if that was a request to end and the command has not within [`GRACE`], or on a second request, all of
//! it is killed.
//!
//! A command can have its own terminal send what stops, and not stop for it. So `opensafe` stops only once the command
//! has, as its shell expects, and not before all of the sandbox stands still: nothing happens in there that nobody reads.

use std::{os::fd::AsFd, time::Duration};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal, raise},
        signalfd::{SfdFlags, SignalFd},
    },
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::call::CALLED;

/// How long a command may take to end after it was asked to.
pub const GRACE: Duration = Duration::from_secs(10);

/// Signals that are taken as messages. The last asks this process itself to look for a call.
const TAKEN: [Signal; 11] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCHLD,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    CALLED,
];

/// Signals that do nothing here: the kernel sends them to the whole process group when one of it reads or writes the
/// terminal out of turn, and whoever records is not to be stopped by whom it records.
const IGNORED: [Signal; 2] = [Signal::SIGTTIN, Signal::SIGTTOU];

/// One signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Which.
    pub signal: Signal,
    /// Whether a process sent it to us, and not the kernel (as the terminal does) to the whole group.
    pub by_process: bool,
}

impl Received {
    /// Whether it asks for an end.
    #[must_use]
    pub fn asks_to_end(self) -> bool {
        matches!(
            self.signal,
            Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM | Signal::SIGHUP
        )
    }
}

/// The signals of this process, as messages. From its creation on they are blocked: nothing ends the
/// process between a step and its undoing.
pub struct Signals {
    source: SignalFd,
}

impl Signals {
    /// Blocks and listens. To be called before there are threads.
    pub fn block() -> nix::Result<Self> {
        blocked().thread_block()?;
        let taken: SigSet = TAKEN.into_iter().collect();
        Ok(Self {
            source: SignalFd::with_flags(&taken, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
        })
    }

    /// Undoes [`Signals::block`] for a process that inherited it.
    pub fn unblock() -> nix::Result<()> {
        blocked().thread_unblock()
    }

    /// Stops this process until somebody has it go on; if nobody would, because no shell knows it as a job, it does not stop
    /// (`get_signal` in kernel/signal.c: what stops does not stop an orphaned process group).
    pub fn stop() -> nix::Result<()> {
        let stop: SigSet = [Signal::SIGTSTP].into_iter().collect();
        raise(Signal::SIGTSTP)?;
        // It comes now.
        stop.thread_unblock()?;
        stop.thread_block()
    }

    /// A signal that is already there.
    pub fn pending(&self) -> Option<Received> {
        let info = self.source.read_signal().ok()??;
        let signal = Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()?;
        // sigaction(2): a code of 0 or less is a process's.
        Some(Received {
            signal,
            by_process: info.ssi_code <= 0,
        })
    }

    /// Listens on a thread of its own, for the rest of the process's life.
    pub fn listen(self) -> std::io::Result<UnboundedReceiver<Received>> {
        let (sender, receiver) = unbounded_channel();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                loop {
                    let mut fds = [PollFd::new(self.source.as_fd(), PollFlags::POLLIN)];
                    // An interrupted poll is as good as none.
                    let _ = poll(&mut fds, PollTimeout::NONE);
                    while let Some(received) = self.pending() {
                        if sender.send(received).is_err() {
                            return;
                        }
                    }
                }
            })?;
        Ok(receiver)
    }
}

fn blocked() -> SigSet {
    TAKEN.into_iter().chain(IGNORED).collect()
}
