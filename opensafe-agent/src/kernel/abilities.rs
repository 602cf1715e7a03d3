//! What the loaded programs amount to: how much of each kind of operation is enforced.

use super::{Attach, HOOKS, Hook, Kernel, Purpose, State};
use crate::enforcement::{Enforcement, Missing, Operation, Way};

/// What stands in for the LSM's hooks, as people know it.
const CGROUP_HOOKS: &str = "cgroup hooks";

/// Where the kernel lists its security modules.
pub const LSM_LIST: &str = "/sys/kernel/security/lsm";

impl Kernel {
    /// How each kind of operation will be enforced once everything is attached. Found by loading:
    /// a kernel may list BPF among its LSMs and refuse the programs all the same.
    #[must_use]
    pub fn enforcement(&self) -> Enforcement {
        Enforcement {
            way: self.way,
            exec: self.by_hooks(Purpose::Exec),
            file: self.by_hooks(Purpose::File),
            connect: self.connect(),
            operation: self.by_hooks(Purpose::Operation),
        }
    }

    fn by_hooks(&self, purpose: Purpose) -> Operation {
        let Some(way) = self.way else {
            return Operation::none(vec![self.no_way()]);
        };
        let needed = |hook: &&Hook| {
            !hook.attach.stands_in()
                && (hook.purpose == purpose
                    || hook.purpose == Purpose::Membership
                    // Programs pass the gate for files first.
                    || purpose == Purpose::Exec && hook.program == "file_open")
        };
        let missing: Vec<Missing> = HOOKS
            .iter()
            .filter(needed)
            .filter(|hook| {
                !matches!(
                    self.states.get(hook.program),
                    Some(State::Loaded | State::NotThere)
                )
            })
            .map(|hook| self.missing(hook))
            .collect();
        if missing.is_empty() {
            return Operation::full(way.mechanism());
        }
        Operation::partial(way.mechanism(), missing)
    }

    fn connect(&self) -> Operation {
        let by_hooks = self.by_hooks(Purpose::Connect);
        if !by_hooks.by.is_empty() {
            return by_hooks;
        }
        let mut hooks = HOOKS.iter().filter(|hook| hook.attach == Attach::Cgroup);
        if hooks.any(|hook| !self.has(hook.program)) {
            return by_hooks;
        }
        let mut missing = by_hooks.missing;
        missing.push(Missing {
            what: "Unix sockets, raw sockets and other address families".to_owned(),
            why: "cgroup hooks see IP addresses only".to_owned(),
            fix: "takes BPF LSM, as above".to_owned(),
        });
        Operation::partial(CGROUP_HOOKS, missing)
    }

    fn missing(&self, hook: &Hook) -> Missing {
        let why = match self.states.get(hook.program) {
            Some(State::Refused(words)) => words.clone(),
            _ => "not loaded".to_owned(),
        };
        Missing {
            what: format!("hook {}", hook.target),
            why: format!("{why}: {}", hook.without),
            fix: "see docs/kernel-support.md for what each kernel has".to_owned(),
        }
    }

    fn no_way(&self) -> Missing {
        let words = match self.states.get("file_open") {
            Some(State::Refused(words)) => words.as_str(),
            _ => "not loaded",
        };
        let (why, fix) = match listed() {
            Some(true) => (
                format!("listed, but loading is refused; modify-return programs: {words}"),
                "run on a kernel that lets root load BPF LSM programs (no BPF token, seccomp or \
                 virtualisation limit in the way)",
            ),
            Some(false) => (
                format!("not in the kernel's list of LSMs; modify-return programs: {words}"),
                ENABLE_LSM,
            ),
            None => (
                format!(
                    "whether it is listed is unknown, {LSM_LIST} cannot be read; modify-return programs: {words}"
                ),
                "`mount -t securityfs none /sys/kernel/security` shows the list: boot with bpf in it if it \
                 is not; if it is, what refuses is not this kernel's configuration",
            ),
        };
        Missing {
            what: Way::Lsm.mechanism().to_owned(),
            why,
            fix: fix.to_owned(),
        }
    }
}

const ENABLE_LSM: &str = "boot a kernel with bpf in its LSM list, e.g. lsm=…,bpf on the command line; see docs/kernel-support.md";

/// Whether the kernel says that BPF is among its active LSMs; `None` if it cannot be asked. Without
/// that the hooks' own programs are not called; with it they may still not load.
#[must_use]
pub fn listed() -> Option<bool> {
    let list = std::fs::read_to_string(LSM_LIST).ok()?;
    Some(list.trim().split(',').any(|name| name == "bpf"))
}
