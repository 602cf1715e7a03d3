use opensafe_common::tables::transport;

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

#[test]
fn an_operation_is_decided_by_its_own_rules_and_its_own_default() {
    let mut set = rules(vec![
        rule(
            "debug",
            Verdict::Audit,
            Subject::Operation(Operation::Ptrace),
        ),
        rule(
            "no-debug",
            Verdict::Deny,
            Subject::Operation(Operation::Ptrace),
        ),
        rule(
            "keys",
            Verdict::Allow,
            Subject::Operation(Operation::Keyring),
        ),
    ]);
    set.defaults.operations[Operation::Bpf as usize] = Verdict::Audit;
    let decided = |operation| said(&set.decide_operation(operation));
    assert_eq!(
        decided(Operation::Ptrace),
        (Verdict::Deny, Some("no-debug"))
    );
    assert_eq!(decided(Operation::Keyring), (Verdict::Allow, Some("keys")));
    assert_eq!(decided(Operation::Bpf), (Verdict::Audit, None));
    assert_eq!(decided(Operation::Signal), (Verdict::Deny, None));
    assert_eq!(decided(Operation::Namespace), (Verdict::Allow, None));
}

#[test]
fn the_table_of_operations_is_what_each_comes_to() {
    let mut set = rules(vec![rule(
        "keys",
        Verdict::Audit,
        Subject::Operation(Operation::Keyring),
    )]);
    for default in [Verdict::Allow, Verdict::Audit, Verdict::Deny] {
        set.defaults.operations = [default; Operation::ALL.len()];
        let word = set.operations();
        for operation in Operation::ALL {
            assert!(word.speaks_about(operation.bit()), "{operation:?}");
            assert_eq!(
                word.verdict(operation.bit()),
                set.decide_operation(operation).verdict,
                "{operation:?}"
            );
        }
    }
}

fn bind(id: &str, verdict: Verdict, address: &str, ports: &[&str], protocol: Protocol) -> Rule {
    let subject = Subject::Bind {
        addresses: vec![Peer::parse(address).unwrap()],
        ports: ports
            .iter()
            .map(|port| PortRange::parse(port).unwrap())
            .collect(),
        protocol: Some(protocol),
    };
    rule(id, verdict, subject)
}

#[test]
fn binding_and_contacting_are_apart() {
    let mut set = rules(vec![
        bind("local", Verdict::Allow, "127.0.0.0/8", &[], Protocol::Tcp),
        connect("web", Verdict::Allow, "192.0.2.0/24", None, None),
    ]);
    set.defaults.bind = Verdict::Deny;
    let bound = |address, transport, port| said(&set.decide_bind(v6(address), transport, port));
    let local = (Verdict::Allow, Some("local"));
    assert_eq!(bound("::ffff:127.0.0.1", transport::TCP, 8080), local);
    assert_eq!(bound("::ffff:127.0.0.1", transport::TCP, 0), local);
    let default = (Verdict::Deny, None);
    assert_eq!(bound("::ffff:127.0.0.1", transport::UDP, 8080), default);
    assert_eq!(bound("::ffff:0.0.0.0", transport::TCP, 8080), default);
    assert_eq!(bound("::ffff:192.0.2.1", transport::TCP, 80), default);
    let peer = set.decide_peer(v6("::ffff:127.0.0.1"), transport::TCP, 80);
    assert_eq!(said(&peer), default);
}

#[test]
fn a_port_that_the_kernel_chooses_is_in_no_range() {
    let mut set = rules(vec![
        bind("any", Verdict::Allow, "0.0.0.0", &[], Protocol::Udp),
        bind(
            "none",
            Verdict::Deny,
            "0.0.0.0",
            &["1-65535"],
            Protocol::Udp,
        ),
    ]);
    set.defaults.bind = Verdict::Deny;
    let bound = |port| said(&set.decide_bind(v6("::ffff:0.0.0.0"), transport::UDP, port));
    assert_eq!(bound(0), (Verdict::Allow, Some("any")));
    assert_eq!(bound(53), (Verdict::Deny, Some("none")));
}

fn socket(id: &str, verdict: Verdict, kinds: &[&str]) -> Rule {
    let kinds = kinds.iter().map(|kind| SocketKind::parse(kind).unwrap());
    rule(id, verdict, Subject::Socket(kinds.collect()))
}

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const AF_NETLINK: u16 = 16;
const AF_PACKET: u16 = 17;
const AF_VSOCK: u16 = 40;
const STREAM: u16 = 1;
const DGRAM: u16 = 2;
const RAW: u16 = 3;

