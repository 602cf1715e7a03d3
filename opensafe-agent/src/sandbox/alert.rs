//! Telling somebody outside of an alert: a program that is started, an address that it is posted to.
//!
//! `opensafe` starts itself once more as `opensafe __alert`, which does it and says on its standard output what came of it.
//! So a run waits for nobody, its children's ends are not mixed up with this one's, and what is done takes none of the run's
//! rights: the process is whoever started `opensafe`, also through `sudo`, and not root for that.

mod deliver;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use nix::unistd::Uid;
use rustix::fs::{MemfdFlags, memfd_create};

use super::stage::Identity;
use crate::{
    account::Account,
    event::UnixNano,
    response::{Outcome, Responded},
    run::RunId,
    sink::record::place::Invoker,
};

pub use deliver::deliver;

/// The name of the hidden command.
pub const ALERT: &str = "__alert";
/// How long telling may take.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// How much longer it is waited for word of it.
const WORD: Duration = Duration::from_secs(3);
/// How many are told at a time.
const MAX_AT_ONCE: usize = 4;
/// Longest word of what came of it, in bytes.
const MAX_HEARD: u64 = 4096;

/// Whom to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// A program and its arguments.
    Command(Vec<String>),
    /// A URL with an address for its host.
    Webhook(String),
}

/// Who is being told.
#[derive(Debug)]
pub(super) struct Alerts {
    run: RunId,
    teller: Option<Teller>,
    underway: Vec<Underway>,
}

/// As whom it is done.
#[derive(Debug)]
struct Teller {
    identity: Option<Identity>,
    environment: Vec<(&'static str, OsString)>,
}

/// One who is being told.
#[derive(Debug)]
struct Underway {
    /// What goes on record, once its outcome is known.
    of: Responded,
    answer: ChildStdout,
    heard: Vec<u8>,
    until: Instant,
}

impl Alerts {
    pub(super) fn new(run: RunId) -> Self {
        Self {
            run,
            teller: None,
            underway: Vec::new(),
        }
    }

    /// Finds out as whom to tell. That may take asking the host's name services, so it is done before the run.
    pub(super) fn prepare(&mut self) {
        self.teller = Some(Teller::current());
    }

    /// Starts telling; [`Alerts::told`] says what came of it. `of` is what goes on record then, `text` what is told.
    pub(super) fn tell(&mut self, whom: &Whom, text: &[u8], of: Responded) -> io::Result<()> {
        if self.underway.len() >= MAX_AT_ONCE {
            let why = format!("{MAX_AT_ONCE} others are under way; not started");
            return Err(io::Error::other(why));
        }
        let teller = self.teller.get_or_insert_with(Teller::current);
        let mut input = File::from(memfd_create("alert", MemfdFlags::CLOEXEC)?);
        input.write_all(text)?;
        input.rewind()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("opensafe").arg(ALERT).arg(
            teller
                .identity
                .as_ref()
                .map_or_else(|| "-".to_owned(), Identity::encode),
        );
        match whom {
            Whom::Command(words) => command.arg("command").args(words),
            Whom::Webhook(url) => command.args(["webhook", url]),
        };
        let mut child = command
            .env_clear()
            .envs(teller.environment.iter().map(|(name, value)| (name, value)))
            .env("OPENSAFE_RUN_ID", self.run.as_str())
            .env("OPENSAFE_RESPONSE_ID", &of.response)
            .current_dir("/")
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        // Whoever looks after the run's children buries it.
        let answer = child.stdout.take();
        let answer = answer.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        rustix::io::ioctl_fionbio(&answer, true)?;
        self.underway.push(Underway {
            of,
            answer,
            heard: Vec::new(),
            until: Instant::now() + LIMIT + WORD,
        });
        Ok(())
    }

    /// What came of telling those of whom it is known by now.
    pub(super) fn told(&mut self) -> Vec<Responded> {
        let now = Instant::now();
        let mut told = Vec::new();
        let mut at = 0;
        while let Some(underway) = self.underway.get_mut(at) {
            let Some(outcome) = underway.outcome(now) else {
                at += 1;
                continue;
            };
            told.push(Responded {
                time: UnixNano::now(),
                outcome,
                ..self.underway.swap_remove(at).of
            });
        }
        told
    }

    /// Whether nobody is being told.
    pub(super) const fn is_done(&self) -> bool {
        self.underway.is_empty()
    }
}

impl Underway {
    /// `None` as long as it is not known.
    fn outcome(&mut self, now: Instant) -> Option<Outcome> {
        let room = MAX_HEARD.saturating_sub(self.heard.len() as u64);
        let read = (&mut self.answer).take(room).read_to_end(&mut self.heard);
        match read {
            Ok(_) => Some(decode(&self.heard)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                (now >= self.until).then(|| Outcome::Failed {
                    error: "ETIMEDOUT".to_owned(),
                    why: "no word of it came".to_owned(),
                })
            }
            Err(error) => Some(Outcome::failed(&error, error.to_string())),
        }
    }
}

impl Teller {
    /// Whoever started `opensafe`, with an environment of its own.
    fn current() -> Self {
        let invoker = Invoker::current();
        let uid = invoker
            .owner
            .map_or_else(|| Uid::effective().as_raw(), |owner| owner.uid);
        let account = Account::of(uid);
        let identity = invoker.owner.map(|owner| Identity {
            uid: owner.uid,
            gid: owner.gid,
            groups: account
                .as_ref()
                .map_or_else(|| vec![owner.gid], Account::groups),
        });
        let mut environment: Vec<(&str, OsString)> = vec![
            ("PATH", PATH.into()),
            ("HOME", invoker.home.into_os_string()),
        ];
        if let Some(account) = account {
            environment.push(("USER", account.name.clone().into()));
            environment.push(("LOGNAME", account.name.into()));
        }
        Self {
            identity,
            environment,
        }
    }
}

/// What a person's shell has by default, too (`_PATH_STDPATH` of paths.h).
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";
/// The word for what was done.
const DONE: &str = "done";

/// What came of it, in a line.
fn encode(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed { error, why } => format!("failed {error} {why}"),
        _ => DONE.to_owned(),
    }
}

fn decode(line: &[u8]) -> Outcome {
    let line = String::from_utf8_lossy(line);
    if line == DONE {
        return Outcome::Done;
    }
    let mut words = line.splitn(3, ' ');
    let (error, why) = match (words.next(), words.next(), words.next()) {
        (Some("failed"), Some(error), Some(why)) => (error, why),
        _ => ("other", "whoever was to tell has ended without a word"),
    };
    Outcome::Failed {
        error: error.to_owned(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_it_survives_the_way_back() {
        let failed = Outcome::Failed {
            error: "ENOENT".into(),
            why: "cannot start /x: no such file".into(),
        };
        for outcome in [Outcome::Done, failed] {
            assert_eq!(decode(encode(&outcome).as_bytes()), outcome);
        }
    }

    #[test]
    fn an_end_without_a_word_is_a_failure() {
        for said in ["", "don", "failed", "failed ENOENT"] {
            assert!(
                matches!(decode(said.as_bytes()), Outcome::Failed { .. }),
                "{said}"
            );
        }
    }
}
