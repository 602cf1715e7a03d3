package opensafe.sandbox_test

import data.opensafe.sandbox

test_metadata_services_are_denied if {
	denies("net.metadata", "169.254.169.254")
	denies("net.metadata", "fd00:ec2::254")
	rule("net.metadata").severity == "critical"
}

test_private_networks_are_denied if {
	every network in ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"] {
		denies("net.private", network)
	}
}

test_loopback_is_allowed if {
	allows("net.loopback", "127.0.0.0/8")
	allows("net.loopback", "::1")
	not rule("net.loopback").ports
}

test_registries_are_allowed_for_https_alone if {
	allows("net.registries", "151.101.0.0/16")
	rule("net.registries").ports == [443]
	rule("net.registries").protocol == "tcp"
}

test_nobody_else_is_allowed if {
	allowed := {found.id | some found in rules; found.on == "connect"; found.verdict == "allow"}
	allowed == {
		"net.loopback",
		"net.dns",
		"net.registries",
		"sockets.names",
		"sockets.databases",
		"sockets.own",
	}
}

test_an_agent_reaches_its_own_model if {
	not rule("net.model")
	found := sandbox.rules with input as object.union(example, {"agent": "claude"})
	"net.model" in {each.id | some each in found}
}

# A rule with ports is not about ICMP.
test_private_networks_are_denied_for_what_has_no_ports if {
	rule("net.private-ping").protocol == "icmp"
	not rule("net.private-ping").ports
	every id in ["net.private", "net.metadata"] {
		every network in matched(id) {
			denies("net.private-ping", network)
		}
	}
}

test_displays_on_loopback_are_denied if {
	every ports in ["5900-5983", "6000-6005", "6007-6063"] {
		ports in rule("net.control").ports
	}
}
