# What others run or trust: writing it would be acting for them, later, outside the sandbox.
package opensafe.sandbox

# Shells and their themes, plugins and completions keep under .cache what they source and run at the next
# start.
rules contains {
	"id": "persist.shell",
	"on": "file",
	"match": in_homes([
		".bash{rc,_profile,_login,_logout,_aliases,_completion}",
		".bashrc.d/**",
		".{profile,login,logout,inputrc,kshrc,mkshrc,cshrc,tcshrc}",
		".z{shrc,shenv,profile,login,logout}",
		".{p10k.zsh,zcompdump*}",
		".{oh-my-zsh,zsh,zsh.d}/**",
		".config/{fish,zsh,bash,nushell,environment.d,direnv}/**",
		".direnvrc",
		".cache/{zsh*,oh-my-zsh,prezto,antidote,antibody,fish,blesh,wal}/**",
		".cache/{p10k-*,gitstatus}/**",
		".cache/{starship,carapace,zoxide}/init.*",
		".{xprofile,xinitrc,xsession,xsessionrc,pam_environment}",
	]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "shell start-up files run outside the sandbox",
}

rules contains {
	"id": "persist.autostart",
	"on": "file",
	"match": in_homes([
		".config/{autostart,autostart-scripts,systemd,upstart}/**",
		".config/plasma-workspace/**",
		".local/share/{systemd,applications,dbus-1,gnome-shell}/**",
	]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "what starts by itself starts outside the sandbox",
}

# Under .cache: compiled start-up code of Neovim, and GStreamer's list of the plugins to load.
rules contains {
	"id": "persist.settings",
	"on": "file",
	"match": in_homes([
		".gitconfig",
		".config/git/**",
		".{vimrc,gvimrc,exrc,emacs,emacs.el,nanorc,screenrc,tmux.conf}",
		".{vim,emacs.d}/**",
		".config/{nvim,emacs,tmux,helix,zed}/**",
		".cache/{nvim/luac,gstreamer-1.0}/**",
		".config/Code*/User/**",
		".vscode*/**",
		".{gdbinit,lldbinit,pdbrc,pythonrc,pythonrc.py,Rprofile,irbrc,pryrc,psqlrc,sqliterc}",
		".config/gdb/**",
		".ipython/profile_*/startup/**",
		".{npmrc,yarnrc,yarnrc.yml,pydistutils.cfg,condarc,curlrc,wgetrc,bazelrc,gemrc}",
		".config/{pip,containers,mise,uv,pypoetry,husky}/**",
		".pip/**",
		".cargo/{config,config.toml,env}",
		".m2/settings*.xml",
		".gradle/{gradle.properties,init.gradle,init.gradle.kts}",
		".gradle/init.d/**",
		".docker/{cli-plugins,contexts}/**",
	]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "programs outside the sandbox read and run these settings",
}

# Also what a program on PATH links to, as of yarn, pnpm, uv and pipx. In a workspace that is the home
# directory itself, `bin` is the project's.
rules contains {
	"id": "persist.programs",
	"on": "file",
	"match": [sprintf("%s/%s", [input.home, name]) |
		some name in [
			"bin/**",
			".local/bin/**",
			".local/lib/python*/**",
			".{cargo,bun,deno,npm-global,dotnet/tools,yarn}/bin/**",
			"go/bin/**",
			".{pyenv,rbenv,asdf,local/share/mise}/shims/**",
			".local/{pipx,share/pipx}/venvs/**",
			".local/share/uv/{tools,python/[!.]*}/**",
			".local/share/pnpm/*",
			".local/share/pnpm/{bin,global}/**",
			".config/yarn/global/**",
			".cache/JetBrains/RemoteDev/**",
		]
	],
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "programs on the user's PATH run outside the sandbox; install into the workspace or a virtual environment",
} if {
	input.workspace != input.home
}

rules contains {
	"id": "persist.system",
	"on": "file",
	"match": [
		"/etc/{crontab,anacrontab,profile,bash.bashrc,zshrc,zshenv,environment,rc.local,passwd,group,hosts,fstab}",
		"/etc/{cron.*,profile.d,zsh,systemd,init.d,pam.d,security,ld.so.conf.d,udev,modprobe.d,modules-load.d,xdg}/**",
		"/etc/ld.so.{preload,conf,cache}",
		"/var/spool/{cron,at,anacron}/**",
		"{/usr,}/lib/{systemd,udev}/**",
		"/boot/**",
	],
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "the system starts these outside the sandbox",
}

rules contains {
	"id": "persist.records",
	"on": "file",
	"match": array.concat(
		in_homes([".local/state/opensafe/**"]),
		["/var/{lib,log}/opensafe/**", "/run/opensafe/**", "/etc/opensafe/**"],
	),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "critical",
	"reason": "records and policies are not for those whom they are about",
}
