package opensafe.sandbox_test

import data.opensafe.sandbox

test_start_up_files_can_be_read_and_not_written if {
	denies("persist.shell", "/home/me/.{profile,login,logout,inputrc,kshrc,mkshrc,cshrc,tcshrc}")
	rule("persist.shell").access == ["write", "create"]
}

test_what_shells_run_from_caches_is_kept if {
	denies("persist.shell", "/home/me/.cache/{antigen,bash*,direnv,p10k-*,gitstatus}/**")
	denies("persist.shell", "/home/me/.cache/{starship,carapace,zoxide,oh-my-posh,atuin,mise,fzf}/init.*")
}

test_git_settings_are_kept if denies("persist.settings", "/home/me/.gitconfig")

test_programs_on_the_path_are_kept if {
	denies("persist.programs", "/home/me/.local/bin/**")
	denies("persist.programs", "/home/me/.{cargo,bun,deno,npm-global,dotnet/tools,yarn}/bin/**")
	denies("persist.programs", "/home/me/.local/share/uv/{tools,python/[!.]*}/**")
}

test_a_home_that_is_the_workspace_has_its_own_programs if {
	found := sandbox.rules with input as object.union(example, {"workspace": "/home/me"})
	not "persist.programs" in {each.id | some each in found}
}

test_cron_is_kept if denies("persist.system", "/var/spool/{cron,at,anacron}/**")

test_records_are_kept if denies("persist.records", "/home/me/.local/state/opensafe/**")

test_version_managers_are_kept if {
	denies("persist.shell", "/home/me/.{nvm,sdkman,asdf,rvm}/**")
	denies("persist.programs", "/home/me/.rustup/{settings.toml,toolchains/**}")
	denies("persist.programs", "/home/me/.cache/{bazelisk,bazel/*/install}/**")
}

test_desktops_settings_are_kept if {
	denies("persist.autostart", "/home/me/.cache/{xmonad,sessions,menus,plasma*,kscreenlocker*,krunner,kwin*}/**")
	some path in matched("persist.autostart")
	startswith(path, "/home/me/.config/{sway,i3,")
}

test_what_editors_trust_and_source_is_kept if {
	denies("persist.settings", "/home/me/.local/state/{nvim,nvim-*}/{trust,sessions,session,view,lazy}/**")
}

test_compiled_code_that_is_loaded_in_place_of_its_source_is_kept if {
	some path in matched("persist.settings")
	startswith(path, "/home/me/.cache/{nvim/luac,")
	contains(path, ",emacs,guile,")
}
