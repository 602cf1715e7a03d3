//! Operations, binding, and sockets themselves.

use opensafe_common::socket::AF_PACKET;

use super::*;

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

const AF_VSOCK: u16 = 40;
const STREAM: u16 = 1;
const DGRAM: u16 = 2;
const RAW: u16 = SOCK_RAW;

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
