//! From what a policy evaluated to, to rules; strict, and with all that is wrong.

use std::collections::BTreeMap;

use opensafe_common::verdict::{Access, Verdict};
use regorus::Value as Rego;
use serde_json::{Map, Value};

use super::ast::Declared;
use super::error::{Problem, RuleError};
use crate::rules::glob::PathGlob;
use crate::rules::peer::{PortRange, Protocol};
use crate::rules::{Defaults, Peer, Rule, RuleId, Severity, Subject};

/// Longest id, in bytes.
const MAX_ID_BYTES: usize = 200;
/// Keys that every rule may have, and those of one operation alone.
const KEYS: [&str; 9] = [
    "id", "on", "match", "access", "ports", "protocol", "verdict", "severity", "reason",
];
const OPERATIONS: [&str; 3] = ["exec", "file", "connect"];
const VERDICTS: [(&str, Verdict); 3] = [
    ("allow", Verdict::Allow),
    ("audit", Verdict::Audit),
    ("deny", Verdict::Deny),
];
const ACCESSES: [(&str, Access); 3] = [
    ("read", Access::READ),
    ("write", Access::WRITE),
    ("create", Access::CREATE),
];

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
            check_ids(&rules, declared, &mut errors);
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

/// `what`, and the name that was probably meant, or those there are.
pub(super) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let nearest = known
        .clone()
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.chars().count().div_ceil(3));
    match nearest {
        Some((_, nearest)) => format!("{what}; did you mean \"{nearest}\"?"),
        None => format!("{what}; there are {}", list(known)),
    }
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
            other => {
                let what = format!("has an unknown key \"{other}\"");
                let problem = whole(unknown(&what, other, OPERATIONS.into_iter()));
                errors.push(about("defaults", problem));
                continue;
            }
        };
        let known = VERDICTS.iter().find(|(name, _)| verdict == name);
        match known {
            Some((_, verdict)) => *default = *verdict,
            None => errors.push(about(
                "defaults",
                whole(format!(
                    "{operation} {verdict}: {}",
                    choices(names(&VERDICTS))
                )),
            )),
        }
    }
    Some(checked)
}

/// Ids that several rules have, and rules that the text has but the evaluation has not.
fn check_ids(rules: &[Value], declared: &Declared, errors: &mut Vec<RuleError>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for id in rules.iter().filter_map(|rule| rule.get("id")?.as_str()) {
        *counts.entry(id).or_default() += 1;
    }
    for (id, count) in counts.iter().filter(|(_, count)| **count > 1) {
        errors.push(RuleError {
            rule: named(id),
            origins: declared.origins(id),
            problem: whole(format!("{count} different rules have this id")),
        });
    }
    for (id, origin) in &declared.unconditional {
        if !counts.contains_key(id.as_str()) {
            errors.push(RuleError {
                rule: named(id),
                origins: vec![origin.clone()],
                problem: whole(
                    "is undefined, though it has no condition: something that it refers to has no value",
                ),
            });
        }
    }
}

fn checked_rule(rule: &Value, declared: &Declared) -> Result<Rule, Vec<RuleError>> {
    let Value::Object(object) = rule else {
        let problem = whole(format!("is {}, not an object", kind(rule)));
        return Err(vec![about(&format!("rule {}", shown(rule)), problem)]);
    };
    let mut reader = Reader {
        object,
        problems: Vec::new(),
    };
    let checked = reader.rule();
    let id = object.get("id").and_then(Value::as_str);
    let origins = id.map(|id| declared.origins(id)).unwrap_or_default();
    match checked {
        Some(mut checked) if reader.problems.is_empty() => {
            checked.origin = origins.into_iter().next();
            Ok(checked)
        }
        _ => Err(reader
            .problems
            .into_iter()
            .map(|problem| RuleError {
                rule: id.map_or_else(|| format!("rule {}", shown(rule)), named),
                origins: origins.clone(),
                problem,
            })
            .collect()),
    }
}

