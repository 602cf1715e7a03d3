package opensafe.sandbox_test

import data.opensafe.sandbox

test_reading_is_free_but_for_devices if {
	rule("files.read").access == ["read"]
	"/[!d]*/**" in matched("files.read")
	not "/**" in matched("files.read")
}

test_device_files_stay_as_they_are if {
	denies("files.device-nodes", "/dev")
	not "write" in rule("files.device-nodes").access
}

test_the_workspace_is_writable if allows("files.workspace", "/home/me/work/**")

test_the_home_directory_is_not_writable if {
	every found in rules {
		not opens_home(found)
	}
}

opens_home(found) if {
	found.verdict == "allow"
	found.id != "files.workspace"
	some path in [found.match]
	path == "/home/me/**"
}

test_caches_are_writable if {
	allows("files.caches", "/home/me/.cache/**")
	allows("files.caches", "/home/me/.npm/**")
	allows("files.caches", "/home/me/.cargo/{registry,git}/**")
	allows("files.caches", "/home/me/go/pkg/**")
}

test_an_agent_keeps_its_own_state if {
	not rule("files.agent-state")
	found := sandbox.rules with input as object.union(example, {"agent": "codex"})
	some each in found
	each.id == "files.agent-state"
	each.match == ["/home/me/.codex/**"]
}
