# Whom a program may contact: the internet and this machine, not the network around it.
package opensafe.sandbox

# Name servers often have private or link-local addresses, so port 53 is decided by itself.
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

# Loopback is for the program's own servers, not for those that control the machine.
rules contains {
	"id": "net.control",
	"on": "connect",
	"match": ["127.0.0.0/8", "::1", "0.0.0.0", "::"],
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

# Port 0 is nobody's, and in no range that could be denied above. (UDP to it is not sent.)
rules contains {
	"id": "net.public-tcp",
	"on": "connect",
	"match": "*",
	"ports": ["1-65535"],
	"protocol": "tcp",
	"verdict": "allow",
	"severity": "info",
}

rules contains {
	"id": "net.public-udp",
	"on": "connect",
	"match": "*",
	"protocol": "udp",
	"verdict": "allow",
	"severity": "info",
}

rules contains {
	"id": "net.public-icmp",
	"on": "connect",
	"match": "*",
	"protocol": "icmp",
	"verdict": "allow",
	"severity": "info",
}

# Servers are for this machine alone.
rules contains {
	"id": "bind.loopback",
	"on": "bind",
	"match": ["127.0.0.0/8", "::1"],
	"verdict": "allow",
	"severity": "info",
}

rules contains {
	"id": "bind.public",
	"on": "bind",
	"match": ["0.0.0.0", "::"],
	"ports": ["1-65535"],
	"verdict": "deny",
	"severity": "medium",
	"reason": "the network around this machine would reach it; bind to 127.0.0.1 or ::1",
}

# Resolvers and QUIC clients bind to no address and no port, so that the kernel chooses both. That is port
# 0, which is in no range of ports: this rule is left with it.
rules contains {
	"id": "bind.udp-client",
	"on": "bind",
	"match": ["0.0.0.0", "::"],
	"protocol": "udp",
	"verdict": "allow",
	"severity": "info",
}

# Nobody can contact it there.
rules contains {
	"id": "bind.ping",
	"on": "bind",
	"match": "*",
	"protocol": "icmp",
	"verdict": "allow",
	"severity": "info",
}
