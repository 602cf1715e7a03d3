//! The command line: what was typed, which command that is, and how it ends.

mod args;
mod boundary;
mod control;
mod doctor;
mod events;
mod help;
mod output;
mod policy;
mod run;
mod runs;
mod shell;
mod table;

use std::{fmt, io, process::ExitCode};

use clap::Parser as _;

use crate::{sandbox::control::Order, sink::text::printable};

pub use args::{
    AdoptArgs, BoundaryAuditArgs, BoundaryCommand, BoundaryTestArgs, Cli, Color, Command,
    CompletionsArgs, ControlArgs, DoctorArgs, EventName, EventsArgs, ManArgs, PolicyApplyArgs,
    PolicyArg, PolicyCheckArgs, PolicyCommand, PolicyRulesArgs, PolicyTestArgs, RunArgs, RunsArgs,
    SandboxArgs,
};

#[cfg(any(test, feature = "untrusted"))]
pub(crate) use {events::shown, policy::rules_json};

/// Exit status where a question was answered with no, or could not be.
const NO: u8 = 1;

/// Exit status where `boundary` could not find out.
const UNKNOWN: u8 = 2;

/// Exit status where `run` or `doctor` failed by itself, not by what it ran or found. As env(1) and
/// docker-run(1) have it.
const FAILED: u8 = 125;

/// Reads the command line; help, version and usage errors end the process here.
#[must_use]
pub fn parse() -> Cli {
    let cli = Cli::parse();
    match cli.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    cli
}

/// Does what was typed and says how it went.
#[must_use]
pub fn dispatch(cli: Cli) -> ExitCode {
    let (result, status) = match cli.command {
        Command::Run(args) => (run::run(args), FAILED),
        Command::Doctor(args) => (doctor::doctor(&args), FAILED),
        Command::Boundary(command) => (boundary::boundary(&command), UNKNOWN),
        Command::Events(args) => (events::events(&args), NO),
        Command::Adopt(args) => (run::adopt(&args), FAILED),
        Command::Runs(args) => (runs::runs(&args), NO),
        Command::Freeze(args) => (control::control(Order::Freeze, &args), NO),
        Command::Thaw(args) => (control::control(Order::Thaw, &args), NO),
        Command::Kill(args) => (control::control(Order::Kill, &args), NO),
        Command::Policy(command) => (policy::policy(&command), NO),
        Command::Completions(args) => (shell::completions(&args), NO),
        Command::Man(args) => (shell::man(&args), NO),
    };
    match result {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(status)
        }
    }
}

/// Adds what to do to an error: the indented line below it.
pub trait Advise<T> {
    /// Adds `advice`. Further calls add further lines.
    ///
    /// # Errors
    /// The error, if it is one.
    fn advise(self, advice: impl fmt::Display) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Advise<T> for Result<T, E> {
    fn advise(self, advice: impl fmt::Display) -> anyhow::Result<T> {
        self.map_err(|error| {
            let error = error.into();
            match error.downcast::<Advised>() {
                Ok(mut advised) => {
                    advised.advice.push(advice.to_string());
                    advised.into()
                }
                Err(error) => Advised {
                    error,
                    advice: vec![advice.to_string()],
                }
                .into(),
            }
        })
    }
}

#[derive(Debug)]
struct Advised {
    error: anyhow::Error,
    advice: Vec<String>,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(&self.error))
    }
}

impl std::error::Error for Advised {}

/// Says on stderr what went wrong and, where it is known, what to do.
pub fn report(error: &anyhow::Error) {
    let style = help::STYLES.get_error();
    let text = harmless(&explain(error));
    // If stderr is gone there is nobody to tell.
    let _ = io::Write::write_fmt(
        &mut anstream::stderr(),
        format_args!("{style}error:{style:#} {text}\n"),
    );
}

/// An error and its causes in one line, advice in indented lines below.
fn explain(error: &anyhow::Error) -> String {
    let mut text = chain(error);
    if let Some(advised) = error.downcast_ref::<Advised>() {
        for advice in &advised.advice {
            text.push_str("\n  ");
            text.push_str(advice);
        }
    }
    text
}

/// What is said with the names in it as nothing but names: they come from files and policies of others, and a terminal acts on
/// some characters. Its own lines and tabs stay.
fn harmless(text: &str) -> String {
    let shown = |line: &str| {
        let parts = line.split('\t').map(|part| printable(part.as_bytes()));
        parts.collect::<Vec<_>>().join("\t")
    };
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// An error and its causes; a cause that the text before it contains already is not said again.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(broken))
}

#[cfg(test)]
mod tests;
