# What stays outside the sandbox, whoever may read it otherwise.
package opensafe.sandbox

rules contains {
	"id": "secrets.ssh",
	"on": "file",
	"match": array.concat(in_homes([".ssh/**"]), ["/etc/ssh/ssh_host_*_key"]),
	"verdict": "deny",
	"severity": "high",
	"reason": "SSH keys stay outside the sandbox",
}

rules contains {
	"id": "secrets.keyrings",
	"on": "file",
	"match": in_homes([
		".{,config/,local/share/}{gnupg,password-store,keybase}/**",
		".local/share/{gopass,keyrings,kwalletd}/**",
		".config/{1Password,op,Bitwarden,Bitwarden CLI,keepassxc,KeePass,Enpass,gopass,kwalletd}/**",
		".{1password,op,lpass,age,passage,minisign,sigstore,authy}/**",
		".config/{sops,age,rbw,lpass,borg,restic,rustic,kopia,duplicacy,rclone,totp-cli,chezmoi}/**",
		".config/{Proton,protonvpn,mullvad,nordvpn,wireguard}/**",
		".config/JetBrains/*/c.{kdbx,pwd}",
		".local/share/{lpass,rbw,keepassxc,borg,restic}/**",
		".{restic-password,smbcredentials}",
		".pki/**",
		".cache/git/credential/**",
		".git-credential-cache/**",
	]),
	"verdict": "deny",
	"severity": "high",
	"reason": "keyrings and password stores stay outside the sandbox",
}

rules contains {
	"id": "secrets.cloud",
	"on": "file",
	"match": in_homes([
		".aws/**",
		".azure/**",
		".config/gcloud/**",
		".boto",
		".s3cfg",
		".oci/**",
		".aliyun/**",
		".bluemix/**",
		".config/{doctl,hcloud,scw,linode-cli,exoscale,helm,argocd,vultr-cli,civo,openstack,ovhcloud,eksctl}/**",
		".config/{flyctl,fly,railway,render,heroku,vercel,supabase,stripe,neonctl,turso,sentry,doppler,infisical}/**",
		".{civo.json,linode-cli,vultr-cli.yaml,openstack,ovh.conf,exoscale,yandex/config,upcloud}{,/**}",
		".config/{gsutil,oci,aws,azure,ngrok,cloudflared,tailscale,teleport,boundary,waypoint,consul}/**",
		".{argocd,step,tsh,teleconsole,ngrok2,railway,supabase,vercel,netlify,now,doppler,infisical,stripe,sentryclirc}{,/**}",
		".{ibmcloud,cf,saml2aws,aws-sso,aws-vault,awsume,acme.sh,lego,zerotier,okta,vault}{,/**}",
		".{passwd-s3fs,mc/config.json,rclone.conf,chef,puppetlabs/etc/puppet/ssl}{,/**}",
		".local/share/{supabase,heroku,fly,flyctl,doctl,railway,turso}/**",
		".{config/,}k9s/clusters/**",
		".{,config/}kube/**",
		".minikube/{certs,profiles}/**",
		".fly/**",
		".cloudflared/**",
		".config/{.wrangler,netlify,configstore}/**",
		".local/share/com.vercel.cli/**",
		".{terraformrc,tofurc}",
		".terraform.d/{*.tfrc.json,*.tfrc}",
		".config/opentofu/credentials.tfrc.json",
		".pulumi/{credentials.json,config.json}",
		".databrickscfg",
		".{snowflake,snowsql}/**",
		".config/{snowflake,databricks}/**",
	]),
	"verdict": "deny",
	"severity": "high",
	"reason": "cloud credentials are not for agents",
}

