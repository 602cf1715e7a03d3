//! Who is in a sandbox, and who is not.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::{
    harness::{
        Batch, Finished, Leftovers, Outcome, Policy, Problems, Run, Running, attempt, deny,
        directory, file, held, this_program, wait_for, write,
    },
    scenarios,
};

scenarios![
    a_run_cannot_change_its_own_record,
    a_run_cannot_change_the_record_of_another_wherever_it_lies,
    no_directory_above_the_record_of_another_is_moved,
    descendants_threads_daemons_and_own_cgroups_are_treated_the_same,
    leaving_the_cgroup_is_no_way_out_and_entering_it_is_a_way_in,
    three_runs_at_once_do_not_mix,
    opensafe_leaves_the_cgroup_into_which_root_inside_moves_it,
];

fn descendants_threads_daemons_and_own_cgroups_are_treated_the_same() -> Result<Outcome> {
    let folder = directory()?;
    let policy = Policy::open().rule(deny("closed").below(folder.path().join("closed")));
    let mut batch = Batch::new(&policy)?;
    for directory in ["closed", "open"] {
        fs::create_dir(folder.path().join(directory))?;
    }
    for shape in ["plain", "deep:3", "thread", "daemon", "cgroup"] {
        let (closed, open) = (folder.path().join("closed"), folder.path().join("open"));
        let (closed, open) = (closed.join(shape), open.join(shape));
        write(&closed, "x")?;
        write(&open, "x")?;
        let tried = |path: &std::path::Path| {
            attempt("as", &[shape.as_ref(), "read".as_ref(), path.as_os_str()])
        };
        batch.denied(tried(&closed), file("closed", &closed, "read"));
        batch.allowed(tried(&open), file("defaults.file", &open, "read"));
    }
    let finished = batch.check()?;
    let deep = |line: &crate::harness::Event| {
        line.text("file.path").ends_with("closed/deep:3")
            && line.texts("opensafe.process.ancestors").len() >= 4
    };
    anyhow::ensure!(
        finished.record.denials().any(deep),
        "the ancestors of a process three levels deep are not on record"
    );
    held()
}

/// Everything by which a record would be changed fails, and it is read.
fn is_kept(batch: &mut Batch, record: &Path) {
    let denied = |access| file("opensafe.records", record, access);
    for verb in ["write", "append", "open-and-empty", "truncate"] {
        batch.denied(attempt(verb, &[record]), denied("write"));
    }
    batch.denied(attempt("unlink", &[record]), denied("delete"));
    let beside = record.with_extension("beside");
    batch.fails(attempt("rename", &[record, &beside]), "EACCES");
    batch.works(attempt("create", &[&beside]));
    batch.fails(attempt("rename", &[&beside, record]), "EACCES");
    batch.works(attempt("read", &[record]));
}

fn a_run_cannot_change_its_own_record() -> Result<Outcome> {
    let mut batch = Batch::new(&Policy::open())?;
    let record = batch.record().to_owned();
    is_kept(&mut batch, &record);
    batch.check()?;
    held()
}

fn a_run_cannot_change_the_record_of_another_wherever_it_lies() -> Result<Outcome> {
    let folder = directory()?;
    let record = folder.path().join("other.jsonl");
    let other = going_on(&record)?;
    let mut batch = Batch::new(&Policy::open())?;
    is_kept(&mut batch, &record);
    // By another name, too.
    let alias = record.with_extension("alias");
    fs::hard_link(&record, &alias)?;
    batch.denied(
        attempt("append", &[&alias]),
        file("opensafe.records", &alias, "write"),
    );
    batch.check()?;
    ended(other)?.sound()?;
    // It is nobody's record any more.
    let mut batch = Batch::new(&Policy::open())?;
    batch.works(attempt("append", &[&record]));
    batch.check()?;
    held()
}

/// A run that goes on until its standard input ends.
fn going_on(record: &Path) -> Result<Running> {
    let mut running = Run::new(&Policy::open())?
        .record(record)
        .stdin(Stdio::piped())
        .start(&["sh", "-c", "echo ready; read -r _"])?;
    running.wait_for_output("ready")?;
    Ok(running)
}

fn ended(mut running: Running) -> Result<Finished> {
    drop(running.child.stdin.take());
    running.finish()
}

