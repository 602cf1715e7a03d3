//! Attempts made in one sandbox by one probe, each with what has to come of it.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{Event, Finished, Policy, Problems, Record, Run, this_program};

/// Something that a probe tries: see [`crate::probe`].
#[derive(Clone, Debug)]
pub(crate) struct Attempt(Vec<OsString>);

/// An attempt from its words.
pub(crate) fn attempt<S: AsRef<OsStr>>(verb: &str, arguments: &[S]) -> Attempt {
    let arguments = arguments.iter().map(|word| word.as_ref().to_owned());
    Attempt(std::iter::once(verb.into()).chain(arguments).collect())
}

impl Attempt {
    /// Its words.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.0
    }
}

/// What has to be on record about an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    event: &'static str,
    rule: String,
    /// Texts, as bytes.
    texts: Vec<(&'static str, Vec<u8>)>,
    numbers: Vec<(&'static str, u64)>,
    /// A word that an array has to have.
    access: Option<&'static str>,
}

/// A file's line.
pub(crate) fn file(rule: &str, path: impl AsRef<Path>, access: &'static str) -> Expected {
    Expected::new("file", rule)
        .text("file.path", path.as_ref().as_os_str().as_bytes())
        .access(access)
}

/// A program's line.
pub(crate) fn exec(rule: &str, path: impl AsRef<Path>) -> Expected {
    Expected::new("exec", rule).text("file.path", path.as_ref().as_os_str().as_bytes())
}

/// A peer's line.
pub(crate) fn connect(rule: &str, transport: &str, address: impl AsRef<[u8]>) -> Expected {
    Expected::new("connect", rule)
        .text("network.transport", transport.as_bytes())
        .text("network.peer.address", address.as_ref())
}

impl Expected {
    fn new(event: &'static str, rule: &str) -> Self {
        Self {
            event,
            rule: rule.to_owned(),
            texts: Vec::new(),
            numbers: Vec::new(),
            access: None,
        }
    }

    fn access(mut self, access: &'static str) -> Self {
        self.access = Some(access);
        self
    }

    /// A socket's line, of a family.
    pub(crate) fn socket(rule: &str, family: &str) -> Self {
        Self::new("socket", rule).text("opensafe.network.family", family.as_bytes())
    }

    /// The line of an operation on others, and which way it was.
    pub(crate) fn operation(event: &'static str, how: &str) -> Self {
        Self::new(event, &format!("defaults.{event}"))
            .text("opensafe.operation.how", how.as_bytes())
    }

    /// And this text.
    pub(crate) fn text(mut self, key: &'static str, value: &[u8]) -> Self {
        self.texts.push((key, value.to_vec()));
        self
    }

    /// And this number.
    pub(crate) fn number(mut self, key: &'static str, value: u64) -> Self {
        self.numbers.push((key, value));
        self
    }

    /// And this port.
    pub(crate) fn port(self, port: u16) -> Self {
        self.number("network.peer.port", u64::from(port))
    }

    /// Whether a line is about this, and by this rule.
    pub(crate) fn is_shown_by(&self, line: &Event) -> bool {
        self.is_about(line) && line.text("opensafe.rule.id") == self.rule
    }

    /// Whatever is done to it.
    pub(crate) const fn of_any_kind(mut self) -> Self {
        self.access = None;
        self
    }

    /// Whether a line is about this.
    pub(crate) fn is_about(&self, line: &Event) -> bool {
        line.text("opensafe.event") == self.event
            && self
                .texts
                .iter()
                .all(|(key, value)| line.bytes(key) == *value)
            && self.numbers.iter().all(|(key, value)| {
                line.get(key).and_then(serde_json::Value::as_u64) == Some(*value)
            })
            && self
                .access
                .is_none_or(|access| line.texts("opensafe.file.access").contains(&access))
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} by {}", self.event, self.rule)?;
        for (key, value) in &self.texts {
            let shown: String = value.escape_ascii().to_string().chars().take(200).collect();
            write!(f, ", {key} {shown}")?;
        }
        for (key, value) in &self.numbers {
            write!(f, ", {key} {value}")?;
        }
        if let Some(access) = self.access {
            write!(f, ", {access}")?;
        }
        Ok(())
    }
}

