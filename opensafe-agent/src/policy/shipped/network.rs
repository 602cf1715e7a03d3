//! Whom the policies that ship let be contacted, and where servers may listen.

use super::*;

fn connects(rules: &RuleSet, address: &str, transport: u16, port: u16) -> (Verdict, String) {
    let address: std::net::IpAddr = address.parse().unwrap();
    let address: Ipv6Addr = match address {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(v6) => v6,
    };
    let decided = rules.decide_peer(address, transport, port);
    let by = decided.rule.map_or("default", |rule| &rule.id.0);
    (decided.verdict, by.to_owned())
}

#[test]
fn metadata_services_and_private_networks_are_out_of_reach() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for (address, port, rule) in [
            ("169.254.169.254", 80, "net.metadata"),
            ("::ffff:169.254.169.254", 80, "net.metadata"),
            ("64:ff9b::a9fe:a9fe", 80, "net.metadata"),
            ("fd00:ec2::254", 80, "net.metadata"),
            ("10.1.2.3", 443, "net.private"),
            ("172.17.0.1", 2375, "net.private"),
            ("192.168.1.1", 80, "net.private"),
            ("fe80::1", 80, "net.private"),
            ("127.0.0.1", 22, "net.control"),
            ("::1", 2375, "net.control"),
        ] {
            let (verdict, by) = connects(&rules, address, TCP, port);
            assert_eq!(
                (verdict, by.as_str()),
                (Verdict::Deny, rule),
                "{policy} {address}"
            );
        }
    }
}

#[test]
fn private_networks_are_out_of_reach_for_every_protocol() {
    const SCTP: u16 = opensafe_common::tables::transport::SCTP;
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for address in [
            "10.77.0.2",
            "169.254.169.254",
            "::ffff:10.0.0.1",
            "fd00:ec2::254",
            "ff02::1",
        ] {
            for (transport, port) in [(ICMP, 0), (TCP, 80), (UDP, 5353), (SCTP, 9), (TCP, 0)] {
                let (verdict, by) = connects(&rules, address, transport, port);
                assert_eq!(verdict, Verdict::Deny, "{policy} {address} {port} {by}");
            }
        }
    }
}

#[test]
fn a_display_on_loopback_is_out_of_reach_and_what_serves_beside_it_is_not() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for port in [5900, 5999, 6000, 6010, 6063] {
            let (verdict, by) = connects(&rules, "127.0.0.1", TCP, port);
            assert_eq!((verdict, by.as_str()), (Verdict::Deny, "net.control"));
        }
        for port in [5984, 6006, 6064, 6379] {
            let (verdict, by) = connects(&rules, "127.0.0.1", TCP, port);
            assert_eq!(verdict, Verdict::Allow, "{port} {by}");
        }
    }
}

#[test]
fn loopback_and_name_servers_are_in_reach() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for (address, transport, port) in [
            ("127.0.0.1", TCP, 8000),
            ("::1", TCP, 8000),
            ("0.0.0.0", TCP, 3000),
            ("127.0.0.53", UDP, 53),
            ("192.168.1.1", UDP, 53),
            ("10.0.0.2", TCP, 53),
        ] {
            assert_eq!(
                connects(&rules, address, transport, port).0,
                Verdict::Allow,
                "{address}"
            );
        }
        assert_eq!(rules.decide_other_family().verdict, Verdict::Deny);
        assert_eq!(rules.decide_abstract(b"anything").verdict, Verdict::Deny);
    }
}

fn binds(rules: &RuleSet, address: &str, transport: u16, port: u16) -> Verdict {
    let address: std::net::IpAddr = address.parse().unwrap();
    let address = match address {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(v6) => v6,
    };
    rules.decide_bind(address, transport, port).verdict
}

#[test]
fn a_server_may_be_started_on_loopback() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for address in ["127.0.0.1", "127.0.0.53", "::1", "::ffff:127.0.0.1"] {
            for (transport, port) in [(TCP, 0), (TCP, 8000), (UDP, 5353), (UDP, 0)] {
                let verdict = binds(&rules, address, transport, port);
                assert_eq!(verdict, Verdict::Allow, "{policy} {address} {port}");
            }
        }
        // A resolver's socket, a QUIC client's, a ping.
        for address in ["0.0.0.0", "::"] {
            assert_eq!(binds(&rules, address, UDP, 0), Verdict::Allow);
        }
        assert_eq!(binds(&rules, "192.0.2.1", ICMP, 0), Verdict::Allow);
    }
}

#[test]
fn any_program_serves_this_machine_alone_and_an_agent_everyone() {
    for (policy, verdict) in [("default", Verdict::Deny), ("coding-agent", Verdict::Allow)] {
        let rules = rules(policy, &input());
        for (address, transport, port) in [
            ("0.0.0.0", TCP, 8080),
            ("0.0.0.0", TCP, 0),
            ("::", UDP, 53),
            ("192.168.1.5", TCP, 80),
            ("2001:db8::5", TCP, 0),
        ] {
            let bound = binds(&rules, address, transport, port);
            assert_eq!(bound, verdict, "{policy} {address} {port}");
        }
    }
}

#[test]
fn ordinary_sockets_can_be_made_and_raw_ones_cannot() {
    const INET: [u16; 2] = [2, 10];
    const RAW: u16 = 3;
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        let verdict = |family, socket_type| rules.decide_socket(family, socket_type).verdict;
        for family in INET {
            assert_eq!(verdict(family, 1), Verdict::Allow);
            assert_eq!(verdict(family, 2), Verdict::Allow);
            assert_eq!(verdict(family, RAW), Verdict::Deny);
        }
        // Unix; netlink, by which the C library asks for addresses; packet, vsock.
        assert_eq!(verdict(1, 1), Verdict::Allow);
        assert_eq!(verdict(16, RAW), Verdict::Allow);
        assert_eq!(verdict(17, RAW), Verdict::Deny);
        assert_eq!(verdict(40, 1), Verdict::Deny);
    }
}

#[test]
fn an_agent_reaches_registries_and_no_one_else() {
    let rules = rules("coding-agent", &input());
    let verdict = |address, transport, port| connects(&rules, address, transport, port).0;
    assert_eq!(verdict("151.101.0.223", TCP, 443), Verdict::Allow);
    assert_eq!(verdict("104.16.1.34", TCP, 443), Verdict::Allow);
    assert_eq!(verdict("2606:4700::6810:1223", TCP, 443), Verdict::Allow);
    assert_eq!(verdict("151.101.0.223", TCP, 80), Verdict::Deny);
    assert_eq!(verdict("198.51.100.7", TCP, 443), Verdict::Deny);
    assert_eq!(verdict("2001:db8::1", TCP, 443), Verdict::Deny);
    assert_eq!(verdict("198.51.100.7", ICMP, 0), Verdict::Deny);
}

#[test]
fn any_program_reaches_the_internet() {
    let rules = rules("default", &input());
    for (address, transport, port) in [
        ("198.51.100.7", TCP, 443),
        ("2001:db8::1", UDP, 443),
        ("198.51.100.7", ICMP, 0),
    ] {
        assert_eq!(connects(&rules, address, transport, port).0, Verdict::Allow);
    }
}