rules contains {
	"id": "secrets.tokens",
	"on": "file",
	"match": in_homes([
		".netrc",
		"_netrc",
		".{authinfo,authinfo.gpg,netrc.gpg,fetchmailrc,msmtprc,mbsyncrc,offlineimaprc}",
		".git-credentials",
		".config/git/credentials",
		".config/gh/hosts.yml",
		".config/{hub,hub/**,glab-cli/**,tea/**,berg/**,gitea/**,lab/**,msmtp/**,isyncrc}",
		".pypirc",
		".config/pypoetry/auth.toml",
		".local/share/uv/credentials/*.toml",
		".{,config/,local/share/}cargo/credentials{,.toml}",
		".gem/credentials",
		".local/share/gem/credentials",
		".{nuget,config}/NuGet/NuGet.Config",
		".{composer,config/composer}/auth.json",
		".{,config/}docker/{config.json,.token_seed,contexts/tls/**,trust/**}",
		".config/containers/auth.json",
		".local/share/{cosign,sigstore}/**",
		".m2/settings-security.xml",
		".ivy2/.credentials",
		".sbt/{.credentials,*/credentials.sbt,*/sonatype.sbt}",
		".lein/credentials.clj.gpg",
		".{hex/hex.config,hackage,cabal/credentials}",
		".config/{rubygems/**,anaconda/**,dart/pub-tokens.json,io.datasette.llm/keys.json,shell_gpt/.sgptrc}",
		".continuum/**",
		".config/{kaggle,openai,anthropic,replicate,modal,runpod,lightning,mlflow}/**",
		".{modal.toml,runpod,replicate,openai,anthropic,lightning,comet.config,neptune,mlflow/credentials}{,/**}",
		".{jira.d,config/.jira,config/jira-cli,config/linear,config/todoist,config/rtv,config/slack-term}{,/**}",
		".config/{circleci,travis,buildkite,snyk,gitlab-runner,drone}{,/**}",
		".{circleci/cli.yml,travis/config.yml,gitlab-runner/config.toml,snyk}",
		".{cache,config}/huggingface/{token,stored_tokens}",
		".huggingface/token",
		".kaggle/**",
		".vault-token",
		".{pgpass,pg_service.conf,my.cnf,mylogin.cnf,dbshell,mongorc.js,rediscli_auth,cqlshrc,cassandra}{,/**}",
		".{mongodb,config}/mongosh/**",
		".config/{pgcli,mycli,litecli,usql}/**",
		".local/share/{DBeaverData,beekeeper-studio,azuredatastudio}/**",
		".config/{beekeeper-studio,TablePlus}/**",
		".subversion/auth/**",
		".config/{hcp,Postman,Insomnia,httpie,tmate,gcalcli,llm}/**",
		".{wakatime.cfg,android/adbkey,ollama/id_ed25519,expo/state.json,vagrant.d/data,ipfs}/**",
	]),
	"verdict": "deny",
	"severity": "high",
	"reason": "access tokens stay outside the sandbox",
}

# Package managers cannot do without these; a token in one of them is a token that the sandbox has.
rules contains {
	"id": "secrets.package-settings",
	"on": "file",
	"match": in_homes([
		".npmrc",
		".yarnrc{,.yml}",
		".config/{pip/pip.conf,npm/npmrc,nix/nix.conf}",
		".pip/pip.conf",
		".m2/settings.xml",
		".gradle/gradle.properties",
	]),
	"access": ["read"],
	"verdict": "audit",
	"severity": "low",
	"reason": "a package manager's settings may hold a token",
}

# Who has the password of a server on loopback that runs commands has them run, as whoever started it.
rules contains {
	"id": "secrets.services",
	"on": "file",
	"match": in_homes([
		".config/{code-server,syncthing,rustdesk,transmission-daemon,deluge,qBittorrent,obs-studio,sunshine,kdeconnect}/**",
		".local/state/syncthing/**",
		".{emacs.d,config/emacs}/server/**",
		".{vscode,cursor,windsurf}-server/{.*.token,data/User/globalStorage/**}",
		".config/{Code*,Cursor,VSCodium*,Windsurf*,Positron,Trae,Kiro,Antigravity}/User/globalStorage/**",
	]),
	"verdict": "deny",
	"severity": "high",
	"reason": "servers and editors outside would run commands for the sandbox",
}

# Who has a display's cookie sees and types what others do, over any connection to it.
rules contains {
	"id": "secrets.display",
	"on": "file",
	"match": array.concat(
		in_homes([".{Xauthority,ICEauthority,serverauth.*,xauth*}", ".vnc/**", ".config/tigervnc/**"]),
		[
			"{/tmp,/var/tmp}/{xauth*,.Xauth*,.xauth*,serverauth.*}",
			"/run/user/*/{xauth*,.mutter-Xwaylandauth.*,ICEauthority,Xauthority,gdm/**}",
			"{/run,/var/run}/{gdm,gdm3,lightdm,sddm,lxdm,xauth}/**",
		],
	),
	"verdict": "deny",
	"severity": "high",
	"reason": "a display lets its clients see and type what others do",
}

rules contains {
	"id": "secrets.personal",
	"on": "file",
	"match": in_homes([
		".mozilla/**",
		".{thunderbird,librewolf,waterfox,zen,floorp,icedove,mozilla-thunderbird,palemoon}/**",
		".config/{google-chrome,chromium,microsoft-edge,vivaldi,opera,yandex-browser,thorium,ungoogled-chromium}*/**",
		".cache/{mozilla,thunderbird,librewolf,waterfox,zen,floorp,BraveSoftware,google-chrome,chromium,microsoft-edge}*/**",
		".cache/{vivaldi,opera,yandex-browser,thorium,qutebrowser,epiphany,falkon,evolution,geary,kmail2}*/**",
		".local/share/{qutebrowser,epiphany,torbrowser,tor-browser}/**",
		".config/{mozilla,librewolf,zen,arc,falkon,qutebrowser}/**",
		".{claws-mail,mutt,sylpheed-2.0,neomutt,weechat,irssi,purple,signal}/**",
		".config/{evolution,mutt,neomutt,aerc,himalaya,weechat,hexchat,goa-1.0,Mailspring,BetterBird}/**",
		".config/BraveSoftware/**",
		"snap/{firefox,chromium,thunderbird}/**",
		".var/app/*/{.mozilla,config,data}/**",
		".config/{Signal,Slack,discord,Element,Element-Nightly,teams,teams-for-linux,zoomus.conf,zoom.conf,Skype}{,/**}",
		".config/{Microsoft/Microsoft Teams,Mattermost,rambox,Ferdium,Beeper,WhatsApp,Wire,Session,vesktop,Zulip,Franz,Notion}/**",
		".local/share/{TelegramDesktop,evolution,geary,signal-cli,weechat,fractal,nheko,telegram-desktop,kmail2}/**",
		".{zoom,Skype,telegram-cli,dbvis,filezilla,config/filezilla,config/remmina,local/share/remmina,putty}/**",
	]),
	"verdict": "deny",
	"severity": "high",
	"reason": "browser profiles, mail and messages stay outside the sandbox",
}

