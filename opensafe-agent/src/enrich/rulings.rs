//! Which rule it was: the kernel made the verdict, and the rules say whose it is.

use std::{
    collections::{BTreeMap, HashMap},
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use opensafe_common::verdict::{Access, Verdict};

use super::{
    Peer, Ruling,
    names::{label, name_of_own_tmpfs, names},
};
use crate::{
    event::{Decision, Generation, PeerAddress, Place, PolicyNumber},
    rules::{
        PINS, PINS_REASON, RECORDS, RECORDS_REASON, Rule, RuleId, RuleSet, Severity,
        socket::family_name,
    },
    view::{Dev, View},
};

/// A policy that decides, or did.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Its rules.
    pub rules: Arc<RuleSet>,
    /// The view for which they were compiled.
    pub view: Arc<View>,
    /// Which policy of the run's it is.
    pub number: PolicyNumber,
}

/// The policies that decide, or did, and what was found out from them.
#[derive(Debug)]
pub(super) struct Rulings {
    /// By the generation from which on each is in force.
    policies: BTreeMap<Generation, InForce>,
    /// Rulings on places that were met before: a build opens the same headers a thousand times, and
    /// to find a rule is to ask all of them.
    known: HashMap<Asked, (Vec<u8>, Ruling)>,
}

/// What a ruling on a place depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    decision: Decision,
    dev: Dev,
    magic: u64,
    path: Vec<u8>,
    partial: bool,
    /// Tells apart what has no path.
    inode: u64,
    access: u16,
}

/// Rulings that are remembered at most.
const MAX_RULINGS: usize = 10_000;

/// Policies whose events may still be on their way: those of a few seconds, however often one is applied.
const KEEP_POLICIES: usize = 32;

impl Rulings {
    /// With the policy that is in force from `generation` on.
    pub(super) fn new(generation: Generation, policy: InForce) -> Self {
        Self {
            policies: BTreeMap::from([(generation, policy)]),
            known: HashMap::new(),
        }
    }

    /// Another policy is in force from `generation` on.
    pub(super) fn policy_changed(&mut self, generation: Generation, policy: InForce) {
        self.policies.insert(generation, policy);
        while self.policies.len() > KEEP_POLICIES {
            self.policies.pop_first();
        }
    }

    /// The one that was in force then; `None` if it is not known any more.
    fn policy(&self, generation: Generation) -> Option<&InForce> {
        let mut until = self.policies.range(..=generation);
        until.next_back().map(|(_, policy)| policy)
    }

    /// The ruling with the policy that made it.
    fn made_by(&self, decision: Decision, ruling: Ruling) -> Ruling {
        let policy = self.policy(decision.generation);
        Ruling {
            policy: policy.map(|policy| policy.number),
            ..ruling
        }
    }

    /// The name and the ruling for an object with a path. The kernel made the verdict; which rule it
    /// was follows from the rules themselves, asked for each name that the object has.
    pub(super) fn on_place(
        &mut self,
        decision: Decision,
        place: &Place,
        access: Access,
    ) -> (Vec<u8>, Ruling) {
        let asked = Asked {
            decision,
            dev: place.dev,
            magic: place.magic,
            path: place.path.clone(),
            partial: place.partial,
            inode: if place.partial { place.inode } else { 0 },
            access: access.0,
        };
        if let Some(known) = self.known.get(&asked) {
            return known.clone();
        }
        let (name, ruling) = self.find_rule(decision, place, access);
        let found = (name, self.made_by(decision, ruling));
        if self.known.len() == MAX_RULINGS {
            self.known.clear();
        }
        self.known.insert(asked, found.clone());
        found
    }

