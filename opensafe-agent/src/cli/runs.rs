//! `opensafe runs`: the runs on record, and an end to old records.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anstyle::{AnsiColor, Style};
use jiff::tz::TimeZone;
use nix::{errno::Errno, sys::signal::kill, unistd::Pid};
use serde_json::json;

use super::{
    NO,
    args::RunsArgs,
    events::{command, local, note, status},
    output,
    table::{Cell, Cut, Table},
};
use crate::{
    run::{Counts, Status},
    sandbox::control::Sandboxed,
    sink::{
        record::{
            file::{Owner, RemoveError, remove},
            place::Invoker,
            read::{Line, ReadError, last, read},
        },
        terminal::duration,
        text::{encode, printable},
    },
};

const COLUMNS: [(&str, Cut); 7] = [
    ("ID", Cut::Never),
    ("STARTED", Cut::Never),
    ("DURATION", Cut::Never),
    ("STATUS", Cut::Never),
    ("DENIALS", Cut::Never),
    ("AGENT", Cut::Early),
    ("COMMAND", Cut::Early),
];

pub(super) fn runs(args: &RunsArgs) -> anyhow::Result<ExitCode> {
    let invoker = Invoker::current();
    let mut records = invoker.records()?;
    if let Some(count) = args.last {
        records.drain(..records.len().saturating_sub(count));
    }
    if records.is_empty() && !args.json {
        note(&format!("no runs in {}", invoker.runs().display()));
    }
    let mut runs = Vec::new();
    for record in records {
        match Run::read(&record, is_opensafe) {
            Ok(run) => runs.push(run),
            Err(error) => note(&error.to_string()),
        }
    }
    let mut code = ExitCode::SUCCESS;
    if let Some(age) = args.prune {
        let pruned = prune(runs, SystemTime::now() - age, invoker.owner);
        for error in &pruned.failed {
            note(&error.to_string());
            code = ExitCode::from(NO);
        }
        if !args.json {
            note(&pruned.summary());
        }
        runs = pruned.deleted;
    }
    let out = output::stdout();
    if args.json {
        print_json(&runs, out)?;
    } else {
        print_table(&runs, &TimeZone::system(), output::width(), out)?;
    }
    Ok(code)
}

/// What came of deleting records.
struct Pruned {
    deleted: Vec<Run>,
    kept: usize,
    failed: Vec<RemoveError>,
}

impl Pruned {
    fn summary(&self) -> String {
        let records = |count| match count {
            1 => "1 record".to_owned(),
            count => format!("{count} records"),
        };
        format!(
            "{} deleted, {} kept{}",
            records(self.deleted.len()),
            records(self.kept),
            if self.deleted.is_empty() {
                ""
            } else {
                "; deleted:"
            }
        )
    }
}

/// Deletes the records of those `runs` that were over before `then`.
fn prune(runs: Vec<Run>, then: SystemTime, owner: Option<Owner>) -> Pruned {
    let mut pruned = Pruned {
        deleted: Vec::new(),
        kept: 0,
        failed: Vec::new(),
    };
    for run in runs {
        if run.over().is_none_or(|over| over >= then) {
            pruned.kept += 1;
            continue;
        }
        match remove(&run.record, owner) {
            Ok(()) => pruned.deleted.push(run),
            Err(error) => {
                pruned.kept += 1;
                pruned.failed.push(error);
            }
        }
    }
    pruned
}

/// A run, as its record's first and last line have it.
struct Run {
    record: PathBuf,
    start: Line,
    state: State,
    denials: u64,
    /// The latest policy in force.
    policy: String,
}

/// The process that attends to a run, on record.
const SUPERVISOR: &str = "opensafe.supervisor.pid";
/// Its policy.
const REVISION: &str = "opensafe.policy.revision";

/// How far a run is.
enum State {
    /// It has ended, and this is its last line.
    Ended(Line),
    /// Its `opensafe` still runs.
    Running,
    /// It does, and the sandbox stands still.
    Frozen,
    /// It does not, and the sandbox is confined all the same.
    Unattended,
    /// None of these.
    CutOff,
}

impl Run {
    fn read(record: &Path, alive: impl Fn(u64) -> bool) -> Result<Self, ReadError> {
        let mut lines = read(record)?;
        let Some(Ok(start)) = lines.next() else {
            return Err(ReadError::NotARecord {
                path: record.to_owned(),
                why: "it is empty".to_owned(),
            });
        };
        let end = last(record)?.filter(|line| line.event() == "run.end");
        let mut supervisor = start.number(SUPERVISOR);
        let revision = |line: &Line| line.text(REVISION).map(str::to_owned);
        let mut policy = end.as_ref().and_then(revision).or_else(|| revision(&start));
        let denials = match &end {
            Some(end) => Counts::default()
                .all()
                .filter_map(|(name, _)| end.number(&format!("opensafe.count.{name}.deny")))
                .sum(),
            // Nobody has counted them yet.
            None => lines
                .flatten()
                .inspect(|line| {
                    if line.event() == "run.adopted" {
                        supervisor = line.number(SUPERVISOR);
                    }
                    if line.event() == "policy.applied" {
                        policy = revision(line);
                    }
                })
                .filter(Line::is_denial)
                .count() as u64,
        };
        let state = match end {
            Some(end) => State::Ended(end),
            None if supervisor.is_some_and(alive) => {
                if is_frozen(&start) {
                    State::Frozen
                } else {
                    State::Running
                }
            }
            None if is_confined(&start) => State::Unattended,
            None => State::CutOff,
        };
        Ok(Self {
            record: record.to_owned(),
            start,
            state,
            denials,
            policy: policy.unwrap_or_default(),
        })
    }

