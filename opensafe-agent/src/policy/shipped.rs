//! The policies that ship, asked what they decide: what honest work does passes, and what nobody should
//! do in a sandbox does not.

mod cases;
mod network;
mod ordinary;
mod workspace;

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use opensafe_common::operation::Operation;
use opensafe_common::tables::transport::{ICMP, TCP, UDP};
use opensafe_common::verdict::{Access, Verdict};
use tempfile::TempDir;

use super::*;
use crate::view::{Dev, Mount, View};
use cases::DENIED_BY_BOTH;
use ordinary::PASSES_BOTH;

const READ: Access = Access::READ;
const WRITE: Access = Access::WRITE;
const CREATE: Access = Access::CREATE;
/// What opening a new file for writing asks for.
const NEW: Access = WRITE.union(CREATE);
const EVERY_CHANGE: Access = Access::CHANGING.union(CREATE);
const EXEC: Access = Access::EXEC;
const UNIX: Access = Access::UNIX;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../policies")
        .join(name)
}

fn rules(policy: &str, input: &Input) -> RuleSet {
    Policy::load(&[directory(policy)])
        .unwrap()
        .evaluate(input)
        .unwrap()
}

fn input() -> Input {
    Input {
        agent: "codex".into(),
        workspace: "/home/me/work".into(),
        home: "/home/me".into(),
        tmp: "/tmp".into(),
        ..Input::default()
    }
}

/// Every path with its access, and the rule that denies it.
#[track_caller]
fn denied(rules: &RuleSet, cases: &[(&str, Access, &str)]) {
    for (path, access, rule) in cases {
        let decided = rules.decide_path(path.as_bytes(), *access);
        let by = decided.rule.map_or("default", |rule| &rule.id.0);
        assert_eq!(
            (decided.verdict, by),
            (Verdict::Deny, *rule),
            "{path} {access:?}"
        );
    }
}

#[track_caller]
fn passes(rules: &RuleSet, cases: &[(&str, Access)]) {
    for (path, access) in cases {
        let decided = rules.decide_path(path.as_bytes(), *access);
        let by = decided.rule.map_or("default", |rule| &rule.id.0);
        assert_ne!(decided.verdict, Verdict::Deny, "{path} {access:?} by {by}");
    }
}

#[test]
fn nothing_dangerous_works_under_any_policy() {
    for policy in ["default", "coding-agent"] {
        denied(&rules(policy, &input()), DENIED_BY_BOTH);
    }
}

#[test]
fn ordinary_work_passes_under_any_policy() {
    for policy in ["default", "coding-agent"] {
        passes(&rules(policy, &input()), PASSES_BOTH);
    }
}

#[test]
fn nothing_is_done_to_others_and_the_kernel_under_any_policy() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for operation in Operation::ALL {
            let expected = match operation {
                Operation::Namespace => Verdict::Audit,
                _ => Verdict::Deny,
            };
            let decided = rules.decide_operation(operation);
            assert_eq!(decided.verdict, expected, "{policy} {operation:?}");
        }
    }
}

#[test]
fn an_agent_writes_in_its_home_only_what_it_keeps() {
    let agent = rules("coding-agent", &input());
    let cases = [
        ("/home/me/notes.txt", NEW),
        ("/home/me/other/.git/config", WRITE),
        ("/home/me/.config/app/settings", NEW),
        ("/home/me/.cargo/bin/cargo", WRITE),
        ("/srv/x", NEW),
    ];
    for (path, access) in cases {
        assert_eq!(
            agent.decide_path(path.as_bytes(), access).verdict,
            Verdict::Deny,
            "{path}"
        );
    }
    passes(&rules("default", &input()), &cases[..3]);
}

#[test]
fn a_server_outside_builds_nothing_for_an_agent() {
    let agent = rules("coding-agent", &input());
    denied(
        &agent,
        &[
            (
                "/home/me/.local/share/jupyter/runtime/jpserver-1.json",
                READ,
                "services.notebooks",
            ),
            (
                "/home/me/.gradle/daemon/8.1/registry.bin",
                READ,
                "services.gradle",
            ),
            (
                "/home/me/.cache/bazel/_bazel_me/x/server/request_cookie",
                READ,
                "services.bazel",
            ),
        ],
    );
    passes(
        &agent,
        &[
            ("/home/me/.gradle/caches/x", EVERY_CHANGE),
            (
                "/home/me/.cache/bazel/_bazel_me/cache/repos/x",
                EVERY_CHANGE,
            ),
        ],
    );
}

