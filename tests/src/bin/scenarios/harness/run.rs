//! Starting `opensafe run` and waiting for its end.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{PATIENCE, Policy, Record, directory};

/// `opensafe`, of which the path may be in `$OPENSAFE`.
pub(crate) fn opensafe() -> Command {
    program(&std::env::var_os("OPENSAFE").unwrap_or_else(|| "opensafe".into()))
}

/// A copy of `opensafe`: runs of it share nothing with those of any other.
pub(crate) fn own_copy(folder: &Path) -> Result<PathBuf> {
    let found = Command::new("sh")
        .args(["-c", "command -v \"${OPENSAFE:-opensafe}\""])
        .output()?;
    let path = String::from_utf8(found.stdout)?;
    let copy = folder.join("opensafe");
    std::fs::copy(path.trim_end(), &copy).with_context(|| format!("copy {path}"))?;
    Ok(copy)
}

fn program(path: &OsStr) -> Command {
    let mut command = Command::new(path);
    command
        .stdin(Stdio::null())
        .env_remove("SUDO_UID")
        .env_remove("SUDO_GID");
    command
}

/// An `opensafe run` to be.
pub(crate) struct Run {
    folder: tempfile::TempDir,
    options: Vec<OsString>,
    directory: PathBuf,
    record: PathBuf,
    stdin: Stdio,
    piped: bool,
    wrapper: Vec<OsString>,
    program: Option<PathBuf>,
}

/// One that goes on.
pub(crate) struct Running {
    folder: tempfile::TempDir,
    /// `opensafe` itself.
    pub(crate) child: Child,
    record: PathBuf,
    stdout: File,
    stderr: File,
}

/// One that has ended.
pub(crate) struct Finished {
    /// How `opensafe` ended.
    pub(crate) status: ExitStatus,
    /// What the command printed.
    pub(crate) stdout: Vec<u8>,
    /// What it and `opensafe` printed on standard error.
    pub(crate) stderr: Vec<u8>,
    /// Whether the command left a file `marker` where it started.
    pub(crate) made_marker: bool,
    /// The record as it is.
    pub(crate) raw_record: Vec<u8>,
    /// The record; empty if there is none.
    pub(crate) record: Record,
    /// Why it could not be read.
    pub(crate) unread: Option<String>,
}

impl Run {
    /// With a policy.
    pub(crate) fn new(policy: &Policy) -> Result<Self> {
        let folder = directory()?;
        let file = folder.path().join("policy.rego");
        policy.write(&file)?;
        Self::with_policy_file(folder, &file)
    }

    /// With whatever is named as its policy; it starts in `folder`.
    pub(crate) fn with_policy_file(folder: tempfile::TempDir, policy: &Path) -> Result<Self> {
        let record = folder.path().join("record.jsonl");
        Ok(Self {
            options: vec!["--policy".into(), policy.into()],
            directory: folder.path().to_owned(),
            folder,
            record,
            stdin: Stdio::null(),
            piped: false,
            wrapper: Vec::new(),
            program: None,
        })
    }

    /// More options.
    pub(crate) fn options<S: AsRef<OsStr>>(mut self, options: &[S]) -> Self {
        self.options
            .extend(options.iter().map(|option| option.as_ref().to_owned()));
        self
    }

