//! Whoever attends to a run is killed: its sandbox stays confined, and the run is taken up.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{
        Event, Leftovers, Outcome, Policy, Problems, Record, Run, Running, deny, directory,
        opensafe, wait_for, write,
    },
    scenarios,
};

scenarios![
    who_is_killed_leaves_its_sandbox_confined_and_the_run_is_taken_up,
    the_next_run_takes_up_what_nobody_attends_to,
    what_holds_the_programs_is_out_of_a_sandboxs_reach,
];

/// Reads what is closed again and again, and notes each time whether it could, until a file is there; then ends.
const LOOP: &str = "while ! [ -e \"$2\" ]; do \
    if cat \"$1\" >/dev/null 2>&1; then echo open >>\"$3\"; else echo closed >>\"$3\"; fi; sleep 0.05; done; exit 7";

/// A run whose command goes on trying.
struct Trying {
    folder: tempfile::TempDir,
    running: Option<Running>,
    record: PathBuf,
}

impl Trying {
    fn start() -> Result<Self> {
        let folder = directory()?;
        let closed = folder.path().join("closed");
        write(&closed, "x")?;
        let record = folder.path().join("record.jsonl");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let command = [
            "bash",
            "-c",
            LOOP,
            "bash",
            &at("closed"),
            &at("stop"),
            &at("tries"),
        ]
        .map(str::to_owned);
        let running = Run::new(&Policy::open().rule(deny("closed").file(&closed)))?
            .record(&record)
            .start(&command)?;
        let trying = Self {
            folder,
            running: Some(running),
            record,
        };
        trying.goes_on()?;
        Ok(trying)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tries(&self) -> Vec<String> {
        let text = fs::read_to_string(self.at("tries")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for more tries.
    fn goes_on(&self) -> Result<()> {
        let before = self.tries().len();
        wait_for("five more tries", || self.tries().len() >= before + 5)
    }

    /// Has `opensafe` killed; the run's id.
    fn kill(&mut self) -> Result<String> {
        let run = lines(&self.record)?
            .first()
            .map(|line| line.text("opensafe.run.id").to_owned())
            .context("no record")?;
        let running = self.running.take().context("killed already")?;
        kill(
            Pid::from_raw(running.child.id().cast_signed()),
            Signal::SIGKILL,
        )?;
        let finished = running.finish()?;
        match finished.code() {
            137 => Ok(run),
            other => bail!("opensafe ended with {other}, not by SIGKILL"),
        }
    }

    fn is_taken_up(&self) -> Result<()> {
        let is_it = |line: &Event| line.text("opensafe.event") == "run.adopted";
        wait_for("the run to be taken up", || {
            lines(&self.record).is_ok_and(|lines| lines.iter().any(is_it))
        })
    }

    /// Has the command end.
    fn stop(&self) -> Result<()> {
        write(&self.at("stop"), "")
    }

    /// What holds once the run has ended: it was confined all the time, and all is on record or counted.
    fn check(&self, problems: &mut Problems) -> Result<()> {
        let record = Record::parse(&fs::read(&self.record)?)?;
        record.is_sound()?;
        let tries = self.tries();
        problems.check(tries.iter().all(|line| line == "closed"), || {
            format!("of {} tries some succeeded: {tries:?}", tries.len())
        });
        let adopted = record
            .events
            .iter()
            .filter(|line| line.text("opensafe.event") == "run.adopted")
            .count();
        problems.equal("lines that say that it was taken up", adopted, 1);
        let end = record.end()?;
        let lost = end.number("opensafe.loss.agent_killed") + end.number("opensafe.loss.ring_full");
        let recorded = record.denials().count() as u64;
        problems.check(
            recorded <= tries.len() as u64 + 1 && recorded + lost >= tries.len() as u64,
            || {
                format!(
                    "{} tries, {recorded} on record and {lost} lost",
                    tries.len()
                )
            },
        );
        problems.equal("the command's status", end.number("process.exit.code"), 7);
        Ok(())
    }
}

fn lines(record: &Path) -> Result<Vec<Event>> {
    Ok(Record::so_far(record)?.events)
}

fn adopt(run: &str) -> Result<Child> {
    Ok(opensafe()
        .args(["adopt", run])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?)
}

fn who_is_killed_leaves_its_sandbox_confined_and_the_run_is_taken_up() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let mut trying = Trying::start()?;
    let run = trying.kill()?;
    trying.goes_on()?;
    sleep(Duration::from_millis(500));
    let again = adopt(&run)?;
    trying.is_taken_up()?;
    // Once is enough, and of two who want to, one does.
    let other = adopt(&run)?.wait_with_output()?;
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    problems.check(
        other.status.code() == Some(125) && said.contains("is attended to"),
        || format!("a second one ended with {:?}: {said}", other.status),
    );
    trying.goes_on()?;
    trying.stop()?;
    let output = again.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    problems.check(output.status.code() == Some(7), || {
        format!("adopt ended with {:?}: {said}", output.status)
    });
    problems.check(said.contains("is attended to again"), || said.clone());
    trying.check(&mut problems)?;
    let adopted = lines(&trying.record)?;
    let adopted = adopted
        .iter()
        .find(|line| line.text("opensafe.event") == "run.adopted");
    let unattended = adopted.map_or(0, |line| line.number("opensafe.unattended.duration_nano"));
    problems.check(unattended > 500_000_000, || {
        format!("nobody attended to it for {unattended} ns only")
    });
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn the_next_run_takes_up_what_nobody_attends_to() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let mut trying = Trying::start()?;
    trying.kill()?;
    // One that has ended before anybody came is put to rest, too.
    let mut over = Trying::start()?;
    trying.is_taken_up()?;
    over.kill()?;
    over.stop()?;
    let third = Run::new(&Policy::open())?.run(&["true"])?;
    problems.equal("the third run's status", third.code(), 0);
    trying.stop()?;
    for (what, trying) in [("the first", &trying), ("the second", &over)] {
        wait_for(&format!("{what} to end"), || {
            lines(&trying.record).is_ok_and(|lines| {
                lines
                    .last()
                    .is_some_and(|line| line.text("opensafe.event") == "run.end")
            })
        })?;
        trying.check(&mut problems)?;
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn what_holds_the_programs_is_out_of_a_sandboxs_reach() -> Result<Outcome> {
    const ATTEMPTS: &str = "cd /run/opensafe || exit 1\n\
        for set in *; do\n\
          rm -f $set/file_open; rm -f $set/PLACES; mv $set/TASKS $set/else; mkdir $set/other; ln -s / $set/link\n\
          chmod 777 $set; umount $set; umount -l $set\n\
        done; true";
    let before = Leftovers::now()?;
    let places = || fs::read_dir("/run/opensafe").map_or(0, Iterator::count);
    let places_before = places();
    let mut problems = Problems::default();
    // Root inside, and no rule about any of it.
    let finished =
        Run::new(&Policy::open().default("mount", "allow"))?.run(&["bash", "-c", ATTEMPTS])?;
    let record = finished.sound()?;
    for access in ["delete", "rename", "create", "attributes"] {
        let denied = record.denials().any(|line| {
            line.text("opensafe.rule.id") == "opensafe.pins" && line.to_string().contains(access)
        });
        problems.check(denied, || {
            format!("no denial of {access}: {}", finished.said())
        });
    }
    Leftovers::gone_since(&before)?;
    problems.equal("places that are left", places(), places_before);
    problems.outcome()
}
