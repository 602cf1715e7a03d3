//! What a sandbox does against opensafe, and against other sandboxes.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{
        Batch, Leftovers, Outcome, Policy, Problems, Run, Running, attempt, deny, directory,
        own_copy, skipped, wait_for, write,
    },
    scenarios,
};

scenarios![who_hardly_gets_to_run_keeps_no_memory_from_others];

/// Those to which a kernel makes no difference.
pub(super) mod others {
    use super::{
        a_process_with_the_id_of_a_dead_opensafe_is_nobody_special,
        a_sandbox_with_all_threads_that_it_may_have_leaves_others_theirs,
        file_systems_beyond_a_sandbox_s_share_are_counted,
        mounts_without_end_do_not_keep_opensafe_from_its_work,
        what_is_mounted_by_others_gets_no_name_of_the_sandbox_s_choice,
    };

    crate::scenarios![
        a_process_with_the_id_of_a_dead_opensafe_is_nobody_special,
        what_is_mounted_by_others_gets_no_name_of_the_sandbox_s_choice,
        mounts_without_end_do_not_keep_opensafe_from_its_work,
        a_sandbox_with_all_threads_that_it_may_have_leaves_others_theirs,
        file_systems_beyond_a_sandbox_s_share_are_counted,
    ];
}

const INSIDE: &str = include_str!("against.py");

/// Starts what [`INSIDE`] has under that name.
fn start(run: Run, what: &str, arguments: &[&Path]) -> Result<Running> {
    let mut command = vec!["python3".as_ref(), "-c".as_ref(), INSIDE.as_ref()];
    command.push(what.as_ref());
    command.extend(arguments.iter().map(|path| path.as_os_str()));
    run.start(&command)
}

fn signal(running: &Running, signal: Signal) -> Result<()> {
    let id = i32::try_from(running.child.id())?;
    Ok(kill(Pid::from_raw(id), signal)?)
}

fn a_process_with_the_id_of_a_dead_opensafe_is_nobody_special() -> Result<Outcome> {
    let folder = directory()?;
    let copy = own_copy(folder.path())?;
    let (closed, dead) = (folder.path().join("closed"), folder.path().join("dead"));
    write(&closed, "content")?;
    let before = Leftovers::now()?;
    // As long as it goes on, what the other one leaves stays confined.
    let mut other = Run::new(&Policy::open())?
        .by(&copy)
        .stdin(Stdio::piped())
        .start(&["sh", "-c", "echo ready; read -r _"])?;
    other.wait_for_output("ready")?;
    let policy = Policy::open().rule(deny("closed").file(&closed));
    let run = Run::new(&policy)?.by(&copy);
    let mut run = start(run, "as_the_dead", &[&dead, &closed])?;
    run.wait_for_output("ready")?;
    signal(&run, Signal::SIGKILL)?;
    run.child.wait()?;
    write(&dead, "")?;
    wait_for("what is left of it", || {
        run.output().is_ok_and(|text| text.contains("done"))
    })?;
    let said = run.output()?;
    let mut problems = Problems::default();
    for (line, what) in [
        ("it: EACCES", "the process with its id"),
        ("its child: EACCES", "a child of that"),
        ("its child elsewhere: EACCES", "a child in another cgroup"),
    ] {
        problems.check(said.contains(line), || {
            format!("{what} is not confined: {said}")
        });
    }
    drop(other.child.stdin.take());
    other.finish()?.sound()?;
    for left in Leftovers::now()?.cgroups_since(&before) {
        fs::write(Path::new(&left).join("cgroup.kill"), "1")?;
    }
    // The next run puts to rest what the one that was killed has left.
    Run::new(&Policy::open())?.run(&["true"])?.sound()?;
    wait_for("what was left to be put to rest", || {
        Leftovers::now().is_ok_and(|now| now.cgroups_since(&before).is_empty())
    })?;
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn what_is_mounted_by_others_gets_no_name_of_the_sandbox_s_choice() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["secret", "open"] {
        fs::create_dir(path(name))?;
    }
    let kind = Some("tmpfs");
    mount(kind, &path("secret"), kind, MsFlags::empty(), None::<&str>)?;
    write(&path("secret/token"), "content")?;
    // A descriptor keeps it, as a process that still uses it would.
    let kept = File::open(path("secret"));
    let policy = Policy::open().rule(deny("secret").below(path("secret")));
    let mut running = start(
        Run::new(&policy)?,
        "hold",
        &[&path("secret"), &path("open"), &path("stop")],
    )?;
    let bound = running.wait_for_output("bound ");
    umount2(&path("secret"), MntFlags::MNT_DETACH)?;
    bound?;
    // It has been looked for a name when this one has its own.
    mount(kind, &path("secret"), kind, MsFlags::empty(), None::<&str>)?;
    let looked = (|| {
        write(&path("secret/token"), "content")?;
        std::thread::sleep(std::time::Duration::from_secs(3));
        write(&path("stop"), "")
    })();
    umount2(&path("secret"), MntFlags::MNT_DETACH)?;
    drop(kept);
    looked?;
    let finished = running.finish()?;
    let text = finished.text();
    let end = text.lines().find_map(|line| line.strip_prefix("end "));
    let (reads, tries) = end.and_then(|end| end.split_once(' ')).context("no end")?;
    let mut problems = Problems::default();
    problems.check(text.contains("bound EACCES"), || {
        format!("it is not denied while it is there: {text}")
    });
    problems.equal("reads", reads, "0");
    problems.check(tries.parse::<u32>().is_ok_and(|tries| tries > 10), || {
        format!("hardly tried: {text}")
    });
    problems.outcome()
}

