# Servers on loopback that a build or a notebook starts, inside as outside. Their addresses and tokens lie in one
# place for both: without this, a program in the sandbox would be served by the one outside, if only by mistake.
package opensafe.sandbox

rules contains {
	"id": "services.notebooks",
	"on": "file",
	"match": in_homes([".local/share/jupyter/runtime/**"]),
	"verdict": "deny",
	"severity": "high",
	"reason": "a notebook server outside would run commands for the sandbox; JUPYTER_RUNTIME_DIR puts one's own elsewhere",
}

rules contains {
	"id": "services.gradle",
	"on": "file",
	"match": in_homes([".gradle/daemon/**"]),
	"verdict": "deny",
	"severity": "high",
	"reason": "a Gradle daemon outside would build for the sandbox; -Dorg.gradle.daemon.registry.base puts one's own elsewhere",
}

rules contains {
	"id": "services.bazel",
	"on": "file",
	"match": in_homes([".cache/bazel/*/*/server/**"]),
	"verdict": "deny",
	"severity": "high",
	"reason": "a Bazel server outside would build for the sandbox; --output_user_root puts one's own elsewhere",
}
