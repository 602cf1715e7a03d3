//! What starts the attempts' processes, both outside and inside: a program in which people run their agents.

mod bundle;

use std::{
    ffi::{OsStr, OsString},
    fmt, fs, io,
    path::Path,
    process::{Command, Stdio},
    str::FromStr,
};

use super::site::Site;
use crate::{
    sandbox::command::{CommandError, find},
    sink::text::printable,
};

/// All of the host's files, processes and a host name of its own.
const BUBBLEWRAP: [&str; 9] = [
    "bwrap",
    "--dev-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
];

/// A runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// As typed.
    name: String,
    how: How,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    /// By a command line to which another is appended.
    Prefix(Vec<OsString>),
    /// By a bundle, which this program of the Open Container Initiative runs.
    Bundle(&'static str),
}

/// Why it cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RuntimeError {
    #[error("a name, or a command line to which another can be appended, was expected")]
    Empty,
    #[error("a quote or a backslash in it has no end")]
    Unfinished,
    #[error(
        "{0} has its containers started by a service: they are no children of the sandbox, and OpenSafe would not hold \
         them; give the runtime itself, such as crun, or run `opensafe run` in the container"
    )]
    Service(&'static str),
    #[error(
        "podman puts its containers into cgroups outside the sandbox; give the runtime that it uses, such as crun, or \
         podman's whole command line with --cgroups=disabled"
    )]
    Podman,
}

/// Those whose containers are started by somebody else.
const SERVICES: [&str; 6] = [
    "docker",
    "nerdctl",
    "ctr",
    "crictl",
    "systemd-run",
    "machinectl",
];

impl FromStr for Runtime {
    type Err = RuntimeError;

    fn from_str(typed: &str) -> Result<Self, RuntimeError> {
        let how = match typed {
            "bwrap" => How::Prefix(
                BUBBLEWRAP
                    .iter()
                    .chain(&["--die-with-parent", "--"])
                    .map(OsString::from)
                    .collect(),
            ),
            "crun" => How::Bundle("crun"),
            "runc" => How::Bundle("runc"),
            typed => How::Prefix(words(typed)?),
        };
        Ok(Self {
            name: typed.to_owned(),
            how,
        })
    }
}

fn words(typed: &str) -> Result<Vec<OsString>, RuntimeError> {
    let words = shlex::split(typed).ok_or(RuntimeError::Unfinished)?;
    let program = words.first().ok_or(RuntimeError::Empty)?;
    let program = Path::new(program).file_name().unwrap_or_default();
    if let Some(service) = SERVICES.into_iter().find(|service| program == *service) {
        return Err(RuntimeError::Service(service));
    }
    if program == "podman" && !words.iter().any(|word| word == "--cgroups=disabled") {
        return Err(RuntimeError::Podman);
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(self.name.as_bytes()))
    }
}

impl Runtime {
    /// Whether its program is there.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        let program = match &self.how {
            How::Prefix(words) => words.first().map_or(OsStr::new(""), OsString::as_os_str),
            How::Bundle(program) => OsStr::new(*program),
        };
        find(program).map(drop)
    }

    /// The command line by which it runs another, at this site; what it takes for that is made there.
    pub(super) fn wrap(&self, site: &Site, command: Vec<OsString>) -> io::Result<Vec<OsString>> {
        match &self.how {
            How::Prefix(words) => Ok(words.iter().cloned().chain(command).collect()),
            How::Bundle(program) => bundle::make(program, site, &command),
        }
    }

    /// Takes away what it may have left, if it came to a sudden end.
    pub(super) fn clean(&self, site: &Site) {
        if let How::Bundle(program) = self.how {
            let _ = Command::new(program)
                .args(bundle::delete(site))
                .stdin(Stdio::null())
                .output();
        }
    }
}

/// Where what a runtime says on its standard error is kept.
pub(super) fn said_at(site: &Site) -> std::path::PathBuf {
    site.open("runtime-said")
}

/// What it said last, for a person.
pub(super) fn said(site: &Site) -> String {
    let text = fs::read(said_at(site)).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    let last = lines.rev().find(|line| !line.trim_ascii().is_empty());
    last.map_or_else(
        || "it said nothing".to_owned(),
        |line| printable(line).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(typed: &str) -> Result<Runtime, RuntimeError> {
        typed.parse()
    }

    fn wrapped(typed: &str) -> Vec<OsString> {
        let site = Site::default();
        let command = vec!["try".into(), "a b".into()];
        parsed(typed).unwrap().wrap(&site, command).unwrap()
    }

    #[test]
    fn a_command_line_is_split_as_a_shell_does_and_the_attempts_are_appended() {
        assert_eq!(
            wrapped("unshare --mount 'an argument' --"),
            ["unshare", "--mount", "an argument", "--", "try", "a b"]
        );
    }

    #[test]
    fn bubblewrap_by_its_name_shows_everything_and_hides_processes() {
        let line = wrapped("bwrap");
        assert_eq!(line[..4], ["bwrap", "--dev-bind", "/", "/"]);
        assert!(line.contains(&"--unshare-pid".into()));
        assert_eq!(line[line.len() - 3..], ["--", "try", "a b"]);
    }

    #[test]
    fn what_has_others_start_its_containers_is_refused_by_whatever_path_it_is_named() {
        for typed in [
            "docker",
            "/usr/bin/docker run -i debian",
            "systemd-run --pipe",
            "nerdctl run x",
            "ctr",
        ] {
            let refused = parsed(typed).unwrap_err();
            assert!(
                matches!(refused, RuntimeError::Service(_)),
                "{typed}: {refused}"
            );
        }
        assert_eq!(parsed("podman run debian"), Err(RuntimeError::Podman));
        assert!(parsed("podman run --cgroups=disabled debian").is_ok());
    }

    #[test]
    fn what_is_no_command_line_is_an_error() {
        assert_eq!(parsed(""), Err(RuntimeError::Empty));
        assert_eq!(parsed("  "), Err(RuntimeError::Empty));
        assert_eq!(parsed("bwrap 'x"), Err(RuntimeError::Unfinished));
    }

    #[test]
    fn a_program_that_is_not_there_is_missed_before_anything_is_tried() {
        let missed = parsed("no-such-runtime --flag").unwrap().check();
        assert!(
            matches!(missed, Err(CommandError::NotFound { .. })),
            "{missed:?}"
        );
    }

    #[test]
    fn of_what_it_says_the_last_line_is_told_and_harmless() {
        let directory = tempfile::tempdir().unwrap();
        let site = Site {
            root: directory.path().to_owned(),
            ..Site::default()
        };
        assert_eq!(said(&site), "it said nothing");
        fs::create_dir(site.path("workspace")).unwrap();
        fs::write(said_at(&site), "a warning\nno \x1b[31mmount\n\n").unwrap();
        assert_eq!(said(&site), r"no \x1b[31mmount");
    }
}
