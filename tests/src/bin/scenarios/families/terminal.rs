//! A run on a terminal.

use std::os::unix::process::ExitStatusExt as _;
use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, bail};
use nix::{
    pty::{Winsize, openpty},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{
        Leftovers, Outcome, Policy, Problems, Record, deny, directory, this_program, wait_for,
        write,
    },
    scenarios,
};

scenarios![
    on_a_terminal_a_command_is_interrupted_as_if_it_ran_alone,
    a_run_is_stopped_and_continued_by_its_shell,
    who_watches_is_not_stopped_by_a_key_that_the_command_ignores,
    while_who_watches_is_stopped_the_sandbox_stands_still,
    who_watches_is_not_stopped_by_a_command_that_reads_behind_the_foreground,
];

/// A program on a terminal of its own.
struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Terminal {
    fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        let size = Winsize {
            ws_row: 33,
            ws_col: 77,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // Copies are closed on exec, which what openpty(3) gives is not: by the other end, a command could type.
        let pair = openpty(&size, None)?;
        let (master, slave) = (pair.master.try_clone()?, pair.slave.try_clone()?);
        drop(pair);
        let end = |descriptor: &OwnedFd| -> Result<Stdio> { Ok(descriptor.try_clone()?.into()) };
        let child = Command::new("setsid")
            .args(["--ctty", "--wait", program])
            .args(arguments)
            .stdin(end(&slave)?)
            .stdout(end(&slave)?)
            .stderr(end(&slave)?)
            .spawn()?;
        drop(slave);
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (keyboard.try_clone()?, Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The last one to leave the terminal makes reading it an error.
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                let mut screen = to.lock().unwrap_or_else(PoisonError::into_inner);
                screen.extend_from_slice(&bytes[..read]);
            }
        });
        Ok(Self {
            keyboard,
            screen,
            child,
        })
    }

    fn shown(&self) -> String {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&screen).into_owned()
    }

    fn wait_for(&self, what: &str) -> Result<()> {
        wait_for(what, || self.shown().contains(what))
            .or_else(|error| bail!("{error}; the screen shows {:?}", self.shown()))
    }

    fn types(&mut self, text: &str) -> Result<()> {
        Ok(self.keyboard.write_all(text.as_bytes())?)
    }

    /// Waits for the program's end; whether it was stopped before, upon which it was continued.
    fn stops(&mut self) -> Result<bool> {
        let id = self.child.id();
        let mut stopped = false;
        wait_for("the terminal's program to end", || {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
            if state.is_some_and(|state| state.starts_with('T')) {
                stopped = true;
                if let Ok(id) = i32::try_from(id) {
                    let _ = kill(Pid::from_raw(id), Signal::SIGCONT);
                }
            }
            matches!(self.child.try_wait(), Ok(Some(_)))
        })
        .or_else(|error| {
            let _ = self.child.kill();
            bail!("{error}; the screen shows {:?}", self.shown())
        })?;
        Ok(stopped)
    }

    fn ends(mut self) -> Result<(i32, String)> {
        let mut status = None;
        wait_for("the terminal's program to end", || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })
        .or_else(|error| {
            let _ = self.child.kill();
            bail!("{error}; the screen shows {:?}", self.shown())
        })?;
        // A signal's number and 128, as a shell says it: so does `opensafe` of its command.
        let code =
            status.and_then(|status| status.code().or(status.signal().map(|signal| signal + 128)));
        let code = code.unwrap_or(-1);
        Ok((code, self.shown()))
    }
}

fn policy(folder: &Path) -> Result<String> {
    let policy = folder.join("policy.rego");
    Policy::open().write(&policy)?;
    Ok(policy.display().to_string())
}

