package opensafe.sandbox_test

test_editors_tasks_are_protected if {
	denies("workspace.editors", "/home/me/work/**/.vscode/{tasks,settings,launch,mcp}.json")
}

test_agents_settings_in_the_workspace_are_protected if {
	denies("workspace.agents", "/home/me/work/**/.mcp.json")
	rule("workspace.agents").access == ["write", "create"]
}
