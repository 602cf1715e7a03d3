# Git runs hooks, and what its configuration names, as whoever works in the repository next.
package opensafe.sandbox

# Every name but `*.sample`: `git init` copies samples, and Git runs none of them.
no_sample := "{*[!e],*[!l]e,*[!p]le,*[!m]ple,*[!a]mple,*[!s]ample,*[!.]sample,e,le,ple,mple,ample,sample}"

# Of every repository, also one that the agent makes or unpacks.
rules contains {
	"id": "git.hooks",
	"on": "file",
	"match": array.concat(
		in_workspace([
			sprintf(".git/hooks/%s/**", [no_sample]),
			sprintf(".git/{modules,worktrees}/**/hooks/%s/**", [no_sample]),
		]),
		[path |
			some directory in git_directories
			some name in [
				"hooks",
				sprintf("hooks/%s/**", [no_sample]),
				sprintf("{modules,worktrees}/**/hooks/%s/**", [no_sample]),
			]
			path := sprintf("%s/%s", [directory, name])
		],
	),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "Git hooks run outside the sandbox",
}

# What Git runs, or where it looks for that: in a repository's directory, and in those of its submodules and
# work trees, which lie in it and in each other.
settings := "{config,config.worktree,commondir,gitdir}"

# Of the repository that was there when the sandbox started. One that the agent makes has to be
# configured by the agent. In `branches` and `remotes`, Git looks for remotes that the configuration lacks.
rules contains {
	"id": "git.config",
	"on": "file",
	"match": array.concat(
		link,
		[path |
			some directory in git_directories
			some name in [settings, "{branches,remotes}/*", sprintf("{modules,worktrees}/**/%s", [settings])]
			path := sprintf("%s/%s", [directory, name])
		],
	),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "Git runs what a repository's configuration names, outside the sandbox; configure it there",
} if {
	count(git_directories) > 0
}

# `.git` may be a file that says where the repository is. As a directory it is never empty, so it cannot be
# removed; `git stash` tries.
dot_git := sprintf("%s/.git", [input.workspace])

default link := []

link := [dot_git] if not dot_git in git_directories

rules contains {
	"id": "git.directory",
	"on": "file",
	"match": dot_git,
	"access": ["rename", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "a clone's repository stays where its work tree says",
} if {
	dot_git in git_directories
}

# Where it lies outside the workspace: the workspace is a part of a repository, or a linked work tree.
rules contains {
	"id": "git.repository",
	"on": "file",
	"match": [sprintf("%s/**", [directory]) | some directory in git_directories],
	"verdict": "allow",
	"severity": "info",
} if {
	count(git_directories) > 0
}

default git_directories := []

git_directories := input.git_directories