fn on_a_terminal_a_command_is_interrupted_as_if_it_ran_alone() -> Result<Outcome> {
    let folder = directory()?;
    let policy = policy(folder.path())?;
    let record = folder.path().join("record.jsonl").display().to_string();
    let before = Leftovers::now()?;
    let script = "tty >/dev/null && stty size && echo ready; sleep 1000; echo not reached";
    let alone = ["-c", script];
    let with = [
        "run", "--quiet", "--policy", &policy, "--record", &record, "--", "bash", "-c", script,
    ];
    let opensafe = std::env::var("OPENSAFE").unwrap_or_else(|_| "opensafe".into());
    let mut ended = Vec::new();
    for (program, arguments) in [("bash", &alone[..]), (&opensafe, &with[..])] {
        let mut terminal = Terminal::start(program, arguments)?;
        // The whole line: an interrupt takes away what the terminal has not yet shown
        // (`isig` in drivers/tty/n_tty.c, Linux 6.12).
        terminal.wait_for("ready\r\n")?;
        terminal.types("\x03")?;
        ended.push(terminal.ends()?);
    }
    let mut problems = Problems::default();
    problems.check(ended[0].1.contains("33 77"), || {
        format!("no terminal alone: {ended:?}")
    });
    problems.equal("the end with opensafe", &ended[1], &ended[0]);
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

/// A shell with job control that is told to run `script` in a sandbox.
fn shell_that_runs(script: &str, folder: &Path) -> Result<Terminal> {
    let policy = policy(folder)?;
    let record = folder.join("record.jsonl").display().to_string();
    let mut shell = Terminal::start("bash", &["--norc", "--noprofile", "-i"])?;
    shell.types(&format!(
        "PS1='> '; stty -echo; opensafe run --policy {policy} --record {record} -- sh -c '{script}'\n"
    ))?;
    Ok(shell)
}

/// Waits for the run's end, and for the shell's; what was shown.
fn ends_with(mut shell: Terminal, status: i32) -> Result<String> {
    shell.wait_for("cgroup removed")?;
    shell.types("echo status=$?\n")?;
    shell.wait_for(&format!("status={status}"))?;
    shell.types("exit 0\n")?;
    let (ended, shown) = shell.ends()?;
    match ended {
        0 => Ok(shown),
        _ => bail!("the shell ended with {ended}: {shown}"),
    }
}

fn a_run_is_stopped_and_continued_by_its_shell() -> Result<Outcome> {
    let folder = directory()?;
    let mut shell = shell_that_runs("echo rea\"\"dy; cat; exit 5", folder.path())?;
    shell.wait_for("ready")?;
    shell.types("first\n")?;
    shell.wait_for("first")?;
    shell.types("\x1a")?;
    shell.wait_for("Stopped")?;
    shell.types("echo in the sh''ell\n")?;
    shell.wait_for("in the shell")?;
    shell.types("fg\n")?;
    shell.types("second\n")?;
    shell.wait_for("second")?;
    shell.types("\x04")?;
    ends_with(shell, 5)?;
    Problems::default().outcome()
}

/// A command can choose the key, and have a terminal that answers questions type it.
fn who_watches_is_not_stopped_by_a_key_that_the_command_ignores() -> Result<Outcome> {
    let folder = directory()?;
    let script = "trap \"\" TSTP; stty susp c; echo rea\"\"dy; cat; stty susp ^Z; exit 5";
    let mut shell = shell_that_runs(script, folder.path())?;
    shell.wait_for("ready")?;
    shell.types("c")?;
    shell.types("hello\n")?;
    shell.wait_for("hello")?;
    shell.types("\x04")?;
    let shown = ends_with(shell, 5)?;
    let mut problems = Problems::default();
    problems.check(!shown.contains("Stopped"), || shown.clone());
    problems.outcome()
}

/// Whoever else is in there could do what nobody reads, until there is no more room to note it.
fn while_who_watches_is_stopped_the_sandbox_stands_still() -> Result<Outcome> {
    let folder = directory()?;
    let count = folder.path().join("count");
    let script = format!(
        "(while :; do echo >>{}; sleep 0.02; done) & sleep 1; kill -STOP $$; echo went o\"\"n; exit 5",
        count.display()
    );
    let mut shell = shell_that_runs(&script, folder.path())?;
    let len = || fs::metadata(&count).map_or(0, |count| count.len());
    let grows = |from: u64| wait_for("the count to grow", || len() > from);
    grows(0)?;
    shell.wait_for("Stopped")?;
    let stopped_at = len();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let mut problems = Problems::default();
    problems.equal("the count while all is stopped", len(), stopped_at);
    shell.types("fg\n")?;
    shell.wait_for("went on")?;
    ends_with(shell, 5)?;
    problems.outcome()
}

fn who_watches_is_not_stopped_by_a_command_that_reads_behind_the_foreground() -> Result<Outcome> {
    const READS: usize = 500;
    let folder = directory()?;
    let (closed, rego) = (
        folder.path().join("closed"),
        folder.path().join("policy.rego"),
    );
    write(&closed, "x")?;
    Policy::open()
        .rule(deny("closed").file(&closed))
        .write(&rego)?;
    let record = folder.path().join("record.jsonl");
    let before = Leftovers::now()?;
    let (program, times) = (this_program()?.display().to_string(), READS.to_string());
    let closed = closed.display().to_string();
    let command = [
        &*program,
        "probe",
        "plain",
        "+",
        "read-behind",
        "+",
        "read-often",
        &closed,
        &times,
    ];
    let (rego, at) = (rego.display().to_string(), record.display().to_string());
    let with = [
        &["run", "--quiet", "--policy", &rego, "--record", &at, "--"],
        &command[..],
    ]
    .concat();
    // Alone, who starts it is a shell, and is stopped.
    let alone = [&["-c", "\"$@\"; true", "bash"], &command[..]].concat();
    let opensafe = std::env::var("OPENSAFE").unwrap_or_else(|_| "opensafe".into());
    let mut problems = Problems::default();
    for (program, arguments, stops) in [("bash", &alone, true), (&opensafe, &with, false)] {
        let mut terminal = Terminal::start(program, arguments)?;
        let stopped = terminal.stops()?;
        let (status, shown) = terminal.ends()?;
        problems.equal(&format!("whether {program} was stopped"), stopped, stops);
        problems.check(status == 0 && shown.contains("0 ok"), || {
            format!("{program} ended with {status}: {shown}")
        });
    }
    let record = Record::parse(&fs::read(&record)?)?;
    record.is_sound()?;
    problems.equal("denials on record", record.denials().count(), READS);
    problems.no_denial_but(&record, Some(&closed));
    Leftovers::gone_since(&before)?;
    problems.outcome()
}
