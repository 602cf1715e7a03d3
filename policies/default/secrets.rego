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
		".gnupg/**",
		".password-store/**",
		".local/share/{gopass,keyrings,kwalletd}/**",
		".config/{1Password,op,Bitwarden,Bitwarden CLI,keepassxc,KeePass}/**",
		".1password/**",
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
		".config/{doctl,hcloud,scw,linode-cli,exoscale,rclone,helm}/**",
		".kube/**",
		".minikube/{certs,profiles}/**",
		".fly/**",
		".cloudflared/**",
		".config/{.wrangler,netlify,configstore}/**",
		".local/share/com.vercel.cli/**",
		".terraformrc",
		".terraform.d/credentials.tfrc.json",
		".pulumi/credentials.json",
		".databrickscfg",
		".{snowflake,snowsql}/**",
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
		".git-credentials",
		".config/git/credentials",
		".config/gh/hosts.yml",
		".config/{hub,glab-cli,tea}/**",
		".pypirc",
		".cargo/credentials{,.toml}",
		".gem/credentials",
		".nuget/NuGet/NuGet.Config",
		".{composer,config/composer}/auth.json",
		".docker/config.json",
		".config/containers/auth.json",
		".{cache,config}/huggingface/{token,stored_tokens}",
		".huggingface/token",
		".kaggle/**",
		".vault-token",
		".pgpass",
		".my.cnf",
		".mylogin.cnf",
		".subversion/auth/**",
		".config/hcp/**",
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
		".config/pip/pip.conf",
		".pip/pip.conf",
		".m2/settings.xml",
		".gradle/gradle.properties",
	]),
	"access": ["read"],
	"verdict": "audit",
	"severity": "low",
	"reason": "a package manager's settings may hold a token",
}

rules contains {
	"id": "secrets.personal",
	"on": "file",
	"match": in_homes([
		".mozilla/**",
		".thunderbird/**",
		".config/{google-chrome,chromium,microsoft-edge,vivaldi,opera}*/**",
		".config/BraveSoftware/**",
		"snap/{firefox,chromium,thunderbird}/**",
		".var/app/*/{.mozilla,config,data}/**",
		".config/{Signal,Slack,discord,Element}/**",
		".local/share/{TelegramDesktop,evolution,geary}/**",
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
		".{bash,zsh,ash,sh,ksh,python,node_repl,psql,mysql,sqlite,rediscli,irb,php}_history*",
		".{histfile,zhistory}",
		".local/share/fish/fish_history*",
		".local/state/{bash,zsh,python}/history*",
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
		"/etc/{krb5.keytab,ipsec.secrets}",
		"/etc/ppp/*-secrets",
		"/etc/{kubernetes,rancher}/**",
		"/var/lib/{kubelet,rancher}/**",
		"{/run,/var/run}/secrets/**",
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
