//! `opensafe policy`: looks at policies without enforcing them. Needs no privileges.

mod apply;
mod responses;

use std::{
    collections::BTreeMap,
    env,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use nix::{sys::utsname::uname, unistd::Uid};
use serde_json::{Map, Value, json};

use super::{
    Advise as _,
    args::{PolicyCheckArgs, PolicyCommand, PolicyRulesArgs, PolicyTestArgs, SandboxArgs},
    output,
    table::{self, Cell, Cut, Table},
};
use crate::{
    account::Account,
    policy::{
        Host, Input, Policy, User as InputUser,
        test::{TestResult, run_tests},
    },
    rules::{
        Peer, Rule, RuleSet, Subject,
        access::policy_words,
        peer::{PortRange, Protocol},
    },
    sink::{
        record::{line::verdict, place::Invoker},
        text::printable,
    },
    tables::{self, Limits},
    view::{Dev, Mount, View},
};
use opensafe_common::verdict::{Access, Verdict};

/// The name of an agent that is not named.
const AGENT: &str = "agent";

const COLUMNS: [(&str, Cut); 7] = [
    ("ID", Cut::Never),
    ("ON", Cut::Never),
    ("MATCH", Cut::Never),
    ("ACCESS/PORTS", Cut::Never),
    ("VERDICT", Cut::Never),
    ("SEVERITY", Cut::Never),
    ("REASON", Cut::Never),
];

pub(super) fn policy(command: &PolicyCommand) -> anyhow::Result<ExitCode> {
    match command {
        PolicyCommand::Apply(args) => apply::apply(args),
        PolicyCommand::Check(args) => check(args),
        PolicyCommand::Rules(args) => rules(args),
        PolicyCommand::Test(args) => test(args),
    }
}

fn check(args: &PolicyCheckArgs) -> anyhow::Result<ExitCode> {
    let policy = Policy::load(&args.policy.policy)?;
    let input = input(&args.sandbox)?;
    let rules = policy.evaluate(&input)?;
    let responses = policy.responses(&input, &rules)?;
    // A host has more mounts than one, but what is too large for one is too large for it.
    let view = View {
        mounts: vec![Mount {
            dev: Dev::new(0, 1),
            fs_type: "ext4".to_owned(),
            root: b"/".to_vec(),
            point: b"/".to_vec(),
        }],
        ..View::default()
    };
    tables::compile(&rules, &view, Limits::default())
        .with_context(|| format!("policy {}", policy.name()))?;
    let mut out = output::stdout();
    writeln!(
        out,
        "policy {} is fit: {} for agent \"{}\" in {}",
        rules.revision,
        counted(rules.rules.len(), responses.len()),
        printable(input.agent.as_bytes()),
        printable(input.workspace.as_os_str().as_encoded_bytes()),
    )?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// `41 rules`, `41 rules and 1 response`.
fn counted(rules: usize, responses: usize) -> String {
    let some = |count: usize, thing: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {thing}{plural}")
    };
    match responses {
        0 => some(rules, "rule"),
        count => format!("{} and {}", some(rules, "rule"), some(count, "response")),
    }
}

fn rules(args: &PolicyRulesArgs) -> anyhow::Result<ExitCode> {
    let policy = Policy::load(&args.policy.policy)?;
    let input = input(&args.sandbox)?;
    let rules = policy.evaluate(&input)?;
    let responses = policy.responses(&input, &rules)?;
    let mut out = output::stdout();
    if args.json {
        let mut json = rules_json(&rules);
        json["responses"] = responses::json(&responses);
        writeln!(out, "{json}")?;
    } else {
        show_rules(&rules, output::width(), &mut out)?;
        responses::show(&responses, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The sandbox that `opensafe run` would make for these arguments, as a policy is told of it.
pub(super) fn input(args: &SandboxArgs) -> anyhow::Result<Input> {
    let user = match &args.user {
        Some(name) => Account::named(name).with_context(|| format!("there is no user {name}"))?,
        None => {
            let owner = Invoker::current().owner;
            let uid = owner.map_or_else(|| Uid::current().as_raw(), |owner| owner.uid);
            Account::of(uid)
                .with_context(|| format!("user {uid} has no account"))
                .advise("name one with --user")?
        }
    };
    let workspace = args.workspace.clone().unwrap_or_else(|| ".".into());
    let workspace = workspace
        .canonicalize()
        .with_context(|| format!("the workspace {}", workspace.display()))?;
    let host = uname().context("the host's name")?;
    let agent = args.agent.clone().unwrap_or_else(|| AGENT.to_owned());
    let tmp = env::var_os("TMPDIR")
        .map(PathBuf::from)
        .filter(|tmp| tmp.is_absolute());
    Ok(Input {
        workspace,
        home: real(user.home),
        tmp: real(tmp.unwrap_or_else(|| "/tmp".into())),
        user: InputUser {
            name: user.name,
            uid: user.uid,
        },
        runtime: "process".to_owned(),
        labels: BTreeMap::new(),
        command: vec![agent.clone()],
        host: Host {
            name: host.nodename().to_string_lossy().into_owned(),
            kernel: host.release().to_string_lossy().into_owned(),
            capabilities: ["exec", "file", "connect"].map(str::to_owned).to_vec(),
        },
        agent,
    })
}

/// Rules are about where things are.
fn real(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

/// A rule's subject in the words of a policy.
#[derive(Default)]
struct Words {
    on: &'static str,
    matches: Vec<String>,
    access: Vec<&'static str>,
    ports: Vec<String>,
    protocol: Option<&'static str>,
}

impl Words {
    fn of(subject: &Subject) -> Self {
        match subject {
            Subject::Exec(globs) => Self {
                on: "exec",
                matches: strings(globs),
                ..Self::default()
            },
            Subject::File { globs, access } => Self {
                on: "file",
                matches: strings(globs),
                access: policy_words(*access),
                ..Self::default()
            },
            Subject::Connect {
                peers,
                ports,
                protocol,
            } => Self::endpoints("connect", peers, ports, *protocol),
            Subject::Bind {
                addresses,
                ports,
                protocol,
            } => Self::endpoints("bind", addresses, ports, *protocol),
            Subject::Socket(kinds) => Self {
                on: "socket",
                matches: strings(kinds),
                ..Self::default()
            },
            Subject::Operation(operation) => Self {
                on: operation.name(),
                matches: vec!["*".to_owned()],
                ..Self::default()
            },
        }
    }

    fn endpoints(
        on: &'static str,
        peers: &[Peer],
        ports: &[PortRange],
        protocol: Option<Protocol>,
    ) -> Self {
        Self {
            on,
            matches: peers.iter().map(peer).collect(),
            ports: strings(ports),
            protocol: protocol.map(Protocol::name),
            access: Vec::new(),
        }
    }

    /// What narrows the match: `read, write`, `443, 8000-8099 tcp`, `any`.
    fn narrowed(&self, subject: &Subject) -> String {
        match subject {
            Subject::File { access, .. } if *access == Access::FILE => "any".to_owned(),
            Subject::File { .. } => self.access.join(", "),
            Subject::Exec(_) | Subject::Socket(_) | Subject::Operation(_) => String::new(),
            Subject::Connect { .. } | Subject::Bind { .. } => {
                let ports = self.ports.join(", ");
                let both = [ports.as_str(), self.protocol.unwrap_or_default()];
                let text = both.join(" ").trim().to_owned();
                if text.is_empty() {
                    "any".to_owned()
                } else {
                    text
                }
            }
        }
    }
}

fn strings(all: &[impl ToString]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn peer(peer: &Peer) -> String {
    match peer {
        Peer::Any => "*".to_owned(),
        Peer::Ip(prefix) => prefix.to_string(),
        Peer::UnixPath(glob) => format!("unix:{glob}"),
        Peer::UnixAbstract(glob) => glob.to_string(),
    }
}

/// A table where it fits, or else one rule below the other: whoever asks for rules wants to see them whole.
fn show_rules(rules: &RuleSet, width: Option<usize>, out: impl Write) -> io::Result<()> {
    let rows = rows(rules);
    if width.is_some_and(|width| table::natural(&COLUMNS, &rows) > width) {
        return rules_list(rules, out);
    }
    let mut table = Table::new(COLUMNS, None, out);
    for row in rows {
        table.row(row)?;
    }
    table.finish()
}

/// A paragraph for each rule, and the defaults at the end.
fn rules_list(rules: &RuleSet, mut out: impl Write) -> io::Result<()> {
    let bold = Style::new().bold();
    for rule in &rules.rules {
        let words = Words::of(&rule.subject);
        let (style, verdict) = (style(rule.verdict), verdict(rule.verdict));
        let narrowed = match words.narrowed(&rule.subject) {
            any if any.is_empty() || any == "any" => String::new(),
            narrowed => format!(" ({narrowed})"),
        };
        writeln!(
            out,
            "{bold}{}{bold:#}: {style}{verdict}{style:#} {}{narrowed}, severity {}",
            printable(rule.id.0.as_bytes()),
            words.on,
            rule.severity.name(),
        )?;
        if !rule.reason.is_empty() {
            writeln!(out, "  {}", printable(rule.reason.as_bytes()))?;
        }
        for pattern in &words.matches {
            writeln!(out, "    {}", printable(pattern.as_bytes()))?;
        }
        writeln!(out)?;
    }
    writeln!(out, "where no rule matches:")?;
    for (on, default) in rules.defaults.all() {
        let style = style(default);
        writeln!(
            out,
            "  {bold}defaults.{on}{bold:#}: {style}{}{style:#}",
            verdict(default)
        )?;
    }
    out.flush()
}

/// A row for each rule, a further one for each further match, and at the end the defaults.
fn rows(rules: &RuleSet) -> Vec<[Cell; 7]> {
    let mut rows = Vec::new();
    let shown = |text: &str| Cell::new(printable(text.as_bytes()));
    for rule in &rules.rules {
        let words = Words::of(&rule.subject);
        let mut matches = words.matches.iter();
        let first = matches.next().map_or("", String::as_str);
        rows.push([
            shown(&rule.id.0),
            Cell::new(words.on),
            shown(first),
            Cell::new(words.narrowed(&rule.subject)),
            Cell::new(verdict(rule.verdict)).styled(style(rule.verdict)),
            Cell::new(rule.severity.name()),
            shown(&rule.reason),
        ]);
        for further in matches {
            let mut row = [const { Cell::blank() }; 7];
            row[2] = shown(further);
            rows.push(row);
        }
    }
    for (on, default) in rules.defaults.all() {
        rows.push([
            Cell::new(format!("defaults.{on}")),
            Cell::new(on),
            Cell::new("where no rule matches"),
            Cell::new(""),
            Cell::new(verdict(default)).styled(style(default)),
            Cell::new(""),
            Cell::new(""),
        ]);
    }
    rows
}

const fn style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Allow => AnsiColor::Green.on_default(),
        Verdict::Audit => AnsiColor::Cyan.on_default(),
        Verdict::Deny => AnsiColor::Red.on_default(),
    }
}

pub(crate) fn rules_json(rules: &RuleSet) -> Value {
    let defaults: Map<String, Value> = rules
        .defaults
        .all()
        .map(|(on, default)| (on.to_owned(), verdict(default).into()))
        .collect();
    json!({
        "revision": rules.revision,
        "defaults": defaults,
        "rules": rules.rules.iter().map(rule_json).collect::<Vec<_>>(),
    })
}

/// A rule in the form that a policy has it in, with where it was written.
fn rule_json(rule: &Rule) -> Value {
    let words = Words::of(&rule.subject);
    let mut json = json!({
        "id": rule.id,
        "on": words.on,
        "match": words.matches,
        "verdict": verdict(rule.verdict),
        "severity": rule.severity,
        "reason": rule.reason,
    });
    let mut put = |key: &str, value: Value| json[key] = value;
    match &rule.subject {
        Subject::File { .. } => put("access", json!(words.access)),
        Subject::Connect { ports, .. } | Subject::Bind { ports, .. } => {
            if !ports.is_empty() {
                put("ports", ports.iter().map(port_json).collect());
            }
            if let Some(protocol) = words.protocol {
                put("protocol", json!(protocol));
            }
        }
        Subject::Exec(_) | Subject::Socket(_) | Subject::Operation(_) => {}
    }
    if let Some(origin) = &rule.origin {
        put("origin", json!(origin));
    }
    json
}

/// A number, or `"FIRST-LAST"`.
fn port_json(ports: &PortRange) -> Value {
    if ports.first == ports.last {
        json!(ports.first)
    } else {
        json!(ports.to_string())
    }
}

fn test(args: &PolicyTestArgs) -> anyhow::Result<ExitCode> {
    let results = run_tests(&args.policy.policy)?;
    if results.is_empty() {
        let named: Vec<_> = args
            .policy
            .policy
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(anyhow::anyhow!("policy {}: has no tests", named.join(" ")))
            .advise("a test is a rule whose name starts with `test_`");
    }
    let out = output::stdout();
    if args.json {
        tests_json(&results, out)?;
    } else {
        tests_text(&results, out)?;
    }
    let ran = results.iter().filter(|result| !result.skipped);
    let all_passed = ran.clone().all(|result| result.passed);
    Ok(ExitCode::from(u8::from(ran.count() == 0 || !all_passed)))
}

/// As cargo has it: a line for each test, then what went wrong, then the counts.
fn tests_text(results: &[TestResult], mut out: impl Write) -> io::Result<()> {
    let mut counts = [0; 3];
    for result in results {
        let (at, word, colour) = match (result.skipped, result.passed) {
            (true, _) => (2, "left out", AnsiColor::Yellow),
            (_, true) => (0, "ok", AnsiColor::Green),
            (_, false) => (1, "FAILED", AnsiColor::Red),
        };
        counts[at] += 1;
        let style = colour.on_default();
        let name = result.name.strip_prefix("data.").unwrap_or(&result.name);
        writeln!(out, "test {name} ... {style}{word}{style:#}")?;
    }
    for result in results {
        let failed = !result.passed && !result.skipped;
        if failed {
            let why = result.error.as_deref().unwrap_or("is not true");
            writeln!(out, "\n{} ({}): {why}", result.name, result.origin)?;
        }
        for printed in result.output.iter().filter(|_| failed) {
            writeln!(out, "  {}", printable(printed.as_bytes()))?;
        }
    }
    let [passed, failed, skipped] = counts;
    write!(out, "\n{passed} passed, {failed} failed")?;
    if skipped > 0 {
        write!(out, ", {skipped} left out")?;
    }
    writeln!(out)?;
    out.flush()
}

fn tests_json(results: &[TestResult], mut out: impl Write) -> io::Result<()> {
    for result in results {
        let line = json!({
            "name": result.name,
            "origin": result.origin,
            "passed": result.passed,
            "skipped": result.skipped,
            "duration_ms": result.duration.as_secs_f64() * 1000.0,
            "error": result.error,
            "output": result.output,
        });
        writeln!(out, "{line}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests;
