//! What can be wrong with a policy, in words for the person who wrote it.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use crate::rules::Origin;

/// Why a policy cannot be loaded or evaluated. Shown, each starts with the policy's name, and lists
/// all that is wrong, one to a line.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// No such file or directory.
    #[error("policy {}: no such file or directory", path.display())]
    NotFound {
        /// As it was asked for.
        path: PathBuf,
    },
    /// No policy of this name.
    #[error(
        "policy {name}: no such policy, and no such file here\n  looked in {}; name a directory or a .rego file, or set OPENSAFE_POLICY_PATH",
        Paths(searched)
    )]
    NoSuchName {
        /// As it was asked for.
        name: String,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// A file or directory that cannot be read.
    #[error("policy {policy}: cannot read {}: {error}", path.display())]
    Read {
        /// The policy.
        policy: String,
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// A file that is no Rego, by its name.
    #[error("policy {}: is neither a directory nor a .rego file", path.display())]
    NotRego {
        /// The file.
        path: PathBuf,
    },
    /// A directory without Rego files.
    #[error("policy {}: there is no policy in it: no .rego file{}", path.display(), if *tests { " but tests" } else { "" })]
    NoPolicy {
        /// The directory.
        path: PathBuf,
        /// Whether there are `*_test.rego` files.
        tests: bool,
    },
    /// No policy was asked for.
    #[error("no policy was named")]
    NoSources,
    /// Rego files, but none with rules for a sandbox.
    #[error("policy {policy}: has no package opensafe.sandbox; it has {}", found.join(", ").replace("data.", ""))]
    NoSandboxPackage {
        /// The policy.
        policy: String,
        /// The packages there are.
        found: Vec<String>,
    },
    /// Files that do not parse.
    #[error("{}", Each(policy, errors))]
    Parse {
        /// The policy.
        policy: String,
        /// What is wrong, where.
        errors: Vec<Located>,
    },
    /// References to input that there is not.
    #[error("{}", Each(policy, errors))]
    UnknownInput {
        /// The policy.
        policy: String,
        /// What is wrong, where.
        errors: Vec<Located>,
    },
    /// A sandbox that cannot be told to a policy.
    #[error("policy {policy}: {problem}")]
    Input {
        /// The policy.
        policy: String,
        /// What is wrong.
        problem: String,
    },
    /// An evaluation that ended in an error: a conflict, a built-in's error, the time limit.
    #[error("policy {policy}: {error}")]
    Evaluation {
        /// The policy.
        policy: String,
        /// What is wrong, where.
        error: Located,
    },
    /// `rules` is not defined for this sandbox.
    #[error(
        "policy {policy}: data.opensafe.sandbox.rules is undefined for this sandbox\n  write `rules contains {{…}}`, or `rules := []` for a policy of defaults alone"
    )]
    RulesUndefined {
        /// The policy.
        policy: String,
    },
    /// `responses` is not defined for this sandbox, though there is a package for them.
    #[error(
        "policy {policy}: data.opensafe.response.responses is undefined for this sandbox\n  write `responses contains {{…}}`, or `responses := []` for none"
    )]
    ResponsesUndefined {
        /// The policy.
        policy: String,
    },
    /// Rules, defaults or responses that make no sense.
    #[error("{}", Each(policy, errors))]
    Rules {
        /// The policy.
        policy: String,
        /// What is wrong, rule by rule.
        errors: Vec<RuleError>,
    },
}

impl PolicyError {
    pub(super) fn internal(policy: &str, error: &anyhow::Error) -> Self {
        Self::Evaluation {
            policy: policy.to_owned(),
            error: Located::from_regorus(error),
        }
    }
}

/// What is wrong with Rego's text, where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Where.
    pub at: Option<At>,
    /// What.
    pub message: String,
}

/// A place in a Rego file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Character in the line, from 1.
    pub column: u32,
    /// The line.
    pub text: String,
}

/// What is wrong with one rule, or with `defaults`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Which: its id, or what can be said of it.
    pub rule: String,
    /// Where it seems to be written.
    pub origins: Vec<Origin>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The whole of it.
    #[error("{0}")]
    Whole(String),
    /// One of its keys.
    #[error("{key} {value}: {problem}")]
    Key {
        /// The key.
        key: &'static str,
        /// Its value, or the one of several that is wrong.
        value: String,
        /// What is wrong.
        problem: String,
    },
}

