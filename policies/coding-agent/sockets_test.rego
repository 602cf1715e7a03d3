package opensafe.sandbox_test

test_container_engines_are_denied if {
	denies("sockets.containers", "unix:{/run,/var/run}/docker.sock")
	denies("sockets.containers", "unix:@/containerd-*")
}

test_session_services_are_denied if denies("sockets.system", "unix:/run/user/*/{bus,systemd,dbus-1}/**")

test_key_agents_are_denied if denies("sockets.keys", "unix:/tmp/ssh-*/**")

test_names_can_be_looked_up if allows("sockets.names", "unix:{/run,/var/run}/nscd/**")

test_own_sockets_are_allowed if {
	allows("sockets.own", "unix:/home/me/work/**")
	allows("sockets.own", "unix:/tmp/sandbox/**")
}
