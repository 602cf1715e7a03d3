//! The policies that ship, asked what they decide: what honest work does passes, and what nobody should
//! do in a sandbox does not.

mod cases;

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use opensafe_common::operation::Operation;
use opensafe_common::tables::transport::{ICMP, TCP, UDP};
use opensafe_common::verdict::{Access, Verdict};
use tempfile::TempDir;

use super::*;
use crate::view::{Dev, Mount, View};
use cases::{DENIED_BY_BOTH, PASSES_BOTH};

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

fn connects(rules: &RuleSet, address: &str, transport: u16, port: u16) -> (Verdict, String) {
    let address: std::net::IpAddr = address.parse().unwrap();
    let address: Ipv6Addr = match address {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(v6) => v6,
    };
    let decided = rules.decide_peer(address, transport, port);
    let by = decided.rule.map_or("default", |rule| &rule.id.0);
    (decided.verdict, by.to_owned())
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
fn metadata_services_and_private_networks_are_out_of_reach() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for (address, port, rule) in [
            ("169.254.169.254", 80, "net.metadata"),
            ("::ffff:169.254.169.254", 80, "net.metadata"),
            ("64:ff9b::a9fe:a9fe", 80, "net.metadata"),
            ("fd00:ec2::254", 80, "net.metadata"),
            ("10.1.2.3", 443, "net.private"),
            ("172.17.0.1", 2375, "net.private"),
            ("192.168.1.1", 80, "net.private"),
            ("fe80::1", 80, "net.private"),
            ("127.0.0.1", 22, "net.control"),
            ("::1", 2375, "net.control"),
        ] {
            let (verdict, by) = connects(&rules, address, TCP, port);
            assert_eq!(
                (verdict, by.as_str()),
                (Verdict::Deny, rule),
                "{policy} {address}"
            );
        }
    }
}

#[test]
fn private_networks_are_out_of_reach_for_every_protocol() {
    const SCTP: u16 = opensafe_common::tables::transport::SCTP;
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for address in [
            "10.77.0.2",
            "169.254.169.254",
            "::ffff:10.0.0.1",
            "fd00:ec2::254",
            "ff02::1",
        ] {
            for (transport, port) in [(ICMP, 0), (TCP, 80), (UDP, 5353), (SCTP, 9), (TCP, 0)] {
                let (verdict, by) = connects(&rules, address, transport, port);
                assert_eq!(verdict, Verdict::Deny, "{policy} {address} {port} {by}");
            }
        }
    }
}

#[test]
fn a_display_on_loopback_is_out_of_reach_and_what_serves_beside_it_is_not() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for port in [5900, 5999, 6000, 6010, 6063] {
            let (verdict, by) = connects(&rules, "127.0.0.1", TCP, port);
            assert_eq!((verdict, by.as_str()), (Verdict::Deny, "net.control"));
        }
        for port in [5984, 6006, 6064, 6379] {
            let (verdict, by) = connects(&rules, "127.0.0.1", TCP, port);
            assert_eq!(verdict, Verdict::Allow, "{port} {by}");
        }
    }
}

#[test]
fn loopback_and_name_servers_are_in_reach() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for (address, transport, port) in [
            ("127.0.0.1", TCP, 8000),
            ("::1", TCP, 8000),
            ("0.0.0.0", TCP, 3000),
            ("127.0.0.53", UDP, 53),
            ("192.168.1.1", UDP, 53),
            ("10.0.0.2", TCP, 53),
        ] {
            assert_eq!(
                connects(&rules, address, transport, port).0,
                Verdict::Allow,
                "{address}"
            );
        }
        assert_eq!(rules.decide_other_family().verdict, Verdict::Deny);
        assert_eq!(rules.decide_abstract(b"anything").verdict, Verdict::Deny);
    }
}

fn binds(rules: &RuleSet, address: &str, transport: u16, port: u16) -> Verdict {
    let address: std::net::IpAddr = address.parse().unwrap();
    let address = match address {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(v6) => v6,
    };
    rules.decide_bind(address, transport, port).verdict
}

