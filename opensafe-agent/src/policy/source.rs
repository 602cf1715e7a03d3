//! Finding and reading a policy's files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use regorus::Value;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::{Located, PolicyError, RuleError};

/// Where policies that are asked for by name are installed.
const INSTALLED: &str = "/usr/share/opensafe/policies";
/// Directories to look in before that, as in `PATH`.
const SEARCH_VARIABLE: &str = "OPENSAFE_POLICY_PATH";
/// Deepest directory below a policy's own.
const MAX_DEPTH: usize = 32;
/// Hexadecimal digits of a revision's hash.
const REVISION_DIGITS: usize = 10;

/// The files that make a policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sources {
    /// As the policy is called in errors: its sources as they were asked for.
    pub(super) shown: String,
    /// Its sources' base names.
    pub(super) name: String,
    /// `NAME@HASH`.
    pub(super) revision: String,
    /// Its Rego files, tests apart, sorted.
    pub(super) rego: Vec<File>,
    /// Its unit tests, sorted.
    pub(super) tests: Vec<File>,
    /// Its data, sorted.
    pub(super) data: Vec<File>,
    /// What a file's path loses where errors have named the policy already.
    prefix: Option<String>,
}

/// A file of a policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct File {
    /// Where it was found.
    #[serde(with = "crate::bytes")]
    pub(super) path: PathBuf,
    /// The same, below the source in which it was found.
    #[serde(with = "crate::bytes")]
    relative: PathBuf,
    /// What is in it.
    pub(super) text: String,
}

/// Where a bare name is looked up.
pub(super) fn search_path() -> Vec<PathBuf> {
    let variable = std::env::var_os(SEARCH_VARIABLE).unwrap_or_default();
    std::env::split_paths(&variable)
        .filter(|path| !path.as_os_str().is_empty())
        .chain([PathBuf::from(INSTALLED)])
        .collect()
}

impl Sources {
    /// Finds and reads all files of `sources`.
    pub(super) fn find(sources: &[PathBuf], search: &[PathBuf]) -> Result<Self, PolicyError> {
        if sources.is_empty() {
            return Err(PolicyError::NoSources);
        }
        let shown: Vec<_> = sources
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let shown = shown.join(" + ");
        let (mut rego, mut tests, mut data) = (Vec::new(), Vec::new(), Vec::new());
        let mut names = Vec::new();
        let mut prefix = None;
        let mut digest = Sha256::new();
        for source in sources {
            let root = locate(source, search)?;
            names.push(name_of(&root));
            let found = Found::below(&root, &shown)?;
            if found.rego.is_empty() {
                return Err(PolicyError::NoPolicy {
                    path: source.clone(),
                    tests: !found.tests.is_empty(),
                });
            }
            let mut counted: Vec<_> = found.rego.iter().chain(&found.data).collect();
            counted.sort_by(|a, b| a.relative.cmp(&b.relative));
            for file in counted {
                for part in [
                    file.relative.as_os_str().as_encoded_bytes(),
                    file.text.as_bytes(),
                ] {
                    digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
                    digest.update(part);
                }
            }
            if root.is_dir() && sources.len() == 1 {
                prefix = Some(format!("{}/", root.display()));
            }
            rego.extend(found.rego);
            tests.extend(found.tests);
            data.extend(found.data);
        }
        let hash: String = digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = names.join("+");
        Ok(Self {
            shown,
            revision: format!("{name}@{}", &hash[..REVISION_DIGITS]),
            name,
            rego,
            tests,
            data,
            prefix,
        })
    }

    /// An error with its file named below the policy, which the error's reader is told anyway.
    pub(super) fn shorten(&self, mut error: Located) -> Located {
        if let Some(at) = &mut error.at {
            at.file = self.short(&at.file);
        }
        if let Some(prefix) = &self.prefix {
            error.message = error.message.replace(prefix, "");
        }
        error
    }

    pub(super) fn shorten_rule(&self, mut error: RuleError) -> RuleError {
        for origin in &mut error.origins {
            origin.file = self.short(&origin.file);
        }
        error
    }

    fn short(&self, file: &str) -> String {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        file.strip_prefix(prefix).unwrap_or(file).to_owned()
    }
}

