//! Which rule an event is put down to, and in which words.

use std::{net::Ipv6Addr, sync::Arc};

use opensafe_common::{operation::How, tables::transport};

use super::*;
use crate::{
    event::{Because, Decision, Event, Generation, Place, PolicyNumber, Task, What},
    rules::{
        Defaults, Rule, RuleSet, Subject,
        glob::PathGlob,
        peer::{IpPrefix, PortRange},
        socket::SocketKind,
    },
    view::{Dev, Mount, View},
};

const DISK: Dev = Dev::new(8, 1);

fn rule(id: &str, verdict: Verdict, severity: Severity, subject: Subject) -> Rule {
    Rule {
        id: RuleId(id.into()),
        verdict,
        severity,
        reason: format!("because of {id}"),
        origin: None,
        subject,
    }
}

fn file(globs: &[&str], access: Access) -> Subject {
    let globs = globs.iter().map(|glob| PathGlob::parse(glob).unwrap());
    Subject::File {
        globs: globs.collect(),
        access,
    }
}

/// What becomes of one event under these rules, on a disk that is the whole view.
fn enriched(rules: Vec<Rule>, what: What) -> Action {
    let mut enricher = Enricher::new(Generation(1), in_force(rules, PolicyNumber::FIRST));
    taken(&mut enricher, what)
}

/// Rules that decide, or did, on a disk that is the whole view.
fn in_force(rules: Vec<Rule>, number: PolicyNumber) -> InForce {
    let rules = RuleSet {
        defaults: Defaults::default(),
        rules,
        revision: "team@1".into(),
    };
    let root = Mount {
        dev: DISK,
        fs_type: "ext4".into(),
        root: b"/".to_vec(),
        point: b"/".to_vec(),
    };
    let view = View {
        mounts: vec![root],
        ..View::default()
    };
    InForce {
        rules: Arc::new(rules),
        view: Arc::new(view),
        number,
    }
}

fn taken(enricher: &mut Enricher, what: What) -> Action {
    let nobody = Pid(u32::MAX);
    let event = Event {
        time: UnixNano(1),
        task: Task {
            pid: nobody,
            tid: nobody,
            parent_pid: nobody,
            uid: 1000,
            gid: 1000,
            cgroup: 1,
            comm: b"sh".to_vec(),
        },
        what,
    };
    let mut out = Vec::new();
    enricher.take(event, &mut out);
    enricher.finish(&mut out);
    out.pop().unwrap().action
}

const fn decision(verdict: Verdict) -> Decision {
    Decision {
        verdict,
        enforced: matches!(verdict, Verdict::Deny),
        errno: Errno::Eacces,
        nameless: false,
        generation: Generation(1),
    }
}

fn place(path: &str) -> Place {
    Place {
        dev: DISK,
        magic: 0xef53,
        path: path.into(),
        partial: false,
        inode: 7,
        mode: 0,
    }
}

fn access_to(path: &str, access: Access, because: Because) -> What {
    What::File {
        decision: decision(Verdict::Deny),
        place: place(path),
        requested: Vec::new(),
        access,
        tentative: false,
        because,
    }
}

/// The rule's id (empty for the default) and the reason.
fn why(action: &Action) -> (&str, &str) {
    let ruling = action.ruling().unwrap();
    let rule = ruling.rule.as_ref().map_or("", |rule| &rule.0);
    (rule, &ruling.reason)
}

fn operation(operation: Operation, how: How, number: u32) -> What {
    What::Operation {
        decision: decision(Verdict::Deny),
        operation,
        how,
        number,
        target: None,
        place: None,
    }
}

#[test]
fn an_operation_is_put_down_to_its_rule_or_its_default() {
    let rules = || {
        vec![rule(
            "debug",
            Verdict::Deny,
            Severity::High,
            Subject::Operation(Operation::Ptrace),
        )]
    };
    let attach = enriched(rules(), operation(Operation::Ptrace, How::Ptrace, 2));
    assert_eq!(why(&attach), ("debug", "because of debug"));
    assert_eq!(attach.ruling().unwrap().severity, Severity::High);
    assert_eq!(attach.name(), "ptrace");
    let load = enriched(rules(), operation(Operation::Bpf, How::Bpf, 5));
    assert_eq!(
        why(&load),
        (
            "",
            "no rule of team@1 allows it, and the default for bpf is deny"
        )
    );
    assert!(matches!(load, Action::Operation { how, .. } if how == "BPF_PROG_LOAD"));
}

#[test]
fn a_target_is_called_by_its_name_and_a_place_as_the_sandbox_sees_it() {
    let what = What::Operation {
        decision: decision(Verdict::Deny),
        operation: Operation::Mount,
        how: How::Mount,
        number: 0,
        target: Some(Pid(std::process::id())),
        place: Some(place("/srv/x")),
    };
    let Action::Operation { target, path, .. } = enriched(Vec::new(), what) else {
        panic!("no operation");
    };
    let target = target.unwrap();
    assert_eq!(target.pid, Pid(std::process::id()));
    assert!(!target.comm.is_empty() && !target.comm.ends_with(b"\n"));
    assert_eq!(path.unwrap(), b"/srv/x");
}

#[test]
fn a_target_that_is_gone_has_no_name() {
    let What::Operation {
        decision,
        operation,
        how,
        number,
        place,
        ..
    } = operation(Operation::Signal, How::Signal, 9)
    else {
        unreachable!();
    };
    let what = What::Operation {
        decision,
        operation,
        how,
        number,
        // Over the highest id that Linux gives (PID_MAX_LIMIT).
        target: Some(Pid(1 << 23)),
        place,
    };
    let Action::Operation { target, how, .. } = enriched(Vec::new(), what) else {
        panic!("no operation");
    };
    assert_eq!(target.unwrap().comm, b"");
    assert_eq!(how, "SIGKILL");
}

