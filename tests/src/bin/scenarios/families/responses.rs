//! What a policy has done about an event: the sandbox stops, or is ended, as the kernel does that.

pub(super) mod telling;

use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    harness::{
        Event, Outcome, Policy, Problems, Record, Run, Running, ask, deny, directory, opensafe,
        wait_for, write,
    },
    scenarios,
};

scenarios![
    a_kill_ends_all_of_a_tree_and_says_which_response_asked_for_it,
    a_freeze_stops_all_until_it_is_thawed,
];

/// A policy of one denial, and what is to be done about it.
fn run(responses: &[Value]) -> Result<Run> {
    let folder = directory()?;
    let rules = folder.path().join("policy.rego");
    Policy::open()
        .rule(deny("shadow").file("/etc/shadow"))
        .write(&rules)?;
    let responding = folder.path().join("respond.rego");
    let responses: String = match responses {
        [] => "responses := []\n".to_owned(),
        some => some
            .iter()
            .map(|response| format!("responses contains {response}\n"))
            .collect(),
    };
    write(
        &responding,
        format!("package opensafe.response\n\n{responses}"),
    )?;
    let options = ["--policy".as_ref(), responding.as_os_str()];
    Ok(Run::with_policy_file(folder, &rules)?.options(&options))
}

/// To do something about each denial.
fn about_denials(id: &str, action: &str) -> Value {
    json!({"id": id, "on": {"rule": "shadow", "verdict": "deny"}, "do": action, "reason": "a scenario"})
}

/// What is on record of one response.
fn of<'r>(record: &'r Record, id: &str, action: &str) -> Vec<&'r Event> {
    record
        .of("response")
        .filter(|line| line.text("opensafe.response.id") == id)
        .filter(|line| line.text("opensafe.response.action") == action)
        .collect()
}

/// The record as far as it is written.
fn so_far(path: &Path) -> Record {
    Record::so_far(path).unwrap_or_default()
}

fn number_in(file: &Path) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

