//! `opensafe run`: from what was typed to a run, and from its end to an exit status.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use super::{
    FAILED,
    args::{AdoptArgs, RunArgs},
    report,
};
use crate::{
    run::{Finished, RunStart, Status},
    sandbox::{
        self,
        error::RunError,
        run::{Request, run as run_sandbox},
    },
    sink::{Show, screen::StandardError},
};

/// Said if a start waits for that of another run.
const WAITS: &str = "waits for another run, which is loading the kernel programs for both";

pub(super) fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let (quiet, json) = (args.quiet, args.json);
    let request = Request {
        policy: args.policy,
        mode: args.mode,
        partial: args.partial,
        agent: args.agent,
        workspace: args.workspace,
        user: args.user,
        record: args.record,
        respond: true,
        command: args.command,
    };
    let waits = || {
        if !quiet && !json {
            // If stderr is gone there is nobody to tell.
            let _ = writeln!(io::stderr(), "opensafe: {WAITS}");
        }
    };
    ended(run_sandbox(&request, waits, |start| {
        show(start, quiet, json)
    }))
}

pub(super) fn adopt(args: &AdoptArgs) -> anyhow::Result<ExitCode> {
    let (quiet, json) = (args.quiet, args.json);
    ended(sandbox::adopt::adopt(&args.run, args.take_over, |start| {
        show(start, quiet, json)
    }))
}

fn ended(result: Result<Finished, RunError>) -> anyhow::Result<ExitCode> {
    let status = |status: Option<Status>, unknown| {
        let status = status.map_or(i32::from(unknown), Status::shell);
        ExitCode::from(u8::try_from(status & 0xff).unwrap_or(FAILED))
    };
    match result {
        Ok(Finished::Ended(end)) => Ok(status(end.status, FAILED)),
        // How it ends is for the other to say.
        Ok(Finished::HandedOver(known)) => Ok(status(known, 0)),
        Err(error) => {
            let status = error.exit_status();
            report(&error.into());
            Ok(ExitCode::from(status))
        }
    }
}

fn show(start: &RunStart, quiet: bool, json: bool) -> Show<StandardError> {
    let home = &start.user.home;
    if json {
        Show::json()
    } else if quiet {
        Show::nothing(home)
    } else {
        Show::lines(home)
    }
}
