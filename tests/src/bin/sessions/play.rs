//! Makes the calls of a session, one after the other.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::{
    session,
    tools::{Outcome, Tools},
};

/// What is shown of a call and of what it printed.
const WIDTH: usize = 96;
/// Between two calls, so that it is clear by the time to which one an event belongs.
const PAUSE: Duration = Duration::from_millis(50);
/// After one that failed: what `opensafe` says about it comes before the next.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(750);

/// `play FILE`. A call that fails is the session's own affair: the next one follows.
pub(crate) fn command(
    file: &Path,
    workspace: Option<&Path>,
    log: Option<&Path>,
) -> Result<ExitCode> {
    let calls = session::read(file)?;
    let workspace = match workspace {
        Some(directory) => std::path::absolute(directory)?,
        None => std::env::current_dir()?,
    };
    let mut log = match log {
        Some(file) => Some(File::create(file).with_context(|| file.display().to_string())?),
        None => None,
    };
    let mut tools = Tools::new(workspace);
    for (call, number) in calls.iter().zip(1..) {
        println!("[{number}] {}", cut(&call.shown()));
        let began = now();
        let outcome = tools.make(call);
        let ended = now();
        match &outcome {
            Outcome::NotOurs => println!("    (not a tool of the operating system's)"),
            Outcome::Ended { status, output } => {
                let line = output.lines().rfind(|line| !line.trim().is_empty());
                let line = line.map(str::trim);
                match (status, line) {
                    (0, line) => println!("    {}", cut(line.unwrap_or("done"))),
                    (_, Some(line)) => println!("    {} (exit status {status})", cut(line)),
                    (_, None) => println!("    exit status {status}"),
                }
            }
        }
        let failed = matches!(outcome, Outcome::Ended { status: 1.., .. });
        if let Some(log) = &mut log {
            let (status, output) = match outcome {
                Outcome::Ended { status, output } => (Some(status), output),
                Outcome::NotOurs => (None, String::new()),
            };
            let line = json!({
                "step": number, "tool": call.tool, "shown": call.shown(),
                "began": began, "ended": ended, "status": status, "output": output,
            });
            writeln!(log, "{line}")?;
        }
        thread::sleep(if failed { PAUSE_AFTER_FAILURE } else { PAUSE });
    }
    Ok(ExitCode::SUCCESS)
}

/// In nanoseconds since 1970, as a record has it.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}
