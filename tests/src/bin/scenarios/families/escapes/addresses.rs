//! Reaching an address that is denied without naming it, or as if it had a port.

use std::process::Command;

use anyhow::Result;

use super::network::Peers;
use crate::{
    harness::{Escape, Outcome, Policy, allow, attempt, connect, deny, way},
    scenarios,
};

scenarios![
    a_denied_address_of_this_host_is_not_reached_by_the_unspecified_one,
    an_echo_is_not_asked_for_at_a_port_that_is_allowed,
];

/// An address of this host, on the loopback interface.
const OWN: &str = "10.9.9.9";
/// One of a network interface, and its name.
const OF_DEVICE: (&str, &str) = ("10.9.8.9", "escape0");
const PORT: u16 = 4848;

impl Peers {
    /// A network interface with an address, if the kernel has what it takes.
    fn device(&mut self, name: &'static str, address: &str) -> Result<bool> {
        let ip = |words: &[&str]| Command::new("ip").args(words).output();
        if !ip(&["link", "add", name, "type", "dummy"])?
            .status
            .success()
        {
            return Ok(false);
        }
        self.ground.undo(move || {
            let _ = Command::new("ip").args(["link", "del", name]).output();
        });
        let address = format!("{address}/24");
        let added = ip(&["address", "add", &address, "dev", name])?;
        let up = ip(&["link", "set", name, "up"])?;
        Ok(added.status.success() && up.status.success())
    }
}

fn a_denied_address_of_this_host_is_not_reached_by_the_unspecified_one() -> Result<Outcome> {
    let ground = || {
        let mut peers = Peers::new()?;
        peers.address(&format!("{OWN}/32"))?;
        peers.tcp(&format!("{OWN}:{PORT}"))?;
        peers.names(&format!("{OWN}:{PORT}"))?;
        let (address, name) = OF_DEVICE;
        if peers.device(name, address)? {
            peers.tcp(&format!("{address}:{PORT}"))?;
            peers.names(&format!("{address}:{PORT}"))?;
        }
        Ok(peers)
    };
    let policy = |_: &Peers| {
        Policy::open()
            .rule(allow("loopback").connect("127.0.0.0/8"))
            .rule(deny("own").connect(OWN))
            .rule(deny("device").connect(OF_DEVICE.0))
    };
    let ways = |_: &Peers| {
        let none = format!("0.0.0.0:{PORT}");
        let none_mapped = format!("[::ffff:0.0.0.0]:{PORT}");
        let own_mapped = format!("::ffff:{OWN}");
        // Where a device or a message says where it leads, no rule is asked.
        let untold = |transport| connect("defaults.connect", transport, "0.0.0.0").port(PORT);
        let by = |what, verb, to: &str, from: &str, transport| {
            way(what, attempt(verb, &[to, from]))
                .on_record(connect("own", transport, OWN).port(PORT))
                .on_record(untold(transport))
        };
        let by_device = |what, verb, transport| {
            way(what, attempt(verb, &[&none, OF_DEVICE.1]))
                .where_there_is("CONFIG_DUMMY")
                .on_record(untold(transport))
        };
        vec![
            by("TCP, bound to it", "tcp-from", &none, OWN, "tcp"),
            by(
                "TCP, bound to it, mapped addresses",
                "tcp-from",
                &none_mapped,
                &own_mapped,
                "tcp",
            ),
            by(
                "MSG_FASTOPEN, bound to it",
                "tcp-fastopen-from",
                &none,
                OWN,
                "tcp",
            ),
            by("UDP, bound to it", "ask-from", &none, OWN, "udp"),
            by(
                "UDP, bound to it, mapped addresses",
                "ask-from",
                &none_mapped,
                &own_mapped,
                "udp",
            ),
            by(
                "connect of UDP, bound to it",
                "ask-connected-from",
                &none,
                OWN,
                "udp",
            ),
            by(
                "UDP, from it by IP_PKTINFO",
                "ask-by-message",
                &none,
                OWN,
                "udp",
            ),
            by_device("TCP, bound to its interface", "tcp-by-device", "tcp"),
            by_device("UDP, bound to its interface", "ask-by-device", "udp"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("network.unspecified")
}

fn an_echo_is_not_asked_for_at_a_port_that_is_allowed() -> Result<Outcome> {
    let ground = || {
        let mut peers = Peers::new()?;
        peers.echoes()?;
        Ok(peers)
    };
    let policy = |_: &Peers| {
        Policy::open()
            .default("connect", "deny")
            .rule(allow("names").connect("*").port(53))
    };
    let ways = |_: &Peers| {
        let by = |what, verb, host: &str, recorded: &str| {
            way(what, attempt(verb, &[format!("{host}:53")])).on_record(connect(
                "defaults.connect",
                "icmp",
                recorded,
            ))
        };
        let four = "127.0.0.9";
        vec![
            by("sendto", "ping", four, four),
            by("connect", "ping-connected", four, four),
            by("sendto, IPv6", "ping6", "[::1]", "::1"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("network.echo")
}
