//! The hidden command: tells one, and says what came of it.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, setsid},
};

use super::{LIMIT, WORD, encode};
use crate::{
    response::Outcome,
    sandbox::{signals::Signals, stage::Identity},
};

/// How much of what a program says on standard error is told, in bytes.
const MAX_SAID: usize = 200;
/// How long that may take once it has ended.
const SAYING: Duration = Duration::from_millis(100);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Tells whoever is named in the arguments what stands on standard input.
pub fn deliver(arguments: &[OsString]) -> ExitCode {
    let outcome = try_to(arguments);
    // If opensafe is gone there is nobody to hear of it.
    let _ = io::stdout().write_all(encode(&outcome).as_bytes());
    ExitCode::SUCCESS
}

fn try_to(arguments: &[OsString]) -> Outcome {
    let [identity, way, rest @ ..] = arguments else {
        return unknown();
    };
    if let Err(error) = become_nobody_special(identity) {
        return Outcome::failed(&error, format!("cannot become who is to tell: {error}"));
    }
    // Nothing keeps this waiting for longer, whatever it hangs in.
    thread::spawn(|| {
        sleep(LIMIT + WORD);
        std::process::exit(1);
    });
    match (way.to_str(), rest) {
        (Some("command"), [program, arguments @ ..]) => command(program, arguments),
        (Some("webhook"), [url]) => webhook(&url.to_string_lossy()),
        _ => unknown(),
    }
}

fn unknown() -> Outcome {
    Outcome::Failed {
        error: "EINVAL".to_owned(),
        why: "opensafe has called itself in an unknown way".to_owned(),
    }
}

/// Of the run, nothing is kept: not its score when memory runs out, its terminal, its rights, or its signals.
fn become_nobody_special(identity: &OsString) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", "0")?;
    setsid()?;
    if let Some(identity) = identity.to_str().and_then(Identity::decode) {
        identity.take_on()?;
    }
    Ok(Signals::unblock()?)
}

/// Starts a program, and waits until it has ended or has to be.
fn command(program: &OsString, arguments: &[OsString]) -> Outcome {
    let shown = program.to_string_lossy();
    let started = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return Outcome::failed(&error, format!("cannot start {shown}: {error}")),
    };
    let said = listen(&mut child);
    match wait(&mut child) {
        Ok(Some(status)) if status.success() => Outcome::Done,
        Ok(Some(status)) => ended_badly(&shown, status, &said),
        Ok(None) => Outcome::Failed {
            error: "ETIMEDOUT".to_owned(),
            why: format!(
                "{shown} had not ended after {} s, and was killed",
                LIMIT.as_secs()
            ),
        },
        Err(error) => Outcome::failed(&error, format!("cannot wait for {shown}: {error}")),
    }
}

/// Hears all that it says, so that it is not kept waiting, and sends on the beginning.
fn listen(child: &mut Child) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    if let Some(mut stderr) = child.stderr.take() {
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                let _ = sender.send(buffer[..count].to_vec());
            }
        });
    }
    receiver
}

/// `None` if it took too long, and was killed with all that it has started and not sent away.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            let group = Pid::from_raw(child.id().cast_signed());
            let _ = killpg(group, Signal::SIGKILL);
            child.wait()?;
            return Ok(None);
        }
        sleep(LOOK);
    }
}

fn ended_badly(program: &str, status: ExitStatus, said: &Receiver<Vec<u8>>) -> Outcome {
    let (error, mut why) = match status.signal() {
        Some(signal) => ("signal", format!("{program} was killed by signal {signal}")),
        None => (
            "exit_status",
            format!(
                "{program} ended with exit status {}",
                status.code().unwrap_or(-1)
            ),
        ),
    };
    let deadline = Instant::now() + SAYING;
    let mut words = Vec::new();
    while words.len() < MAX_SAID
        && let Ok(more) = said.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        words.extend(more);
    }
    words.truncate(MAX_SAID);
    let words = String::from_utf8_lossy(&words);
    let words: Vec<&str> = words.split_whitespace().collect();
    if !words.is_empty() {
        why = format!("{why}: {}", words.join(" "));
    }
    Outcome::Failed {
        error: error.to_owned(),
        why,
    }
}

/// Posts it. What is answered does not matter, but that it is a success.
fn webhook(url: &str) -> Outcome {
    let mut text = Vec::new();
    if let Err(error) = io::stdin().read_to_end(&mut text) {
        return Outcome::failed(&error, format!("cannot read what is to be told: {error}"));
    }
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(LIMIT))
        .http_status_as_error(false)
        .max_redirects(0)
        // The one that is named is meant, and no variable of an environment sends it elsewhere.
        .proxy(None)
        .user_agent(concat!("opensafe/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let answered = agent
        .post(url)
        .header("Content-Type", "application/json")
        .send(&text);
    match answered {
        Ok(answer) if answer.status().is_success() => Outcome::Done,
        Ok(answer) => Outcome::Failed {
            error: "http_status".to_owned(),
            why: format!("{url} answered with status {}", answer.status().as_u16()),
        },
        Err(ureq::Error::Io(error)) => Outcome::failed(&error, format!("{url}: {error}")),
        Err(ureq::Error::Timeout(_)) => Outcome::Failed {
            error: "ETIMEDOUT".to_owned(),
            why: format!("{url} had not answered after {} s", LIMIT.as_secs()),
        },
        Err(error) => Outcome::Failed {
            error: "other".to_owned(),
            why: format!("{url}: {error}"),
        },
    }
}
