//! What a policy is told about a sandbox.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use regorus::Value;
use serde::{Deserialize, Serialize};

use super::git;
use crate::rules::glob;

/// A sandbox as a policy sees it, in `input`. Paths are in the sandbox's own view, and absolute.
///
/// A policy makes globs of the paths, so it gets them as the globs that name them: characters that
/// mean something in a glob are escaped, a byte that is not UTF-8 is `?`, and the root directory is
/// the empty string, so that `sprintf("%s/**", [input.workspace])` is right for it too.
///
/// `input.git_directories` is not here: it is looked up in the workspace when a policy is evaluated.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Input {
    /// The agent's name.
    pub agent: String,
    /// The directory that the agent works in.
    #[serde(with = "crate::bytes")]
    pub workspace: PathBuf,
    /// The user's home directory.
    #[serde(with = "crate::bytes")]
    pub home: PathBuf,
    /// The directory for temporary files.
    #[serde(with = "crate::bytes")]
    pub tmp: PathBuf,
    /// Whom the sandbox's first process runs as.
    pub user: User,
    /// What runs the sandbox: `process`, `docker`, …
    pub runtime: String,
    /// The sandbox's labels.
    pub labels: BTreeMap<String, String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
}

/// A user.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct User {
    pub name: String,
    pub uid: u32,
}

/// A machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its kernel's release.
    pub kernel: String,
    /// What can be enforced on it.
    pub capabilities: Vec<String>,
}

/// Every name in `input`, with those below it that are fixed.
pub(super) const KNOWN: [(&str, &[&str]); 10] = [
    ("agent", &[]),
    ("workspace", &[]),
    ("home", &[]),
    ("tmp", &[]),
    ("git_directories", &[]),
    ("user", &["name", "uid"]),
    ("runtime", &[]),
    ("labels", &[]),
    ("command", &[]),
    ("host", &["name", "kernel", "capabilities"]),
];

impl Input {
    /// As the evaluation takes it, or what is wrong with it.
    pub(super) fn to_value(&self) -> Result<Value, String> {
        #[derive(Serialize)]
        struct Seen<'a> {
            agent: &'a str,
            workspace: String,
            home: String,
            tmp: String,
            git_directories: Vec<String>,
            user: &'a User,
            runtime: &'a str,
            labels: &'a BTreeMap<String, String>,
            command: &'a [String],
            host: &'a Host,
        }
        let seen = Seen {
            agent: &self.agent,
            workspace: glob_of("workspace", &self.workspace)?,
            home: glob_of("home", &self.home)?,
            tmp: glob_of("tmp", &self.tmp)?,
            git_directories: git::directories(&self.workspace, &self.home)
                .iter()
                .map(|directory| glob_of("git_directories", directory))
                .collect::<Result<_, _>>()?,
            user: &self.user,
            runtime: &self.runtime,
            labels: &self.labels,
            command: &self.command,
            host: &self.host,
        };
        serde_json::to_string(&seen)
            .map_err(|error| error.to_string())
            .and_then(|json| Value::from_json_str(&json).map_err(|error| error.to_string()))
    }
}

fn glob_of(name: &str, path: &Path) -> Result<String, String> {
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return Err(format!("input.{name} {path:?}: is not absolute"));
    }
    let mut glob = String::new();
    for component in components {
        match component {
            Component::Normal(component) => {
                glob.push('/');
                glob.push_str(&glob::escape(component.as_bytes()));
            }
            _ => return Err(format!("input.{name} {path:?}: has a \"..\" in it")),
        }
    }
    Ok(glob)
}
