package opensafe.sandbox_test

import data.opensafe.sandbox

as_claude := found if {
	found := sandbox.rules with input as object.union(example, {"agent": "claude-code"})
}

matched_as_claude(id) := [path | some found in as_claude; found.id == id; some path in found.match]

test_credentials_are_for_their_own_agent_alone if {
	denies("agents.secrets", "/home/me/.codex/auth.json")
	denies("agents.secrets", "/home/me/.claude/.credentials.json")
	"/home/me/.codex/auth.json" in matched_as_claude("agents.secrets")
	not "/home/me/.claude/.credentials.json" in matched_as_claude("agents.secrets")
}

test_no_agent_changes_its_settings if {
	rule("agents.settings").access == ["write", "create"]
	"/home/me/.codex/{prompts,rules,skills}/**" in matched_as_claude("agents.settings")
	some path in matched_as_claude("agents.settings")
	startswith(path, "/home/me/.claude/")
}
