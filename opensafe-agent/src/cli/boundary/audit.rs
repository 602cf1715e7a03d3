//! `opensafe boundary audit`.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;

use crate::{
    account::Account,
    boundary::audit::{Facts, Finding, Of, Who, findings, is_open, look},
    cli::{
        Advise as _,
        args::{BoundaryAuditArgs, SandboxArgs},
        output,
        policy::input,
    },
    policy::Policy,
    rules::{RuleSet, Severity},
    sink::{
        record::{
            place::Invoker,
            read::{Line, read},
        },
        text::{decode, printable},
    },
};

/// The policy that `opensafe run` takes if none is named.
const DEFAULT_POLICY: &str = "default";

pub(super) fn audit(args: &BoundaryAuditArgs) -> anyhow::Result<ExitCode> {
    let subject = Subject::of(args)?;
    let rules = match subject.policy.as_slice() {
        [] => None,
        policy => Some(evaluate(policy, &subject.sandbox)?),
    };
    let facts = look(&subject.of, rules, subject.who)
        .advise("for processes of other users, run it with sudo")?;
    let found = findings(&facts);
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{}", json(&facts, &found)?)?;
    } else {
        show(&facts, &found, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(is_open(&found))))
}

/// What is audited, and what is known about it from elsewhere than the kernel.
struct Subject {
    of: Of,
    policy: Vec<PathBuf>,
    sandbox: SandboxArgs,
    who: Who,
}

impl Subject {
    fn of(args: &BoundaryAuditArgs) -> anyhow::Result<Self> {
        if let Some(run) = &args.run {
            let path = Invoker::current().find(run)?;
            let lines = read(&path)?;
            let start = lines.start().context("its record has no beginning")?;
            return Self::of_run(args, start);
        }
        let of = match (args.pid, &args.cgroup) {
            (Some(process), _) => Of::Process(process),
            (None, Some(cgroup)) => Of::Cgroup(cgroup.clone()),
            (None, None) => Of::Here,
        };
        let mut policy = args.policy.clone();
        let here = matches!(of, Of::Here);
        if here && policy.is_empty() {
            policy.push(DEFAULT_POLICY.into());
        }
        let input = input(&args.sandbox)?;
        let account = Account::named(&input.user.name).context("the user has no account")?;
        // Of a process that was started by others, it is not known what it works on.
        let workspace = (here || args.sandbox.workspace.is_some()).then_some(input.workspace);
        Ok(Self {
            of,
            policy,
            sandbox: args.sandbox.clone(),
            who: Who {
                account,
                workspace,
                observing: false,
            },
        })
    }

    /// A run: all of it is in its record's first line.
    fn of_run(args: &BoundaryAuditArgs, start: &Line) -> anyhow::Result<Self> {
        let path = |key: &str| {
            use std::os::unix::ffi::OsStringExt as _;
            let bytes = start.text(key).map(decode);
            bytes.map(|bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes)))
        };
        let cgroup = path("opensafe.cgroup.path").context("its record names no cgroup")?;
        if !cgroup.exists() {
            return Err(anyhow::anyhow!(
                "run {} has ended",
                start.text("opensafe.run.id").unwrap_or_default()
            ))
            .advise("leave it out to see what another would be given here");
        }
        let user = start.text("user.name").unwrap_or_default().to_owned();
        let workspace = path("opensafe.workspace");
        let account = Account::named(&user).with_context(|| format!("there is no user {user}"))?;
        let directory = path("process.working_directory").unwrap_or_default();
        let mut policy = args.policy.clone();
        if policy.is_empty() {
            policy = start
                .list("opensafe.policy.sources")
                .into_iter()
                .map(|source| source_at(&directory, &source))
                .collect();
        }
        Ok(Self {
            of: Of::Cgroup(cgroup),
            policy,
            sandbox: SandboxArgs {
                workspace: workspace.clone(),
                agent: start.text("gen_ai.agent.name").map(str::to_owned),
                user: Some(user),
            },
            who: Who {
                account,
                workspace,
                observing: start.text("opensafe.mode") == Some("observe"),
            },
        })
    }
}

/// A policy as it was named, from the directory in which it was.
fn source_at(directory: &std::path::Path, source: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    let named = PathBuf::from(std::ffi::OsStr::from_bytes(source));
    let there = directory.join(&named);
    if there.exists() { there } else { named }
}

fn evaluate(policy: &[PathBuf], sandbox: &SandboxArgs) -> anyhow::Result<RuleSet> {
    Ok(Policy::load(policy)?.evaluate(&input(sandbox)?)?)
}

fn json(facts: &Facts, found: &[Finding]) -> anyhow::Result<serde_json::Value> {
    let revision = facts.rules.as_ref().map(|rules| rules.revision.as_str());
    Ok(serde_json::json!({
        "subject": facts.subject,
        "policy": revision,
        "user": facts.user,
        "findings": found,
        "open": is_open(found),
    }))
}

fn show(facts: &Facts, found: &[Finding], out: &mut impl Write) -> anyhow::Result<()> {
    let policy = match &facts.rules {
        Some(rules) => format!("policy {}", rules.revision),
        None => "no policy".to_owned(),
    };
    let subject = printable(facts.subject.as_bytes());
    writeln!(out, "audited: {subject}, user {}, {policy}", facts.user)?;
    for finding in found {
        let (style, what) = (style(finding.severity), printable(finding.what.as_bytes()));
        let name = finding.severity.name();
        writeln!(out, "\n{style}{name:8}{style:#}  {what}")?;
        writeln!(out, "          why: {}", finding.why)?;
        writeln!(out, "          fix: {}", printable(finding.fix.as_bytes()))?;
    }
    let of = |severity| found.iter().filter(|of| of.severity == severity).count();
    let counts: Vec<String> = Severity::ALL
        .iter()
        .rev()
        .map(|severity| (severity, of(*severity)))
        .filter(|(_, count)| *count > 0)
        .map(|(severity, count)| format!("{count} {}", severity.name()))
        .collect();
    if counts.is_empty() {
        writeln!(out, "\nnothing was found")?;
    } else {
        writeln!(out, "\n{} findings: {}", found.len(), counts.join(", "))?;
    }
    Ok(())
}

const fn style(severity: Severity) -> Style {
    match severity {
        Severity::Critical | Severity::High => AnsiColor::Red.on_default().bold(),
        Severity::Medium => AnsiColor::Yellow.on_default(),
        Severity::Low | Severity::Info => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_why_and_how_to_close_it() {
        let finding = Finding {
            id: "user.root",
            severity: Severity::High,
            what: "it runs as root".to_owned(),
            why: "because",
            fix: "run it as a user".to_owned(),
        };
        let value = serde_json::to_value(&finding).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "id": "user.root", "severity": "high", "what": "it runs as root",
                "why": "because", "fix": "run it as a user",
            })
        );
    }
}
