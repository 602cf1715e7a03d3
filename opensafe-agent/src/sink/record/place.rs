//! Where records are: in the state directory of whoever started `opensafe`, also when it was through
//! `sudo`.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use nix::unistd::Uid;

use crate::account::Account;

use super::file::Owner;
use crate::run::RunId;

/// What a record's file name ends in.
pub const EXTENSION: &str = "jsonl";

/// The person behind this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoker {
    /// Home directory; empty if there is none.
    pub home: PathBuf,
    /// Who is to own what is written, if that is not the user that this process runs as.
    pub owner: Option<Owner>,
    state: Option<PathBuf>,
}

/// Why a run has no record to be found.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum FindError {
    #[error("there is no record of a run in {}", runs.display())]
    NoRuns { runs: PathBuf },
    #[error("no run whose id starts with `{typed}` is in {}", runs.display())]
    NoneSo { typed: String, runs: PathBuf },
    #[error("`{typed}` is no file, and no run's id or the beginning of one")]
    NoSuch { typed: String },
    #[error("`{typed}` is the beginning of more than one run's id: {}", ids.join(", "))]
    Ambiguous { typed: String, ids: Vec<String> },
    #[error("cannot list the records in {}: {cause}", runs.display())]
    List { runs: PathBuf, cause: io::Error },
}

impl Invoker {
    /// From this process's user and environment (`SUDO_UID`, `SUDO_GID`, `HOME`, `XDG_STATE_HOME`).
    #[must_use]
    pub fn current() -> Self {
        Self::of(Uid::effective(), |name| env::var_os(name))
    }

    fn of(uid: Uid, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let id = |name| variable(name)?.to_str()?.parse::<u32>().ok();
        let sudo = id("SUDO_UID").filter(|user| uid.is_root() && *user != 0);
        let account = |uid: Uid| Account::of(uid.as_raw());
        let (home, owner) = match sudo {
            Some(user) => {
                let account = account(Uid::from_raw(user));
                let gid = id("SUDO_GID").or(account.as_ref().map(|account| account.gid));
                let owner = gid.map(|gid| Owner { uid: user, gid });
                (account.map(|account| account.home), owner)
            }
            None => {
                let home = variable("HOME").map(PathBuf::from);
                let home = home.filter(|home| home.is_absolute());
                (
                    home.or_else(|| account(uid).map(|account| account.home)),
                    None,
                )
            }
        };
        // A relative one is to be ignored, says the XDG Base Directory Specification.
        let state = variable("XDG_STATE_HOME")
            .map(PathBuf::from)
            .filter(|state| state.is_absolute());
        Self {
            home: home.unwrap_or_default(),
            owner,
            state,
        }
    }

    /// The directory of the records of runs that did not name theirs:
    /// `$XDG_STATE_HOME/opensafe/runs`, or `~/.local/state/opensafe/runs`.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.state
            .clone()
            .unwrap_or_else(|| self.home.join(".local/state"))
            .join("opensafe/runs")
    }

    /// Where the record of `run` is unless it is named.
    #[must_use]
    pub fn record(&self, run: &RunId) -> PathBuf {
        self.runs().join(run.as_str()).with_extension(EXTENSION)
    }

    /// The record that is meant by `typed`: a path, a run's id, or a beginning that only one has.
    /// Something with a slash in it, and a name with [`EXTENSION`], is a path.
    ///
    /// # Errors
    /// If it means none, or more than one.
    pub fn find(&self, typed: &Path) -> Result<PathBuf, FindError> {
        let text = typed.to_str().unwrap_or_default();
        let names_a_file =
            text.contains('/') || typed.extension().is_some_and(|end| end == EXTENSION);
        if names_a_file || typed.exists() {
            return Ok(typed.to_owned());
        }
        let typed = typed.to_string_lossy().into_owned();
        let Some(beginning) = RunId::normalise(text).filter(|id| !id.is_empty()) else {
            return Err(FindError::NoSuch { typed });
        };
        let mut found: Vec<PathBuf> = self
            .records()?
            .into_iter()
            .filter(|record| id_of(record).starts_with(&beginning))
            .collect();
        match found.len() {
            0 => Err(FindError::NoneSo {
                typed,
                runs: self.runs(),
            }),
            1 => Ok(found.swap_remove(0)),
            _ => Err(FindError::Ambiguous {
                typed,
                ids: found.iter().map(|record| id_of(record)).collect(),
            }),
        }
    }

    /// The record that was begun last.
    ///
    /// # Errors
    /// If there is none.
    pub fn latest(&self) -> Result<PathBuf, FindError> {
        self.records()?
            .pop()
            .ok_or_else(|| FindError::NoRuns { runs: self.runs() })
    }

    /// Every record in [`Invoker::runs`], the oldest first.
    ///
    /// # Errors
    /// If the directory cannot be listed; that it does not exist is no error.
    pub fn records(&self) -> Result<Vec<PathBuf>, FindError> {
        let runs = self.runs();
        let failed = |cause| FindError::List {
            runs: runs.clone(),
            cause,
        };
        let entries = match fs::read_dir(&runs) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|end| end == EXTENSION) && path.is_file() {
                records.push((super::read::begun(&path), path));
            }
        }
        records.sort();
        Ok(records.into_iter().map(|(_, path)| path).collect())
    }
}