    fn find_rule(&self, decision: Decision, place: &Place, access: Access) -> (Vec<u8>, Ruling) {
        let Some(policy) = self.policy(decision.generation) else {
            return (place.path.clone(), made_by_an_earlier_one(decision));
        };
        // What the kernel found no name for may have the number of a device that had one.
        let mut candidates = match decision.nameless {
            true => Vec::new(),
            false => names(&policy.view, place),
        };
        if candidates.is_empty() && !decision.nameless {
            candidates.extend(name_of_own_tmpfs(place));
        }
        if candidates.is_empty() {
            return (label(&policy.view, place), nameless(decision));
        }
        for name in &candidates {
            let decided = policy.rules.decide_path(name, access);
            if decided.verdict == decision.verdict {
                return (
                    name.clone(),
                    ruling(decision, decided.rule, policy, default_of(access)),
                );
            }
        }
        // The places of a rule's links are not among the names.
        for (link, target) in &policy.view.links {
            for name in &candidates {
                let Some(rest) = name.strip_prefix(target.as_slice()) else {
                    continue;
                };
                let decided = policy.rules.decide_path(&[link, rest].concat(), access);
                if decided.verdict == decision.verdict && decided.rule.is_some() {
                    return (
                        name.clone(),
                        ruling(decision, decided.rule, policy, default_of(access)),
                    );
                }
            }
        }
        (
            candidates.into_iter().next().unwrap_or_default(),
            unexplained(decision),
        )
    }

    /// What a directory cannot be moved for, or a link not made for, is a rule on what lies below.
    pub(super) fn explain_below(&self, decision: Decision, path: &[u8], ruling: &mut Ruling) {
        let rule = self
            .policy(decision.generation)
            .and_then(|policy| policy.rules.denies_below(path));
        match rule {
            Some(rule) => {
                ruling.rule = Some(rule.id.clone());
                ruling.severity = rule.severity;
                ruling.reason = format!("what the rule protects lies below it: {}", rule.reason);
            }
            None => {
                ruling.rule = None;
                ruling.reason = "the rules below it would not hold under its other name".to_owned();
            }
        }
    }

    /// The ruling where no path is asked about.
    pub(super) fn on_whole(
        &self,
        decision: Decision,
        operation: &str,
        rule: impl Fn(&RuleSet) -> Option<Rule>,
    ) -> Ruling {
        let ruling = self.policy(decision.generation).map_or_else(
            || made_by_an_earlier_one(decision),
            |policy| ruling(decision, rule(&policy.rules).as_ref(), policy, operation),
        );
        self.made_by(decision, ruling)
    }

    /// The name of a place about which no rule is asked.
    pub(super) fn name_of(&self, decision: Decision, place: &Place) -> Vec<u8> {
        let Some(policy) = self.policy(decision.generation) else {
            return place.path.clone();
        };
        let name = names(&policy.view, place).into_iter().next();
        name.unwrap_or_else(|| label(&policy.view, place))
    }

    /// The peer as a person knows it, and the ruling.
    pub(super) fn on_peer(
        &mut self,
        decision: Decision,
        peer: &PeerAddress,
        transport: u16,
    ) -> (Peer, Ruling) {
        let (peer, ruling) = self.rule_on_peer(decision, peer, transport);
        let ruling = self.made_by(decision, ruling);
        (peer, ruling)
    }

    fn rule_on_peer(
        &mut self,
        decision: Decision,
        peer: &PeerAddress,
        transport: u16,
    ) -> (Peer, Ruling) {
        const DEFAULT: &str = "connect";
        match peer {
            PeerAddress::UnixPath(place) => {
                let (path, ruling) = self.on_place(decision, place, Access::UNIX);
                (Peer::UnixPath(path), ruling)
            }
            PeerAddress::UnixAbstract(name) => {
                let ruling = self.policy(decision.generation).map_or_else(
                    || made_by_an_earlier_one(decision),
                    |policy| {
                        ruling(
                            decision,
                            policy.rules.decide_abstract(name).rule,
                            policy,
                            DEFAULT,
                        )
                    },
                );
                (Peer::UnixAbstract(name.clone()), ruling)
            }
            PeerAddress::Ip { address, port } if decision.nameless => {
                let reason = "where it leads depends on a device, or on what was sent with it, so no rule could allow it";
                let ruling = without_rule(decision, reason);
                (Peer::Ip(address.to_canonical(), *port), ruling)
            }
            PeerAddress::Ip { address, port } => {
                let ruling = self.policy(decision.generation).map_or_else(
                    || made_by_an_earlier_one(decision),
                    |policy| {
                        // The unspecified address is this host: see `decide` in the kernel programs.
                        let asked: &[Ipv6Addr] = match address.to_bits() {
                            0 => &[Ipv6Addr::LOCALHOST, V4_LOOPBACK],
                            V4_UNSPECIFIED => &[V4_LOOPBACK],
                            _ => std::slice::from_ref(address),
                        };
                        let rule = asked
                            .iter()
                            .map(|address| policy.rules.decide_peer(*address, transport, *port))
                            .find(|decided| decided.verdict == decision.verdict)
                            .and_then(|decided| decided.rule);
                        ruling(decision, rule, policy, DEFAULT)
                    },
                );
                (Peer::Ip(address.to_canonical(), *port), ruling)
            }
            PeerAddress::Other { family } => {
                let ruling = self.policy(decision.generation).map_or_else(
                    || made_by_an_earlier_one(decision),
                    |policy| {
                        ruling(
                            decision,
                            policy.rules.decide_other_family().rule,
                            policy,
                            DEFAULT,
                        )
                    },
                );
                (Peer::Family(family_name(*family)), ruling)
            }
        }
    }
}

