use proptest::prelude::*;

use super::*;
use crate::rules::Peer;

fn prefix(text: &str) -> IpPrefix {
    IpPrefix::parse(text).unwrap()
}

fn error(text: &str) -> String {
    Peer::parse(text).unwrap_err().to_string()
}

#[track_caller]
fn holds(text: &str, addresses: &[&str]) {
    for address in addresses {
        assert!(
            prefix(text).contains(address.parse().unwrap()),
            "{text} {address}"
        );
    }
}

#[track_caller]
fn lacks(text: &str, addresses: &[&str]) {
    for address in addresses {
        assert!(
            !prefix(text).contains(address.parse().unwrap()),
            "{text} {address}"
        );
    }
}

#[test]
fn a_prefix_holds_its_addresses() {
    holds("10.0.0.0/8", &["::ffff:10.1.2.3"]);
    lacks("10.0.0.0/8", &["::ffff:11.0.0.0", "::1"]);
    holds("192.0.2.1", &["::ffff:192.0.2.1"]);
    lacks("192.0.2.1", &["::ffff:192.0.2.2"]);
    holds("fd00::/8", &["fdff::1"]);
    lacks("fd00::/8", &["fe80::1", "::ffff:10.0.0.1"]);
    holds("::1", &["::1"]);
    holds("0.0.0.0/0", &["::ffff:1.2.3.4", "::ffff:0.0.0.0"]);
    holds("::/0", &["2001:db8::1", "::ffff:1.2.3.4"]);
}

#[test]
fn an_ipv4_rule_holds_for_every_embedding() {
    holds(
        "169.254.169.254",
        &[
            "::ffff:169.254.169.254",
            "::ffff:0:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::",
            "2002:a9fe:a9fe:1:2:3:4:5",
        ],
    );
    lacks(
        "169.254.169.254",
        &[
            "64:ff9c::169.254.169.254",
            "2003:a9fe:a9fe::",
            "1::169.254.169.254",
        ],
    );
}

#[test]
fn the_unspecified_address_and_loopback_are_no_ipv4_addresses() {
    for text in ["0.0.0.0/0", "0.0.0.0/8", "0.0.0.0", "0.0.0.1"] {
        lacks(text, &["::", "::1"]);
    }
    holds("0.0.0.0/8", &["::2", "::ffff:0.0.0.1"]);
}

#[test]
fn a_mapped_prefix_is_the_ipv4_prefix() {
    assert_eq!(prefix("::ffff:10.0.0.0/104"), prefix("10.0.0.0/8"));
    assert_eq!(prefix("::ffff:0:0/96"), prefix("0.0.0.0/0"));
    assert_eq!(prefix("::ffff:192.0.2.1"), prefix("192.0.2.1"));
    assert!(prefix("::/90").address.is_ipv6());
}

#[test]
fn a_bad_prefix_says_why() {
    assert_eq!(error("10.0.0.0/33"), "prefix length is over 32");
    assert_eq!(error("fd00::/129"), "prefix length is over 128");
    assert_eq!(error("10.0.0.0/999999"), "prefix length is over 32");
    assert_eq!(error("10.0.0.0/"), "has no number of bits after \"/\"");
    assert_eq!(error("10.0.0.0/+8"), "has no number of bits after \"/\"");
    assert_eq!(
        error("10.0.0.1/8"),
        "has bits set after the prefix: the network is \"10.0.0.0/8\", the host is \"10.0.0.1\""
    );
    assert!(error("fd00::1/8").contains("\"fd00::/8\""));
    assert!(error("example.com").contains("host name"));
    assert!(error("*.example.com").contains("host name"));
    assert!(error("10.0.0.1:443").contains("\"ports\""));
    assert!(error("[::1]:443").contains("\"ports\""));
    assert!(error("fe80::1%eth0").contains("zone"));
    assert!(error("10.0.0").contains("no address"));
    assert!(error("010.0.0.1").contains("no address"));
    assert_eq!(error(""), "is empty");
    assert!(error("/run/docker.sock").contains("unix:"));
}

