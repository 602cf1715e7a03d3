//! Standard error, without ever waiting for it.
//!
//! The command shares our stderr. If nobody reads it (a stopped terminal, a full pipe), its own writes
//! wait, but ours must not: behind them are the events. So lines are kept until stderr takes them, and
//! those for which there is no more room are counted.

use std::{
    io::Stderr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::termios::{OutputFlags, tcgetattr},
    unistd::{isatty, write},
};

/// Bytes that wait for stderr to take them.
const KEEP: usize = 1 << 20;

/// Bytes written at once: less than `PIPE_BUF`, so that a pipe which polls as writable takes them
/// whole (pipe(7)).
const AT_ONCE: usize = 1024;

/// How long the end of a run waits for stderr, when no event is behind it any more.
const AT_THE_END: Duration = Duration::from_secs(3);

/// Something that shows lines.
pub trait Screen {
    /// Shows a line, which ends with a newline, now or soon. Does not wait.
    fn show(&mut self, line: &str);

    /// Columns of the terminal that a person looks at; `None` if there is none, or it is not known.
    fn columns(&self) -> Option<usize> {
        None
    }

    /// Shows what waits, as far as it can be without waiting.
    fn settle(&mut self) {}

    /// Shows what waits, and then the last lines, with a little patience.
    fn finish(&mut self, last: &str);
}

impl Screen for String {
    fn show(&mut self, line: &str) {
        self.push_str(line);
    }

    fn finish(&mut self, last: &str) {
        self.push_str(last);
    }
}

/// [`Screen`] on standard error, or in tests on another file.
#[derive(Debug)]
pub struct StandardError<F = Stderr> {
    file: F,
    terminal: bool,
    /// Columns, as the environment has them, of a terminal beyond a pipe.
    columns: Option<usize>,
    waiting: Vec<u8>,
    not_shown: u64,
    confession: fn(u64) -> String,
}

impl StandardError {
    /// For lines that a person reads.
    #[must_use]
    pub fn for_lines() -> Self {
        let new = Self::new(std::io::stderr(), |count| {
            format!(
                "opensafe: {count} lines are not shown, since nobody read on; they are in the record\n"
            )
        });
        // Who asks for colours in a pipe hands them on to a terminal. A log's lines are never broken.
        let columns = std::env::var("COLUMNS").ok().filter(|_| Self::colour());
        Self {
            columns: columns.and_then(|columns| columns.parse().ok()),
            ..new
        }
    }

    /// For lines of JSON.
    #[must_use]
    pub fn for_json() -> Self {
        Self::new(std::io::stderr(), |count| {
            format!("{{\"opensafe.event\":\"gap\",\"opensafe.gap.lines\":{count}}}\n")
        })
    }

    /// Whether colour is wanted here.
    #[must_use]
    pub fn colour() -> bool {
        anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
    }
}

impl<F: AsFd> StandardError<F> {
    /// On `file`, with the line that says how many lines are not shown.
    fn new(file: F, confession: fn(u64) -> String) -> Self {
        Self {
            terminal: isatty(&file).unwrap_or(false),
            columns: None,
            file,
            waiting: Vec::new(),
            not_shown: 0,
            confession,
        }
    }

    /// Writes until all is written or stderr would make us wait longer than until `deadline`.
    fn drain(&mut self, deadline: Option<Instant>) {
        let mut written = 0;
        while written < self.waiting.len() {
            let patience = deadline.map_or(Duration::ZERO, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut fds, timeout) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(_) => break,
            }
            let to = self.waiting.len().min(written + AT_ONCE);
            match write(&self.file, &self.waiting[written..to]) {
                Ok(count) => written += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                // Nobody will ever read it.
                Err(_) => written = self.waiting.len(),
            }
        }
        self.waiting.drain(..written);
    }

    /// Whether the command has switched off the terminal's care for line ends, as full-screen programs do.
    fn is_raw(&self) -> bool {
        self.terminal
            && tcgetattr(&self.file)
                .is_ok_and(|settings| !settings.output_flags.contains(OutputFlags::OPOST))
    }

    /// Lets a line wait, or counts it if there is no more room.
    fn keep(&mut self, line: &str) {
        if self.waiting.len() + line.len() > KEEP {
            self.not_shown += 1;
        } else {
            self.append(line);
        }
    }

    fn append(&mut self, line: &str) {
        if self.is_raw() {
            self.waiting.push(b'\r');
            let line = line.replace('\n', "\r\n");
            self.waiting.extend_from_slice(line.as_bytes());
        } else {
            self.waiting.extend_from_slice(line.as_bytes());
        }
    }

    /// Says how many lines are missing.
    fn confess(&mut self) {
        if self.not_shown > 0 {
            let count = std::mem::take(&mut self.not_shown);
            self.append(&(self.confession)(count));
        }
    }
}

impl<F: AsFd> Screen for StandardError<F> {
    fn columns(&self) -> Option<usize> {
        if self.terminal {
            let (width, _) = terminal_size::terminal_size_of(&self.file)?;
            return Some(usize::from(width.0));
        }
        self.columns
    }

    fn show(&mut self, line: &str) {
        self.keep(line);
        self.settle();
    }

    fn settle(&mut self) {
        self.drain(None);
        if self.waiting.is_empty() {
            self.confess();
        }
    }

    fn finish(&mut self, last: &str) {
        let deadline = Some(Instant::now() + AT_THE_END);
        self.drain(deadline);
        self.confess();
        self.append(last);
        self.drain(deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Read as _, pipe};

    fn screen() -> (PipeReader, StandardError<PipeWriter>) {
        let (reader, writer) = pipe().unwrap();
        let screen = StandardError::new(writer, |count| format!("{count} not shown\n"));
        (reader, screen)
    }

    fn line(number: usize) -> String {
        format!("{number:0>99}\n")
    }

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read() {
        let (mut reader, mut screen) = screen();
        let lines = 20_000;
        for number in 0..lines {
            screen.show(&line(number));
        }
        assert!(screen.waiting.len() <= KEEP);
        assert!(screen.not_shown > 0);

        let read = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        screen.finish("the end\n");
        drop(screen);
        let text = read.join().unwrap();
        let mut shown: Vec<&str> = text.lines().collect();
        assert_eq!(shown.pop(), Some("the end"));
        let confession = shown.pop().unwrap();
        for (number, shown) in shown.iter().enumerate() {
            assert_eq!(format!("{shown}\n"), line(number));
        }
        assert_eq!(confession, format!("{} not shown", lines - shown.len()));
    }

    #[test]
    fn a_reader_that_reads_sees_every_line_at_once() {
        let (mut reader, mut screen) = screen();
        for number in 0..5000 {
            screen.show(&line(number));
            let mut read = vec![0; 100];
            reader.read_exact(&mut read).unwrap();
            assert_eq!(read, line(number).as_bytes());
        }
    }

    #[test]
    fn that_nobody_will_ever_read_is_no_trouble() {
        let (reader, mut screen) = screen();
        drop(reader);
        screen.show("a\n");
        screen.finish("b\n");
        assert!(screen.waiting.is_empty());
    }
}
