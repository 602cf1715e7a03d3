//! Tables against what the rules mean: the reference looks every name up in the view and asks the
//! rules; the tables are walked as the kernel walks them.

mod address;
mod kernel;
mod moves;
mod path;
mod reference;
mod size;

use opensafe_common::verdict::{Access, Verdict, Word};

use super::{Limits, Tables, compile};
use crate::rules::glob::PathGlob;
use crate::rules::peer::AbstractGlob;
use crate::rules::{Defaults, Peer, Rule, RuleId, RuleSet, Severity, Subject};
use crate::view::{Dev, Mount, View};

fn glob(source: &str) -> PathGlob {
    PathGlob::parse(source).unwrap()
}

fn rule(number: usize, verdict: Verdict, subject: Subject) -> Rule {
    Rule {
        id: RuleId(format!("rule.{number:04}")),
        verdict,
        severity: Severity::Medium,
        reason: String::new(),
        origin: None,
        subject,
    }
}

fn file(access: Access, globs: &[&str]) -> Subject {
    Subject::File {
        globs: globs.iter().map(|source| glob(source)).collect(),
        access,
    }
}

fn exec(globs: &[&str]) -> Subject {
    Subject::Exec(globs.iter().map(|source| glob(source)).collect())
}

fn connect(peers: Vec<Peer>) -> Subject {
    Subject::Connect {
        peers,
        ports: Vec::new(),
        protocol: None,
    }
}

fn abstract_name(source: &str) -> Peer {
    Peer::UnixAbstract(AbstractGlob::parse(source).unwrap())
}

fn rules(defaults: Defaults, rules: Vec<(Verdict, Subject)>) -> RuleSet {
    RuleSet {
        defaults,
        rules: rules
            .into_iter()
            .enumerate()
            .map(|(number, (verdict, subject))| rule(number, verdict, subject))
            .collect(),
        revision: "test@0".into(),
    }
}

/// A mount of device 0:`minor`.
fn mount(minor: u32, fs_type: &str, root: &str, point: &str) -> Mount {
    Mount {
        dev: Dev::new(0, minor),
        fs_type: fs_type.into(),
        root: root.into(),
        point: point.into(),
    }
}

fn view(mounts: Vec<Mount>) -> View {
    View {
        mounts,
        ..View::default()
    }
}

fn tables(rules: &RuleSet, view: &View) -> Tables {
    compile(rules, view, Limits::default()).unwrap()
}
