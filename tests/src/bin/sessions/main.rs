//! Plays recorded sessions of agents: `opensafe-sessions play`, `demo` and `replay`.
//!
//! | file | does |
//! | --- | --- |
//! | `session` | reads a session: one tool call a line |
//! | `tools` | makes a call as the agents' own tools do: a shell, files |
//! | `editor` | SWE-agent's editor, which remembers the open file |
//! | `patch` | patches as Codex writes them |
//! | `play` | makes all calls of a session, and says how each ended |
//! | `user` | the account that sessions are played as |
//! | `sandbox` | starts `opensafe run` around a player, and reads the record |
//! | `demo` | the two sessions of `cargo xtask demo` |
//! | `ground` | workspaces in which recorded sessions mean something |
//! | `servers` | answers for the hosts that they call |
//! | `replay` | each recorded session with a policy and without one, compared |
#![forbid(unsafe_code)]

mod demo;
mod editor;
mod ground;
mod patch;
mod play;
mod replay;
mod sandbox;
mod servers;
mod session;
mod tools;
mod user;

use std::{env, path::PathBuf, process::ExitCode};

use anyhow::Result;

const USAGE: &str = "\
usage: opensafe-sessions play FILE [--workspace DIR] [--log FILE]
           make a session's tool calls, one after the other
       opensafe-sessions demo FOLDER OUT [--color]
           play FOLDER's honest and astray sessions in sandboxes, and leave records and logs in OUT
       opensafe-sessions replay FOLDER OUT
           play every session of FOLDER with a policy and without, and compare; in a guest only";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match command(&arguments) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command(arguments: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &*words {
        ["play", file, options @ ..] if options.len().is_multiple_of(2) => {
            let mut workspace = None;
            let mut log = None;
            for option in options.chunks(2) {
                match option {
                    ["--workspace", value] => workspace = Some(PathBuf::from(value)),
                    ["--log", value] => log = Some(PathBuf::from(value)),
                    _ => return usage(),
                }
            }
            play::command(file.as_ref(), workspace.as_deref(), log.as_deref())
        }
        ["demo", folder, out] => demo::command(folder.as_ref(), out.as_ref(), false),
        ["demo", folder, out, "--color"] => demo::command(folder.as_ref(), out.as_ref(), true),
        ["replay", folder, out] => replay::command(folder.as_ref(), out.as_ref()),
        _ => usage(),
    }
}

fn usage() -> Result<ExitCode> {
    eprintln!("{USAGE}");
    Ok(ExitCode::from(2))
}