    fn status(&self) -> Option<Status> {
        match &self.state {
            State::Ended(end) => status(end),
            _ => None,
        }
    }

    fn duration(&self) -> Option<u64> {
        match &self.state {
            State::Ended(end) => end.number("opensafe.run.duration_nano"),
            _ => None,
        }
    }

    /// Since when it has been over; `None` if it goes on, or if that cannot be told. When a run was cut off is not on
    /// record; that it was written to its record is the last that is known of it.
    fn over(&self) -> Option<SystemTime> {
        match &self.state {
            State::Running | State::Frozen | State::Unattended => None,
            State::Ended(end) => {
                let since = Duration::from_nanos(end.number("time_unix_nano")?);
                SystemTime::UNIX_EPOCH.checked_add(since)
            }
            State::CutOff => fs::metadata(&self.record).ok()?.modified().ok(),
        }
    }

    fn text(&self, key: &str) -> String {
        let bytes = self.start.bytes(key).unwrap_or_default();
        printable(&bytes).into_owned()
    }
}

/// Whether the process with this id is an `opensafe`. One that took over a dead one's id would have to
/// be one too to be mistaken for it, or be hidden from who asks (`hidepid` of proc(5)): that it is there is then all
/// that can be known.
fn is_opensafe(pid: u64) -> bool {
    match fs::read(format!("/proc/{pid}/comm")) {
        Ok(comm) => comm.starts_with(b"opensafe"),
        Err(_) => i32::try_from(pid)
            .is_ok_and(|pid| pid > 0 && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH)),
    }
}

/// Whether the sandbox of the run with this beginning stands still.
fn is_frozen(start: &Line) -> bool {
    sandboxed(start).is_some_and(|sandboxed| sandboxed.is_frozen())
}

/// Whether its sandbox is there, and confined without anyone who attends to it.
fn is_confined(start: &Line) -> bool {
    start.is("opensafe.enforcement.outlives_supervisor") && sandboxed(start).is_some()
}

fn sandboxed(start: &Line) -> Option<Sandboxed> {
    let run = start.text("opensafe.run.id")?.parse().ok()?;
    let inode = start.number("opensafe.cgroup.id").unwrap_or_default();
    Sandboxed::of(&run, inode).ok()?
}

fn print_table(
    runs: &[Run],
    zone: &TimeZone,
    width: Option<usize>,
    out: impl Write,
) -> anyhow::Result<()> {
    let red = AnsiColor::Red.on_default();
    let mut table = Table::new(COLUMNS, width, out);
    for run in runs {
        let (status, style) = match (&run.state, run.status()) {
            (State::Running, _) => ("running".to_owned(), AnsiColor::Green.on_default()),
            (State::Frozen, _) => ("frozen".to_owned(), AnsiColor::Cyan.on_default()),
            (State::Unattended, _) => ("unattended".to_owned(), red),
            (State::CutOff, _) => ("cut off".to_owned(), AnsiColor::Yellow.on_default()),
            (_, Some(Status::Code(0))) => ("ok".to_owned(), Style::new()),
            (_, Some(Status::Code(code))) => (format!("exit {code}"), red),
            (_, Some(Status::Signal(signal))) => (signal_name(signal), red),
            (_, None) => ("never ran".to_owned(), red),
        };
        let denials = if run.denials > 0 { red } else { Style::new() };
        let lasted = run.duration().map(Duration::from_nanos).map(duration);
        table.row([
            Cell::new(run.text("opensafe.run.id")),
            Cell::new(local(run.start.time(), zone, "%Y-%m-%d %H:%M:%S")),
            Cell::new(lasted.unwrap_or_default()),
            Cell::new(status).styled(style),
            Cell::new(run.denials.to_string()).styled(denials),
            Cell::new(run.text("gen_ai.agent.name")),
            Cell::new(command(&run.start.list("process.command_args"))),
        ])?;
    }
    table.finish()?;
    Ok(())
}

/// `SIGKILL`, as short as a column wants it.
fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal).map_or_else(
        |_| format!("signal {signal}"),
        |known| known.as_str().to_owned(),
    )
}

fn print_json(runs: &[Run], mut out: impl Write) -> anyhow::Result<()> {
    for run in runs {
        let state = match run.state {
            State::Ended(_) => "ended",
            State::Running => "running",
            State::Frozen => "frozen",
            State::Unattended => "unattended",
            State::CutOff => "cut off",
        };
        let (code, signal) = match run.status() {
            Some(Status::Code(code)) => (Some(code), None),
            Some(Status::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let arguments: Vec<_> = run
            .start
            .list("process.command_args")
            .iter()
            .map(|argument| encode(argument).into_owned())
            .collect();
        let line = json!({
            "opensafe.run.id": run.start.text("opensafe.run.id"),
            "time_unix_nano": run.start.time(),
            "opensafe.run.state": state,
            "opensafe.run.duration_nano": run.duration(),
            "process.exit.code": code,
            "opensafe.process.exit.signal": signal,
            "opensafe.run.denials": run.denials,
            "opensafe.mode": run.start.text("opensafe.mode"),
            REVISION: run.policy,
            "gen_ai.agent.name": run.start.text("gen_ai.agent.name"),
            "process.command_args": arguments,
            "opensafe.record.path": encode(run.record.as_os_str().as_encoded_bytes()),
        });
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
