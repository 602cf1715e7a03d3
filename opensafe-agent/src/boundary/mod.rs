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
mod leftovers;
mod namespaces;
mod outside;
mod policy;
pub mod report;
mod runtime;
mod site;

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::Signal,
    unistd::{Uid, getpid},
};

pub use attempt::Kind;
pub use inside::inside;
pub use runtime::{Runtime, RuntimeError};

use crate::{
    kernel::{Kernel, Sizes},
    run::{Mode, RunStart},
    sandbox::{
        canary::programs_may_run_in,
        cgroup::Cgroup,
        command::CommandError,
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
    /// In what to make them; by themselves without one.
    pub runtime: Option<Runtime>,
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
    #[error("interrupted by {0} before all was tried")]
    Interrupted(Signal),
    #[error(transparent)]
    Run(RunError),
    #[error(transparent)]
    Record(#[from] ReadError),
    #[error("the sandbox ended after {made} of {of} attempts")]
    Ended { made: usize, of: usize },
    #[error("{runtime} cannot be started: {cause}")]
    NoRuntime {
        runtime: String,
        cause: CommandError,
    },
    #[error(
        "{runtime} starts nothing here, also without OpenSafe: {said}\n  \
         if it hides files: it has to show {} as it is, so that programs run there and files are made",
        place.display()
    )]
    RuntimeFailed {
        runtime: String,
        said: String,
        place: PathBuf,
    },
    #[error(
        "{runtime} starts outside, but not in the sandbox: {said}{}",
        lines("denied: ", denials)
    )]
    RuntimeDenied {
        runtime: String,
        said: String,
        denials: Vec<String>,
    },
}

/// Each on a line of its own, below what was said.
fn lines(before: &str, all: &[String]) -> String {
    let line = |each: &String| format!("\n  {before}{each}");
    all.iter().map(line).collect()
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
    if let Some(runtime) = &test.runtime {
        runtime.check().map_err(|cause| TestError::NoRuntime {
            runtime: runtime.to_string(),
            cause,
        })?;
    }
    // From here on no signal ends us between a step and its undoing.
    let signals = Signals::block().map_err(|errno| system("take signals")(errno.into()))?;
    own_mounts().map_err(system("get mounts of its own"))?;
    let place = programs_may_run_in().map_err(system("find a place for throwaway files"))?;
    leftovers::remove(&place);
    let program = env::current_exe().map_err(system("find its own program"))?;
    let attempts = wanted(&test.only);
    let names: Vec<&str> = attempts
        .iter()
        .map(|(_, attempt)| attempt.name)
        .chain(honest::ALL.iter().map(|work| work.name))
        .collect();
    let runtime = test.runtime.as_ref();
    let ground = Ground {
        program: &program,
        signals: &signals,
        progress: test.progress,
    };
    let control = ground.outside(runtime, &names)?;
    let (tried, failed): (Vec<_>, Vec<_>) = names
        .iter()
        .enumerate()
        .partition(|(at, _)| control.get(*at).is_some_and(|end| end.said == "ok"));
    let name = |(_, name): (usize, &&'static str)| *name;
    let tried: Vec<&str> = tried.into_iter().map(name).collect();
    let failed: Vec<&str> = failed.into_iter().map(name).collect();
    // Is it the runtime that stops them?
    let alone = match runtime {
        Some(_) if !failed.is_empty() => ground.outside(None, &failed)?,
        _ => Vec::new(),
    };
    let alone: Vec<(&str, End)> = failed.into_iter().zip(alone).collect();
    let made = ground.made()?;
    let ends = in_the_sandbox(test, &made, &tried)?;
    let judge = judge::Judge {
        site: &made.site,
        given: &test.policy,
        attempts: &attempts,
        runtime,
        control: &control,
        alone: &alone,
        tried: &tried,
        ends: &ends,
    };
    match runtime {
        Some(runtime) if ends.is_empty() && !tried.is_empty() => Err(TestError::RuntimeDenied {
            runtime: runtime.to_string(),
            said: runtime::said(&made.site),
            denials: judge.denials()?,
        }),
        _ if ends.len() < tried.len() => Err(TestError::Ended {
            made: ends.len(),
            of: tried.len(),
        }),
        _ => judge.report(),
    }
}

/// What attempts mount is nobody else's business, whatever comes of them.
fn own_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}

/// What sites are made of.
struct Ground<'a> {
    program: &'a Path,
    signals: &'a Signals,
    progress: bool,
}

