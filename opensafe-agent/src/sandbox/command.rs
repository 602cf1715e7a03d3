//! What to run: found before anything is armed, so that a command that cannot run starts nothing.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use nix::unistd::{AccessFlags, access};

/// Why a command cannot run. The exit statuses are those of the shells (POSIX.1-2024, 2.8.2).
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Nothing of that name.
    #[error("command {name:?}: not found{}", if *.searched { " on PATH" } else { "" })]
    NotFound {
        /// As typed.
        name: OsString,
        /// Whether it was looked for on PATH.
        searched: bool,
    },
    /// Something of that name that cannot be executed.
    #[error("command {}: {source}", path.display())]
    NotExecutable {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl CommandError {
    /// 127 or 126.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
        }
    }
}

/// The file that a command's name means, as execvp(3) would find it.
pub fn find(name: &OsStr) -> Result<PathBuf, CommandError> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match check(&path) {
            Ok(()) => Ok(path),
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                Err(CommandError::NotFound {
                    name: name.to_owned(),
                    searched: false,
                })
            }
            Err(source) => Err(CommandError::NotExecutable { path, source }),
        };
    }
    let directories = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for directory in env::split_paths(&directories) {
        let path = directory.join(name);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied && path.exists() => {
                refused.get_or_insert(CommandError::NotExecutable { path, source });
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| CommandError::NotFound {
        name: name.to_owned(),
        searched: true,
    }))
}

fn check(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    access(path, AccessFlags::X_OK).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_on_path_is_found() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
    }

    #[test]
    fn what_does_not_exist_is_127_and_what_is_no_program_126() {
        let status = |name: &str| find(OsStr::new(name)).unwrap_err().exit_status();
        assert_eq!(status("no-such-command-here"), 127);
        assert_eq!(status("/no/such/file"), 127);
        assert_eq!(status("/etc/passwd"), 126);
        assert_eq!(status("/etc"), 126);
    }
}
