//! Policies: Rego, loaded, evaluated for one sandbox, checked, and turned into [`RuleSet`].
//!
//! ```text
//! files ─load→ Policy ─evaluate(&Input)→ RuleSet
//!                     ─responses(&Input)→ Response
//! ```
//! Nothing is skipped: what does not parse, makes no sense or is undefined is an error that names the
//! rule and where it is written. This module alone knows regorus, of which it takes no built-in that
//! reaches outside the policy. `docs/policy.md` is the reference for someone who writes a policy.

mod ast;
mod check;
mod error;
mod git;
mod input;
mod merge;
mod source;
pub mod test;

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, PolicyLengthConfig, Value};

use crate::response::Response;
use crate::rules::RuleSet;
use ast::Declared;
pub use error::{At, Located, PolicyError, Problem, RuleError};
pub use input::{Host, Input, User};
use merge::Merged;
use source::Sources;

/// Longest that an evaluation may take, a unit test's too.
pub const EVALUATION_LIMIT: Duration = Duration::from_secs(5);
/// Most Rego in one package, in bytes.
const MAX_FILE_BYTES: usize = 32 << 20;
/// Most lines of a package.
const MAX_LINES: usize = 1_000_000;
/// Longest line of a Rego file, in characters.
const MAX_COLUMNS: u32 = 64 << 10;

/// The package whose `rules` and `defaults` say what a sandbox may do.
const PACKAGE: &str = "data.opensafe.sandbox";
/// The package whose `responses` say what to do about what it does.
const RESPONSES: &str = "data.opensafe.response";

/// A policy that parses. Evaluating it changes nothing in it.
#[derive(Clone, Debug)]
pub struct Policy {
    sources: Sources,
    engine: Engine,
    merged: Merged,
    declared: Declared,
    /// Whether it has a package for that.
    responds: bool,
}

/// A policy's files with what is in them.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct KeptPolicy(Sources);

impl KeptPolicy {
    /// Reads the files of a policy, for another process to load: see [`Policy::load`] for where they are looked for.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be read.
    pub fn read(sources: &[PathBuf]) -> Result<Self, PolicyError> {
        Sources::find(sources, &source::search_path()).map(Self)
    }
}

impl Policy {
    /// Loads a policy from Rego files and directories of them, all of which make one policy.
    ///
    /// A directory is searched through, without what starts with a dot; `*_test.rego` is left to
    /// [`test::run_tests`]; `data.json`, `data.yaml` and `data.yml` are data below the path of their
    /// directory, as in OPA's bundles. A bare name that is no path here is looked up in the
    /// directories of `$OPENSAFE_POLICY_PATH`, then in `/usr/share/opensafe/policies`.
    ///
    /// # Errors
    /// Nothing there, no policy in it, or files that do not parse (all of them are listed).
    pub fn load(sources: &[PathBuf]) -> Result<Self, PolicyError> {
        Self::from_sources(Sources::find(sources, &source::search_path())?)
    }

    /// The policy that [`Policy::kept`] gave.
    ///
    /// # Errors
    /// As [`Policy::load`], if this version reads Rego otherwise than the one that has kept it.
    pub fn of_kept(kept: KeptPolicy) -> Result<Self, PolicyError> {
        Self::from_sources(kept.0)
    }

    /// All of its files, as they were read: where it can be had again whatever has become of them.
    #[must_use]
    pub fn kept(&self) -> KeptPolicy {
        KeptPolicy(self.sources.clone())
    }

