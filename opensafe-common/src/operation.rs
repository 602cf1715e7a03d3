//! Operations without a path or a peer: what a process may do to others, to the mounts, to the kernel.

/// One of them. Its number is its bit in [`crate::tables::Policy::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Changing mounts that processes outside share.
    Mount = 0,
    /// Looking into or controlling a process outside.
    Ptrace = 1,
    /// Signals to a process outside, and changes to its limits and scheduling.
    Signal = 2,
    /// Making a user namespace.
    Namespace = 3,
    /// bpf(2) and `perf_event_open(2)`.
    Bpf = 4,
    /// Loading code into the kernel: modules, firmware, another kernel.
    Module = 5,
    /// Keys that the kernel keeps.
    Keyring = 6,
    /// Typing into a terminal.
    Terminal = 7,
    /// What kernel lockdown is about: its memory, ports, probes, trace files.
    Kernel = 8,
    /// Control files of cgroups outside.
    Cgroup = 9,
    /// Making device nodes, and opening block devices: what lies under every file.
    Device = 10,
    /// Changing the network that processes outside use: its addresses, routes, packet filters.
    Network = 11,
}

impl Operation {
    /// Every one, in the order of their bits.
    pub const ALL: [Self; 12] = [
        Self::Mount,
        Self::Ptrace,
        Self::Signal,
        Self::Namespace,
        Self::Bpf,
        Self::Module,
        Self::Keyring,
        Self::Terminal,
        Self::Kernel,
        Self::Cgroup,
        Self::Device,
        Self::Network,
    ];

    /// Its bit, as a kind of access is one.
    #[inline(always)]
    #[must_use]
    pub const fn bit(self) -> crate::verdict::Access {
        crate::verdict::Access(1 << self as u16)
    }

    /// The operation of a number that came from the other side.
    #[must_use]
    pub const fn from_u16(number: u16) -> Option<Self> {
        if (number as usize) < Self::ALL.len() {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }

    /// As policies and records name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Ptrace => "ptrace",
            Self::Signal => "signal",
            Self::Namespace => "namespace",
            Self::Bpf => "bpf",
            Self::Module => "module",
            Self::Keyring => "keyring",
            Self::Terminal => "terminal",
            Self::Kernel => "kernel",
            Self::Cgroup => "cgroup",
            Self::Device => "device",
            Self::Network => "network",
        }
    }
}

/// Which way an operation was tried: the hook, and what its number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)] // each is the hook of that name
pub enum How {
    Mount = 1,
    MoveMount = 2,
    Unmount = 3,
    PivotRoot = 4,
    /// The number is the mode: `PTRACE_MODE_READ` (1), `PTRACE_MODE_ATTACH` (2).
    Ptrace = 5,
    /// The number is the signal's.
    Signal = 6,
    /// The number is the resource's (`RLIMIT_*`).
    Limit = 7,
    Scheduling = 8,
    UserNamespace = 9,
    /// The number is the command's (`BPF_*`).
    Bpf = 10,
    PerfEvent = 11,
    /// The number is what is read (`enum kernel_read_file_id`).
    KernelReadFile = 12,
    /// The number is what is loaded (`enum kernel_load_data_id`).
    KernelLoadData = 13,
    KeyMake = 14,
    /// The number is the permission that is needed.
    KeyUse = 15,
    /// The number is the ioctl's.
    TerminalIoctl = 16,
    /// The number is the reason (`enum lockdown_reason`).
    LockedDown = 17,
    /// The number is the cgroup's, its low half.
    CgroupFile = 18,
    /// A signal that a file descriptor sends (`F_SETOWN`); the number is the signal's.
    SignalByFile = 19,
    MakeDevice = 20,
    OpenDevice = 21,
    Remount = 22,
    /// Setting the clock.
    Clock = 23,
    /// Writing a file that /proc has of a process.
    ProcessFile = 24,
    /// Answering for others whether files may be opened; the number is the events' mask (`FAN_*_PERM`).
    Fanotify = 25,
    /// Freezing, thawing or shutting down a file system; the number is the ioctl's.
    FileSystemIoctl = 26,
    /// What asks for a capability and passes no other hook; the number is the capability's (`CAP_*`).
    Capability = 27,
    /// What asks for `CAP_SYS_ADMIN` and passes no other hook; the number is the system call's, on x86-64.
    SystemCall = 28,
    /// Opening a terminal of others.
    OpenTerminal = 29,
    /// A socket of the network outside, used from a network of the sandbox's own, or the other way round.
    NetworkSocket = 30,
    /// A process that starts in another cgroup (`CLONE_INTO_CGROUP`).
    CloneIntoCgroup = 31,
}

impl How {
    const ALL: [Self; 31] = [
        Self::Mount,
        Self::MoveMount,
        Self::Unmount,
        Self::PivotRoot,
        Self::Ptrace,
        Self::Signal,
        Self::Limit,
        Self::Scheduling,
        Self::UserNamespace,
        Self::Bpf,
        Self::PerfEvent,
        Self::KernelReadFile,
        Self::KernelLoadData,
        Self::KeyMake,
        Self::KeyUse,
        Self::TerminalIoctl,
        Self::LockedDown,
        Self::CgroupFile,
        Self::SignalByFile,
        Self::MakeDevice,
        Self::OpenDevice,
        Self::Remount,
        Self::Clock,
        Self::ProcessFile,
        Self::Fanotify,
        Self::FileSystemIoctl,
        Self::Capability,
        Self::SystemCall,
        Self::OpenTerminal,
        Self::NetworkSocket,
        Self::CloneIntoCgroup,
    ];

    /// The way of a number that came from the kernel.
    #[must_use]
    pub fn from_u16(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|how| *how as u16 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_what_they_were() {
        for operation in Operation::ALL {
            assert_eq!(Operation::from_u16(operation as u16), Some(operation));
        }
        for how in How::ALL {
            assert_eq!(How::from_u16(how as u16), Some(how));
        }
    }
}
