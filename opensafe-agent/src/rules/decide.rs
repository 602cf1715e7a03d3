//! What a [`RuleSet`] says about one operation.
//!
//! Every rule that matches has its say: deny beats audit beats allow, whichever rule is narrower. For
//! a kind of access about which no rule speaks the policy's default holds. An operation of several
//! kinds gets the strictest verdict over them.
//!
//! All rules are looked at each time, cheapest test first; a thousand of them cost some tens of
//! microseconds.

use std::net::{Ipv4Addr, Ipv6Addr};

use opensafe_common::operation::Operation;
use opensafe_common::socket::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, SOCK_RAW};
use opensafe_common::tables::{FAMILIES, socket_class};
use opensafe_common::verdict::{Access, Verdict, Word};

use super::peer::{PortRange, Protocol};
use super::{Peer, Rule, RuleSet, Subject};

/// A verdict, and who gave it.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// The verdict.
    pub verdict: Verdict,
    /// Of the rules that give it, the one of the highest severity, and among those the first by id;
    /// `None` if it is the default's.
    pub rule: Option<&'a Rule>,
}

impl RuleSet {
    /// What holds for doing all of `access` to the file, program or Unix socket at `path`: absolute,
    /// in the sandbox's view, free of links. `Allow` if `access` is empty.
    #[must_use]
    pub fn decide_path(&self, path: &[u8], access: Access) -> Decided<'_> {
        self.decide(access, |subject| match subject {
            Subject::Exec(globs) if asked(access, Access::EXEC) => {
                said(globs.iter().any(|glob| glob.matches(path)), Access::EXEC)
            }
            Subject::File {
                globs,
                access: kinds,
            } if asked(access, Access::FILE) => {
                said(globs.iter().any(|glob| glob.matches(path)), *kinds)
            }
            Subject::Connect { peers, .. } if asked(access, Access::UNIX) => {
                let named = peers
                    .iter()
                    .any(|peer| matches!(peer, Peer::UnixPath(glob) if glob.matches(path)));
                said(named || subject.is_about_everyone(), Access::UNIX)
            }
            _ => Access::NONE,
        })
    }

    /// What holds for contacting the abstract Unix socket `name`, given without its leading NUL.
    #[must_use]
    pub fn decide_abstract(&self, name: &[u8]) -> Decided<'_> {
        self.decide(Access::UNIX, |subject| match subject {
            Subject::Connect { peers, .. } => {
                let named = peers
                    .iter()
                    .any(|peer| matches!(peer, Peer::UnixAbstract(glob) if glob.matches(name)));
                said(named || subject.is_about_everyone(), Access::UNIX)
            }
            _ => Access::NONE,
        })
    }

    /// What holds for contacting an IP address (IPv4 in its mapped form) by a protocol
    /// ([`opensafe_common::tables::transport`]) at a port (0 where the protocol has none).
    #[must_use]
    pub fn decide_peer(&self, address: Ipv6Addr, transport: u16, port: u16) -> Decided<'_> {
        self.decide(Access::UNIX, |subject| {
            let Subject::Connect {
                peers,
                ports,
                protocol,
            } = subject
            else {
                return Access::NONE;
            };
            let asked = Endpoint {
                address,
                transport,
                port,
            };
            said(asked.is_among(peers, ports, *protocol), Access::UNIX)
        })
    }

    /// What holds for binding a socket to a local address; its parts as for [`Self::decide_peer`].
    #[must_use]
    pub fn decide_bind(&self, address: Ipv6Addr, transport: u16, port: u16) -> Decided<'_> {
        let own = self.decide_bind_to(address, transport, port);
        if !address.is_unspecified() {
            return own;
        }
        // Every address of IPv6 is every one of IPv4 too, unless the socket says otherwise.
        let every = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
        let mapped = self.decide_bind_to(every, transport, port);
        if mapped.verdict > own.verdict {
            mapped
        } else {
            own
        }
    }

    fn decide_bind_to(&self, address: Ipv6Addr, transport: u16, port: u16) -> Decided<'_> {
        self.by_rules(self.defaults.bind, |subject| {
            let Subject::Bind {
                addresses,
                ports,
                protocol,
            } = subject
            else {
                return false;
            };
            let asked = Endpoint {
                address,
                transport,
                port,
            };
            asked.is_among(addresses, ports, *protocol)
        })
    }

    /// What holds for making a socket of a family (`AF_*`) and a type (`SOCK_*`). Where no rule on sockets
    /// speaks, sockets whose every peer is decided later may be made; of others, whose peers no rule could
    /// tell apart, what would be the strictest for any peer holds.
    #[must_use]
    pub fn decide_socket(&self, family: u16, socket_type: u16) -> Decided<'_> {
        let default = if is_decided_by_peer(family, socket_type) {
            Verdict::Allow
        } else {
            self.strictest_peer()
        };
        self.by_rules(default, |subject| {
            matches!(subject, Subject::Socket(kinds) if kinds.iter().any(|kind| kind.matches(family, socket_type)))
        })
    }

    /// What holds for an operation on others, the mounts or the kernel.
    #[must_use]
    pub fn decide_operation(&self, operation: Operation) -> Decided<'_> {
        self.by_rules(
            self.defaults.operation(operation),
            |subject| matches!(subject, Subject::Operation(about) if *about == operation),
        )
    }

    /// The rule that a directory at `path` must stay where it is for: of those that deny something below
    /// it, the one of the highest severity, and among those the first by id.
    #[must_use]
    pub fn denies_below(&self, path: &[u8]) -> Option<&Rule> {
        let denies = |rule: &&Rule| {
            let globs = match &rule.subject {
                _ if rule.verdict != Verdict::Deny => return false,
                Subject::Exec(globs) | Subject::File { globs, .. } => globs,
                _ => return false,
            };
            globs.iter().any(|glob| glob.may_match_below(path))
        };
        self.rules
            .iter()
            .filter(denies)
            .min_by_key(|rule| (std::cmp::Reverse(rule.severity), &rule.id))
    }

    /// [`Self::decide_socket`] for every family and class, as the kernel's tables have it.
    #[must_use]
    pub fn sockets(&self) -> [u8; FAMILIES] {
        let mut table = [0; FAMILIES];
        for (family, byte) in (0_u16..).zip(&mut table) {
            // SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, and SOCK_SEQPACKET for the rest.
            for socket_type in [1, 2, 3, 5] {
                let verdict = self.decide_socket(family, socket_type).verdict as u8;
                *byte |= verdict << socket_class(socket_type.into());
            }
        }
        table
    }

    /// [`Self::decide_operation`] for every one, by their bits.
    #[must_use]
    pub fn operations(&self) -> Word {
        Operation::ALL.iter().fold(Word::NONE, |word, operation| {
            let verdict = self.decide_operation(*operation).verdict;
            word.merge(Word::of(verdict, operation.bit()))
        })
    }

    /// What holds for contacting a peer that is neither an IP address nor a Unix socket.
    #[must_use]
    pub fn decide_other_family(&self) -> Decided<'_> {
        self.decide(Access::UNIX, |subject| {
            said(subject.is_about_everyone(), Access::UNIX)
        })
    }

    /// For an operation of the kinds in `access`, given the kinds about which a subject speaks, if it
    /// is about the operation's object.
    fn decide(&self, access: Access, speaks: impl Fn(&Subject) -> Access) -> Decided<'_> {
        let about: Vec<&Rule> = self
            .rules
            .iter()
            .filter(|rule| !speaks(&rule.subject).is_empty())
            .collect();
        let hiding = if about.iter().any(|rule| rule.hides()) {
            self.hiding()
        } else {
            Vec::new()
        };
        let words: Vec<(&Rule, Word)> = about
            .iter()
            .map(|rule| (*rule, rule.word(rule.says_within(&hiding))))
            .collect();
        let word = words
            .iter()
            .fold(Word::NONE, |word, (_, said)| word.merge(*said))
            .settled();
        let said = Word {
            flags: word.flags & Word::SAID,
            ..Word::NONE
        };
        let verdict = word.or_else(self.defaults.word()).verdict(access);
        let rule = words
            .iter()
            .filter(|(_, word)| {
                let word = word.merge(said).settled();
                word.speaks_about(access) && word.verdict(access) == verdict
            })
            .map(|(rule, _)| *rule)
            .min_by_key(|rule| (std::cmp::Reverse(rule.severity), &rule.id));
        Decided { verdict, rule }
    }

    /// The strictest verdict of the rules that `matches`, or the default.
    fn by_rules(&self, default: Verdict, matches: impl Fn(&Subject) -> bool) -> Decided<'_> {
        let rule = self
            .rules
            .iter()
            .filter(|rule| matches(&rule.subject))
            .max_by_key(|rule| (rule.verdict, rule.severity, std::cmp::Reverse(&rule.id)));
        Decided {
            verdict: rule.map_or(default, |rule| rule.verdict),
            rule,
        }
    }

    /// The strictest verdict that some peer gets.
    fn strictest_peer(&self) -> Verdict {
        let of_rules = |strictest: Verdict, rule: &Rule| match rule.subject {
            Subject::Connect { .. } => strictest.max(rule.verdict),
            _ => strictest,
        };
        let everyone = self.decide_other_family().verdict;
        self.rules.iter().fold(everyone, of_rules)
    }
}

