package opensafe.sandbox_test

test_metadata_services_are_denied if {
	denies("net.metadata", "169.254.169.254")
	denies("net.metadata", "fd00:ec2::254")
	rule("net.metadata").severity == "critical"
}

test_private_networks_are_denied if {
	some network in ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]
	denies("net.private", network)
}

test_name_servers_may_be_anywhere if {
	every id in ["net.metadata", "net.private"] {
		rule(id).ports == ["1-52", "54-65535"]
	}
}

test_the_internet_is_open if {
	every protocol in ["tcp", "udp", "icmp"] {
		found := rule(sprintf("net.public-%s", [protocol]))
		found.match == "*"
		found.protocol == protocol
	}
}

# Without a protocol `*` would be every Unix socket, too.
test_no_rule_is_about_everyone if {
	every found in rules {
		not is_about_everyone(found)
	}
}

is_about_everyone(found) if {
	found.match == "*"
	not found.protocol
	not found.ports
}

test_servers_are_for_this_machine_alone if {
	allows("bind.loopback", "127.0.0.0/8")
	allows("bind.loopback", "::1")
	not rule("bind.loopback").ports
	denies("bind.public", "0.0.0.0")
	denies("bind.public", "::")
	not rule("bind.public").protocol
}

# Port 0 is in no range.
test_a_client_may_have_the_kernel_choose_its_port if {
	rule("bind.public").ports == ["1-65535"]
	allows("bind.udp-client", "0.0.0.0")
	rule("bind.udp-client").protocol == "udp"
	not rule("bind.udp-client").ports
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
