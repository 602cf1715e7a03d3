package opensafe.sandbox_test

import data.opensafe.sandbox

as_claude := found if {
	found := sandbox.rules with input as object.union(example, {"agent": "claude-code"})
}

matched_as_claude(id) := [path | some found in as_claude; found.id == id; some path in found.match]

test_credentials_are_for_their_own_agent_alone if {
	denies("agents.secrets", "/home/me/.codex/auth.json")
	denies("agents.secrets", "/home/me/.{claude,config/claude}/.credentials.json")
	"/home/me/.codex/auth.json" in matched_as_claude("agents.secrets")
	not "/home/me/.{claude,config/claude}/.credentials.json" in matched_as_claude("agents.secrets")
}

test_no_agent_changes_its_settings if {
	rule("agents.settings").access == ["write", "create"]
	"/home/me/.codex/{prompts,rules}/**" in matched_as_claude("agents.settings")
	some path in matched_as_claude("agents.settings")
	startswith(path, "/home/me/.claude/")
}

test_an_agent_is_known_by_its_whole_name if {
	found := sandbox.rules with input as object.union(example, {"agent": "pip"})
	some each in found
	each.id == "agents.secrets"
	"/home/me/.pi/agent/auth.json" in each.match
}

# One table: what every agent obeys is protected in the home directory and in a project.
test_what_agents_obey_is_kept_for_each if {
	every agent in ["claude", "codex", "cursor", "kiro", "factory"] {
		every name in sandbox.obeyed {
			denies("agents.settings", sprintf("/home/me/.%s/%s", [agent, name]))
			sprintf(".%s/%s", [agent, name]) in sandbox.in_project
		}
	}
}