rules contains {
	"id": "secrets.wallets",
	"on": "file",
	"match": in_homes([
		".{bitcoin,ethereum,electrum,monero,lnd,litecoin,dogecoin,zcash,sui,aptos}/**",
		".config/{solana,Exodus,Ledger Live,Electrum}/**",
		".foundry/keystores/**",
	]),
	"verdict": "deny",
	"severity": "critical",
	"reason": "wallets stay outside the sandbox",
}

rules contains {
	"id": "secrets.history",
	"on": "file",
	"match": in_homes([
		".{bash,zsh,ash,sh,ksh,python,node_repl,psql,mysql,mariadb,sqlite,rediscli,irb,php,pry,usql,influx,lua,scala,ts_node_repl}_history*",
		".{pry_history,irb-history,dbshell,mycli-history,mongosh_history,duckdb_history,Rhistory}*",
		".{histfile,zhistory}",
		".{config,local/share}/{fish/fish_history,zsh/.zsh_history,zsh/history,nushell/history.txt,nushell/history.sqlite3}*",
		".local/{share,state}/{bash,zsh,python,psql,mysql,sqlite,node}/history*",
		".local/share/powershell/PSReadLine/**",
		".{,local/share/}ipython/profile_*/history.sqlite*",
		".local/share/{atuin,mcfly}/**",
	]),
	"verdict": "deny",
	"severity": "medium",
	"reason": "what people typed may hold secrets; unset HISTFILE to have no history at all",
}

rules contains {
	"id": "secrets.system",
	"on": "file",
	"match": [
		"/etc/{shadow,gshadow}{,-}",
		"/etc/sudoers",
		"/etc/sudoers.d/**",
		"/etc/security/opasswd",
		"/etc/ssl/private/**",
		"/etc/letsencrypt/{live,archive,accounts,keys}/**",
		"/etc/{wireguard,openvpn,wpa_supplicant}/**",
		"/etc/NetworkManager/system-connections/**",
		"/etc/{krb5.keytab,ipsec.secrets,rndc.key,bind/rndc.key}",
		"{/tmp,/var/tmp}/krb5cc*/**",
		"/etc/ppp/*-secrets",
		"/etc/{kubernetes,rancher,tailscale,zerotier-one,cloudflared,vault.d,consul.d,nomad.d,teleport}/**",
		"/etc/{msmtprc,exim4/passwd.client,mysql/debian.cnf,sssd/sssd.conf,boto.cfg,netrc,smbcredentials}",
		"/etc/{rclone,restic,borgmatic,sasldb2,postfix/sasl_passwd,cups/ssl,pki/tls/private}{,/**}",
		"/var/lib/{NetworkManager,tailscale,iwd,bluetooth,sss/secrets,sss/db,teleport,vault,krb5kdc,cloud}/**",
		"{/run,/var/run}/{cloud-init/instance-data-sensitive.json,cloud-init/combined-cloud-config.json}",
		"/var/lib/{kubelet,rancher}/**",
		"{/run,/var/run}/{secrets*,agenix*,credentials}/**",
		"/run/user/*/{krb5cc*,secrets*,agenix*,gvfs,doc,containers/auth.json}/**",
	],
	"verdict": "deny",
	"severity": "high",
	"reason": "the system's own secrets stay outside the sandbox",
}

rules contains {
	"id": "secrets.memory",
	"on": "file",
	"match": ["/proc/*/mem", "/proc/*/task/*/mem", "/proc/{kcore,kmsg}"],
	"verdict": "deny",
	"severity": "high",
	"reason": "other processes' memory stays outside the sandbox",
}

# `ps aux` reads every process's environment. Of those outside the default for `ptrace` denies it; that of
# the sandbox's own cannot be denied by its name, for whose it is does not show there.
rules contains {
	"id": "secrets.environment",
	"on": "file",
	"match": ["/proc/*/environ", "/proc/*/task/*/environ"],
	"access": ["read"],
	"verdict": "audit",
	"severity": "medium",
	"reason": "a process's environment may hold secrets",
}
