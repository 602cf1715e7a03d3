//! What the programs are told of this process, and of where it runs: a sandbox begins there.

use std::os::unix::fs::MetadataExt as _;

use opensafe_common::tables::Sandbox;

use super::terminal::Terminal;

/// A sandbox that this process watches, under the policy in a place.
pub(super) fn sandbox(policy: u32, enforce: bool, started_s: u32) -> Sandbox {
    let terminal = Terminal::own();
    Sandbox {
        policy,
        enforce: u32::from(enforce),
        mount_namespace: namespace("mnt"),
        started_s,
        network_namespace: namespace("net"),
        uts_namespace: namespace("uts"),
        terminal_device: terminal.map_or(0, |terminal| terminal.device.0),
        terminal_inode: terminal.map_or(0, |terminal| terminal.inode),
        agent: std::process::id(),
        agent_began_cs: began_cs(),
    }
}

/// Seconds since 1970; 0, before which nothing was changed, if the clock is before that.
pub(super) fn now_s() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since
        .ok()
        .and_then(|since| u32::try_from(since.as_secs()).ok());
    seconds.unwrap_or(0)
}

/// When this process began, as the programs know it. In a time namespace it may be another time, and then this process is nobody
/// special to them.
pub(super) fn began_cs() -> u32 {
    process_began_cs(std::process::id()).unwrap_or(0)
}

/// When a process began, if it lives: in hundredths of a second since the host was started, modulo 2^32. By that and its id it
/// is known for sure.
#[must_use]
pub fn process_began_cs(process: u32) -> Option<u32> {
    let process = i32::try_from(process).ok()?;
    let stat = procfs::process::Process::new(process).and_then(|process| process.stat());
    let stat = stat.ok().filter(|stat| !matches!(stat.state, 'Z' | 'X'))?;
    // In ticks, of which x86-64 has a hundred a second (proc_pid_stat(5)).
    u32::try_from(stat.starttime % (1 << 32)).ok()
}

/// Our own namespace of a kind, in which the sandbox starts; 0, which none has, if it cannot be asked.
fn namespace(kind: &str) -> u32 {
    let path = format!("/proc/self/ns/{kind}");
    let inode = std::fs::metadata(path).map(|namespace| namespace.ino());
    inode
        .ok()
        .and_then(|inode| u32::try_from(inode).ok())
        .unwrap_or(0)
}