#[test]
fn an_agent_sees_no_others_login_and_changes_no_agents_settings() {
    let codex = rules("coding-agent", &input());
    let secrets = [
        ".claude/.credentials.json",
        ".cline/data/secrets.json",
        ".local/share/kiro-cli/data.sqlite3",
        ".openhands/settings.json",
        ".pi/agent/auth.json",
        ".config/opencode/opencode.json",
    ];
    for name in secrets {
        denied(
            &codex,
            &[(&format!("/home/me/{name}"), READ, "agents.secrets")],
        );
    }
    let pi = rules(
        "coding-agent",
        &Input {
            agent: "pi".into(),
            ..input()
        },
    );
    passes(&pi, &[("/home/me/.pi/agent/auth.json", READ.union(WRITE))]);
    let settings = [
        ".codex/config.toml",
        ".codex/hooks.json",
        ".copilot/mcp-config.json",
        ".cursor/cli-config.json",
        ".gemini/extensions/x/x.json",
        ".continue/config.ts",
        ".pi/agent/settings.json",
        ".agents/skills/x/SKILL.md",
    ];
    for name in settings {
        denied(
            &codex,
            &[(&format!("/home/me/{name}"), NEW, "agents.settings")],
        );
    }
    let gemini = rules(
        "coding-agent",
        &Input {
            agent: "gemini-cli".into(),
            ..input()
        },
    );
    passes(&gemini, &[("/home/me/.gemini/mcp-oauth-tokens.json", NEW)]);
}

#[test]
fn the_readme_shows_the_revision_that_they_have() {
    let readme = fs::read_to_string(directory("..").join("README.md")).unwrap();
    let policy = Policy::load(&[directory("coding-agent")]).unwrap();
    let shown = readme.split_whitespace();
    let shown: Vec<&str> = shown
        .filter(|word| word.starts_with("coding-agent@"))
        .collect();
    assert!(shown.len() > 1);
    assert!(
        shown.iter().all(|shown| *shown == policy.revision()),
        "{shown:?}, not {}",
        policy.revision()
    );
}

#[test]
fn their_own_unit_tests_pass() {
    for policy in ["default", "coding-agent"] {
        let results = test::run_tests(&[directory(policy)]).unwrap();
        let failed: Vec<_> = results.iter().filter(|result| !result.passed).collect();
        assert!(results.len() > 30 && failed.is_empty(), "{failed:#?}");
    }
}

#[test]
fn what_both_policies_say_is_said_in_the_same_words() {
    for file in ["secrets", "persistence", "exec", "sockets", "agents"] {
        for name in [format!("{file}.rego"), format!("{file}_test.rego")] {
            let [a, b] = ["default", "coding-agent"]
                .map(|policy| fs::read_to_string(directory(policy).join(&name)).unwrap());
            assert_eq!(a, b, "{name}");
        }
    }
}

/// `cargo test -- --nocapture leave_room` shows how large they come out.
#[test]
fn they_leave_room_for_rules_of_ones_own() {
    let limits = crate::tables::Limits::default();
    // A home directory that is the workspace costs most.
    for (policy, workspace) in [
        ("default", "/home/me/work"),
        ("coding-agent", "/home/me/work"),
        ("coding-agent", "/home/me"),
    ] {
        let rules = rules(
            policy,
            &Input {
                workspace: workspace.into(),
                ..input()
            },
        );
        let stats = crate::tables::compile(&rules, &machine(), limits)
            .unwrap()
            .stats;
        println!("{policy} in {workspace}: {stats:?}");
        assert!(stats.cells * 5 < limits.cells * 4, "{policy} {stats:?}");
    }
}

fn machine() -> View {
    let mount = |minor, fs_type: &str, point: &str| Mount {
        dev: Dev::new(0, minor),
        fs_type: fs_type.into(),
        root: "/".into(),
        point: point.into(),
    };
    View {
        mounts: vec![
            mount(1, "ext4", "/"),
            mount(2, "proc", "/proc"),
            mount(3, "sysfs", "/sys"),
            mount(4, "tmpfs", "/dev"),
            mount(5, "devpts", "/dev/pts"),
            mount(6, "tmpfs", "/dev/shm"),
            mount(7, "tmpfs", "/run"),
            mount(8, "tmpfs", "/run/user/1000"),
            mount(9, "tmpfs", "/tmp"),
            mount(10, "ext4", "/home"),
        ],
        ..View::default()
    }
}
