//! Something runs short while a sandbox is busy: whoever reads its events, room for its record, memory. What it may not do stays
//! denied, and each denial is on record or counted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    mount::{MsFlags, mount, umount},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{
        Finished, Leftovers, Outcome, Policy, Problems, Record, Run, Running, deny, directory,
        opensafe, wait_for, write,
    },
    scenarios,
};

scenarios![
    while_who_watches_stands_still_all_is_denied_and_what_has_no_room_is_counted,
    while_nobody_attends_all_is_denied_and_what_has_no_room_is_counted,
    while_the_disk_is_full_and_nobody_attends_all_is_denied_and_nothing_is_lost_uncounted,
    who_takes_all_memory_is_ended_and_not_who_watches_and_all_stays_denied,
];

/// Waits until it is told to begin, opens what is closed so often, says how often it could not, and goes on for a while.
const FLOOD: &str = "
import os, sys, time
closed, folder, opens = sys.argv[1], sys.argv[2], int(sys.argv[3])
def there(name): return os.path.exists(folder + '/' + name)
def denied():
    try: os.close(os.open(closed, os.O_RDONLY)); return 0
    except PermissionError: return 1
print('ready', flush=True)
while not there('begin'): time.sleep(0.02)
print('denied', sum(denied() for _ in range(opens)), flush=True)
while not there('end'): time.sleep(0.02)
print('denied', sum(denied() for _ in range(10)), flush=True)
";
/// More than have room in the ring buffer.
const OPENS: usize = 60_000;
/// Those at the end.
const MORE: usize = 10;

/// A run that is told when to flood its supervisor, and when to end.
struct Flooding {
    folder: tempfile::TempDir,
    record: PathBuf,
    running: Running,
}

impl Flooding {
    fn start(record: Option<PathBuf>, opens: usize) -> Result<Self> {
        let folder = directory()?;
        let closed = folder.path().join("closed");
        write(&closed, "x")?;
        let record = record.unwrap_or_else(|| folder.path().join("record.jsonl"));
        let policy = Policy::open().rule(deny("closed").file(&closed));
        let words = [
            "python3",
            "-c",
            FLOOD,
            &closed.display().to_string(),
            &folder.path().display().to_string(),
            &opens.to_string(),
        ]
        .map(str::to_owned);
        let mut running = Run::new(&policy)?.record(&record).start(&words)?;
        running.wait_for_output("ready")?;
        Ok(Self {
            folder,
            record,
            running,
        })
    }

    fn tell(&self, what: &str) -> Result<()> {
        write(&self.folder.path().join(what), "")
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(
            Pid::from_raw(self.running.child.id().cast_signed()),
            signal,
        )?)
    }

    fn run(&self) -> Result<String> {
        let record = Record::so_far(&self.record)?;
        Ok(record.start()?.text("opensafe.run.id").to_owned())
    }

    /// Floods; returns when it is over.
    fn flood(&mut self, opens: usize) -> Result<()> {
        self.tell("begin")?;
        self.running.wait_for_output(&format!("denied {opens}\n"))?;
        Ok(())
    }

    /// Kills who watches, floods, and has the run taken up.
    fn flood_unattended(mut self, opens: usize) -> Result<Unattended> {
        let run = self.run()?;
        self.signal(Signal::SIGKILL)?;
        // The command goes on, and its output comes to the same file.
        self.running.child.wait()?;
        self.tell("begin")?;
        let told = format!("denied {opens}\n");
        wait_for("the flood to be over", || {
            self.running.output().is_ok_and(|said| said.contains(&told))
        })?;
        let again = opensafe()
            .args(["adopt", "--quiet", &run])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Unattended {
            flooding: self,
            again,
        })
    }
}

/// One that was taken up again.
struct Unattended {
    flooding: Flooding,
    again: Child,
}

impl Unattended {
    fn finish(self) -> Result<(Record, String)> {
        self.flooding.tell("end")?;
        let output = self.again.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{:?}: {said}", output.status);
        let record = Record::parse(&fs::read(&self.flooding.record)?)?;
        record.is_sound()?;
        let text = self.flooding.running.output()?;
        Ok((record, text))
    }
}

/// Each of so many denials is on record, or one of those that were lost for these reasons.
fn accounts_for(
    record: &Record,
    denials: usize,
    reasons: &[&str],
    problems: &mut Problems,
) -> Result<()> {
    let end = record.end()?;
    let loss = |reason: &str| end.number(&format!("opensafe.loss.{reason}"));
    let lost: u64 = reasons.iter().map(|reason| loss(reason)).sum();
    let all = loss("seen") - loss("sent");
    problems.equal("events lost for any reason", all, lost);
    let on_record = record.denials().count() as u64;
    problems.check(
        on_record <= denials as u64 && on_record + lost >= denials as u64,
        || format!("{denials} denials, {on_record} on record, {lost} lost: {end}"),
    );
    problems.check(lost > 0, || {
        "nothing was lost: there was room for all".to_owned()
    });
    Ok(())
}

