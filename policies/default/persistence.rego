# What others run or trust: writing it would be acting for them, later, outside the sandbox.
package opensafe.sandbox

# Shells and their themes, plugins and completions keep under .cache what they source and run at the next
# start.
rules contains {
	"id": "persist.shell",
	"on": "file",
	"match": in_homes([
		".bash{rc,_profile,_login,_logout,_aliases,_completion}",
		".{bashrc.d,bash.d,bash_it,bash-it,bash_completion.d,oh-my-bash,profile.d,fzf}/**",
		".fzf.{bash,zsh,fish}",
		".{profile,login,logout,inputrc,kshrc,mkshrc,cshrc,tcshrc}",
		".z{shrc,shenv,profile,login,logout}",
		".{p10k.zsh,zcompdump*}",
		".{oh-my-zsh,zsh,zsh.d,zshrc.d,zprezto,zplug,zinit,zi,zgen,zgenom,znap,zim,antigen,antidote,zfunc}/**",
		".config/{fish,zsh,bash,nushell,elvish,xonsh,powershell,omf,fzf,environment.d,direnv,sheldon,oh-my-posh,broot}/**",
		".config/{starship.toml,user-dirs.dirs,xonshrc}",
		".local/share/{bash-completion,zsh,fish,omf,nushell,zinit,zap,sheldon,antidote,blesh,powershell,xonsh,ble.sh}/**",
		".{elvish,xonshrc,antigenrc,zplugrc}",
		".direnvrc",
		".cache/{zsh*,zcompdump*,oh-my-zsh,prezto,antidote,antibody,fish,blesh,wal,sheldon,zinit,zplug,zgen*,znap}/**",
		".cache/{antigen,bash*,direnv,p10k-*,gitstatus}/**",
		".cache/{starship,carapace,zoxide,oh-my-posh,atuin,mise,fzf}/init.*",
		".{virtualenvs,local/share/virtualenvs}/{initialize,get_env_details,{pre,post}{activate,deactivate,mk*,rm*,cp*}}",
		".{xprofile,xinitrc,xsession,xsessionrc,xserverrc,pam_environment,Xresources,Xdefaults,xbindkeysrc,dmrc}",
		".{nvm,sdkman,asdf,rvm}/**",
		".{ghcup,opam/opam-init,volta,elan,juliaup,rye,moon,proto}/{env,load.sh,init.*,complete.*,env_hook.*,variables.*}",
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
		".local/share/{systemd,applications,dbus-1,gnome-shell,plasma,kwin,kservices5,kio,nautilus,nemo,cinnamon}/**",
		".local/share/{xsessions,wayland-sessions,flatpak,konsole,xfce4,file-manager}/**",
		".config/{sway,i3,i3status,i3blocks,hypr,niri,river,labwc,wayfire,bspwm,sxhkd,awesome,qtile,xmonad,openbox}/**",
		".config/{waybar,polybar,eww,rofi,wofi,dunst,mako,swaync,picom,conky,swaylock,swayidle,kanshi,xfce4,lxqt,cosmic}/**",
		".config/{dconf,lxsession,fluxbox,leftwm,herbstluftwm,spectrwm,dwm,espanso,autokey}/**",
		".config/{k*rc,mimeapps.list,gtk-*/settings.ini}",
		".config/pulse/*.{pa,conf}",
		".config/{pipewire,wireplumber}/**",
		".{xmonad,i3,sway,fluxbox,icewm,fvwm,awesome,dwm,conky}/**",
		".{i3status.conf,conkyrc,gtkrc-2.0,mailcap}",
		".cache/{xmonad,sessions,menus,plasma*,kscreenlocker*,krunner,kwin*}/**",
		".cache/{ksycoca,dmenu,rofi,tofi,wofi,fuzzel}*",
	]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "what starts by itself starts outside the sandbox",
}

# Under .cache: code that programs keep compiled or merged and load in place of its source (Vim, Neovim, Emacs,
# Guile, Lisp, Qt), lists of plugins to load (GStreamer, JetBrains), and what is built or linked from there (helpers of
# Arch Linux, Helm). Under .local/state: what Neovim trusts, and scripts that it sources.
rules contains {
	"id": "persist.settings",
	"on": "file",
	"match": in_homes([
		".gitconfig",
		".config/git/**",
		".{vimrc,gvimrc,exrc,emacs,emacs.el,nanorc,screenrc,tmux.conf}",
		".{vim,emacs.d,doom.d,spacemacs.d,tmux,byobu,kak,SpaceVim,SpaceVim.d}/**",
		".{spacemacs,tigrc,jjconfig.toml,hgrc,mailcap,lesskey,lessfilter,ansible.cfg,muttrc}",
		".config/{nvim,nvim-*,vim,emacs,doom,tmux,zellij,helix,zed,kak,micro,vis,lite-xl,lapce,geany,sublime-text*}/**",
		".config/{kitty,alacritty,wezterm,ghostty,foot,terminator,terminology,tilix,rio,contour,byobu}/**",
		".{alacritty.toml,alacritty.yml,wezterm.lua}",
		".config/{ranger,lf,nnn,yazi,vifm,mc,broot,bat,mpv,tig,lazygit,jj,hg,gh,gh-dash,k9s}/**",
		".local/share/{nvim,nvim-*,vim,emacs,tmux,helix,zed,mc,gh,code-server,JetBrains,lunarvim}/**",
		".cache/{nvim/luac,gstreamer-1.0,dein,vim,nvim-*/luac,emacs,guile,common-lisp}/**",
		".cache/{JetBrains,Google,yay,paru,pikaur,aurutils,helm/plugins}/**",
		".local/state/{nvim,nvim-*}/{trust,sessions,session,view,lazy}/**",
		".config/{Code*,Cursor,VSCodium*,Windsurf*,Positron,Trae,Kiro,Antigravity}/User/**",
		".config/{JetBrains,Google/AndroidStudio*}/**",
		".{vscode,cursor-server,windsurf,positron,trae,kiro}*/**",
		".{gdbinit,lldbinit,pdbrc,pythonrc,pythonrc.py,Rprofile,irbrc,pryrc,psqlrc,sqliterc}",
		".{ghci,ocamlinit,utoprc,guile,tclshrc,wishrc,sbclrc,octaverc,erlang,iex.exs,Renviron,pryrc,lldbinit-*,mongorc.js}",
		".config/{gdb,lldb,ghc,irb,pry,ptpython,bpython,utop,guile,rstudio,procps/toprc}/**",
		".ipython/profile_*/{startup/**,*config.py}",
		".jupyter/jupyter_*config.*",
		".local/share/jupyter/{kernels,labextensions,nbextensions}/**",
		".julia/config/**",
		".{npmrc,yarnrc,yarnrc.yml,pydistutils.cfg,condarc,curlrc,wgetrc,bazelrc,gemrc}",
		".{bunfig.toml,mavenrc,antrc,mambarc,tool-versions,buckconfig}",
		".config/{pip,containers,mise,uv,pypoetry,husky,pnpm,npm,bazel,ccache,sccache,distcc,go/env,ripgrep}{,/**}",
		".ccache/ccache.conf",
		".cache/ccache/ccache.conf",
		".bundle/{config,plugin/**}",
		".{ant,lein,clojure/tools,ansible/plugins,ansible/collections,krew,terraform.d/plugins,packer.d/plugins,vagrant.d/gems}/**",
		".{clojure/deps.edn,vagrant.d/Vagrantfile,vagrant.d/plugins.json}",
		".local/share/{helm,gem}/**",
		".sbt/{repositories,*/*.sbt,*/plugins/**}",
		".{cabal/config,stack/config.yaml,opam/config,composer/config.json,config/composer/config.json}",
		".pip/**",
		".cargo/{config,config.toml,env*}",
		".m2/{settings*,extensions,toolchains}.xml",
		".gradle/{gradle.properties,init.gradle,init.gradle.kts}",
		".gradle/init.d/**",
		".docker/{cli-plugins,contexts}/**",
	]),
	"access": ["write", "create"],
	"verdict": "deny",
	"severity": "high",
	"reason": "programs outside the sandbox read and run these settings",
}

# Every name but `store`: pnpm links programs beside the packages that it keeps.
no_store := "{[!s]*,s,s[!t]*,st,st[!o]*,sto,sto[!r]*,stor,stor[!e]*,store?*}"

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
			".local/{sbin,opt,libexec}/**",
			".local/lib/node_modules/**",
			".{node_modules,node_libraries,gem/ruby,luarocks}/**",
			"perl5/**",
			".{cargo,bun,deno,npm-global,dotnet/tools,yarn}/bin/**",
			".yarn/{releases,plugins,switch}/**",
			"go/bin/**",
			".{pyenv,rbenv,asdf,local/share/mise}/shims/**",
			".{pyenv,rbenv,nodenv,goenv,jenv,plenv,phpenv,tfenv,tgenv,jabba,gvm,phpbrew,perlbrew,ghcup,juliaup,kerl}/**",
			".local/share/{mise/installs,rtx/installs,fnm,aquaproj-aqua/bin,devbox,virtualfish,pypoetry/venv}/**",
			".{volta,rye,proto,moon,elan,pixi,krew,opam/*,composer/vendor,config/composer/vendor,poetry}/bin/**",
			".{volta/tools,rye/tools,rye/shims,rye/py,proto/tools,proto/shims,elan/toolchains,pixi/envs}/**",
			".{nimble,cabal,pub-cache,wasmer,wasmtime,foundry,pulumi,modular,daml,linuxbrew,jbang}/bin/**",
			".rustup/{settings.toml,toolchains/**}",
			".dotnet/{dotnet,sdk/**,host/**,shared/**}",
			".{local/state/nix/profiles,nix-profile,nix-defexpr,guix-profile,local/share/guix}/**",
			"{miniconda3,miniforge3,mambaforge,anaconda3}/{bin,condabin,etc,lib,shell}/**",
			".cache/{bazelisk,bazel/*/install}/**",
			".local/{pipx,share/pipx}/venvs/**",
			".local/share/uv/{tools,python/[!.]*}/**",
			".local/share/{hatch/pythons,pdm/python}/**",
			sprintf(".local/share/pnpm/%s/**", [no_store]),
			".config/yarn/global/**",
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
