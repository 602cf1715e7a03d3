//! From what a policy evaluated to, to rules; strict, and with all that is wrong.

mod reader;
mod response;

use std::collections::BTreeMap;

use opensafe_common::operation::Operation;
use opensafe_common::verdict::Verdict;
use regorus::Value as Rego;
use serde_json::{Map, Value};

use super::ast::Declared;
use super::error::{Problem, RuleError};
use crate::response::{Response, Trigger};
use crate::rules::{Defaults, Origin, RECORDS, Rule, RuleSet};
use reader::Reader;

/// Operations of which a rule says more than that they are about it.
const WITH_OBJECTS: [&str; 5] = ["exec", "file", "connect", "bind", "socket"];
const VERDICTS: [(&str, Verdict); 3] = [
    ("allow", Verdict::Allow),
    ("audit", Verdict::Audit),
    ("deny", Verdict::Deny),
];

/// What an error calls one of them.
const RULE: &str = "rule";
const RESPONSE: &str = "response";
/// Responses of one policy: each is asked about every event.
const MAX_RESPONSES: usize = 256;

/// What a rule can be on.
fn operations() -> impl Iterator<Item = &'static str> + Clone {
    let others = Operation::ALL.iter().map(|operation| operation.name());
    WITH_OBJECTS.into_iter().chain(others)
}

/// The defaults, and the rules sorted by id.
pub(super) fn rule_set(
    defaults: Option<&Rego>,
    rules: &Rego,
    declared: &Declared,
) -> Result<(Defaults, Vec<Rule>), Vec<RuleError>> {
    let mut errors = Vec::new();
    let defaults = match defaults.map(json).transpose() {
        Ok(defaults) => checked_defaults(defaults.as_ref(), &mut errors),
        Err(problem) => {
            errors.push(about("defaults", problem));
            None
        }
    };
    let mut checked = Vec::new();
    match json(rules) {
        Ok(Value::Array(rules)) => {
            check_ids(RULE, &rules, &declared.unconditional, declared, &mut errors);
            if rules.is_empty() && defaults.is_none() && errors.is_empty() {
                errors.push(about(
                    "rules",
                    whole(
                        "there are none for this sandbox, and no defaults: the policy says nothing",
                    ),
                ));
            }
            for rule in &rules {
                match checked_rule(rule, declared) {
                    Ok(rule) => checked.push(rule),
                    Err(problems) => errors.extend(problems),
                }
            }
        }
        Ok(other) => errors.push(about(
            "rules",
            whole(format!(
                "is {}, not a set or an array of rules",
                kind(&other)
            )),
        )),
        Err(problem) => errors.push(about("rules", problem)),
    }
    if errors.is_empty() {
        checked.sort_by(|a, b| a.id.cmp(&b.id));
        Ok((defaults.unwrap_or_default(), checked))
    } else {
        Err(errors)
    }
}

/// The responses, sorted by id. `rules` are those of the sandbox that they are for.
pub(super) fn responses(
    responses: &Rego,
    rules: &RuleSet,
    declared: &Declared,
) -> Result<Vec<Response>, Vec<RuleError>> {
    let mut errors = Vec::new();
    let mut checked = Vec::new();
    match json(responses) {
        Ok(Value::Array(responses)) if responses.len() > MAX_RESPONSES => errors.push(about(
            "responses",
            whole(format!(
                "there are {}; {MAX_RESPONSES} are the most",
                responses.len()
            )),
        )),
        Ok(Value::Array(responses)) => {
            let unconditional = &declared.unconditional_responses;
            check_ids(RESPONSE, &responses, unconditional, declared, &mut errors);
            for response in &responses {
                match checked_response(response, rules, declared) {
                    Ok(response) => checked.push(response),
                    Err(problems) => errors.extend(problems),
                }
            }
        }
        Ok(other) => errors.push(about(
            "responses",
            whole(format!(
                "is {}, not a set or an array of responses",
                kind(&other)
            )),
        )),
        Err(problem) => errors.push(about("responses", problem)),
    }
    if errors.is_empty() {
        checked.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(checked)
    } else {
        Err(errors)
    }
}

/// `what`, and the name that was probably meant, or those there are.
pub(super) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    format!("{what}; {}", meant(name, known))
}

/// The name that was probably meant, or those there are.
fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(nearest) => format!("did you mean {}?", quoted(nearest)),
        None => choices(known),
    }
}

/// The name that was probably meant.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .filter(|_| name.len() <= MOST)
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.chars().count().div_ceil(3))
        .map(|(_, nearest)| nearest)
}

fn checked_defaults(defaults: Option<&Value>, errors: &mut Vec<RuleError>) -> Option<Defaults> {
    let mut checked = Defaults::default();
    let object = match defaults? {
        Value::Object(object) => object,
        other => {
            let problem = whole(format!("is {}, not an object", kind(other)));
            errors.push(about("defaults", problem));
            return None;
        }
    };
    for (operation, verdict) in object {
        let default = match operation.as_str() {
            "exec" => &mut checked.exec,
            "file" => &mut checked.file,
            "connect" => &mut checked.connect,
            "bind" => &mut checked.bind,
            other => match Operation::ALL.iter().find(|known| known.name() == other) {
                Some(known) => &mut checked.operations[*known as usize],
                None => {
                    let what = format!("has an unknown key {}", quoted(other));
                    let known = operations().filter(|name| *name != "socket");
                    errors.push(about("defaults", whole(unknown(&what, other, known))));
                    continue;
                }
            },
        };
        let known = VERDICTS.iter().find(|(name, _)| verdict == name);
        match known {
            Some((_, verdict)) => *default = *verdict,
            None => errors.push(about(
                "defaults",
                whole(format!(
                    "{operation} {}: {}",
                    shown(verdict),
                    meant(verdict.as_str().unwrap_or_default(), names(&VERDICTS))
                )),
            )),
        }
    }
    Some(checked)
}

