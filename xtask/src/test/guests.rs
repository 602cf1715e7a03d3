//! The stages that run in guests: recorded sessions, and the scenarios.

use std::time::Duration;

use anyhow::Result;

use super::{Ground, Tally};
use crate::{
    demo,
    repo::{self, say},
    vm::{self, Guest},
};

/// How long the scenarios of one kernel may take, the guest's boot included.
const SCENARIOS_TAKE: Duration = Duration::from_secs(35 * 60);

/// Runs a command while another run goes on, as on any host where several agents work. Its programs stay on the hooks,
/// which spares every run in between what the kernel takes to free a hook of its last program: on Linux 6.1 and 6.12
/// 0.1 s for each (opensafe-agent/src/kernel/held.rs).
const BESIDE_A_RUN: &str = "mkfifo /tmp/beside && {
    opensafe run --quiet --mode observe --record /tmp/beside.jsonl -- sh -c 'echo; exec sleep infinity' >/tmp/beside &
    read -r _ </tmp/beside && exec \"$@\"
}";

/// The scenarios to which a kernel may make a difference.
const OF_KERNEL: &str = "--of-kernel";

/// Recorded sessions, seen from the repository's root.
const TRAJECTORIES: &str = "../shared/corpus/trajectories";

/// Recorded sessions of real agents, which are data beside the repository and not in it.
pub(super) fn trajectories(ground: &Ground<'_>) -> Result<Tally> {
    let folder = repo::root().join(TRAJECTORIES);
    if !folder.is_dir() {
        return Ok(Tally::skipped(&format!(
            "recorded sessions are not in the repository, and there are none in {TRAJECTORIES} beside it"
        )));
    }
    let kernel = ground.one_kernel();
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let share = format!("/share/{name}");
    let command = beside_a_run(&["/share/bin/opensafe-sessions", "replay", &share, "/out"]);
    let outcome = Guest {
        share: vec![folder.clone()],
        out: repo::target().join("trajectories"),
        timeout: SCENARIOS_TAKE,
        ..Guest::new(kernel, &ground.built, &command)
    }
    .run()?;
    Ok(scenario_counts(
        kernel,
        &String::from_utf8_lossy(&outcome.stdout),
        outcome.status,
    ))
}

/// What drives the built agent in a real kernel, on each kernel.
pub(super) fn scenarios(ground: &Ground<'_>) -> Result<Tally> {
    const PROGRAM: &str = "opensafe-scenarios";
    if ground.built.programs().all(|(name, _)| name != PROGRAM) {
        return Ok(Tally::skipped("there are no scenarios yet"));
    }
    let kernels: Vec<&str> = match &*ground.args.kernel {
        [] => vm::kernels().collect(),
        chosen => chosen.iter().map(String::as_str).collect(),
    };
    let parts = parts(&kernels, ground.args.whole);
    let guests: Vec<Guest> = parts
        .iter()
        .map(|(kernel, part)| Guest {
            timeout: SCENARIOS_TAKE,
            // Two guests of one processor get more done than two of two on a machine with two; one has more than one, for
            // what only happens then.
            cpus: Some(if (*kernel, *part) == (demo::KERNEL, OF_KERNEL) {
                2
            } else {
                1
            }),
            name: format!("{kernel}{part}"),
            out: repo::target().join(format!("vm/out/{kernel}{part}")),
            ..Guest::new(
                kernel,
                &ground.built,
                &beside_a_run(&["/share/bin/opensafe-scenarios", part]),
            )
        })
        .collect();
    if parts.len() < 2 * kernels.len() {
        say(
            "every scenario is tried on one kernel, on the others those to which a kernel may make a difference; --whole: \
             every one on each",
        );
    }
    let mut tally = Tally::default();
    for ((kernel, _), outcome) in parts.iter().zip(vm::run_all(&guests)) {
        tally.add(match outcome {
            Ok(outcome) => {
                let tally = scenario_counts(
                    kernel,
                    &String::from_utf8_lossy(&outcome.stdout),
                    outcome.status,
                );
                if tally.failed > 0 {
                    say(format_args!(
                        "{kernel}: the kernel's own messages are in {}",
                        outcome.console.display()
                    ));
                }
                tally
            }
            Err(error) => {
                say(format_args!("{error:#}"));
                Tally::failed(format!("scenarios on {kernel}"))
            }
        });
    }
    Ok(tally)
}

