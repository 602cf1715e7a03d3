//! Much at once.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::{
    harness::{
        Batch, Outcome, Policy, Problems, Run, attempt, deny, directory, file, this_program, write,
    },
    scenarios,
};

scenarios![
    a_flood_of_denials_and_a_burst_of_processes_are_all_denied_and_all_accounted_for,
    a_denied_file_stays_denied_to_tasks_that_preempt_each_other,
    a_full_disk_under_the_record_changes_nothing_but_the_record,
    a_denied_creation_stays_on_record_whatever_is_opened_after_it,
];

fn a_flood_of_denials_and_a_burst_of_processes_are_all_denied_and_all_accounted_for()
-> Result<Outcome> {
    const OPENS: usize = 20_000;
    const PROCESSES: usize = 200;
    let folder = directory()?;
    let (flooded, burst) = (folder.path().join("flooded"), folder.path().join("burst"));
    for path in [&flooded, &burst] {
        write(path, "x")?;
    }
    let policy = Policy::open()
        .rule(deny("flooded").file(&flooded))
        .rule(deny("burst").file(&burst));
    let mut batch = Batch::new(&policy)?;
    let times = |path: &Path, times: usize| [path.as_os_str().to_owned(), times.to_string().into()];
    batch.denied(
        attempt("fork-and-read", &times(&burst, PROCESSES)),
        file("burst", &burst, "read"),
    );
    batch.denied(
        attempt("read-often", &times(&flooded, OPENS)),
        file("flooded", &flooded, "read"),
    );
    let (finished, mut problems) = batch.run()?;
    let record = &finished.record;
    let end = record.end()?;
    let lost =
        usize::try_from(end.number("opensafe.loss.seen") - end.number("opensafe.loss.sent"))?;
    let denied = record.denials().count();
    problems.check(
        denied <= OPENS + PROCESSES && denied + lost >= OPENS + PROCESSES,
        || format!("{denied} denials are on record, {lost} events are said to be lost"),
    );
    let processes: BTreeSet<u64> = record
        .denials()
        .filter(|line| line.text("opensafe.rule.id") == "burst")
        .map(|line| line.number("process.pid"))
        .collect();
    problems.equal(
        "processes of the burst on record",
        processes.len(),
        PROCESSES,
    );
    problems.outcome()
}

/// What a kernel that preempts tasks inside it leaves out (`kernel/preemption.rs` of the agent) is not to be relied on.
fn a_denied_file_stays_denied_to_tasks_that_preempt_each_other() -> Result<Outcome> {
    const BUSY: &str = include_str!("load.py");
    let folder = directory()?;
    let closed = folder.path().join("closed");
    write(&closed, "x")?;
    let policy = Policy::open().rule(deny("closed").file(&closed));
    let command = ["python3".as_ref(), "-c".as_ref(), BUSY.as_ref()];
    let arguments = [closed.as_os_str(), "10".as_ref(), "8".as_ref()];
    let finished = Run::new(&policy)?
        .start(&[&command[..], &arguments[..]].concat())?
        .finish()?;
    let said = finished.text();
    let (got, tries) = said
        .lines()
        .find_map(|line| line.strip_prefix("got ")?.split_once(" of "))
        .with_context(|| format!("no count: {said}"))?;
    let mut problems = Problems::default();
    problems.equal("times that it was got", got, "0");
    problems.check(tries.parse::<u32>().is_ok_and(|tries| tries > 100), || {
        format!("hardly tried: {tries}")
    });
    problems.outcome()
}

fn a_full_disk_under_the_record_changes_nothing_but_the_record() -> Result<Outcome> {
    let folder = directory()?;
    let disk = folder.path().join("disk");
    fs::create_dir(&disk)?;
    mount(
        Some("tmpfs"),
        &disk,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=64k"),
    )?;
    let closed = folder.path().join("closed");
    write(&closed, "x")?;
    let policy = Policy::open().rule(deny("closed").file(&closed));
    let script = format!(
        "{} probe plain + read-often {closed} 6000 + read {closed}; exit 3",
        this_program()?.display(),
        closed = closed.display()
    );
    let record = disk.join("record.jsonl");
    let finished = Run::new(&policy)?
        .record(&record)
        .run(&["sh", "-c", &script]);
    let text = fs::read_to_string(&record).context("the record");
    umount2(&disk, MntFlags::MNT_DETACH)?;
    let (finished, text) = (finished?, text?);
    let mut problems = Problems::default();
    problems.equal("the status", finished.code(), 3);
    problems.equal(
        "what came of the opens",
        finished.text().as_str(),
        "0 EACCES\n1 EACCES\n",
    );
    let said = finished.said();
    let failed = said
        .split("incomplete: ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|number| number.parse::<u64>().ok());
    problems.check(failed.is_some_and(|failed| failed > 0), || {
        format!("the summary does not say how much is missing: {said}")
    });
    problems.check(said.matches("cannot write the record").count() <= 1, || {
        format!("it is said more than once: {said}")
    });
    // What is there is whole, but for a last line that found no room.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let broken = whole
        .lines()
        .filter(|line| serde_json::from_str::<serde_json::Value>(line).is_err())
        .count();
    problems.check(broken <= 1, || format!("{broken} lines are broken"));
    problems.check(whole.lines().count() > 10, || {
        "hardly anything was written".into()
    });
    problems.outcome()
}

fn a_denied_creation_stays_on_record_whatever_is_opened_after_it() -> Result<Outcome> {
    const ROUNDS: usize = 20;
    let folder = directory()?;
    // There, the kernel forgets at once the names of files that are not there.
    let kind = Some("tmpfs");
    mount(kind, folder.path(), kind, MsFlags::empty(), None::<&str>)?;
    let result = denied_creations(folder.path(), ROUNDS);
    umount2(folder.path(), MntFlags::MNT_DETACH)?;
    result?.outcome()
}

/// So many files are not made.
fn denied_creations(folder: &Path, rounds: usize) -> Result<Problems> {
    let (closed, open) = (folder.join("closed"), folder.join("open"));
    for directory in [&closed, &open] {
        fs::create_dir(directory)?;
    }
    let policy = Policy::open().rule(deny("closed").below(&closed).access(&["write", "create"]));
    let mut batch = Batch::new(&policy)?;
    let arguments = [closed.as_os_str(), open.as_os_str()].map(ToOwned::to_owned);
    let arguments = [&arguments[..], &[rounds.to_string().into()]].concat();
    batch.denied(
        attempt("make-and-open-links", &arguments),
        file("closed", closed.join("0"), "create"),
    );
    let (finished, mut problems) = batch.run()?;
    let made: BTreeSet<&str> = finished
        .record
        .denials()
        .map(|line| line.text("file.path"))
        .collect();
    problems.equal("denied creations on record", made.len(), rounds);
    Ok(problems)
}
