//! `opensafe runs`: the runs on record.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use jiff::tz::TimeZone;
use serde_json::json;

use super::{
    args::RunsArgs,
    events::{command, local, note, status},
    output,
    table::{Cell, Cut, Table},
};
use crate::{
    run::Status,
    sink::{
        record::{
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
    let out = output::stdout();
    if args.json {
        print_json(&runs, out)?;
    } else {
        print_table(&runs, &TimeZone::system(), output::width(), out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A run, as its record's first and last line have it.
struct Run {
    record: PathBuf,
    start: Line,
    state: State,
    denials: u64,
}

/// How far a run is.
enum State {
    /// It has ended, and this is its last line.
    Ended(Line),
    /// Its `opensafe` still runs.
    Running,
    /// Neither.
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
        let denials = match &end {
            Some(end) => ["exec", "file", "connect"]
                .iter()
                .filter_map(|operation| end.number(&format!("opensafe.count.{operation}.deny")))
                .sum(),
            // Nobody has counted them yet.
            None => lines.flatten().filter(Line::is_denial).count() as u64,
        };
        let state = match end {
            Some(end) => State::Ended(end),
            None if start.number("opensafe.supervisor.pid").is_some_and(alive) => State::Running,
            None => State::CutOff,
        };
        Ok(Self {
            record: record.to_owned(),
            start,
            state,
            denials,
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

    fn text(&self, key: &str) -> String {
        let bytes = self.start.bytes(key).unwrap_or_default();
        printable(&bytes).into_owned()
    }
}

/// Whether the process with this id is an `opensafe`. One that took over a dead one's id would have to
/// be one too to be mistaken for it.
fn is_opensafe(pid: u64) -> bool {
    fs::read(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(b"opensafe"))
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
            "opensafe.policy.revision": run.start.text("opensafe.policy.revision"),
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
