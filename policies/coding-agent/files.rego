# Which files may be read and written.
package opensafe.sandbox

# Every name at the root but `dev`.
everything_but_devices := ["/", "/[!d]*/**", "/d{,e}/**", "/d[!e]*/**", "/de[!v]*/**", "/dev?*/**"]

# What is worth keeping from an agent is named in secrets.rego: with a list of directories that may be
# read, every unusual layout would be a denial of honest work.
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

# What of the workspace is denied is in git.rego and workspace.rego.
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

# What package managers and compilers keep between runs. What is kept here is used by others later,
# so an agent could poison it; without it, no `pip install` and no `cargo build` works.
rules contains {
	"id": "files.caches",
	"on": "file",
	"match": in_home([
		".cache/**",
		".ccache/**",
		".npm/**",
		".node-gyp/**",
		".yarn/**",
		".pnpm-store/**",
		".local/share/pnpm/store/**",
		".local/share/{uv,virtualenvs,hatch,pdm}/**",
		".virtualenvs/**",
		"{miniconda3,miniforge3,anaconda3,.conda}/{envs,pkgs}/**",
		".bun/install/cache/**",
		".cargo/{registry,git}/**",
		".cargo/{.package-cache,.package-cache-mutate,.global-cache}*",
		"go/pkg/**",
		".config/go/telemetry/**",
		".m2/{repository,wrapper}/**",
		".gradle/{caches,native,wrapper,notifications,workers,kotlin-profile,.tmp,jdks}/**",
		".kotlin/**",
		".ivy2/{cache,local}/**",
		".sbt/boot/**",
		".nuget/packages/**",
		".local/share/NuGet/**",
		".gem/specs/**",
		".bundle/cache/**",
		".stack/{pantry,snapshots,programs}/**",
		".cabal/packages/**",
		".hex/packages/**",
		".julia/{compiled,logs,packages,artifacts,registries,scratchspaces}/**",
	]),
	"verdict": "allow",
	"severity": "info",
}

# The directories on the way to caches, which are not there before the first run.
rules contains {
	"id": "files.cache-parents",
	"on": "file",
	"match": in_home([
		".local{,/share{,/pnpm}}",
		".config{,/go}",
		".bun{,/install}",
		".cargo",
		"go",
		".{m2,gradle,ivy2,sbt,nuget,gem,bundle,stack,cabal,hex,julia}",
	]),
	"access": ["create"],
	"verdict": "allow",
	"severity": "info",
}

# What small tools write of their own accord.
rules contains {
	"id": "files.tool-state",
	"on": "file",
	"match": in_home([
		".{lesshst,viminfo,wget-hsts,sudo_as_admin_successful}*",
		".viminf*.tmp",
		".local/state{,/nvim}",
		".local/state/nvim/*log",
		".local/state/{less,nvim/{shada,swap,undo,backup}}/**",
		".config/{procps,htop/**}",
	]),
	"verdict": "allow",
	"severity": "info",
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

# An agent keeps its sessions, its logs and its login; its settings are denied in agents.rego.
rules contains {
	"id": "files.agent-state",
	"on": "file",
	"match": in_home(own_state),
	"verdict": "allow",
	"severity": "info",
} if {
	count(own_state) > 0
}

own_state := [path | some name, agent in agents; is_own(name); some path in agent.state]
