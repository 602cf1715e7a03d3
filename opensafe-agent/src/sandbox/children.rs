//! The children of this process: the first process of a sandbox, and what else it makes ours.
//!
//! Whoever is in a sandbox can give its parent children that it never started, by `CLONE_PARENT` (clone(2)), and make it
//! a tracer that it never wanted to be, by `PTRACE_TRACEME` (ptrace(2)). So all children are waited for, whoever they
//! are: one that nobody waits for stays, and its mark with it. And an end is told from a stop, which wait(2) reports of
//! whoever is traced, wanted or not.

use std::{io, process::Child};

use nix::{
    libc::SI_USER,
    sys::{ptrace, signal::Signal},
    unistd::Pid,
};
use rustix::process::{WaitOptions, WaitStatus, wait};

use crate::run::Status;

/// The first process, and whatever else becomes a child of ours.
#[derive(Debug)]
pub(super) struct Children {
    first: Pid,
    ended: Option<Status>,
    /// Whether it has stopped, and nobody was told yet.
    stopped: bool,
    /// Whether there were more than are looked at in one go.
    more: bool,
}

/// Children that are looked at in one go: whoever makes more of them does not keep us from the rest of our work.
const MAX_AT_ONCE: usize = 1000;

impl Children {
    /// Takes over who is the first of them: nobody else is to wait for it.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "whoever has it could wait for it"
    )]
    pub(super) fn of(first: Child) -> Self {
        Self {
            first: Pid::from_raw(first.id().cast_signed()),
            ended: None,
            stopped: false,
            more: false,
        }
    }

    /// Whether some may have ended that the last look did not come to, and of which no signal will tell.
    pub(super) const fn more(&self) -> bool {
        self.more
    }

    /// How the first process has ended, if it has. Buries every other child that has ended, and lets those go on that
    /// have stopped for a tracer. To be called by the thread that started the first process: it is the one that traces.
    pub(super) fn look(&mut self) -> io::Result<Option<Status>> {
        let first = self.first;
        let (ended, stopped) = (&mut self.ended, &mut self.stopped);
        let left = bury(|child, change| match change {
            Told::Ended(status) if child == first => *ended = Some(status),
            Told::Stopped if child == first => *stopped = true,
            Told::Ended(_) | Told::Stopped => {}
        })?;
        self.more = left == Left::Unknown;
        if left == Left::None && self.ended.is_none() {
            return Err(io::Error::from(nix::errno::Errno::ECHILD));
        }
        Ok(self.ended)
    }

    /// Whether the first process has stopped since this was last asked, as one stops for its terminal or for whoever sends it
    /// such a signal.
    pub(super) const fn has_stopped(&mut self) -> bool {
        std::mem::replace(&mut self.stopped, false)
    }

    /// Sends the first process a signal, unless it has ended.
    pub(super) fn signal_first(&self, signal: Signal) {
        if self.ended.is_none() {
            // Nobody else can have its number: it has not been waited for.
            let _ = nix::sys::signal::kill(self.first, signal);
        }
    }
}

/// Buries what has ended of our children.
pub(super) fn bury_all() {
    // None is as good as all.
    let _ = bury(|_, _| {});
}

/// Which children are left.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    None,
    /// Those that live.
    Living,
    /// Not all were looked at.
    Unknown,
}

/// What became of a child.
enum Told {
    /// It is no more.
    Ended(Status),
    /// It stands still, and for no tracer.
    Stopped,
}

/// Tells of every child that has ended and is no more, or has stopped.
fn bury(mut tell: impl FnMut(Pid, Told)) -> io::Result<Left> {
    for _ in 0..MAX_AT_ONCE {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((child, status))) => {
                let child = Pid::from_raw(child.as_raw_nonzero().get());
                match Change::of(status) {
                    Change::Ended(status) => tell(child, Told::Ended(status)),
                    Change::Stopped(signal) if let_go_on(child, signal) => {}
                    Change::Stopped(_) => tell(child, Told::Stopped),
                }
            }
            Ok(None) => return Ok(Left::Living),
            Err(rustix::io::Errno::CHILD) => return Ok(Left::None),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Left::Unknown)
}

/// What wait(2) told.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Ended(Status),
    /// By a signal's number: for a tracer, or as a job.
    Stopped(i32),
}

impl Change {
    fn of(status: WaitStatus) -> Self {
        match status.stopping_signal() {
            Some(signal) => Self::Stopped(signal),
            None => Self::Ended(Status::from_wait(status.as_raw())),
        }
    }
}

/// Ends that we trace a process, which goes on as if we never had: whether we did. One that we do not trace, or that has died
/// meanwhile, is not found to be traced (`ESRCH` of ptrace(2)).
fn let_go_on(child: Pid, signal: i32) -> bool {
    let by_user = || ptrace::getsiginfo(child).is_ok_and(|info| info.si_code == SI_USER);
    ptrace::detach(child, meant_for_it(signal, by_user)).is_ok()
}

/// The signal for which a process has stopped, if it would have got it untraced. A real-time signal has no name here and
/// is lost: whoever makes us trace it may miss what it was sent meanwhile.
fn meant_for_it(signal: i32, by_user: impl FnOnce() -> bool) -> Option<Signal> {
    let signal = Signal::try_from(signal).ok()?;
    // A new program has a traced process stop by this signal, as if it had sent it to itself, and nobody else
    // (`ptrace_event` in include/linux/ptrace.h).
    let of_tracing = signal == Signal::SIGTRAP && by_user();
    (!of_tracing).then_some(signal)
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        process::{Command, Stdio},
        thread::sleep,
        time::Duration,
    };

    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command.spawn().unwrap()
    }

    /// In a process of its own: it waits for every child, and other tests may have some.
    #[test]
    fn every_child_is_buried_and_the_first_ones_end_is_told() {
        let own = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact"])
            .arg("sandbox::children::tests::alone")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&own.stdout);
        assert!(own.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "waits for every child of its process"]
    fn alone() {
        let others = [shell("exit 5"), shell("kill -KILL $$")];
        let first = shell("kill -STOP $$; exit 3");
        let id = Pid::from_raw(first.id().cast_signed());
        let mut children = Children::of(first);
        sleep(Duration::from_millis(300));
        assert_eq!(children.look().unwrap(), None);
        assert!(children.has_stopped() && !children.has_stopped());
        for other in others {
            let gone = nix::sys::signal::kill(Pid::from_raw(other.id().cast_signed()), None);
            assert_eq!(gone, Err(nix::errno::Errno::ESRCH));
        }
        // It has only stopped.
        children.signal_first(Signal::SIGCONT);
        let status = loop {
            if let Some(status) = children.look().unwrap() {
                break status;
            }
        };
        assert_eq!(status, Status::Code(3));
        assert_eq!(children.look().unwrap(), Some(status));
        assert_eq!(
            nix::sys::signal::kill(id, None),
            Err(nix::errno::Errno::ESRCH)
        );
        // Whose end nobody has told us is not taken for one that lives.
        let mut taken = shell("exit 0");
        taken.wait().unwrap();
        assert!(Children::of(taken).look().is_err());
    }

    #[test]
    fn whoever_is_traced_gets_its_signals_all_the_same() {
        let no = || false;
        assert_eq!(meant_for_it(10, no), Some(Signal::SIGUSR1));
        assert_eq!(meant_for_it(5, no), Some(Signal::SIGTRAP));
        assert_eq!(meant_for_it(5, || true), None);
        assert_eq!(meant_for_it(40, no), None);
    }
}
