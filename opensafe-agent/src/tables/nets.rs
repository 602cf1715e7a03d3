//! Addresses: which rules hold an address, and what they say of a port. One longest-prefix look-up each.
//!
//! A prefix's entry has to say all that the wider ones around it say, as the kernel sees only the longest.
//! What an address may do is its **class**; addresses about which different rules say the same share one.

use std::collections::{BTreeMap, HashMap};

use opensafe_common::tables::transport;
use opensafe_common::verdict::Verdict;

use crate::rules::peer::{PortRange, Protocol};
use crate::rules::{Defaults, Peer, RuleSet, Subject};

use super::ports::{PortPrefix, Runs};
use super::{NetEntry, PortEntry};

/// Entries for [`opensafe_common::tables::NetKey`] and [`opensafe_common::tables::PortKey`], sorted.
pub(super) fn compile(rules: &RuleSet) -> (Vec<NetEntry>, Vec<PortEntry>) {
    let mut terms = Terms::default();
    let mut at: BTreeMap<Prefix, Vec<u32>> = BTreeMap::from([(Prefix::ALL, Vec::new())]);
    for rule in &rules.rules {
        let (bind, peers, ports, protocol) = match &rule.subject {
            Subject::Connect {
                peers,
                ports,
                protocol,
            } => (false, peers, ports, protocol),
            Subject::Bind {
                addresses,
                ports,
                protocol,
            } => (true, addresses, ports, protocol),
            _ => continue,
        };
        let term = Term {
            bind,
            verdict: rule.verdict,
            ports: ports.clone(),
            protocol: *protocol,
        };
        for peer in peers {
            let prefixes = match peer {
                Peer::Any => vec![Prefix::ALL],
                Peer::Ip(prefix) => prefix
                    .embeddings()
                    .into_iter()
                    .map(|(address, bits)| Prefix::new(address.to_bits(), bits))
                    .collect(),
                Peer::UnixPath(_) | Peer::UnixAbstract(_) => continue,
            };
            let id = terms.id(&term);
            for prefix in prefixes {
                at.entry(prefix).or_default().push(id);
            }
        }
    }

    let mut classes = Classes::new(&terms.all, rules.defaults);
    let mut nets: Vec<NetEntry> = Vec::new();
    // The prefixes around the one at hand: in this order a prefix comes after those that hold it.
    let mut around: Vec<(Prefix, Vec<u32>, u32)> = Vec::new();
    for (prefix, own) in at {
        while around
            .last()
            .is_some_and(|(wider, _, _)| !wider.holds(prefix))
        {
            around.pop();
        }
        let mut terms = own;
        if let Some((_, wider, _)) = around.last() {
            terms.extend_from_slice(wider);
        }
        terms.sort_unstable();
        terms.dedup();
        let class = classes.of(&terms);
        if around.last().is_none_or(|(_, _, outer)| *outer != class) {
            nets.push(NetEntry {
                address: prefix.address.to_be_bytes(),
                bits: prefix.bits,
                class,
            });
        }
        around.push((prefix, terms, class));
    }
    (nets, classes.ports())
}

/// An IPv6 prefix. The order puts a prefix after those that hold it, and before its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    address: u128,
    bits: u8,
}

impl Prefix {
    const ALL: Self = Self {
        address: 0,
        bits: 0,
    };

    const fn new(address: u128, bits: u8) -> Self {
        let mask = match u128::MAX.checked_shr(bits as u32) {
            Some(host) => !host,
            None => u128::MAX,
        };
        Self {
            address: address & mask,
            bits,
        }
    }

    const fn holds(self, other: Self) -> bool {
        other.bits >= self.bits && Self::new(other.address, self.bits).address == self.address
    }
}

/// What a rule says of any address that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Term {
    /// It is about binding to the address, not about contacting it.
    bind: bool,
    verdict: Verdict,
    ports: Vec<PortRange>,
    protocol: Option<Protocol>,
}

impl Term {
    fn is_about(&self, number: u16) -> bool {
        let bind = number & transport::BIND != 0;
        let number = number & !transport::BIND;
        self.bind == bind
            && self
                .protocol
                .is_none_or(|protocol| number == protocol.transport())
    }

    /// The ranges of ports, with the verdict.
    fn ranges(&self) -> impl Iterator<Item = (u16, u16, Verdict)> {
        let every = self.ports.is_empty().then_some((0, u16::MAX));
        let some = self.ports.iter().map(|range| (range.first, range.last));
        every
            .into_iter()
            .chain(some)
            .map(|(first, last)| (first, last, self.verdict))
    }
}

/// Terms, each there once, however many rules say it of however many addresses.
#[derive(Default)]
struct Terms {
    all: Vec<Term>,
    ids: HashMap<Term, u32>,
}

impl Terms {
    fn id(&mut self, term: &Term) -> u32 {
        if let Some(&id) = self.ids.get(term) {
            return id;
        }
        let id = index(self.all.len());
        self.all.push(term.clone());
        self.ids.insert(term.clone(), id);
        id
    }
}

/// Every number that a port's key may have: the transports, contacted and bound.
fn numbers() -> impl Iterator<Item = u16> {
    let bound = transport::ALL.map(|number| number | transport::BIND);
    transport::ALL.into_iter().chain(bound)
}

/// Per number, a verdict for every port.
type Behaviour = Vec<Runs>;

/// Classes, told apart by what they say and not by who says it.
struct Classes<'a> {
    terms: &'a [Term],
    defaults: Defaults,
    by_terms: HashMap<Vec<u32>, u32>,
    by_behaviour: HashMap<Behaviour, u32>,
    all: Vec<Behaviour>,
}

impl<'a> Classes<'a> {
    fn new(terms: &'a [Term], defaults: Defaults) -> Self {
        Self {
            terms,
            defaults,
            by_terms: HashMap::new(),
            by_behaviour: HashMap::new(),
            all: Vec::new(),
        }
    }

    fn of(&mut self, terms: &[u32]) -> u32 {
        if let Some(&class) = self.by_terms.get(terms) {
            return class;
        }
        let behaviour: Behaviour = numbers()
            .map(|number| {
                let ranges: Vec<_> = terms
                    .iter()
                    .map(|term| &self.terms[*term as usize])
                    .filter(|term| term.is_about(number))
                    .flat_map(Term::ranges)
                    .collect();
                let default = if number & transport::BIND == 0 {
                    self.defaults.connect
                } else {
                    self.defaults.bind
                };
                Runs::new(&ranges, default)
            })
            .collect();
        let fresh = index(self.all.len());
        let class = *self
            .by_behaviour
            .entry(behaviour)
            .or_insert_with_key(|behaviour| {
                self.all.push(behaviour.clone());
                fresh
            });
        self.by_terms.insert(terms.to_vec(), class);
        class
    }

    fn ports(&self) -> Vec<PortEntry> {
        let mut entries = Vec::new();
        for (class, behaviour) in self.all.iter().enumerate() {
            for (runs, transport) in behaviour.iter().zip(numbers()) {
                for (PortPrefix { port, bits }, verdict) in runs.prefixes() {
                    entries.push(PortEntry {
                        class: index(class),
                        transport,
                        port,
                        bits,
                        verdict,
                    });
                }
            }
        }
        entries
    }
}

/// A count as an id: there are no more than there are rules and prefixes.
fn index(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
