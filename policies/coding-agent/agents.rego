# Coding agents' own files, agent by agent: secrets that are for that agent alone, settings that say
# what it may do, and everything that it writes while it works. An agent is known by the start of its
# name, so "claude-code" is "claude".
package opensafe.sandbox

agents := {
	"aider": {
		"secrets": [".aider/oauth-keys.env"],
		"settings": [".aider.conf.yml", ".aider.model.*"],
		"state": [".aider/**", ".aider.chat.*", ".aider.input.*", ".aider.tags.*/**"],
	},
	"amazon-q": {
		"secrets": [".local/share/amazon-q/data.sqlite3*"],
		"settings": [".local/share/amazon-q/settings.json"],
		"state": [".local/share/amazon-q/**"],
	},
	"amp": {
		"secrets": [".local/share/amp/secrets.json"],
		"settings": [".config/amp/**"],
		"state": [".local/share/amp/**", ".cache/amp/**"],
	},
	"auggie": {
		"secrets": [".augment/session.json"],
		"settings": [".augment/settings.json", ".augment/{agents,commands,rules}/**"],
		"state": [".augment/**"],
	},
	"claude": {
		"secrets": [".claude/.credentials.json", ".claude.json*"],
		"settings": [
			".claude/{settings*.json,CLAUDE.md,keybindings.json}",
			".claude/{agents,commands,hooks,output-styles,rules,skills}/**",
			".claude/plugins/**",
		],
		"state": [".claude/**", ".claude.json*", ".local/{share,state}/claude/**"],
	},
	"codex": {
		"secrets": [".codex/auth.json"],
		"settings": [
			".codex/{config.toml,AGENTS.md,AGENTS.override.md,hooks.json,managed_config.toml}",
			".codex/{prompts,rules,skills}/**",
		],
		"state": [".codex/**"],
	},
	"continue": {
		"secrets": [".continue/{config.json,config.yaml,.env}"],
		"settings": [".continue/{config.json,config.yaml,config.ts,permissions.yaml,.env}"],
		"state": [".continue/**"],
	},
	"copilot": {
		"secrets": [".copilot/config.json", ".config/github-copilot/**"],
		"settings": [".copilot/{config.json,mcp-config.json}", ".copilot/{agents,skills}/**"],
		"state": [".copilot/**"],
	},
	"crush": {
		"secrets": [".local/share/crush/crush.json", ".config/crush/crush.json"],
		"settings": [".config/crush/**"],
		"state": [".local/share/crush/**"],
	},
	"cursor": {
		"secrets": [".config/cursor/auth.json"],
		"settings": [".cursor/{mcp.json,hooks.json,cli-config.json,permissions.json}", ".cursor/{rules,extensions,skills}/**"],
		"state": [".cursor/**", ".config/cursor/**"],
	},
	"droid": {
		"secrets": [".factory/auth.*"],
		"settings": [".factory/{settings,mcp,config}.json", ".factory/{commands,droids,hooks,skills}/**"],
		"state": [".factory/**"],
	},
	"gemini": {
		"secrets": [".gemini/{oauth_creds.json,google_accounts.json,mcp-oauth-tokens*.json,.env}"],
		"settings": [".gemini/{settings.json,GEMINI.md,trustedFolders.json,.env}", ".gemini/{commands,extensions,policies,skills}/**"],
		"state": [".gemini/**"],
	},
	"goose": {
		"secrets": [".config/goose/secrets.yaml"],
		"settings": [".config/goose/**"],
		"state": [".local/{share,state}/goose/**"],
	},
	"opencode": {
		"secrets": [".local/share/opencode/{auth,mcp-auth}.json"],
		"settings": [".config/opencode/**", ".opencode/**"],
		"state": [".local/{share,state}/opencode/**"],
	},
	"qwen": {
		"secrets": [".qwen/oauth_creds.json"],
		"settings": [".qwen/settings.json", ".qwen/{extensions,skills}/**"],
		"state": [".qwen/**"],
	},
}

is_own(name) if startswith(input.agent, name)

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
	"match": in_homes([path | some agent in agents; some path in agent.settings]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "an agent does not change what it may do",
}
