//! A run that goes on gets another policy: from one instant on it decides, or the one before still does.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{
        Event, Leftovers, Outcome, Policy, Problems, Record, Run, Running, audit, deny, directory,
        opensafe, wait_for, write,
    },
    scenarios,
};

scenarios![
    another_policy_is_in_force_from_one_instant_on,
    a_policy_that_fails_leaves_the_one_before,
    a_run_that_is_taken_up_has_the_policy_that_it_got_last,
    a_policy_is_applied_once_however_slow_whoever_attends_to_the_run,
];

const FOLLOW: &str = include_str!("applying.py");

/// Policies that a run is given one after the other.
const POLICIES: usize = 6;
/// Processes that find out which decides, and threads of the first of them.
const PROCESSES: usize = 8;
const THREADS: usize = 64;

/// Files, of which policy N lets exactly file N be opened.
struct Numbered {
    folder: tempfile::TempDir,
}

impl Numbered {
    fn new() -> Result<Self> {
        let folder = directory()?;
        for number in 0..=POLICIES {
            write(&folder.path().join(number.to_string()), "x")?;
        }
        Ok(Self { folder })
    }

    fn file(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    fn policy(&self, number: usize) -> Policy {
        let others = (0..=POLICIES).filter(|other| *other != number);
        let others: Vec<String> = others
            .map(|other| self.file(other).display().to_string())
            .collect();
        let closed = deny(&format!("closed.{number}"))
            .file(self.file(number))
            .with("match", others.into());
        Policy::open()
            .rule(closed)
            .rule(audit(&format!("open.{number}")).file(self.file(number)))
    }

    /// Where it can be had by `opensafe`.
    fn written(&self, number: usize) -> Result<PathBuf> {
        let file = self.folder.path().join(format!("policy-{number}.rego"));
        self.policy(number).write(&file)?;
        Ok(file)
    }
}

fn apply(run: &str, policy: &Path) -> Result<Output> {
    let mut command = opensafe();
    command.args(["policy", "apply", run]).arg(policy);
    Ok(command.arg("--json").output()?)
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat()
}

fn run_of(record: &Path) -> Result<String> {
    let record = Record::so_far(record)?;
    let start = record.events.first().context("no record")?;
    Ok(start.text("opensafe.run.id").to_owned())
}

fn lines<'a>(record: &'a Record, event: &'a str) -> impl Iterator<Item = &'a Event> {
    let is_it = move |line: &&Event| line.text("opensafe.event") == event;
    record.events.iter().filter(is_it)
}

/// Each decision about a numbered file was made by the policy that its rule is in, and as that one has it.
fn none_is_mixed(numbered: &Numbered, record: &Record, problems: &mut Problems) -> [usize; 2] {
    let mut decided = [0, 0];
    for line in lines(record, "file") {
        let path = line.text("file.path");
        let file = (0..=POLICIES).find(|number| numbered.file(*number) == Path::new(path));
        let Some(file) = file else { continue };
        let number = line.number("opensafe.policy.number");
        let is_open = file as u64 == number;
        let rule = format!("{}.{number}", if is_open { "open" } else { "closed" });
        let verdict = if is_open { "audit" } else { "deny" };
        decided[usize::from(is_open)] += 1;
        problems.check(
            line.text("opensafe.rule.id") == rule && line.text("opensafe.verdict") == verdict,
            || format!("file {file} under policy {number}: {line}"),
        );
    }
    decided
}

fn another_policy_is_in_force_from_one_instant_on() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let numbered = Numbered::new()?;
    let folder = numbered.folder.path().display().to_string();
    let counts = [POLICIES, PROCESSES, THREADS].map(|count| count.to_string());
    let script = ["python3", "-c", FOLLOW, &folder]
        .into_iter()
        .chain(counts.iter().map(String::as_str));
    let run = Run::new(&numbered.policy(0))?;
    let record = run.record_path().to_owned();
    let mut running = run.start(&script.collect::<Vec<_>>())?;
    running.wait_for_output("ready")?;
    let id = run_of(&record)?;
    let mut revisions = Vec::new();
    for number in 1..=POLICIES {
        let output = apply(&id, &numbered.written(number)?)?;
        ensure!(
            output.status.success(),
            "policy {number}: {}",
            said(&output)
        );
        revisions.push(serde_json::from_slice::<serde_json::Value>(&output.stdout)?);
    }
    let finished = running.finish()?;
    problems.equal("the run's status", finished.code(), 0);
    let record = finished.sound()?;
    let text = finished.text();
    let (followed, against): (Vec<&str>, Vec<&str>) = text
        .lines()
        .filter(|line| *line != "ready")
        .partition(|line| line.starts_with(&format!("followed {POLICIES} ")));
    problems.equal("tasks", followed.len(), PROCESSES - 1 + THREADS);
    problems.check(against.is_empty(), || format!("{against:?}"));
    let [closed, open] = none_is_mixed(&numbered, record, &mut problems);
    problems.check(closed > POLICIES && open > POLICIES, || {
        format!("{closed} denials and {open} others are few")
    });
    let applied: Vec<&Event> = lines(record, "policy.applied").collect();
    problems.equal("lines about policies", applied.len(), POLICIES);
    for (line, answer) in applied.iter().zip(&revisions) {
        for key in ["opensafe.policy.revision", "opensafe.policy.before"] {
            problems.equal(
                key,
                line.text(key),
                answer[key].as_str().unwrap_or_default(),
            );
        }
    }
    let last = applied
        .last()
        .map(|line| line.text("opensafe.policy.revision"));
    let end = record.end()?.text("opensafe.policy.revision");
    problems.equal("the policy at the end", Some(end), last);
    problems.check(finished.said().contains("is in force · "), || {
        format!("nobody was told: {}", finished.said())
    });
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

/// A run that tries to read what its policy closes, until it is told to stop.
struct Trying {
    folder: tempfile::TempDir,
    running: Running,
    run: String,
}

impl Trying {
    /// With one rule, of this name, on what is closed.
    fn start(rule: &str) -> Result<Self> {
        const LOOP: &str =
            "echo ready; while ! [ -e \"$2\" ]; do cat \"$1\" && echo open; sleep 0.05; done";
        let folder = directory()?;
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (closed, stop) = (at("closed"), at("stop"));
        write(Path::new(&closed), "x")?;
        // Beside, as what a run that is killed has in its own directory goes with it.
        let record = folder.path().join("record.jsonl");
        let policy = Policy::open().rule(deny(rule).file(&closed));
        let run = Run::new(&policy)?.record(&record);
        let mut running = run.start(&["bash", "-c", LOOP, "bash", &closed, &stop])?;
        running.wait_for_output("ready")?;
        Ok(Self {
            run: run_of(&record)?,
            folder,
            running,
        })
    }
}

fn denials(record: &Path, rule: &str) -> Result<usize> {
    let is_its = |line: &&Event| line.text("opensafe.rule.id") == rule;
    Ok(Record::so_far(record)?.denials().filter(is_its).count())
}

/// Waits for three more denials by a rule.
fn goes_on(record: &Path, rule: &str) -> Result<()> {
    let before = denials(record, rule)?;
    wait_for(&format!("more denials by {rule}"), || {
        denials(record, rule).is_ok_and(|now| now > before + 2)
    })
}

fn a_policy_that_fails_leaves_the_one_before() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let Trying {
        folder,
        running,
        run,
    } = Trying::start("closed")?;
    let at = |name: &str| folder.path().join(name);
    let record = at("record.jsonl");
    write(&at("cut-off.rego"), "package opensafe.sandbox\nrules := [")?;
    write(
        &at("wrong.rego"),
        "package opensafe.sandbox\nrules := [{\"id\": \"a\"}]",
    )?;
    write(
        &at("undefined.rego"),
        "package opensafe.sandbox\nrules := [] if input.agent == \"else\"",
    )?;
    // So many patterns that no table of theirs is small enough.
    let many = (0..400).map(|a| format!("/**/{a}*x*{a}/**/y*{a}*/**"));
    let many: Vec<String> = many.collect();
    let many = deny("many").file(at("closed")).with("match", many.into());
    Policy::open().rule(many).write(&at("many.rego"))?;
    for (name, words) in [
        ("cut-off.rego", "cut-off.rego:"),
        ("wrong.rego", "wrong.rego"),
        ("undefined.rego", "rules"),
        ("many.rego", "the one before stays in force"),
        ("missing.rego", "missing.rego"),
    ] {
        let output = apply(&run, &at(name))?;
        let said = said(&output);
        problems.check(
            output.status.code() == Some(1) && said.contains(words),
            || format!("{name}: {:?}: {said}", output.status),
        );
    }
    goes_on(&record, "closed")?;
    write(&at("stop"), "")?;
    let finished = running.finish()?;
    let applied = lines(finished.sound()?, "policy.applied").count();
    problems.equal("policies applied", applied, 0);
    problems.check(!finished.text().contains("open"), || {
        "it could be read".to_owned()
    });
    // Nobody is there any more.
    let output = apply(&run, &at("missing.rego"))?;
    problems.check(
        output.status.code() == Some(1) && !said(&output).contains("missing.rego"),
        || said(&output),
    );
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn a_run_that_is_taken_up_has_the_policy_that_it_got_last() -> Result<Outcome> {
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let Trying {
        folder,
        running,
        run,
    } = Trying::start("first")?;
    let at = |name: &str| folder.path().join(name);
    let record = at("record.jsonl");
    let rule = |id: &str| Policy::open().rule(deny(id).file(at("closed")));
    rule("second").write(&at("second.rego"))?;
    rule("third").write(&at("third.rego"))?;
    let output = apply(&run, &at("second.rego"))?;
    ensure!(output.status.success(), "{}", said(&output));
    kill(
        Pid::from_raw(running.child.id().cast_signed()),
        Signal::SIGKILL,
    )?;
    let killed = running.finish()?;
    problems.equal("how it was killed", killed.code(), 137);
    // Nobody would do it.
    let output = apply(&run, &at("third.rego"))?;
    problems.check(
        output.status.code() == Some(1) && said(&output).contains("nobody attends to run"),
        || said(&output),
    );
    let again = opensafe().args(["adopt", "--quiet", &run]).spawn()?;
    let adopted = |name: &str| {
        let record = Record::so_far(&record)?;
        Ok::<_, anyhow::Error>(lines(&record, name).count())
    };
    wait_for("the run to be taken up", || {
        adopted("run.adopted").is_ok_and(|count| count == 1)
    })?;
    goes_on(&record, "second")?;
    let output = apply(&run, &at("third.rego"))?;
    problems.check(output.status.success(), || said(&output));
    goes_on(&record, "third")?;
    write(&at("stop"), "")?;
    let output = again.wait_with_output()?;
    problems.check(output.status.success(), || said(&output));
    let record = Record::parse(&fs::read(&record)?)?;
    record.is_sound()?;
    problems.equal(
        "policies applied",
        lines(&record, "policy.applied").count(),
        2,
    );
    for line in record.denials() {
        let number = line.number("opensafe.policy.number");
        let rule = ["first", "second", "third"].get(usize::try_from(number)?);
        problems.check(Some(&line.text("opensafe.rule.id")) == rule, || {
            format!("by policy {number}: {line}")
        });
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

/// Whoever attends to a run gets to work only while nobody else does, and so is interrupted wherever it is when a caller comes for
/// its answer. Nothing else is done meanwhile, or it would not get to work at all.
fn a_policy_is_applied_once_however_slow_whoever_attends_to_the_run() -> Result<Outcome> {
    const CALLS: usize = 40;
    const WAIT: &str = "echo ready; while ! [ -e \"$1\" ]; do sleep 0.5; done; cat \"$2\"";
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let folder = directory()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let rule = |call: usize| Policy::open().rule(deny(&format!("rule.{call}")).file(at("closed")));
    write(Path::new(&at("closed")), "x")?;
    let run = Run::new(&rule(0))?;
    let record = run.record_path().to_owned();
    let mut running = run.start(&["sh", "-c", WAIT, "sh", &at("stop"), &at("closed")])?;
    running.wait_for_output("ready")?;
    let id = run_of(&record)?;
    let agent = running.child.id().to_string();
    let policy = folder.path().join("policy.rego");
    for call in 1..=CALLS {
        rule(call).write(&policy)?;
        // Whatever threads it has by now. All on one processor.
        for slow in [
            &["chrt", "--all-tasks", "--idle", "--pid", "0", &agent],
            &["taskset", "--all-tasks", "--cpu-list", "--pid", "0", &agent],
        ] {
            let [program, arguments @ ..] = slow;
            let output = Command::new(program).args(arguments).output()?;
            ensure!(output.status.success(), "{program}: {}", said(&output));
        }
        let mut applying = Command::new("taskset");
        let applying = applying
            .args(["--cpu-list", "0"])
            .arg(opensafe().get_program());
        let applying = applying.args(["policy", "apply", &id]).arg(&policy);
        let output = applying.output()?;
        ensure!(output.status.success(), "call {call}: {}", said(&output));
    }
    write(Path::new(&at("stop")), "")?;
    let finished = running.finish()?;
    let record = finished.sound()?;
    let applied = lines(record, "policy.applied").count();
    problems.equal("policies applied", applied, CALLS);
    let rules: Vec<&str> = record
        .denials()
        .map(|line| line.text("opensafe.rule.id"))
        .collect();
    let last = format!("rule.{CALLS}");
    problems.equal("the rules that denied", rules, vec![last.as_str()]);
    Leftovers::gone_since(&before)?;
    problems.outcome()
}