/// One rule's keys, and what is wrong with them. A getter that returns `None` has noted a problem,
/// unless it says otherwise.
struct Reader<'a> {
    object: &'a Map<String, Value>,
    problems: Vec<Problem>,
}

impl<'o> Reader<'o> {
    fn rule(&mut self) -> Option<Rule> {
        for key in self.object.keys() {
            if !KEYS.contains(&key.as_str()) {
                let what = format!("has an unknown key \"{key}\"");
                self.whole(unknown(&what, key, KEYS.into_iter()));
            }
        }
        let id = self.id();
        let verdict = self.required("verdict", &VERDICTS);
        let severity = self.severity();
        let reason = self.reason();
        let subject = self.subject();
        Some(Rule {
            id: id?,
            verdict: verdict?,
            severity: severity?,
            reason: reason?,
            origin: None,
            subject: subject?,
        })
    }

    fn id(&mut self) -> Option<RuleId> {
        let Some(value) = self.object.get("id") else {
            self.whole("has no \"id\"");
            return None;
        };
        let id = self.string("id", value)?;
        let problem = if id.is_empty() {
            "is empty"
        } else if id.len() > MAX_ID_BYTES {
            "is too long for an id"
        } else if id.chars().any(char::is_control) {
            "has control characters in it"
        } else {
            return Some(RuleId(id.to_owned()));
        };
        self.key("id", value, problem);
        None
    }

    fn severity(&mut self) -> Option<Severity> {
        let Some(value) = self.object.get("severity") else {
            return Some(Severity::default());
        };
        self.choice("severity", value, &Severity::ALL.map(|s| (s.name(), s)))
    }

    /// On one line, as a record has it.
    fn reason(&mut self) -> Option<String> {
        let Some(value) = self.object.get("reason") else {
            return Some(String::new());
        };
        let reason = self.string("reason", value)?;
        let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.chars().any(char::is_control) {
            self.key("reason", value, "has control characters in it");
            return None;
        }
        Some(line)
    }

    fn subject(&mut self) -> Option<Subject> {
        let on = self.required("on", &OPERATIONS.map(|name| (name, name)))?;
        for (key, of) in [
            ("access", "file"),
            ("ports", "connect"),
            ("protocol", "connect"),
        ] {
            if on != of && self.object.contains_key(key) {
                self.whole(format!(
                    "has \"{key}\", which only rules on {of} have; it is on {on}"
                ));
            }
        }
        match on {
            "exec" => self.matches(PathGlob::parse).map(Subject::Exec),
            "file" => {
                let globs = self.matches(PathGlob::parse);
                let access = self.access();
                Some(Subject::File {
                    globs: globs?,
                    access: access?,
                })
            }
            _ => self.connect(),
        }
    }

    fn connect(&mut self) -> Option<Subject> {
        let peers = self.matches(Peer::parse);
        let ports = self.ports();
        let protocol = self.protocol();
        let (peers, ports, protocol) = (peers?, ports?, protocol?);
        let has_unix = peers
            .iter()
            .any(|peer| matches!(peer, Peer::UnixPath(_) | Peer::UnixAbstract(_)));
        for key in ["ports", "protocol"] {
            if has_unix && self.object.contains_key(key) {
                self.whole(format!(
                    "has \"{key}\", and a Unix socket, which has none, in \"match\""
                ));
            }
        }
        if protocol == Some(Protocol::Icmp) && !ports.is_empty() {
            self.whole("has \"ports\", which protocol icmp has not");
        }
        Some(Subject::Connect {
            peers,
            ports,
            protocol,
        })
    }

