package opensafe.sandbox_test

test_no_program_that_gains_rights if {
	some match in matched("exec.privilege")
	startswith(match, "{/usr/local,/usr,}/{bin,sbin}/{sudo,")
	contains(match, ",su,")
	contains(match, ",pkexec,")
}

test_nothing_is_left_to_run_later if {
	rule("exec.later").verdict == "deny"
	some match in matched("exec.later")
	contains(match, "crontab")
}
