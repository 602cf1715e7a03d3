package opensafe.sandbox_test

test_servers_that_run_inside_as_outside_are_told_apart if {
	denies("services.notebooks", "/home/me/.local/share/jupyter/runtime/**")
	denies("services.gradle", "/home/me/.gradle/daemon/**")
	denies("services.bazel", "/home/me/.cache/bazel/*/*/server/**")
	every id in ["services.notebooks", "services.gradle", "services.bazel"] {
		not rule(id).access
	}
}
