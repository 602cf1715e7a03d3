//! What works inside the sandbox.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    counts::{Count, Counter},
    ground::{ALWAYS, NEVER, RUNS, RUNS_NOT, STOP, counts, numbered, odd},
    order::{FILES, from, is_possible},
    swap::EVERY,
};

/// What a program does that may be run: it ends.
const NOTHING: &str = "nothing";
/// A worker lets a peer be, and a program run, only every so many rounds: both leave much behind.
const SELDOM: u64 = 8;
/// What is wrong is written down this often; all of it is counted.
const MAX_ODD: u32 = 20;

/// `inside FOLDER WORKERS PACE_MS OPEN_PORT CLOSED_PORT [WORKER]`, or `inside nothing`.
pub(crate) fn inside(arguments: &[OsString]) -> Result<()> {
    if arguments.first().is_some_and(|word| word == NOTHING) {
        return Ok(());
    }
    let [folder, numbers @ ..] = arguments else {
        bail!("where?")
    };
    let numbers: Option<Vec<u64>> = numbers
        .iter()
        .map(|number| number.to_str()?.parse().ok())
        .collect();
    match numbers.context("not a number")?[..] {
        [workers, _, _, _] => all(arguments, workers),
        [_, pace_ms, open, closed, worker] => Worker {
            folder: folder.into(),
            pace: Duration::from_millis(pace_ms),
            ports: [u16::try_from(open)?, u16::try_from(closed)?],
            counter: Counter::create(&counts(Path::new(folder), usize::try_from(worker)?))?,
            odd: File::create(odd(Path::new(folder), usize::try_from(worker)?))?,
            odd_left: MAX_ODD,
            round: worker,
        }
        .work(),
        _ => bail!("which ones?"),
    }
}

/// Starts the workers and waits for them.
fn all(arguments: &[OsString], workers: u64) -> Result<()> {
    let this = std::env::current_exe()?;
    let children: Vec<Child> = (0..workers)
        .map(|worker| {
            Command::new(&this)
                .arg("inside")
                .args(arguments)
                .arg(worker.to_string())
                .spawn()
        })
        .collect::<io::Result<_>>()?;
    println!("ready");
    for mut child in children {
        let status = child.wait()?;
        ensure!(status.success(), "a worker: {status}");
    }
    Ok(())
}

struct Worker {
    folder: PathBuf,
    pace: Duration,
    /// One that is open, and one that is closed.
    ports: [u16; 2],
    counter: Counter,
    odd: File,
    odd_left: u32,
    round: u64,
}

impl Worker {
    fn work(mut self) -> Result<()> {
        let stop = self.folder.join(STOP);
        while !stop.exists() {
            self.round += 1;
            self.open(NEVER, false);
            self.open(ALWAYS, true);
            self.find_out();
            self.run(RUNS_NOT, false);
            self.connect(false);
            if self.round.is_multiple_of(SELDOM) {
                self.run(RUNS, true);
                self.connect(true);
            }
            self.counter.show()?;
            sleep(self.pace);
        }
        Ok(())
    }

    /// What came of something that is to be allowed, or not.
    fn came(&mut self, what: &str, done: io::Result<()>, allowed: bool, as_it_is_to_be: Count) {
        match done {
            Ok(()) if allowed => self.counter.add(as_it_is_to_be, 1),
            Ok(()) => {
                self.counter.add(Count::LetThrough, 1);
                self.note(&format!("{what} was let through"));
            }
            Err(error) if !allowed && error.kind() == ErrorKind::PermissionDenied => {
                self.counter.add(as_it_is_to_be, 1);
            }
            Err(error) => {
                self.counter.add(Count::Refused, 1);
                self.note(&format!("{what}: {error}"));
            }
        }
    }

    fn note(&mut self, what: &str) {
        if self.odd_left > 0 {
            self.odd_left -= 1;
            // It is counted anyway.
            let _ = writeln!(self.odd, "round {}: {what}", self.round);
        }
    }

    fn open(&mut self, name: &str, allowed: bool) {
        let done = File::open(self.folder.join(name)).map(drop);
        let count = if allowed {
            Count::OpensAllowed
        } else {
            Count::OpensDenied
        };
        self.came(&format!("open of {name}"), done, allowed, count);
    }

    /// Which policy decides, from what can be opened.
    fn find_out(&mut self) {
        let first = usize::try_from(self.round).unwrap_or(0) % FILES;
        let order = from(first, self.round.is_multiple_of(3));
        let began = Instant::now();
        let mut others = Vec::new();
        let found = order.map(|which| match File::open(numbered(&self.folder, which)) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => false,
            Err(error) => {
                others.push(error);
                false
            }
        });
        // One change at most falls into it only if it took less than what is between two.
        let is_quick = began.elapsed() < EVERY;
        let tries = order.len() as u64;
        let open = found.iter().map(|open| u64::from(*open)).sum();
        self.counter.add(Count::OpensAllowed, open);
        self.counter
            .add(Count::OpensDenied, tries - open - others.len() as u64);
        self.counter.add(Count::Decisions, tries);
        for error in others {
            self.counter.add(Count::Refused, 1);
            self.note(&format!("open of a numbered file: {error}"));
        }
        if !is_quick {
            return self.counter.add(Count::RoundsSlow, 1);
        }
        self.counter.add(Count::RoundsJudged, 1);
        if !is_possible(order, found) {
            self.counter.add(Count::Mixed, 1);
            self.note(&format!("tried {order:?}, found {found:?}"));
        }
    }

    fn run(&mut self, name: &str, allowed: bool) {
        let mut command = Command::new(self.folder.join(name));
        let command = command.args(["inside", NOTHING]).stdin(Stdio::null());
        let done = command.status().and_then(|status| match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(status.to_string())),
        });
        let count = if allowed {
            Count::ExecsAllowed
        } else {
            Count::ExecsDenied
        };
        self.came(&format!("running {name}"), done, allowed, count);
    }

    fn connect(&mut self, allowed: bool) {
        let port = self.ports[usize::from(!allowed)];
        let done = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop);
        let count = if allowed {
            Count::ConnectsAllowed
        } else {
            Count::ConnectsDenied
        };
        self.came(&format!("connect to {port}"), done, allowed, count);
    }
}

/// What workers have written down.
pub(crate) fn oddities(folder: &Path, workers: usize) -> Vec<String> {
    (0..workers)
        .filter_map(|worker| {
            fs::read_to_string(odd(folder, worker))
                .ok()
                .map(|text| (worker, text))
        })
        .flat_map(|(worker, text)| {
            text.lines()
                .map(|line| format!("worker {worker}, {line}"))
                .collect::<Vec<_>>()
        })
        .collect()
}