    /// What `match` has, one or several, each parsed.
    fn matches<T, E: std::fmt::Display>(
        &mut self,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        let values = match self.object.get("match") {
            None => {
                self.whole("has no \"match\"");
                return None;
            }
            Some(Value::Array(values)) if values.is_empty() => {
                self.whole("\"match\" is empty: a rule that matches nothing says nothing");
                return None;
            }
            Some(Value::Array(values)) => values.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        self.each("match", values, |value| match value {
            Value::String(text) => parse(text).map_err(|error| error.to_string()),
            other => Err(format!("is {}, not a string", kind(other))),
        })
    }

    fn access(&mut self) -> Option<Access> {
        if !self.object.contains_key("access") {
            return Some(Access::FILE);
        }
        let values = self.array("access", "a rule about no access says nothing")?;
        let kinds = self.each("access", values, |value| {
            ACCESSES
                .iter()
                .find(|(name, _)| value == name)
                .map(|(_, access)| *access)
                .ok_or_else(|| match value.as_str() {
                    Some("exec") => "is an operation: \"on\": \"exec\"".to_owned(),
                    _ => choices(names(&ACCESSES)),
                })
        })?;
        Some(kinds.into_iter().fold(Access::NONE, Access::union))
    }

    fn ports(&mut self) -> Option<Vec<PortRange>> {
        if !self.object.contains_key("ports") {
            return Some(Vec::new());
        }
        let values = self.array("ports", "leave it out for any port")?;
        self.each("ports", values, |value| match value {
            Value::Number(number) => match PortRange::parse(&number.to_string()) {
                Err(_) if !number.is_u64() => Err("is no port".to_owned()),
                parsed => parsed.map_err(|error| error.to_string()),
            },
            Value::String(text) => PortRange::parse(text).map_err(|error| error.to_string()),
            other => Err(format!("is {}, not a number or a string", kind(other))),
        })
    }

    fn protocol(&mut self) -> Option<Option<Protocol>> {
        let Some(value) = self.object.get("protocol") else {
            return Some(None);
        };
        self.choice("protocol", value, &Protocol::ALL.map(|p| (p.name(), p)))
            .map(Some)
    }

    fn required<T: Copy>(&mut self, key: &'static str, known: &[(&str, T)]) -> Option<T> {
        let Some(value) = self.object.get(key) else {
            self.whole(format!("has no \"{key}\"; {}", choices(names(known))));
            return None;
        };
        self.choice(key, value, known)
    }

    fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        value: &Value,
        known: &[(&str, T)],
    ) -> Option<T> {
        let text = self.string(key, value)?;
        let found = known.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            self.key(key, value, choices(names(known)));
        }
        found.map(|(_, value)| *value)
    }

    fn string<'v>(&mut self, key: &'static str, value: &'v Value) -> Option<&'v str> {
        if value.as_str().is_none() {
            self.key(key, value, format!("is {}, not a string", kind(value)));
        }
        value.as_str()
    }

    /// The array in `key`, if there is something in it.
    fn array(&mut self, key: &'static str, if_empty: &str) -> Option<&'o [Value]> {
        let object = self.object;
        match object.get(key) {
            Some(Value::Array(values)) if values.is_empty() => {
                self.whole(format!("\"{key}\" is empty: {if_empty}"));
                None
            }
            Some(Value::Array(values)) => Some(values),
            other => {
                let value = other.unwrap_or(&Value::Null);
                self.key(key, value, format!("is {}, not an array", kind(value)));
                None
            }
        }
    }

    /// All values parsed, or a problem noted for each that is wrong.
    fn each<T>(
        &mut self,
        key: &'static str,
        values: &[Value],
        parse: impl Fn(&Value) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let before = self.problems.len();
        let mut parsed = Vec::with_capacity(values.len());
        for value in values {
            match parse(value) {
                Ok(one) => parsed.push(one),
                Err(problem) => self.key(key, value, problem),
            }
        }
        (self.problems.len() == before).then_some(parsed)
    }

    fn whole(&mut self, problem: impl Into<String>) {
        self.problems.push(whole(problem));
    }

    fn key(&mut self, key: &'static str, value: &Value, problem: impl Into<String>) {
        self.problems.push(Problem::Key {
            key,
            value: shown(value),
            problem: problem.into(),
        });
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

fn named(id: &str) -> String {
    format!("rule {id:?}")
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

/// A value as it is quoted in an error: not the whole of a long one.
fn shown(value: &Value) -> String {
    const MOST: usize = 120;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn names<'a, T>(known: &'a [(&'a str, T)]) -> impl Iterator<Item = &'a str> {
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
