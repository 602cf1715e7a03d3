use opensafe_common::tables::transport;

mod hidden;
mod operations;

use super::*;
use crate::rules::glob::PathGlob;
use crate::rules::peer::{PortRange, Protocol};
use crate::rules::socket::SocketKind;
use crate::rules::{Defaults, RuleId, Severity};

fn rule(id: &str, verdict: Verdict, subject: Subject) -> Rule {
    Rule {
        id: RuleId(id.to_owned()),
        verdict,
        severity: Severity::Medium,
        reason: String::new(),
        origin: None,
        subject,
    }
}

fn file(id: &str, verdict: Verdict, glob: &str, access: Access) -> Rule {
    let globs = vec![PathGlob::parse(glob).unwrap()];
    rule(id, verdict, Subject::File { globs, access })
}

fn exec(id: &str, verdict: Verdict, glob: &str) -> Rule {
    rule(
        id,
        verdict,
        Subject::Exec(vec![PathGlob::parse(glob).unwrap()]),
    )
}

fn connect(
    id: &str,
    verdict: Verdict,
    peer: &str,
    port: Option<&str>,
    protocol: Option<Protocol>,
) -> Rule {
    let subject = Subject::Connect {
        peers: vec![Peer::parse(peer).unwrap()],
        ports: port
            .map(|port| PortRange::parse(port).unwrap())
            .into_iter()
            .collect(),
        protocol,
    };
    rule(id, verdict, subject)
}

fn rules(mut rules: Vec<Rule>) -> RuleSet {
    rules.sort_by(|a, b| a.id.cmp(&b.id));
    RuleSet {
        defaults: Defaults::default(),
        rules,
        revision: "test@0".to_owned(),
    }
}

