# Whom an agent may contact. Addresses are all that a rule can name; they say who answers, and of a
# content delivery network everyone who is behind it. What can leave through them is why secrets are
# unreadable in the first place.
package opensafe.sandbox

rules contains {
	"id": "net.loopback",
	"on": "connect",
	"match": loopback,
	"verdict": "allow",
	"severity": "info",
}

# `0.0.0.0` and `::` lead to this machine, too.
loopback := ["127.0.0.0/8", "::1", "0.0.0.0", "::"]

# Loopback is for the agent's own servers, not for those that control the machine.
rules contains {
	"id": "net.control",
	"on": "connect",
	"match": loopback,
	"ports": [
		22, # SSH
		"2375-2377", # Docker
		"5900-5983", # VNC; 5984 is CouchDB's
		"5985-5999",
		"6000-6005", # X, and from 6010 on what ssh -X forwards; 6006 is Storybook's and TensorBoard's
		"6007-6063",
		6443, # Kubernetes
		"10250-10259", # Kubernetes' node
	],
	"verdict": "deny",
	"severity": "high",
	"reason": "this machine's own controls are not for agents",
}

# Name servers are wherever the host's resolv.conf says. A name can carry some bytes out: with a
# resolver on loopback, narrow this to it.
rules contains {
	"id": "net.dns",
	"on": "connect",
	"match": "*",
	"ports": [53],
	"verdict": "allow",
	"severity": "info",
}

# Name servers often have private or link-local addresses, so port 53 is decided above.
all_ports_but_dns := ["1-52", "54-65535"]

private_networks := [
	"10.0.0.0/8", # RFC 1918
	"172.16.0.0/12", # RFC 1918
	"192.168.0.0/16", # RFC 1918
	"100.64.0.0/10", # RFC 6598, carrier-grade NAT
	"169.254.0.0/16", # RFC 3927, link-local
	"192.0.0.0/24", # RFC 6890
	"198.18.0.0/15", # RFC 2544
	"224.0.0.0/4", # RFC 5771, multicast
	"240.0.0.0/4", # RFC 1112, and the broadcast address
	"fc00::/7", # RFC 4193
	"fe80::/10", # RFC 4291, link-local
	"fec0::/10", # RFC 3879
	"ff00::/8", # RFC 4291, multicast
]

metadata_services := [
	"169.254.169.254", # AWS, Azure, Google Cloud, OpenStack, DigitalOcean, Oracle
	"169.254.170.2", # AWS ECS task credentials
	"169.254.170.23", # AWS EKS pod identity
	"100.100.100.200", # Alibaba Cloud
	"168.63.129.16", # Azure's host agent
	"192.0.0.192", # Oracle Cloud, older
	"fd00:ec2::254", # AWS
	"fd00:ec2::23", # AWS EKS pod identity
	"fd20:ce::254", # Google Cloud
]

rules contains {
	"id": "net.metadata",
	"on": "connect",
	"match": metadata_services,
	"ports": all_ports_but_dns,
	"verdict": "deny",
	"severity": "critical",
	"reason": "cloud credentials are not for agents",
}

rules contains {
	"id": "net.private",
	"on": "connect",
	"match": private_networks,
	"ports": all_ports_but_dns,
	"verdict": "deny",
	"severity": "high",
	"reason": "the network around this machine is not for agents",
}

# What has no ports is in no range of them.
rules contains {
	"id": "net.private-ping",
	"on": "connect",
	"match": array.concat(private_networks, metadata_services),
	"protocol": "icmp",
	"verdict": "deny",
	"severity": "high",
	"reason": "the network around this machine is not for agents",
}

# PyPI (pypi.org, files.pythonhosted.org), crates.io (index.crates.io, static.crates.io), RubyGems, Maven
# Central and Debian's mirror are served by Fastly. Its list: https://api.fastly.com/public-ip-list
fastly := [
	"23.235.32.0/20",
	"43.249.72.0/22",
	"103.244.50.0/24",
	"103.245.222.0/23",
	"103.245.224.0/24",
	"104.156.80.0/20",
	"140.248.64.0/18",
	"140.248.128.0/17",
	"146.75.0.0/17",
	"151.101.0.0/16",
	"157.52.64.0/18",
	"167.82.0.0/17",
	"167.82.128.0/20",
	"167.82.160.0/20",
	"167.82.224.0/20",
	"172.111.64.0/18",
	"185.31.16.0/22",
	"199.27.72.0/21",
	"199.232.0.0/16",
	"2a04:4e40::/32",
	"2a04:4e42::/32",
]

# npm and Yarn (registry.npmjs.org, registry.yarnpkg.com) are served by Cloudflare, from these of its
# blocks (seen in answers to look-ups). Its list: https://www.cloudflare.com/ips/
npm := [
	"104.16.0.0/19",
	"2606:4700::6810:0/115",
]

rules contains {
	"id": "net.registries",
	"on": "connect",
	"match": array.concat(fastly, npm),
	"ports": [443],
	"protocol": "tcp",
	"verdict": "allow",
	"severity": "info",
}

# Models whose addresses are published. For another one, or a gateway, add a rule of your own.
models := {
	# https://docs.claude.com/en/api/ip-addresses
	"claude": ["160.79.104.0/23", "2607:6bc0::/48"],
}

rules contains {
	"id": "net.model",
	"on": "connect",
	"match": own_models,
	"ports": [443],
	"protocol": "tcp",
	"verdict": "allow",
	"severity": "info",
} if {
	count(own_models) > 0
}

own_models := [network | some name, networks in models; is_own(name); some network in networks]
