//! A process that does operations when it is told to, and the other end of its pipes.
//!
//! A worker waits blocked between its rounds, so one outside and one inside a sandbox can take turns.

use std::{
    io::{BufRead as _, BufReader, Write as _, stdin, stdout},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use crate::operation::{Bench, Operation};

/// The worker's side: each line names an operation, each answer is the nanoseconds that it took.
pub(crate) fn serve() -> Result<()> {
    let bench = Bench::new()?;
    for line in stdin().lines() {
        let line = line?;
        let operation =
            Operation::named(&line).with_context(|| format!("no operation {line:?}"))?;
        bench
            .run(operation, operation.warm_up())
            .with_context(|| line.clone())?;
        let spent = bench
            .run(operation, operation.repetitions())
            .with_context(|| line.clone())?;
        println!("{} {}", spent.own.as_nanos(), spent.whole.as_nanos());
        stdout().flush()?;
    }
    Ok(())
}

/// What an operation took, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Of its own processor time and its children's.
    pub(crate) own: f64,
    /// With all that ran on the same processor meanwhile: OpenSafe's agent above all.
    pub(crate) whole: f64,
}

/// A running worker.
pub(crate) struct Worker {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a command that becomes a worker.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a worker")?;
        let (Some(tell), Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a worker without pipes");
        };
        Ok(Self {
            child,
            tell,
            hear: BufReader::new(hear),
        })
    }

    /// Process id of the command that was started.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do a round.
    pub(crate) fn round(&mut self, operation: Operation) -> Result<Cost> {
        writeln!(self.tell, "{}", operation.name())?;
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        let numbers: Option<(f64, f64)> = line
            .trim()
            .split_once(' ')
            .and_then(|(own, whole)| Some((own.parse().ok()?, whole.parse().ok()?)));
        let (own, whole) = numbers.with_context(|| format!("a worker said {line:?}"))?;
        let times = f64::from(operation.repetitions());
        Ok(Cost {
            own: own / times,
            whole: whole / times,
        })
    }

    /// Ends it, and waits until all that it was is gone.
    pub(crate) fn end(self) -> Result<()> {
        let Self {
            mut child,
            tell,
            hear,
        } = self;
        drop(tell);
        drop(hear);
        let status = child.wait()?;
        if !status.success() {
            bail!("a worker ended with {status}");
        }
        Ok(())
    }
}