    /// Where the record goes.
    pub(crate) fn record(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.record);
        self
    }

    /// Where that is.
    pub(crate) fn record_path(&self) -> &Path {
        &self.record
    }

    /// What the command reads.
    pub(crate) fn stdin(mut self, stdin: Stdio) -> Self {
        self.stdin = stdin;
        self
    }

    /// Standard output and standard error are pipes, as they are for whoever reads them.
    pub(crate) fn piped(mut self) -> Self {
        self.piped = true;
        self
    }

    /// By a copy of `opensafe`; see [`own_copy`].
    pub(crate) fn by(mut self, copy: &Path) -> Self {
        self.program = Some(copy.to_owned());
        self
    }

    /// Started by another program, which is given its command line as arguments.
    pub(crate) fn wrapped<S: AsRef<OsStr>>(mut self, wrapper: &[S]) -> Self {
        self.wrapper = wrapper
            .iter()
            .map(|word| word.as_ref().to_owned())
            .collect();
        self
    }

    /// `opensafe run` with all of it.
    pub(crate) fn command_line<S: AsRef<OsStr>>(&self, command: &[S]) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["run".into()];
        line.extend(self.options.iter().cloned());
        line.extend(["--record".into(), self.record.clone().into(), "--".into()]);
        line.extend(command.iter().map(|word| word.as_ref().to_owned()));
        line
    }

    /// Starts it.
    pub(crate) fn start<S: AsRef<OsStr>>(self, command: &[S]) -> Result<Running> {
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut opensafe = match &self.program {
            Some(copy) => program(copy.as_os_str()),
            None => opensafe(),
        };
        if let Some((program, words)) = self.wrapper.split_first() {
            let mut wrapper = Command::new(program);
            wrapper
                .args(words)
                .arg(opensafe.get_program())
                .env_remove("SUDO_UID")
                .env_remove("SUDO_GID");
            opensafe = wrapper;
        }
        opensafe
            .args(self.command_line(command))
            .current_dir(&self.directory)
            .stdin(self.stdin);
        if self.piped {
            opensafe.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else {
            opensafe
                .stdout(stdout.try_clone()?)
                .stderr(stderr.try_clone()?);
        }
        let mut child = opensafe.spawn().context("opensafe")?;
        if let Some(pipe) = child.stdout.take() {
            carry(pipe, stdout.try_clone()?);
        }
        if let Some(pipe) = child.stderr.take() {
            carry(pipe, stderr.try_clone()?);
        }
        Ok(Running {
            folder: self.folder,
            child,
            record: self.record,
            stdout,
            stderr,
        })
    }

    /// Starts it and waits for its end.
    pub(crate) fn run<S: AsRef<OsStr>>(self, command: &[S]) -> Result<Finished> {
        self.start(command)?.finish()
    }
}

impl Running {
    /// What was printed so far.
    pub(crate) fn output(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&read_at(&self.stdout)?).into_owned())
    }

    /// What it said on standard error so far.
    pub(crate) fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&read_at(&self.stderr)?).into_owned())
    }

    /// Waits until this is in what was printed.
    pub(crate) fn wait_for_output(&mut self, what: &str) -> Result<String> {
        let start = Instant::now();
        loop {
            // The writers have the same file offset: read by position, so as not to disturb them.
            let text = self.output()?;
            if text.contains(what) {
                return Ok(text);
            }
            if self.child.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                let said = self.said()?;
                bail!("the run never printed {what:?} but {text:?} and {said:?}");
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if start.elapsed() > PATIENCE {
                let threads = threads(self.child.id());
                let _ = self.child.kill();
                let _ = self.child.wait();
                let said = self.said()?;
                bail!(
                    "the run has not ended after {} s: {said}\n{threads}",
                    PATIENCE.as_secs()
                );
            }
            sleep(Duration::from_millis(10));
        };
        let raw_record = std::fs::read(&self.record).unwrap_or_default();
        let (record, unread) = match Record::parse(&raw_record) {
            Ok(record) => (record, None),
            Err(error) => (Record::default(), Some(format!("{error:#}"))),
        };
        let made_marker = self.folder.path().join("marker").exists();
        Ok(Finished {
            made_marker,
            status,
            stdout: read_at(&self.stdout)?,
            stderr: read_at(&self.stderr)?,
            raw_record,
            record,
            unread,
        })
    }
}

impl Finished {
    /// The exit status as a shell has it.
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    /// The record, if it is whole.
    pub(crate) fn sound(&self) -> Result<&Record> {
        let context = || {
            format!(
                "exit status {}, standard error: {}",
                self.code(),
                self.said()
            )
        };
        if let Some(unread) = &self.unread {
            bail!("{unread}; {}", context());
        }
        self.record.is_sound().with_context(context)?;
        Ok(&self.record)
    }

    /// Standard error as text.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Where in the kernel each thread of a process is, for who wants to know why it hangs.
fn threads(process: u32) -> String {
    let mut text = String::new();
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        for name in ["comm", "syscall", "stack"] {
            let content = std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            text.push_str(&content);
        }
    }
    text
}

/// Copies on a thread, to the end.
fn carry(mut from: impl std::io::Read + Send + 'static, mut to: File) {
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
}

fn read_at(file: &File) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..)
        && !rest.is_empty()
    {
        match file.read_at(rest, read as u64)? {
            0 => break,
            some => read += some,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}
