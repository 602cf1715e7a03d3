package opensafe.sandbox_test

import data.opensafe.sandbox

test_start_up_files_can_be_read_and_not_written if {
	denies("persist.shell", "/home/me/.{profile,login,logout,inputrc,kshrc,mkshrc,cshrc,tcshrc}")
	rule("persist.shell").access == ["write", "create"]
}

test_what_shells_run_from_caches_is_kept if {
	denies("persist.shell", "/home/me/.cache/{p10k-*,gitstatus}/**")
	denies("persist.shell", "/home/me/.cache/{starship,carapace,zoxide,oh-my-posh,atuin,mise,direnv,fzf}/init.*")
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
	denies("persist.programs", "/home/me/.cache/bazelisk/**")
}

test_desktops_settings_are_kept if {
	denies("persist.autostart", "/home/me/.cache/xmonad/**")
	some path in matched("persist.autostart")
	startswith(path, "/home/me/.config/{sway,i3,")
}
