//! Made-up runs and events for tests.

use std::{sync::Arc, time::Duration};

use crate::{
    enforcement::{Enforcement, Missing, Operation, Way},
    enrich::{Action, Enriched, Peer, Process, Ruling, Target},
    event::{Losses, Pid, PolicyNumber, UnixNano},
    response::{Deed, Outcome, Responded},
    rules::{Defaults, RuleId, Severity},
    run::{
        Adopted, Applied, CgroupInfo, Cleanup, Ending, HostInfo, Mode, PolicyInfo, RunStart,
        Status, UserInfo,
    },
};
use opensafe_common::operation::Operation as Kind;
use opensafe_common::verdict::{Access, Verdict};

/// 2026-03-01 10:12:03.5 UTC.
pub(crate) const TIME: u64 = 1_772_359_923_500_000_000;

/// A run's start on a host that enforces everything.
pub(crate) fn start() -> RunStart {
    RunStart {
        id: "7f3k2aaa".parse().unwrap(),
        time: UnixNano(TIME),
        mode: Mode::Enforce,
        partial: false,
        policy: PolicyInfo {
            revision: "coding-agent@9c41e07b".into(),
            sources: vec!["policies/coding-agent".into()],
            rules: 41,
            defaults: Defaults::default(),
        },
        enforcement: Enforcement {
            way: Some(Way::Lsm),
            exec: Operation::full("BPF LSM"),
            file: Operation::full("BPF LSM"),
            connect: Operation::full("BPF LSM"),
            operation: Operation::full("BPF LSM"),
        },
        agent: "agent".into(),
        workspace: "/home/me/work".into(),
        command: args(&["agent", "fix-issue", "1867", "--token", "abc"]),
        directory: "/home/me/work".into(),
        user: UserInfo {
            name: "me".into(),
            uid: 1000,
            gid: 1000,
            home: "/home/me".into(),
        },
        host: HostInfo {
            name: "box".into(),
            kernel: "6.12.48".into(),
        },
        cgroup: CgroupInfo {
            path: "/sys/fs/cgroup/opensafe/7f3k2aaa".into(),
            id: 4711,
        },
        pid: Pid(4700),
        outlives: true,
    }
}

/// A host without BPF LSM.
pub(crate) fn partly() -> Enforcement {
    let lsm = || {
        vec![Missing {
            what: "BPF LSM".into(),
            why: "loading is refused (EPERM)".into(),
            fix: "boot a kernel with bpf in its LSM list".into(),
        }]
    };
    Enforcement {
        way: None,
        exec: Operation::none(lsm()),
        file: Operation::none(lsm()),
        connect: Operation::full("cgroup hooks"),
        operation: Operation::none(lsm()),
    }
}

/// [`start`]'s run was taken up.
pub(crate) fn adopted() -> Adopted {
    Adopted {
        time: UnixNano(TIME + 20_000_000_000),
        pid: Pid(4800),
        from: None,
        unattended: Duration::from_millis(12_300),
        lost: 2,
    }
}

/// [`start`]'s run got another policy.
pub(crate) fn applied() -> Applied {
    Applied {
        time: UnixNano(TIME + 21_000_000_000),
        number: PolicyNumber(1),
        policy: PolicyInfo {
            revision: "coding-agent@0d15ea5e".into(),
            sources: vec!["/etc/opensafe/stricter".into()],
            rules: 42,
            defaults: Defaults::default(),
        },
        before: start().policy.revision,
    }
}

/// How [`start`]'s run ended.
pub(crate) fn ending() -> Ending {
    Ending {
        time: UnixNano(TIME + 41_300_000_000),
        duration: Duration::from_millis(41_300),
        status: Some(Status::Code(1)),
        losses: Losses {
            seen: 12,
            sent: 12,
            ..Losses::default()
        },
        trouble: crate::run::Trouble::default(),
        cleanup: Cleanup::default(),
    }
}