const V4_LOOPBACK: Ipv6Addr = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
const V4_UNSPECIFIED: u128 = 0xffff_0000_0000;

fn ruling(
    decision: Decision,
    rule: Option<&crate::rules::Rule>,
    policy: &InForce,
    operation: &str,
) -> Ruling {
    let (id, severity, reason) = match rule {
        Some(rule) => (Some(rule.id.clone()), rule.severity, rule.reason.clone()),
        None => (
            None,
            Severity::default(),
            default_reason(decision.verdict, policy, operation),
        ),
    };
    Ruling {
        verdict: decision.verdict,
        enforced: decision.enforced,
        errno: decision.errno,
        rule: id,
        severity,
        reason,
        policy: Some(policy.number),
    }
}

/// What to say where the default decided; nothing about what is simply allowed.
fn default_reason(verdict: Verdict, policy: &InForce, operation: &str) -> String {
    let revision = &policy.rules.revision;
    let (says, default, does) = match verdict {
        Verdict::Allow => return String::new(),
        Verdict::Audit => ("is about", "audit", "audits"),
        Verdict::Deny => ("allows", "deny", "denies"),
    };
    if operation == "socket" {
        // Sockets have no default of their own.
        return format!(
            "no rule of {revision} on sockets {says} it, and it could reach peers that a rule or the \
             default for connect {does}"
        );
    }
    format!("no rule of {revision} {says} it, and the default for {operation} is {default}")
}

/// No rule of a policy's keeps sandboxes from each other's records, and from what confines them.
pub(super) fn explain_ours(place: &Place, ruling: &mut Ruling) {
    // `BPF_FS_MAGIC` of include/uapi/linux/magic.h. Nobody's record is on one: it has no plain files.
    const BPF_FS_MAGIC: u64 = 0xcafe_4a11;
    let (rule, reason) = match place.magic {
        BPF_FS_MAGIC => (PINS, PINS_REASON),
        _ => (RECORDS, RECORDS_REASON),
    };
    ruling.rule = Some(RuleId(rule.to_owned()));
    ruling.severity = Severity::High;
    ruling.reason = reason.to_owned();
}

fn nameless(decision: Decision) -> Ruling {
    let reason = match decision.verdict {
        Verdict::Allow => "",
        _ => "it has no name in the sandbox's view, so no rule could allow it",
    };
    without_rule(decision, reason)
}

/// The kernel decided by tables that the rules at hand do not explain: the mounts changed meanwhile,
/// or something is wrong with us. Said, not hidden.
fn unexplained(decision: Decision) -> Ruling {
    without_rule(
        decision,
        "the rule could not be found out: the sandbox's mounts changed meanwhile",
    )
}

/// Decided before this process, or long before what it knows: the policy that did is kept nowhere any more.
fn made_by_an_earlier_one(decision: Decision) -> Ruling {
    without_rule(
        decision,
        "the policy that decided it was replaced, and is not known any more",
    )
}

fn without_rule(decision: Decision, reason: &str) -> Ruling {
    Ruling {
        verdict: decision.verdict,
        enforced: decision.enforced,
        errno: decision.errno,
        rule: None,
        severity: Severity::default(),
        reason: reason.to_owned(),
        policy: None,
    }
}

fn default_of(access: Access) -> &'static str {
    match access {
        Access::EXEC => "exec",
        Access::UNIX => "connect",
        _ => "file",
    }
}
