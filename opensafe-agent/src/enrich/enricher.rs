//! One event after the other, with what is known from those before.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use opensafe_common::{tables::transport, verdict::Access};

use super::{
    Action, Enriched, Peer, Process, Target,
    processes::{Processes, comm_of},
    rulings::{InForce, Rulings, explain_ours},
};
use crate::{
    event::{Because, Event, Generation, Pid, Task, What},
    rules::{
        RuleSet,
        socket::{family_name, type_name},
    },
};

/// Turns events into what goes on record.
#[derive(Debug)]
pub struct Enricher {
    rulings: Rulings,
    processes: Processes,
    /// By thread: a denial of creation that may be void, or programs that passed the gate and have
    /// not run yet.
    waiting: HashMap<Pid, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    events: Vec<Event>,
    since: Instant,
}

/// How long an event waits for the one that says what became of it: they are a few system calls of
/// the same thread apart.
const PATIENCE: Duration = Duration::from_millis(500);
impl Enricher {
    /// With the first policy.
    #[must_use]
    pub fn new(generation: Generation, policy: InForce) -> Self {
        Self {
            rulings: Rulings::new(generation, policy),
            processes: Processes::default(),
            waiting: HashMap::new(),
        }
    }

    /// Another policy is in force from `generation` on.
    pub fn policy_changed(&mut self, generation: Generation, policy: InForce) {
        self.rulings.policy_changed(generation, policy);
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

    /// How many events wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
            .values()
            .map(|waiting| waiting.events.len())
            .sum()
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
                let (path, ruling) = self.rulings.on_place(decision, place, Access::EXEC);
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
                let (path, mut ruling) = self.rulings.on_place(decision, place, access);
                match because {
                    Because::Below => self.rulings.explain_below(decision, &path, &mut ruling),
                    Because::Record => explain_ours(place, &mut ruling),
                    Because::Itself | Because::Received => {}
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
                let (peer, ruling) = self.rulings.on_peer(decision, peer, transport);
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
                    ruling: self.rulings.on_whole(decision, "socket", decided),
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
                    ruling: self.rulings.on_whole(decision, "bind", decided),
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
                    comm: comm_of(pid).unwrap_or_default(),
                });
                Action::Operation {
                    ruling: self.rulings.on_whole(decision, operation.name(), decided),
                    operation,
                    how: super::how::words(how, number),
                    target,
                    path: place
                        .as_ref()
                        .map(|place| self.rulings.name_of(decision, place)),
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
            What::OpenFailed {
                requested,
                access,
                errno,
            } => {
                return Some(Enriched {
                    time: event.time,
                    process: self.process(&event.task),
                    action: Action::OpenFailed {
                        requested,
                        access,
                        errno,
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
        let (path, mut ruling) = self.rulings.on_place(decision, &place, Access::EXEC);
        for gate in gates {
            let What::ExecGate {
                decision, place, ..
            } = gate.what
            else {
                continue;
            };
            let (_, met) = self.rulings.on_place(decision, &place, Access::EXEC);
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
