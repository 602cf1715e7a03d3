//! Whether this machine's KVM runs guests; without it they are emulated.

use std::{
    fs::{self, File},
    process::Stdio,
    sync::atomic::AtomicBool,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    boot::{Run, bare_qemu, wait},
    kernel::Kernel,
};
use crate::repo::{self, say};

/// A guest under KVM that answers does so in a second or two.
const KVM_ANSWERS_IN: Duration = Duration::from_secs(10);

/// Whether KVM works here. Its device may be there and its guests hang, so one is tried, once per kernel of this
/// machine's.
pub(super) fn answers(kernel: &Kernel) -> Result<bool> {
    if File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return Ok(false);
    }
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = repo::vm().join("kvm");
    let remembered = |word: &str| format!("{word} {host}");
    let known = || match fs::read_to_string(&memory).unwrap_or_default() {
        text if text == remembered("yes") => Some(true),
        text if text == remembered("no") => Some(false),
        _ => None,
    };
    if let Some(answer) = known() {
        return Ok(answer);
    }
    let _alone = repo::lock(&memory.with_extension("lock"))?;
    if let Some(answer) = known() {
        return Ok(answer);
    }
    say(format_args!(
        "trying whether KVM works here (once, at most {} s)",
        KVM_ANSWERS_IN.as_secs()
    ));
    let run = Run::new()?;
    let console = run.file("console");
    let mut qemu = bare_qemu(kernel, "opensafe.probe", &console);
    qemu.args(["-cpu", "host", "-accel", "kvm", "-m", "512", "-nic", "none"]);
    qemu.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    wait(
        qemu.spawn().context("qemu-system-x86_64")?,
        KVM_ANSWERS_IN,
        &AtomicBool::new(false),
    )?;
    let said = fs::read(&console).unwrap_or_default();
    let answer = String::from_utf8_lossy(&said).contains("opensafe-probe-answered");
    say(if answer {
        "KVM works"
    } else {
        "KVM does not answer; guests are emulated"
    });
    repo::write_if_changed(
        &memory,
        remembered(if answer { "yes" } else { "no" }).as_bytes(),
    )?;
    Ok(answer)
}
