//! What a policy comes to for one sandbox.

use std::sync::Arc;

use super::{
    error::RunError,
    needs::{Need, needs},
    record_place::RecordPlace,
};
use crate::{
    policy::{Input, Policy},
    response::Response,
    rules::RuleSet,
};

/// Its rules, with the one that keeps the sandbox from its record, and what is to be done about events.
pub(super) struct Evaluated {
    pub(super) rules: Arc<RuleSet>,
    pub(super) responses: Arc<[Response]>,
    /// What the policy needs of the host.
    pub(super) needs: Vec<Need>,
}

impl Evaluated {
    pub(super) fn of(
        policy: &Policy,
        input: &Input,
        respond: bool,
        record: &RecordPlace,
    ) -> Result<Self, RunError> {
        let mut rules = policy.evaluate(input)?;
        let mut responses = policy.responses(input, &rules)?;
        responses.retain(|_| respond);
        let needs = needs(&rules);
        rules.rules.extend(record.rule());
        rules.rules.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(Self {
            rules: Arc::new(rules),
            responses: responses.into(),
            needs,
        })
    }
}
