# The policy for any program: ordinary work passes, and nothing dangerous works.
#
#   files     everything may be read but secrets and devices; the workspace, the home directory and
#             temporary directories may be written, but for what other programs run or trust
#   programs  every program may run but those that gain rights or outlive the sandbox
#   network   the internet and loopback; no displays on it, no private or link-local
#             addresses by any protocol, no metadata services
#   servers   on loopback
#   sockets   name services, databases and the program's own; no daemon that would act for it
#   others    no process outside is looked into, signalled or controlled, no mount that others share is
#             changed, no code or key of the kernel is touched; user namespaces are on record
#
# A denial beats every allowance, however narrow either is. So what is named here as denied stays
# denied whatever is added, and what is not named is decided by the defaults.
package opensafe.sandbox

# A user namespace gives rights over what is made in it and none outside, and browsers, build tools and
# agents shut themselves in with one: denied, they would run in the open instead. It is also where most
# attacks on a kernel begin, so every one is on record. What is absent here is denied.
defaults := {"exec": "allow", "file": "deny", "connect": "deny", "bind": "deny", "namespace": "audit"}

# Where secrets and settings of people lie: the sandbox's home, and everyone else's.
homes := {input.home, "/root", "/home/*"}

in_homes(names) := [sprintf("%s/%s", [home, name]) | some home in homes; some name in names]