fn no_directory_above_the_record_of_another_is_moved() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["srv/records", "false", "bound"] {
        fs::create_dir_all(path(name))?;
    }
    let is_moved = |is_kept: bool| -> Result<()> {
        let mut batch = Batch::new(&Policy::open())?;
        for (name, aside) in [("srv/records", "srv/aside"), ("srv", "aside")] {
            for (verb, other) in [("rename", aside), ("exchange", "false")] {
                let (here, there) = (path(name), path(other));
                let ways = [
                    attempt(verb, &[&here, &there]),
                    attempt(verb, &[&there, &here]),
                ];
                // A second time, the other way round: what was moved is where it was.
                for (way, is_first) in ways.into_iter().zip([true, false]) {
                    match (is_kept, verb) {
                        (true, "rename") if !is_first => {}
                        (true, _) => batch.denied(way, file("opensafe.records", &here, "rename")),
                        (false, _) => batch.works(way),
                    }
                }
            }
        }
        // All else is as ever.
        batch.works(attempt("create", &[path("srv/records/beside")]));
        batch.works(attempt("unlink", &[path("srv/records/beside")]));
        batch.works(attempt("rename", &[path("false"), path("free")]));
        batch.works(attempt("rename", &[path("free"), path("false")]));
        batch.check()?;
        Ok(())
    };
    let one = going_on(&path("srv/records/one.jsonl"))?;
    // Known by another name than the one by which it is moved.
    let none = None::<&str>;
    mount(
        Some(&path("srv/records")),
        &path("bound"),
        none,
        MsFlags::MS_BIND,
        none,
    )?;
    let two = going_on(&path("bound/two.jsonl"))?;
    umount2(&path("bound"), MntFlags::MNT_DETACH)?;
    is_moved(true)?;
    ended(one)?.sound()?;
    is_moved(true)?;
    ended(two)?;
    is_moved(false)?;
    held()
}

fn leaving_the_cgroup_is_no_way_out_and_entering_it_is_a_way_in() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    write(&path("closed"), "x")?;
    fs::copy("/bin/true", path("program"))?;
    let policy = Policy::open()
        .rule(deny("closed").file(path("closed")))
        .rule(deny("program").exec(path("program")));
    let mut batch = Batch::new(&policy)?.shape("waiting").stdin(Stdio::piped());
    batch.denied(
        attempt("read", &[path("closed")]),
        file("closed", path("closed"), "read"),
    );
    // Its children are born outside the cgroup.
    batch.denied(
        attempt("as", &["deep:2".into(), "read".into(), path("closed")]),
        file("closed", path("closed"), "read"),
    );
    batch.fails(attempt("exec", &[path("program")]), "EACCES");
    let (mut running, pending) = batch.start()?;
    let pid = waiting(&running.wait_for_output("waiting ")?)?;
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let cgroup = cgroup.trim().strip_prefix("0::").context("no cgroup v2")?;
    let cgroup = format!("/sys/fs/cgroup{cgroup}");

    let mut problems = Problems::default();
    // Outside, all is as ever.
    problems.check(fs::read(path("closed")).is_ok(), || {
        "we cannot read the file".into()
    });
    let ran = Command::new(path("program")).status();
    problems.check(ran.is_ok_and(|status| status.success()), || {
        "we cannot run it".into()
    });

    // One of ours is moved in.
    let mut outsider = Command::new(this_program()?)
        .args(["probe", "waiting", "+", "read"])
        .arg(path("closed"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    fs::write(format!("{cgroup}/cgroup.procs"), outsider.id().to_string())?;
    // Another is born inside, of a parent outside.
    let born = Command::new("python3")
        .args(["-c", BORN_INSIDE, &cgroup])
        .arg(this_program()?)
        .args(["probe", "plain", "+", "read"])
        .arg(path("closed"))
        .output()?;
    let said = String::from_utf8_lossy(&born.stdout).into_owned();
    problems.check(said.contains("0 EACCES"), || {
        let why = String::from_utf8_lossy(&born.stderr).into_owned();
        format!("who was born inside got {said:?} {why}")
    });
    // The sandbox's own is moved out.
    fs::write("/sys/fs/cgroup/cgroup.procs", &pid)?;
    let moved = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    problems.equal("the cgroup after the move", moved.trim(), "0::/");

    let mut stdin = outsider.stdin.take().context("no standard input")?;
    stdin.write_all(b"go\n")?;
    let outsider_id = u64::from(outsider.id());
    let output = outsider.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    problems.check(said.contains("0 EACCES"), || {
        format!("who was moved in got {said:?}")
    });

    let mut stdin = running.child.stdin.take().context("no standard input")?;
    stdin.write_all(b"go\n")?;
    drop(stdin);
    let finished = running.finish()?;
    pending.compare(&finished, &mut problems)?;
    let by = |pid: u64| {
        finished
            .record
            .events
            .iter()
            .filter(move |line| line.number("process.pid") == pid)
    };
    problems.check(
        by(outsider_id).any(|line| line.text("opensafe.rule.id") == "closed"),
        || "who was moved in is not on record".into(),
    );
    problems.equal(
        "our own lines",
        by(u64::from(std::process::id())).count(),
        0,
    );
    let programs = finished.record.of("exec").filter(|line| {
        line.text("file.path").ends_with("/program") && line.text("opensafe.verdict") != "deny"
    });
    problems.equal(
        "programs run outside that are on record",
        programs.count(),
        0,
    );
    problems.outcome()
}

/// clone3(2) with CLONE_INTO_CGROUP (include/uapi/linux/sched.h) and SIGCHLD; the child runs the command.
const BORN_INSIDE: &str = r"
import ctypes, os, struct, sys
cgroup = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
arguments = struct.pack('11Q', 0x200000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, cgroup)
child = ctypes.CDLL(None, use_errno=True).syscall(435, arguments, len(arguments))
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
if child < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(child, 0)
";

fn waiting(output: &str) -> Result<String> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("waiting "));
    Ok(line.context("not waiting")?.to_owned())
}

