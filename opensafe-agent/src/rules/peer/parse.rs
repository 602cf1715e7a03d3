//! From a policy's text to peers and ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{AbstractGlob, IpPrefix, PortRange, v4_bits, v6_bits};
use crate::rules::Peer;
use crate::rules::glob::{GlobError, PathGlob};

/// Why a peer, a port or a protocol is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PeerError {
    #[error("is empty")]
    Empty,
    #[error("is no address, no CIDR, not \"*\", and does not start with \"unix:\"")]
    NotAPeer,
    #[error("is a host name; a rule names addresses")]
    HostName,
    #[error("has a port; ports go into \"ports\"")]
    HasPort,
    #[error("has a zone; a rule's address is without one")]
    HasZone,
    #[error("has no number of bits after \"/\"")]
    NoLength,
    #[error("prefix length is over {most}")]
    LengthTooLong { most: u8 },
    #[error("has bits set after the prefix: the network is \"{network}\", the host is \"{host}\"")]
    HostBits { network: IpPrefix, host: IpAddr },
    #[error("has neither a path (\"unix:/…\") nor an abstract name (\"unix:@…\")")]
    NotAUnixPeer,
    #[error(transparent)]
    Glob(#[from] GlobError),
    #[error("port {0} is out of range: 1 to 65535")]
    PortRange(String),
    #[error("{0:?} is no port and no range of ports such as \"8000-8099\"")]
    NotAPort(String),
    #[error("ports {first}-{last} are the wrong way round")]
    ReversedPorts { first: u16, last: u16 },
    #[error("{0:?} is no protocol: there are tcp, udp, sctp, icmp")]
    Protocol(String),
}

impl Peer {
    /// Reads what a `connect` rule matches: `*`, an address, a CIDR, `unix:/path` or `unix:@name`.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Self, PeerError> {
        if text.is_empty() {
            return Err(PeerError::Empty);
        }
        if text == "*" {
            return Ok(Self::Any);
        }
        let Some(unix) = text.strip_prefix("unix:") else {
            return prefix(text).map(Self::Ip);
        };
        if let Some(name) = unix.strip_prefix('@') {
            return Ok(Self::UnixAbstract(AbstractGlob::parse(name)?));
        }
        if unix.is_empty() {
            return Err(PeerError::NotAUnixPeer);
        }
        match PathGlob::parse(unix) {
            Ok(glob) => Ok(Self::UnixPath(glob)),
            Err(GlobError::Relative { at: 1 }) => Err(PeerError::NotAUnixPeer),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Ip(prefix) => prefix.fmt(f),
            Self::UnixPath(glob) => write!(f, "unix:{glob}"),
            Self::UnixAbstract(glob) => glob.fmt(f),
        }
    }
}

pub(super) fn prefix(text: &str) -> Result<IpPrefix, PeerError> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let host: IpAddr = address.parse().map_err(|_| not_an_address(address))?;
    let most = if host.is_ipv4() { 32 } else { 128 };
    let length = match length {
        None => most,
        Some(digits) if !is_number(digits) => return Err(PeerError::NoLength),
        Some(digits) => digits
            .parse()
            .ok()
            .filter(|&length| length <= most)
            .ok_or(PeerError::LengthTooLong { most })?,
    };
    let prefix = unmapped(IpPrefix {
        address: masked(host, length),
        length,
    });
    if masked(host, length) != host {
        return Err(PeerError::HostBits {
            network: prefix,
            host,
        });
    }
    Ok(prefix)
}

pub(super) fn ports(text: &str) -> Result<PortRange, PeerError> {
    let port = |digits: &str| -> Result<u16, PeerError> {
        if !is_number(digits) {
            return Err(PeerError::NotAPort(text.to_owned()));
        }
        match digits.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(PeerError::PortRange(digits.to_owned())),
        }
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err(PeerError::ReversedPorts { first, last });
    }
    Ok(PortRange { first, last })
}

/// What was probably meant.
fn not_an_address(text: &str) -> PeerError {
    let before_port = text.rsplit_once(':').map(|(address, _)| address);
    let is_v4 = |text: &str| text.parse::<Ipv4Addr>().is_ok();
    if text.contains('%') {
        PeerError::HasZone
    } else if text.starts_with('[') || before_port.is_some_and(is_v4) {
        PeerError::HasPort
    } else if text.contains(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*'))
    {
        PeerError::HostName
    } else {
        PeerError::NotAPeer
    }
}

/// An IPv4-mapped prefix as the IPv4 prefix that it is.
fn unmapped(prefix: IpPrefix) -> IpPrefix {
    match prefix.address {
        IpAddr::V6(address) if prefix.length >= 96 => match address.to_ipv4_mapped() {
            Some(mapped) => IpPrefix {
                address: IpAddr::V4(mapped),
                length: prefix.length - 96,
            },
            None => prefix,
        },
        _ => prefix,
    }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let bits = v4_bits(address, length);
            let shift = 32 - u32::from(length);
            IpAddr::V4(Ipv4Addr::from_bits(bits.checked_shl(shift).unwrap_or(0)))
        }
        IpAddr::V6(address) => {
            let bits = v6_bits(address, length);
            let shift = 128 - u32::from(length);
            IpAddr::V6(Ipv6Addr::from_bits(bits.checked_shl(shift).unwrap_or(0)))
        }
    }
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