/// An address of a socket, one end's.
#[derive(Clone, Copy)]
struct Endpoint {
    address: Ipv6Addr,
    transport: u16,
    port: u16,
}

impl Endpoint {
    fn is_among(self, peers: &[Peer], ports: &[PortRange], protocol: Option<Protocol>) -> bool {
        protocol.is_none_or(|protocol| protocol.transport() == self.transport)
            && (ports.is_empty() || ports.iter().any(|range| range.contains(self.port)))
            && peers.iter().any(|peer| match peer {
                Peer::Any => true,
                Peer::Ip(prefix) => prefix.contains(self.address),
                Peer::UnixPath(_) | Peer::UnixAbstract(_) => false,
            })
    }
}

/// Whether whoever such a socket can reach is asked about when it does: IP but for raw packets, Unix
/// sockets, and netlink, whose other end is the kernel.
const fn is_decided_by_peer(family: u16, socket_type: u16) -> bool {
    match family {
        AF_UNIX | AF_NETLINK => true,
        AF_INET | AF_INET6 => socket_type != SOCK_RAW,
        _ => false,
    }
}

impl Subject {
    /// Whether it is about every peer, also those without an address: `*` without ports or protocol.
    #[must_use]
    pub fn is_about_everyone(&self) -> bool {
        matches!(
            self,
            Self::Connect { peers, ports, protocol: None }
                if ports.is_empty() && peers.iter().any(|peer| matches!(peer, Peer::Any))
        )
    }
}

fn asked(access: Access, kinds: Access) -> bool {
    access.0 & kinds.0 != 0
}

fn said(matches: bool, kinds: Access) -> Access {
    if matches { kinds } else { Access::NONE }
}

#[cfg(test)]
mod tests;
