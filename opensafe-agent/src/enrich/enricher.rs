//! One event after the other, with what is known from those before.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use opensafe_common::{
    tables::transport,
    verdict::{Access, Verdict},
};

use super::{
    Action, Enriched, Peer, Process, Ruling, Target,
    names::{label, names},
    processes::Processes,
};
use crate::{
    event::{Because, Decision, Event, Generation, PeerAddress, Pid, Place, Task, What},
    rules::{
        Rule, RuleSet, Severity,
        socket::{family_name, type_name},
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
}

/// Turns events into what goes on record.
#[derive(Debug)]
pub struct Enricher {
    policies: HashMap<Generation, InForce>,
    latest: Generation,
    processes: Processes,
    /// By thread: a denial of creation that may be void, or programs that passed the gate and have
    /// not run yet.
    waiting: HashMap<Pid, Waiting>,
    /// Rulings on places that were met before: a build opens the same headers a thousand times, and
    /// to find a rule is to ask all of them.
    rulings: HashMap<Asked, (Vec<u8>, Ruling)>,
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

#[derive(Debug)]
struct Waiting {
    events: Vec<Event>,
    since: Instant,
}

/// How long an event waits for the one that says what became of it: they are a few system calls of
/// the same thread apart.
const PATIENCE: Duration = Duration::from_millis(500);
/// Policies whose events may still be on their way.
const KEEP_POLICIES: u32 = 8;

impl Enricher {
    /// With the first policy.
    #[must_use]
    pub fn new(generation: Generation, policy: InForce) -> Self {
        Self {
            policies: HashMap::from([(generation, policy)]),
            latest: generation,
            processes: Processes::default(),
            waiting: HashMap::new(),
            rulings: HashMap::new(),
        }
    }

    /// Another policy is in force from `generation` on.
    pub fn policy_changed(&mut self, generation: Generation, policy: InForce) {
        self.policies
            .retain(|old, _| old.0 + KEEP_POLICIES > generation.0);
        self.policies.insert(generation, policy);
        self.latest = generation;
    }

    /// Takes an event; gives what is now ready to go on record to `out`, in order.
    pub fn take(&mut self, event: Event, out: &mut Vec<Enriched>) {
        let thread = event.task.tid;
        match &event.what {
            What::NotCreated => {
                if let Some(waiting) = self.waiting.get_mut(&thread) {
                    let void = |event: &Event| matches!(event.what, What::File { .. });
                    waiting.events.retain(|event| !void(event));
                }
            }
            What::File {
                tentative: true, ..
            } => {
                self.release(thread, out);
                self.wait(thread, event);
            }
            What::ExecGate { decision, .. } if !decision.enforced => self.wait(thread, event),
            What::Exec { .. } => {
                let gates = self.gates_of(event.task.pid, out);
                let enriched = self.exec(event, gates);
                out.extend(enriched);
            }
            _ => {
                self.release(thread, out);
                let enriched = self.enrich(event);
                out.extend(enriched);
            }
        }
    }

    /// Gives what has waited long enough.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Enriched>) {
        let due: Vec<Pid> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| now.duration_since(waiting.since) > PATIENCE)
            .map(|(thread, _)| *thread)
            .collect();
        for thread in due {
            self.release(thread, out);
        }
    }

    /// Gives all that waits.
    pub fn finish(&mut self, out: &mut Vec<Enriched>) {
        let threads: Vec<Pid> = self.waiting.keys().copied().collect();
        for thread in threads {
            self.release(thread, out);
        }
    }

    fn wait(&mut self, thread: Pid, event: Event) {
        let waiting = self.waiting.entry(thread).or_insert_with(|| Waiting {
            events: Vec::new(),
            since: Instant::now(),
        });
        waiting.events.push(event);
    }

    /// Takes what waits of a process that now runs a program: the programs that passed the gate, by
    /// whichever of its threads, for the thread that runs a program becomes the leader. What else
    /// waits of them has no part in it and goes out.
    fn gates_of(&mut self, pid: Pid, out: &mut Vec<Enriched>) -> Vec<Event> {
        let of_process = |waiting: &Waiting| {
            waiting
                .events
                .first()
                .is_some_and(|event| event.task.pid == pid)
        };
        let threads: Vec<Pid> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| of_process(waiting))
            .map(|(thread, _)| *thread)
            .collect();
        let mut gates = Vec::new();
        for thread in threads {
            let Some(waiting) = self.waiting.remove(&thread) else {
                continue;
            };
            for event in waiting.events {
                if matches!(event.what, What::ExecGate { .. }) {
                    gates.push(event);
                } else {
                    let enriched = self.enrich(event);
                    out.extend(enriched);
                }
            }
        }
        gates
    }

    fn release(&mut self, thread: Pid, out: &mut Vec<Enriched>) {
        let Some(waiting) = self.waiting.remove(&thread) else {
            return;
        };
        for event in waiting.events {
            let enriched = self.enrich(event);
            out.extend(enriched);
        }
    }

    fn enrich(&mut self, event: Event) -> Option<Enriched> {
        let action = match event.what {
            What::Exec { .. } => return self.exec(event, Vec::new()),
            What::ExecGate {
                decision,
                ref place,
                ref requested,
            } => {
                let (path, ruling) = self.rule_on_place(decision, place, Access::EXEC);
                Action::Exec {
                    ruling,
                    path,
                    requested: requested.clone(),
                }
            }
            What::File {
                decision,
                ref place,
                ref requested,
                access,
                because,
                ..
            } => {
                let (path, mut ruling) = self.rule_on_place(decision, place, access);
                if because == Because::Below {
                    self.explain_below(decision, &path, &mut ruling);
                }
                Action::File {
                    ruling,
                    path,
                    requested: requested.clone(),
                    access,
                    received: because == Because::Received,
                }
            }
            What::Connect {
                decision,
                ref peer,
                transport,
                protocol,
                socket_type: _,
                by_send,
            } => {
                let (peer, ruling) = self.rule_on_peer(decision, peer, transport);
                let transport = transport_name(&peer, transport, protocol);
                Action::Connect {
                    ruling,
                    peer,
                    transport,
                    by_send,
                }
            }
            What::Socket {
                decision,
                family,
                socket_type,
                protocol,
            } => {
                let decided =
                    |rules: &RuleSet| rules.decide_socket(family, socket_type).rule.cloned();
                Action::Socket {
                    ruling: self.rule_on_whole(decision, "socket", decided),
                    family: family_name(family),
                    socket_type: type_name(socket_type),
                    protocol,
                }
            }
            What::Bind {
                decision,
                address,
                port,
                transport,
                protocol,
            } => {
                let decided =
                    |rules: &RuleSet| rules.decide_bind(address, transport, port).rule.cloned();
                Action::Bind {
                    ruling: self.rule_on_whole(decision, "bind", decided),
                    address: address.to_canonical(),
                    port,
                    transport: ip_transport(transport, protocol),
                }
            }
            What::Operation {
                decision,
                operation,
                how,
                number,
                target,
                ref place,
            } => {
                let decided = |rules: &RuleSet| rules.decide_operation(operation).rule.cloned();
                let target = target.map(|pid| Target {
                    pid,
                    comm: comm_of(pid),
                });
                Action::Operation {
                    ruling: self.rule_on_whole(decision, operation.name(), decided),
                    operation,
                    how: super::how::words(how, number),
                    target,
                    path: place.as_ref().map(|place| self.name_of(decision, place)),
                }
            }
            What::Fork { child } => {
                self.processes.fork(event.task.pid, child);
                return None;
            }
            What::Exit { status } => {
                // Threads that end together may each be the last one.
                if !self.processes.is_known(event.task.pid) {
                    return None;
                }
                let process = self.process(&event.task);
                self.processes.exit(event.task.pid);
                let signal = status & 0x7f;
                let exited = signal == 0;
                let number = |value: u32| i32::try_from(value).ok();
                return Some(Enriched {
                    time: event.time,
                    process,
                    action: Action::Exit {
                        code: number(status >> 8 & 0xff).filter(|_| exited),
                        signal: number(signal).filter(|_| !exited),
                    },
                });
            }
            What::NotCreated | What::UnknownSuperblock { .. } => return None,
        };
        Some(Enriched {
            time: event.time,
            process: self.process(&event.task),
            action,
        })
    }

    /// A program that runs, with the stricter rulings that it or its interpreters met at the gate.
    fn exec(&mut self, event: Event, gates: Vec<Event>) -> Option<Enriched> {
        let What::Exec {
            decision,
            place,
            requested,
            args,
            ..
        } = event.what
        else {
            return None;
        };
        let (path, mut ruling) = self.rule_on_place(decision, &place, Access::EXEC);
        for gate in gates {
            let What::ExecGate {
                decision, place, ..
            } = gate.what
            else {
                continue;
            };
            let (_, met) = self.rule_on_place(decision, &place, Access::EXEC);
            if met.verdict > ruling.verdict {
                ruling = met;
            }
        }
        let Task {
            pid,
            parent_pid,
            ref comm,
            ..
        } = event.task;
        self.processes
            .exec(pid, parent_pid, path.clone(), &args, comm.clone());
        Some(Enriched {
            time: event.time,
            process: self.process(&event.task),
            action: Action::Exec {
                ruling,
                path,
                requested,
            },
        })
    }

    fn process(&mut self, task: &Task) -> Process {
        let known = self.processes.get(task.pid).clone();
        Process {
            pid: task.pid,
            parent_pid: task.parent_pid,
            uid: task.uid,
            executable: known.executable,
            args: known.args,
            comm: task.comm.clone(),
            ancestors: self.processes.ancestors(task.pid),
            container_id: self.processes.container(task.cgroup, task.pid),
        }
    }

    fn policy(&self, generation: Generation) -> Option<&InForce> {
        self.policies
            .get(&generation)
            .or_else(|| self.policies.get(&self.latest))
    }

    /// The name and the ruling for an object with a path. The kernel made the verdict; which rule it
    /// was follows from the rules themselves, asked for each name that the object has.
    fn rule_on_place(
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
        if let Some(known) = self.rulings.get(&asked) {
            return known.clone();
        }
        let found = self.find_rule(decision, place, access);
        if self.rulings.len() == MAX_RULINGS {
            self.rulings.clear();
        }
        self.rulings.insert(asked, found.clone());
        found
    }

    fn find_rule(&self, decision: Decision, place: &Place, access: Access) -> (Vec<u8>, Ruling) {
        let Some(policy) = self.policy(decision.generation) else {
            return (place.path.clone(), unexplained(decision));
        };
        let candidates = names(&policy.view, place);
        if decision.nameless || candidates.is_empty() {
            let path = candidates
                .into_iter()
                .next()
                .unwrap_or_else(|| label(&policy.view, place));
            return (path, nameless(decision));
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
    fn explain_below(&self, decision: Decision, path: &[u8], ruling: &mut Ruling) {
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
    fn rule_on_whole(
        &self,
        decision: Decision,
        operation: &str,
        rule: impl Fn(&RuleSet) -> Option<Rule>,
    ) -> Ruling {
        self.policy(decision.generation).map_or_else(
            || unexplained(decision),
            |policy| ruling(decision, rule(&policy.rules).as_ref(), policy, operation),
        )
    }

    fn name_of(&self, decision: Decision, place: &Place) -> Vec<u8> {
        let Some(policy) = self.policy(decision.generation) else {
            return place.path.clone();
        };
        let name = names(&policy.view, place).into_iter().next();
        name.unwrap_or_else(|| label(&policy.view, place))
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
                let (path, ruling) = self.rule_on_place(decision, place, Access::UNIX);
                (Peer::UnixPath(path), ruling)
            }
            PeerAddress::UnixAbstract(name) => {
                let ruling = self.policy(decision.generation).map_or_else(
                    || unexplained(decision),
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
            PeerAddress::Ip { address, port } => {
                let ruling = self.policy(decision.generation).map_or_else(
                    || unexplained(decision),
                    |policy| {
                        // The unspecified address is this host: see `decide` in the kernel programs.
                        let asked: &[std::net::Ipv6Addr] = match address.to_bits() {
                            0 => &[std::net::Ipv6Addr::LOCALHOST, V4_LOOPBACK],
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
                    || unexplained(decision),
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

const V4_LOOPBACK: std::net::Ipv6Addr = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped();
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

fn nameless(decision: Decision) -> Ruling {
    let reason = match decision.verdict {
        Verdict::Allow => String::new(),
        _ => "it has no name in the sandbox's view, so no rule could allow it".to_owned(),
    };
    Ruling {
        verdict: decision.verdict,
        enforced: decision.enforced,
        errno: decision.errno,
        rule: None,
        severity: Severity::default(),
        reason,
    }
}

/// The kernel decided by tables that the rules at hand do not explain: the mounts changed meanwhile,
/// or something is wrong with us. Said, not hidden.
fn unexplained(decision: Decision) -> Ruling {
    Ruling {
        verdict: decision.verdict,
        enforced: decision.enforced,
        errno: decision.errno,
        rule: None,
        severity: Severity::default(),
        reason: "the rule could not be found out: the sandbox's mounts changed meanwhile"
            .to_owned(),
    }
}

fn default_of(access: Access) -> &'static str {
    match access {
        Access::EXEC => "exec",
        Access::UNIX => "connect",
        _ => "file",
    }
}

fn transport_name(peer: &Peer, number: u16, protocol: u16) -> String {
    let known = match peer {
        Peer::UnixPath(_) | Peer::UnixAbstract(_) => "unix",
        Peer::Family(family) => return family.clone(),
        Peer::Ip(..) => return ip_transport(number, protocol),
    };
    known.to_owned()
}

fn ip_transport(number: u16, protocol: u16) -> String {
    let known = match number {
        transport::TCP => "tcp",
        transport::UDP => "udp",
        transport::SCTP => "sctp",
        transport::ICMP => "icmp",
        _ => return format!("ip_{protocol}"),
    };
    known.to_owned()
}

/// A process's `comm`; empty if it is gone.
fn comm_of(pid: Pid) -> Vec<u8> {
    let mut comm = std::fs::read(format!("/proc/{}/comm", pid.0)).unwrap_or_default();
    comm.truncate(comm.trim_ascii_end().len());
    comm
}
