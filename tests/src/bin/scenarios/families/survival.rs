//! Whoever attends to a run is killed: its sandbox stays confined, and the run is taken up.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use aya::maps::{Array, Map, MapData};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{
        Event, Leftovers, Outcome, Policy, Problems, Record, Run, Running, deny, directory,
        opensafe, own_copy, wait_for, write,
    },
    scenarios,
};

scenarios![
    who_is_killed_leaves_its_sandbox_confined_and_the_run_is_taken_up,
    the_next_run_takes_up_what_nobody_attends_to,
    what_holds_the_programs_is_out_of_a_sandboxs_reach,
    a_run_is_taken_over_while_it_works_and_nothing_is_let_through_or_lost,
    a_newer_version_and_one_with_other_programs_are_refused_with_words,
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
        let run = self.run()?;
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
        self.is_taken_up_times(1)
    }

    fn is_taken_up_times(&self, times: usize) -> Result<()> {
        let is_it = |line: &&Event| line.text("opensafe.event") == "run.adopted";
        wait_for("the run to be taken up", || {
            lines(&self.record).is_ok_and(|lines| lines.iter().filter(is_it).count() >= times)
        })
    }

    fn run(&self) -> Result<String> {
        let lines = lines(&self.record)?;
        let start = lines.first().context("no record")?;
        Ok(start.text("opensafe.run.id").to_owned())
    }

    /// Has the command end.
    fn stop(&self) -> Result<()> {
        write(&self.at("stop"), "")
    }

    /// What holds once the run has ended: it was confined all the time, and all is on record or counted.
    fn check(&self, times: usize, problems: &mut Problems) -> Result<()> {
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
        problems.equal("lines that say that it was taken up", adopted, times);
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
    trying.check(1, &mut problems)?;
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
        trying.check(1, &mut problems)?;
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

fn a_run_is_taken_over_while_it_works_and_nothing_is_let_through_or_lost() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let mut trying = Trying::start()?;
    let run = trying.run()?;
    // Another file with the same kernel programs, as another version may be.
    let version = own_copy(trying.folder.path())?;
    let take_over = |times| {
        let taking = Command::new(&version)
            .args(["adopt", "--take-over", &run])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        trying.is_taken_up_times(times)?;
        trying.goes_on()?;
        anyhow::Ok(taking)
    };
    let first = take_over(1)?;
    let second = take_over(2)?;
    // Whoever is taken over from has nothing left to do, unless it is the one that knows how the command ends.
    let output = first.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    problems.check(
        output.status.success()
            && said.contains("was taken over from process")
            && said.contains(&format!(
                "process {} attends to run {run} from now on",
                second.id()
            )),
        || format!("the one in between ended with {:?}: {said}", output.status),
    );
    let starter = trying.running.take().context("no starter")?;
    trying.stop()?;
    for (who, code) in [
        ("the starter", starter.finish()?.code()),
        (
            "the last",
            second.wait_with_output()?.status.code().unwrap_or(-1),
        ),
    ] {
        problems.equal(who, code, 7);
    }
    trying.check(2, &mut problems)?;
    let lines = lines(&trying.record)?;
    let end = lines.last().context("no end")?;
    for lost in ["agent_killed", "ring_full", "queue_full", "record_failed"] {
        problems.equal(lost, end.number(&format!("opensafe.loss.{lost}")), 0);
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

/// Where a run's state is.
fn kept(run: &str) -> Result<PathBuf> {
    let places = fs::read_dir("/run/opensafe")?.flatten();
    let mut pins = places.map(|place| place.path().join(format!("run-{run}")));
    pins.find(|pin| pin.exists()).context("nothing is kept")
}

/// Replaces some of what a run has kept by as much else.
fn rewrite(pin: &Path, this: &str, that: &str) -> Result<()> {
    const PIECE_BYTES: usize = 4096;
    let map = Map::from_map_data(MapData::from_pin(pin)?)?;
    let mut pieces = Array::<_, [u8; PIECE_BYTES]>::try_from(map)?;
    let mut piece = pieces.get(&1, 0)?;
    let at = piece
        .windows(this.len())
        .position(|bytes| bytes == this.as_bytes())
        .with_context(|| format!("no {this} in what is kept"))?;
    piece[at..at + that.len()].copy_from_slice(that.as_bytes());
    Ok(pieces.set(1, piece, 0)?)
}

fn a_newer_version_and_one_with_other_programs_are_refused_with_words() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let mut trying = Trying::start()?;
    let run = trying.run()?;
    let refused = |how: &[&str], words: &str| {
        let output = opensafe().args(how).arg(&run).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::Ok((
            output.status.code() == Some(125) && said.contains(words) && said.contains("confined"),
            format!("{how:?} ended with {:?}: {said}", output.status),
        ))
    };
    let pin = kept(&run)?;
    let (old, new) = ("\"version\":\"0.", "\"version\":\"9.");
    for how in [&["adopt"] as &[&str], &["adopt", "--take-over"]] {
        rewrite(&pin, old, new)?;
        let (held, why) = refused(how, "take it up with that version or a later one")?;
        problems.check(held, || why);
        rewrite(&pin, new, old)?;
        let place = pin.parent().context("no place")?;
        let other = Path::new("/run/opensafe/0123456789abcdef-1");
        fs::create_dir(other)?;
        mount_move(place, other)?;
        let (held, why) = refused(how, "whose kernel programs are others")?;
        problems.check(held, || why);
        mount_move(other, place)?;
        fs::remove_dir(other)?;
    }
    // Nothing came of it.
    trying.goes_on()?;
    let starter = trying.running.take().context("no starter")?;
    trying.stop()?;
    problems.equal("the starter", starter.finish()?.code(), 7);
    trying.check(0, &mut problems)?;
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn mount_move(from: &Path, to: &Path) -> Result<()> {
    let flags = nix::mount::MsFlags::MS_MOVE;
    Ok(nix::mount::mount(
        Some(from),
        to,
        None::<&str>,
        flags,
        None::<&str>,
    )?)
}
