package opensafe.sandbox_test

import data.opensafe.sandbox

test_editors_tasks_are_protected if {
	some path in matched("workspace.editors")
	startswith(path, "/home/me/work/**/.{vscode,zed,")
	denies("workspace.editors", "/home/me/work/**/.{run,helix,externalToolBuilders}/**")
}

test_agents_settings_in_the_workspace_are_protected if {
	every name in sandbox.in_project {
		denies("workspace.agents", sprintf("/home/me/work/**/%s", [name]))
	}
	".mcp.json" in sandbox.in_project
	rule("workspace.agents").access == ["write", "create"]
}

# A link in the workspace may lead to any place that may be written.
test_temporary_places_hold_no_settings_either if {
	every place in ["/tmp", "/var/tmp", "/dev/shm"] {
		denies("workspace.agents", sprintf("%s/**/.mcp.json", [place]))
	}
}

test_other_version_control_keeps_its_configuration if {
	denies("workspace.repository", "/home/me/work/.jj/{repo,repo/config*,workspace-config.toml}")
	rule("workspace.repository").access == ["write", "create"]
}
