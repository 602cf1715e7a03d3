//! `opensafe boundary`.

mod audit;

use std::{
    io::{self, IsTerminal as _, Write},
    process::ExitCode,
};

use anstyle::{AnsiColor, Style};

use super::{
    args::{BoundaryCommand, BoundaryTestArgs},
    output,
    table::{Cell, Cut, Table},
};
use crate::{
    boundary::{
        self, Wanted,
        report::{Outcome, Report, Tried, Worked},
    },
    sink::text::printable,
};

pub(super) fn boundary(command: &BoundaryCommand) -> anyhow::Result<ExitCode> {
    match command {
        BoundaryCommand::Test(args) if args.list => list(args),
        BoundaryCommand::Test(args) => test(args),
        BoundaryCommand::Audit(args) => audit::audit(args),
    }
}

fn list(args: &BoundaryTestArgs) -> anyhow::Result<ExitCode> {
    let mut out = output::stdout();
    let columns = [
        ("KIND", Cut::Never),
        ("ATTEMPT", Cut::Never),
        ("WHAT IS TRIED", Cut::Wrap),
    ];
    let attempts = boundary::list(&args.only);
    if args.json {
        for (kind, name, shows) in attempts {
            let line = serde_json::json!({ "kind": kind, "name": name, "shows": shows });
            writeln!(out, "{line}")?;
        }
    } else {
        let mut table = Table::new(columns, output::width(), &mut out);
        for (kind, name, shows) in attempts {
            table.row([kind.as_str(), name, shows].map(Cell::new))?;
        }
        table.finish()?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn test(args: &BoundaryTestArgs) -> anyhow::Result<ExitCode> {
    let report = boundary::test(&Wanted {
        policy: args.policy.clone(),
        only: args.only.clone(),
        runtime: args.runtime.clone(),
        progress: io::stderr().is_terminal(),
    })?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{}", json(&report)?)?;
    } else {
        show(&report, output::width(), &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(!report.holds())))
}

fn json(report: &Report) -> anyhow::Result<serde_json::Value> {
    let mut value = serde_json::to_value(report)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("counts".to_owned(), serde_json::to_value(report.counts())?);
        object.insert("holds".to_owned(), report.holds().into());
    }
    Ok(value)
}

const ATTEMPTS: [(&str, Cut); 5] = [
    ("KIND", Cut::Never),
    ("ATTEMPT", Cut::Wrap),
    ("EXPECTED", Cut::Never),
    ("HAPPENED", Cut::Wrap),
    ("ON RECORD", Cut::Wrap),
];

const WORK: [(&str, Cut); 3] = [
    ("ORDINARY WORK", Cut::Wrap),
    ("EXPECTED", Cut::Never),
    ("HAPPENED", Cut::Wrap),
];

fn show(report: &Report, width: Option<usize>, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "{}\n", tested(report))?;
    let mut table = Table::new(ATTEMPTS, width, &mut *out);
    for tried in &report.attempts {
        table.row(attempt(tried))?;
    }
    table.finish()?;
    writeln!(out)?;
    let mut table = Table::new(WORK, width, &mut *out);
    for worked in &report.work {
        table.row(work(worked))?;
    }
    table.finish()?;
    writeln!(out, "\n{}", summary(report))?;
    Ok(())
}

/// What is tried, in a sentence.
fn tested(report: &Report) -> String {
    let kernel = printable(report.kernel.as_bytes());
    let inside = report.runtime.as_ref();
    let inside = inside.map_or_else(String::new, |runtime| format!(", inside {runtime}"));
    if report.given.is_empty() {
        return format!(
            "tested: the built-in policy{inside}, on kernel {kernel}\n\
             It denies throwaway files, programs and peers, and all that is not needed to\n\
             work; your own policies are not tested, see --policy."
        );
    }
    let given: Vec<String> = report
        .given
        .iter()
        .map(|path| printable(path.as_bytes()).to_string())
        .collect();
    format!(
        "tested: {}{inside}, on kernel {kernel}\n\
         with rules of its own for throwaway files, programs and peers; the rest is as\n\
         this policy has it.",
        given.join(" and ")
    )
}

const BAD: Style = AnsiColor::Red.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const LEFT_OUT: Style = AnsiColor::Yellow.on_default();

fn attempt(tried: &Tried) -> [Cell; 5] {
    let happened = printable(tried.happened.as_bytes());
    let (text, style) = match &tried.outcome {
        Outcome::Stopped | Outcome::NotRecorded => (format!("denied: {happened}"), GOOD),
        Outcome::ByRuntime(said) => (
            format!("stopped by the runtime: {}", printable(said.as_bytes())),
            LEFT_OUT,
        ),
        Outcome::NotTried(why) => (
            format!("not tried: {}", printable(why.as_bytes())),
            LEFT_OUT,
        ),
        Outcome::Odd => (format!("ended otherwise: {happened}"), BAD),
        outcome => (outcome.as_str().to_owned(), BAD),
    };
    let (record, record_style) = match (&tried.outcome, &tried.rule) {
        (Outcome::ByRuntime(_) | Outcome::NotTried(_), _) => ("-".to_owned(), Style::new()),
        (Outcome::Stopped, Some(rule)) => (format!("yes: {rule}"), Style::new()),
        (Outcome::NotRecorded, Some(rule)) => (format!("NO: only {rule}"), BAD),
        (_, Some(rule)) if !tried.recorded => (format!("NO: let pass by {rule}"), BAD),
        (_, Some(rule)) => (format!("yes: {rule}"), Style::new()),
        (_, None) => ("NO".to_owned(), BAD),
    };
    [
        Cell::new(tried.kind.as_str()),
        Cell::new(tried.shows),
        Cell::new(tried.expected),
        Cell::new(text).styled(style),
        Cell::new(record).styled(record_style),
    ]
}

fn work(worked: &Worked) -> [Cell; 3] {
    let happened = printable(worked.happened.as_bytes());
    let denied = worked.denials.join(", ");
    let denied = printable(denied.as_bytes());
    let (text, style) = match worked.passed {
        Some(true) if worked.denials.is_empty() => ("passed".to_owned(), GOOD),
        Some(true) => (format!("passed; denied: {denied}"), GOOD),
        Some(false) if worked.denials.is_empty() => (format!("FAILED: {happened}"), BAD),
        Some(false) => (format!("FAILED: {happened}; denied: {denied}"), BAD),
        None => (format!("not tried: {happened}"), LEFT_OUT),
    };
    [
        Cell::new(worked.shows),
        Cell::new("passes"),
        Cell::new(text).styled(style),
    ]
}

fn summary(report: &Report) -> String {
    let counts = report.counts();
    let tried = counts.attempts - counts.by_runtime - counts.not_tried;
    let by_runtime = report.runtime.as_ref().map_or_else(String::new, |_| {
        format!(" · {} stopped by the runtime", counts.by_runtime)
    });
    let mut text = format!(
        "{tried} attempts: {} stopped, {} of them on record · {} got through · {} not tried{by_runtime}\n\
         {} pieces of ordinary work: {} passed · {} not tried",
        counts.stopped,
        counts.recorded,
        counts.got_through,
        counts.not_tried,
        counts.work - counts.work_not_tried,
        counts.work_passed,
        counts.work_not_tried,
    );
    if report.lost > 0 {
        text.push_str(&format!(
            "\n{} events were lost on their way to the record",
            report.lost
        ));
    }
    text.push_str(if report.holds() {
        "\nthe boundary holds"
    } else {
        "\nTHE BOUNDARY DOES NOT HOLD"
    });
    text
}

#[cfg(test)]
mod tests;