/// Ids that several have, and what the text has but the evaluation has not.
fn check_ids(
    what: &str,
    rules: &[Value],
    unconditional: &BTreeMap<String, Origin>,
    declared: &Declared,
    errors: &mut Vec<RuleError>,
) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for id in rules.iter().filter_map(|rule| rule.get("id")?.as_str()) {
        *counts.entry(id).or_default() += 1;
    }
    for (id, count) in counts.iter().filter(|(_, count)| **count > 1) {
        errors.push(RuleError {
            rule: named(what, id),
            origins: declared.origins(id),
            problem: whole(format!("{count} different {what}s have this id")),
        });
    }
    for (id, origin) in unconditional {
        if !counts.contains_key(id.as_str()) {
            errors.push(RuleError {
                rule: named(what, id),
                origins: vec![origin.clone()],
                problem: whole(
                    "is undefined, though it has no condition: something that it refers to has no value",
                ),
            });
        }
    }
}

fn checked_rule(rule: &Value, declared: &Declared) -> Result<Rule, Vec<RuleError>> {
    checked(RULE, rule, declared, |object| Reader::new(object).read()).map(|(mut rule, origin)| {
        rule.origin = origin;
        rule
    })
}

fn checked_response(
    response: &Value,
    rules: &RuleSet,
    declared: &Declared,
) -> Result<Response, Vec<RuleError>> {
    let read = |object: &Map<String, Value>| {
        let (response, mut problems) = Reader::new(object).read_response();
        let on = response.as_ref().map(|response| &response.on);
        problems.extend(
            on.into_iter()
                .flat_map(|on| no_such_rules(on, rules, declared)),
        );
        (response, problems)
    };
    checked(RESPONSE, response, declared, read).map(|(mut response, origin)| {
        response.origin = origin;
        response
    })
}

/// What is mistyped would never be responded to. A rule that this sandbox does not get, but the text has, is none.
fn no_such_rules(on: &Trigger, rules: &RuleSet, declared: &Declared) -> Vec<Problem> {
    let defaults = operations().map(|name| format!("defaults.{name}"));
    let known: Vec<String> = rules
        .rules
        .iter()
        .map(|rule| rule.id.0.clone())
        .chain(declared.ids().map(str::to_owned))
        .chain([RECORDS.to_owned()])
        .chain(defaults)
        .collect();
    let mut problems = Vec::new();
    for glob in &on.rules {
        if !known.iter().any(|id| glob.matches(id)) {
            problems.push(Problem::Key {
                key: "on.rule",
                value: shown(&glob.source().into()),
                problem: format!(
                    "there is no such rule{}",
                    nearest(glob.source(), known.iter().map(String::as_str)).map_or_else(
                        String::new,
                        |nearest| format!("; did you mean {}?", quoted(nearest))
                    )
                ),
            });
        }
    }
    problems
}

/// What an object says, with where it seems to be written, or all that is wrong with it.
fn checked<T>(
    what: &str,
    value: &Value,
    declared: &Declared,
    read: impl FnOnce(&Map<String, Value>) -> (Option<T>, Vec<Problem>),
) -> Result<(T, Option<Origin>), Vec<RuleError>> {
    let Value::Object(object) = value else {
        let problem = whole(format!("is {}, not an object", kind(value)));
        return Err(vec![about(&format!("{what} {}", shown(value)), problem)]);
    };
    let (checked, problems) = read(object);
    let id = object.get("id").and_then(Value::as_str);
    let origins = id.map(|id| declared.origins(id)).unwrap_or_default();
    match checked {
        Some(checked) if problems.is_empty() => Ok((checked, origins.into_iter().next())),
        _ => Err(problems
            .into_iter()
            .map(|problem| RuleError {
                rule: id.map_or_else(|| format!("{what} {}", shown(value)), |id| named(what, id)),
                origins: origins.clone(),
                problem,
            })
            .collect()),
    }
}

fn json(value: &Rego) -> Result<Value, Problem> {
    serde_json::to_value(value).map_err(|error| whole(format!("is no JSON: {error}")))
}

fn about(what: &str, problem: Problem) -> RuleError {
    RuleError {
        rule: what.to_owned(),
        origins: Vec::new(),
        problem,
    }
}

fn named(what: &str, id: &str) -> String {
    format!("{what} {}", quoted(id))
}

fn whole(problem: impl Into<String>) -> Problem {
    Problem::Whole(problem.into())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Most characters that an error quotes of a value, and longest name that is taken for a mistyped one.
const MOST: usize = 120;

/// A name as it is quoted in an error.
fn quoted(name: &str) -> String {
    shown(&Value::from(name))
}

/// A value as it is quoted in an error: not the whole of a long one.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn names<'a, T>(known: &'a [(&'a str, T)]) -> impl Iterator<Item = &'a str> + Clone {
    known.iter().map(|(name, _)| *name)
}

fn choices<'a>(known: impl Iterator<Item = &'a str>) -> String {
    format!("there are {}", list(known))
}

fn list<'a>(known: impl Iterator<Item = &'a str>) -> String {
    known.collect::<Vec<_>>().join(", ")
}

/// How many characters must be added, removed or replaced to make one name of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
