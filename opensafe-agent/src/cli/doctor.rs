//! `opensafe doctor`.

use std::{io::Write, process::ExitCode};

use anstyle::{AnsiColor, Style};
use nix::unistd::Uid;

use super::{Advise as _, args::DoctorArgs, output};
use crate::{
    doctor::{Check, Examination, Finding, examine},
    enforcement::Level,
    sink::text::printable,
};

pub(super) fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    if !Uid::effective().is_root() {
        return Err(anyhow::anyhow!(
            "doctor finds out by loading programs, which only root can"
        ))
        .advise("run it with sudo");
    }
    let found = examine()?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{}", json(&found)?)?;
    } else {
        show(&found, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::from(match found.level() {
        Level::Full => 0,
        Level::Partial => 1,
        Level::None => 2,
    }))
}

fn json(found: &Examination) -> anyhow::Result<serde_json::Value> {
    let mut value = serde_json::to_value(found)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("level".to_owned(), found.level().as_str().into());
    }
    Ok(value)
}

fn show(found: &Examination, out: &mut impl Write) -> std::io::Result<()> {
    let width = |of: fn(&Check) -> usize| found.checks.iter().map(of).max().unwrap_or(0);
    let (what, detail) = (
        width(|check| check.what.len()),
        width(|check| check.found.len()).min(60),
    );
    for check in &found.checks {
        let (word, style) = word(check.state);
        writeln!(
            out,
            "{:what$}  {:detail$}  {style}{word:<7}{style:#}  {}",
            check.what,
            printable(check.found.as_bytes()),
            check.so,
        )?;
    }
    let refused: Vec<_> = found.hooks.iter().filter(|hook| !hook.loaded).collect();
    let lsm_there = found
        .hooks
        .iter()
        .any(|hook| hook.by == "lsm" && hook.loaded);
    if lsm_there && !refused.is_empty() {
        writeln!(out, "\nhooks that this kernel refused:")?;
        for hook in refused {
            writeln!(out, "  {:24} {}", hook.hook, hook.without)?;
        }
    }
    let answers: Vec<String> = found
        .enforcement
        .operations()
        .iter()
        .map(|(name, operation)| format!("{name} {}", operation.level.answer()))
        .collect();
    let overall = match found.level() {
        Level::Full => "fully enforced",
        Level::Partial => "partly enforced",
        Level::None => "nothing is enforced",
    };
    writeln!(out, "\n{overall}: {}", answers.join(" · "))?;
    for missing in found.enforcement.missing() {
        writeln!(
            out,
            "missing: {} ({})\n  {}",
            missing.what, missing.why, missing.fix
        )?;
    }
    Ok(())
}

fn word(finding: Finding) -> (&'static str, Style) {
    match finding {
        Finding::Ok => ("ok", AnsiColor::Green.on_default()),
        Finding::Partly => ("partly", AnsiColor::Yellow.on_default()),
        Finding::Missing => ("missing", AnsiColor::Red.on_default().bold()),
    }
}
