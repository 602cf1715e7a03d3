package opensafe.sandbox_test

test_ssh_keys_are_denied_in_every_home if {
	denies("secrets.ssh", "/home/me/.ssh/**")
	denies("secrets.ssh", "/root/.ssh/**")
	denies("secrets.ssh", "/home/*/.ssh/**")
	not rule("secrets.ssh").access
}

test_cloud_credentials_are_denied if {
	denies("secrets.cloud", "/home/me/.aws/**")
	denies("secrets.cloud", "/home/me/.config/gcloud/**")
	denies("secrets.cloud", "/home/me/.{,config/}kube/**")
}

test_tokens_are_denied if {
	some path in [".netrc", ".git-credentials", ".pypirc"]
	denies("secrets.tokens", sprintf("/home/me/%s", [path]))
}

test_package_settings_can_be_read_but_not_unseen if {
	rule("secrets.package-settings").verdict == "audit"
	"/home/me/.npmrc" in matched("secrets.package-settings")
}

test_system_secrets_are_denied if {
	denies("secrets.system", "/etc/{shadow,gshadow}{,-}")
	denies("secrets.system", "/etc/sudoers")
}

test_other_processes_memory_is_denied if denies("secrets.memory", "/proc/*/mem")

test_a_displays_cookies_are_denied if {
	denies("secrets.display", "/home/me/.{Xauthority,ICEauthority,serverauth.*,xauth*}")
	not rule("secrets.display").access
}

test_tools_tokens_are_denied if {
	denies("secrets.tokens", "/home/me/.config/pypoetry/auth.toml")
	denies("secrets.tokens", "/home/me/.local/share/uv/credentials/*.toml")
}

test_passwords_of_servers_on_loopback_are_denied if {
	denies("secrets.services", "/home/me/.{emacs.d,config/emacs}/server/**")
	not rule("secrets.services").access
}

test_caches_of_browsers_are_denied if {
	some path in matched("secrets.personal")
	startswith(path, "/home/me/.cache/{mozilla,")
}