fn socket(family: u16, socket_type: u16) -> What {
    What::Socket {
        decision: decision(Verdict::Deny),
        family,
        socket_type,
        protocol: 0,
    }
}

#[test]
fn a_socket_is_put_down_to_the_rule_on_its_kind_or_to_its_peers() {
    let kinds = vec![SocketKind::parse("packet").unwrap()];
    let rules = || {
        vec![rule(
            "wire",
            Verdict::Deny,
            Severity::Medium,
            Subject::Socket(kinds.clone()),
        )]
    };
    let packet = enriched(rules(), socket(17, 3));
    assert_eq!(why(&packet), ("wire", "because of wire"));
    assert!(
        matches!(&packet, Action::Socket { family, socket_type, .. } if family == "packet" && socket_type == "raw")
    );
    let raw = enriched(rules(), socket(2, 3));
    assert_eq!(
        why(&raw),
        (
            "",
            "no rule of team@1 on sockets allows it, and it could reach peers that a rule or the default for \
             connect denies"
        )
    );
}

#[test]
fn binding_is_put_down_to_the_rule_on_the_address() {
    let rules = vec![rule(
        "public",
        Verdict::Deny,
        Severity::Medium,
        Subject::Bind {
            addresses: vec![crate::rules::Peer::Ip(IpPrefix::parse("0.0.0.0").unwrap())],
            ports: vec![PortRange::parse("1-65535").unwrap()],
            protocol: None,
        },
    )];
    let what = What::Bind {
        decision: decision(Verdict::Deny),
        address: "::ffff:0.0.0.0".parse::<Ipv6Addr>().unwrap(),
        port: 8080,
        transport: transport::TCP,
        protocol: 6,
    };
    let bound = enriched(rules, what);
    assert_eq!(why(&bound), ("public", "because of public"));
    assert!(
        matches!(&bound, Action::Bind { address, port: 8080, transport, .. }
            if address.to_string() == "0.0.0.0" && transport == "tcp")
    );
}

#[test]
fn a_directory_that_stays_is_put_down_to_the_rule_below_it() {
    let rules = || {
        vec![rule(
            "ssh",
            Verdict::Deny,
            Severity::Critical,
            file(&["/home/me/.ssh/**"], Access::FILE),
        )]
    };
    let moved = enriched(
        rules(),
        access_to("/home/me", Access::RENAME, Because::Below),
    );
    assert_eq!(
        why(&moved),
        (
            "ssh",
            "what the rule protects lies below it: because of ssh"
        )
    );
    assert_eq!(moved.ruling().unwrap().severity, Severity::Critical);
    let elsewhere = enriched(rules(), access_to("/srv", Access::RENAME, Because::Below));
    assert_eq!(
        why(&elsewhere),
        ("", "the rules below it would not hold under its other name")
    );
}

#[test]
fn a_file_that_came_open_says_so() {
    let rules = || {
        vec![rule(
            "ssh",
            Verdict::Deny,
            Severity::High,
            file(&["/home/me/.ssh/**"], Access::FILE),
        )]
    };
    for because in [Because::Itself, Because::Received] {
        let action = enriched(
            rules(),
            access_to("/home/me/.ssh/id", Access::READ, because),
        );
        assert_eq!(why(&action).0, "ssh");
        let Action::File { received, .. } = action else {
            panic!("no file");
        };
        assert_eq!(received, because == Because::Received);
    }
}

#[test]
fn a_program_that_is_mapped_is_put_down_to_what_holds_for_running_it() {
    let globs = vec![PathGlob::parse("/usr/bin/sudo").unwrap()];
    let rules = vec![rule(
        "sudo",
        Verdict::Deny,
        Severity::High,
        Subject::Exec(globs),
    )];
    let map = |path| access_to(path, Access::EXEC, Because::Itself);
    let mapped = enriched(rules, map("/usr/bin/sudo"));
    assert_eq!(why(&mapped).0, "sudo");
    assert_eq!((mapped.name(), mapped.default_name()), ("file", "exec"));
}

#[test]
fn a_change_to_what_is_hidden_is_put_down_to_what_hides_it() {
    let rules = vec![rule(
        "hide",
        Verdict::Deny,
        Severity::Medium,
        file(&["/h/**"], Access::READING),
    )];
    let change = access_to("/h/x", Access::DELETE, Because::Itself);
    assert_eq!(why(&enriched(rules, change)).0, "hide");
}

#[test]
fn a_decision_is_put_down_to_the_policy_that_made_it_and_to_no_other() {
    let policy = |id: &str, number| {
        let subject = file(&["/x"], Access::READ);
        let rule = rule(id, Verdict::Deny, Severity::High, subject);
        in_force(vec![rule], PolicyNumber(number))
    };
    // Taken up: whatever decided before generation 5 is not known. Then carried over to other mounts, then replaced.
    let mut enricher = Enricher::new(Generation(5), policy("third", 2));
    enricher.policy_changed(Generation(8), policy("third", 2));
    enricher.policy_changed(Generation(9), policy("fourth", 3));
    let mut decided_by = |generation| {
        let mut what = access_to("/x", Access::READ, Because::Itself);
        if let What::File { decision, .. } = &mut what {
            decision.generation = Generation(generation);
        }
        let action = taken(&mut enricher, what);
        let policy = action.ruling().unwrap().policy;
        (why(&action).0.to_owned(), policy.map(|number| number.0))
    };
    assert_eq!(decided_by(4), (String::new(), None));
    for generation in [5, 7, 8] {
        assert_eq!(decided_by(generation), ("third".to_owned(), Some(2)));
    }
    assert_eq!(decided_by(9), ("fourth".to_owned(), Some(3)));
}