#[test]
fn a_socket_whose_peers_are_decided_later_may_be_made() {
    let none = rules(vec![]);
    for (family, socket_type) in [
        (AF_UNIX, STREAM),
        (AF_INET, STREAM),
        (AF_INET6, DGRAM),
        (AF_NETLINK, RAW),
    ] {
        let decided = none.decide_socket(family, socket_type);
        assert_eq!(said(&decided), (Verdict::Allow, None), "{family}");
    }
}

#[test]
fn a_socket_that_can_reach_whom_no_rule_could_tell_apart_gets_the_strictest_verdict() {
    let others = [
        (AF_INET, RAW),
        (AF_INET6, RAW),
        (AF_PACKET, RAW),
        (AF_PACKET, DGRAM),
        (AF_VSOCK, STREAM),
    ];
    let verdicts = |set: &RuleSet| {
        others.map(|(family, socket_type)| set.decide_socket(family, socket_type).verdict)
    };
    assert_eq!(verdicts(&rules(vec![])), [Verdict::Deny; 5]);
    let mut set = rules(vec![connect("all", Verdict::Allow, "*", None, None)]);
    assert_eq!(verdicts(&set), [Verdict::Allow; 5]);
    set.rules
        .push(connect("one", Verdict::Audit, "192.0.2.1", None, None));
    assert_eq!(verdicts(&set), [Verdict::Audit; 5]);
    set.rules
        .push(connect("two", Verdict::Deny, "unix:/run/x", None, None));
    assert_eq!(verdicts(&set), [Verdict::Deny; 5]);
}

#[test]
fn rules_on_sockets_go_before_what_their_peers_come_to() {
    let set = rules(vec![
        socket("vm", Verdict::Allow, &["vsock"]),
        socket("raw", Verdict::Audit, &["*:raw"]),
        socket("no", Verdict::Deny, &["inet6:stream", "38"]),
    ]);
    let decided = |family, socket_type| said(&set.decide_socket(family, socket_type));
    assert_eq!(decided(AF_VSOCK, STREAM), (Verdict::Allow, Some("vm")));
    assert_eq!(decided(AF_VSOCK, RAW), (Verdict::Audit, Some("raw")));
    assert_eq!(decided(AF_INET, RAW), (Verdict::Audit, Some("raw")));
    assert_eq!(decided(AF_INET6, STREAM), (Verdict::Deny, Some("no")));
    assert_eq!(decided(AF_INET6, DGRAM), (Verdict::Allow, None));
    assert_eq!(decided(38, 5), (Verdict::Deny, Some("no")));
}

#[test]
fn the_table_of_sockets_is_what_each_comes_to() {
    let set = rules(vec![
        socket("vm", Verdict::Allow, &["vsock:stream"]),
        socket("raw", Verdict::Audit, &["inet:raw"]),
        socket("no", Verdict::Deny, &["unix:seqpacket"]),
    ]);
    let table = set.sockets();
    for (family, byte) in (0_u16..).zip(table) {
        for socket_type in 1..=10_u16 {
            let verdict = byte >> socket_class(socket_type.into()) & 3;
            let decided = set.decide_socket(family, socket_type).verdict;
            assert_eq!(verdict, decided as u8, "{family} {socket_type}");
        }
    }
}

const CHANGES: Access = Access::CHANGING.union(Access::CREATE);

#[test]
fn what_may_not_be_read_may_not_be_changed_either() {
    let mut set = rules(vec![file("hide", Verdict::Deny, "/h/**", Access::READING)]);
    set.defaults.file = Verdict::Allow;
    let by_rule = (Verdict::Deny, Some("hide"));
    for kind in [Access::READ, Access::WRITE, Access::CREATE, Access::RENAME] {
        assert_eq!(said(&set.decide_path(b"/h/x", kind)), by_rule, "{kind:?}");
    }
    let outside = set.decide_path(b"/x", CHANGES);
    assert_eq!(said(&outside), (Verdict::Allow, None));
    // A rule that allows everything around the place does not open it.
    set.rules
        .push(file("open", Verdict::Allow, "/**", Access::FILE));
    assert_eq!(said(&set.decide_path(b"/h/x", Access::WRITE)), by_rule);
    // Nor does one that says what, but begins outside.
    set.rules.push(file("wide", Verdict::Allow, "/**", CHANGES));
    assert_eq!(said(&set.decide_path(b"/h/x", Access::WRITE)), by_rule);
}

