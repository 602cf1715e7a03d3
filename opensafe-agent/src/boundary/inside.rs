//! The hidden command: makes attempts, each in a process of its own, and says how each ended.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        prctl::{set_name, set_pdeathsig},
        signal::Signal,
    },
    unistd::getppid,
};

use super::{
    ATTEMPT, honest, kinds,
    namespaces::Namespace,
    outside,
    runtime::{self, Runtime},
    site::{Made, Site},
};
use crate::sandbox::signals::Signals;

/// An attempt takes no longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The word by which the hidden command makes several attempts.
pub(super) const ALL: &str = "all";
/// The word by which it makes one.
const ONE: &str = "one";
/// The word by which it starts a runtime, in which it makes several.
const RUNTIME: &str = "runtime";
/// The word by which it is a daemon's parent, who makes one and ends.
const DAEMON: &str = "daemon";

/// `opensafe __attempt WORD …`. Without a word it does nothing, and succeeds: attempts run it as a program.
#[must_use]
pub fn inside(arguments: &[OsString]) -> ExitCode {
    let done = match arguments.split_first() {
        Some((word, rest)) if word == ALL => all(rest),
        Some((word, rest)) if word == ONE => one(rest),
        Some((word, rest)) if word == RUNTIME => return runtime(rest),
        Some((word, rest)) if word == DAEMON => daemon(rest),
        // A process that was replaced by this program: that worked.
        Some((word, _)) if word == "ran" => {
            println!("ok");
            Ok(())
        }
        Some((word, rest)) if word == outside::OUTSIDE => outside::live(rest),
        _ => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The name that the process of an attempt has, by which the record's lines are found: its number is the
/// attempt's in the list that is made.
pub(super) fn process_name(number: usize) -> String {
    format!("try-{number}")
}

/// The command line that makes attempts, in the runtime if there is one, and writes their ends, a line each, to
/// `results`.
pub(super) fn command_line(
    made: &Made,
    runtime: Option<&Runtime>,
    results: &Path,
    names: &[&str],
) -> io::Result<Vec<OsString>> {
    let program = made.site.program().into_os_string();
    let mut words = vec![program.clone(), ATTEMPT.into(), ALL.into()];
    words.extend([made.file.as_os_str(), results.as_os_str()].map(OsStr::to_owned));
    words.extend(names.iter().map(|&name| name.into()));
    let Some(runtime) = runtime else {
        return Ok(words);
    };
    let words = runtime.wrap(&made.site, words)?;
    let said = runtime::said_at(&made.site).into_os_string();
    let start = [program, ATTEMPT.into(), RUNTIME.into(), said];
    Ok(start.into_iter().chain(words).collect())
}

/// How an attempt ended, and which process made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    /// As those outside know it; nothing where that is not known.
    pub(super) process: Option<u64>,
    /// `ok`, an error's name, or what was said.
    pub(super) said: String,
}

/// How attempts ended, in their order. One without a line had none.
pub(super) fn read_results(path: &Path) -> Vec<End> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let ends = text.lines().map(|line| {
        let (process, said) = line.split_once(' ').unwrap_or((line, ""));
        End {
            process: process.parse().ok(),
            said: said.to_owned(),
        }
    });
    ends.collect()
}

