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

test_nobody_takes_the_place_of_a_socket_outside if {
	rule("sockets.places").access == ["write", "create"]
	every place in ["/tmp", "/var/tmp", "/tmp/sandbox"] {
		denies("sockets.places", sprintf("%s/.{X11,ICE,font,XIM}-unix/**", [place]))
	}
}

test_what_may_not_be_taken_may_not_be_contacted if {
	every path in matched("sockets.places") {
		denies("sockets.left", sprintf("unix:%s", [path]))
	}
}
