//! From facts to findings. Each check looks at the file system only to see what is there and whose it is.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use opensafe_common::{
    operation::Operation,
    tables::transport,
    verdict::{Access, Verdict},
};

use super::{
    Capability, Facts, Finding,
    places::{CACHES, Place, SECRETS, SOCKETS, START_UP},
};
use crate::{
    rules::{RuleSet, Severity},
    sink::redact::redact,
};

pub(super) const ALL: &[fn(&Facts) -> Vec<Finding>] = &[
    policy,
    secrets,
    start_up,
    caches,
    sockets,
    mounts,
    network,
    environment,
    user,
    capabilities,
    privileges,
    filter,
    limits,
];

fn finding(
    id: &'static str,
    severity: Severity,
    what: impl Into<String>,
    why: &'static str,
    fix: impl Into<String>,
) -> Finding {
    Finding {
        id,
        severity,
        what: what.into(),
        why,
        fix: fix.into(),
    }
}

/// What the policy itself leaves open.
fn policy(facts: &Facts) -> Vec<Finding> {
    let Some(rules) = &facts.rules else {
        return vec![finding(
            "policy.none",
            Severity::Medium,
            "no policy of OpenSafe's holds it",
            "only the kernel's own checks, and whatever else confines it, are in its way",
            "start it by `opensafe run --policy …`",
        )];
    };
    let mut found = Vec::new();
    if facts.observing {
        found.push(finding(
            "policy.observe",
            Severity::Critical,
            "the policy is only watched (--mode observe)",
            "what it forbids is recorded, and goes ahead",
            "leave --mode observe out",
        ));
    }
    let defaults = &rules.defaults;
    for (name, verdict, severity) in [
        ("exec", defaults.exec, Severity::Low),
        ("file", defaults.file, Severity::Medium),
        ("connect", defaults.connect, Severity::Medium),
    ] {
        if verdict != Verdict::Deny {
            found.push(finding(
                "policy.default",
                severity,
                format!("what no rule on {name} names is allowed"),
                "a policy that lists what is bad misses what nobody thought of",
                format!("set the default for {name} to deny, and allow what is needed"),
            ));
        }
    }
    for operation in Operation::ALL {
        let severity = match operation {
            Operation::Namespace => Severity::Low,
            _ => Severity::High,
        };
        if rules.decide_operation(operation).verdict != Verdict::Deny {
            let name = operation.name();
            found.push(finding(
                "policy.operation",
                severity,
                format!("{name} is allowed"),
                "it reaches what is outside the sandbox, or the kernel",
                format!("set the default for {name} to deny, and let no rule allow it"),
            ));
        }
    }
    found
}

fn secrets(facts: &Facts) -> Vec<Finding> {
    open_places(facts, SECRETS, Need::Read)
        .map(|(path, (_, what, severity))| {
            finding(
                "secret.readable",
                *severity,
                format!("{} can be read: {what}", path.display()),
                "what can be read can be sent on, or used",
                fix_file(facts, &path, "read"),
            )
        })
        .collect()
}

fn start_up(facts: &Facts) -> Vec<Finding> {
    open_places(facts, START_UP, Need::Write)
        .map(|(path, (_, what, severity))| {
            finding(
                "startup.writable",
                *severity,
                format!("{} can be written: {what}", path.display()),
                "what is written there runs outside the sandbox, later, as someone else",
                fix_file(facts, &path, "write"),
            )
        })
        .collect()
}

fn caches(facts: &Facts) -> Vec<Finding> {
    open_places(facts, CACHES, Need::Write)
        .map(|(path, (_, what, severity))| {
            finding(
                "cache.shared",
                *severity,
                format!("{} can be written: {what}", path.display()),
                "other projects use what is put there",
                fix_file(facts, &path, "write"),
            )
        })
        .collect()
}

fn sockets(facts: &Facts) -> Vec<Finding> {
    open_places(facts, SOCKETS, Need::Connect)
        .map(|(path, (_, what, severity))| {
            let path = path.display();
            finding(
                "socket.reachable",
                *severity,
                format!("{path} can be reached: {what}"),
                "whoever listens there acts for whoever asks, outside the sandbox",
                format!("deny connect to unix:{path}, or do not mount it into the sandbox"),
            )
        })
        .collect()
}

fn fix_file(facts: &Facts, path: &Path, access: &str) -> String {
    let path = path.display();
    match facts.rules {
        Some(_) => format!("a rule: on file, access {access}, match {path}/**, verdict deny"),
        None => format!("keep {path} out of the sandbox, or run it under a policy that denies it"),
    }
}