/// What has to come of an attempt.
#[derive(Clone, Debug)]
enum Fate {
    /// It fails with EACCES, and is on record so.
    Denied(Expected),
    /// It works, and is on record with this verdict.
    Passes(&'static str, Expected),
    /// It works, and nothing of it is on record as denied; it need not be there at all.
    Works,
    /// It fails with this errno, for which the policy is not the reason.
    Fails(&'static str),
}

/// Attempts with their fates.
pub(crate) struct Batch {
    run: Run,
    probe: PathBuf,
    shape: OsString,
    enforced: bool,
    attempts: Vec<(Attempt, Fate)>,
}

impl Batch {
    /// None so far, to be made under a policy.
    pub(crate) fn new(policy: &Policy) -> Result<Self> {
        Ok(Self {
            run: Run::new(policy)?,
            probe: this_program()?,
            shape: "plain".into(),
            enforced: true,
            attempts: Vec::new(),
        })
    }

    /// How the process that tries comes to be: see [`crate::probe`].
    pub(crate) fn shape(mut self, shape: &str) -> Self {
        self.shape = shape.into();
        self
    }

    /// Another copy of the probe.
    pub(crate) fn probe(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.probe);
        self
    }

    /// More options for `opensafe run`.
    pub(crate) fn options(mut self, options: &[&str]) -> Self {
        self.run = self.run.options(options);
        self
    }

    /// The run is started by another program: see [`Run::wrapped`].
    pub(crate) fn wrapped(mut self, wrapper: &[String]) -> Self {
        self.run = self.run.wrapped(wrapper);
        self
    }

    /// Where the record is going to be.
    pub(crate) fn record(&self) -> &Path {
        self.run.record_path()
    }

    /// With `--mode observe`: what is denied goes ahead.
    pub(crate) fn observed(mut self) -> Self {
        self.enforced = false;
        self.options(&["--mode", "observe"])
    }

    /// It is denied.
    pub(crate) fn denied(&mut self, attempt: Attempt, expected: Expected) {
        self.attempts.push((attempt, Fate::Denied(expected)));
    }

    /// It is allowed.
    pub(crate) fn allowed(&mut self, attempt: Attempt, expected: Expected) {
        self.attempts
            .push((attempt, Fate::Passes("allow", expected)));
    }

    /// It is allowed, by an audit verdict.
    pub(crate) fn audited(&mut self, attempt: Attempt, expected: Expected) {
        self.attempts
            .push((attempt, Fate::Passes("audit", expected)));
    }

    /// It works.
    pub(crate) fn works(&mut self, attempt: Attempt) {
        self.attempts.push((attempt, Fate::Works));
    }

    /// It fails for another reason than the policy.
    pub(crate) fn fails(&mut self, attempt: Attempt, errno: &'static str) {
        self.attempts.push((attempt, Fate::Fails(errno)));
    }

    /// The command that makes the attempts.
    pub(crate) fn command(&self) -> Vec<OsString> {
        let mut command = vec![
            self.probe.clone().into(),
            "probe".into(),
            self.shape.clone(),
        ];
        for (attempt, _) in &self.attempts {
            command.push("+".into());
            command.extend(attempt.0.iter().cloned());
        }
        command
    }

    /// Makes the attempts, and compares.
    pub(crate) fn check(self) -> Result<Finished> {
        let (finished, problems) = self.run()?;
        problems.result()?;
        Ok(finished)
    }

    /// Makes the attempts, and notes what is not as it should be.
    pub(crate) fn run(self) -> Result<(Finished, Problems)> {
        let command = self.command();
        let finished = self.run.run(&command)?;
        let record = finished.sound()?;
        let mut problems = Problems::default();
        compare(
            &self.attempts,
            self.enforced,
            &finished.text(),
            record,
            &mut problems,
        );
        if finished.code() != 0 {
            problems.note(format!(
                "the probe ended with {}: {}",
                finished.code(),
                finished.said()
            ));
        }
        Ok((finished, problems))
    }

    /// Starts the run, for scenarios that do something meanwhile.
    pub(crate) fn start(self) -> Result<(super::run::Running, Pending)> {
        let command = self.command();
        let running = self.run.start(&command)?;
        Ok((
            running,
            Pending {
                attempts: self.attempts,
                enforced: self.enforced,
            },
        ))
    }

    /// What the command reads.
    pub(crate) fn stdin(mut self, stdin: std::process::Stdio) -> Self {
        self.run = self.run.stdin(stdin);
        self
    }
}

/// Attempts that are being made.
pub(crate) struct Pending {
    attempts: Vec<(Attempt, Fate)>,
    enforced: bool,
}

impl Pending {
    /// Compares, when the run has ended.
    pub(crate) fn compare(&self, finished: &Finished, problems: &mut Problems) -> Result<()> {
        compare(
            &self.attempts,
            self.enforced,
            &finished.text(),
            finished.sound()?,
            problems,
        );
        Ok(())
    }
}

fn compare(
    attempts: &[(Attempt, Fate)],
    enforced: bool,
    output: &str,
    record: &Record,
    problems: &mut Problems,
) {
    for (number, (attempt, fate)) in attempts.iter().enumerate() {
        let result = output
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{number} ")))
            .unwrap_or("nothing");
        let wanted = match fate {
            Fate::Denied(_) if enforced => "EACCES",
            Fate::Fails(errno) => errno,
            _ => "ok",
        };
        problems.check(result == wanted, || {
            format!("{attempt}: {result}, not {wanted}")
        });
        let (expected, verdict) = match fate {
            Fate::Denied(expected) => (expected, "deny"),
            Fate::Passes(verdict, expected) => (expected, *verdict),
            Fate::Works | Fate::Fails(_) => continue,
        };
        let about: Vec<&Event> = record
            .events
            .iter()
            .filter(|line| expected.is_about(line))
            .collect();
        let is_right = |line: &&Event| {
            let refused = verdict == "deny" && enforced;
            line.text("opensafe.verdict") == verdict
                && line.text("opensafe.rule.id") == expected.rule
                && line.flag("opensafe.enforced") == Some(refused)
                && (line.text("opensafe.denied_by") == "opensafe") == refused
                && (line.text("error.type") == "EACCES") == refused
        };
        if !about.iter().any(is_right) {
            let found = match &*about {
                [] => "nothing about it is on record".to_owned(),
                [first, ..] => format!("on record is {first}"),
            };
            problems.note(format!(
                "{attempt}: should be {verdict} {expected}; {found}"
            ));
        }
    }
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self
            .0
            .iter()
            .map(|word| {
                let word = word.clone().into_vec();
                word.escape_ascii().to_string().chars().take(200).collect()
            })
            .collect();
        f.write_str(&words.join(" "))
    }
}