fn lives(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Whoever is dead and not buried does nothing any more.
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

fn a_kill_ends_all_of_a_tree_and_says_which_response_asked_for_it() -> Result<Outcome> {
    let run = run(&[about_denials("end", "kill")])?;
    let folder = run.record_path().parent().context("a folder")?.to_owned();
    // One that has a session and a parent of its own, its child, a group that ignores signals, and who waits for none.
    let script = "setsid sh -c 'sleep 301 & echo $! >child; echo $$ >daemon; wait' &
        (trap '' TERM HUP INT; sh -c 'echo $$ >stubborn; sleep 302; :') &
        until [ -s child ] && [ -s daemon ] && [ -s stubborn ]; do sleep 0.1; done
        echo ready; cat /etc/shadow; sleep 300; echo survived";
    let mut running = run.start(&["sh", "-c", script])?;
    running.wait_for_output("ready")?;
    let one = |name: &&str| number_in(&folder.join(name));
    let pids: Vec<u64> = ["child", "daemon", "stubborn"].iter().map(one).collect();
    let finished = running.finish()?;
    let record = finished.sound()?;
    let mut problems = Problems::default();
    problems.check(pids.iter().all(|pid| *pid > 0), || {
        format!("the tree: {pids:?}")
    });
    problems.equal("the exit status", finished.code(), 137);
    problems.check(!finished.text().contains("survived"), || {
        "it went on".into()
    });
    let killed = of(record, "end", "kill");
    problems.equal("kills on record", killed.len(), 1);
    for line in killed {
        problems.equal(
            "the outcome",
            line.text("opensafe.response.outcome"),
            "done",
        );
        problems.equal("the rule", line.text("opensafe.rule.id"), "shadow");
        problems.equal("the event", line.text("opensafe.response.event"), "file");
        problems.equal("the count", line.number("opensafe.response.count"), 1);
        let time = line.number("opensafe.response.event_time_unix_nano");
        let is_on_record = record
            .denials()
            .any(|denial| denial.number("time_unix_nano") == time);
        problems.check(is_on_record, || format!("of no event on record: {line}"));
    }
    let end = record.end()?;
    problems.equal("who killed it", end.text("opensafe.killed_by"), "end");
    problems.equal("the signal", end.number("opensafe.process.exit.signal"), 9);
    let said = finished.said();
    problems.check(
        said.contains("killed  response end: a scenario") && said.contains("as response end asked"),
        || format!("said: {said}"),
    );
    for pid in pids {
        problems.check(!lives(pid), || format!("process {pid} lives"));
    }
    problems.outcome()
}

/// A run that counts in a file, and is denied something whenever it is told to.
struct Counting {
    running: Running,
    record: PathBuf,
    folder: PathBuf,
}

impl Counting {
    fn start(responses: &[Value]) -> Result<Self> {
        let run = run(responses)?;
        let record = run.record_path().to_owned();
        let folder = record.parent().context("a folder")?.to_owned();
        let script = "n=0; while :; do n=$((n+1)); echo $n >count.new; mv count.new count
            [ $n = 1 ] && echo counts
            if [ -e provoke ]; then rm provoke; cat /etc/shadow; fi; done";
        let mut running = run.start(&["sh", "-c", script])?;
        running.wait_for_output("counts")?;
        Ok(Self {
            running,
            record,
            folder,
        })
    }

    fn count(&self) -> u64 {
        number_in(&self.folder.join("count"))
    }

    fn provoke(&self) -> Result<()> {
        write(&self.folder.join("provoke"), "")
    }

    /// Waits until so much is on record of a response.
    fn wait_for(&self, id: &str, action: &str, times: usize) -> Result<()> {
        wait_for(&format!("{action} {times}"), || {
            of(&so_far(&self.record), id, action).len() >= times
        })
    }

    fn counts(&self) -> bool {
        let before = self.count();
        sleep(Duration::from_secs(2));
        self.count() != before
    }

    /// `opensafe WORD`, with this run.
    fn order(&self, word: &str, options: &[&str]) -> Result<(i32, String, String)> {
        ask(opensafe().arg(word).arg(&self.record).args(options))
    }
}

fn a_freeze_stops_all_until_it_is_thawed() -> Result<Outcome> {
    let counting = Counting::start(&[about_denials("stop", "freeze")])?;
    let mut problems = Problems::default();
    problems.check(counting.counts(), || "it does not count".into());
    for round in 1..=2 {
        counting.provoke()?;
        counting.wait_for("stop", "freeze", round)?;
        problems.check(!counting.counts(), || {
            format!("round {round}: it counts on")
        });
        let (code, said, error) = counting.order("thaw", &[])?;
        problems.check(code == 0 && said.contains("goes on"), || {
            format!("thaw: {code}, {said:?}, {error:?}")
        });
        counting.wait_for("stop", "thaw", round)?;
        problems.check(counting.counts(), || {
            format!("round {round}: it stays frozen")
        });
        // As long as a freeze is not tried again.
        sleep(Duration::from_secs(1));
    }

    // By hand, and what is so already is said.
    let (code, said, _) = counting.order("freeze", &["--json"])?;
    problems.check(
        code == 0 && said.contains("\"opensafe.run.was_frozen\":false"),
        || format!("freeze: {code}, {said:?}"),
    );
    problems.check(!counting.counts(), || "by hand: it counts on".into());
    let (_, said, _) = counting.order("freeze", &[])?;
    problems.check(said.contains("was frozen already"), || {
        format!("freeze again: {said:?}")
    });
    let (code, said, error) = counting.order("kill", &[])?;
    problems.check(code == 0 && said.contains("is killed"), || {
        format!("kill: {code}, {said:?}, {error:?}")
    });
    let record = counting.record.clone();
    let finished = counting.running.finish()?;
    finished.sound()?;
    problems.equal("the exit status", finished.code(), 137);
    let end = finished.record.end()?;
    problems.equal("what killed it", end.text("opensafe.killed_by"), "");
    // The folder is gone with the run.
    problems.check(!record.exists(), || "the record is still there".into());
    problems.outcome()
}

/// Sends a signal to `opensafe` itself.
fn signal(running: &Running, signal: Signal) -> Result<()> {
    Ok(kill(
        Pid::from_raw(i32::try_from(running.child.id())?),
        signal,
    )?)
}
