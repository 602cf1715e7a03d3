//! Reading one rule, key by key.

use opensafe_common::verdict::Access;
use serde_json::{Map, Value};

use super::super::error::Problem;
use super::{VERDICTS, choices, kind, meant, names, operations, quoted, shown, unknown, whole};
use crate::rules::access;
use crate::rules::glob::PathGlob;
use crate::rules::peer::{PortRange, Protocol};
use crate::rules::socket::SocketKind;
use crate::rules::{Peer, Rule, RuleId, Severity, Subject};
use opensafe_common::operation::Operation;

/// Longest id, in bytes.
const MAX_ID_BYTES: usize = 200;
/// Keys that every rule may have, and those of one operation alone.
const KEYS: [&str; 9] = [
    "id", "on", "match", "access", "ports", "protocol", "verdict", "severity", "reason",
];
/// One rule's keys, and what is wrong with them. A getter that returns `None` has noted a problem,
/// unless it says otherwise.
pub(super) struct Reader<'a> {
    object: &'a Map<String, Value>,
    problems: Vec<Problem>,
}

impl<'o> Reader<'o> {
    pub(super) const fn new(object: &'o Map<String, Value>) -> Self {
        Self {
            object,
            problems: Vec::new(),
        }
    }

    /// What is read.
    pub(super) const fn object(&self) -> &'o Map<String, Value> {
        self.object
    }

    /// What is wrong with it.
    pub(super) fn problems(self) -> Vec<Problem> {
        self.problems
    }

    /// The rule, if it makes sense so far, and what is wrong with it.
    pub(super) fn read(mut self) -> (Option<Rule>, Vec<Problem>) {
        (self.rule(), self.problems)
    }

    fn rule(&mut self) -> Option<Rule> {
        for key in self.object.keys() {
            if !KEYS.contains(&key.as_str()) {
                let what = format!("has an unknown key {}", quoted(key));
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

    pub(super) fn id(&mut self) -> Option<RuleId> {
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
    pub(super) fn reason(&mut self) -> Option<String> {
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
        let known: Vec<(&str, &str)> = operations().map(|name| (name, name)).collect();
        let on = self.required("on", &known)?;
        for (key, of) in [
            ("access", &["file"][..]),
            ("ports", &["connect", "bind"]),
            ("protocol", &["connect", "bind"]),
        ] {
            if !of.contains(&on) && self.object.contains_key(key) {
                self.whole(format!(
                    "has \"{key}\", which only rules on {} have; it is on {on}",
                    of.join(" and ")
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
            "connect" => self.connect(),
            "bind" => self.bind(),
            "socket" => self.matches(SocketKind::parse).map(Subject::Socket),
            other => self.operation(other),
        }
    }

    /// A rule on an operation as a whole, which may say so: `"match": "*"`.
    fn operation(&mut self, name: &str) -> Option<Subject> {
        let is_every = |value: &Value| match value {
            Value::Array(all) => !all.is_empty() && all.iter().all(|one| one == "*"),
            one => one == "*",
        };
        if let Some(value) = self.object.get("match")
            && !is_every(value)
        {
            let problem = format!("a rule on {name} is about every one: leave it out, or \"*\"");
            self.key("match", value, problem);
        }
        let operation = Operation::ALL
            .into_iter()
            .find(|known| known.name() == name)?;
        Some(Subject::Operation(operation))
    }

    fn bind(&mut self) -> Option<Subject> {
        let addresses = self.matches(|text| match Peer::parse(text) {
            Ok(Peer::UnixPath(_) | Peer::UnixAbstract(_)) => Err(
                "is a Unix socket: its place is a file, whose creation a rule on file is about"
                    .to_owned(),
            ),
            other => other.map_err(|error| error.to_string()),
        });
        let (ports, protocol) = self.ports_and_protocol()?;
        Some(Subject::Bind {
            addresses: addresses?,
            ports,
            protocol,
        })
    }

    fn connect(&mut self) -> Option<Subject> {
        let peers = self.matches(Peer::parse);
        let narrowed = self.ports_and_protocol();
        let (peers, (ports, protocol)) = (peers?, narrowed?);
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
        Some(Subject::Connect {
            peers,
            ports,
            protocol,
        })
    }

    fn ports_and_protocol(&mut self) -> Option<(Vec<PortRange>, Option<Protocol>)> {
        let ports = self.ports();
        let protocol = self.protocol();
        let (ports, protocol) = (ports?, protocol?);
        if protocol == Some(Protocol::Icmp) && !ports.is_empty() {
            self.whole("has \"ports\", which protocol icmp has not");
        }
        Some((ports, protocol))
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
            access::IN_POLICIES
                .iter()
                .find(|(name, _)| value == name)
                .map(|(_, access)| *access)
                .ok_or_else(|| match value.as_str() {
                    Some("exec") => "is an operation: \"on\": \"exec\"".to_owned(),
                    text => meant(text.unwrap_or_default(), names(&access::IN_POLICIES)),
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

    pub(super) fn required<T: Copy>(
        &mut self,
        key: &'static str,
        known: &[(&str, T)],
    ) -> Option<T> {
        let Some(value) = self.object.get(key) else {
            self.whole(format!("has no \"{key}\"; {}", choices(names(known))));
            return None;
        };
        self.choice(key, value, known)
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        value: &Value,
        known: &[(&str, T)],
    ) -> Option<T> {
        let text = self.string(key, value)?;
        let found = known.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            self.key(key, value, meant(text, names(known)));
        }
        found.map(|(_, value)| *value)
    }

    pub(super) fn string<'v>(&mut self, key: &'static str, value: &'v Value) -> Option<&'v str> {
        if value.as_str().is_none() {
            self.key(key, value, format!("is {}, not a string", kind(value)));
        }
        value.as_str()
    }

    /// The array in `key`, if there is something in it.
    pub(super) fn array(&mut self, key: &'static str, if_empty: &str) -> Option<&'o [Value]> {
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
    pub(super) fn each<T>(
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

    pub(super) fn whole(&mut self, problem: impl Into<String>) {
        self.problems.push(whole(problem));
    }

    pub(super) fn key(&mut self, key: &'static str, value: &Value, problem: impl Into<String>) {
        self.problems.push(Problem::Key {
            key,
            value: shown(value),
            problem: problem.into(),
        });
    }
}
