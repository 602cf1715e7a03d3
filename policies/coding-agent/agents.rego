# Coding agents' own files, agent by agent. An agent is known by its name, or by what its name begins with
# before a dash: "claude-code" is "claude".
#
#   directory   what it is called in the home directory, and in a project; what lies in it and is said or run
#               for the agent is in `obeyed`
#   settings    what else of the home directory says what the agent may do, and what it runs
#   project     the same of a project
#   secrets     for this agent alone
#   state       everything that it writes while it works
#
# Instructions (AGENTS.md, CLAUDE.md, rules) in a project are files of the work, and an agent writes them.
package opensafe.sandbox

agents := {
	"aider": {
		"settings": [".aider.conf.yml", ".aider.model.*"],
		"project": [".aider.conf.yml", ".aider.model.*"],
		"secrets": [".aider/oauth-keys.env"],
		"state": [".aider/**", ".aider.chat.*", ".aider.input.*", ".aider.tags.*/**"],
	},
	"amazon-q": {
		"directory": ".amazonq",
		"settings": [".local/share/amazon-q/settings.json"],
		"secrets": [".local/share/amazon-q/data.sqlite3*"],
		"state": [".local/share/amazon-q/**"],
	},
	"amp": {
		"directory": ".amp",
		"settings": [".config/amp/**"],
		"secrets": [".local/share/amp/secrets.json"],
		"state": [".local/share/amp/**", ".cache/amp/**"],
	},
	"auggie": {
		"directory": ".augment",
		"settings": [".augment/rules/**"],
		"secrets": [".augment/session.json"],
		"state": [".augment/**"],
	},
	"claude": {
		"directory": ".claude",
		"settings": [".claude/{CLAUDE.md,keybindings.json}", ".claude/{output-styles,rules}/**"],
		"project": [".mcp.json", ".claude/launch.json"],
		"secrets": [".{claude,config/claude}/.credentials.json", ".claude.json*"],
		"state": [".claude/**", ".claude.json*", ".local/{share,state}/claude/**"],
	},
	"cline": {
		"directory": ".cline",
		"settings": [".cline/data/settings/**"],
		"project": [".clinerules/hooks/**"],
		"secrets": [".cline/data/secrets.json"],
		"state": [".cline/**"],
	},
	"codex": {
		"directory": ".codex",
		"settings": [".codex/{AGENTS.md,AGENTS.override.md,managed_config.toml}", ".codex/{prompts,rules}/**"],
		"project": [".codex/**"],
		"secrets": [".codex/auth.json"],
		"state": [".codex/**"],
	},
	"continue": {
		"directory": ".continue",
		"project": [".continuerc.json"],
		"secrets": [".continue/{config.json,config.yaml,.env}"],
		"state": [".continue/**"],
	},
	"copilot": {
		"directory": ".copilot",
		"project": [".github/{agents,copilot,hooks,skills,mcp.json}/**"],
		"secrets": [".copilot/config.json", ".config/github-copilot/**"],
		"state": [".copilot/**"],
	},
	"crush": {
		"settings": [".config/crush/**"],
		"project": ["{,.}crush.json"],
		"secrets": [".{local/share,config}/crush/crush.json"],
		"state": [".local/share/crush/**"],
	},
	"cursor": {
		"directory": ".cursor",
		"settings": [".cursor/cli-config.json", ".cursor/rules/**"],
		"project": [".cursor/{cli,environment,sandbox,worktrees}.json"],
		"secrets": [".{config/,}cursor/auth.json"],
		"state": [".cursor/**", ".config/cursor/**"],
	},
	"droid": {
		"directory": ".factory",
		"secrets": [".factory/auth.*"],
		"state": [".factory/**"],
	},
	"gemini": {
		"directory": ".gemini",
		"settings": [".gemini/{GEMINI.md,trustedFolders.json}"],
		"secrets": [".gemini/{oauth_creds.json,google_accounts.json,mcp-oauth-tokens*.json,.env}"],
		"state": [".gemini/**"],
	},
	"goose": {
		"settings": [".config/goose/**"],
		"secrets": [".config/goose/secrets.yaml"],
		"state": [".local/{share,state}/goose/**"],
	},
	"grok": {
		"directory": ".grok",
		"settings": [".grok/user-settings.json"],
		"secrets": [".grok/user-settings.json"],
		"state": [".grok/**"],
	},
	"junie": {"directory": ".junie"},
	"kimi": {
		"directory": ".kimi",
		"secrets": [".kimi/{config.*,credentials/**}"],
		"state": [".kimi/**"],
	},
	"kiro": {
		"directory": ".kiro",
		"secrets": [".local/share/kiro-cli/data.sqlite3*"],
		"state": [".local/share/kiro-cli/**"],
	},
	"opencode": {
		"settings": [".{config/,}opencode/**"],
		"project": ["opencode.json{,c}", ".opencode/**"],
		"secrets": [".local/share/opencode/{auth,mcp-auth}.json", ".config/opencode/opencode.json*"],
		"state": [".local/{share,state}/opencode/**"],
	},
	"openhands": {
		"directory": ".openhands",
		"secrets": [".openhands/{settings,secrets}.json"],
		"state": [".openhands/**"],
	},
	"pi": {
		"directory": ".pi",
		"settings": [".pi/agent/{settings,models,mcp}.json", ".pi/agent/{extensions,prompts,skills}/**"],
		"secrets": [".pi/agent/auth.json"],
		"state": [".pi/**"],
	},
	"qwen": {
		"directory": ".qwen",
		"secrets": [".qwen/{oauth_creds.json,.env}"],
		"state": [".qwen/**"],
	},
	"roo": {"directory": ".roo"},
	"trae": {"directory": ".trae"},
	"windsurf": {
		"directory": ".windsurf",
		"settings": [".codeium/windsurf/{mcp_config,hooks}.json"],
		"secrets": [".codeium/config.json"],
		"state": [".codeium/**"],
	},
	"whichever": {"directory": ".agents"},
}

# Settings and permissions; servers, hooks and skills, which are programs. The same for all, since every agent has
# most of them, and one list costs one automaton.
obeyed := [
	"{settings*,config,hooks,mcp,mcp-config,permissions}.*",
	"{agents,cli-agents,commands,droids,extensions,hooks,mcp,mcpServers,plugins,policies,settings,skills}/**",
	".env",
]

in_directories := [sprintf("%s/%s", [agent.directory, name]) | some agent in agents; some name in obeyed]

# What agents obey in a project.
in_project := array.concat(in_directories, [path | some agent in agents; some path in agent.project])

is_own(name) if startswith(sprintf("%s-", [input.agent]), sprintf("%s-", [name]))

rules contains {
	"id": "agents.secrets",
	"on": "file",
	"match": in_homes([path |
		some name, agent in agents
		not is_own(name)
		some path in agent.secrets
	]),
	"verdict": "deny",
	"severity": "high",
	"reason": "an agent's credentials are for that agent alone",
}

rules contains {
	"id": "agents.settings",
	"on": "file",
	"match": in_homes(array.concat(in_directories, [path | some agent in agents; some path in agent.settings])),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "an agent does not change what it may do",
}
