//! The stages that run in guests: recorded sessions, and the scenarios. Their guests run in one row, so that no processor
//! waits while there is one left.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Ground, Tally};
use crate::{
    demo,
    repo::{self, say},
    soak,
    vm::{self, Guest, Outcome},
};

/// What a stage needs of guests.
pub(super) enum Plan {
    /// These, the longest first.
    Guests(Vec<Job>),
    /// None (any more).
    Done(Tally),
}

/// A guest, and what reads its outcome.
pub(super) struct Job {
    guest: Guest,
    read: fn(&Guest, &Outcome) -> Result<Tally>,
}

impl Job {
    /// Runs it; an error is a failure like any other.
    fn go(&self) -> Tally {
        let start = Instant::now();
        let name = &self.guest.name;
        let read = |outcome| (self.read)(&self.guest, &outcome);
        let guest = Guest {
            repeatable: true,
            ..self.guest.clone()
        };
        let tally = guest.run().and_then(read).unwrap_or_else(|error| {
            say(format_args!("{error:#}"));
            Tally::failed(format!("guest {name}"))
        });
        let counts = tally.counts();
        say(format_args!(
            "{name}: {counts} ({} s)",
            start.elapsed().as_secs()
        ));
        tally
    }
}

/// How long the scenarios of one kernel may take, the guest's boot included.
const SCENARIOS_TAKE: Duration = Duration::from_secs(35 * 60);

/// Runs a command while another run goes on, as on any host where several agents work. Its programs stay on the hooks,
/// which spares every run in between what the kernel takes to free a hook of its last program: on Linux 6.1 and 6.12
/// 0.1 s for each (opensafe-agent/src/kernel/held.rs).
const BESIDE_A_RUN: &str = "mkfifo /tmp/beside && {
    opensafe run --quiet --mode observe --record /tmp/beside.jsonl -- sh -c 'echo; exec sleep infinity' >/tmp/beside &
    read -r _ </tmp/beside && exec \"$@\"
}";

/// What a kernel is started with that has BPF LSM and does not ask it, as many distributions' are: programs then run before
/// the functions that ask.
const WITHOUT_BPF_LSM: &str = "lsm=landlock,lockdown,yama,apparmor";

/// What drives the built agent, in a guest.
const SCENARIOS: &str = "/share/bin/opensafe-scenarios";

/// Those for where no LSM hook is asked, and the kernel of which that is so without BPF LSM: it preempts tasks inside it, and leaves
/// out programs that run before functions where another task was preempted inside one.
const WITHOUT_HOOKS: &str = "where_no_lsm_hook_is_asked";
const WITHOUT_HOOKS_ON: &str = "7.2";

/// The scenarios to which a kernel may make a difference.
const OF_KERNEL: &str = "--of-kernel";
/// Of those, the attacks.
const ATTACKS: &str = "--attacks";

/// Recorded sessions, seen from the repository's root.
const TRAJECTORIES: &str = "../shared/corpus/trajectories";

/// Runs the guests of several stages, each stage with its name; what came of each stage, in that order.
pub(super) fn run(stages: Vec<(&'static str, Vec<Job>)>) -> Vec<(&'static str, Tally)> {
    let mut tallies: Vec<_> = stages
        .iter()
        .map(|(name, _)| (*name, Tally::default()))
        .collect();
    let jobs: Vec<(usize, Job)> = stages
        .into_iter()
        .enumerate()
        .flat_map(|(stage, (_, jobs))| jobs.into_iter().map(move |job| (stage, job)))
        .collect();
    let done = vm::side_by_side(&jobs, |(stage, job)| (*stage, job.go()));
    for (stage, tally) in done {
        if let Some((_, all)) = tallies.get_mut(stage) {
            all.add(tally);
        }
    }
    tallies
}

/// What drives the built agent in a real kernel, on each kernel.
pub(super) fn scenarios(ground: &Ground<'_>) -> Result<Plan> {
    const PROGRAM: &str = "opensafe-scenarios";
    if ground.built.programs().all(|(name, _)| name != PROGRAM) {
        return Ok(Plan::Done(Tally::skipped("there are no scenarios yet")));
    }
    let kernels: Vec<&str> = match &*ground.args.kernel {
        [] => vm::kernels().collect(),
        chosen => chosen.iter().map(String::as_str).collect(),
    };
    let parts = parts(&kernels, ground.args.whole);
    if !ground.args.whole {
        say(
            "escapes, ordinary work and whatever a kernel may make a difference to are tried on each kernel, the escapes also on \
             one without BPF LSM, the rest on one; --whole: everything on each, and without BPF LSM on each",
        );
    }
    let job = |part: &Part<'_>| Job {
        guest: Guest {
            timeout: SCENARIOS_TAKE,
            // Two guests of one processor get more done than two of two on a machine with two; one has more than one, for
            // what only happens then.
            cpus: Some(if *part == Part::of_kernel(demo::KERNEL) {
                2
            } else {
                1
            }),
            name: part.name(),
            out: repo::target().join("vm/out").join(part.name()),
            cmdline: part.cmdline.to_owned(),
            ..Guest::new(part.kernel, &ground.built, &part.command())
        },
        read: scenarios_told,
    };
    Ok(Plan::Guests(parts.iter().map(job).collect()))
}