fn all(arguments: &[OsString]) -> io::Result<()> {
    let [file, results, names @ ..] = arguments else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // Who started it may have them blocked, to be able to clear up.
    Signals::unblock()?;
    let site = Site::read(Path::new(file))?;
    if getppid().as_raw() == site.supervisor.id {
        end_with_parent()?;
    }
    let mut results = File::create(results)?;
    let progress = site.progress && io::stderr().is_terminal();
    let known = site.namespaces.has_this_process(Namespace::Processes);
    for (number, name) in names.iter().enumerate() {
        if progress {
            let name = name.to_string_lossy();
            eprint!("\r\x1b[K[{}/{}] {name}", number + 1, names.len());
        }
        let mut child = Command::new(site.program())
            .args([ATTEMPT, ONE])
            .arg(file)
            .arg(number.to_string())
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (sender, receiver) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // Who inherited the pipe may keep it open for longer than we want to wait.
            thread::spawn(move || {
                let mut line = String::new();
                let _ = BufReader::new(stdout).read_line(&mut line);
                let _ = sender.send(line);
            });
        }
        let said = receiver.recv_timeout(PATIENCE).unwrap_or_default();
        let said = said.trim();
        let said = if said.is_empty() { "no end" } else { said };
        let process = if known {
            child.id().to_string()
        } else {
            "-".to_owned()
        };
        writeln!(results, "{process} {said}")?;
        let _ = child.kill();
        let _ = child.wait();
    }
    if progress {
        eprint!("\r\x1b[K");
    }
    Ok(())
}

/// Does not go on if the test is killed.
fn end_with_parent() -> io::Result<()> {
    Ok(set_pdeathsig(Signal::SIGKILL)?)
}

fn one(arguments: &[OsString]) -> io::Result<()> {
    let [file, number, name] = arguments else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let number = number.to_str().and_then(|number| number.parse().ok());
    set_name(&CString::new(process_name(
        number.ok_or(io::ErrorKind::InvalidInput)?,
    ))?)?;
    let made = Site::read(Path::new(file)).and_then(|site| make(&name.to_string_lossy(), &site));
    println!("{}", end(made));
    Ok(())
}

/// Starts a runtime, and keeps what it says; ends as it does.
fn runtime(arguments: &[OsString]) -> ExitCode {
    let [said, program, rest @ ..] = arguments else {
        return ExitCode::FAILURE;
    };
    let start = || {
        // As for the attempts: see `all`.
        Signals::unblock()?;
        end_with_parent()?;
        let mut said = File::create(said)?;
        // No /dev/null: crun gives its streams to the container's user, and a device is not the sandbox's to give.
        let ended = Command::new(program)
            .args(rest)
            .stdin(Stdio::piped())
            .stdout(said.try_clone()?)
            .stderr(said.try_clone()?)
            .status();
        ended.or_else(|error| {
            writeln!(said, "{}: {error}", program.display())?;
            Err(error)
        })
    };
    match start() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn make(name: &str, site: &Site) -> io::Result<()> {
    if let Some((_, attempt)) = kinds::all().find(|(_, attempt)| attempt.name == name) {
        return attempt.make_at(site);
    }
    match honest::ALL.iter().find(|work| work.name == name) {
        Some(work) => (work.make)(site),
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// How it ended, in a word: `ok`, an error's name, or what was said.
fn end(made: io::Result<()>) -> String {
    match made {
        Ok(()) => "ok".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(number) => format!("{:?}", Errno::from_raw(number)),
            None if error.kind() == io::ErrorKind::NotFound => "it is not here".to_owned(),
            None => error.to_string().replace(['\n', '\r'], " "),
        },
    }
}

/// Makes an attempt as a process that is nobody's child any more, in a session of its own, and waits for how it ended.
pub(super) fn as_daemon(site: &Site, name: &str) -> io::Result<()> {
    let me = fs::read_to_string("/proc/self/comm")?;
    let number = me.trim().strip_prefix("try-").unwrap_or("0");
    let output = Command::new(site.program())
        .args([ATTEMPT, DAEMON])
        .arg(site.open("site.json"))
        .args([number, name])
        .stdin(Stdio::piped())
        .output()?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "ok" => Ok(()),
        "EACCES" => Err(Errno::EACCES.into()),
        "EPERM" => Err(Errno::EPERM.into()),
        other => Err(io::Error::other(other.to_owned())),
    }
}

/// Its parent: ends at once. Its output ends when the daemon does.
fn daemon(arguments: &[OsString]) -> io::Result<()> {
    nix::unistd::setsid().map(drop).or(Ok::<_, io::Error>(()))?;
    let program: PathBuf = std::env::current_exe()?;
    Command::new(program)
        .args([ATTEMPT, ONE])
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .map(drop)
}
