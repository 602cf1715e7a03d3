//! What an agent may change where it works, and what would act outside from there.

use super::*;

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
