# What lies in a workspace and acts outside of it: editors run tasks when a folder is opened, and agents
# believe what a project says about their permissions.
#
# At any depth: an editor that trusts the workspace trusts every folder below it without a question, and
# agents read settings of the folder that they are started in, or that they work on. The price is that what
# brings such files along, a clone or a package, is not unpacked whole.
package opensafe.sandbox

rules contains {
	"id": "workspace.editors",
	"on": "file",
	"match": in_workspace([
		".vscode/{tasks,settings,launch,mcp}.json",
		".idea/{workspace.xml,runConfigurations/**,externalTools/**}",
		".zed/{settings,tasks}.json",
		".{nvim.lua,nvimrc,exrc,vimrc,lvimrc}",
		"*.code-workspace",
	]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "an editor runs these when the folder is opened",
}

rules contains {
	"id": "workspace.agents",
	"on": "file",
	"match": in_workspace([
		".mcp.json",
		".claude/{settings.json,settings.local.json,agents/**,commands/**,hooks/**,skills/**}",
		".codex/**",
		".cursor/{mcp.json,hooks.json,cli.json,permissions.json}",
		".gemini/settings.json",
		".qwen/settings.json",
		".continue/{config.json,config.yaml,permissions.yaml}",
		".aider.conf.yml",
		"opencode.json{,c}",
		".opencode/**",
		".amp/settings.json",
		".github/{copilot,hooks}/**",
	]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "an agent does not change what agents may do here",
}
