//! `cargo xtask test`: every test there is, in stages, and one line at the end that counts them all.

mod guests;

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use guests::Plan;

use crate::{
    build::{self, Built},
    cli::TestArgs,
    demo,
    repo::{self, say},
    run,
};

/// A part of the tests that can be run alone.
struct Stage {
    name: &'static str,
    work: Work,
}

/// Where a stage works.
enum Work {
    /// On this machine.
    Here(fn(&Ground<'_>) -> Result<Tally>),
    /// In guests.
    Guests(fn(&Ground<'_>) -> Result<Plan>),
}

/// In the order they run: what fails fastest comes first; of the guests, the longest.
const STAGES: &[Stage] = &[
    Stage {
        name: "format",
        work: Work::Here(format),
    },
    Stage {
        name: "lints",
        work: Work::Here(lints),
    },
    Stage {
        name: "units",
        work: Work::Here(units),
    },
    Stage {
        name: "policies",
        work: Work::Here(policies),
    },
    Stage {
        name: "scenarios",
        work: Work::Guests(guests::scenarios),
    },
    Stage {
        name: "soak",
        work: Work::Guests(guests::soak),
    },
    Stage {
        name: "trajectories",
        work: Work::Guests(guests::trajectories),
    },
    Stage {
        name: "sessions",
        work: Work::Guests(guests::sessions),
    },
];

/// What the stages work on.
struct Ground<'a> {
    built: Built,
    args: &'a TestArgs,
}

impl Ground<'_> {
    /// The kernel for what runs on one alone.
    fn one_kernel(&self) -> &str {
        let chosen = self.args.kernel.first();
        chosen.map_or(demo::KERNEL, String::as_str)
    }
}

/// What was counted, and what to repeat at the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
    failures: Vec<String>,
    /// Commands that try again what failed, and nothing else.
    again: Vec<String>,
}

impl Tally {
    fn passed() -> Self {
        Self {
            passed: 1,
            ..Self::default()
        }
    }

    fn failed(what: impl Into<String>) -> Self {
        Self {
            failed: 1,
            failures: vec![what.into()],
            ..Self::default()
        }
    }

    fn skipped(why: &str) -> Self {
        say(format_args!("skipped: {why}"));
        Self {
            skipped: 1,
            ..Self::default()
        }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.again.extend(other.again);
    }

