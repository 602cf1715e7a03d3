//! Events by their names in a record.

use clap::ValueEnum;

/// `opensafe.event` of a record's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventName {
    /// A program ran, or was to run
    Exec,
    /// A process ended
    Exit,
    /// A file was opened or changed, or was to be
    File,
    /// A peer was contacted, or was to be
    Connect,
    /// A socket was made, or was to be
    Socket,
    /// A socket was bound to a local address, or was to be
    Bind,
    /// Mounts that processes outside share were changed, or were to be
    Mount,
    /// A process outside was looked into or controlled, or was to be
    Ptrace,
    /// A process outside got a signal or other limits, or was to
    Signal,
    /// A user namespace was made, or was to be
    Namespace,
    /// bpf(2) or perf_event_open(2) was called, or was to be
    Bpf,
    /// Code was loaded into the kernel, or was to be
    Module,
    /// A key that the kernel keeps was used, or was to be
    Keyring,
    /// Something was typed into a terminal, or one of others opened, or was to be
    Terminal,
    /// The kernel's memory, ports or probes were used, or were to be
    Kernel,
    /// A control file of a cgroup outside was written, or was to be
    Cgroup,
    /// A device node was made or a disk opened, or was to be
    Device,
    /// The network outside was changed, or was to be
    Network,
    /// Something was done about an event, as the policy asks
    Response,
    /// Events were lost
    Loss,
    /// Another policy is in force
    #[value(name = "policy.applied")]
    PolicyApplied,
    /// The run is attended to again
    #[value(name = "run.adopted")]
    RunAdopted,
    /// The run started
    #[value(name = "run.start")]
    RunStart,
    /// The run ended
    #[value(name = "run.end")]
    RunEnd,
}

impl EventName {
    /// Whether a record has it as `name`.
    #[must_use]
    pub fn is(self, name: &str) -> bool {
        self.to_possible_value()
            .is_some_and(|value| value.get_name() == name)
    }
}
