package opensafe.sandbox_test

import data.opensafe.sandbox

# A sandbox that the tests evaluate the policy for.
example := {
	"agent": "coder",
	"workspace": "/home/me/work",
	"home": "/home/me",
	"tmp": "/tmp/sandbox",
	"git_directories": [],
	"user": {"name": "me", "uid": 1000},
	"runtime": "process",
	"labels": {},
	"command": ["make"],
	"host": {"name": "host", "kernel": "6.12.0", "capabilities": []},
}

rules := found if {
	found := sandbox.rules with input as example
}

rule(id) := found if {
	some found in rules
	found.id == id
}

# What a rule matches, as an array.
matched(id) := rule(id).match if is_array(rule(id).match)

matched(id) := [rule(id).match] if is_string(rule(id).match)

denies(id, path) if {
	rule(id).verdict == "deny"
	path in matched(id)
}

allows(id, path) if {
	rule(id).verdict == "allow"
	path in matched(id)
}

test_only_programs_may_run_and_serve_by_default if {
	every operation in ["file", "connect"] {
		sandbox.defaults[operation] == "deny"
	}
	every operation in ["exec", "bind"] {
		sandbox.defaults[operation] == "allow"
	}
}

test_user_namespaces_are_on_record if sandbox.defaults.namespace == "audit"

# Absent is denied.
test_nothing_is_done_to_others_and_the_kernel if {
	allowed := {"exec", "file", "connect", "bind", "namespace"}
	every operation, _ in sandbox.defaults {
		operation in allowed
	}
	every found in rules {
		found.on in {"exec", "file", "connect", "bind"}
	}
}

test_every_id_is_used_once if {
	count({found.id | some found in rules}) == count(rules)
}

test_every_denial_says_why if {
	every found in rules {
		reasoned(found)
	}
}

reasoned(found) if found.verdict == "allow"

reasoned(found) if count(found.reason) > 0

# A denial must not reach what the agent works on.
test_no_write_denial_is_for_the_whole_workspace if {
	every found in rules {
		not spoils_workspace(found)
	}
}

spoils_workspace(found) if {
	found.verdict == "deny"
	found.on == "file"
	some path in found.match
	path in ["/home/me/work/**", "/home/me/**", "/**"]
}
