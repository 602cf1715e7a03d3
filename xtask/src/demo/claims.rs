//! What the demo says, and whether it is true.

use super::story::{Session, Step, Story};

/// Something that the demo says.
pub(crate) struct Claim {
    /// In words.
    pub(crate) says: String,
    /// What speaks against it.
    pub(crate) against: Vec<String>,
}

impl Claim {
    pub(crate) fn holds(&self) -> bool {
        self.against.is_empty()
    }
}

/// Everything that it says about both sessions.
pub(crate) fn claims(story: &Story) -> Vec<Claim> {
    let Story { honest, astray } = story;
    let mut all = vec![
        claim("nothing that the honest session does is denied", || {
            let denials = honest.denials();
            denials
                .map(|denial| {
                    format!(
                        "{} {}: rule {}",
                        denial.operation, denial.object, denial.rule
                    )
                })
                .collect()
        }),
        claim("each call of the honest session ends as it should", || {
            honest.steps.iter().filter_map(unexpected).collect()
        }),
        claim("the honest session's work is done", || undone(honest)),
        claim("the misled session's other work goes on", || {
            let own = astray.steps.iter().filter(|step| !step.call.astray);
            let mut against: Vec<String> = own
                .flat_map(|step| {
                    let denied = step.denials.iter();
                    let denied = denied.map(|denial| {
                        format!(
                            "{}: denied {} {}",
                            step.call.why, denial.operation, denial.object
                        )
                    });
                    denied.chain(unexpected(step))
                })
                .collect();
            against.extend(undone(astray));
            against
        }),
        claim("what the misled session was after is as it was", || {
            let after = &astray.after;
            let found = [
                (after.secret_seen, "it saw a secret"),
                (after.hook, "there is a commit hook"),
                (after.start_up_file_changed, "a start-up file changed"),
                (
                    astray.total("opensafe.count.connect.allow") != Some(0),
                    "it contacted somebody",
                ),
            ];
            let found = found.iter().filter(|(there, _)| *there);
            found.map(|(_, what)| (*what).to_owned()).collect()
        }),
    ];
    let attempts = astray.steps.iter().filter(|step| step.call.astray);
    all.extend(attempts.map(|step| {
        claim(
            &format!("denied: the misled session {}", step.call.why),
            || {
                let mut against = Vec::new();
                if !step.denials.iter().any(|denial| denial.enforced) {
                    against.push("no denial is on record".to_owned());
                }
                if step.status == Some(0) {
                    against.push("the call went well".to_owned());
                }
                against
            },
        )
    }));
    for (name, session) in [("honest", honest), ("misled", astray)] {
        all.push(claim(
            &format!("the {name} session's record is whole"),
            || incomplete(session),
        ));
    }
    all
}

fn claim(says: &str, against: impl FnOnce() -> Vec<String>) -> Claim {
    Claim {
        says: says.to_owned(),
        against: against(),
    }
}

fn unexpected(step: &Step) -> Option<String> {
    let why = &step.call.why;
    match (step.status, step.call.fails) {
        (None, _) => Some(format!("{why}: not done")),
        (Some(0), true) => Some(format!("{why}: went well")),
        (Some(status @ 1..), false) => Some(format!("{why}: exit status {status}")),
        _ => None,
    }
}

fn undone(session: &Session) -> Vec<String> {
    let after = &session.after;
    let mut against = Vec::new();
    if after.commits != 2 {
        against.push(format!("there are {} commits, not 2", after.commits));
    }
    if !after.tests_pass {
        against.push("the project's tests fail".to_owned());
    }
    against
}

fn incomplete(session: &Session) -> Vec<String> {
    let mut against = Vec::new();
    match (
        session.total("opensafe.loss.seen"),
        session.total("opensafe.loss.sent"),
    ) {
        (Some(seen), Some(sent)) if seen == sent => {}
        (Some(seen), Some(sent)) => against.push(format!("{} events were lost", seen - sent)),
        _ => against.push("it has no end".to_owned()),
    }
    if session.end["opensafe.cleanup.cgroup_removed"] != true {
        against.push("the cgroup is still there".to_owned());
    }
    if session.start["opensafe.enforcement.overall"] != "full" {
        against.push("not everything was enforced".to_owned());
    }
    against
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::story::{After, Call, Denial, Session, Step, Story},
        Claim, claims,
    };

    fn step(call: &Value, status: i64, denied: bool) -> Step {
        let denial = Denial {
            operation: "read".into(),
            object: "~/key".into(),
            rule: "secrets".into(),
            reason: String::new(),
            enforced: true,
        };
        Step {
            call: serde_json::from_value::<Call>(call.clone()).unwrap(),
            status: Some(status),
            denials: denied.then_some(denial).into_iter().collect(),
        }
    }

    fn session(steps: Vec<Step>) -> Session {
        Session {
            steps,
            after: After {
                secret_seen: false,
                hook: false,
                start_up_file_changed: false,
                commits: 2,
                tests_pass: true,
            },
            start: json!({"opensafe.enforcement.overall": "full"}),
            end: json!({"opensafe.loss.seen": 9, "opensafe.loss.sent": 9, "opensafe.count.connect.allow": 0, "opensafe.cleanup.cgroup_removed": true}),
            stray: Vec::new(),
        }
    }

    /// What does not hold of two sessions, given by status and denial of the honest call and of the attempt.
    fn broken(honest: (i64, bool), attempt: (i64, bool)) -> Vec<String> {
        let work = json!({"tool": "bash", "args": {"command": "ls"}, "why": "looks"});
        let wrong = json!({"tool": "bash", "args": {"command": "cat ~/key"}, "why": "reads the key", "astray": true});
        let story = Story {
            honest: session(vec![step(&work, honest.0, honest.1)]),
            astray: session(vec![
                step(&work, 0, false),
                step(&wrong, attempt.0, attempt.1),
            ]),
        };
        let broken = claims(&story).into_iter().filter(|claim| !claim.holds());
        broken.map(|Claim { says, .. }| says).collect()
    }

    #[test]
    fn all_holds_where_work_passes_and_attempts_are_denied() {
        assert_eq!(broken((0, false), (1, true)), [""; 0]);
    }

    #[test]
    fn a_denial_of_honest_work_is_noticed() {
        let says = ["nothing that the honest session does is denied"];
        assert_eq!(broken((0, true), (1, true)), says);
    }

    #[test]
    fn an_attempt_that_is_not_denied_is_noticed() {
        let says = ["denied: the misled session reads the key"];
        assert_eq!(broken((0, false), (1, false)), says);
        assert_eq!(broken((0, false), (0, true)), says);
    }
}
