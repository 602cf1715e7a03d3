//! What a run shows a person on stderr: its start, its denials, its end.

use std::{
    borrow::Cow,
    fmt::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr as _;

use super::{
    fold::{Due, Fold, Group, Kind},
    object::{object_text, operation_word, who},
    response::said,
    screen::Screen,
    text::{printable, printable_path},
};
use crate::{
    enforcement::{Enforcement, Level},
    enrich::{Enriched, Process, Ruling},
    response::Responded,
    rules::Severity,
    run::{Adopted, Applied, Mode, RunEnd, RunStart, lost},
};
use opensafe_common::verdict::Verdict;

/// Columns that an operation and its object take before `by`.
const OPERATION: usize = 34;

/// Columns that a process and its ancestors take before `rule`.
const WHO: usize = 32;

/// What lines that go on begin with: as wide as `opensafe: `.
const INDENT: &str = "          ";

/// Shows a run's lines.
#[derive(Debug)]
pub struct Terminal<O> {
    screen: O,
    home: PathBuf,
    styles: Styles,
    fold: Fold<Denial>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Styles {
    denied: Style,
    would: Style,
    object: Style,
}

impl<O: Screen> Terminal<O> {
    /// Shows on `screen`, with `~` for `home`, in colour or not.
    pub fn new(screen: O, home: &Path, colour: bool) -> Self {
        let styles = if colour {
            Styles {
                denied: AnsiColor::Red.on_default().bold(),
                would: AnsiColor::Yellow.on_default().bold(),
                object: Style::new().bold(),
            }
        } else {
            Styles::default()
        };
        Self {
            screen,
            home: home.to_owned(),
            styles,
            fold: Fold::default(),
        }
    }

    /// Shows that a run starts.
    pub fn started(&mut self, run: &RunStart) {
        let mut text = format!(
            "opensafe: run {} · policy {} · ",
            run.id,
            printable(run.policy.revision.as_bytes())
        );
        if run.mode == Mode::Observe {
            text.push_str("observing: what the policy forbids is recorded, not denied\n");
            let words = ["partly observed", "not observed"];
            text.push_str(&not_fully(&run.enforcement, words));
        } else {
            text.push_str(&enforced(&run.enforcement, &run.host.kernel));
        }
        self.screen.show(&fitted(&text, self.screen.columns()));
    }

    /// Shows a denial, or counts it; shows nothing of other events.
    pub fn event(&mut self, event: &Enriched, now: Instant) {
        let Some(denial) = Denial::of(event, &self.home) else {
            return;
        };
        let important = denial.severity >= Severity::High;
        if self.fold.see(denial.kind(event), &denial, important, now) {
            let line = self.line(&denial, &denial.object, "");
            self.screen.show(&line);
        }
    }

    /// Shows counts that are due, and what waits.
    pub fn tick(&mut self, now: Instant) {
        let due = self.fold.due(now);
        self.counts(due);
        self.screen.settle();
    }

    /// Shows what was done about an event, but for what is for the record only.
    pub fn responded(&mut self, responded: &Responded, run: &RunStart) {
        let Some(said) = said(responded, &run.id, &self.home) else {
            return;
        };
        let style = if said.is_failure {
            self.styles.denied
        } else {
            self.styles.would
        };
        let text = fitted(&format!("opensafe: {}", said.text()), self.screen.columns());
        // Colours have no width, and come after.
        let word = format!("{style}{}{style:#}", said.word);
        self.screen.show(&text.replacen(said.word, &word, 1));
    }

    /// Shows a sentence.
    pub fn notice(&mut self, sentence: &str) {
        self.screen
            .show(&format!("opensafe: {}\n", printable(sentence.as_bytes())));
    }

    /// Shows that a run was taken up.
    pub fn adopted(&mut self, run: &RunStart, adopted: &Adopted) {
        let unattended = duration(adopted.unattended);
        let lost = match adopted.lost {
            0 => "no event was lost".to_owned(),
            1 => "1 event was lost".to_owned(),
            lost => format!("{lost} events were lost"),
        };
        let how = match adopted.from {
            Some(from) => format!("was taken over from process {}", from.0),
            None => "is attended to again".to_owned(),
        };
        self.notice(&format!(
            "run {} {how} · nobody attended to it for {unattended}, in which {lost} · it was confined all the time",
            run.id
        ));
    }

    /// Shows that another policy is in force.
    pub fn applied(&mut self, applied: &Applied) {
        let rules = match applied.policy.rules {
            1 => "1 rule".to_owned(),
            rules => format!("{rules} rules"),
        };
        let before = match applied.before.as_str() {
            "" => String::new(),
            before => format!(" · instead of {before}"),
        };
        let revision = &applied.policy.revision;
        self.notice(&format!("policy {revision} is in force · {rules}{before}"));
    }

    /// Shows that a run has ended and what it did.
    pub fn ended(&mut self, run: &RunStart, end: &RunEnd, record: &Path) {
        let rest = self.fold.finish(Instant::now());
        self.counts(rest);
        let text = summary(run, end, record, &self.home);
        self.screen.finish(&fitted(&text, self.screen.columns()));
    }

    fn counts(&mut self, due: Vec<Due<Denial>>) {
        for due in due {
            let line = match due {
                Due::Again { first, times } => {
                    let times = format!(", {times} times");
                    self.line(&first, &first.object, &times)
                }
                Due::Others { first, times } => {
                    let object = format!("{times} times at other objects");
                    self.line(&first, &object, "")
                }
            };
            self.screen.show(&line);
        }
    }

    fn line(&self, denial: &Denial, object: &str, times: &str) -> String {
        let Styles {
            denied,
            would,
            object: bold,
        } = self.styles;
        let (word, style) = if denial.enforced {
            ("denied", denied)
        } else {
            ("would deny", would)
        };
        let operation = &denial.operation;
        let mut rule = format!("rule {}", denial.rule);
        if times.is_empty() && !denial.reason.is_empty() {
            let _ = write!(rule, ": {}", denial.reason);
        }
        rule.push_str(times);
        let what = format!("{operation} {object}");
        let (what_pad, who_pad) = (
            OPERATION.saturating_sub(what.width()),
            WHO.saturating_sub(denial.who.width()),
        );
        let by = format!("by {}", denial.who);
        let room = self.screen.columns().unwrap_or(usize::MAX);
        let to_what = format!("opensafe: {word}  {what}").width();
        let below = |text: String| fitted(&format!("{INDENT}{text}"), Some(room));
        // In one line, as in a table; or else the rule is below; or else who did it, too.
        let line = format!("{:what_pad$}  {by}{:who_pad$}  {rule}\n", "", "");
        let rest = if to_what + line.trim_end().width() <= room {
            line
        } else if to_what + 2 + by.width() <= room {
            format!("  {by}\n{}", below(rule))
        } else {
            format!("\n{}", below(format!("{by} · {rule}")))
        };
        format!("opensafe: {style}{word}{style:#}  {operation} {bold}{object}{bold:#}{rest}")
    }
}

/// Lines that are broken to fit into so many columns, where ` · ` stands or else at blanks.
fn fitted(text: &str, width: Option<usize>) -> String {
    let mut all = String::new();
    for line in text.lines() {
        match width {
            Some(width) if line.width() > width => broken(line, width, &mut all),
            _ => all.push_str(line),
        }
        all.push('\n');
    }
    all
}

/// Appends `line` to `all`, in as many lines of `width` columns as it takes.
fn broken(line: &str, width: usize, all: &mut String) {
    let (mut now, text) = match line.strip_prefix(INDENT) {
        Some(text) => (INDENT.to_owned(), text),
        None => (String::new(), line),
    };
    for part in text.split(" · ") {
        if now.width() + 3 + part.width() <= width {
            append(&mut now, " · ", part);
            continue;
        }
        if !now.trim().is_empty() {
            next_line(&mut now, all);
        }
        for word in part.split(' ') {
            if !now.trim().is_empty() && now.width() + 1 + word.width() > width {
                next_line(&mut now, all);
            }
            append(&mut now, " ", word);
        }
    }
    all.push_str(&now);
}

fn append(line: &mut String, between: &str, text: &str) {
    if !line.trim().is_empty() {
        line.push_str(between);
    }
    line.push_str(text);
}

fn next_line(line: &mut String, all: &mut String) {
    all.push_str(line);
    all.push('\n');
    INDENT.clone_into(line);
}

/// A denial, in words that a terminal can be given.
#[derive(Clone, Debug)]
struct Denial {
    enforced: bool,
    operation: Cow<'static, str>,
    object: String,
    who: String,
    rule: String,
    reason: String,
    severity: Severity,
}

impl Denial {
    fn of(event: &Enriched, home: &Path) -> Option<Self> {
        let action = &event.action;
        let Ruling {
            verdict: Verdict::Deny,
            enforced,
            rule,
            severity,
            reason,
            ..
        } = action.ruling()?
        else {
            return None;
        };
        let Process {
            executable,
            comm,
            pid,
            ancestors,
            ..
        } = &event.process;
        let rule = match rule {
            Some(rule) => printable(rule.0.as_bytes()).into_owned(),
            None => format!("defaults.{}", action.default_name()),
        };
        Some(Self {
            enforced: *enforced,
            operation: operation_word(action),
            object: object_text(action, home),
            who: who(executable, comm, u64::from(pid.0), ancestors),
            rule,
            reason: printable(reason.as_bytes()).into_owned(),
            severity: *severity,
        })
    }

    fn kind(&self, event: &Enriched) -> Kind {
        Kind {
            group: Group {
                program: event.process.executable.clone(),
                operation: self.operation.clone(),
                rule: self.rule.clone(),
            },
            object: self.object.clone(),
        }
    }
}

/// `enforced: connect (kernel 6.18.44, cgroup hooks)` and, on a second line, what is not.
fn enforced(enforcement: &Enforcement, kernel: &str) -> String {
    let mut mechanisms: Vec<&str> = Vec::new();
    for (_, operation) in enforcement.operations() {
        if !operation.by.is_empty() && !mechanisms.contains(&operation.by.as_str()) {
            mechanisms.push(&operation.by);
        }
    }
    let full = of_level(enforcement, Level::Full);
    let mut text = if full.is_empty() {
        "enforced: nothing fully".to_owned()
    } else {
        format!("enforced: {full}")
    };
    let _ = write!(text, " (kernel {}", printable(kernel.as_bytes()));
    if !mechanisms.is_empty() {
        let _ = write!(text, ", {}", mechanisms.join(" and "));
    }
    text.push_str(")\n");
    text + &not_fully(enforcement, ["partly enforced", "not enforced"])
}

/// A line with what the host does in part, and not at all, in these words; nothing where it does everything.
fn not_fully(enforcement: &Enforcement, [partly, not]: [&str; 2]) -> String {
    let lacking: Vec<String> = [(partly, Level::Partial), (not, Level::None)]
        .into_iter()
        .map(|(words, level)| (words, of_level(enforcement, level)))
        .filter(|(_, names)| !names.is_empty())
        .map(|(words, names)| format!("{words}: {names}"))
        .collect();
    if lacking.is_empty() {
        return String::new();
    }
    format!("          {} · why: opensafe doctor\n", lacking.join(" · "))
}

fn of_level(enforcement: &Enforcement, level: Level) -> String {
    let operations = enforcement.operations();
    let names = operations
        .iter()
        .filter(|(_, operation)| operation.level == level)
        .map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(", ")
}

/// The lines at a run's end.
fn summary(run: &RunStart, end: &RunEnd, record: &Path, home: &Path) -> String {
    let ended = end.status.map_or_else(
        || "the command never ran".to_owned(),
        |status| status.to_string(),
    );
    let ended = match &end.responses.killed_by {
        Some(response) => format!(
            "{ended} as response {} asked",
            printable(response.as_bytes())
        ),
        None => ended,
    };
    let mut text = format!(
        "opensafe: run {} ended after {}, {ended}\n",
        run.id,
        duration(end.duration)
    );
    let (counts, touched) = (end.counts, end.touched);
    let ran = counts.exec.allow + counts.exec.audit;
    let attempts = counts.denials();
    let mut facts = vec![
        if ran > touched.programs {
            format!("{} ({} different)", some(ran, "program"), touched.programs)
        } else {
            some(ran, "program")
        },
        // Without the hooks that decide about files, nobody saw any.
        if run.enforcement.file.level == Level::None {
            "files: only failed opens".to_owned()
        } else {
            format!(
                "{} read, {} written",
                some(touched.files_read, "file"),
                touched.files_written
            )
        },
        some(touched.destinations, "destination"),
    ];
    let denial = if run.mode == Mode::Observe {
        "would-be denial"
    } else {
        "denial"
    };
    facts.push(if attempts > touched.denials {
        format!(
            "{} ({})",
            some(touched.denials, denial),
            some(attempts, "attempt")
        )
    } else {
        some(attempts, denial)
    });
    if end.responses.done > 0 {
        facts.push(some(end.responses.done, "response"));
    }
    if end.responses.failed > 0 {
        facts.push(format!("{} failed", some(end.responses.failed, "response")));
    }
    facts.push(format!("{} lost", some(lost(&end.losses), "event")));
    let _ = writeln!(text, "          {}", facts.join(" · "));

    let record = printable_path(record.as_os_str().as_encoded_bytes(), home);
    let mut left = vec![match end.losses.record_failed {
        0 => format!("record {record}"),
        failed => format!(
            "record {record}, incomplete: {} could not be written",
            some(failed, "event")
        ),
    }];
    if end.cleanup.killed > 0 {
        left.push(format!(
            "{} outlived the command, killed",
            some_with(end.cleanup.killed, "process", "processes")
        ));
    }
    left.push(match &end.cleanup.cgroup_left {
        None => "cgroup removed".to_owned(),
        Some(why) => format!("cgroup not removed: {}", printable(why.as_bytes())),
    });
    let _ = writeln!(text, "          {}", left.join(" · "));
    let trouble: Vec<String> = end
        .trouble
        .all()
        .iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(_, count, [one, many])| some_with(*count, one, many))
        .collect();
    if !trouble.is_empty() {
        let _ = writeln!(text, "          trouble: {}", trouble.join(" · "));
    }
    if attempts > 0 {
        let _ = writeln!(text, "          why: opensafe events {} --denied", run.id);
    }
    text
}

/// `3 files`.
fn some(count: u64, thing: &str) -> String {
    some_with(count, thing, &format!("{thing}s"))
}

fn some_with(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `0.4 s`, `41 s`, `3 min 5 s`, `2 h 40 min`.
#[must_use]
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}