impl File {
    /// A data file's contents, below its directory's path.
    pub(super) fn value(&self) -> anyhow::Result<Value> {
        let mut value = if self.path.extension() == Some(OsStr::new("json")) {
            Value::from_json_str(&self.text)?
        } else {
            Value::from_yaml_str(&self.text)?
        };
        let directories = self
            .relative
            .parent()
            .into_iter()
            .flat_map(Path::components);
        for directory in directories.rev() {
            if let Component::Normal(directory) = directory {
                let key = directory.to_string_lossy();
                let mut object = Value::new_object();
                object.as_object_mut()?.insert(Value::from(&*key), value);
                value = object;
            }
        }
        Ok(value)
    }
}

/// What lies below one source.
#[derive(Default)]
struct Found {
    rego: Vec<File>,
    tests: Vec<File>,
    data: Vec<File>,
}

impl Found {
    fn below(root: &Path, policy: &str) -> Result<Self, PolicyError> {
        let mut found = Self::default();
        let failed = |path: &Path, error| PolicyError::Read {
            policy: policy.to_owned(),
            path: path.to_owned(),
            error,
        };
        if !root.is_dir() {
            let text = fs::read_to_string(root).map_err(|error| failed(root, error))?;
            found.rego.push(File {
                path: root.to_owned(),
                relative: root.file_name().map(PathBuf::from).unwrap_or_default(),
                text,
            });
            return Ok(found);
        }
        let mut paths = BTreeSet::new();
        walk(root, 0, &mut paths).map_err(|(path, error)| failed(&path, error))?;
        for path in paths {
            let Some(kind) = Kind::of(&path) else {
                continue;
            };
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            let file = File {
                relative: path.strip_prefix(root).unwrap_or(&path).to_owned(),
                path,
                text,
            };
            match kind {
                Kind::Rego => found.rego.push(file),
                Kind::Test => found.tests.push(file),
                Kind::Data => found.data.push(file),
            }
        }
        Ok(found)
    }
}

enum Kind {
    Rego,
    Test,
    Data,
}

impl Kind {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        if name.ends_with("_test.rego") {
            Some(Self::Test)
        } else if name.ends_with(".rego") {
            Some(Self::Rego)
        } else if matches!(name, "data.json" | "data.yaml" | "data.yml") {
            Some(Self::Data)
        } else {
            None
        }
    }
}

/// The files below a directory. What starts with a dot is left out: a repository's own directory, and
/// the copies behind the links of a mounted ConfigMap.
fn walk(
    directory: &Path,
    depth: usize,
    paths: &mut BTreeSet<PathBuf>,
) -> Result<(), (PathBuf, io::Error)> {
    let failed = |error| (directory.to_owned(), error);
    if depth > MAX_DEPTH {
        let error = io::Error::other("directories are nested too deep, or linked in a circle");
        return Err(failed(error));
    }
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            walk(&path, depth + 1, paths)?;
        } else {
            paths.insert(path);
        }
    }
    Ok(())
}

/// The file or directory that a source names.
fn locate(source: &Path, search: &[PathBuf]) -> Result<PathBuf, PolicyError> {
    if source.exists() {
        let is_rego = source.extension() == Some(OsStr::new("rego"));
        return if source.is_dir() || is_rego {
            Ok(source.to_owned())
        } else {
            Err(PolicyError::NotRego {
                path: source.to_owned(),
            })
        };
    }
    let is_bare = !source.as_os_str().as_encoded_bytes().contains(&b'/')
        && matches!(source.components().next(), Some(Component::Normal(_)))
        && source.extension() != Some(OsStr::new("rego"));
    if !is_bare {
        return Err(PolicyError::NotFound {
            path: source.to_owned(),
        });
    }
    search
        .iter()
        .map(|directory| directory.join(source))
        .flat_map(|path| {
            let file = path.with_extension("rego");
            [path, file]
        })
        .find(|path| path.exists())
        .ok_or_else(|| PolicyError::NoSuchName {
            name: source.display().to_string(),
            searched: search.to_vec(),
        })
}

fn name_of(root: &Path) -> String {
    let whole = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let name = if root.is_dir() {
        whole.file_name()
    } else {
        whole.file_stem()
    };
    name.map_or_else(
        || "policy".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}
