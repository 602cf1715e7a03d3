//! `cargo xtask demo`: an honest and a misled agent session, side by side.

mod claims;
mod show;
mod story;

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

pub(crate) use claims::{Claim, claims};
use show::Style;
use story::Story;

use crate::{
    build::{self, Built},
    repo::{self, say},
    run,
    vm::{Guest, Outcome, Show},
};

/// The guest's kernel.
pub(crate) const KERNEL: &str = "6.12";
/// What plays the sessions.
const PLAYER: &str = "opensafe-sessions";
/// What the sessions call, where they are not played in a guest.
const PROGRAMS: &[&str] = &["bash", "git", "python3", "curl", "sudo", "unshare", "mount"];
const ON_HOST: &str = include_str!("demo/host.sh");
const TAKES: Duration = Duration::from_secs(15 * 60);

/// `cargo xtask demo`.
pub(crate) fn command() -> Result<ExitCode> {
    let style = Style::of_terminal();
    show::opening(style);
    let built = build::everything()?;
    let out = repo::target().join("demo");
    if can_host(&built) {
        say("this host enforces everything: the sessions run on it, in a mount namespace");
        on_host(&built, &out, style)?;
    } else {
        say(format_args!(
            "the sessions run in a guest with Linux {KERNEL}; without KVM, a minute or two"
        ));
        played(&player(KERNEL, &built, &out, style, Show::AsItIs)?.run()?)?;
    }
    let story = Story::read(&out)?;
    let claims = claims(&story);
    show::story(&story, style);
    show::outcome(&story, &claims, &out, &built, style);
    Ok(if claims.iter().all(Claim::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A guest that plays both sessions on a kernel, for [`told`].
pub(crate) fn guest(kernel: &str, built: &Built) -> Result<Guest> {
    let out = repo::target().join("demo-test");
    player(
        kernel,
        built,
        &out,
        Style::plain(),
        Show::Lines(kernel.into()),
    )
}

/// What the sessions say that were played in a guest.
pub(crate) fn told(guest: &Guest, outcome: &Outcome) -> Result<Vec<Claim>> {
    played(outcome)?;
    Ok(claims(&Story::read(&guest.out)?))
}

/// The folder with the sessions.
fn folder() -> PathBuf {
    repo::root().join("tests/sessions")
}

fn player(kernel: &str, built: &Built, out: &Path, style: Style, show: Show) -> Result<Guest> {
    anew(out)?;
    let player = format!("/share/bin/{PLAYER}");
    let columns = format!("COLUMNS={}", style.columns.unwrap_or(0));
    let mut command = vec![&*player, "demo", "/share/sessions", "/out"];
    if style.columns.is_some() {
        command.splice(0..0, ["env", &columns]);
    }
    if style.color {
        command.push("--color");
    }
    Ok(Guest {
        name: format!("{kernel}-sessions"),
        share: vec![folder()],
        out: out.into(),
        timeout: TAKES,
        show,
        ..Guest::new(kernel, built, &command)
    })
}

fn played(outcome: &Outcome) -> Result<()> {
    if outcome.status != 0 {
        bail!(
            "the sessions could not be played: exit status {}; the kernel's own messages are in {}",
            outcome.status,
            outcome.console.display()
        );
    }
    Ok(())
}

/// Whether `doctor` finds everything here, and the sessions' programs are there.
fn can_host(built: &Built) -> bool {
    let Some(agent) = &built.agent else {
        return false;
    };
    PROGRAMS.iter().all(|name| run::find(name).is_some())
        && Command::new(agent)
            .arg("doctor")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

/// Plays both sessions on this host. They see a `/home`, a `/tmp` and an account that are there for them alone.
fn on_host(built: &Built, out: &Path, style: Style) -> Result<()> {
    anew(out)?;
    let stage = out.join("stage");
    fs::create_dir(&stage).with_context(|| stage.display().to_string())?;
    let player = built.programs().find(|(name, _)| *name == PLAYER);
    let (_, player) = player.context("the player of sessions was not built")?;
    let status = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "bash",
            "-euc",
            ON_HOST,
            "demo",
        ])
        .arg(&stage)
        .arg(out)
        .arg(built.agent.as_deref().context("the agent was not built")?)
        .arg(player)
        .arg(repo::root().join("policies"))
        .arg(folder())
        .args(style.color.then_some("--color"))
        .envs(
            style
                .columns
                .map(|columns| ("COLUMNS", columns.to_string())),
        )
        .stdin(Stdio::null())
        .status()
        .context("unshare")?;
    let _ = fs::remove_dir(&stage);
    if !status.success() {
        bail!("the sessions could not be played: {status}");
    }
    Ok(())
}

/// An empty folder.
fn anew(folder: &Path) -> Result<()> {
    let name = || folder.display().to_string();
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(name)?;
    }
    fs::create_dir_all(folder).with_context(name)
}

/// Whether a person looks at standard output, and has nothing against colours.
fn colors() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    io::stdout().is_terminal() && !refused && !dumb
}