    /// What the policy is called: its sources' names.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.sources.name
    }

    /// `NAME@HASH`; the hash is over the policy's files, their paths and contents.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.sources.revision
    }

    /// The Rego files that make the policy, as they were found.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.sources.rego.iter().map(|file| file.path.as_path())
    }

    /// The rules that a sandbox gets. Takes milliseconds; [`EVALUATION_LIMIT`] is its limit.
    ///
    /// # Errors
    /// The policy does not evaluate, or what it evaluates to is not what it must be: every rule that
    /// is wrong is listed.
    pub fn evaluate(&self, input: &Input) -> Result<RuleSet, PolicyError> {
        let mut engine = self.engine_for(input)?;
        let defaults = self.query(&mut engine, PACKAGE, "defaults")?;
        let rules = self.query(&mut engine, PACKAGE, "rules")?.ok_or_else(|| {
            PolicyError::RulesUndefined {
                policy: self.sources.shown.clone(),
            }
        })?;
        let checked = check::rule_set(defaults.as_ref(), &rules, &self.declared);
        let (defaults, rules) = checked.map_err(|errors| self.refused(errors))?;
        Ok(RuleSet {
            defaults,
            rules,
            revision: self.sources.revision.clone(),
        })
    }

    /// What is to be done about what the sandbox does under these rules of its; nothing if the policy has no package
    /// `opensafe.response`.
    ///
    /// # Errors
    /// As for [`Policy::evaluate`].
    pub fn responses(&self, input: &Input, rules: &RuleSet) -> Result<Vec<Response>, PolicyError> {
        if !self.responds {
            return Ok(Vec::new());
        }
        let mut engine = self.engine_for(input)?;
        let responses = self
            .query(&mut engine, RESPONSES, "responses")?
            .ok_or_else(|| PolicyError::ResponsesUndefined {
                policy: self.sources.shown.clone(),
            })?;
        check::responses(&responses, rules, &self.declared).map_err(|errors| self.refused(errors))
    }

    fn engine_for(&self, input: &Input) -> Result<Engine, PolicyError> {
        let mut engine = self.engine.clone();
        engine.set_input(input.to_value().map_err(|problem| PolicyError::Input {
            policy: self.sources.shown.clone(),
            problem,
        })?);
        Ok(engine)
    }

    fn query(
        &self,
        engine: &mut Engine,
        package: &str,
        name: &str,
    ) -> Result<Option<Value>, PolicyError> {
        query(engine, &format!("{package}.{name}")).map_err(|error| PolicyError::Evaluation {
            policy: self.sources.shown.clone(),
            error: self
                .sources
                .shorten(self.merged.locate(Located::from_regorus(&error))),
        })
    }

    fn refused(&self, errors: Vec<RuleError>) -> PolicyError {
        PolicyError::Rules {
            policy: self.sources.shown.clone(),
            errors: errors
                .into_iter()
                .map(|error| self.sources.shorten_rule(error))
                .collect(),
        }
    }

    fn from_sources(sources: Sources) -> Result<Self, PolicyError> {
        let mut parsed = parse(&sources, sources.rego.iter())?;
        let shown = sources.shown.clone();
        let packages: BTreeSet<String> = parsed
            .get_packages()
            .map_err(|error| PolicyError::internal(&shown, &error))?
            .into_iter()
            .collect();
        if !packages.contains(PACKAGE) {
            return Err(PolicyError::NoSandboxPackage {
                policy: shown,
                found: packages.into_iter().collect(),
            });
        }
        let declared = Declared::find(parsed.get_modules());
        if !declared.unknown_inputs.is_empty() {
            return Err(PolicyError::UnknownInput {
                policy: shown,
                errors: declared
                    .unknown_inputs
                    .iter()
                    .map(|error| sources.shorten(error.clone()))
                    .collect(),
            });
        }
        let (engine, merged) = merge(parsed, &sources)?;
        Ok(Self {
            sources,
            engine,
            merged,
            declared,
            responds: packages.contains(RESPONSES),
        })
    }
}

/// What a value that a policy evaluated to says, or what is wrong with it.
#[cfg(any(test, feature = "untrusted"))]
pub(crate) fn checked(
    defaults: Option<&Value>,
    rules: &Value,
) -> Result<(crate::rules::Defaults, Vec<crate::rules::Rule>), Vec<String>> {
    check::rule_set(defaults, rules, &Declared::default())
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

/// An engine with our limits, and nothing in it.
fn engine() -> Engine {
    let mut engine = Engine::new();
    engine.set_strict_builtin_errors(true);
    engine.set_policy_length_config(PolicyLengthConfig {
        max_col: NonZeroU32::MIN.saturating_add(MAX_COLUMNS),
        max_file_bytes: NonZeroUsize::MIN.saturating_add(MAX_FILE_BYTES),
        max_lines: NonZeroUsize::MIN.saturating_add(MAX_LINES),
    });
    engine.set_execution_timer_config(ExecutionTimerConfig {
        limit: EVALUATION_LIMIT,
        check_interval: NonZeroU32::MIN.saturating_add(1000),
    });
    engine
}

/// An engine with the sources' data and `files`; all that does not parse is listed.
fn parse<'a>(
    sources: &Sources,
    files: impl Iterator<Item = &'a source::File>,
) -> Result<Engine, PolicyError> {
    let mut engine = engine();
    let mut errors = add_data(&mut engine, sources);
    for file in files {
        let path = file.path.to_string_lossy().into_owned();
        if let Err(error) = engine.add_policy(path, file.text.clone()) {
            errors.push(Located::from_regorus(&error));
        }
    }
    if errors.is_empty() {
        Ok(engine)
    } else {
        Err(unparsed(sources, errors))
    }
}

/// The engine to evaluate with, from the one in which the files are parsed.
fn merge(parsed: Engine, sources: &Sources) -> Result<(Engine, Merged), PolicyError> {
    let mut empty = engine();
    add_data(&mut empty, sources);
    Merged::new(parsed, empty).map_err(|errors| unparsed(sources, errors))
}

fn add_data(engine: &mut Engine, sources: &Sources) -> Vec<Located> {
    let add = |data: &source::File| {
        let added = data.value().and_then(|value| engine.add_data(value));
        added
            .map_err(|error| Located::of_file(&data.path, &error))
            .err()
    };
    sources.data.iter().filter_map(add).collect()
}

fn unparsed(sources: &Sources, errors: Vec<Located>) -> PolicyError {
    PolicyError::Parse {
        policy: sources.shown.clone(),
        errors: errors
            .into_iter()
            .map(|error| sources.shorten(error))
            .collect(),
    }
}

/// What a query gives, `None` if it is undefined.
fn query(engine: &mut Engine, query: &str) -> anyhow::Result<Option<Value>> {
    let results = engine.eval_query(query.to_owned(), false)?;
    let first = results.result.into_iter().next();
    Ok(first
        .and_then(|result| result.expressions.into_iter().next())
        .map(|expression| expression.value)
        .filter(|value| *value != Value::Undefined))
}

#[cfg(test)]
mod shipped;
#[cfg(test)]
mod tests;