#[test]
fn unix_peers_are_paths_or_abstract_names() {
    let Peer::UnixPath(path) = Peer::parse("unix:/run/*.sock").unwrap() else {
        panic!("no path");
    };
    assert!(path.matches(b"/run/docker.sock"));
    let Peer::UnixAbstract(name) = Peer::parse("unix:@/containerd-*").unwrap() else {
        panic!("no abstract name");
    };
    assert!(name.matches(b"/containerd-shim/a.sock"));
    assert!(!name.matches(b"containerd-shim"));
    assert!(AbstractGlob::parse("**").unwrap().matches(b"a/b"));
    assert!(error("unix:").contains("unix:@"));
    assert!(error("unix:run/x").contains("unix:/"));
    assert!(error("unix:/run//x").contains("empty component"));
    assert_eq!(error("unix:@"), "is empty");
    assert!(matches!(Peer::parse("*").unwrap(), Peer::Any));
}

#[test]
fn a_peer_is_shown_as_it_is_written() {
    for text in [
        "*",
        "10.0.0.0/8",
        "192.0.2.1",
        "fd00::/8",
        "::1",
        "unix:/run/*",
        "unix:@a*",
    ] {
        assert_eq!(Peer::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn ports_are_numbers_or_ranges() {
    let range = |text: &str| PortRange::parse(text).map(|r| (r.first, r.last));
    assert_eq!(range("443"), Ok((443, 443)));
    assert_eq!(range("8000-8099"), Ok((8000, 8099)));
    assert_eq!(range("1-65535"), Ok((1, 65535)));
    let error = |text: &str| PortRange::parse(text).unwrap_err().to_string();
    assert_eq!(error("70000"), "port 70000 is out of range: 1 to 65535");
    assert_eq!(error("0"), "port 0 is out of range: 1 to 65535");
    assert_eq!(error("99-70000"), "port 70000 is out of range: 1 to 65535");
    assert_eq!(error("9-1"), "ports 9-1 are the wrong way round");
    for text in ["", "-", "1-", "-1", "https", "1-2-3", " 1", "+1", "1:2"] {
        assert!(error(text).contains("no port"), "{text}");
    }
}

#[test]
fn protocols_are_known_by_their_exact_names() {
    assert_eq!(Protocol::parse("tcp"), Ok(Protocol::Tcp));
    assert_eq!(
        Protocol::parse("TCP").unwrap_err().to_string(),
        "\"TCP\" is no protocol: there are tcp, udp, sctp, icmp"
    );
}

/// Addresses near what matters: the forms, their edges, and a small IPv4 range inside them.
fn an_address() -> impl Strategy<Value = Ipv6Addr> {
    let form = prop::sample::select(vec![
        "::",
        "::ffff:0:0",
        "::ffff:0:0:0",
        "64:ff9b::",
        "2002::",
        "2001:db8::",
        "fd00::",
    ]);
    (form, prop_oneof![0..4_u32, any::<u32>()]).prop_map(|(form, v4)| {
        let form: Ipv6Addr = form.parse().unwrap();
        let shift = if form.segments()[0] == 0x2002 { 80 } else { 0 };
        Ipv6Addr::from_bits(form.to_bits() | u128::from(v4) << shift)
    })
}

fn a_prefix() -> impl Strategy<Value = IpPrefix> {
    (prop_oneof![0..4_u32, any::<u32>()], 0..=32_u8).prop_map(|(bits, length)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        IpPrefix {
            address: Ipv4Addr::from_bits(bits & mask).into(),
            length,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn the_embeddings_hold_what_the_prefix_holds(prefix in a_prefix(), address in an_address()) {
        let hits = prefix
            .embeddings()
            .into_iter()
            .filter(|&(network, length)| v6_bits(network, length) == v6_bits(address, length))
            .count();
        prop_assert_eq!(hits, usize::from(prefix.contains(address)));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in r"(unix:)?[@/a0-9.:%\[\]*-]{0,20}") {
        let _ = Peer::parse(&text);
        let _ = PortRange::parse(&text);
    }

    #[test]
    fn a_prefix_reads_back_as_it_is_shown(prefix in a_prefix()) {
        prop_assert_eq!(IpPrefix::parse(&prefix.to_string()), Ok(prefix));
    }
}
