# Programs that gain rights, or that have something run outside the sandbox.
#
# A program is known by where it is. A copy elsewhere has no set-user-id bit, so it gains nothing; what
# it would need is denied where it is: sockets in sockets.rego, files in persistence.rego.
package opensafe.sandbox

# Where programs are installed that a denied name is looked for.
programs(names) := [sprintf("%s/{%s}", [directory, concat(",", names)]) |
	some directory in ["{/usr/local,/usr,}/{bin,sbin}", "/run/wrappers/bin"]
]

rules contains {
	"id": "exec.privilege",
	"on": "exec",
	"match": programs([
		"sudo",
		"sudoedit",
		"su",
		"doas",
		"pkexec",
		"run0",
		"runuser",
		"sg",
		"newgrp",
		"gosu",
		"su-exec",
		"ksu",
	]),
	"verdict": "deny",
	"severity": "high",
	"reason": "no other user's rights in the sandbox",
}

rules contains {
	"id": "exec.accounts",
	"on": "exec",
	"match": programs([
		"passwd",
		"chpasswd",
		"chsh",
		"chfn",
		"chage",
		"gpasswd",
		"visudo",
		"vipw",
		"user{add,del,mod}",
		"group{add,del,mod}",
	]),
	"verdict": "deny",
	"severity": "high",
	"reason": "accounts are not for agents to change",
}

rules contains {
	"id": "exec.later",
	"on": "exec",
	"match": programs(["at", "batch", "crontab", "systemd-run", "machinectl"]),
	"verdict": "deny",
	"severity": "high",
	"reason": "nothing may be left to run outside the sandbox",
}

rules contains {
	"id": "exec.mount",
	"on": "exec",
	"match": programs(["mount", "umount", "fusermount", "fusermount3", "nsenter", "losetup"]),
	"verdict": "deny",
	"severity": "medium",
	"reason": "the sandbox's view of the file systems stays as it is",
}
