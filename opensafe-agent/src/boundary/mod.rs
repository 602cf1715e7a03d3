//! `opensafe boundary`. [`audit`] reads what is set, and tries nothing. The rest is `test`: attempts to get out, made in a throwaway sandbox on the user's own host, and
//! what came of them.
//!
//! An [attempt](attempt) is data and a function. All are made twice, at a throwaway [site] each time: outside,
//! where one that does not work says nothing about the sandbox, and inside a run as `opensafe run` makes
//! it, by the hidden command of [inside]. Then the run's record is read, and each attempt
//! [judged](judge).

mod attempt;
pub mod audit;
mod honest;
mod inside;
mod judge;
mod kinds;
mod outside;
mod policy;
pub mod report;
mod site;

use std::{
    env, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::Uid,
};

pub use attempt::Kind;
pub use inside::inside;

use crate::{
    kernel::{Kernel, Sizes},
    run::Mode,
    sandbox::{
        error::RunError,
        needs::Refused,
        run::{Request, run as run_sandbox},
        signals::Signals,
    },
    sink::{Show, record::read::ReadError},
};
use attempt::Attempt;
use inside::End;
use report::Report;
use site::Made;

/// The name of the hidden command.
pub const ATTEMPT: &str = "__attempt";

/// What to try.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Policies; none for the built-in one.
    pub policy: Vec<PathBuf>,
    /// Kinds of attempts; none for all.
    pub only: Vec<Kind>,
    /// Whether to say on standard error how far it is, if it is a terminal.
    pub progress: bool,
}

/// Why it could not be tried.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TestError {
    #[error("only root can try it: it takes a sandbox\n  run it with sudo")]
    NotRoot,
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error(
        "{0}\n  it takes a host that enforces everything: `opensafe doctor` says what is missing here"
    )]
    NotEnforced(Box<Refused>),
    #[error(transparent)]
    Run(RunError),
    #[error(transparent)]
    Record(#[from] ReadError),
    #[error("the sandbox ended after {made} of {of} attempts")]
    Ended { made: usize, of: usize },
}

impl From<RunError> for TestError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::NotEnforced(refused) => Self::NotEnforced(refused),
            other => Self::Run(other),
        }
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> TestError {
    move |source| TestError::System { what, source }
}

/// Names, kinds and what is shown, of all attempts of these kinds.
#[must_use]
pub fn list(only: &[Kind]) -> Vec<(Kind, &'static str, &'static str)> {
    wanted(only)
        .into_iter()
        .map(|(kind, attempt)| (kind, attempt.name, attempt.shows))
        .collect()
}

fn wanted(only: &[Kind]) -> Vec<(Kind, &'static Attempt)> {
    kinds::all()
        .filter(|(kind, _)| only.is_empty() || only.contains(kind))
        .collect()
}

/// Tries it.
///
/// # Errors
/// If it cannot be tried: no root, no sandbox, a policy that is not fit.
pub fn test(test: &Wanted) -> Result<Report, TestError> {
    if !Uid::effective().is_root() {
        return Err(TestError::NotRoot);
    }
    // From here on no signal ends us between a step and its undoing.
    let _signals = Signals::block().map_err(|errno| system("take signals")(errno.into()))?;
    own_mounts().map_err(system("get mounts of its own"))?;
    let program = env::current_exe().map_err(system("find its own program"))?;
    let attempts = wanted(&test.only);
    let names: Vec<&str> = attempts
        .iter()
        .map(|(_, attempt)| attempt.name)
        .chain(honest::ALL.iter().map(|work| work.name))
        .collect();
    let control = outside_the_sandbox(&program, test.progress, &names)
        .map_err(system("make the attempts outside the sandbox"))?;
    let worked: Vec<bool> = (0..names.len())
        .map(|at| control.get(at).is_some_and(|end| end.said == "ok"))
        .collect();
    let tried: Vec<&str> = names
        .iter()
        .zip(&worked)
        .filter_map(|(name, worked)| worked.then_some(*name))
        .collect();
    let made = Made::new(&program, test.progress).map_err(system("make throwaway files"))?;
    let ends = in_the_sandbox(test, &made, &tried)?;
    if ends.len() < tried.len() {
        return Err(TestError::Ended {
            made: ends.len(),
            of: tried.len(),
        });
    }
    judge::Judge {
        site: &made.site,
        given: &test.policy,
        attempts: &attempts,
        control: &control,
        tried: &tried,
        ends: &ends,
    }
    .report()
}

/// What attempts mount is nobody else's business, whatever comes of them.
fn own_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}

/// Makes the attempts where nothing but the kernel's own checks is in their way.
fn outside_the_sandbox(program: &Path, progress: bool, names: &[&str]) -> io::Result<Vec<End>> {
    let made = Made::new(program, progress)?;
    // What the run's record is inside, and what it has loaded there.
    std::fs::write(&made.site.record, "")?;
    let _loaded = names
        .iter()
        .any(|name| name.starts_with(Kind::AgainstOpensafe.as_str()))
        .then(|| {
            Kernel::load(&Sizes {
                ring_bytes: 64 << 10,
                stand_ins: false,
            })
        });
    let results = made.site.open("results");
    let line = inside::command_line(&made.site, &made.file, &results, names);
    let (first, rest) = line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let status = Command::new(first)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(io::Error::other(status.to_string()));
    }
    Ok(inside::read_results(&results))
}

/// Makes them in a sandbox.
fn in_the_sandbox(test: &Wanted, made: &Made, names: &[&str]) -> Result<Vec<End>, TestError> {
    let site = &made.site;
    let rules = site.path("boundary.rego");
    policy::write(site, test.policy.is_empty(), &rules).map_err(system("write the policy"))?;
    let results = site.open("results");
    let request = Request {
        policy: test.policy.iter().cloned().chain([rules]).collect(),
        mode: Mode::Enforce,
        partial: false,
        agent: Some("boundary".to_owned()),
        workspace: Some(site.path("workspace")),
        user: Some("root".to_owned()),
        record: Some(site.record.clone()),
        command: inside::command_line(site, &made.file, &results, names),
    };
    run_sandbox(&request, || {}, |start| Show::nothing(&start.user.home))?;
    Ok(inside::read_results(&results))
}

#[cfg(test)]
mod tests;
