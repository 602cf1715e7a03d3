//! What scenarios are made of: a policy, a batch of attempts made in a sandbox, and what has to be on record.

mod batch;
mod escape;
mod ground;
mod leftovers;
mod policy;
mod record;
mod run;

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::Uid,
};

pub(crate) use batch::{Attempt, Batch, Expected, attempt, connect, exec, file};
pub(crate) use escape::{Escape, Try, steps, way};
pub(crate) use ground::{Ground, add_key};
pub(crate) use leftovers::Leftovers;
pub(crate) use policy::{Policy, Rule, allow, audit, deny};
pub(crate) use record::{Event, Record};
pub(crate) use run::{Finished, Run, Running, opensafe, own_copy};

/// A claim, and what tries it out.
pub(crate) struct Scenario {
    /// The claim.
    pub(crate) name: &'static str,
    /// Fails if it does not hold.
    pub(crate) run: fn() -> Result<Outcome>,
}

/// How a scenario ended that did not fail.
pub(crate) enum Outcome {
    /// The claim holds.
    Held,
    /// It could not be tried, and why.
    Skipped(String),
}

/// Scenarios by their functions' names.
#[macro_export]
macro_rules! scenarios {
    ($($function:ident),* $(,)?) => {
        pub(crate) const SCENARIOS: &[$crate::harness::Scenario] = &[$(
            $crate::harness::Scenario { name: stringify!($function), run: $function },
        )*];
    };
}

/// The outcome of a scenario that got to its end.
#[allow(
    clippy::unnecessary_wraps,
    reason = "the end of functions that return a result"
)]
pub(crate) const fn held() -> Result<Outcome> {
    Ok(Outcome::Held)
}

/// The outcome of one that could not be tried.
pub(crate) fn skipped(why: impl Into<String>) -> Result<Outcome> {
    Ok(Outcome::Skipped(why.into()))
}

/// Once, before any scenario: signals as they are by default, and a mount namespace of our own, so that nothing stays
/// mounted.
pub(crate) fn prepare() -> Result<()> {
    if !Uid::effective().is_root() {
        bail!("takes root, and a guest to be root in: cargo xtask test --only scenarios");
    }
    // Who started us in the background may have had us ignore Ctrl-C, and so would all that we start.
    const MARK: &str = "SCENARIOS_PREPARED";
    if std::env::var_os(MARK).is_none() {
        let error = Command::new("env")
            .args(["--default-signal", &format!("{MARK}=1")])
            .arg(this_program()?)
            .args(std::env::args_os().skip(1))
            .exec();
        return Err(error).context("env --default-signal");
    }
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .context("make mounts private")?;
    Ok(())
}

/// This program, which has the probes in it.
pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("the path of this program")
}

/// A directory on the root file system, which anyone may enter; gone when it is dropped.
pub(crate) fn directory() -> Result<tempfile::TempDir> {
    directory_in(Path::new("/var/tmp"))
}

/// The same, elsewhere.
pub(crate) fn directory_in(parent: &Path) -> Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::Builder::new()
        .prefix("scenario-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in(parent)
        .with_context(|| parent.display().to_string())?;
    Ok(directory)
}

/// Writes a file that anyone may read and write.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, content).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(())
}

/// What takes longer hangs. Emulated on a busy machine, a guest may be ten times slower than on an idle one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(400);

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > PATIENCE {
            bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Collects what is wrong, so that one run tells all of it.
#[derive(Default)]
pub(crate) struct Problems(Vec<String>);

impl Problems {
    pub(crate) fn note(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    pub(crate) fn check(&mut self, is_so: bool, problem: impl FnOnce() -> String) {
        if !is_so {
            self.note(problem());
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "most are made for the call")]
    pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, is: T, should: T) {
        self.check(is == should, || {
            format!("{what} is {is:?} and should be {should:?}")
        });
    }

    /// Whatever else than this place was denied.
    pub(crate) fn no_denial_but(&mut self, record: &Record, place: Option<&str>) {
        for denial in record.denials() {
            let path = denial.text("file.path");
            if place != Some(path) {
                let (event, how) = (
                    denial.text("opensafe.event"),
                    denial.text("opensafe.operation.how"),
                );
                self.note(format!("denied: {event} {how} {path}"));
            }
        }
    }

    pub(crate) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(crate) fn result(self) -> Result<()> {
        match &*self.0 {
            [] => Ok(()),
            problems => bail!("{}", problems.join("\n")),
        }
    }

    pub(crate) fn outcome(self) -> Result<Outcome> {
        self.result()?;
        held()
    }
}

/// What a command printed: status, standard output, standard error.
pub(crate) fn ask(command: &mut Command) -> Result<(i32, String, String)> {
    let output = command.output().context("opensafe")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    ))
}