    fn counts(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// `cargo xtask test`.
pub(crate) fn command(args: &TestArgs) -> Result<ExitCode> {
    if let Some(unknown) = args
        .only
        .iter()
        .find(|only| STAGES.iter().all(|stage| stage.name != **only))
    {
        let names: Vec<_> = STAGES.iter().map(|stage| stage.name).collect();
        bail!("no stage `{unknown}`; there are {}", names.join(", "));
    }
    let start = Instant::now();
    let mut all = Tally::default();
    // The lints and unit tests of the agent embed the kernel programs too.
    match build::everything() {
        Err(error) => {
            say(format_args!("{error:#}"));
            all.add(Tally::failed("build"));
        }
        Ok(built) => {
            let ground = Ground { built, args };
            let chosen = STAGES.iter().filter(|stage| {
                args.only.is_empty() || args.only.iter().any(|only| only == stage.name)
            });
            let mut in_guests = Vec::new();
            for stage in chosen {
                match stage.go(&ground) {
                    Plan::Guests(jobs) => in_guests.push((stage.name, jobs)),
                    Plan::Done(tally) => all.add(tally),
                }
            }
            for (stage, tally) in guests::run(in_guests) {
                say(format_args!("{stage}: {}", tally.counts()));
                all.add(tally);
            }
        }
    }
    for failure in &all.failures {
        println!("FAILED {failure}");
    }
    for command in &all.again {
        println!("again: {command}");
    }
    say(format_args!("{} s in all", start.elapsed().as_secs()));
    println!("{}", all.counts());
    Ok(if all.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Stage {
    /// Runs it, or says what it needs of guests; an error is a failure like any other, and the next stage follows.
    fn go(&self, ground: &Ground<'_>) -> Plan {
        let start = Instant::now();
        let failed = |error| {
            say(format_args!("{error:#}"));
            Tally::failed(self.name)
        };
        match self.work {
            Work::Guests(plan) => plan(ground).unwrap_or_else(|error| Plan::Done(failed(error))),
            Work::Here(run) => {
                say(format_args!("{}…", self.name));
                let tally = run(ground).unwrap_or_else(failed);
                let (counts, took) = (tally.counts(), start.elapsed().as_secs());
                say(format_args!("{}: {counts} ({took} s)", self.name));
                Plan::Done(tally)
            }
        }
    }
}

fn format(_: &Ground<'_>) -> Result<Tally> {
    if !has_component("fmt") {
        return Ok(Tally::skipped(
            "no `cargo fmt` here (rustup component add rustfmt)",
        ));
    }
    let mut tally = Tally::default();
    let packages = [
        ("format", "Cargo.toml"),
        ("format of opensafe-ebpf", "opensafe-ebpf/Cargo.toml"),
    ];
    for (name, manifest) in packages {
        if repo::root().join(manifest).exists() {
            let status = run::cargo()
                .args(["fmt", "--all", "--check", "--manifest-path", manifest])
                .status()?;
            tally.add(if status.success() {
                Tally::passed()
            } else {
                Tally::failed(name)
            });
        }
    }
    Ok(tally)
}

fn lints(_: &Ground<'_>) -> Result<Tally> {
    if !has_component("clippy") {
        return Ok(Tally::skipped(
            "no `cargo clippy` here (rustup component add clippy)",
        ));
    }
    let status = run::cargo()
        .env("OPENSAFE_EBPF_OBJECT", build::object())
        .args([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
        .status()?;
    Ok(if status.success() {
        Tally::passed()
    } else {
        Tally::failed("lints")
    })
}

fn has_component(name: &str) -> bool {
    run::quietly(run::cargo().args([name, "--version"])).is_ok()
}

fn units(_: &Ground<'_>) -> Result<Tally> {
    let mut tests = run::cargo()
        .env("OPENSAFE_EBPF_OBJECT", build::object())
        // A snapshot that differs is a failure, and leaves nothing in the tree.
        .env("INSTA_UPDATE", "no")
        .args(["test", "--quiet", "--workspace", "--no-fail-fast"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo test")?;
    let mut tally = Tally::default();
    let output = tests.stdout.take().context("cargo test: no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let mut shown = io::stdout().lock();
        shown.write_all(&line)?;
        shown.write_all(b"\n")?;
        tally.add(libtest(&String::from_utf8_lossy(&line)).unwrap_or_default());
    }
    if !tests.wait()?.success() {
        // A test that does not compile is in no count.
        tally.failed = tally.failed.max(1);
        tally.failures.push("units".into());
    }
    Ok(tally)
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; …`
fn libtest(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        counts
            .split("; ")
            .find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
    };
    Some(Tally {
        passed: count("passed")?,
        failed: count("failed")?,
        skipped: count("ignored")?,
        ..Tally::default()
    })
}

/// The tests in Rego beside each shipped policy.
fn policies(ground: &Ground<'_>) -> Result<Tally> {
    let Some(agent) = &ground.built.agent else {
        bail!("the agent was not built")
    };
    let mut tally = Tally::default();
    for folder in folders(&repo::root().join("policies"))? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let output = Command::new(agent)
            .args(["policy", "test", "--json"])
            .arg(&folder)
            .stderr(Stdio::inherit())
            .output()
            .context("opensafe policy test")?;
        let counted = rego_counts(&name, &String::from_utf8_lossy(&output.stdout));
        let told = counted.failed > 0 || output.status.success();
        tally.add(counted);
        if !told {
            tally.add(Tally::failed(format!("policies/{name}: {}", output.status)));
        }
    }
    Ok(tally)
}

/// A test in Rego, as far as we look at it; one is printed a line.
#[derive(Deserialize)]
struct RegoTest {
    name: String,
    passed: bool,
    skipped: bool,
    error: Option<String>,
}

fn rego_counts(policy: &str, output: &str) -> Tally {
    let mut tally = Tally::default();
    for test in output
        .lines()
        .filter_map(|line| serde_json::from_str::<RegoTest>(line).ok())
    {
        tally.add(match test {
            RegoTest { skipped: true, .. } => Tally {
                skipped: 1,
                ..Tally::default()
            },
            RegoTest { passed: true, .. } => Tally::passed(),
            RegoTest { name, error, .. } => {
                let why = error.unwrap_or_else(|| "is not true".into());
                Tally::failed(format!("policies/{policy}: {name}: {why}"))
            }
        });
    }
    tally
}

fn folders(parent: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(parent).with_context(|| parent.display().to_string())?;
    let mut folders: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{STAGES, Tally, libtest, rego_counts};
    use crate::cli::Cli;

    #[test]
    fn the_help_names_every_stage() {
        let mut command = Cli::command();
        let test = command.find_subcommand_mut("test").unwrap();
        let help = test.render_long_help().to_string();
        for stage in STAGES {
            assert!(help.contains(stage.name), "{}", stage.name);
        }
    }

    #[test]
    fn tests_in_rego_are_counted_one_by_one() {
        let tally = rego_counts(
            "default",
            r#"{"name":"data.a.test_b","passed":true,"skipped":false,"error":null}
{"name":"data.a.test_c","passed":false,"skipped":false,"error":null}
{"name":"data.a.todo_test_d","passed":false,"skipped":true,"error":null}"#,
        );
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 1, 1));
        assert_eq!(
            tally.failures,
            ["policies/default: data.a.test_c: is not true"]
        );
    }

    #[test]
    fn unit_tests_are_counted_by_their_result_lines() {
        let line = "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(
            libtest(line),
            Some(Tally {
                passed: 12,
                failed: 0,
                skipped: 2,
                ..Tally::default()
            })
        );
        assert_eq!(libtest("running 3 tests"), None);
    }
}