fn id_of(record: &Path) -> String {
    record
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invoker(uid: u32, variables: &[(&str, &str)]) -> Invoker {
        Invoker::of(Uid::from_raw(uid), |name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.into())
        })
    }

    fn with_runs(ids: &[&str]) -> (tempfile::TempDir, Invoker) {
        let state = tempfile::tempdir().unwrap();
        let invoker = invoker(0, &[("XDG_STATE_HOME", state.path().to_str().unwrap())]);
        fs::create_dir_all(invoker.runs()).unwrap();
        for (time, id) in ids.iter().enumerate() {
            let line = format!(
                "{{\"time_unix_nano\":{},\"opensafe.run.id\":\"{id}\",\"opensafe.event\":\"run.start\"}}\n",
                1000 - time
            );
            fs::write(invoker.runs().join(format!("{id}.jsonl")), line).unwrap();
        }
        (state, invoker)
    }

    #[test]
    fn records_are_in_the_state_directory() {
        let plain = invoker(1000, &[("HOME", "/home/me")]);
        assert_eq!(
            plain.runs(),
            Path::new("/home/me/.local/state/opensafe/runs")
        );
        assert_eq!(plain.owner, None);
        let named = invoker(1000, &[("HOME", "/home/me"), ("XDG_STATE_HOME", "/state")]);
        assert_eq!(named.runs(), Path::new("/state/opensafe/runs"));
        let relative = invoker(1000, &[("HOME", "/home/me"), ("XDG_STATE_HOME", "state")]);
        assert_eq!(relative.runs(), plain.runs());
    }

    #[test]
    fn under_sudo_they_are_the_invoking_users() {
        let sudo = [("HOME", "/root"), ("SUDO_UID", "1"), ("SUDO_GID", "7")];
        let invoker = invoker(0, &sudo);
        assert_eq!(invoker.owner, Some(Owner { uid: 1, gid: 7 }));
        let account = Account::of(1).unwrap();
        assert_eq!(invoker.home, account.home);
    }

    #[test]
    fn who_is_not_root_cannot_claim_another_by_a_variable() {
        let claims = [("HOME", "/home/me"), ("SUDO_UID", "1"), ("SUDO_GID", "1")];
        assert_eq!(invoker(1000, &claims).owner, None);
        assert_eq!(invoker(1000, &claims).home, Path::new("/home/me"));
    }

    #[test]
    fn a_run_is_found_by_a_beginning_that_only_it_has() {
        let (_state, invoker) = with_runs(&["7f3k2aaa", "7f3k2bbb", "8a1mz000"]);
        let found = |typed: &str| invoker.find(Path::new(typed));
        assert!(found("8").unwrap().ends_with("8a1mz000.jsonl"));
        assert!(found("7F3K2A").unwrap().ends_with("7f3k2aaa.jsonl"));
        let error = found("7f3k2").unwrap_err().to_string();
        assert!(
            error.contains("7f3k2aaa") && error.contains("7f3k2bbb"),
            "{error}"
        );
        assert!(matches!(found("99"), Err(FindError::NoneSo { .. })));
        assert!(matches!(
            found("no such thing"),
            Err(FindError::NoSuch { .. })
        ));
    }

    #[test]
    fn what_looks_like_a_path_is_one() {
        let (_state, invoker) = with_runs(&["7f3k2aaa"]);
        for path in ["./7f3k2aaa", "7f3k2aaa.jsonl", "/tmp/x"] {
            assert_eq!(invoker.find(Path::new(path)).unwrap(), Path::new(path));
        }
    }

    #[test]
    fn the_latest_is_the_one_that_began_last() {
        let (_state, invoker) = with_runs(&["7f3k2aaa", "7f3k2bbb"]);
        assert!(invoker.latest().unwrap().ends_with("7f3k2aaa.jsonl"));
    }
}