fn who_hardly_gets_to_run_keeps_no_memory_from_others() -> Result<Outcome> {
    const PATIENCE_S: &str = "10";
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let major = kernel
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if major.context("no version")? < 7 {
        return skipped(
            "no program of the kernel's is preempted before Linux 7.0, unless it was told to be",
        );
    }
    let (folder, workspace) = (directory()?, directory()?);
    let busy = folder.path().join("busy");
    let policy = Policy::open().rule(deny("closed").file_globs(&["/**/closed"]).access(&["read"]));
    let greedy = start(Run::new(&policy)?, "keep", &[&busy, PATIENCE_S.as_ref()])?;
    wait_for("processes that are denied", || busy.exists())?;
    let modest = start(
        Run::new(&policy)?,
        "work",
        &[workspace.path(), PATIENCE_S.as_ref()],
    )?;
    let modest = modest.finish()?;
    let greedy = greedy.finish()?;
    let mut problems = Problems::default();
    let said = modest.text();
    problems.check(
        said.contains("failed 0 ") && !said.contains("done 0"),
        || format!("beside it: {said}"),
    );
    problems.no_denial_but(modest.sound()?, None);
    let end = greedy.sound()?.end()?;
    problems.equal("lost of its own", end.number("opensafe.loss.no_scratch"), 0);
    problems.check(greedy.record.denials().count() > 10, || {
        "hardly anything was denied".into()
    });
    problems.outcome()
}

fn mounts_without_end_do_not_keep_opensafe_from_its_work() -> Result<Outcome> {
    const MOUNTS: &str = "20000";
    const OPENS: &str = "3000";
    let folder = directory()?;
    fs::create_dir_all(folder.path().join("closed/tmpfs"))?;
    let policy = Policy::open()
        .rule(deny("closed").below(folder.path().join("closed")))
        .rule(deny("anywhere").file_globs(&["/**/anywhere"]));
    let mut running = start(
        Run::new(&policy)?,
        "mount_without_end",
        &[folder.path(), MOUNTS.as_ref(), OPENS.as_ref()],
    )?;
    running.wait_for_output("ready")?;
    signal(&running, Signal::SIGTERM)?;
    let finished = running.finish()?;
    let denied = finished.sound()?.denials();
    let denied = denied.filter(|line| line.text("opensafe.rule.id") == "anywhere");
    let mut problems = Problems::default();
    problems.equal(
        "denials on record",
        denied.count().to_string().as_str(),
        OPENS,
    );
    problems.outcome()
}

fn a_sandbox_with_all_threads_that_it_may_have_leaves_others_theirs() -> Result<Outcome> {
    // More than its share of the 65,536 marks, and fewer than those of all.
    const THREADS: &str = "17000";
    // Each thread has a few mappings.
    const LIMITS: [(&str, &str); 2] = [
        ("/proc/sys/kernel/threads-max", "60000"),
        ("/proc/sys/vm/max_map_count", "200000"),
    ];
    let before = LIMITS.map(|(limit, _)| fs::read_to_string(limit));
    for (limit, value) in LIMITS {
        fs::write(limit, value)?;
    }
    let tried = room_for_threads(THREADS);
    for ((limit, _), value) in LIMITS.iter().zip(before) {
        fs::write(limit, value?.trim())?;
    }
    tried?.outcome()
}

fn room_for_threads(threads: &str) -> Result<Problems> {
    let folder = directory()?;
    let (full, stop) = (folder.path().join("full"), folder.path().join("stop"));
    let mut greedy = Batch::new(&Policy::open())?;
    let arguments = [threads.as_ref(), full.as_os_str(), stop.as_os_str()];
    // pthread_create(3) makes that of the kernel's ENOMEM.
    greedy.fails(attempt("threads-until-refused", &arguments), "EAGAIN");
    let (running, pending) = greedy.start()?;
    wait_for("all threads that it may have", || full.exists())?;
    let mut modest = Batch::new(&Policy::open())?;
    modest.works(attempt(
        "as",
        &["deep:3".as_ref(), "read".as_ref(), full.as_os_str()],
    ));
    let modest = modest.check();
    write(&stop, "")?;
    let finished = running.finish()?;
    modest?;
    let mut problems = Problems::default();
    pending.compare(&finished, &mut problems)?;
    let end = finished.sound()?.end()?;
    problems.equal(
        "forks refused",
        end.number("opensafe.trouble.forks_refused"),
        1,
    );
    Ok(problems)
}

fn file_systems_beyond_a_sandbox_s_share_are_counted() -> Result<Outcome> {
    // A quarter of the 4,096 that can be known as some sandbox's own, and a few.
    const MANY: &str = "1030";
    let folder = directory()?;
    let running = start(
        Run::new(&Policy::open())?,
        "make_file_systems",
        &[folder.path(), MANY.as_ref()],
    )?;
    let finished = running.finish()?;
    let end = finished.sound()?.end()?;
    let mut problems = Problems::default();
    problems.check(finished.text().contains("made"), || {
        format!("they were not made: {}", finished.said())
    });
    problems.equal(
        "beyond its share",
        end.number("opensafe.trouble.no_room"),
        6,
    );
    problems.outcome()
}