/// Recorded sessions of real agents, which are data beside the repository and not in it.
pub(super) fn trajectories(ground: &Ground<'_>) -> Result<Plan> {
    let folder = repo::root().join(TRAJECTORIES);
    if !folder.is_dir() {
        return Ok(Plan::Done(Tally::skipped(&format!(
            "recorded sessions are not in the repository, and there are none in {TRAJECTORIES} beside it"
        ))));
    }
    let kernel = ground.one_kernel();
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let share = format!("/share/{name}");
    let command = beside_a_run(&["/share/bin/opensafe-sessions", "replay", &share, "/out"]);
    let guest = Guest {
        name: format!("{kernel}-trajectories"),
        share: vec![folder.clone()],
        out: repo::target().join("trajectories"),
        timeout: SCENARIOS_TAKE,
        ..Guest::new(kernel, &ground.built, &command)
    };
    Ok(Plan::Guests(vec![Job {
        guest,
        read: scenario_counts,
    }]))
}

/// A sandbox under load while all about it changes.
pub(super) fn soak(ground: &Ground<'_>) -> Result<Plan> {
    Ok(Plan::Guests(vec![Job {
        guest: soak::short(ground.one_kernel(), &ground.built),
        read: scenario_counts,
    }]))
}

/// The two sessions of the demo: each thing that it says is a test.
pub(super) fn sessions(ground: &Ground<'_>) -> Result<Plan> {
    let guest = demo::guest(ground.one_kernel(), &ground.built)?;
    Ok(Plan::Guests(vec![Job {
        guest,
        read: claims,
    }]))
}

fn claims(guest: &Guest, outcome: &Outcome) -> Result<Tally> {
    let mut tally = Tally::default();
    for claim in demo::told(guest, outcome)? {
        if claim.holds() {
            println!("ok {}", claim.says);
            tally.add(Tally::passed());
        } else {
            let failure = format!("{}: {}", claim.says, claim.against.join("; "));
            tally.add(Tally::failed(failure));
        }
    }
    Ok(tally)
}

fn beside_a_run<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [&["sh", "-c", BESIDE_A_RUN, "sh"], command].concat()
}

/// What a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part<'a> {
    kernel: &'a str,
    /// Words for the kernel.
    cmdline: &'static str,
    scenarios: &'static str,
}

impl<'a> Part<'a> {
    const fn of_kernel(kernel: &'a str) -> Self {
        Self {
            kernel,
            cmdline: "",
            scenarios: OF_KERNEL,
        }
    }

    const fn without_bpf_lsm(kernel: &'a str, whole: bool) -> Self {
        Self {
            cmdline: WITHOUT_BPF_LSM,
            scenarios: if whole { OF_KERNEL } else { ATTACKS },
            ..Self::of_kernel(kernel)
        }
    }

    fn command(&self) -> Vec<&str> {
        let command = [SCENARIOS, self.scenarios];
        match self.scenarios {
            // No run starts there that does not ask for a part of the enforcement only.
            WITHOUT_HOOKS => command.to_vec(),
            _ => beside_a_run(&command),
        }
    }

    const fn without_hooks() -> Self {
        Self {
            kernel: WITHOUT_HOOKS_ON,
            cmdline: WITHOUT_BPF_LSM,
            scenarios: WITHOUT_HOOKS,
        }
    }

    fn name(&self) -> String {
        let lsm = if self.cmdline.is_empty() {
            ""
        } else {
            "-without-bpf-lsm"
        };
        let scenarios = match self.scenarios {
            WITHOUT_HOOKS => "--partial",
            others => others,
        };
        format!("{}{lsm}{scenarios}", self.kernel)
    }
}

/// What each guest runs: a kernel, and a part of the scenarios. Everything is tried on one kernel; on the others, and on that one
/// without BPF LSM, unless the whole is asked for, that to which a kernel may make a difference. The longest come first.
fn parts<'a>(kernels: &[&'a str], whole: bool) -> Vec<Part<'a>> {
    let one = kernels
        .iter()
        .find(|kernel| **kernel == demo::KERNEL)
        .or(kernels.first());
    let chosen = || {
        kernels
            .iter()
            .filter(move |kernel| whole || Some(*kernel) == one)
    };
    let others = chosen().map(|kernel| Part {
        scenarios: "--others",
        ..Part::of_kernel(kernel)
    });
    let of_kernel = kernels.iter().map(|kernel| Part::of_kernel(kernel));
    let without_bpf_lsm = chosen()
        .filter(|kernel| **kernel != WITHOUT_HOOKS_ON)
        .map(|kernel| Part::without_bpf_lsm(kernel, whole));
    let without_hooks = kernels
        .contains(&WITHOUT_HOOKS_ON)
        .then(Part::without_hooks);
    others
        .chain(of_kernel)
        .chain(without_bpf_lsm)
        .chain(without_hooks)
        .collect()
}

