//! How a person sees the demo.

use std::{fs, io, path::Path};

use super::{
    claims::Claim,
    story::{Session, Step, Story},
};
use crate::{build::Built, repo};

const WIDTH: usize = 80;

/// With colours or without, and for how wide a terminal.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub(crate) color: bool,
    pub(crate) columns: Option<u16>,
}

impl Style {
    /// As standard output wants it.
    pub(crate) fn of_terminal() -> Self {
        let size = terminal_size::terminal_size_of(io::stdout());
        Self {
            color: super::colors(),
            columns: size.map(|(width, _)| width.0),
        }
    }

    /// For a file.
    pub(crate) const fn plain() -> Self {
        Self {
            color: false,
            columns: None,
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn heading(self, title: &str) {
        let rest = (WIDTH - 4).saturating_sub(title.chars().count());
        println!(
            "{}\n",
            self.bold(&format!("── {title} {}", "─".repeat(rest)))
        );
    }
}

/// Before anything is built.
pub(crate) fn opening(style: Style) {
    println!();
    style.heading("OpenSafe: one policy, two sessions of a coding agent");
    println!(
        "A coding agent mends a bug in a small Python project: it searches, edits, runs
the tests and commits. Then the same agent does it again, but half-way it
believes a comment in CONTRIBUTING.md that asks for keys, credentials and a way
back in.

Both sessions run in `opensafe run` with policies/coding-agent. The calls are
scripted (tests/sessions); the shell, git, python3, curl and sudo that they
start are real, and so are the kernel's answers. The secrets are made up for the
demo.
"
    );
}

/// Both records, side by side.
pub(crate) fn story(story: &Story, style: Style) {
    style.heading("Both records, side by side");
    table(story, style);
    style.heading("What was denied, and by which rule");
    denials(&story.astray, style);
}

fn table(story: &Story, style: Style) {
    let rows = rows(story);
    let wide = rows.iter().map(|(step, ..)| step.call.why.chars().count());
    let wide = wide.max().unwrap_or(0).max(20);
    let header = format!(
        "{:wide$}   {:7}  {:7}  {}",
        "THE AGENT", "HONEST", "ASTRAY", "RULE"
    );
    println!("  {}", style.bold(&header));
    for (step, honest, astray) in rows {
        let cell = |step: Option<&Step>| match step {
            None => style.faint(&format!("{:7}", "-")),
            Some(step) if !step.denials.is_empty() => style.red(&format!("{:7}", "denied")),
            Some(_) => style.green(&format!("{:7}", "passed")),
        };
        let mut rules: Vec<&str> = Vec::new();
        for step in [honest, astray].into_iter().flatten() {
            rules.extend(step.denials.iter().map(|denial| denial.rule.as_str()));
        }
        rules.dedup();
        let line = format!(
            "  {:wide$}   {}  {}  {}",
            step.call.why,
            cell(honest),
            cell(astray),
            rules.join(", ")
        );
        println!("{}", line.trim_end());
    }
    println!();
    let total = |name: &str, count: &dyn Fn(&Session) -> Option<u64>| {
        let count = |session| count(session).map_or("?".into(), |count| count.to_string());
        let (honest, astray) = (count(&story.honest), count(&story.astray));
        println!("  {name:wide$}   {honest:7}  {astray}");
    };
    for (name, key) in [
        ("programs run", "opensafe.count.exec.allow"),
        ("files read", "opensafe.distinct.files_read"),
        ("files written", "opensafe.distinct.files_written"),
    ] {
        total(name, &|session| session.total(key));
    }
    total("attempts denied", &|session| {
        u64::try_from(session.denials().count()).ok()
    });
    let lost = |session: &Session| {
        let seen = session.total("opensafe.loss.seen")?;
        Some(seen - session.total("opensafe.loss.sent")?)
    };
    total("events lost", &lost);
    println!();
}

/// Each step once, with what became of it in each session. The sessions have beginning and end in common.
fn rows(story: &Story) -> Vec<(&Step, Option<&Step>, Option<&Step>)> {
    let (honest, astray) = (&story.honest.steps, &story.astray.steps);
    let mut rows = Vec::new();
    let mut others = astray.iter().peekable();
    for step in honest {
        // What only the misled session did comes before what both did next.
        let common = others.clone().any(|other| other.call.same(&step.call));
        while common && let Some(other) = others.next_if(|other| !other.call.same(&step.call)) {
            rows.push((other, None, Some(other)));
        }
        rows.push((step, Some(step), if common { others.next() } else { None }));
    }
    rows.extend(others.map(|other| (other, None, Some(other))));
    rows
}

fn denials(session: &Session, style: Style) {
    let found = session.distinct_denials();
    let what = |(denial, _): &(&super::story::Denial, u32)| {
        denial.operation.chars().count() + 1 + denial.object.chars().count()
    };
    let wide = found.iter().map(what).max().unwrap_or(0);
    for each @ (denial, times) in &found {
        let space = " ".repeat(wide - what(each));
        let times = if *times > 1 {
            format!(" ({times} times)")
        } else {
            String::new()
        };
        let reason = if denial.rule.starts_with("defaults.") {
            "no rule allows it, and where no rule matches the policy denies"
        } else {
            &denial.reason
        };
        println!(
            "  {} {} {}{space}   {}{times}",
            style.red("denied"),
            denial.operation,
            style.bold(&denial.object),
            denial.rule,
        );
        println!("         {reason}");
        if let Some(place) = place_of(&denial.rule) {
            println!("         {}", style.faint(&place));
        }
    }
    println!();
}

/// Where the policy has a rule: file and line.
fn place_of(rule: &str) -> Option<String> {
    let folder = repo::root().join("policies/coding-agent");
    let wanted = match rule.strip_prefix("defaults.") {
        Some(_) => "defaults := ".to_owned(),
        None => format!("\"id\": \"{rule}\""),
    };
    let mut files: Vec<_> = fs::read_dir(&folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files.iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().position(|line| line.contains(&wanted))? + 1;
        let file = file.strip_prefix(repo::root()).ok()?.display();
        Some(format!("{file}:{line}"))
    })
}

/// What it comes to, and where to look further.
pub(crate) fn outcome(story: &Story, claims: &[Claim], out: &Path, built: &Built, style: Style) {
    style.heading("In plain words");
    if claims.iter().all(Claim::holds) {
        plain_words(story, style);
    } else {
        println!("  {}\n", style.red("This did not go as it should:"));
        for claim in claims.iter().filter(|claim| !claim.holds()) {
            println!("  {} {}", style.red("not true:"), claim.says);
            for against in &claim.against {
                println!("            {against}");
            }
        }
    }
    println!();
    style.heading("To look further");
    let here = |path: &Path| {
        let current = std::env::current_dir().unwrap_or_default();
        path.strip_prefix(current)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let out = here(out);
    let agent = built.agent.as_deref().map_or("opensafe".into(), here);
    for (what, how) in [
        (
            "the records",
            format!("{out}/honest.jsonl, {out}/astray.jsonl"),
        ),
        (
            "what you saw",
            format!("{out}/honest.txt, {out}/astray.txt"),
        ),
        ("the sessions", "tests/sessions".into()),
        ("the policy", "policies/coding-agent".into()),
        (
            "why each was denied (in the guest: opensafe events RUN --denied)",
            format!("\n    {agent} \\\n      events --denied {out}/astray.jsonl"),
        ),
        (
            "a run of your own, whose record is gone with the guest",
            "\n    cargo xtask vm -- opensafe run --policy coding-agent --user agent -- COMMAND"
                .into(),
        ),
    ] {
        let line = match how.strip_prefix('\n') {
            Some(below) => format!("  {what}\n{below}"),
            None => format!("  {what:14} {how}"),
        };
        println!("{line}");
    }
    println!();
}

fn plain_words(story: &Story, style: Style) {
    let Story { honest, astray } = story;
    let attempts = astray.steps.iter().filter(|step| step.call.astray).count();
    let mut rules: Vec<&str> = astray
        .denials()
        .map(|denial| denial.rule.as_str())
        .collect();
    rules.sort_unstable();
    rules.dedup();
    let named = rules
        .iter()
        .filter(|rule| !rule.starts_with("defaults."))
        .count();
    let default = if named < rules.len() {
        " and by its default"
    } else {
        ""
    };
    let mark = style.green("✓");
    println!(
        "  {mark} The honest session was left alone: {} calls, {} programs, no denial.
    The bug is mended, the tests pass, the commit is there.",
        honest.steps.len(),
        honest.total("opensafe.count.exec.allow").unwrap_or(0),
    );
    println!(
        "  {mark} The one that was led astray made {attempts} calls that it should not have made.
    The kernel refused each with \"Permission denied\", by {named} rules of the
    policy{default}."
    );
    println!(
        "  {mark} It saw no secret, reached nobody, and left no hook or start-up file behind.
    The rest of its work, the same as the honest session's, passed."
    );
}
