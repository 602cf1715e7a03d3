//! Attempts to get out of a sandbox: each works outside, and must be stopped and put on record inside.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::{
    Attempt, Event, Expected, Finished, Outcome, Policy, Problems, Record, Run, attempt, held,
    skipped, this_program,
};

/// One way to try it.
pub(crate) struct Try {
    what: &'static str,
    attempt: Attempt,
    /// One of these has to be on record; if there are none, any denial of that process.
    expected: Vec<Expected>,
    may_lack: Option<&'static str>,
    stopped_by: Vec<&'static str>,
    by_anyone: bool,
}

/// A way: what it is, with the ids of the list of escapes that it comes from, and the attempt.
pub(crate) fn way(what: &'static str, attempt: Attempt) -> Try {
    Try {
        what,
        attempt,
        expected: Vec::new(),
        may_lack: None,
        stopped_by: vec!["EACCES", "EPERM"],
        by_anyone: false,
    }
}

/// Several attempts that are one: each changes the process, until one fails or all are made.
pub(crate) fn steps<S: AsRef<OsStr>>(steps: &[&[S]]) -> Attempt {
    let mut words = Vec::new();
    for step in steps {
        words.push(OsStr::new(",").to_owned());
        words.extend(step.iter().map(|word| word.as_ref().to_owned()));
    }
    attempt("all", &words)
}

impl Try {
    /// This is on record, or another that is named so.
    pub(crate) fn on_record(mut self, expected: Expected) -> Self {
        self.expected.push(expected);
        self
    }

    /// A kernel may be without what it takes; then it is left out, and that is said.
    pub(crate) const fn where_there_is(mut self, what: &'static str) -> Self {
        self.may_lack = Some(what);
        self
    }

    /// It may also end so, as who is stopped is a program that says it in its own way.
    pub(crate) fn or_ends(mut self, result: &'static str) -> Self {
        self.stopped_by.push(result);
        self
    }

    /// The line may be about another process that descends from no attempt, as a thread of the kernel's or a daemon does
    /// it.
    pub(crate) const fn by_anyone(mut self) -> Self {
        self.by_anyone = true;
        self
    }
}

/// What came of an attempt.
#[derive(Clone, Debug, Default)]
struct Made {
    text: String,
    process: u64,
}

/// How an attempt inside ended.
enum End {
    Stopped,
    Unrecorded(String),
    Passed,
    Odd(String),
}

/// Where attempts are made: made anew for those outside and those inside.
pub(crate) struct Escape<'a, G> {
    /// Makes it.
    pub(crate) ground: &'a dyn Fn() -> Result<G>,
    /// What holds there.
    pub(crate) policy: &'a dyn Fn(&G) -> Policy,
    /// The run, if it is a special one.
    pub(crate) run: &'a dyn Fn(&G, Run) -> Run,
    /// What starts the attempts that are made outside: a program that is given theirs as arguments.
    pub(crate) outside: &'a dyn Fn(&G) -> Vec<String>,
    /// The program that makes them: this one, or a copy that the policy is about.
    pub(crate) program: &'a dyn Fn(&G) -> Result<PathBuf>,
    /// The ways.
    pub(crate) ways: &'a dyn Fn(&G) -> Vec<Try>,
    /// What must not be so afterwards.
    pub(crate) after: &'a dyn Fn(&G, &mut Problems),
}

impl<'a, G> Escape<'a, G> {
    /// An ordinary run.
    pub(crate) fn new(
        ground: &'a dyn Fn() -> Result<G>,
        policy: &'a dyn Fn(&G) -> Policy,
        ways: &'a dyn Fn(&G) -> Vec<Try>,
    ) -> Self {
        Self {
            ground,
            policy,
            run: &|_, run| run,
            outside: &|_| Vec::new(),
            program: &|_| this_program(),
            ways,
            after: &|_, _| {},
        }
    }

    /// Makes all attempts outside, then those that work there inside.
    pub(crate) fn check(&self, name: &str) -> Result<Outcome> {
        let ground = (self.ground)()?;
        let all = (self.ways)(&ground);
        let outside = outside(
            &(self.outside)(&ground),
            command((self.program)(&ground)?, &all),
        )?;
        drop(ground);

        let mut problems = Problems::default();
        let mut table = Table::new(name)?;
        let ground = (self.ground)()?;
        let mut ways = Vec::new();
        for (number, way) in (self.ways)(&ground).into_iter().enumerate() {
            let result = outside.get(&number).cloned().unwrap_or_default().text;
            match way.may_lack {
                _ if result == "ok" => ways.push(way),
                Some(lack) => {
                    println!("  left out: {}: this takes {lack} ({result})", way.what);
                    table.row(way.what, &format!("could not be tried: {lack} ({result})"))?;
                }
                None => {
                    problems.note(format!(
                        "{}: does not even work outside: {result}",
                        way.what
                    ));
                    table.row(way.what, &format!("does not work outside: {result}"))?;
                }
            }
        }
        if ways.is_empty() {
            problems.result()?;
            return skipped("there is nothing here to try");
        }
        let run = (self.run)(&ground, Run::new(&(self.policy)(&ground))?);
        let finished = run.run(&command((self.program)(&ground)?, &ways))?;
        self.judge(&ways, &finished, &mut problems, &mut table)?;
        (self.after)(&ground, &mut problems);
        problems.result()?;
        held()
    }

