package opensafe.sandbox_test

import data.opensafe.sandbox

in_clone := found if {
	found := sandbox.rules with input as object.union(
		example,
		{"git_directories": ["/home/me/work/.git"]},
	)
}

test_hooks_are_protected_in_every_repository if {
	some path in matched("git.hooks")
	startswith(path, "/home/me/work/**/.git/hooks/{*[!e],")
	rule("git.hooks").access == ["write", "create"]
}

test_a_clone_keeps_its_configuration if {
	some found in in_clone
	found.id == "git.config"
	"/home/me/work/.git/{config,config.worktree,commondir,gitdir}" in found.match
	found.verdict == "deny"
}

test_a_new_repository_can_be_configured if not rule("git.config")

test_a_repository_around_the_workspace_can_be_committed_to if {
	found := sandbox.rules with input as object.union(example, {"git_directories": ["/home/me/.git"]})
	some each in found
	each.id == "git.repository"
	each.match == ["/home/me/.git/**"]
}

test_input_without_git_directories_is_understood if {
	found := sandbox.rules with input as object.remove(example, ["git_directories"])
	count(found) == count(rules)
}

test_submodules_and_work_trees_are_protected_at_any_depth if {
	some found in in_clone
	found.id == "git.config"
	"/home/me/work/.git/{modules,worktrees}/**/{config,config.worktree,commondir,gitdir}" in found.match
}

# It may be a file that leads to another repository.
test_a_clone_stays_where_its_work_tree_says if {
	some found in in_clone
	found.id == "git.directory"
	found.match == "/home/me/work/.git"
	found.access == ["rename", "create"]
}

test_a_file_that_leads_to_the_repository_is_kept if {
	found := sandbox.rules with input as object.union(example, {"git_directories": ["/srv/repo/.git/worktrees/x"]})
	some each in found
	each.id == "git.config"
	"/home/me/work/.git" in each.match
}

test_remotes_beside_the_configuration_are_kept if {
	some found in in_clone
	found.id == "git.config"
	"/home/me/work/.git/{branches,remotes}/*" in found.match
}
