//! `opensafe policy apply`: a run that goes on gets another policy.

use std::{io::Write as _, path::Path, process::ExitCode};

use serde_json::json;

use crate::{
    cli::{args::PolicyApplyArgs, control::running, events::found, output},
    run::RunId,
    sandbox::apply::{self, InForceNow},
    sink::record::place::Invoker,
};

pub(super) fn apply(args: &PolicyApplyArgs) -> anyhow::Result<ExitCode> {
    let run = run_of(&args.run)?;
    let now = apply::apply(&run, &args.policy.policy)?;
    let mut out = output::stdout();
    if args.json {
        let line = json!({
            "opensafe.run.id": run.as_str(),
            "time_unix_nano": now.time_unix_nano,
            "opensafe.policy.number": now.number,
            "opensafe.policy.revision": now.revision,
            "opensafe.policy.rules": now.rules,
            "opensafe.policy.before": now.before,
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "{}", sentence(&run, &now))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The run with this id, wherever its record is, or the one that a record is of.
fn run_of(named: &Path) -> anyhow::Result<RunId> {
    let id = named.to_str().and_then(|id| id.parse().ok());
    match id.filter(apply::can_be_reached) {
        Some(run) => Ok(run),
        None => {
            let record = found(Invoker::current().find(named))?;
            running(&record).map(|(run, _)| run)
        }
    }
}

fn sentence(run: &RunId, now: &InForceNow) -> String {
    let rules = match now.rules {
        1 => "1 rule".to_owned(),
        rules => format!("{rules} rules"),
    };
    format!(
        "run {run}: policy {} is in force, {rules}; before it {}",
        now.revision, now.before
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::PolicyNumber;

    #[test]
    fn what_is_in_force_is_said_and_what_was() {
        let run = "7f3k2aaa".parse().unwrap();
        let now = InForceNow {
            time_unix_nano: 1,
            number: PolicyNumber(1),
            revision: "stricter@0d15ea5e".to_owned(),
            rules: 42,
            before: "coding-agent@9c41e07b".to_owned(),
        };
        assert_eq!(
            sentence(&run, &now),
            "run 7f3k2aaa: policy stricter@0d15ea5e is in force, 42 rules; before it coding-agent@9c41e07b"
        );
    }
}