fn said<'a>(decided: &Decided<'a>) -> (Verdict, Option<&'a str>) {
    (decided.verdict, decided.rule.map(|rule| rule.id.0.as_str()))
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn where_no_rule_speaks_the_default_holds() {
    let none = rules(vec![]);
    assert_eq!(
        said(&none.decide_path(b"/a", Access::READ)),
        (Verdict::Deny, None)
    );
    assert_eq!(
        said(&none.decide_path(b"/a", Access::EXEC)),
        (Verdict::Allow, None)
    );
    assert_eq!(
        said(&none.decide_path(b"/a", Access::UNIX)),
        (Verdict::Deny, None)
    );
    let peer = none.decide_peer(v6("::1"), transport::TCP, 1);
    assert_eq!(said(&peer), (Verdict::Deny, None));
    assert_eq!(said(&none.decide_other_family()), (Verdict::Deny, None));
}

#[test]
fn deny_beats_audit_beats_allow_whichever_is_narrower() {
    let set = rules(vec![
        file("narrow", Verdict::Allow, "/a/b", Access::FILE),
        file("wide", Verdict::Deny, "/a/**", Access::WRITE),
        file("wider", Verdict::Audit, "/**", Access::FILE),
    ]);
    assert_eq!(
        said(&set.decide_path(b"/a/b", Access::WRITE)),
        (Verdict::Deny, Some("wide"))
    );
    assert_eq!(
        said(&set.decide_path(b"/a/b", Access::READ)),
        (Verdict::Audit, Some("wider"))
    );
}

#[test]
fn several_kinds_get_the_strictest_verdict() {
    let set = rules(vec![file("read", Verdict::Allow, "/a", Access::READ)]);
    let both = Access::READ.union(Access::WRITE);
    assert_eq!(
        said(&set.decide_path(b"/a", Access::READ)),
        (Verdict::Allow, Some("read"))
    );
    assert_eq!(said(&set.decide_path(b"/a", both)), (Verdict::Deny, None));
}

#[test]
fn a_rule_speaks_about_its_own_operation_only() {
    let set = rules(vec![
        exec("x", Verdict::Deny, "/bin/sudo"),
        file("f", Verdict::Allow, "/bin/**", Access::READ),
        connect("u", Verdict::Allow, "unix:/bin/sudo", None, None),
    ]);
    assert_eq!(
        said(&set.decide_path(b"/bin/sudo", Access::EXEC)),
        (Verdict::Deny, Some("x"))
    );
    assert_eq!(
        said(&set.decide_path(b"/bin/sudo", Access::READ)),
        (Verdict::Allow, Some("f"))
    );
    assert_eq!(
        said(&set.decide_path(b"/bin/sudo", Access::UNIX)),
        (Verdict::Allow, Some("u"))
    );
}

#[test]
fn the_gravest_rule_is_named_then_the_first() {
    let mut grave = file("z", Verdict::Deny, "/a", Access::READ);
    grave.severity = Severity::Critical;
    let mut milder = vec![
        file("b", Verdict::Deny, "/a", Access::READ),
        file("a", Verdict::Deny, "/a", Access::READ),
        file("0", Verdict::Allow, "/a", Access::READ),
        file("1", Verdict::Deny, "/a", Access::WRITE),
    ];
    assert_eq!(
        rules(milder.clone())
            .decide_path(b"/a", Access::READ)
            .rule
            .unwrap()
            .id
            .0,
        "a"
    );
    milder.push(grave);
    assert_eq!(
        rules(milder)
            .decide_path(b"/a", Access::READ)
            .rule
            .unwrap()
            .id
            .0,
        "z"
    );
}

#[test]
fn ports_and_protocol_narrow_a_peer() {
    let set = rules(vec![connect(
        "web",
        Verdict::Allow,
        "192.0.2.0/24",
        Some("443"),
        Some(Protocol::Tcp),
    )]);
    let allowed = |address, transport, port| {
        set.decide_peer(v6(address), transport, port).verdict == Verdict::Allow
    };
    assert!(allowed("::ffff:192.0.2.9", transport::TCP, 443));
    assert!(!allowed("::ffff:192.0.2.9", transport::TCP, 80));
    assert!(!allowed("::ffff:192.0.2.9", transport::UDP, 443));
    assert!(!allowed("::ffff:192.0.3.9", transport::TCP, 443));
}

#[test]
fn a_port_rule_is_not_about_what_has_no_port() {
    let set = rules(vec![connect(
        "all",
        Verdict::Allow,
        "*",
        Some("1-65535"),
        None,
    )]);
    let peer = set.decide_peer(v6("::1"), transport::ICMP, 0);
    assert_eq!(peer.verdict, Verdict::Deny);
}

#[test]
fn everyone_is_every_peer_of_every_kind() {
    let set = rules(vec![connect("all", Verdict::Allow, "*", None, None)]);
    assert_eq!(set.decide_other_family().verdict, Verdict::Allow);
    assert_eq!(set.decide_abstract(b"x").verdict, Verdict::Allow);
    assert_eq!(
        set.decide_path(b"/run/x", Access::UNIX).verdict,
        Verdict::Allow
    );
    assert_eq!(
        set.decide_peer(v6("::1"), transport::OTHER, 0).verdict,
        Verdict::Allow
    );
}

#[test]
fn everyone_by_tcp_is_no_unix_socket() {
    for narrowed in [
        connect("tcp", Verdict::Allow, "*", None, Some(Protocol::Tcp)),
        connect("tcp", Verdict::Allow, "*", Some("1-65535"), None),
    ] {
        let set = rules(vec![narrowed]);
        assert_eq!(set.decide_other_family().verdict, Verdict::Deny);
        assert_eq!(set.decide_abstract(b"x").verdict, Verdict::Deny);
        assert_eq!(set.decide_path(b"/x", Access::UNIX).verdict, Verdict::Deny);
        assert_eq!(
            set.decide_peer(v6("::1"), transport::TCP, 9).verdict,
            Verdict::Allow
        );
    }
}

#[test]
fn abstract_names_and_paths_are_apart() {
    let set = rules(vec![connect(
        "u",
        Verdict::Allow,
        "unix:@/run/x",
        None,
        None,
    )]);
    assert_eq!(set.decide_abstract(b"/run/x").verdict, Verdict::Allow);
    assert_eq!(
        set.decide_path(b"/run/x", Access::UNIX).verdict,
        Verdict::Deny
    );
}

#[test]
fn a_thousand_rules_are_looked_through_in_well_under_a_millisecond() {
    let set = rules(
        (0..1000)
            .map(|n| {
                file(
                    &format!("r{n:04}"),
                    Verdict::Allow,
                    &format!("/srv/{n}/**/*.{{a,b}}"),
                    Access::FILE,
                )
            })
            .collect(),
    );
    let start = std::time::Instant::now();
    for _ in 0..100 {
        let _ = set.decide_path(b"/srv/999/some/where/below/x.c", Access::READ);
    }
    let each = start.elapsed() / 100;
    // Measured without optimisation; a build machine may be slow and busy.
    assert!(each.as_millis() < 20, "{each:?}");
}
