//! What a policy needs of a host, and the refusal to pretend that it is there.

use opensafe_common::verdict::Verdict;

use super::error::RunError;
use crate::{
    enforcement::{Enforcement, Level},
    rules::{RuleSet, Subject},
};

/// What a policy needs of a host.
#[derive(Clone, Debug)]
pub(super) struct Need {
    /// The operation.
    operation: &'static str,
    /// Rules that are not satisfied by letting everything pass.
    rules: usize,
    /// Whether the default is not either.
    default: bool,
}

impl Need {
    const fn is_any(&self) -> bool {
        self.rules > 0 || self.default
    }
}

/// What a policy needs and the host cannot do.
#[derive(Debug)]
pub struct Refused {
    enforcement: Enforcement,
    needs: Vec<Need>,
}

impl Refused {
    /// What is needed and not fully there.
    fn lacking(enforcement: &Enforcement, needs: &[Need]) -> Vec<Need> {
        let levels = enforcement
            .operations()
            .map(|(_, operation)| operation.level);
        needs
            .iter()
            .zip(levels)
            .filter(|(need, level)| need.is_any() && *level != Level::Full)
            .map(|(need, _)| need.clone())
            .collect()
    }
}

/// Refuses to pretend: a policy that needs what the host lacks is an error, unless a part is enough.
pub(super) fn check(
    enforcement: &Enforcement,
    needs: &[Need],
    partial: bool,
) -> Result<(), RunError> {
    let needs = Refused::lacking(enforcement, needs);
    if needs.is_empty() || partial {
        return Ok(());
    }
    Err(RunError::NotEnforced(Box::new(Refused {
        enforcement: enforcement.clone(),
        needs,
    })))
}

/// What a rule set needs, in the order of [`Enforcement::operations`].
pub(super) fn needs(rules: &RuleSet) -> Vec<Need> {
    let strict = |verdict| verdict != Verdict::Allow;
    let need = |operation, default, is: fn(&Subject) -> bool| Need {
        operation,
        rules: rules
            .rules
            .iter()
            .filter(|rule| strict(rule.verdict) && is(&rule.subject))
            .count(),
        default: strict(default),
    };
    let defaults = rules.defaults;
    vec![
        need("exec", defaults.exec, |of| matches!(of, Subject::Exec(_))),
        need("file", defaults.file, |of| {
            matches!(of, Subject::File { .. })
        }),
        need("connect", defaults.connect, |of| {
            matches!(
                of,
                Subject::Connect { .. } | Subject::Bind { .. } | Subject::Socket(_)
            )
        }),
        // Every policy denies most of these by default; only who speaks of them needs them.
        need("operation", Verdict::Allow, |of| {
            matches!(of, Subject::Operation(_))
        }),
    ]
}

/// The error in words: what cannot be enforced and why, what the policy needs, what to do.
pub(super) fn refused(refused: &Refused) -> String {
    let rest: Vec<String> = refused
        .enforcement
        .operations()
        .iter()
        .filter(|(_, operation)| operation.level != Level::None)
        .map(|(name, operation)| {
            format!("{name} ({}, by {})", operation.level.as_str(), operation.by)
        })
        .collect();
    let rest = if rest.is_empty() {
        "nothing".to_owned()
    } else {
        rest.join(", ")
    };
    format!(
        "{refused}\n  \
         run `opensafe doctor` for what this host can do, or add --partial to enforce what it can: {rest}"
    )
}

impl std::fmt::Display for Refused {
    /// What cannot be enforced and why, and what the policy needs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&lacks(self))
    }
}

fn lacks(Refused { enforcement, needs }: &Refused) -> String {
    let lacking: Vec<&str> = needs.iter().map(|need| need.operation).collect();
    let why = enforcement
        .missing()
        .first()
        .map(|missing| format!(": {}: {}", missing.what, missing.why))
        .unwrap_or_default();
    let needs: Vec<String> = needs
        .iter()
        .map(|need| {
            let rules = if need.rules == 1 { "rule" } else { "rules" };
            let default = if need.default {
                ", and its default"
            } else {
                ""
            };
            format!("{} ({} {rules}{default})", need.operation, need.rules)
        })
        .collect();
    format!(
        "cannot enforce {} rules fully on this host{why}\n  \
         the policy needs: {}",
        lacking.join(", "),
        needs.join("; "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        enforcement::{Missing, Operation},
        rules::Defaults,
    };

    fn host_without_lsm() -> Enforcement {
        let missing = Missing {
            what: "BPF LSM".to_owned(),
            why: "listed, but loading is refused (EPERM)".to_owned(),
            fix: "another kernel".to_owned(),
        };
        Enforcement {
            way: None,
            exec: Operation::none(vec![missing.clone()]),
            file: Operation::none(vec![missing.clone()]),
            connect: Operation::partial("cgroup hooks", vec![missing.clone()]),
            operation: Operation::none(vec![missing]),
        }
    }

    fn rules(defaults: Defaults) -> RuleSet {
        RuleSet {
            defaults,
            rules: Vec::new(),
            revision: "test@0".to_owned(),
        }
    }

    #[test]
    fn a_policy_that_needs_what_the_host_lacks_is_refused_unless_a_part_is_enough() {
        let needs = needs(&rules(Defaults::default()));
        let error = check(&host_without_lsm(), &needs, false).unwrap_err();
        insta::assert_snapshot!(error);
        assert!(check(&host_without_lsm(), &needs, true).is_ok());
    }

    #[test]
    fn a_policy_that_lets_everything_pass_needs_nothing() {
        let open = Defaults {
            exec: Verdict::Allow,
            file: Verdict::Allow,
            connect: Verdict::Allow,
            ..Defaults::default()
        };
        assert!(check(&host_without_lsm(), &needs(&rules(open)), false).is_ok());
    }
}