/// Host directories in a sandbox that has mounts of its own.
fn mounts(facts: &Facts) -> Vec<Finding> {
    let workspace = facts.workspace.as_deref();
    let open = facts.mounts.iter().filter(|mount| {
        let at = mount.point.as_path();
        // The container's own root is not the host's: it is an image's layers.
        let image = at == Path::new("/") && mount.kind == "overlay";
        !image && Some(at) != workspace && facts.may(at, Access::WRITE) && mount.writable
    });
    open.map(|mount| {
        let (root, point) = (mount.root.display(), mount.point.display());
        let severity = match mount.root.to_str() {
            Some("/" | "/etc" | "/home" | "/root" | "/var" | "/usr" | "/boot") => Severity::High,
            _ => Severity::Medium,
        };
        finding(
            "mount.writable",
            severity,
            format!("{point} can be written: {root} of a host's {}", mount.kind),
            "what is changed there is changed for the host",
            format!("mount {point} read-only, or not at all"),
        )
    })
    .collect()
}

fn network(facts: &Facts) -> Vec<Finding> {
    let Some(rules) = &facts.rules else {
        return if facts.host_network {
            vec![finding(
                "network.host",
                Severity::High,
                "it is in the host's network namespace, and no policy says whom it may contact",
                "it reaches what the host does: services on loopback, the private network, everyone",
                "run it under a policy, or in a network namespace of its own",
            )]
        } else {
            Vec::new()
        };
    };
    let peers = [
        (
            "network.metadata",
            Severity::High,
            Ipv4Addr::new(169, 254, 169, 254),
            80,
            "the cloud's metadata service can be contacted",
            "it gives the machine's credentials to whoever asks",
        ),
        (
            "network.private",
            Severity::Medium,
            Ipv4Addr::new(10, 0, 0, 1),
            443,
            "private networks can be contacted",
            "what is there relies on nobody from outside being there",
        ),
        (
            "network.anyone",
            Severity::Medium,
            // Of a documentation network: nobody, and so anyone.
            Ipv4Addr::new(203, 0, 113, 1),
            443,
            "anyone on the internet can be contacted",
            "whatever it can read, it can send to anyone",
        ),
    ];
    peers
        .into_iter()
        .filter(|(_, _, address, port, ..)| reaches(rules, *address, *port))
        .map(|(id, severity, address, _, what, why)| {
            let fix = format!("deny connect by default, and allow whom it needs; {address} is one");
            finding(id, severity, what, why, fix)
        })
        .collect()
}

fn reaches(rules: &RuleSet, address: Ipv4Addr, port: u16) -> bool {
    let decided = rules.decide_peer(address.to_ipv6_mapped(), transport::TCP, port);
    decided.verdict != Verdict::Deny
}

/// Names that say that their values are secrets. The values are not looked at.
fn environment(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let names: Vec<&str> = facts
        .environment
        .iter()
        .map(String::as_str)
        .filter(|name| is_credential(name))
        .collect();
    if !names.is_empty() {
        found.push(finding(
            "environment.credentials",
            Severity::Medium,
            format!("variables that look like credentials: {}", names.join(", ")),
            "every program in the sandbox has them",
            format!("start it without them: env -u {} …", names.join(" -u ")),
        ));
    }
    for (name, what) in [
        (
            "SSH_AUTH_SOCK",
            "the SSH agent, which signs for whoever asks",
        ),
        ("DOCKER_HOST", "Docker"),
        ("GPG_AGENT_INFO", "the OpenPGP agent"),
    ] {
        if facts.environment.iter().any(|known| known == name) {
            found.push(finding(
                "environment.agent",
                Severity::Low,
                format!("{name} leads to {what}"),
                "whether it can be contacted is the policy's to say",
                format!("start it without: env -u {name} …"),
            ));
        }
    }
    found
}

/// What redaction takes for a credential's name in an assignment.
fn is_credential(name: &str) -> bool {
    let assignment = format!("{name}=value");
    redact(assignment.as_bytes()) != assignment.as_bytes()
}

fn user(facts: &Facts) -> Vec<Finding> {
    if facts.user != 0 {
        return Vec::new();
    }
    vec![finding(
        "user.root",
        Severity::High,
        "it runs as root",
        "of the kernel's own checks hardly one is left; only the policy is in its way",
        "run it as a user without privileges: opensafe run --user …",
    )]
}

/// Those by which a process comes to everything else, with their numbers (include/uapi/linux/capability.h).
const GRAVE: [(Capability, &str); 16] = [
    (Capability(1), "DAC_OVERRIDE"),
    (Capability(2), "DAC_READ_SEARCH"),
    (Capability(3), "FOWNER"),
    (Capability(7), "SETUID"),
    (Capability(12), "NET_ADMIN"),
    (Capability(13), "NET_RAW"),
    (Capability(16), "SYS_MODULE"),
    (Capability(17), "SYS_RAWIO"),
    (Capability(18), "SYS_CHROOT"),
    (Capability(19), "SYS_PTRACE"),
    (Capability(21), "SYS_ADMIN"),
    (Capability(22), "SYS_BOOT"),
    (Capability(27), "MKNOD"),
    (Capability(33), "MAC_ADMIN"),
    (Capability(38), "PERFMON"),
    (Capability(39), "BPF"),
];