fn while_who_watches_stands_still_all_is_denied_and_what_has_no_room_is_counted() -> Result<Outcome>
{
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let mut flooding = Flooding::start(None, OPENS)?;
    flooding.signal(Signal::SIGSTOP)?;
    flooding.flood(OPENS)?;
    flooding.signal(Signal::SIGCONT)?;
    flooding.tell("end")?;
    let finished: Finished = flooding.running.finish()?;
    problems.equal("the run's status", finished.code(), 0);
    problems.check(
        finished.text().contains(&format!("denied {MORE}\n")),
        || finished.text().to_owned(),
    );
    let record = Record::parse(&fs::read(&flooding.record)?)?;
    record.is_sound()?;
    let reasons = ["ring_full", "queue_full"];
    accounts_for(&record, OPENS + MORE, &reasons, &mut problems)?;
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn while_nobody_attends_all_is_denied_and_what_has_no_room_is_counted() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let flooded = Flooding::start(None, OPENS)?.flood_unattended(OPENS)?;
    // Before the end: how a command ended is told in the ring buffer, too, in which there is no room.
    let path = flooded.flooding.record.clone();
    wait_for("the run to be taken up", || {
        Record::so_far(&path).is_ok_and(|record| record.of("run.adopted").count() == 1)
    })?;
    let (record, text) = flooded.finish()?;
    problems.check(text.contains(&format!("denied {MORE}\n")), || text.clone());
    let reasons = ["ring_full", "queue_full", "agent_killed"];
    accounts_for(&record, OPENS + MORE, &reasons, &mut problems)?;
    let adopted = record.of("run.adopted").next().context("not taken up")?;
    let lost = adopted.number("opensafe.unattended.lost");
    let ring_full = record.end()?.number("opensafe.loss.ring_full");
    problems.check(lost > 0 && lost <= ring_full, || {
        format!("{lost} lost while nobody attended, {ring_full} in all")
    });
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

/// The record's disk is full when its supervisor is killed, while it is taken up, and until shortly before the end.
fn while_the_disk_is_full_and_nobody_attends_all_is_denied_and_nothing_is_lost_uncounted()
-> Result<Outcome> {
    const FEW: usize = 3000;
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let folder = directory()?;
    let disk = folder.path().join("disk");
    fs::create_dir(&disk)?;
    let size = |flags, size| mount(Some("tmpfs"), &disk, Some("tmpfs"), flags, Some(size));
    size(MsFlags::empty(), "size=256k")?;
    let flooding = Flooding::start(Some(disk.join("record.jsonl")), FEW)?;
    let filled = fill(&disk.join("filler"));
    problems.check(filled > 0, || "the disk could not be filled".to_owned());
    let flooded = flooding.flood_unattended(FEW)?;
    let run = flooded.flooding.run()?;
    wait_for("somebody to attend", || {
        let output = opensafe().args(["runs", "--json"]).output();
        output.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout);
            !text
                .lines()
                .any(|line| line.contains(&run) && line.contains("unattended"))
        })
    })?;
    size(MsFlags::MS_REMOUNT, "size=64m")?;
    let (record, text) = flooded.finish()?;
    problems.check(text.contains(&format!("denied {MORE}\n")), || text.clone());
    let end = record.end()?;
    let lost = end.number("opensafe.loss.seen") - end.number("opensafe.loss.sent");
    let on_record = record.denials().count() as u64;
    let all = (FEW + MORE) as u64;
    problems.check(on_record <= all && on_record + lost >= all, || {
        format!("{all} denials, {on_record} on record, {lost} lost: {end}")
    });
    umount(&disk)?;
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

/// Writes until there is no room; how many bytes that took.
fn fill(file: &Path) -> usize {
    let mut bytes = vec![b'x'; 1 << 20];
    while !bytes.is_empty() && fs::write(file, &bytes).is_err() {
        bytes.truncate(bytes.len() - 4096);
    }
    bytes.len()
}

fn who_takes_all_memory_is_ended_and_not_who_watches_and_all_stays_denied() -> Result<Outcome> {
    const HOG: &str = "
import os, sys
closed = sys.argv[1]
hog = os.fork()
if hog == 0:
    all = []
    while True: all.append(b'x' * (16 << 20))
tries = denied = 0
while os.waitpid(hog, os.WNOHANG) == (0, 0):
    tries += 1
    try: os.close(os.open(closed, os.O_RDONLY))
    except PermissionError: denied += 1
print('tries', tries, 'not denied', tries - denied)
";
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let folder = directory()?;
    let closed = folder.path().join("closed");
    write(&closed, "x")?;
    let policy = Policy::open().rule(deny("closed").file(&closed));
    let closed = closed.display().to_string();
    let finished = Run::new(&policy)?.run(&["python3", "-c", HOG, &closed])?;
    problems.equal("the run's status", finished.code(), 0);
    let text = finished.text();
    problems.check(
        text.contains("tries ") && text.trim().ends_with("not denied 0"),
        || text.to_owned(),
    );
    let record = finished.sound()?;
    let killed = record
        .of("exit")
        .any(|line| line.number("opensafe.process.exit.signal") == Signal::SIGKILL as u64);
    problems.check(killed, || {
        "no process was ended for want of memory".to_owned()
    });
    Leftovers::gone_since(&before)?;
    problems.outcome()
}
