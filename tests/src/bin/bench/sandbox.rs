//! `opensafe run` around a worker, and what it takes while it runs.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use aya::programs::loaded_programs;

/// `opensafe run` with a policy, quiet.
pub(crate) fn opensafe(policy: &Path) -> Command {
    recording(policy, Path::new("/tmp/record.jsonl"))
}

/// The same with a record elsewhere.
pub(crate) fn recording(policy: &Path, record: &Path) -> Command {
    let mut command = Command::new("opensafe");
    command
        .args(["run", "--quiet", "--record"])
        .arg(record)
        .arg("--policy")
        .arg(policy)
        .arg("--");
    command.stdin(Stdio::null());
    command
}

/// The kernel's programs before OpenSafe's. Those of a run that has ended are detached in the background.
pub(crate) struct Programs(usize);

impl Programs {
    pub(crate) fn now() -> Self {
        Self(loaded_programs().count())
    }

    /// Waits until there are no others any more.
    pub(crate) fn wait(&self) {
        while loaded_programs().count() > self.0 {
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A process's memory in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) resident: u64,
    /// The most that was ever resident.
    pub(crate) peak: u64,
}

impl Memory {
    /// From `/proc/PID/status`.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let file = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&file).with_context(|| file.clone())?;
        let bytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
            kib.map(|kib| kib << 10)
                .with_context(|| format!("no {field} in {file}"))
        };
        Ok(Self {
            resident: bytes("VmRSS:")?,
            peak: bytes("VmHWM:")?,
        })
    }
}
