//! A run's beginning and end: streams, statuses, signals, users, and what is left afterwards.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::Path,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{
        Leftovers, Outcome, Policy, Problems, Record, Run, deny, directory, opensafe, own_copy,
        this_program, write,
    },
    scenarios,
};

scenarios![
    standard_streams_pass_through_byte_by_byte_and_quiet_adds_nothing,
    the_commands_exit_status_is_the_runs_and_json_is_on_standard_error,
    a_command_that_cannot_run_is_127_or_126,
    a_signal_is_passed_on_and_a_second_request_to_end_ends_all,
    a_command_that_a_signal_ends_is_128_and_the_signal,
    whenever_a_run_is_asked_to_end_it_leaves_nothing_behind,
    what_outlives_the_command_is_ended_and_counted,
    a_run_for_a_user_has_the_users_ids_home_and_record,
    the_first_thing_that_a_command_does_is_decided,
    a_policy_file_that_changes_during_the_run_changes_nothing,
    a_process_is_on_record_by_its_program_whatever_it_calls_itself,
    a_command_that_has_opensafe_trace_it_runs_to_its_end,
    children_that_the_command_gives_to_opensafe_are_waited_for,
    without_sys_and_proc_a_run_is_ended_all_the_same,
    what_is_mounted_after_another_does_not_have_its_name,
];

fn signal(pid: u32, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(pid)?), signal)?)
}

/// A run under a policy that denies nothing that the command does.
fn run() -> Result<Run> {
    Run::new(&Policy::open().rule(deny("shadow").file("/etc/shadow")))
}

fn standard_streams_pass_through_byte_by_byte_and_quiet_adds_nothing() -> Result<Outcome> {
    let folder = directory()?;
    let input = folder.path().join("input");
    // Every byte, in no order that repeats soon.
    let bytes: Vec<u8> = (0_u32..300_000)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
        .collect();
    write(&input, &bytes)?;
    let program = this_program()?;
    let finished = run()?
        .options(&["--quiet"])
        .stdin(Stdio::from(fs::File::open(&input)?))
        .piped()
        .run(&[program.as_os_str(), "probe".as_ref(), "echo".as_ref()])?;
    finished.sound()?;
    let mut problems = Problems::default();
    problems.check(finished.stdout == bytes, || {
        format!(
            "standard output differs: {} bytes of {}",
            finished.stdout.len(),
            bytes.len()
        )
    });
    let reversed: Vec<u8> = bytes.into_iter().rev().collect();
    problems.check(finished.stderr == reversed, || {
        format!(
            "standard error differs: {} bytes of {}",
            finished.stderr.len(),
            reversed.len()
        )
    });
    problems.outcome()
}

fn the_commands_exit_status_is_the_runs_and_json_is_on_standard_error() -> Result<Outcome> {
    let mut problems = Problems::default();
    let finished = run()?.run(&["true"])?;
    let end = finished.sound()?.end()?;
    problems.equal("the status of true", finished.code(), 0);
    problems.equal(
        "the status on record",
        end.get("process.exit.code").cloned(),
        Some(0.into()),
    );

    let finished = run()?
        .options(&["--json", "--agent", "tester"])
        .piped()
        .run(&["sh", "-c", "cat /etc/shadow 2>&-; exit 3"])?;
    let record = finished.sound()?;
    problems.equal("the status of exit 3", finished.code(), 3);
    problems.equal(
        "the status on record",
        record.end()?.number("process.exit.code"),
        3,
    );
    problems.equal(
        "the agent",
        record.start()?.text("gen_ai.agent.name"),
        "tester",
    );
    problems.check(finished.stderr == finished.raw_record, || {
        let shown = Record::parse(&finished.stderr).map(|record| record.events.len());
        format!(
            "standard error with --json is not the record: lines {shown:?}, on record {}",
            record.events.len()
        )
    });
    problems.equal("standard output", finished.stdout.len(), 0);
    problems.outcome()
}

