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
		".{vscode,zed,fleet,theia}/{tasks,settings,launch,mcp,debug,run,c_cpp_properties,cmake-kits}.json",
		".idea/{workspace.xml,watcherTasks.xml,startup.xml,{runConfigurations,externalTools,jsLinters}/**}",
		".{run,helix,externalToolBuilders}/**",
		".{nvim.lua,nvimrc,exrc,vimrc,lvimrc,lazy.lua,neoconf.json,vim/coc-settings.json}",
		".devcontainer{,/devcontainer}.json",
		".{gdbinit,lldbinit}",
		"*.code-workspace",
	]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "an editor or a debugger runs these when the folder is opened",
}

rules contains {
	"id": "workspace.agents",
	"on": "file",
	"match": in_workspace(in_project),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "an agent does not change what agents may do here",
}

# Other version control runs what the settings of a repository name, too. Of the workspace's own: a repository
# that an agent makes below has to be configured by the agent.
rules contains {
	"id": "workspace.repository",
	"on": "file",
	"match": [sprintf("%s/%s", [input.workspace, name]) |
		some name in [
			".{hg,sl,git/sl}/{hgrc*,config,sharedpath}",
			".jj/{repo,repo/config*,workspace-config.toml}",
			"_darcs/prefs/{defaults,prefs}",
			".bzr/branch/branch.conf",
		]
	],
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "version control runs what a repository's configuration names, outside the sandbox",
}
