//! Standard error, without ever waiting for it.
//!
//! The command shares our stderr. If nobody reads it (a stopped terminal, a full pipe), its own writes
//! wait, but ours must not: behind them are the events. So lines are kept until stderr takes them, and
//! those for which there is no more room are counted.

use std::{
    io::{IsTerminal as _, Stderr},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::termios::{OutputFlags, tcgetattr},
    unistd::write,
};

/// Bytes that wait for stderr to take them.
const KEEP: usize = 256 << 10;

/// Bytes written at once: less than `PIPE_BUF`, so that a pipe which polls as writable takes them
/// whole (pipe(7)).
const AT_ONCE: usize = 1024;

/// How long the end of a run waits for stderr.
const AT_THE_END: Duration = Duration::from_millis(500);

/// Something that shows lines.
pub trait Screen {
    /// Shows a line, which ends with a newline, now or soon. Does not wait.
    fn show(&mut self, line: &str);

    /// Shows what waits, as far as it can be without waiting.
    fn settle(&mut self) {}

    /// Shows what waits, with a little patience.
    fn finish(&mut self) {}
}

impl Screen for String {
    fn show(&mut self, line: &str) {
        self.push_str(line);
    }
}

/// [`Screen`] on standard error.
#[derive(Debug)]
pub struct StandardError {
    stderr: Stderr,
    terminal: bool,
    waiting: Vec<u8>,
    not_shown: u64,
}

impl Default for StandardError {
    fn default() -> Self {
        let stderr = std::io::stderr();
        Self {
            terminal: stderr.is_terminal(),
            stderr,
            waiting: Vec::new(),
            not_shown: 0,
        }
    }
}

impl StandardError {
    /// Writes until all is written or stderr would make us wait longer than until `deadline`.
    fn drain(&mut self, deadline: Option<Instant>) {
        let mut written = 0;
        while written < self.waiting.len() {
            let patience = deadline.map_or(Duration::ZERO, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(self.stderr.as_fd(), PollFlags::POLLOUT)];
            let ready = poll(&mut fds, timeout).is_ok_and(|count| count > 0);
            if !ready {
                break;
            }
            let to = self.waiting.len().min(written + AT_ONCE);
            match write(&self.stderr, &self.waiting[written..to]) {
                Ok(count) => written += count,
                Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => break,
                // Nobody will ever read it.
                Err(_) => written = self.waiting.len(),
            }
        }
        self.waiting.drain(..written);
    }

    /// Whether the command has switched off the terminal's care for line ends, as full-screen programs do.
    fn is_raw(&self) -> bool {
        self.terminal
            && tcgetattr(&self.stderr)
                .is_ok_and(|settings| !settings.output_flags.contains(OutputFlags::OPOST))
    }

    fn keep(&mut self, line: &str) {
        if self.waiting.len() + line.len() > KEEP {
            self.not_shown += 1;
            return;
        }
        if self.is_raw() {
            self.waiting.push(b'\r');
            self.waiting
                .extend_from_slice(line.replace('\n', "\r\n").as_bytes());
        } else {
            self.waiting.extend_from_slice(line.as_bytes());
        }
    }

    /// Says how many lines are missing, as soon as there is room for saying it.
    fn confess(&mut self) {
        if self.not_shown > 0 && self.waiting.is_empty() {
            let count = std::mem::take(&mut self.not_shown);
            self.keep(&format!(
                "opensafe: {count} lines are not shown, since nobody read this; they are in the record\n"
            ));
        }
    }
}

impl Screen for StandardError {
    fn show(&mut self, line: &str) {
        self.keep(line);
        self.settle();
    }

    fn settle(&mut self) {
        self.drain(None);
        self.confess();
    }

    fn finish(&mut self) {
        let deadline = Some(Instant::now() + AT_THE_END);
        self.drain(deadline);
        self.confess();
        self.drain(deadline);
    }
}
