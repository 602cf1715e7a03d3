# Unix sockets: who answers there acts outside the sandbox.
package opensafe.sandbox

temporary_places := {input.tmp, "/tmp", "/var/tmp"}

in_temporary(names) := [sprintf("%s/%s", [place, name]) | some place in temporary_places; some name in names]

# Sockets that people's programs leave in temporary directories: who answers there, and who asks.
left_in_temporary := [
	"{ssh,gpg,keyring}-*/{agent,S.,ssh,control,pkcs11,gpg}*",
	"{ssh_mux*,ssh[-_]*[@:]*}",
	"{tmux,zellij}-[0-9]*/**",
	"{pulse,ksocket,orbit}-*/**",
	"{,u}screens/**",
	"emacs[0-9]*/**",
	"nvim.*/*/nvim.*",
	"nvim*/0",
	"{my,}kitty{,-[0-9]*}",
	"{vscode,cursor,windsurf,code-server,Code}-*.sock",
	"vscode-*/*.sock",
	".{X11,ICE,font,XIM}-unix/**",
	"dbus-*",
	"podman-run-*/podman/**",
]

rules contains {
	"id": "sockets.places",
	"on": "file",
	"match": in_temporary(left_in_temporary),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "who takes the place of a socket of programs outside is sent what is meant for them",
}

rules contains {
	"id": "sockets.left",
	"on": "connect",
	"match": [sprintf("unix:%s", [path]) | some path in in_temporary(left_in_temporary)],
	"verdict": "deny",
	"severity": "medium",
	"reason": "programs outside that left a socket in a temporary directory would act for the sandbox",
}

rules contains {
	"id": "sockets.containers",
	"on": "connect",
	"match": array.concat(
		[
			"unix:{/run,/var/run}/docker.sock",
			"unix:{/run,/var/run}/{docker,containerd,podman,crio,buildkit,libvirt,incus,lxd}/**",
			"unix:/run/user/*/{docker.sock,docker.pid}",
			"unix:/run/user/*/{containerd,podman,buildkit,libvirt}*/**",
			"unix:/var/{lib,snap}/{lxd,incus}/**",
			"unix:@/containerd-*",
			"unix:@/run/containerd/*",
		],
		[sprintf("unix:%s", [path]) |
			some path in in_homes([".docker/**", ".rd/**", ".colima/**", ".lima/**"])
		],
	),
	"verdict": "deny",
	"severity": "critical",
	"reason": "a container engine would start anything, as anyone",
}

rules contains {
	"id": "sockets.system",
	"on": "connect",
	"match": [
		"unix:{/run,/var/run}/dbus/**",
		"unix:/run/user/*/{bus,systemd,dbus-1}/**",
		"unix:/tmp/dbus-*",
		"unix:@/tmp/dbus-*",
		"unix:/run/systemd/{private,io.systemd.*}",
		"unix:/run/systemd/machine/**",
		"unix:/run/{snapd,snapd-snap}.socket",
		"unix:/run/udev/**",
		"unix:/run/opensafe/**",
	],
	"verdict": "deny",
	"severity": "high",
	"reason": "a system or session service would act outside the sandbox",
}

rules contains {
	"id": "sockets.keys",
	"on": "connect",
	"match": array.concat(
		[
			"unix:/tmp/ssh-*/**",
			"unix:/run/user/*/{ssh-agent*,openssh_agent,yubikey-agent}",
			"unix:/run/user/*/{gcr,keyring,gnupg,ssh-agent}/**",
			"unix:/run/pcscd/**",
			"unix:@ssh-agent*",
		],
		[sprintf("unix:%s", [path]) |
			some path in in_homes([
				".ssh/**",
				".gnupg/**",
				".1password/**",
				".bitwarden-ssh-agent.sock",
				".cache/git/credential/**",
				".git-credential-cache/**",
			])
		],
	),
	"verdict": "deny",
	"severity": "high",
	"reason": "agents that hold keys would sign for the sandbox",
}

rules contains {
	"id": "sockets.terminals",
	"on": "connect",
	"match": [
		"unix:{/tmp,/var/tmp}/{tmux,emacs,zellij,nvim,kitty,vscode-}*/**",
		"unix:{/tmp,/var/tmp}/{vscode,mykitty,kitty,nvim}*",
		"unix:/run/screen/**",
		"unix:/run/user/*/{emacs,zellij,wezterm,nvim,tmux}*/**",
		"unix:/run/user/*/{vscode,kitty,nvim}*",
		"unix:@{my,}kitty*",
	],
	"verdict": "deny",
	"severity": "high",
	"reason": "terminals and editors outside would run what they are sent; TMUX_TMPDIR puts a tmux of one's own elsewhere",
}

rules contains {
	"id": "sockets.display",
	"on": "connect",
	"match": [
		"unix:/tmp/.{X11,ICE,font}-unix/**",
		"unix:@/tmp/.{X11,ICE}-unix/*",
		"unix:/run/user/*/{wayland-*,pipewire-*,.mutter*,at-spi/**,pulse/**}",
	],
	"verdict": "deny",
	"severity": "medium",
	"reason": "a display lets its clients see and type what others do",
}

# Names, users, time zones, logs: a program that may not ask here fails in odd ways.
rules contains {
	"id": "sockets.names",
	"on": "connect",
	"match": [
		"unix:{/run,/var/run}/nscd/**",
		"unix:/run/systemd/userdb/**",
		"unix:/run/systemd/resolve/io.systemd.Resolve*",
		"unix:/run/systemd/journal/{dev-log,socket,stdout}",
		"unix:/dev/log",
		"unix:/run/avahi-daemon/socket",
		"unix:/var/lib/sss/pipes/{nss,pam}",
	],
	"verdict": "allow",
	"severity": "info",
}

rules contains {
	"id": "sockets.databases",
	"on": "connect",
	"match": ["unix:{/run,/var/run}/{postgresql,mysqld,redis,valkey,memcached,mongodb}/**"],
	"verdict": "allow",
	"severity": "info",
}

rules contains {
	"id": "sockets.own",
	"on": "connect",
	"match": array.concat(
		["unix:{/tmp,/var/tmp,/dev/shm}/**"],
		[sprintf("unix:%s/**", [directory]) |
			some directory in [input.workspace, input.tmp, sprintf("%s/.cache", [input.home])]
		],
	),
	"verdict": "allow",
	"severity": "info",
}
