//! Runs that go on side by side have one set of kernel programs.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{
        Finished, Leftovers, Outcome, Policy, Problems, Run, Running, deny, directory, held,
        own_copy, wait_for, write,
    },
    scenarios,
};

scenarios![
    runs_side_by_side_load_one_set_of_programs_and_the_last_takes_it_along,
    a_process_keeps_its_policy_in_another_sandbox_s_cgroup,
    a_run_says_in_which_way_its_programs_are_asked_whoever_loaded_them,
];

/// Those to which a kernel makes no difference.
pub(super) mod ends {
    use super::{
        false_sets_of_programs_are_waited_for_once, runs_that_start_at_once_load_one_set,
        whoever_loaded_the_programs_may_end_in_any_way_and_the_others_go_on,
    };

    crate::scenarios![
        whoever_loaded_the_programs_may_end_in_any_way_and_the_others_go_on,
        runs_that_start_at_once_load_one_set,
        false_sets_of_programs_are_waited_for_once,
    ];
}

/// Reads the file whenever a line comes. Not the first process, which is tied to `opensafe`.
const READER: &str = r#"exec 3<&0
sh -c 'echo "ready $$"; while read -r _; do cat "$0" && echo read || echo refused; done' "$0" <&3 &
wait"#;

/// A file, and a copy of `opensafe` whose runs share with no others.
struct Ground {
    folder: tempfile::TempDir,
    copy: PathBuf,
}

impl Ground {
    fn new() -> Result<Self> {
        let folder = directory()?;
        let copy = own_copy(folder.path())?;
        write(&folder.path().join("closed"), "x")?;
        Ok(Self { folder, copy })
    }

    fn closed(&self) -> PathBuf {
        self.folder.path().join("closed")
    }

    fn command(&self) -> [OsString; 4] {
        [
            "sh".into(),
            "-c".into(),
            READER.into(),
            self.closed().into(),
        ]
    }

    /// A run in which the file is closed by the rule of that name, or by none.
    fn reader(&self, rule: Option<&str>) -> Result<Running> {
        let mut policy = Policy::open();
        if let Some(rule) = rule {
            policy = policy.rule(deny(rule).file(self.closed()));
        }
        let mut running = Run::new(&policy)?
            .by(&self.copy)
            .stdin(Stdio::piped())
            .start(&self.command())?;
        running.wait_for_output("ready")?;
        Ok(running)
    }
}

/// Has a reader try.
fn ask(running: &mut Running, wanted: &str) -> Result<()> {
    tell(running)?;
    running.wait_for_output(wanted).map(drop)
}

fn tell(running: &mut Running) -> Result<()> {
    let stdin = running.child.stdin.as_mut().context("no standard input")?;
    Ok(stdin.write_all(b"go\n")?)
}

fn said(running: &Running, wanted: &str) -> bool {
    running.output().is_ok_and(|text| text.contains(wanted))
}

fn finish(mut running: Running) -> Result<Finished> {
    drop(running.child.stdin.take());
    running.finish()
}

fn rules_of_denials(finished: &Finished) -> Result<Vec<String>> {
    let denials = finished.sound()?.denials();
    Ok(denials
        .map(|line| line.text("opensafe.rule.id").to_owned())
        .collect())
}

fn a_run_says_in_which_way_its_programs_are_asked_whoever_loaded_them() -> Result<Outcome> {
    let modules = fs::read_to_string("/sys/kernel/security/lsm")?;
    let way = if modules.trim().split(',').any(|module| module == "bpf") {
        "lsm"
    } else {
        "modify_return"
    };
    let ground = Ground::new()?;
    let mut problems = Problems::default();
    let mut loads = ground.reader(Some("loads"))?;
    let mut joins = ground.reader(Some("joins"))?;
    ask(&mut loads, "refused")?;
    ask(&mut joins, "refused")?;
    for running in [loads, joins] {
        let finished = finish(running)?;
        let start = finished.sound()?.start()?;
        problems.equal("the way", start.text("opensafe.enforcement.way"), way);
    }
    problems.outcome()
}