fn beside_a_run<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [&["sh", "-c", BESIDE_A_RUN, "sh"], command].concat()
}

/// What each guest runs: a kernel, and a part of the scenarios. Everything is tried on one kernel; on the others, unless
/// the whole is asked for, that to which a kernel may make a difference. The longest come first.
fn parts<'a>(kernels: &[&'a str], whole: bool) -> Vec<(&'a str, &'static str)> {
    let one = kernels
        .iter()
        .find(|kernel| **kernel == demo::KERNEL)
        .or(kernels.first());
    let others = kernels
        .iter()
        .filter(|kernel| whole || Some(*kernel) == one)
        .map(|kernel| (*kernel, "--others"));
    let of_kernel = kernels.iter().map(|kernel| (*kernel, OF_KERNEL));
    others.chain(of_kernel).collect()
}

/// Reads the scenarios' output: `ok NAME`, `skip NAME: WHY`, `FAILED NAME: WHY`, and at the end the counts.
fn scenario_counts(kernel: &str, output: &str, status: u8) -> Tally {
    let failures: Vec<String> = output
        .lines()
        .filter_map(|line| line.strip_prefix("FAILED "))
        .map(|failure| format!("{kernel}: {failure}"))
        .collect();
    match output.lines().last().and_then(counts) {
        Some(counted) if counted.failed > 0 || status == 0 => Tally {
            failures,
            ..counted
        },
        _ => {
            let mut tally = Tally::failed(format!(
                "{kernel}: ended with status {status} before the counts"
            ));
            tally.passed = count_lines(output, "ok ");
            tally.skipped = count_lines(output, "skip ");
            tally.failed += count_lines(output, "FAILED ");
            tally.failures.extend(failures);
            tally
        }
    }
}

fn count_lines(output: &str, start: &str) -> u32 {
    output
        .lines()
        .filter(|line| line.starts_with(start))
        .map(|_| 1)
        .sum()
}

/// `3 passed, 0 failed, 1 skipped`
fn counts(line: &str) -> Option<Tally> {
    let mut parts = line.split(", ");
    let mut next = |what: &str| parts.next()?.strip_suffix(what)?.parse().ok();
    Some(Tally {
        passed: next(" passed")?,
        failed: next(" failed")?,
        skipped: next(" skipped")?,
        failures: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_tried_on_one_kernel_and_on_each_if_the_whole_is_asked_for() {
        assert_eq!(
            parts(&["6.1", "6.12"], false),
            [
                ("6.12", "--others"),
                ("6.1", OF_KERNEL),
                ("6.12", OF_KERNEL)
            ]
        );
        assert_eq!(
            parts(&["6.1"], false),
            [("6.1", "--others"), ("6.1", OF_KERNEL)]
        );
        assert_eq!(parts(&["6.1", "6.12"], true).len(), 4);
    }

    #[test]
    fn counts_are_read_as_they_are_written() {
        let tally = Tally {
            passed: 3,
            failed: 0,
            skipped: 1,
            failures: Vec::new(),
        };
        assert_eq!(counts(&tally.counts()), Some(tally));
        assert_eq!(counts("3 passed"), None);
    }

    #[test]
    fn scenarios_that_stop_half_way_are_a_failure() {
        let tally = scenario_counts(
            "6.1",
            "ok a\nskip b: no such thing\nFAILED c: wrong verdict\n",
            125,
        );
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 2, 1));
        let tally = scenario_counts("6.1", "ok a\n1 passed, 0 failed, 0 skipped\n", 1);
        assert_eq!((tally.passed, tally.failed), (1, 1));
        let tally = scenario_counts("6.1", "FAILED c: wrong\n1 passed, 1 failed, 0 skipped\n", 1);
        assert_eq!(tally.failures, ["6.1: c: wrong"]);
    }
}