fn a_command_that_cannot_run_is_127_or_126() -> Result<Outcome> {
    let folder = directory()?;
    let no_program = folder.path().join("no-program");
    write(&no_program, "x")?;
    let script = folder.path().join("script");
    write(&script, "#!/no/such/interpreter\n")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let all = [
        (Path::new("no-such-command-anywhere"), 127),
        (Path::new("/no/such/program"), 127),
        (&no_program, 126),
        (folder.path(), 126),
        (&script, 126),
    ];
    for (command, status) in all {
        let finished = run()?.run(&[command])?;
        problems.equal(
            &format!("the status of {}", command.display()),
            finished.code(),
            status,
        );
        problems.check(finished.said().contains("error: command "), || {
            format!("of {} is said: {}", command.display(), finished.said())
        });
    }
    // A policy's denial of the command itself is no other thing than any program that is denied.
    let policy = Policy::open().rule(deny("it").exec("/usr/bin/true"));
    let finished = Run::new(&policy)?.run(&["/usr/bin/true"])?;
    problems.equal("the status of a denied command", finished.code(), 126);
    let denied = finished
        .sound()?
        .denials()
        .any(|line| line.text("opensafe.rule.id") == "it");
    problems.check(denied, || "the denied command is not on record".into());
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn a_signal_is_passed_on_and_a_second_request_to_end_ends_all() -> Result<Outcome> {
    let script = r#"
trap 'echo got TERM' TERM
trap 'echo got INT' INT
trap 'echo got USR1' USR1
trap 'echo got HUP' HUP
echo ready
while :; do sleep 0.1; done
"#;
    let before = Leftovers::now()?;
    let mut running = run()?.start(&["bash", "-c", script])?;
    running.wait_for_output("ready")?;
    let id = running.child.id();
    signal(id, Signal::SIGUSR1)?;
    running.wait_for_output("got USR1")?;
    signal(id, Signal::SIGINT)?;
    running.wait_for_output("got INT")?;
    // It did not end by that, so the next request is the last.
    signal(id, Signal::SIGTERM)?;
    let finished = running.finish()?;
    let mut problems = Problems::default();
    problems.equal("the status", finished.code(), 128 + 9);
    let end = finished.sound()?.end()?;
    problems.equal(
        "the signal on record",
        end.number("opensafe.process.exit.signal"),
        9,
    );
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn a_command_that_a_signal_ends_is_128_and_the_signal() -> Result<Outcome> {
    let program = this_program()?;
    let mut problems = Problems::default();
    for (sent, status) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let command = [program.as_os_str(), "probe".as_ref(), "sleeping".as_ref()];
        let mut running = run()?.start(&command)?;
        running.wait_for_output("sleeping")?;
        signal(running.child.id(), sent)?;
        let finished = running.finish()?;
        problems.equal(&format!("the status after {sent}"), finished.code(), status);
        let end = finished.sound()?.end()?;
        let on_record = end.number("opensafe.process.exit.signal");
        problems.equal("the signal on record", on_record, sent as u64);
    }
    problems.outcome()
}

fn whenever_a_run_is_asked_to_end_it_leaves_nothing_behind() -> Result<Outcome> {
    let folder = directory()?;
    let copy = own_copy(folder.path())?;
    let mut problems = Problems::default();
    // One that has the programs of another run, and one that loads its own.
    asked_to_end_at_any_time(12, run, &mut problems)?;
    asked_to_end_at_any_time(8, || Ok(run()?.by(&copy)), &mut problems)?;
    problems.outcome()
}

fn asked_to_end_at_any_time(
    times: u32,
    run: impl Fn() -> Result<Run>,
    problems: &mut Problems,
) -> Result<()> {
    let program = this_program()?;
    let command = [program.as_os_str(), "probe".as_ref(), "sleeping".as_ref()];
    let before = Leftovers::now()?;
    // How long a start takes here.
    let start = Instant::now();
    let mut running = run()?.start(&command)?;
    running.wait_for_output("sleeping")?;
    let takes = start.elapsed();
    signal(running.child.id(), Signal::SIGTERM)?;
    running.finish()?;

    let mut statuses = Vec::new();
    for time in 0..times {
        let running = run()?.start(&command)?;
        // A few milliseconds, in which the program itself starts, are no run's yet.
        sleep(Duration::from_millis(30) + takes * time / times);
        let sent = if time % 2 == 0 {
            Signal::SIGTERM
        } else {
            Signal::SIGINT
        };
        signal(running.child.id(), sent)?;
        let finished = running.finish()?;
        problems.equal(
            &format!("the status of one that got {sent} after {time}/{times} of its start"),
            finished.code(),
            128 + sent as i32,
        );
        statuses.push(finished);
    }
    Leftovers::gone_since(&before)?;
    // A record that was begun is ended.
    let unsound = statuses
        .iter()
        .filter(|finished| !finished.record.events.is_empty())
        .filter_map(|finished| finished.sound().err())
        .map(|error| format!("{error:#}"))
        .next();
    problems.check(unsound.is_none(), || {
        format!("a record is not whole: {unsound:?}")
    });
    Ok(())
}

fn what_outlives_the_command_is_ended_and_counted() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let script =
        "sleep 1000 & setsid sleep 1000 & nohup sleep 1000 >/dev/null 2>&1 & sleep 0.3; exit 4";
    let finished = run()?.run(&["bash", "-c", script])?;
    let end = finished.sound()?.end()?;
    let mut problems = Problems::default();
    problems.equal("the status", finished.code(), 4);
    problems.equal(
        "the processes killed",
        end.number("opensafe.cleanup.killed"),
        3,
    );
    problems.check(
        finished
            .said()
            .contains("3 processes outlived the command, killed"),
        || format!("the summary is {}", finished.said()),
    );
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn a_run_for_a_user_has_the_users_ids_home_and_record() -> Result<Outcome> {
    let mut problems = Problems::default();
    let script = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; touch made; stat -c %U made";
    let wanted = ["1000", "1000", "1000", "/home/agent agent agent", "agent"];
    let folder = directory()?;
    chown(folder.path(), Some(1000), Some(1000))?;
    let script = format!("cd {}; {script}", folder.path().display());

    // Named by root: the record is root's.
    let finished = run()?
        .options(&["--user", "agent"])
        .run(&["bash", "-c", &script])?;
    let record = finished.sound()?;
    problems.equal(
        "the output",
        finished.text().lines().collect::<Vec<_>>(),
        wanted.to_vec(),
    );
    let start = record.start()?;
    problems.equal(
        "the user on record",
        (start.text("user.name"), start.text("user.id")),
        ("agent", "1000"),
    );
    let by = record
        .of("exec")
        .all(|line| line.number("process.user.id") == 1000);
    problems.check(by, || "programs are on record as another user's".into());

    // Through sudo: the user's own, in their home.
    fs::remove_file(folder.path().join("made"))?;
    let rego = folder.path().join("policy.rego");
    Policy::open().write(&rego)?;
    let home = Path::new("/home/agent");
    let records = home.join(".local/state/opensafe/runs");
    let _ = fs::remove_dir_all(&records);
    let output = opensafe()
        .args(["run", "--quiet", "--policy"])
        .arg(&rego)
        .args(["--", "bash", "-c", &script])
        .envs([
            ("SUDO_UID", "1000"),
            ("SUDO_GID", "1000"),
            ("SUDO_USER", "agent"),
        ])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    problems.equal(
        "the output through sudo",
        text.lines().collect::<Vec<_>>(),
        wanted.to_vec(),
    );
    let record = fs::read_dir(&records)
        .context("the user's records")?
        .flatten()
        .next()
        .context("no record in the user's home")?;
    let metadata = record.metadata()?;
    problems.equal(
        "the record's owner",
        (metadata.uid(), metadata.gid()),
        (1000, 1000),
    );
    problems.equal("the record's mode", metadata.mode() & 0o777, 0o600);
    let directory_owner = fs::metadata(home.join(".local/state"))?.uid();
    problems.equal(
        "the owner of the directory that was made for it",
        directory_owner,
        1000,
    );
    // The user sees it.
    let output = opensafe()
        .args(["runs", "--json"])
        .env("HOME", home)
        .uid(1000)
        .gid(1000)
        .output()?;
    let listed = String::from_utf8_lossy(&output.stdout).lines().count();
    problems.equal("runs that the user sees", listed, 1);
    problems.outcome()
}

fn the_first_thing_that_a_command_does_is_decided() -> Result<Outcome> {
    // What its loader opens first; without it, it looks for libraries in their directories.
    const FIRST: &str = "/etc/ld.so.cache";
    let finished = Run::new(&Policy::open().rule(deny("first").file(FIRST)))?.run(&["true"])?;
    let mut problems = Problems::default();
    problems.equal("the status of true", finished.code(), 0);
    let record = finished.sound()?;
    let denied = record.denials().map(|denial| denial.text("file.path"));
    problems.equal("denied", denied.collect::<Vec<_>>(), vec![FIRST]);
    problems.outcome()
}

fn a_policy_file_that_changes_during_the_run_changes_nothing() -> Result<Outcome> {
    let folder = directory()?;
    let file = folder.path().join("policy.rego");
    Policy::open()
        .rule(deny("shadow").file("/etc/shadow"))
        .write(&file)?;
    Policy::open().write(&folder.path().join("open.rego"))?;
    // From inside, and with time for whoever might look.
    let script = "mv open.rego policy.rego && sleep 1 && cat /etc/shadow";
    let finished = Run::with_policy_file(folder, &file)?.run(&["sh", "-c", script])?;
    let mut problems = Problems::default();
    problems.equal("the status of cat", finished.code(), 1);
    let denied = finished
        .sound()?
        .denials()
        .map(|denial| denial.text("file.path"));
    problems.equal("denied", denied.collect::<Vec<_>>(), vec!["/etc/shadow"]);
    problems.outcome()
}

fn a_process_is_on_record_by_its_program_whatever_it_calls_itself() -> Result<Outcome> {
    const SCRIPT: &str = "open('/proc/self/comm', 'w').write('sshd'); open('/etc/shadow')";
    let finished = run()?.run(&[
        "bash",
        "-c",
        "exec -a /usr/sbin/sshd python3 -c \"$0\"",
        SCRIPT,
    ])?;
    let mut problems = Problems::default();
    let record = finished.sound()?;
    let denial = record.denials().next().context("nothing was denied")?;
    let program = fs::canonicalize("/usr/bin/python3")?;
    problems.equal(
        "the program",
        Path::new(denial.text("process.executable.path")),
        &program,
    );
    problems.equal(
        "what it calls itself",
        denial.text("opensafe.process.comm"),
        "sshd",
    );
    problems.outcome()
}

fn a_command_that_has_opensafe_trace_it_runs_to_its_end() -> Result<Outcome> {
    // Stops for a signal, for a new program, and ends as a thread that is traced.
    const SCRIPT: &str = r"
import ctypes, os, signal, sys, threading
got = []
signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
trace_me = lambda: ctypes.CDLL(None).ptrace(0, 0, 0, 0)
thread = threading.Thread(target=trace_me)
thread.start()
thread.join()
for _ in range(3):
    trace_me()
    os.kill(os.getpid(), signal.SIGUSR1)
print('got', len(got), flush=True)
trace_me()
os.execvp('sh', ['sh', '-c', 'echo and ran; exit 3'])
";
    let mut problems = Problems::default();
    let before = Leftovers::now()?;
    // Where it is not kept from it.
    let finished = run()?
        .options(&["--mode", "observe"])
        .run(&["python3", "-c", SCRIPT])?;
    problems.equal("the status", finished.code(), 3);
    problems.equal("printed", finished.text().as_str(), "got 3\nand ran\n");
    let end = finished.sound()?.end()?;
    problems.equal("the status on record", end.number("process.exit.code"), 3);
    problems.equal("outlived", end.number("opensafe.trouble.outlived"), 0);
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn children_that_the_command_gives_to_opensafe_are_waited_for() -> Result<Outcome> {
    // clone3(2) with CLONE_PARENT (include/uapi/linux/sched.h): a child of whoever started this.
    const SCRIPT: &str = r"
import ctypes, os, struct, time
arguments = struct.pack('11Q', 0x8000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
def sibling(then):
    child = ctypes.CDLL(None).syscall(435, arguments, len(arguments))
    if child == 0:
        then()
        os._exit(0)
    return child
def there(child):
    try:
        os.kill(child, 0)
        return True
    except ProcessLookupError:
        return False
ended = [sibling(lambda: None) for _ in range(20)]
for _ in range(3):
    sibling(lambda: time.sleep(1000))
time.sleep(1)
print(sum(map(there, ended)), 'are there')
";
    let before = Leftovers::now()?;
    let finished = run()?.run(&["python3", "-c", SCRIPT])?;
    let mut problems = Problems::default();
    problems.equal("the status", finished.code(), 0);
    problems.equal("printed", finished.text().as_str(), "0 are there\n");
    let end = finished.sound()?.end()?;
    problems.equal("killed", end.number("opensafe.cleanup.killed"), 3);
    problems.equal("outlived", end.number("opensafe.trouble.outlived"), 0);
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn without_sys_and_proc_a_run_is_ended_all_the_same() -> Result<Outcome> {
    let mut problems = Problems::default();
    for gone in ["/sys", "/proc", "/sys /proc"] {
        // With a cgroup of its own, which is to be removed, too.
        let script = format!(
            "mkdir /sys/fs/cgroup$(sed s/0::// /proc/self/cgroup)/own
             setsid sleep 1000 & sleep 0.3; umount -l {gone}; sleep 0.3; exit 4"
        );
        let before = Leftovers::now()?;
        let finished = run()?
            .options(&["--mode", "observe"])
            .wrapped(&["unshare", "--mount", "--"])
            .run(&["bash", "-c", &script])?;
        let claim = |what: &str| format!("{what} without {gone}");
        problems.equal(&claim("the status"), finished.code(), 4);
        let end = finished.sound()?.end()?;
        problems.equal(&claim("killed"), end.number("opensafe.cleanup.killed"), 1);
        problems.equal(
            &claim("the cgroup is removed"),
            end.flag("opensafe.cleanup.cgroup_removed"),
            Some(true),
        );
        problems.equal(
            &claim("outlived"),
            end.number("opensafe.trouble.outlived"),
            0,
        );
        if let Err(left) = Leftovers::gone_since(&before) {
            problems.check(false, || claim(&format!("{left:#}")));
        }
    }
    problems.outcome()
}

fn what_is_mounted_after_another_does_not_have_its_name() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["point", "others"] {
        fs::create_dir(path(name))?;
    }
    // Where a tmpfs counts as lying until `opensafe` has found out where it is.
    let policy = Policy::open().rule(deny("tmp").below("/tmp"));
    // A superblock without a device gets the lowest number that is free.
    let script = format!(
        "cd {}
         mount -t tmpfs none point; until true >point/first; do sleep 0.1; done
         number=$(stat -c %d point) && umount point
         for n in 1 2 3 4 5 6 7 8; do
             mkdir others/$n && mount -t ramfs none others/$n
             if [ $(stat -c %d others/$n) = $number ]; then
                 true >others/$n/secret || echo again
                 exit
             fi
         done",
        folder.path().display()
    );
    let finished = Run::new(&policy)?.run(&["unshare", "--mount", "sh", "-c", &script])?;
    let mut problems = Problems::default();
    problems.equal("printed", finished.text().as_str(), "again\n");
    let denied = finished
        .sound()?
        .denials()
        .map(|denial| denial.text("file.path"))
        .filter(|path| path.contains("secret"));
    problems.equal("denied", denied.collect::<Vec<_>>(), vec!["/secret"]);
    problems.outcome()
}
