//! `opensafe freeze`, `opensafe thaw` and `opensafe kill`: a run that goes on, from another terminal.

use std::{io::Write as _, path::Path, process::ExitCode};

use anyhow::{Context as _, anyhow};
use nix::unistd::Uid;
use serde_json::json;

use super::{Advise as _, args::ControlArgs, events::found, output};
use crate::{
    run::RunId,
    sandbox::control::{Obeyed, Order, Sandboxed},
    sink::record::{
        place::Invoker,
        read::{Line, last, read},
    },
};

pub(super) fn control(order: Order, args: &ControlArgs) -> anyhow::Result<ExitCode> {
    let record = found(Invoker::current().find(&args.run))?;
    let (run, sandboxed) = running(&record)?;
    let word = word(order);
    if !Uid::effective().is_root() {
        return Err(anyhow!("only root can {word} a run")).advise("run it with sudo");
    }
    let obeyed = sandboxed.obey(order)?;
    let mut out = output::stdout();
    if args.json {
        let line = json!({
            "opensafe.run.id": run.as_str(),
            "opensafe.run.action": word,
            "opensafe.run.was_frozen": obeyed.was_frozen,
            "opensafe.cgroup.processes": obeyed.processes,
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "{}", sentence(order, &run, obeyed))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The run whose record this is, and its cgroup.
pub(super) fn running(record: &Path) -> anyhow::Result<(RunId, Sandboxed)> {
    let lines = read(record)?;
    let start = lines.start().context("its record has no beginning")?;
    let run: RunId = start.text("opensafe.run.id").unwrap_or_default().parse()?;
    let ended = last(record)?.is_some_and(|line: Line| line.event() == "run.end");
    let inode = start.number("opensafe.cgroup.id").unwrap_or_default();
    let sandboxed = if ended {
        None
    } else {
        Sandboxed::of(&run, inode)?
    };
    match sandboxed {
        Some(sandboxed) => Ok((run, sandboxed)),
        None => {
            Err(anyhow!("run {run} has ended")).advise("`opensafe runs` lists those that go on")
        }
    }
}

const fn word(order: Order) -> &'static str {
    match order {
        Order::Freeze => "freeze",
        Order::Thaw => "thaw",
        Order::Kill => "kill",
    }
}

fn sentence(order: Order, run: &RunId, obeyed: Obeyed) -> String {
    let processes = match obeyed.processes {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    match (order, obeyed.was_frozen) {
        (Order::Freeze, false) => {
            format!("run {run} is frozen: {processes}; opensafe thaw {run} lets it go on")
        }
        (Order::Freeze, true) => format!("run {run} was frozen already: {processes}"),
        (Order::Thaw, true) => format!("run {run} goes on: {processes}"),
        (Order::Thaw, false) => format!("run {run} was not frozen: {processes}"),
        (Order::Kill, _) => format!("run {run} is killed: {processes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunId {
        "7f3k2aaa".parse().unwrap()
    }

    #[test]
    fn what_was_done_is_said_and_what_was_so_already() {
        let obeyed = |was_frozen| Obeyed {
            processes: 2,
            was_frozen,
        };
        let said = |order, was_frozen| sentence(order, &run(), obeyed(was_frozen));
        let all = [Order::Freeze, Order::Thaw, Order::Kill]
            .map(|order| [said(order, false), said(order, true)].join("\n"));
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_run_that_has_ended_is_not_looked_for_among_cgroups() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("7f3k2aaa.jsonl");
        let line = |event| {
            format!(
                "{{\"time_unix_nano\":1,\"opensafe.run.id\":\"7f3k2aaa\",\"opensafe.event\":\"{event}\",\"opensafe.cgroup.id\":1}}\n"
            )
        };
        std::fs::write(&record, line("run.start") + &line("run.end")).unwrap();
        let error = running(&record).unwrap_err();
        assert_eq!(
            super::super::explain(&error),
            "run 7f3k2aaa has ended\n  `opensafe runs` lists those that go on"
        );
    }
}
