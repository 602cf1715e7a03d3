//! What runs inside sandboxes: makes attempts, each a system call or a few, and prints what came of each.
//!
//! ```text
//! scenarios probe SHAPE + VERB ARGUMENT... + VERB ARGUMENT...
//! ```
//! prints `N ok` or `N ERRNO` a line, N counting attempts from 0. It opens nothing of its own accord, so that all that
//! is on record about it is what it was told to try.

mod attributes;
mod files;
mod net;
mod outside;
mod processes;
mod programs;
mod reuse;
mod rights;
mod ring;
mod shape;
mod sockets;
mod source;
mod terminal;
mod ways;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use nix::errno::Errno;

/// What an attempt's verb does.
type Verb = fn(&[OsString]) -> io::Result<()>;

/// Runs a probe.
pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    let Some((shape, attempts)) = arguments.split_first() else {
        eprintln!("scenarios probe SHAPE + VERB ARGUMENT...");
        return ExitCode::FAILURE;
    };
    match shape::take(&shape.to_string_lossy(), attempts) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("probe: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes attempts in this process, in their order.
fn attempt_all(attempts: &[OsString]) -> io::Result<()> {
    let attempts = attempts.split(|word| word == "+").skip(1);
    for (number, words) in attempts.enumerate() {
        let result = match words.split_first() {
            Some((verb, arguments)) => attempt(&verb.to_string_lossy(), arguments),
            None => Err(io::Error::other("no verb")),
        };
        let result = match result {
            Ok(()) => "ok".to_owned(),
            Err(error) => name_of(&error),
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{number} {result}")?;
        stdout.flush()?;
    }
    Ok(())
}

fn attempt(verb: &str, arguments: &[OsString]) -> io::Result<()> {
    let (_, run) = [
        attributes::VERBS,
        files::VERBS,
        net::VERBS,
        processes::VERBS,
        programs::VERBS,
        reuse::VERBS,
        rights::VERBS,
        ring::VERBS,
        shape::VERBS,
        sockets::VERBS,
        source::VERBS,
        terminal::VERBS,
        ways::VERBS,
    ]
    .into_iter()
    .flatten()
    .find(|(name, _)| *name == verb)
    .ok_or_else(|| io::Error::other(format!("no verb {verb}")))?;
    run(arguments)
}

/// An error's errno by name, or its words.
fn name_of(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("{:?}", Errno::from_raw(errno)),
        None => error.to_string(),
    }
}

fn number(word: &OsString) -> io::Result<u32> {
    word.to_string_lossy().parse().map_err(io::Error::other)
}

/// The one argument at a place.
fn argument(arguments: &[OsString], at: usize) -> io::Result<&OsString> {
    arguments
        .get(at)
        .ok_or_else(|| io::Error::other(format!("argument {at} is missing")))
}
