package opensafe.response_test

import data.opensafe.response

by_id(id) := found if {
	some found in response.responses
	found.id == id
}

test_what_is_critical_is_an_alert if {
	by_id("critical").do == "alert"
	by_id("critical").on.severity == "critical"
	by_id("critical").on.verdict == "deny"
}

test_a_search_for_secrets_is_on_record if {
	by_id("secrets").do == "note"
	by_id("secrets").on.rule == "secrets.*"
	by_id("secrets").threshold.count == 10
}

# A person decides whether an agent is stopped.
test_nothing_is_frozen_or_killed if {
	every found in response.responses { found.do in {"note", "alert"} }
}

test_nobody_outside_is_told if {
	every found in response.responses {
		not found.command
		not found.webhook
	}
}