#[test]
fn a_server_may_be_started_on_loopback() {
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        for address in ["127.0.0.1", "127.0.0.53", "::1", "::ffff:127.0.0.1"] {
            for (transport, port) in [(TCP, 0), (TCP, 8000), (UDP, 5353), (UDP, 0)] {
                let verdict = binds(&rules, address, transport, port);
                assert_eq!(verdict, Verdict::Allow, "{policy} {address} {port}");
            }
        }
        // A resolver's socket, a QUIC client's, a ping.
        for address in ["0.0.0.0", "::"] {
            assert_eq!(binds(&rules, address, UDP, 0), Verdict::Allow);
        }
        assert_eq!(binds(&rules, "192.0.2.1", ICMP, 0), Verdict::Allow);
    }
}

#[test]
fn any_program_serves_this_machine_alone_and_an_agent_everyone() {
    for (policy, verdict) in [("default", Verdict::Deny), ("coding-agent", Verdict::Allow)] {
        let rules = rules(policy, &input());
        for (address, transport, port) in [
            ("0.0.0.0", TCP, 8080),
            ("0.0.0.0", TCP, 0),
            ("::", UDP, 53),
            ("192.168.1.5", TCP, 80),
            ("2001:db8::5", TCP, 0),
        ] {
            let bound = binds(&rules, address, transport, port);
            assert_eq!(bound, verdict, "{policy} {address} {port}");
        }
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
fn ordinary_sockets_can_be_made_and_raw_ones_cannot() {
    const INET: [u16; 2] = [2, 10];
    const RAW: u16 = 3;
    for policy in ["default", "coding-agent"] {
        let rules = rules(policy, &input());
        let verdict = |family, socket_type| rules.decide_socket(family, socket_type).verdict;
        for family in INET {
            assert_eq!(verdict(family, 1), Verdict::Allow);
            assert_eq!(verdict(family, 2), Verdict::Allow);
            assert_eq!(verdict(family, RAW), Verdict::Deny);
        }
        // Unix; netlink, by which the C library asks for addresses; packet, vsock.
        assert_eq!(verdict(1, 1), Verdict::Allow);
        assert_eq!(verdict(16, RAW), Verdict::Allow);
        assert_eq!(verdict(17, RAW), Verdict::Deny);
        assert_eq!(verdict(40, 1), Verdict::Deny);
    }
}

#[test]
fn an_agent_reaches_registries_and_no_one_else() {
    let rules = rules("coding-agent", &input());
    let verdict = |address, transport, port| connects(&rules, address, transport, port).0;
    assert_eq!(verdict("151.101.0.223", TCP, 443), Verdict::Allow);
    assert_eq!(verdict("104.16.1.34", TCP, 443), Verdict::Allow);
    assert_eq!(verdict("2606:4700::6810:1223", TCP, 443), Verdict::Allow);
    assert_eq!(verdict("151.101.0.223", TCP, 80), Verdict::Deny);
    assert_eq!(verdict("198.51.100.7", TCP, 443), Verdict::Deny);
    assert_eq!(verdict("2001:db8::1", TCP, 443), Verdict::Deny);
    assert_eq!(verdict("198.51.100.7", ICMP, 0), Verdict::Deny);
}

#[test]
fn any_program_reaches_the_internet() {
    let rules = rules("default", &input());
    for (address, transport, port) in [
        ("198.51.100.7", TCP, 443),
        ("2001:db8::1", UDP, 443),
        ("198.51.100.7", ICMP, 0),
    ] {
        assert_eq!(connects(&rules, address, transport, port).0, Verdict::Allow);
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
fn hooks_and_agents_settings_are_protected_in_the_workspace() {
    denied(
        &rules("coding-agent", &input()),
        &[
            ("/home/me/work/.git/hooks/pre-commit", NEW, "git.hooks"),
            ("/home/me/work/.git/hooks/pre-commit", WRITE, "git.hooks"),
            ("/home/me/work/.git/hooks/lib.sh", NEW, "git.hooks"),
            ("/home/me/work/.git/hooks/_/x.sample", NEW, "git.hooks"),
            ("/home/me/work/.git/hooks/sample", NEW, "git.hooks"),
            (
                "/home/me/work/vendor/sub/.git/hooks/post-checkout",
                NEW,
                "git.hooks",
            ),
            (
                "/home/me/work/.git/modules/a/b/hooks/update",
                NEW,
                "git.hooks",
            ),
            ("/home/me/work/.mcp.json", NEW, "workspace.agents"),
            (
                "/home/me/work/.claude/settings.json",
                WRITE,
                "workspace.agents",
            ),
            (
                "/home/me/work/a/.claude/settings.local.json",
                NEW,
                "workspace.agents",
            ),
            ("/home/me/work/.vscode/tasks.json", NEW, "workspace.editors"),
        ],
    );
}

#[test]
fn a_clone_keeps_its_configuration_and_a_new_repository_gets_one() {
    let workspace = TempDir::new().unwrap();
    let config = format!("{}/.git/config", workspace.path().display());
    let sandbox = || Input {
        workspace: workspace.path().to_owned(),
        ..input()
    };
    passes(&rules("coding-agent", &sandbox()), &[(&config, NEW)]);
    fs::create_dir(workspace.path().join(".git")).unwrap();
    fs::write(workspace.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let rules = rules("coding-agent", &sandbox());
    let below = |name: &str| format!("{}/.git/{name}", workspace.path().display());
    denied(
        &rules,
        &[
            (&config, WRITE, "git.config"),
            (&config, NEW, "git.config"),
            (&below("modules/x/config"), WRITE, "git.config"),
            (&below("hooks"), CREATE, "git.hooks"),
            (&below("modules/a/b/c/d/config"), NEW, "git.config"),
            (&below("modules/sub/modules/x/config"), NEW, "git.config"),
            (&below("modules/sub/commondir"), NEW, "git.config"),
            (&below("modules/sub/config.worktree"), NEW, "git.config"),
            (
                &below("modules/sub/modules/x/hooks/update"),
                NEW,
                "git.hooks",
            ),
            (&below("worktrees/x/modules/y/config"), NEW, "git.config"),
            (&below("worktrees/x/modules/y/hooks/z"), NEW, "git.hooks"),
            (&below("worktrees/x/gitdir"), NEW, "git.config"),
            (&below("commondir"), NEW, "git.config"),
            (
                below("").trim_end_matches('/'),
                Access::RENAME,
                "git.directory",
            ),
            (&below("remotes/origin"), NEW, "git.config"),
            (&below("branches/origin"), NEW, "git.config"),
        ],
    );
    passes(
        &rules,
        &[
            (&config, READ),
            (&below("index.lock"), NEW),
            (&below("refs/heads/config"), NEW),
            (&below("logs/refs/heads/config"), NEW),
            (&below("modules/sub/index.lock"), NEW),
            (&below("modules/sub/refs/heads/main"), NEW),
            (&below("worktrees/x/index.lock"), NEW),
            (&below("info/exclude"), NEW),
            (&below("refs/remotes/origin/main"), NEW),
            (&below("modules/sub/refs/remotes/origin/main"), NEW),
            // `git stash` tries, and the directory is never empty.
            (below("").trim_end_matches('/'), Access::DELETE),
        ],
    );
}

#[test]
fn what_acts_outside_is_not_made_where_an_agent_works() {
    let rules = rules("coding-agent", &input());
    let editors = [
        ".vscode/c_cpp_properties.json",
        ".zed/debug.json",
        ".idea/watcherTasks.xml",
        ".idea/jsLinters/eslint.xml",
        ".run/x.run.xml",
        ".helix/languages.toml",
        ".lazy.lua",
        ".vim/coc-settings.json",
        ".devcontainer/devcontainer.json",
        ".gdbinit",
    ];
    let agents = [
        ".factory/mcp.json",
        ".augment/settings.json",
        "crush.json",
        ".gemini/.env",
        ".gemini/extensions/x/gemini-extension.json",
        ".qwen/commands/x.toml",
        ".claude/plugins/x",
        ".cursor/environment.json",
        ".cursor/skills/x/SKILL.md",
        ".continue/mcpServers/x.yaml",
        ".kiro/settings/mcp.json",
        ".amazonq/cli-agents/x.json",
        ".roo/mcp.json",
        ".junie/mcp/mcp.json",
        ".windsurf/hooks.json",
        ".agents/skills/x/SKILL.md",
        ".pi/extensions/x.ts",
        ".aider.model.settings.yml",
        ".github/agents/x.md",
    ];
    for place in ["/home/me/work", "/home/me/work/a/b", "/tmp/x", "/dev/shm/x"] {
        let named = |names: &[&str]| names.iter().map(|name| format!("{place}/{name}")).collect();
        let (editors, agents): (Vec<_>, Vec<_>) = (named(&editors), named(&agents));
        for (names, rule) in [(editors, "workspace.editors"), (agents, "workspace.agents")] {
            for name in &names {
                denied(&rules, &[(name, NEW, rule)]);
            }
        }
    }
    denied(
        &rules,
        &[
            ("/home/me/work/.hg/hgrc", NEW, "workspace.repository"),
            ("/home/me/work/.sl/config", NEW, "workspace.repository"),
            (
                "/home/me/work/.jj/repo/config.toml",
                NEW,
                "workspace.repository",
            ),
            (
                "/home/me/work/.jj/repo",
                Access::DELETE,
                "workspace.repository",
            ),
        ],
    );
    passes(
        &rules,
        &[
            ("/home/me/work/.idea/misc.xml", NEW),
            ("/home/me/work/.claude/CLAUDE.md", NEW),
            ("/home/me/work/.cursor/rules/x.mdc", NEW),
            ("/home/me/work/.claude/worktrees/x/a", NEW),
            ("/home/me/work/.crush/crush.db", NEW),
            ("/home/me/work/.github/workflows/ci.yml", NEW),
            ("/home/me/work/src/agents/settings.json", NEW),
            ("/home/me/work/src/hooks/use-x.ts", NEW),
            ("/home/me/work/x/.hg/hgrc", NEW),
            ("/home/me/work/.jj/repo/store/x", NEW),
            ("/home/me/work/.envrc", NEW),
            // Package managers unpack projects.
            ("/home/me/.cargo/registry/src/x/.vscode/settings.json", NEW),
            ("/home/me/go/pkg/mod/x/.idea/workspace.xml", NEW),
            (
                "/home/me/.cache/pre-commit/repox/.vscode/settings.json",
                NEW,
            ),
            (
                "/home/me/.cache/uv/git-v0/checkouts/x/.claude/settings.json",
                NEW,
            ),
        ],
    );
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
fn a_workspace_at_an_odd_place_is_a_workspace() {
    for (workspace, home) in [
        ("/", "/root"),
        ("/root", "/root"),
        ("/SWE-agent__test-repo", "/"),
        ("/home/x/[a] {b}", "/nonexistent"),
    ] {
        for policy in ["default", "coding-agent"] {
            let rules = rules(
                policy,
                &Input {
                    workspace: workspace.into(),
                    home: home.into(),
                    ..input()
                },
            );
            let file = format!("{}/src/x", workspace.trim_end_matches('/'));
            passes(&rules, &[(&file, NEW), (&file, READ)]);
            denied(
                &rules,
                &[
                    ("/root/.ssh/id", READ, "secrets.ssh"),
                    ("/root/.bashrc", WRITE, "persist.shell"),
                ],
            );
        }
    }
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