fn capabilities(facts: &Facts) -> Vec<Finding> {
    if facts.capabilities == 0 {
        return Vec::new();
    }
    let grave: Vec<&str> = GRAVE
        .iter()
        .filter(|(capability, _)| facts.capabilities & (1 << capability.0) != 0)
        .map(|(_, name)| *name)
        .collect();
    let count = facts.capabilities.count_ones();
    let (severity, what) = if grave.is_empty() {
        (Severity::Low, format!("it has {count} capabilities"))
    } else {
        let what = format!("it has {count} capabilities, of them {}", grave.join(", "));
        (Severity::Medium, what)
    };
    vec![finding(
        "capabilities",
        severity,
        what,
        "each is a part of root's rights",
        "run it without: as a user, or by `setpriv --bounding-set -all`, `docker run --cap-drop ALL`",
    )]
}

fn privileges(facts: &Facts) -> Vec<Finding> {
    if facts.no_new_privileges || facts.user == 0 {
        return Vec::new();
    }
    let sudo = facts.rules.as_ref().is_some_and(|rules| {
        let decided = rules.decide_path(b"/usr/bin/sudo", Access::EXEC);
        decided.verdict == Verdict::Deny
    });
    let severity = if sudo {
        Severity::Low
    } else {
        Severity::Medium
    };
    vec![finding(
        "no-new-privileges",
        severity,
        "set-user-ID programs give it more rights than it has (no_new_privs is not set)",
        "a flaw in one of them, or a password in a file, makes it root",
        "start it by `setpriv --no-new-privs …`",
    )]
}

fn filter(facts: &Facts) -> Vec<Finding> {
    if facts.seccomp {
        return Vec::new();
    }
    vec![finding(
        "seccomp",
        Severity::Low,
        "no system call is filtered (seccomp)",
        "flaws in the kernel are within its reach that it has no use for",
        "run it in a container or by bubblewrap with a filter, and that by `opensafe run`",
    )]
}

fn limits(facts: &Facts) -> Vec<Finding> {
    let cgroup = facts.cgroup.display();
    let mut found = Vec::new();
    if !facts.memory_limited {
        found.push(finding(
            "limits.memory",
            Severity::Medium,
            "its memory has no limit (memory.max)",
            "when the host runs out, the kernel ends whatever is largest, not what is to blame",
            format!("echo 8G >{cgroup}/memory.max"),
        ));
    }
    if !facts.processes_limited {
        found.push(finding(
            "limits.processes",
            Severity::Medium,
            "the number of its processes has no limit (pids.max)",
            "a loop that forks takes the host down",
            format!("echo 1000 >{cgroup}/pids.max"),
        ));
    }
    if facts.dumps_core {
        found.push(finding(
            "limits.core",
            Severity::Low,
            "its crashes write memory to disk (RLIMIT_CORE)",
            "secrets that it was given end up in files",
            "ulimit -c 0, before it is started",
        ));
    }
    found
}

/// What is to be done to a place.
#[derive(Clone, Copy)]
enum Need {
    Read,
    Write,
    Connect,
}

/// Those that are there, that the user's rights allow, and that the policy does.
fn open_places<'a>(
    facts: &'a Facts,
    places: &'a [Place],
    need: Need,
) -> impl Iterator<Item = (PathBuf, &'a Place)> {
    places.iter().filter_map(move |place| {
        let path = facts.place(place.0)?;
        let (mode, access) = match need {
            Need::Read => (4, Access::READ),
            Need::Write => (2, Access::WRITE),
            Need::Connect => (2, Access::UNIX),
        };
        let there = facts.root.join(path.strip_prefix("/").ok()?);
        let metadata = fs::metadata(there).ok()?;
        // A directory: what is, or is made, in it.
        let below = if metadata.is_dir() {
            path.join("x")
        } else {
            path.clone()
        };
        (facts.rights(&metadata, mode) && facts.may(&below, access)).then_some((path, place))
    })
}

impl Facts {
    /// A place's path; nothing if what it is in is not known.
    fn place(&self, text: &str) -> Option<PathBuf> {
        if let Some(rest) = text.strip_prefix("~/") {
            return Some(self.home.join(rest));
        }
        if let Some(rest) = text.strip_prefix("%/") {
            return Some(self.workspace.as_ref()?.join(rest));
        }
        Some(text.replace("$UID", &self.user.to_string()).into())
    }

    /// Whether owner, group and mode let it; root is let do anything.
    fn rights(&self, metadata: &fs::Metadata, mode: u32) -> bool {
        let shift = if metadata.uid() == self.user {
            6
        } else if self.groups.contains(&metadata.gid()) {
            3
        } else {
            0
        };
        self.user == 0 || metadata.mode() >> shift & mode != 0
    }

    /// Whether the policy lets it; without one, yes.
    fn may(&self, path: &Path, access: Access) -> bool {
        self.observing
            || self.rules.as_ref().is_none_or(|rules| {
                let decided = rules.decide_path(path.as_os_str().as_bytes(), access);
                decided.verdict != Verdict::Deny
            })
    }
}