fn three_runs_at_once_do_not_mix() -> Result<Outcome> {
    let folder = directory()?;
    let files = ["a", "b", "c"].map(|name| folder.path().join(name));
    for path in &files {
        write(path, "x")?;
    }
    let mut runs = Vec::new();
    for (own, name) in ["a", "b", "c"].iter().enumerate() {
        let rule = format!("only.{name}");
        let policy = Policy::open().rule(deny(&rule).file(&files[own]));
        let mut batch = Batch::new(&policy)?.shape("waiting").stdin(Stdio::piped());
        for (at, path) in files.iter().enumerate() {
            if at == own {
                batch.denied(attempt("read", &[path]), file(&rule, path, "read"));
            } else {
                batch.allowed(
                    attempt("read", &[path]),
                    file("defaults.file", path, "read"),
                );
            }
        }
        runs.push(batch.start()?);
    }
    for (running, _) in &mut runs {
        running.wait_for_output("waiting ")?;
    }
    let mut problems = Problems::default();
    for (running, _) in &mut runs {
        let mut stdin = running.child.stdin.take().context("no standard input")?;
        stdin.write_all(b"go\n")?;
    }
    for (at, (running, pending)) in runs.into_iter().enumerate() {
        let finished = running.finish()?;
        pending.compare(&finished, &mut problems)?;
        let strange = finished
            .record
            .denials()
            .filter(|line| line.bytes("file.path") != files[at].as_os_str().as_encoded_bytes());
        problems.equal("denials of other runs on record", strange.count(), 0);
    }
    // None of them outlives its run.
    wait_for("the file to be readable", || File::open(&files[0]).is_ok())?;
    problems.outcome()
}

fn opensafe_leaves_the_cgroup_into_which_root_inside_moves_it() -> Result<Outcome> {
    let folder = directory()?;
    let closed = folder.path().join("closed");
    write(&closed, "x")?;
    let policy = Policy::open().rule(deny("closed").file(&closed));
    let before = Leftovers::now()?;
    // The parent of a run's first process is `opensafe`. At once, and again shortly before the end.
    let script = r#"
own=/sys/fs/cgroup$(sed s/0::// /proc/self/cgroup)
echo $PPID >$own/cgroup.procs || exit 3
cat "$1"
sleep 0.5
sed s/0::// /proc/$PPID/cgroup
echo $PPID >$own/cgroup.procs
"#;
    let finished =
        Run::new(&policy)?.run(&["sh", "-c", script, "sh", &closed.to_string_lossy()])?;
    let mut problems = Problems::default();
    problems.equal("the exit status", finished.code(), 0);
    problems.equal("where it is then", finished.text().trim(), "/");
    let denials = finished.sound()?.denials();
    let rules: Vec<_> = denials
        .map(|line| line.text("opensafe.rule.id").to_owned())
        .collect();
    problems.equal("the denials", rules, vec!["closed".to_owned()]);
    problems.check(finished.said().contains("was moved"), || {
        format!("nothing is said of it: {}", finished.said())
    });
    Leftovers::gone_since(&before)?;
    problems.outcome()
}