pub(crate) fn args(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// A program, called `name`, that a shell of an agent's runs.
pub(crate) fn process(name: &str, pid: u32) -> Process {
    Process {
        pid: Pid(pid),
        parent_pid: Pid(4702),
        uid: 1000,
        executable: format!("/usr/bin/{name}").into_bytes(),
        args: args(&[name]),
        comm: name.as_bytes().to_vec(),
        ancestors: args(&["bash", "agent"]),
        container_id: None,
    }
}

pub(crate) fn event(after_ms: u64, process: Process, action: Action) -> Enriched {
    Enriched {
        time: UnixNano(TIME + after_ms * 1_000_000),
        process,
        action,
    }
}

pub(crate) fn allowed() -> Ruling {
    Ruling {
        verdict: Verdict::Allow,
        enforced: false,
        errno: crate::event::Errno::Eacces,
        rule: None,
        severity: Severity::Info,
        reason: "no rule matches; the policy allows this by default".into(),
        policy: Some(PolicyNumber::FIRST),
    }
}

pub(crate) fn denied(rule: &str, severity: Severity, reason: &str) -> Ruling {
    Ruling {
        verdict: Verdict::Deny,
        enforced: true,
        errno: crate::event::Errno::Eacces,
        rule: Some(RuleId(rule.into())),
        severity,
        reason: reason.into(),
        policy: Some(PolicyNumber::FIRST),
    }
}

pub(crate) fn file(ruling: Ruling, path: &[u8], access: Access) -> Action {
    Action::File {
        ruling,
        path: path.to_vec(),
        requested: path.to_vec(),
        access,
        received: false,
    }
}

pub(crate) fn connect(ruling: Ruling, peer: Peer, transport: &str) -> Action {
    Action::Connect {
        ruling,
        peer,
        transport: transport.into(),
        by_send: false,
    }
}

/// One event of every sort, among them a denial that is met three times.
pub(crate) fn events() -> Vec<Enriched> {
    let exec = |path: &str| Action::Exec {
        ruling: allowed(),
        path: path.as_bytes().to_vec(),
        requested: path.rsplit('/').next().unwrap().as_bytes().to_vec(),
    };
    let mut bash = process("bash", 4711);
    bash.args = args(&["bash", "-c", "cat ~/.ssh/id_ed25519; echo \"done\""]);
    let hooks = || {
        file(
            denied(
                "git.hooks",
                Severity::Medium,
                "hooks run outside the sandbox",
            ),
            b"/home/me/work/.git/hooks/pre-commit",
            Access::WRITE.union(Access::CREATE),
        )
    };
    let ip = |text: &str, port| Peer::Ip(text.parse().unwrap(), port);
    let deny = |rule, reason| denied(rule, Severity::High, reason);
    let audited = Ruling {
        verdict: Verdict::Audit,
        rule: Some(RuleId("net.registries".into())),
        reason: "package registries are contacted on record".into(),
        ..allowed()
    };
    let by_default = Ruling {
        rule: None,
        severity: Severity::Medium,
        ..deny("", "no rule matches; the policy denies files by default")
    };
    vec![
        event(10, bash, exec("/usr/bin/bash")),
        event(
            20,
            process("python3", 4712),
            file(allowed(), b"/home/me/work/setup.py", Access::READ),
        ),
        event(
            30,
            process("python3", 4712),
            file(
                deny("secrets.ssh", "SSH keys stay outside the sandbox"),
                b"/home/me/.ssh/id_ed25519",
                Access::READ,
            ),
        ),
        event(
            40,
            process("curl", 4718),
            connect(
                deny("net.metadata", "cloud credentials are not for agents"),
                ip("169.254.169.254", 80),
                "tcp",
            ),
        ),
        event(
            50,
            process("pip", 4719),
            connect(audited, ip("2a04:4e42::223", 443), "tcp"),
        ),
        event(60, process("bash", 4720), hooks()),
        event(70, process("bash", 4720), hooks()),
        event(80, process("bash", 4720), hooks()),
        event(
            90,
            process("docker", 4721),
            connect(
                deny("docker", "the daemon is root"),
                Peer::UnixPath(b"/run/docker.sock".to_vec()),
                "unix",
            ),
        ),
        event(
            100,
            process("grep", 4722),
            file(by_default, b"/etc/shadow", Access::READ),
        ),
        event(
            110,
            process("bash", 4720),
            Action::Exit {
                code: Some(1),
                signal: None,
            },
        ),
    ]
    .into_iter()
    .chain(others())
    .collect()
}

/// Events of what has neither a file nor a peer, and a file that came open.
fn others() -> Vec<Enriched> {
    let by_default = |operation| Ruling {
        rule: None,
        ..denied(
            "",
            Severity::Medium,
            &format!("the default for {operation} is deny"),
        )
    };
    let operation = |operation: Kind, how: &str| Action::Operation {
        ruling: by_default(operation.name()),
        operation,
        how: how.into(),
        target: None,
        path: None,
    };
    let to = |action, pid, comm: &str| match action {
        Action::Operation {
            ruling,
            operation,
            how,
            path,
            ..
        } => Action::Operation {
            ruling,
            operation,
            how,
            target: Some(Target {
                pid: Pid(pid),
                comm: comm.as_bytes().to_vec(),
            }),
            path,
        },
        other => other,
    };
    let mut received = file(
        denied(
            "secrets.ssh",
            Severity::High,
            "SSH keys stay outside the sandbox",
        ),
        b"/home/me/.ssh/id_rsa",
        Access::READ,
    );
    if let Action::File { received, .. } = &mut received {
        *received = true;
    }
    let mount = Action::Operation {
        ruling: by_default("mount"),
        operation: Kind::Mount,
        how: "mount".into(),
        target: None,
        path: Some(b"/home/me/x".to_vec()),
    };
    let socket = Action::Socket {
        ruling: Ruling {
            reason: "it could reach peers that the policy denies".into(),
            ..by_default("socket")
        },
        family: "packet".into(),
        socket_type: "raw".into(),
        protocol: 768,
    };
    let bind = Action::Bind {
        ruling: denied(
            "bind.public",
            Severity::Medium,
            "the network would reach it",
        ),
        address: "0.0.0.0".parse().unwrap(),
        port: 8080,
        transport: "tcp".into(),
    };
    let namespace = Action::Operation {
        ruling: Ruling {
            verdict: Verdict::Audit,
            enforced: false,
            reason: "the default for namespace is audit".into(),
            ..by_default("namespace")
        },
        operation: Kind::Namespace,
        how: "user namespace".into(),
        target: None,
        path: None,
    };
    let unlink = file(
        denied("git.config", Severity::High, "the clone's configuration"),
        b"/home/me/work/.git/config",
        Access::DELETE,
    );
    [
        ("python3", received),
        ("tcpdump", socket),
        ("node", bind),
        ("gdb", to(operation(Kind::Ptrace, "attach"), 812, "bash")),
        (
            "kill",
            to(operation(Kind::Signal, "SIGKILL"), 700, "opensafe"),
        ),
        ("kill", to(operation(Kind::Signal, "SIGKILL"), 701, "")),
        ("mount", mount),
        ("bpftool", operation(Kind::Bpf, "BPF_PROG_LOAD")),
        ("bwrap", namespace),
        ("rm", unlink),
    ]
    .into_iter()
    .zip(4730..)
    .map(|((name, action), pid)| event(120, process(name, pid), action))
    .collect()
}

/// Everything that can be done about an event, and that can come of it.
pub(crate) fn responses() -> Vec<Responded> {
    let failed = |error: &str, why: &str| Outcome::Failed {
        error: error.into(),
        why: why.into(),
    };
    let events = events();
    let respond = |after_ms: u64, deed, count, outcome| Responded {
        time: UnixNano(TIME + after_ms * 1_000_000),
        response: "secrets".into(),
        deed,
        reason: "somebody looks for keys".into(),
        count,
        event: Arc::new(events[2].clone()),
        outcome,
    };
    let command = failed(
        "exit_status",
        "/usr/bin/mail ended with exit status 1: no\nmail",
    );
    vec![
        respond(31, Deed::Note, 1, Outcome::Done),
        respond(32, Deed::Alert, 5, Outcome::Done),
        respond(33, Deed::Command, 5, command),
        respond(34, Deed::Webhook, 5, Outcome::Done),
        respond(35, Deed::Freeze, 1, Outcome::Done),
        respond(36, Deed::Thaw, 1, Outcome::Done),
        respond(37, Deed::Freeze, 1, Outcome::Observed),
        respond(38, Deed::Kill, 1, Outcome::Observed),
        respond(39, Deed::Freeze, 1, Outcome::Late),
        respond(40, Deed::Kill, 7, Outcome::Done),
    ]
}

/// Events whose names try to be something else: two lines, a colour, a cursor's movement, JSON.
pub(crate) fn nasty() -> Vec<Enriched> {
    let names: [&[u8]; 7] = [
        b"/tmp/two\nlines",
        b"/tmp/\x1b[2J\x1b[31mred\x07",
        b"/tmp/not-utf8-\xff\xc3",
        b"/tmp/\"quoted\"\\back\\slash\\x41",
        "/tmp/c1-\u{9b}31m-next\u{85}line\u{2028}para\u{2029}".as_bytes(),
        "/tmp/txt.\u{202e}exe".as_bytes(),
        b"/tmp/\",\"opensafe.verdict\":\"allow\"}",
    ];
    let deny = || denied("t", Severity::Medium, "no\nnames");
    let mut events: Vec<_> = names
        .iter()
        .map(|name| {
            let mut process = process("cat", 1);
            process.comm = name[5..].to_vec();
            event(0, process, file(deny(), name, Access::READ))
        })
        .collect();
    events.push(event(
        0,
        process("nc", 2),
        connect(
            deny(),
            Peer::UnixAbstract(b"evil\x00\x1b]0;title\xfe".to_vec()),
            "unix",
        ),
    ));
    events
}
