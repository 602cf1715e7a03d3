use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use opensafe_common::tables::transport;
use proptest::prelude::*;

use super::kernel::Kernel;
use super::*;
use crate::rules::peer::{IpPrefix, PortRange, Protocol};

fn ip(source: &str) -> Peer {
    Peer::Ip(IpPrefix::parse(source).unwrap())
}

fn deny(peers: &[&str]) -> RuleSet {
    let defaults = Defaults {
        connect: Verdict::Allow,
        ..Defaults::default()
    };
    let peers = peers.iter().map(|source| ip(source)).collect();
    rules(defaults, vec![(Verdict::Deny, connect(peers))])
}

fn bits(address: &str) -> u128 {
    address.parse::<Ipv6Addr>().unwrap().to_bits()
}

/// Which of the addresses may not be contacted.
fn denied<'a>(rules: &RuleSet, addresses: &[&'a str]) -> Vec<&'a str> {
    let tables = tables(rules, &View::default());
    let kernel = Kernel::install(&tables, 0);
    addresses
        .iter()
        .filter(|address| kernel.peer(bits(address), transport::TCP, 80) == Verdict::Deny)
        .copied()
        .collect()
}

#[test]
fn an_ipv4_rule_holds_in_every_form_that_embeds_the_address() {
    let forms = [
        "::ffff:10.1.2.3",
        "::ffff:0:10.1.2.3",
        "::10.1.2.3",
        "64:ff9b::10.1.2.3",
        "2002:a01:203::1",
    ];
    assert_eq!(denied(&deny(&["10.0.0.0/8"]), &forms), forms);
    let others = [
        "::ffff:11.1.2.3",
        "::ffff:0:11.1.2.3",
        "::11.1.2.3",
        "64:ff9b::11.1.2.3",
        "2002:b01:203::1",
        "a01:203::1",
    ];
    assert!(denied(&deny(&["10.0.0.0/8"]), &others).is_empty());
}

#[test]
fn no_ipv4_rule_holds_for_the_unspecified_and_the_loopback_address_of_ipv6() {
    for rule in [
        "0.0.0.0/0",
        "0.0.0.0/8",
        "0.0.0.0/30",
        "0.0.0.0/31",
        "0.0.0.0/32",
        "0.0.0.1/32",
    ] {
        assert!(denied(&deny(&[rule]), &["::", "::1"]).is_empty(), "{rule}");
    }
    let neighbours = ["::2", "::3", "::4", "::0.0.1.0", "::255.255.255.255"];
    assert_eq!(denied(&deny(&["0.0.0.0/0"]), &neighbours), neighbours);
    assert_eq!(denied(&deny(&["0.0.0.0/30"]), &neighbours), ["::2", "::3"]);
}

#[test]
fn a_thousand_prefixes_with_one_verdict_are_two_classes() {
    let prefixes: Vec<String> = (0..1000)
        .map(|i| format!("10.{}.{}.0/24", i / 250, i % 250))
        .collect();
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    let tables = tables(&deny(&prefixes), &View::default());
    assert_eq!(tables.stats.address_classes, 2);
    assert_eq!(tables.nets.len(), 5001);
}

#[test]
fn without_a_rule_the_default_holds_for_every_protocol() {
    let tables = tables(&rules(Defaults::default(), vec![]), &View::default());
    let kernel = Kernel::install(&tables, 0);
    for number in transport::ALL {
        assert_eq!(kernel.peer(bits("2001:db8::1"), number, 443), Verdict::Deny);
        let bound = kernel.peer(bits("2001:db8::1"), number | transport::BIND, 443);
        assert_eq!(bound, Verdict::Allow);
    }
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Allow),
        Just(Verdict::Audit),
        Just(Verdict::Deny)
    ]
}

fn peer() -> impl Strategy<Value = Peer> {
    let v4 = (0_u8..4, 0_u8..4, 0_u8..=32).prop_map(|(a, d, length)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        let address = Ipv4Addr::from_bits(u32::from_be_bytes([a, 0, 0, d]) & mask);
        (IpAddr::V4(address), length)
    });
    let v6 = (address(), 0_u8..=128).prop_map(|(address, length)| {
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        (IpAddr::V6(Ipv6Addr::from_bits(address & mask)), length)
    });
    prop_oneof![
        Just(Peer::Any),
        v4.prop_map(|(address, length)| Peer::Ip(IpPrefix { address, length })),
        v6.prop_map(|(address, length)| Peer::Ip(IpPrefix { address, length })),
    ]
}

fn address() -> impl Strategy<Value = u128> {
    let v4 = || (0_u8..4, 0_u8..4).prop_map(|(a, d)| u128::from(u32::from_be_bytes([a, 0, 0, d])));
    prop_oneof![
        v4(),
        v4().prop_map(|low| 0xffff << 32 | low),
        v4().prop_map(|low| 0xffff << 48 | low),
        v4().prop_map(|low| bits("64:ff9b::") | low),
        (v4(), 0_u128..3).prop_map(|(v4, low)| 0x2002 << 112 | v4 << 80 | low),
        (0_u128..4).prop_map(|low| bits("fd00::") | low),
    ]
}

fn subject() -> impl Strategy<Value = Subject> {
    let port = prop::sample::select(vec![0_u16, 1, 80, 443, 444, 8000, u16::MAX]);
    let range = (port.clone(), port).prop_map(|(a, b)| PortRange {
        first: a.min(b),
        last: a.max(b),
    });
    let protocol = prop::option::of(prop::sample::select(vec![
        Protocol::Tcp,
        Protocol::Udp,
        Protocol::Sctp,
        Protocol::Icmp,
    ]));
    (
        prop::collection::vec(peer(), 1..4),
        prop::collection::vec(range, 0..3),
        protocol,
    )
        .prop_flat_map(|(peers, ports, protocol)| {
            let connect = Subject::Connect {
                peers: peers.clone(),
                ports: ports.clone(),
                protocol,
            };
            let bind = Subject::Bind {
                addresses: peers,
                ports,
                protocol,
            };
            prop::sample::select(vec![connect, bind])
        })
}

proptest! {
    #[test]
    fn every_address_and_port_gets_the_strictest_verdict_of_the_rules_that_hold_it(
        all in prop::collection::vec((verdict(), subject()), 0..8),
        (connect, bind) in (verdict(), verdict()),
        addresses in prop::collection::vec(address(), 1..16),
    ) {
        let policy = rules(Defaults { connect, bind, ..Defaults::default() }, all);
        let tables = tables(&policy, &View::default());
        let kernel = Kernel::install(&tables, 0);
        for address in addresses {
            for number in transport::ALL {
                for port in [0, 79, 80, 443, 444, 500, 9000, u16::MAX] {
                    prop_assert_eq!(
                        kernel.peer(address, number, port),
                        policy.decide_peer(Ipv6Addr::from_bits(address), number, port).verdict,
                        "{} {} {}", Ipv6Addr::from_bits(address), number, port
                    );
                    // As the kernel programs ask: every IPv6 address is every IPv4 one too.
                    let bound = |address| kernel.peer(address, number | transport::BIND, port);
                    let every_v4 = (address == 0).then(|| bound(0xffff_0000_0000));
                    prop_assert_eq!(
                        bound(address).max(every_v4.unwrap_or(Verdict::Allow)),
                        policy.decide_bind(Ipv6Addr::from_bits(address), number, port).verdict,
                        "binding {} {} {}", Ipv6Addr::from_bits(address), number, port
                    );
                }
            }
        }
    }
}