impl Located {
    /// Reads an error of regorus: `--> FILE:LINE:COLUMN`, the line, a caret, `error: MESSAGE`.
    pub(super) fn from_regorus(error: &anyhow::Error) -> Self {
        let text = error.to_string();
        Self::parse(&text).unwrap_or_else(|| Self {
            at: None,
            message: text.trim().to_owned(),
        })
    }

    /// An error in a whole file.
    pub(super) fn of_file(path: &Path, error: &anyhow::Error) -> Self {
        Self {
            at: None,
            message: format!("{}: {error}", path.display()),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("--> ")?;
        let mut lines = rest.lines();
        let mut place = lines.next()?.rsplitn(3, ':');
        let column: u32 = place.next()?.parse().ok()?;
        let line: u32 = place.next()?.parse().ok()?;
        let file = place.next()?.to_owned();
        lines.next()?;
        let shown = lines.next()?;
        let text = shown.strip_prefix(&format!("{line} | ")).unwrap_or(shown);
        let message = rest.split_once("\nerror: ").map(|(_, message)| message)?;
        Some(Self {
            at: Some(At {
                file,
                line,
                column: characters(text, column),
                text: text.to_owned(),
            }),
            message: reworded(message.trim()),
        })
    }
}

impl Display for Located {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(At {
            file,
            line,
            column,
            text,
        }) = &self.at
        else {
            return f.write_str(&self.message);
        };
        writeln!(f, "{file}:{line}:{column}: {}", self.message)?;
        let number = line.to_string();
        let before = usize::try_from(*column).unwrap_or(1).saturating_sub(1);
        let (text, before) = excerpt(text, before);
        let indent: String = text
            .chars()
            .take(before)
            .map(|c| if c == '\t' { c } else { ' ' })
            .collect();
        writeln!(f, "  {number} | {text}")?;
        write!(f, "  {:width$} | {indent}^", "", width = number.len())
    }
}

impl Display for RuleError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rule)?;
        if !self.origins.is_empty() {
            let origins: Vec<_> = self.origins.iter().map(ToString::to_string).collect();
            write!(f, " ({})", origins.join(", "))?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// Every error after the policy's name.
struct Each<'a, T>(&'a str, &'a [T]);

impl<T: Display> Display for Each<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (n, error) in self.1.iter().enumerate() {
            let new_line = if n == 0 { "" } else { "\n" };
            write!(f, "{new_line}policy {}: {error}", self.0)?;
        }
        Ok(())
    }
}

struct Paths<'a>(&'a [PathBuf]);

impl Display for Paths<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self
            .0
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        f.write_str(&paths.join(", "))
    }
}

/// What is shown of a line, and how many characters of that come before a place in it: of a long one, what is around the place.
fn excerpt(line: &str, before: usize) -> (String, usize) {
    const MOST: usize = 160;
    const AROUND: usize = 60;
    const CUT: char = '…';
    let characters = line.chars().count();
    if characters <= MOST {
        return (line.to_owned(), before);
    }
    let from = before.min(characters).saturating_sub(AROUND);
    let mut shown: String = line.chars().skip(from).take(2 * AROUND).collect();
    if from + 2 * AROUND < characters {
        shown.push(CUT);
    }
    let mut before = before.min(characters) - from;
    if from > 0 {
        shown.insert(0, CUT);
        before += 1;
    }
    (shown, before)
}

/// regorus counts a tab as four columns.
fn characters(line: &str, column: u32) -> u32 {
    let (mut left, mut character) = (column.saturating_sub(1), 1);
    for c in line.chars() {
        let width = if c == '\t' { 4 } else { 1 };
        if left < width {
            break;
        }
        left -= width;
        character += 1;
    }
    character
}

/// Two of regorus's messages that leave open what to do.
fn reworded(message: &str) -> String {
    match message.strip_prefix("rule conflicts with rule at ") {
        Some(other) => format!("gives a second value to what {other} defines"),
        None if message.starts_with("complete rules should not produce multiple outputs") => {
            "gives two values to one name".to_owned()
        }
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_what_is_around_the_place_is_shown() {
        assert_eq!(excerpt("short", 3), ("short".to_owned(), 3));
        let line: String = (0..1000_u32)
            .map(|n| char::from(b'a' + (n % 26) as u8))
            .collect();
        for before in [0, 5, 59, 60, 61, 500, 939, 940, 999, 1000, 5000] {
            let (shown, at) = excerpt(&line, before);
            assert!(shown.chars().count() <= 122, "{before}: {shown}");
            assert_eq!(
                shown.chars().nth(at).filter(|c| *c != '…'),
                line.chars().nth(before),
                "{before}"
            );
        }
    }
}
