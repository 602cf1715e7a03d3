package opensafe.sandbox_test

import data.opensafe.sandbox

test_reading_is_free_but_for_devices if {
	rule("files.read").access == ["read"]
	"/[!d]*/**" in matched("files.read")
	not "/**" in matched("files.read")
}

test_device_files_stay_as_they_are if {
	denies("files.device-nodes", "/dev")
	not "write" in rule("files.device-nodes").access
}

test_the_workspace_is_writable if allows("files.workspace", "/home/me/work/**")

test_the_home_directory_is_writable if allows("files.home", "/home/me/**")

# A home directory of `/` is the whole system.
test_a_root_for_a_home_is_not_writable if {
	found := sandbox.rules with input as object.union(example, {"home": ""})
	not "files.home" in {each.id | some each in found}
}