#[test]
fn a_rule_within_a_hidden_place_says_what_may_be_changed_there() {
    let drop_box = file("box", Verdict::Allow, "/h/in/*", Access::CREATE);
    let mut set = rules(vec![
        drop_box,
        file("hide", Verdict::Deny, "/h/**", Access::READING),
    ]);
    let decided = |set: &RuleSet, path: &[u8], kind| {
        let (verdict, rule) = said(&set.decide_path(path, kind));
        (verdict, rule.map(str::to_owned))
    };
    let by = |verdict, rule: &str| (verdict, Some(rule.to_owned()));
    assert_eq!(
        decided(&set, b"/h/in/x", Access::CREATE),
        by(Verdict::Allow, "box")
    );
    assert_eq!(
        decided(&set, b"/h/in/x", Access::READ),
        by(Verdict::Deny, "hide")
    );
    // What it says nothing of is the default's, as where nothing is hidden.
    assert_eq!(
        decided(&set, b"/h/in/x", Access::WRITE),
        (Verdict::Deny, None)
    );
    set.defaults.file = Verdict::Allow;
    assert_eq!(
        decided(&set, b"/h/in/x", Access::WRITE),
        (Verdict::Allow, None)
    );
    assert_eq!(
        decided(&set, b"/h/x", Access::WRITE),
        by(Verdict::Deny, "hide")
    );
    // A denial of changes by name beats it.
    set.rules
        .push(file("no", Verdict::Deny, "/h/in/a", Access::CREATE));
    assert_eq!(
        decided(&set, b"/h/in/a", Access::CREATE),
        by(Verdict::Deny, "no")
    );
}

#[test]
fn a_rule_says_within_only_if_all_of_it_lies_within() {
    let hide = [
        file("a", Verdict::Deny, "/a/**", Access::READING),
        file("b", Verdict::Deny, "/b/**", Access::READ),
    ];
    let says = |verdict, globs: &[&str], access| {
        let globs = globs.iter().map(|glob| PathGlob::parse(glob).unwrap());
        let globs = globs.collect();
        rule("r", verdict, Subject::File { globs, access })
            .says_within(&hide.iter().collect::<Vec<_>>())
    };
    let allow = Verdict::Allow;
    assert!(says(allow, &["/a/x", "/b/**"], Access::WRITE));
    assert!(says(Verdict::Audit, &["/a/{x,y}/*"], Access::DELETE));
    assert!(says(allow, &["/a/x/*.log"], CHANGES));
    assert!(!says(allow, &["/a/x", "/c"], Access::WRITE));
    assert!(!says(allow, &["/*/x"], Access::WRITE));
    assert!(!says(allow, &["/a/x"], Access::READING));
    assert!(!says(allow, &["/a/x"], Access::FILE));
    assert!(!says(Verdict::Deny, &["/a/x"], Access::WRITE));
}

#[test]
fn a_rule_over_two_hidden_places_holds_in_each() {
    let globs = ["/a/x", "/b/x"].map(|glob| PathGlob::parse(glob).unwrap());
    let set = rules(vec![
        file("a", Verdict::Deny, "/a/**", Access::READING),
        file("b", Verdict::Deny, "/b/**", Access::READING),
        rule(
            "both",
            Verdict::Allow,
            Subject::File {
                globs: globs.to_vec(),
                access: Access::WRITE,
            },
        ),
    ]);
    for path in [&b"/a/x"[..], b"/b/x"] {
        let decided = set.decide_path(path, Access::WRITE);
        assert_eq!(said(&decided), (Verdict::Allow, Some("both")));
    }
}

#[test]
fn the_rule_for_which_a_directory_stays_is_the_gravest_that_denies_below_it() {
    let mut ssh = file("ssh", Verdict::Deny, "/home/me/.ssh/**", Access::FILE);
    ssh.severity = Severity::High;
    let set = rules(vec![
        exec("sudo", Verdict::Deny, "/usr/bin/sudo"),
        file("env", Verdict::Deny, "/home/**/.env", Access::FILE),
        file("home", Verdict::Allow, "/home/me/**", Access::FILE),
        ssh,
        connect("sock", Verdict::Deny, "unix:/run/x", None, None),
    ]);
    let below = |path: &str| {
        set.denies_below(path.as_bytes())
            .map(|rule| rule.id.0.as_str())
    };
    assert_eq!(below("/"), Some("ssh"));
    assert_eq!(below("/home/me"), Some("ssh"));
    assert_eq!(below("/home/me/.ssh"), Some("ssh"));
    assert_eq!(below("/home/me/.ssh/keys"), Some("ssh"));
    assert_eq!(below("/home/me/work"), Some("env"));
    assert_eq!(below("/usr"), Some("sudo"));
    assert_eq!(below("/usr/bin/sudo"), None);
    assert_eq!(below("/run"), None);
    assert_eq!(below("/etc"), None);
}