fn scenarios_told(guest: &Guest, outcome: &Outcome) -> Result<Tally> {
    let mut tally = scenario_counts(guest, outcome)?;
    let output = String::from_utf8_lossy(&outcome.stdout);
    tally
        .again
        .extend(again(&guest.kernel, &guest.cmdline, &output));
    Ok(tally)
}

/// What tries the scenarios again that failed, on the same kernel.
fn again(kernel: &str, cmdline: &str, output: &str) -> Option<String> {
    let failed: Vec<&str> = output
        .lines()
        .filter_map(|line| Some(line.strip_prefix("FAILED ")?.split_once(':')?.0))
        .collect();
    let cmdline = match cmdline {
        "" => String::new(),
        words => format!(" --cmdline '{words}'"),
    };
    (!failed.is_empty()).then(|| {
        format!(
            "cargo xtask vm --kernel {kernel}{cmdline} -- {SCENARIOS} {}",
            failed.join(" ")
        )
    })
}

fn scenario_counts(guest: &Guest, outcome: &Outcome) -> Result<Tally> {
    let output = String::from_utf8_lossy(&outcome.stdout);
    let tally = read_counts(&guest.name, &output, outcome.status);
    if tally.failed > 0 {
        say(format_args!(
            "{}: the kernel's own messages are in {}",
            guest.name,
            outcome.console.display()
        ));
    }
    Ok(tally)
}

/// Reads the scenarios' output: `ok NAME`, `skip NAME: WHY`, `FAILED NAME: WHY`, and at the end the counts.
fn read_counts(kernel: &str, output: &str, status: u8) -> Tally {
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
        ..Tally::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_tried_on_one_kernel_and_on_each_if_the_whole_is_asked_for() {
        let names = |kernels: &[&str], whole| -> Vec<String> {
            parts(kernels, whole).iter().map(Part::name).collect()
        };
        assert_eq!(
            names(&["6.1", "6.12"], false),
            [
                "6.12--others",
                "6.1--of-kernel",
                "6.12--of-kernel",
                "6.12-without-bpf-lsm--attacks"
            ]
        );
        assert_eq!(names(&["6.1"], false).len(), 3);
        let there = names(&["7.2"], true);
        assert_eq!(
            (there.len(), &*there[2]),
            (3, "7.2-without-bpf-lsm--partial")
        );
        assert_eq!(names(&["6.1", "6.12"], true).len(), 6);
    }

    #[test]
    fn where_no_run_starts_none_is_beside() {
        let command = Part::without_hooks().command().join(" ");
        assert!(!command.contains("opensafe run") && command.contains(WITHOUT_HOOKS));
        let command = Part::of_kernel("6.1").command().join(" ");
        assert!(command.contains("opensafe run") && command.contains(OF_KERNEL));
    }

    #[test]
    fn counts_are_read_as_they_are_written() {
        let tally = Tally {
            passed: 3,
            failed: 0,
            skipped: 1,
            ..Tally::default()
        };
        assert_eq!(counts(&tally.counts()), Some(tally));
        assert_eq!(counts("3 passed"), None);
    }

    #[test]
    fn scenarios_that_stop_half_way_are_a_failure() {
        let tally = read_counts(
            "6.1",
            "ok a\nskip b: no such thing\nFAILED c: wrong verdict\n",
            125,
        );
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 2, 1));
        let tally = read_counts("6.1", "ok a\n1 passed, 0 failed, 0 skipped\n", 1);
        assert_eq!((tally.passed, tally.failed), (1, 1));
        let tally = read_counts("6.1", "FAILED c: wrong\n1 passed, 1 failed, 0 skipped\n", 1);
        assert_eq!(tally.failures, ["6.1: c: wrong"]);
    }

    #[test]
    fn one_command_tries_again_what_failed_on_a_kernel() {
        assert_eq!(
            again(
                "6.1",
                "lsm=yama",
                "FAILED a: wrong: 1\n    and more\nok b\nFAILED c: wrong\n2.0 s c\n1 passed, 2 failed, 0 skipped\n"
            )
            .as_deref(),
            Some("cargo xtask vm --kernel 6.1 --cmdline 'lsm=yama' -- /share/bin/opensafe-scenarios a c")
        );
        assert_eq!(
            again("6.1", "", "ok a\n1 passed, 0 failed, 0 skipped\n"),
            None
        );
    }
}
