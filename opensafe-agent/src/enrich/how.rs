//! The way in which an operation was tried, in a person's words.

use nix::sys::signal::Signal;
use opensafe_common::{ioctl, operation::How};

/// `attach`, `SIGKILL`, `TIOCSTI`: what `how` and its number mean.
pub(super) fn words(how: How, number: u32) -> String {
    let known = match how {
        How::Mount => "mount",
        How::MoveMount => "move_mount",
        How::Unmount => "umount",
        How::PivotRoot => "pivot_root",
        // include/linux/ptrace.h: PTRACE_MODE_ATTACH
        How::Ptrace if number & 2 != 0 => "attach",
        How::Ptrace => "read",
        How::Signal => return signal(number),
        How::SignalByFile => return format!("{} by F_SETOWN", signal(number)),
        How::Limit => return named(number, &LIMITS, "resource"),
        How::Scheduling => "scheduling",
        How::UserNamespace => "user namespace",
        How::Bpf => return named(number, &BPF, "bpf command"),
        How::PerfEvent => "perf_event_open",
        How::KernelReadFile => return named(number, &READ_FILE, "kernel file"),
        How::KernelLoadData => return named(number, &READ_FILE, "kernel data"),
        How::KeyMake => "new key",
        How::KeyUse => "key",
        How::TerminalIoctl => return terminal(number),
        How::LockedDown => return format!("lockdown reason {number}"),
        How::CgroupFile => "control file",
        How::MakeDevice => "make node",
        How::OpenDevice => "open",
        How::Remount => "remount",
        How::Clock => "clock",
        How::ProcessFile => "/proc file",
        How::Fanotify => "fanotify permission events",
        How::FileSystemIoctl => return file_system(number),
        How::Capability => return named(number, &CAPABILITIES, "capability"),
        How::SystemCall => return system_call(number),
        How::OpenTerminal => "open",
        How::NetworkSocket => "another network",
        How::CloneIntoCgroup => "CLONE_INTO_CGROUP",
    };
    known.to_owned()
}

fn signal(number: u32) -> String {
    let known = i32::try_from(number)
        .ok()
        .and_then(|number| Signal::try_from(number).ok());
    known.map_or_else(|| format!("signal {number}"), |signal| signal.to_string())
}

fn terminal(number: u32) -> String {
    let mut known = ioctl::NAMES.iter();
    known.find(|(known, _)| *known == number).map_or_else(
        || format!("ioctl {number:#x}"),
        |(_, name)| (*name).to_owned(),
    )
}

/// include/uapi/linux/fs.h; fs/ext4/ext4.h
fn file_system(number: u32) -> String {
    match number {
        0xc004_5877 => "FIFREEZE".to_owned(),
        0xc004_5878 => "FITHAW".to_owned(),
        0x8004_587d => "SHUTDOWN".to_owned(),
        other => format!("ioctl {other:#x}"),
    }
}

/// arch/x86/entry/syscalls/syscall_64.tbl
fn system_call(number: u32) -> String {
    let known = match number {
        28 | 440 => "memory failure",
        167 => "swapon",
        168 => "swapoff",
        170 => "sethostname",
        171 => "setdomainname",
        179 => "quotactl",
        442 => "mount_setattr",
        308 => "setns",
        443 => "quotactl_fd",
        467 => "open_tree_attr",
        other => return format!("system call {other}"),
    };
    known.to_owned()
}

fn named(number: u32, names: &[&str], else_: &str) -> String {
    usize::try_from(number)
        .ok()
        .and_then(|at| names.get(at))
        .map_or_else(|| format!("{else_} {number}"), |name| (*name).to_owned())
}

/// include/uapi/asm-generic/resource.h
const LIMITS: [&str; 16] = [
    "RLIMIT_CPU",
    "RLIMIT_FSIZE",
    "RLIMIT_DATA",
    "RLIMIT_STACK",
    "RLIMIT_CORE",
    "RLIMIT_RSS",
    "RLIMIT_NPROC",
    "RLIMIT_NOFILE",
    "RLIMIT_MEMLOCK",
    "RLIMIT_AS",
    "RLIMIT_LOCKS",
    "RLIMIT_SIGPENDING",
    "RLIMIT_MSGQUEUE",
    "RLIMIT_NICE",
    "RLIMIT_RTPRIO",
    "RLIMIT_RTTIME",
];

/// include/uapi/linux/capability.h
const CAPABILITIES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// include/uapi/linux/bpf.h, `enum bpf_cmd`.
const BPF: [&str; 38] = [
    "BPF_MAP_CREATE",
    "BPF_MAP_LOOKUP_ELEM",
    "BPF_MAP_UPDATE_ELEM",
    "BPF_MAP_DELETE_ELEM",
    "BPF_MAP_GET_NEXT_KEY",
    "BPF_PROG_LOAD",
    "BPF_OBJ_PIN",
    "BPF_OBJ_GET",
    "BPF_PROG_ATTACH",
    "BPF_PROG_DETACH",
    "BPF_PROG_TEST_RUN",
    "BPF_PROG_GET_NEXT_ID",
    "BPF_MAP_GET_NEXT_ID",
    "BPF_PROG_GET_FD_BY_ID",
    "BPF_MAP_GET_FD_BY_ID",
    "BPF_OBJ_GET_INFO_BY_FD",
    "BPF_PROG_QUERY",
    "BPF_RAW_TRACEPOINT_OPEN",
    "BPF_BTF_LOAD",
    "BPF_BTF_GET_FD_BY_ID",
    "BPF_TASK_FD_QUERY",
    "BPF_MAP_LOOKUP_AND_DELETE_ELEM",
    "BPF_MAP_FREEZE",
    "BPF_BTF_GET_NEXT_ID",
    "BPF_MAP_LOOKUP_BATCH",
    "BPF_MAP_LOOKUP_AND_DELETE_BATCH",
    "BPF_MAP_UPDATE_BATCH",
    "BPF_MAP_DELETE_BATCH",
    "BPF_LINK_CREATE",
    "BPF_LINK_UPDATE",
    "BPF_LINK_GET_FD_BY_ID",
    "BPF_LINK_GET_NEXT_ID",
    "BPF_ENABLE_STATS",
    "BPF_ITER_CREATE",
    "BPF_LINK_DETACH",
    "BPF_PROG_BIND_MAP",
    "BPF_TOKEN_CREATE",
    "BPF_PROG_STREAM_READ_BY_FD",
];

/// include/linux/kernel_read_file.h, the first ones, which have not moved from 6.1 to 7.2.
const READ_FILE: [&str; 4] = ["unknown", "firmware", "kernel module", "kexec image"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_the_names_that_people_know() {
        assert_eq!(words(How::Signal, 9), "SIGKILL");
        assert_eq!(words(How::Signal, 70), "signal 70");
        assert_eq!(words(How::Ptrace, 0x12), "attach");
        assert_eq!(words(How::Ptrace, 0x11), "read");
        assert_eq!(words(How::TerminalIoctl, 0x5412), "TIOCSTI");
        assert_eq!(words(How::Limit, 1), "RLIMIT_FSIZE");
        assert_eq!(words(How::Bpf, 5), "BPF_PROG_LOAD");
        assert_eq!(words(How::Bpf, 28), "BPF_LINK_CREATE");
        assert_eq!(words(How::Bpf, 99), "bpf command 99");
        assert_eq!(words(How::Capability, 12), "CAP_NET_ADMIN");
        assert_eq!(words(How::Capability, 25), "CAP_SYS_TIME");
        assert_eq!(words(How::SystemCall, 442), "mount_setattr");
    }
}
