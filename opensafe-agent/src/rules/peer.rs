//! Network peers: prefixes, ports, protocols, abstract Unix names.

use std::net::IpAddr;

use super::glob::Token;

/// An address with the number of leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPrefix {
    /// The address, host bits zero.
    pub address: IpAddr,
    /// 0 to 32, or to 128.
    pub length: u8,
}

/// An inclusive range of ports.
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
