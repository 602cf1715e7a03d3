//! What a [`RuleSet`] says about one operation.
//!
//! Every rule that matches has its say: deny beats audit beats allow, whichever rule is narrower. For
//! a kind of access about which no rule speaks the policy's default holds. An operation of several
//! kinds gets the strictest verdict over them.
//!
//! All rules are looked at each time, cheapest test first; a thousand of them cost some tens of
//! microseconds.

use std::net::Ipv6Addr;

use opensafe_common::verdict::{Access, Verdict, Word};

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
            } if asked(access, *kinds) => said(globs.iter().any(|glob| glob.matches(path)), *kinds),
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
            let matches = protocol.is_none_or(|protocol| protocol.transport() == transport)
                && (ports.is_empty() || ports.iter().any(|range| range.contains(port)))
                && peers.iter().any(|peer| match peer {
                    Peer::Any => true,
                    Peer::Ip(prefix) => prefix.contains(address),
                    Peer::UnixPath(_) | Peer::UnixAbstract(_) => false,
                });
            said(matches, Access::UNIX)
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
        let matching: Vec<(&Rule, Word)> = self
            .rules
            .iter()
            .filter_map(|rule| {
                let kinds = Access(speaks(&rule.subject).0 & access.0);
                (!kinds.is_empty()).then(|| (rule, Word::of(rule.verdict, kinds)))
            })
            .collect();
        let word = matching
            .iter()
            .fold(Word::default(), |word, (_, said)| word.merge(*said));
        let verdict = word.or_else(self.default_word()).verdict(access);
        let rule = matching
            .iter()
            .map(|(rule, _)| *rule)
            .filter(|rule| rule.verdict == verdict)
            .min_by_key(|rule| (std::cmp::Reverse(rule.severity), &rule.id));
        Decided { verdict, rule }
    }

    /// The defaults, for every kind of access.
    fn default_word(&self) -> Word {
        Word::of(self.defaults.exec, Access::EXEC)
            .merge(Word::of(self.defaults.file, Access::FILE))
            .merge(Word::of(self.defaults.connect, Access::UNIX))
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
