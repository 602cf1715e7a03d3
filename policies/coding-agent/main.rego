# The policy for coding agents: an agent works in its workspace, and nowhere else.
#
#   files     the workspace and temporary directories may be written, caches too; everything else may
#             be read but secrets and devices. Git hooks and the repository's configuration, editors'
#             tasks and agents' settings are protected inside the workspace as well
#   programs  every program may run but those that gain rights or outlive the sandbox
#   network   loopback, name servers, package registries, and the agent's own model
#   servers   at any address: what a project is made of is tried out
#   sockets   name services, databases and the agent's own; no daemon that would act for it
#   others    no process outside is looked into, signalled or controlled, no mount that others share is
#             changed, no code or key of the kernel is touched; user namespaces are on record
#
# A denial beats every allowance, however narrow either is. So what is named here as denied stays
# denied whatever is added, and what is not named is decided by the defaults.
package opensafe.sandbox

# A user namespace gives rights over what is made in it and none outside, and browsers, build tools and
# agents shut themselves in with one: denied, they would run in the open instead. It is also where most
# attacks on a kernel begin, so every one is on record. What is absent here is denied.
defaults := {"exec": "allow", "file": "deny", "connect": "deny", "bind": "allow", "namespace": "audit"}

# Where secrets and settings of people lie: the sandbox's home, and everyone else's.
homes := {input.home, "/root", "/home/*"}

in_homes(names) := [sprintf("%s/%s", [home, name]) | some home in homes; some name in names]

in_home(names) := [sprintf("%s/%s", [input.home, name]) | some name in names]

# Where an agent may make directories: the same rules hold below all of them, so that what was made in one
# can be moved to another.
working_places := {input.workspace, input.tmp, "/tmp", "/var/tmp", "/dev/shm"}

in_workspace(names) := [sprintf("%s/**/%s", [place, name]) | some place in working_places; some name in names]
