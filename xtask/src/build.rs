//! Builds the kernel programs, then what runs in userspace around them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::{
    repo::{self, say},
    run, setup,
};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What was built.
pub(crate) struct Built {
    /// The agent, `opensafe`, if it is there.
    pub(crate) agent: Option<PathBuf>,
    /// The test helpers, by the name they have in a guest's /share/bin.
    pub(crate) helpers: Vec<(String, PathBuf)>,
}

/// `cargo xtask build`: kernel programs, agent, test helpers.
pub(crate) fn everything() -> Result<Built> {
    kernel_programs()?;
    userspace()
}

/// Where the kernel programs' object is kept; the agent's build reads it from `OPENSAFE_EBPF_OBJECT`.
pub(crate) fn object() -> PathBuf {
    repo::target().join("ebpf/opensafe.o")
}

/// Builds the kernel programs' object, for the agent to embed. The file keeps its time when nothing changed.
pub(crate) fn kernel_programs() -> Result<()> {
    let folder = repo::root().join("opensafe-ebpf");
    if !folder.join("Cargo.toml").exists() {
        say("no kernel programs in opensafe-ebpf yet");
        return Ok(());
    }
    let (toolchain, linker) = setup::for_build()?;
    let _alone = repo::lock(&repo::target().join("ebpf.lock"))?;
    let target = folder.join("target");
    let built = target.join("bpfel-unknown-none/release/opensafe");
    say_building("the kernel programs", &built);
    run::run(
        toolchain
            .cargo()
            .current_dir(&folder)
            .env(
                "RUSTFLAGS",
                format!(
                    "-C linker={} -C debuginfo=2 -C link-arg=--btf",
                    linker.display()
                ),
            )
            .args([
                "build",
                "--quiet",
                "--release",
                "-Z",
                "build-std=core",
                "--target",
                "bpfel-unknown-none",
            ])
            .arg("--target-dir")
            .arg(&target),
    )?;
    let bytes = fs::read(&built).with_context(|| built.display().to_string())?;
    repo::write_if_changed(&object(), &bytes)
}

/// Builds the agent and the test helpers, statically, so that they run in any guest or container.
fn userspace() -> Result<Built> {
    let before = last().agent.unwrap_or_default();
    say_building("the agent and the test helpers", &before);
    let messages = run::stdout(
        run::cargo()
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env("OPENSAFE_EBPF_OBJECT", object())
            .args([
                "build",
                "--quiet",
                "--release",
                "--target",
                TARGET,
                "--bins",
            ])
            .args(["--package", "opensafe-agent", "--package", "opensafe-tests"])
            .args(["--message-format", "json-render-diagnostics"])
            .arg("--target-dir")
            .arg(repo::target()),
    )?;
    Ok(Built::from_messages(&messages))
}

/// Says what is built; `before` is what building it has made, if it was.
fn say_building(what: &str, before: &Path) {
    if before.exists() {
        say(format_args!("building {what}, where something has changed"));
    } else {
        say(format_args!(
            "building {what} for the first time: some minutes"
        ));
    }
}

/// What was last built, without building.
pub(crate) fn last() -> Built {
    let directory = repo::target().join(TARGET).join("release");
    let there = |name: &str| Some(directory.join(name)).filter(|file| file.exists());
    Built {
        agent: there("opensafe"),
        helpers: fs::read_dir(repo::root().join("tests/src/bin"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|name| Some((helper(&name), there(&name)?)))
            .collect(),
    }
}

/// The line cargo prints for what it built, as far as we look at it.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

impl Built {
    fn from_messages(messages: &str) -> Self {
        let mut built = Self {
            agent: None,
            helpers: Vec::new(),
        };
        let executables = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable);
        for file in executables {
            match file.file_name().and_then(|name| name.to_str()) {
                Some("opensafe") => built.agent = Some(file),
                Some(name) => built.helpers.push((helper(name), file.clone())),
                None => {}
            }
        }
        built
    }

    /// Every program with its name in a guest's /share/bin.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, &Path)> {
        let agent = self.agent.iter().map(|file| ("opensafe", file.as_path()));
        agent.chain(
            self.helpers
                .iter()
                .map(|(name, file)| (name.as_str(), file.as_path())),
        )
    }
}

/// A helper's name in guests: `scenarios` → `opensafe-scenarios`.
fn helper(name: &str) -> String {
    if name.starts_with("opensafe-") {
        name.into()
    } else {
        format!("opensafe-{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::Built;

    #[test]
    fn programs_are_found_in_what_cargo_prints() {
        let built = Built::from_messages(
            r#"{"reason":"compiler-artifact","executable":null}
{"reason":"compiler-artifact","executable":"/t/release/opensafe"}
{"reason":"compiler-artifact","executable":"/t/release/scenarios"}
{"reason":"build-finished","success":true}"#,
        );
        let names: Vec<_> = built.programs().map(|(name, _)| name).collect();
        assert_eq!(names, ["opensafe", "opensafe-scenarios"]);
    }
}
