//! The account that sessions are played as.

use std::{
    fs,
    os::unix::{fs::lchown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::tools::shell_status;

/// An account, from /etc/passwd.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
}

impl User {
    pub(crate) fn named(name: &str) -> Result<Self> {
        let accounts = fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
        let account = accounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [found, _, uid, gid, _, home, ..] = *fields else {
                return None;
            };
            (found == name).then_some(Self {
                name: name.to_owned(),
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
                home: home.into(),
            })
        });
        account.with_context(|| format!("there is no user {name}"))
    }

    /// A command that it runs, from its home, with an environment of its own.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.uid(self.uid).gid(self.gid).current_dir(&self.home);
        command.env("HOME", &self.home);
        for name in ["USER", "LOGNAME"] {
            command.env(name, &self.name);
        }
        command
    }

    /// Runs a script in a directory, and wants success.
    pub(crate) fn script(&self, directory: &Path, script: &str) -> Result<String> {
        let output = self
            .command("bash")
            .args(["-euc", script])
            .current_dir(directory)
            .output()
            .context("bash")?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!(
                "{script}: exit status {}\n{stdout}{}",
                shell_status(output.status),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(stdout)
    }

    /// A file of its own, with the directories on the way to it that are not there.
    pub(crate) fn write(&self, file: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
        if let Some(parent) = file.parent() {
            self.directory(parent)?;
        }
        fs::write(file, bytes).with_context(|| file.display().to_string())?;
        self.own(file)
    }

    /// A directory of its own.
    pub(crate) fn directory(&self, path: &Path) -> Result<()> {
        if path.exists() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        fs::create_dir(path).with_context(|| path.display().to_string())?;
        self.own(path)
    }

    fn own(&self, path: &Path) -> Result<()> {
        lchown(path, Some(self.uid), Some(self.gid)).with_context(|| path.display().to_string())
    }
}