    fn judge(
        &self,
        ways: &[Try],
        finished: &Finished,
        problems: &mut Problems,
        table: &mut Table,
    ) -> Result<()> {
        let record = finished.sound()?;
        let results = results(&finished.text());
        for (number, way) in ways.iter().enumerate() {
            let result = results.get(&number).cloned().unwrap_or_default();
            let others = results.values().map(|made| made.process);
            let others: Vec<u64> = others.filter(|id| *id != result.process).collect();
            let end = way.end(number, &result, &others, record);
            let text = match end {
                End::Stopped => "stopped and on record".to_owned(),
                End::Unrecorded(what) => {
                    problems.note(format!(
                        "{}: stopped ({}), not on record: {what}",
                        way.what, result.text
                    ));
                    format!("stopped ({}), NOT ON RECORD", result.text)
                }
                End::Passed => {
                    problems.note(format!("{}: PASSED THROUGH", way.what));
                    "PASSED THROUGH".to_owned()
                }
                End::Odd(result) => {
                    problems.note(format!("{}: ended with {result:?}", way.what));
                    format!("ended otherwise: {result}")
                }
            };
            table.row(way.what, &text)?;
        }
        if finished.code() != 0 {
            problems.note(format!(
                "the run ended with {}: {}",
                finished.code(),
                finished.said()
            ));
        }
        Ok(())
    }
}

impl Try {
    fn end(&self, number: usize, result: &Made, others: &[u64], record: &Record) -> End {
        if result.text == "ok" {
            return End::Passed;
        }
        if !self.stopped_by.iter().any(|known| result.text == *known) {
            return End::Odd(result.text.clone());
        }
        let name = format!("try-{number}");
        let is_ours = |line: &&Event| {
            let process = line.number("process.pid");
            line.text("opensafe.process.comm") == name
                || record.descends(process, result.process)
                || self.by_anyone && !others.iter().any(|other| record.descends(process, *other))
        };
        let ours: Vec<&Event> = record.denials().filter(is_ours).collect();
        let is_right = |line: &&&Event| {
            line.flag("opensafe.enforced") == Some(true)
                && line.text("opensafe.denied_by") == "opensafe"
                && !line.text("opensafe.rule.id").is_empty()
                && (self.expected.is_empty()
                    || self
                        .expected
                        .iter()
                        .any(|expected| expected.is_shown_by(line)))
        };
        match (ours.iter().find(is_right), ours.first()) {
            (Some(_), _) => End::Stopped,
            (None, Some(other)) => End::Unrecorded(format!("there is {other}")),
            (None, None) => End::Unrecorded("there is nothing of that process".into()),
        }
    }
}

fn command(program: PathBuf, ways: &[Try]) -> Vec<OsString> {
    let mut command = vec![program.into(), "probe".into(), "apart".into()];
    for way in ways {
        command.push("+".into());
        command.extend(way.attempt.words().iter().cloned());
    }
    command
}

/// The results of attempts that are made outside any sandbox.
fn outside(wrapper: &[String], command: Vec<OsString>) -> Result<BTreeMap<usize, Made>> {
    let mut words = wrapper.iter().map(Into::into).chain(command);
    let program = words.next().context("no program")?;
    let output = Command::new(program)
        .args(words)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        bail!(
            "outside: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(results(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines `N pid PID` and `N RESULT`.
fn results(output: &str) -> BTreeMap<usize, Made> {
    let mut results: BTreeMap<usize, Made> = BTreeMap::new();
    for line in output.lines() {
        // On a terminal, lines end with a return.
        let Some((number, text)) = line.trim_end().split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse() else {
            continue;
        };
        let result = results.entry(number).or_default();
        match text.strip_prefix("pid ") {
            Some(process) => result.process = process.parse().unwrap_or_default(),
            None => result.text = text.to_owned(),
        }
    }
    results
}

/// A line for each attempt, for who wants a table: kernel, scenario, attempt, result, in the file that
/// `$SCENARIOS_TABLE` names.
struct Table {
    file: Option<std::fs::File>,
    start: String,
}

impl Table {
    fn new(name: &str) -> Result<Self> {
        let file = std::env::var_os("SCENARIOS_TABLE")
            .map(|path| OpenOptions::new().create(true).append(true).open(path))
            .transpose()?;
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let kernel: Vec<&str> = kernel.splitn(3, ['.', '-', '+']).take(2).collect();
        Ok(Self {
            file,
            start: format!("{}\t{name}", kernel.join(".")),
        })
    }

    fn row(&mut self, what: &str, result: &str) -> Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{}\t{what}\t{result}", self.start)?;
        }
        Ok(())
    }
}
