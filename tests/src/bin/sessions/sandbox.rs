//! `opensafe run` around a player, and what its record says.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{tools::shell_status, user::User};

/// The policy that sessions are held to.
pub(crate) const POLICY: &str = "coding-agent";

/// A session to be played.
pub(crate) struct Player<'a> {
    pub(crate) session: &'a Path,
    pub(crate) agent: &'a str,
    pub(crate) workspace: &'a Path,
    pub(crate) user: &'a User,
    /// Where programs are looked for.
    pub(crate) path: &'a str,
    /// This program, under the name that records are to show.
    pub(crate) program: &'a Path,
    /// Where the player notes how each call ended.
    pub(crate) log: PathBuf,
}

impl Player<'_> {
    /// Plays it without a sandbox; nothing is shown.
    pub(crate) fn plainly(&self) -> Result<()> {
        let mut command = self.user.command(self.program);
        self.play(&mut command);
        command.env("PATH", self.path).current_dir(self.workspace);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().context("the player")?;
        Ok(())
    }

    /// Plays it in a sandbox; `to` is given what a person would see. Returns the exit status.
    pub(crate) fn confined(&self, record: &Path, color: bool, to: &mut dyn Write) -> Result<i32> {
        let (mut reader, writer) = io::pipe()?;
        let mut command = Command::new("opensafe");
        command.args(["--color", if color { "always" } else { "never" }]);
        command.args(["run", "--policy", POLICY, "--workspace", "."]);
        command.args(["--agent", self.agent, "--user", &self.user.name, "--record"]);
        command.arg(record).arg("--").arg(self.program);
        self.play(&mut command);
        command.env("PATH", self.path).current_dir(self.workspace);
        command.stdin(Stdio::null());
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().context("opensafe")?;
        // It holds the pipe's other end.
        drop(command);
        io::copy(&mut reader, to)?;
        Ok(shell_status(child.wait()?))
    }

    fn play(&self, command: &mut Command) {
        command
            .arg("play")
            .arg(self.session)
            .arg("--log")
            .arg(&self.log);
    }
}

/// The lines of a record or of a player's log.
pub(crate) fn lines(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| file.display().to_string()))
        .collect()
}

/// A denial's operation, object and rule, as `write /a/b (rule x)`.
pub(crate) fn denial(line: &Value) -> Option<String> {
    let text = |key: &str| line.get(key).and_then(Value::as_str);
    if text("opensafe.verdict") != Some("deny") {
        return None;
    }
    let event = text("opensafe.event").unwrap_or_default();
    let operation = match line.get("opensafe.file.access").and_then(Value::as_array) {
        Some(access) => {
            let access: Vec<&str> = access.iter().filter_map(Value::as_str).collect();
            access.join("+")
        }
        None => event.to_owned(),
    };
    let object = match (text("file.path"), text("network.peer.address")) {
        (Some(path), _) => path.to_owned(),
        (None, Some(address)) => match line.get("network.peer.port") {
            Some(port) => format!("{address}:{port}"),
            None => address.to_owned(),
        },
        (None, None) => "?".to_owned(),
    };
    let rule = text("opensafe.rule.id").unwrap_or("?");
    Some(format!("{operation} {object} (rule {rule})"))
}
