# What is done about what an agent tries, beside denying it: somebody hears of it. Nothing is frozen or
# killed here; docs/policy.md has how.
package opensafe.response

responses contains {
	"id": "critical",
	"on": {"severity": "critical", "verdict": "deny"},
	"do": "alert",
	"repeat_after_s": 600,
	"reason": "no honest work needs this",
}

# Tools that look through a home directory meet one or two of them.
responses contains {
	"id": "secrets",
	"on": {"rule": "secrets.*", "verdict": "deny"},
	"do": "note",
	"threshold": {"count": 10, "within_s": 60},
	"repeat_after_s": 600,
	"reason": "many secrets were asked for",
}
