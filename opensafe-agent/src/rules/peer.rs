//! Network peers: prefixes, ports, protocols, abstract Unix names.

mod embed;
mod parse;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use opensafe_common::tables::transport;

use super::glob::{self, GlobError, Token};
pub use parse::PeerError;

/// An address with the number of leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPrefix {
    /// The address, host bits zero.
    pub address: IpAddr,
    /// 0 to 32, or to 128.
    pub length: u8,
}

/// An inclusive range of ports, of 1 to 65535. Port 0 stands for "none" and is in no range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// First.
    pub first: u16,
    /// Last.
    pub last: u16,
}

/// A protocol that a rule can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
    Icmp,
}

/// A glob over an abstract Unix socket's name. The name is no path: `*` takes any bytes, `/` included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbstractGlob {
    /// As the policy has it, without `unix:@`.
    pub source: String,
    /// Alternatives once braces are multiplied out.
    pub alternatives: Vec<Vec<Token>>,
}

impl IpPrefix {
    /// Reads an address (`192.0.2.1`, `2001:db8::1`) or a CIDR (`192.0.2.0/24`). An IPv4-mapped one
    /// (`::ffff:192.0.2.0/120`) is the IPv4 prefix that it maps.
    ///
    /// # Errors
    /// Says what is wrong: no address, no such prefix length, bits set after the prefix.
    pub fn parse(text: &str) -> Result<Self, PeerError> {
        parse::prefix(text)
    }

    /// The IPv6 prefixes that say the same, none inside another: itself, and for an IPv4 prefix all
    /// its embeddings.
    ///
    /// | form | prefix | source |
    /// |---|---|---|
    /// | mapped | `::ffff:0:0/96` | RFC 4291, 2.5.5.2 |
    /// | compatible | `::/96`, less `::` and `::1`, which are the unspecified address and loopback | RFC 4291, 2.5.5.1 |
    /// | translated | `::ffff:0:0:0/96` | RFC 2765, 2.1 |
    /// | NAT64 | `64:ff9b::/96` | RFC 6052, 2.1 |
    /// | 6to4 | `2002::/16`, the address in the next 32 bits | RFC 3056, 2 |
    #[must_use]
    pub fn embeddings(&self) -> Vec<(Ipv6Addr, u8)> {
        match self.address {
            IpAddr::V4(address) => embed::prefixes(address, self.length),
            IpAddr::V6(address) => vec![(address, self.length)],
        }
    }

    /// Whether it holds `address` (an IPv4 address in its mapped form), directly or in one of
    /// [`IpPrefix::embeddings`]. An IPv6 prefix goes by its bits: `::/0` holds IPv4 too.
    #[must_use]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        match self.address {
            IpAddr::V4(network) => embed::embedded(address)
                .any(|inner| v4_bits(inner, self.length) == v4_bits(network, self.length)),
            IpAddr::V6(network) => v6_bits(address, self.length) == v6_bits(network, self.length),
        }
    }
}

impl std::fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = if self.address.is_ipv4() { 32 } else { 128 };
        if self.length == whole {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.length)
        }
    }
}

impl PortRange {
    /// Reads a port (`443`) or a range (`8000-8099`).
    ///
    /// # Errors
    /// Says what is wrong: no number, out of 1 to 65535, the wrong way round.
    pub fn parse(text: &str) -> Result<Self, PeerError> {
        parse::ports(text)
    }

    /// Whether `port` is in it.
    #[must_use]
    pub const fn contains(&self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Udp, Self::Sctp, Self::Icmp];

    /// Reads a protocol's name.
    ///
    /// # Errors
    /// Lists those there are.
    pub fn parse(text: &str) -> Result<Self, PeerError> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == text)
            .ok_or_else(|| PeerError::Protocol(text.to_owned()))
    }

    /// As a policy names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
            Self::Icmp => "icmp",
        }
    }

    /// As the kernel's tables have it ([`transport`]).
    #[must_use]
    pub const fn transport(self) -> u16 {
        match self {
            Self::Tcp => transport::TCP,
            Self::Udp => transport::UDP,
            Self::Sctp => transport::SCTP,
            Self::Icmp => transport::ICMP,
        }
    }
}

impl AbstractGlob {
    /// Checks a glob over abstract names, given without `unix:@`.
    ///
    /// # Errors
    /// As [`glob::PathGlob::parse`], but for what only paths must be.
    pub fn parse(source: &str) -> Result<Self, GlobError> {
        Ok(Self {
            source: source.to_owned(),
            alternatives: glob::parse_name(source)?,
        })
    }

    /// Whether it names the abstract socket `name`, given without its leading NUL.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        self.alternatives
            .iter()
            .any(|tokens| glob::tokens_match(tokens, name))
    }
}

impl std::fmt::Display for AbstractGlob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unix:@{}", self.source)
    }
}

fn v4_bits(address: Ipv4Addr, length: u8) -> u32 {
    address
        .to_bits()
        .checked_shr(32_u32.saturating_sub(length.into()))
        .unwrap_or(0)
}

fn v6_bits(address: Ipv6Addr, length: u8) -> u128 {
    address
        .to_bits()
        .checked_shr(128_u32.saturating_sub(length.into()))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
