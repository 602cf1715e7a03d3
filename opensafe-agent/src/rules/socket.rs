//! Sockets by what they are: an address family, and a type.

use opensafe_common::tables::{FAMILIES, socket_class};

/// Sockets of a family (any, if `None`) and a type (any, if `None`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketKind {
    /// `AF_*`.
    pub family: Option<u16>,
    /// `SOCK_*`.
    pub socket_type: Option<u16>,
}

/// Why a text names no sockets.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SocketError {
    #[error("has an unknown family {0:?}; there are *, {known}, and numbers below {FAMILIES}", known = names(&NAMES))]
    Family(String),
    #[error("has an unknown type {0:?}; there are {known}", known = names(&TYPES))]
    Type(String),
}

/// Families that have a name here (include/linux/socket.h).
const NAMES: [(&str, u16); 17] = [
    ("unix", 1),
    ("inet", 2),
    ("inet6", 10),
    ("key", 15),
    ("netlink", 16),
    ("packet", 17),
    ("rds", 21),
    ("can", 29),
    ("tipc", 30),
    ("bluetooth", 31),
    ("alg", 38),
    ("nfc", 39),
    ("vsock", 40),
    ("kcm", 41),
    ("qipcrtr", 42),
    ("smc", 43),
    ("xdp", 44),
];

/// Types (include/linux/net.h).
const TYPES: [(&str, u16); 4] = [("stream", 1), ("dgram", 2), ("raw", 3), ("seqpacket", 5)];

impl SocketKind {
    /// `*`, `packet`, `inet:raw`, `*:raw`, `38`.
    ///
    /// # Errors
    /// If the family or the type is none.
    pub fn parse(text: &str) -> Result<Self, SocketError> {
        let (family, socket_type) = match text.split_once(':') {
            Some((family, socket_type)) => (family, Some(socket_type)),
            None => (text, None),
        };
        let family = match family {
            "*" => None,
            name => Some(
                number(&NAMES, name)
                    .or_else(|| by_number(name))
                    .ok_or_else(|| SocketError::Family(name.to_owned()))?,
            ),
        };
        let socket_type = socket_type
            .map(|name| number(&TYPES, name).ok_or_else(|| SocketError::Type(name.to_owned())))
            .transpose()?;
        Ok(Self {
            family,
            socket_type,
        })
    }

    /// Whether it names sockets of that family and type.
    #[must_use]
    pub fn matches(self, family: u16, socket_type: u16) -> bool {
        let class = |number: u16| socket_class(number.into());
        self.family.is_none_or(|named| named == family)
            && self
                .socket_type
                .is_none_or(|named| class(named) == class(socket_type))
    }
}

impl std::fmt::Display for SocketKind {
    /// As a policy has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.family {
            None => f.write_str("*")?,
            Some(family) => match name(&NAMES, family) {
                Some(name) => f.write_str(name)?,
                None => write!(f, "{family}")?,
            },
        }
        match self.socket_type {
            None => Ok(()),
            Some(socket_type) => write!(f, ":{}", type_name(socket_type)),
        }
    }
}

/// A family's name, or `af_N`.
#[must_use]
pub fn family_name(family: u16) -> String {
    name(&NAMES, family).map_or_else(|| format!("af_{family}"), str::to_owned)
}

/// A type's name, or its number.
#[must_use]
pub fn type_name(socket_type: u16) -> String {
    name(&TYPES, socket_type).map_or_else(|| socket_type.to_string(), str::to_owned)
}

fn by_number(text: &str) -> Option<u16> {
    text.parse()
        .ok()
        .filter(|number| usize::from(*number) < FAMILIES)
}

fn number(known: &[(&str, u16)], wanted: &str) -> Option<u16> {
    known
        .iter()
        .find(|(name, _)| *name == wanted)
        .map(|(_, number)| *number)
}

fn name<'a>(known: &[(&'a str, u16)], wanted: u16) -> Option<&'a str> {
    known
        .iter()
        .find(|(_, number)| *number == wanted)
        .map(|(name, _)| *name)
}

fn names(known: &[(&str, u16)]) -> String {
    known
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_alone_names_every_type() {
        let packet = SocketKind::parse("packet").unwrap();
        assert!(packet.matches(17, 3) && packet.matches(17, 2));
        assert!(!packet.matches(2, 3));
    }

    #[test]
    fn a_type_narrows() {
        let raw = SocketKind::parse("inet:raw").unwrap();
        assert!(raw.matches(2, 3) && !raw.matches(2, 1) && !raw.matches(10, 3));
        assert!(SocketKind::parse("*:raw").unwrap().matches(10, 3));
    }

    #[test]
    fn it_is_shown_as_a_policy_has_it() {
        for text in ["*", "packet", "inet:raw", "*:dgram", "9", "9:seqpacket"] {
            assert_eq!(SocketKind::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_family_is_an_error_that_lists_them() {
        let error = SocketKind::parse("ipx").unwrap_err().to_string();
        assert!(
            error.contains("unknown family \"ipx\"") && error.contains("vsock"),
            "{error}"
        );
        let error = SocketKind::parse("i\net:raw").unwrap_err().to_string();
        assert!(error.contains(r#"unknown family "i\net""#), "{error}");
        let error = SocketKind::parse("inet:r\naw").unwrap_err().to_string();
        assert!(error.contains(r#"unknown type "r\naw""#), "{error}");
        assert!(SocketKind::parse("64").is_err());
        assert!(SocketKind::parse("inet:tcp").is_err());
    }
}