fn runs_side_by_side_load_one_set_of_programs_and_the_last_takes_it_along() -> Result<Outcome> {
    let ground = Ground::new()?;
    let before = Leftovers::settled()?;
    let mut problems = Problems::default();
    let mut one = ground.reader(Some("one"))?;
    let with_one = Leftovers::now()?;
    let mut two = ground.reader(Some("two"))?;
    let mut three = ground.reader(None)?;
    let with_three = Leftovers::now()?;
    problems.check(with_one.programs() > before.programs() + 50, || {
        "the first loads no programs".into()
    });
    problems.equal(
        "programs that two more have",
        with_three.programs(),
        with_one.programs(),
    );
    problems.equal(
        "links that two more have",
        with_three.links(),
        with_one.links(),
    );
    // A ring buffer each, a policy's automata, and what is kept of the run.
    problems.equal(
        "maps that two more have",
        with_three.maps(),
        with_one.maps() + 6,
    );
    ask(&mut one, "refused")?;
    ask(&mut two, "refused")?;
    ask(&mut three, "read")?;
    for (running, rules) in [(one, vec!["one"]), (two, vec!["two"]), (three, vec![])] {
        problems.equal(
            "the denials on record",
            rules_of_denials(&finish(running)?)?,
            rules.iter().map(|rule| (*rule).to_owned()).collect(),
        );
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn whoever_loaded_the_programs_may_end_in_any_way_and_the_others_go_on() -> Result<Outcome> {
    let ground = Ground::new()?;
    let before = Leftovers::settled()?;
    let mut problems = Problems::default();
    for end in [None, Some(Signal::SIGTERM), Some(Signal::SIGKILL)] {
        let mut first = ground.reader(Some("first"))?;
        let mut second = ground.reader(Some("second"))?;
        if let Some(signal) = end {
            kill(Pid::from_raw(i32::try_from(first.child.id())?), signal)?;
        }
        if end == Some(Signal::SIGKILL) {
            wait_for("its end", || matches!(first.child.try_wait(), Ok(Some(_))))?;
            // Nobody attends to its sandbox any more, and it is confined all the same.
            tell(&mut first)?;
            wait_for("an answer of who is left", || said(&first, "refused"))?;
        }
        finish(first)?;
        let mut third = ground.reader(Some("third"))?;
        for (running, rule) in [(&mut second, "second"), (&mut third, "third")] {
            ask(running, "refused").with_context(|| format!("{rule}, after {end:?}"))?;
        }
        for (running, rule) in [(second, "second"), (third, "third")] {
            problems.equal(
                "the denials",
                rules_of_denials(&finish(running)?)?,
                vec![rule.to_owned()],
            );
        }
        for left in Leftovers::now()?.cgroups_since(&before) {
            // What the one that was killed could not remove.
            fs::remove_dir(left)?;
        }
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn runs_that_start_at_once_load_one_set() -> Result<Outcome> {
    const RUNS: usize = 6;
    let ground = Ground::new()?;
    let before = Leftovers::settled()?;
    let mut one = ground.reader(None)?;
    let programs = Leftovers::now()?.programs() - before.programs();
    ask(&mut one, "read")?;
    finish(one)?;
    Leftovers::gone_since(&before)?;

    let policy = Policy::open().rule(deny("all").file(ground.closed()));
    let start = || {
        Run::new(&policy)?
            .by(&ground.copy)
            .stdin(Stdio::piped())
            .start(&ground.command())
    };
    let mut problems = Problems::default();
    // However fast it loads, the others find it loading.
    let first = start()?;
    let loader = Pid::from_raw(i32::try_from(first.child.id())?);
    wait_for("the first to load", || makes_maps(loader))?;
    kill(loader, Signal::SIGSTOP)?;
    let mut runs = (1..RUNS).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let says_that_it_waits = |running: &Running| {
        let said = running.said();
        said.is_ok_and(|said| said.contains("waits for another run"))
    };
    let is_waiting = || runs.iter().position(says_that_it_waits);
    wait_for("a run that waits", || is_waiting().is_some())?;
    let impatient = runs.remove(is_waiting().context("none waits")?);
    kill(
        Pid::from_raw(i32::try_from(impatient.child.id())?),
        Signal::SIGTERM,
    )?;
    let ended = impatient.finish()?;
    problems.equal("its end", ended.code(), 128 + Signal::SIGTERM as i32);
    let ready = runs.iter().filter(|running| said(running, "ready")).count();
    problems.equal("those that were ready before it ended", ready, 0);
    kill(loader, Signal::SIGCONT)?;
    runs.push(first);
    for running in &mut runs {
        running.wait_for_output("ready")?;
    }
    problems.equal(
        "programs of all",
        Leftovers::now()?.programs() - before.programs(),
        programs,
    );
    for mut running in runs {
        ask(&mut running, "refused")?;
        problems.equal(
            "the denials",
            rules_of_denials(&finish(running)?)?,
            vec!["all".to_owned()],
        );
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

/// Whether a process has maps of its own making.
fn makes_maps(process: Pid) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
    let mut links = descriptors
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    links.any(|link| link.to_string_lossy().contains("bpf-map"))
}

/// Makes BPF file systems with nothing in them, and becomes an `opensafe` that has them open and cannot end, as nobody reads
/// what it says.
const FALSE_SETS: &str = r"
import ctypes, fcntl, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(int(sys.argv[1])):
    # fsopen(2), fsconfig(2) with FSCONFIG_CMD_CREATE, fsmount(2)
    context = libc.syscall(430, b'bpf', 0)
    libc.syscall(431, context, 6, None, None, 0)
    made = libc.syscall(432, context, 0, 0)
    if made < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    os.set_inheritable(made, True)
    os.close(context)
reader, writer = os.pipe()
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
os.write(writer, bytes(4096))
os.set_inheritable(reader, True)
os.dup2(writer, 1)
print('made', file=sys.stderr, flush=True)
os.execv(sys.argv[2], ['opensafe', '--help'])
";

fn false_sets_of_programs_are_waited_for_once() -> Result<Outcome> {
    const SETS: u32 = 60;
    // For each of them alone, `opensafe` waits that long for who made it to say when it was.
    const FOR_ONE: Duration = Duration::from_secs(2);
    let ground = Ground::new()?;
    let mut keeper = Command::new("python3")
        .args(["-c", FALSE_SETS, &SETS.to_string()])
        .arg(&ground.copy)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let stderr = keeper.stderr.take().context("no standard error")?;
    let mut said = String::new();
    BufReader::new(stderr).read_line(&mut said)?;
    let keeps = || -> Result<()> {
        ensure!(said == "made\n", "nobody keeps false sets: {said}");
        wait_for("an opensafe that keeps them", || {
            fs::read_link(format!("/proc/{}/exe", keeper.id())).is_ok_and(|exe| exe == ground.copy)
        })?;
        let start = Instant::now();
        finish(ground.reader(None)?)?.sound()?;
        let took = start.elapsed();
        ensure!(took < FOR_ONE * SETS / 2, "a run took {took:?}");
        Ok(())
    };
    let kept = keeps();
    keeper.kill()?;
    keeper.wait()?;
    kept?;
    held()
}

fn a_process_keeps_its_policy_in_another_sandbox_s_cgroup() -> Result<Outcome> {
    let ground = Ground::new()?;
    let mut strict = ground.reader(Some("strict"))?;
    let lax = ground.reader(None)?;
    let cgroup = |running: &Running| -> Result<(String, String)> {
        let said = running.output()?;
        let reader = said.split_whitespace().nth(1).context("no reader")?;
        let cgroup = fs::read_to_string(format!("/proc/{reader}/cgroup"))?;
        Ok((
            reader.to_owned(),
            cgroup.trim().trim_start_matches("0::").to_owned(),
        ))
    };
    let (reader, own) = cgroup(&strict)?;
    let (_, other) = cgroup(&lax)?;
    fs::write(format!("/sys/fs/cgroup{other}/cgroup.procs"), &reader)?;
    let now = cgroup(&strict)?.1;
    ensure!(
        now == other && now != own,
        "the reader is in {now}, not in {other}"
    );
    ask(&mut strict, "refused")?;
    // It would outlive its own run in there, so it is told to end.
    let finished = finish(strict)?;
    let mut problems = Problems::default();
    problems.equal(
        "the strict one's denials",
        rules_of_denials(&finished)?,
        vec!["strict".to_owned()],
    );
    problems.equal(
        "the lax one's denials",
        rules_of_denials(&finish(lax)?)?,
        Vec::<String>::new(),
    );
    problems.outcome()
}
