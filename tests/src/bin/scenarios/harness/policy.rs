//! Policies, written as Rego whose rules are plain objects.

use std::{fs, path::Path};

use anyhow::Result;
use serde_json::{Map, Value, json};

/// A policy for a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    defaults: Map<String, Value>,
    rules: Vec<Rule>,
}

impl Policy {
    /// Everything is allowed where no rule says otherwise.
    pub(crate) fn open() -> Self {
        Self {
            defaults: ["exec", "file", "connect"]
                .map(|operation| (operation.to_owned(), json!("allow")))
                .into_iter()
                .collect(),
            rules: Vec::new(),
        }
    }

    /// Another default for one operation.
    pub(crate) fn default(mut self, operation: &str, verdict: &str) -> Self {
        self.defaults.insert(operation.to_owned(), json!(verdict));
        self
    }

    /// One more rule.
    pub(crate) fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// What a dynamic program needs in order to start, where files are denied by default.
    pub(crate) fn programs_can_start(self) -> Self {
        let places = ["/usr/**", "/lib*/**", "/etc/**", "/proc/**", "/dev/**"];
        self.rule(allow("system").file_globs(&places))
    }

    /// As Rego.
    pub(crate) fn rego(&self) -> String {
        let mut text = format!(
            "package opensafe.sandbox\n\ndefaults := {}\n",
            Value::Object(self.defaults.clone())
        );
        if self.rules.is_empty() {
            text.push_str("rules := []\n");
        }
        for rule in &self.rules {
            text.push_str(&format!(
                "rules contains {}\n",
                Value::Object(rule.0.clone())
            ));
        }
        text
    }

    /// Writes it into a file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.rego())?;
        Ok(())
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule(Map<String, Value>);

/// A rule that allows.
pub(crate) fn allow(id: &str) -> Rule {
    Rule::new(id, "allow")
}

/// A rule that allows and puts on record.
pub(crate) fn audit(id: &str) -> Rule {
    Rule::new(id, "audit")
}

/// A rule that denies.
pub(crate) fn deny(id: &str) -> Rule {
    Rule::new(id, "deny")
}

impl Rule {
    fn new(id: &str, verdict: &str) -> Self {
        Self(Map::new())
            .with("id", json!(id))
            .with("verdict", json!(verdict))
    }

    /// Any key.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.0.insert(key.to_owned(), value);
        self
    }

    fn paths(self, on: &str, globs: &[String]) -> Self {
        self.with("on", json!(on)).with("match", json!(globs))
    }

    /// On files, by one path that is taken literally.
    pub(crate) fn file(self, path: impl AsRef<Path>) -> Self {
        self.paths("file", &[literal(path.as_ref())])
    }

    /// On a directory and all below it.
    pub(crate) fn below(self, path: impl AsRef<Path>) -> Self {
        let glob = format!("{}/**", literal(path.as_ref()));
        self.paths("file", &[glob])
    }

    /// On files, by globs.
    pub(crate) fn file_globs(self, globs: &[&str]) -> Self {
        let globs: Vec<String> = globs.iter().map(|&glob| glob.to_owned()).collect();
        self.paths("file", &globs)
    }

    /// On programs, by one path that is taken literally.
    pub(crate) fn exec(self, path: impl AsRef<Path>) -> Self {
        self.paths("exec", &[literal(path.as_ref())])
    }

    /// On peers.
    pub(crate) fn connect(self, peer: impl Into<String>) -> Self {
        self.with("on", json!("connect"))
            .with("match", json!([peer.into()]))
    }

    /// Only these kinds of access.
    pub(crate) fn access(self, kinds: &[&str]) -> Self {
        self.with("access", json!(kinds))
    }

    /// Only this port.
    pub(crate) fn port(self, port: u16) -> Self {
        self.with("ports", json!([port]))
    }
}

/// A path as a glob that matches it alone.
pub(crate) fn literal(path: &Path) -> String {
    let mut glob = String::new();
    for character in path.to_string_lossy().chars() {
        if "*?[]{}\\,".contains(character) {
            glob.push('\\');
        }
        glob.push(character);
    }
    glob
}