impl Ground<'_> {
    fn made(&self) -> Result<Made, TestError> {
        go_on(self.signals)?;
        Made::new(self.program, self.progress).map_err(system("make throwaway files"))
    }

    /// Makes the attempts where nothing but the kernel's own checks, and the runtime, is in their way.
    fn outside(&self, runtime: Option<&Runtime>, names: &[&str]) -> Result<Vec<End>, TestError> {
        let made = self.made()?;
        // What the run's record is inside, and what it has loaded there.
        std::fs::write(&made.site.record, "").map_err(outside)?;
        let _loaded = names
            .iter()
            .any(|name| name.starts_with(Kind::AgainstOpensafe.as_str()))
            .then(|| {
                Kernel::load(&Sizes {
                    ring_bytes: 64 << 10,
                    stand_ins: false,
                })
            });
        let status = self.attempts_outside(&made, runtime, names);
        if let Some(runtime) = runtime {
            runtime.clean(&made.site);
        }
        let status = status?;
        let ends = inside::read_results(&made.site.open("results"));
        match runtime {
            Some(runtime) if ends.is_empty() => Err(TestError::RuntimeFailed {
                runtime: runtime.to_string(),
                said: runtime::said(&made.site),
                place: made
                    .site
                    .root
                    .parent()
                    .unwrap_or(&made.site.root)
                    .to_owned(),
            }),
            _ if !status.success() => {
                let cause = io::Error::other(status.to_string());
                Err(outside(cause))
            }
            _ => Ok(ends),
        }
    }

    /// In a cgroup, so that with the test whatever they have started ends.
    fn attempts_outside(
        &self,
        made: &Made,
        runtime: Option<&Runtime>,
        names: &[&str],
    ) -> Result<ExitStatus, TestError> {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        go_on(self.signals)?;
        let line = inside::command_line(made, runtime, &made.site.open("results"), names);
        let line = line.map_err(outside)?;
        let cgroup = Cgroup::create(&leftovers::cgroup_of_attempts(&made.id));
        let cgroup = cgroup.map_err(|error| outside(io::Error::other(error)))?;
        let mut child = born_in(&cgroup, &line).map_err(outside)?;
        loop {
            if let Some(status) = child.try_wait().map_err(outside)? {
                if !status.success() {
                    // A terminal's interrupt ends both.
                    go_on(self.signals)?;
                }
                return Ok(status);
            }
            if let Err(interrupted) = go_on(self.signals) {
                // If it is not there to be killed it has ended.
                let _ = cgroup.kill().and(Ok(child.kill()));
                let _ = child.wait();
                return Err(interrupted);
            }
            sleep(LOOK_EVERY);
        }
    }
}

fn outside(source: io::Error) -> TestError {
    system("make the attempts outside the sandbox")(source)
}

/// Whether anybody has asked for an end.
fn go_on(signals: &Signals) -> Result<(), TestError> {
    while let Some(received) = signals.pending() {
        if received.asks_to_end() {
            return Err(TestError::Interrupted(received.signal));
        }
    }
    Ok(())
}

/// Starts a command in a cgroup: who is moved into it later may have children that are not.
fn born_in(cgroup: &Cgroup, line: &[OsString]) -> io::Result<Child> {
    let (first, rest) = line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    cgroup.add(getpid()).map_err(io::Error::other)?;
    let child = Command::new(first)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    cgroup.leave()?;
    child
}

/// Makes them in a sandbox.
fn in_the_sandbox(test: &Wanted, made: &Made, names: &[&str]) -> Result<Vec<End>, TestError> {
    let site = &made.site;
    let rules = site.path("boundary.rego");
    policy::write(site, test.policy.is_empty(), &rules).map_err(system("write the policy"))?;
    let results = site.open("results");
    let command = inside::command_line(made, test.runtime.as_ref(), &results, names)
        .map_err(system("prepare the runtime"))?;
    let request = Request {
        policy: test.policy.iter().cloned().chain([rules]).collect(),
        mode: Mode::Enforce,
        partial: false,
        agent: Some("boundary".to_owned()),
        workspace: Some(site.path("workspace")),
        user: Some("root".to_owned()),
        record: Some(site.record.clone()),
        // It is what is tried that counts, and all of it is to be.
        respond: false,
        command,
    };
    let show = |start: &RunStart| {
        leftovers::note_run(&site.root, &made.id, &start.id);
        Show::nothing(&start.user.home)
    };
    run_sandbox(&request, || {}, show)?;
    Ok(inside::read_results(&results))
}

#[cfg(test)]
mod tests;
