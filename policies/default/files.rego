# Which files may be read and written.
package opensafe.sandbox

# Every name at the root but `dev`.
everything_but_devices := ["/", "/[!d]*/**", "/d{,e}/**", "/d[!e]*/**", "/de[!v]*/**", "/dev?*/**"]

# What is worth keeping from a program is named in secrets.rego: with a list of directories that may be
# read, every unusual layout would be a denial of ordinary work.
rules contains {
	"id": "files.read",
	"on": "file",
	"match": everything_but_devices,
	"access": ["read"],
	"verdict": "allow",
	"severity": "info",
}

rules contains {
	"id": "files.devices",
	"on": "file",
	"match": [
		"/dev",
		"/dev/{null,zero,full,random,urandom,tty,ptmx,console,ttyS0,hvc0}",
		"/dev/pts/**",
		"/dev/fd/**",
	],
	"access": ["read", "write"],
	"verdict": "allow",
	"severity": "info",
}

# They are everyone's, and the kernel asks no rights of root.
rules contains {
	"id": "files.device-nodes",
	"on": "file",
	"match": ["/dev", "/dev/{null,zero,full,random,urandom,tty,ptmx,console,ttyS0,hvc0}"],
	"access": ["delete", "rename", "link", "attributes"],
	"verdict": "deny",
	"severity": "high",
	"reason": "device files are everyone's, and stay as they are",
}

rules contains {
	"id": "files.workspace",
	"on": "file",
	"match": sprintf("%s/**", [input.workspace]),
	"verdict": "allow",
	"severity": "info",
}

rules contains {
	"id": "files.temporary",
	"on": "file",
	"match": [sprintf("%s/**", [input.tmp]), "{/tmp,/var/tmp,/dev/shm,/dev/mqueue}/**"],
	"verdict": "allow",
	"severity": "info",
}

# The home directory, but for what secrets.rego, persistence.rego and agents.rego deny.
rules contains {
	"id": "files.home",
	"on": "file",
	"match": sprintf("%s/**", [input.home]),
	"verdict": "allow",
	"severity": "info",
} if {
	input.home != ""
}

# A process names its threads, and says who is in the user namespace that it made. The kernel lets it
# write these of its own processes only.
rules contains {
	"id": "files.proc",
	"on": "file",
	"match": [
		"/proc/*/{comm,oom_score_adj,timerslack_ns,coredump_filter,clear_refs,autogroup}",
		"/proc/*/{uid_map,gid_map,setgroups}",
		"/proc/*/task/*/comm",
	],
	"access": ["write"],
	"verdict": "allow",
	"severity": "info",
}
