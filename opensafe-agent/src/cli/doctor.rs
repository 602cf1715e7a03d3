//! `opensafe doctor`.

use std::{io::Write, process::ExitCode};

use anstyle::{AnsiColor, Style};
use nix::unistd::Uid;

use super::{
    Advise as _,
    args::DoctorArgs,
    output,
    table::{Cell, Cut, Table},
};
use crate::{
    doctor::{Examination, Finding, GUEST, HookState, examine},
    enforcement::Level,
    sink::text::printable,
};

const COLUMNS: [(&str, Cut); 4] = [
    ("CHECK", Cut::Never),
    ("RESULT", Cut::Never),
    ("FOUND", Cut::Wrap),
    ("MEANS", Cut::Wrap),
];

pub(super) fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    if !Uid::effective().is_root() {
        return Err(anyhow::anyhow!(
            "doctor finds out by loading programs, which only root can"
        ))
        .advise("run it with sudo");
    }
    let found = examine().advise(GUEST)?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{}", json(&found)?)?;
    } else {
        show(&found, output::width(), &mut out)?;
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

fn show(found: &Examination, width: Option<usize>, out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new(COLUMNS, width, &mut *out);
    for check in &found.checks {
        let (word, style) = word(check.state);
        table.row([
            Cell::new(check.what),
            Cell::new(word).styled(style),
            Cell::new(printable(check.found.as_bytes())),
            Cell::new(check.so.as_str()),
        ])?;
    }
    table.finish()?;
    hooks(&found.hooks, out)?;
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
            "missing: {}\n  why: {}\n  fix: {}",
            missing.what, missing.why, missing.fix
        )?;
    }
    if found.level() == Level::Partial {
        writeln!(
            out,
            "`opensafe run` refuses a policy that needs more than that, unless --partial is given"
        )?;
    }
    for advice in &found.advice {
        writeln!(out, "{advice}")?;
    }
    Ok(())
}

/// The hooks that are missing. Without any of the LSM's, that is said already.
fn hooks(all: &[HookState], out: &mut impl Write) -> std::io::Result<()> {
    if !all.iter().any(|hook| hook.is_of_lsm() && hook.loaded) {
        return Ok(());
    }
    let missing = all.iter().filter(|hook| !hook.loaded);
    let (refused, later): (Vec<_>, Vec<_>) = missing.partition(|hook| hook.there);
    if !refused.is_empty() {
        writeln!(out, "\nhooks that this kernel refused:")?;
        for hook in refused {
            writeln!(out, "  {:24} {}", hook.hook, hook.without)?;
        }
    }
    if !later.is_empty() {
        let names: Vec<_> = later.iter().map(|hook| hook.hook).collect();
        writeln!(
            out,
            "\nthis kernel is too old for these hooks, and for what they would guard, so nothing is open: {}",
            names.join(", ")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{doctor::Check, kernel::Purpose, sink::samples};

    fn hook(hook: &'static str, there: bool, loaded: bool) -> HookState {
        HookState {
            hook,
            by: "lsm",
            purpose: Purpose::File,
            there,
            loaded,
            refused: None,
            without: "files are made unchecked",
        }
    }

    #[test]
    fn a_hook_that_came_later_with_what_it_is_for_is_not_called_refused() {
        let said = |all: &[HookState]| {
            let mut out = Vec::new();
            hooks(all, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let loaded = hook("file_open", true, true);
        assert_eq!(
            said(&[loaded.clone(), hook("inode_file_setattr", false, false)]),
            "\nthis kernel is too old for these hooks, and for what they would guard, so nothing is open: inode_file_setattr\n"
        );
        assert_eq!(
            said(&[loaded, hook("path_mknod", true, false)]),
            "\nhooks that this kernel refused:\n  path_mknod               files are made unchecked\n"
        );
    }

    #[test]
    fn what_to_do_about_what_is_missing_comes_last() {
        let found = Examination {
            checks: vec![Check {
                what: "BPF LSM",
                found: "listed, but loading is refused (EPERM)".to_owned(),
                state: Finding::Missing,
                so: "file and exec rules cannot be enforced here".to_owned(),
            }],
            hooks: Vec::new(),
            enforcement: samples::partly(),
            advice: vec!["what may be behind it", GUEST],
        };
        let mut out = Vec::new();
        show(&found, Some(100), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        insta::assert_snapshot!(anstream::adapter::strip_str(&out).to_string());
        let advice = &json(&found).unwrap()["advice"];
        assert_eq!(advice[1], GUEST);
    }
}
