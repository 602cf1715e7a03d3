//! What this host can enforce, found by trying.

use std::{fs, path::Path};

use serde::Serialize;

use crate::{
    enforcement::{Enforcement, Level, Missing, Operation, Way},
    kernel::{Attach, HOOKS, Kernel, LSM_LIST, State, VMLINUX, listed},
    sandbox::{
        canary::{self, Outcome},
        cgroup,
        error::RunError,
    },
};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Finding {
    Ok,
    Partly,
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// How it is.
    pub state: Finding,
    /// What follows from it; empty if nothing.
    pub so: String,
}

/// One kernel program.
#[derive(Clone, Debug, Serialize)]
pub struct HookState {
    /// What it is attached to.
    pub hook: &'static str,
    /// `lsm`, `modify_return`, `raw_tracepoint`, `iterator`, `cgroup`.
    pub by: &'static str,
    /// What it is for.
    pub purpose: crate::kernel::Purpose,
    /// Whether this kernel has it; if not, it lacks what the hook is for as well.
    pub there: bool,
    /// Whether the kernel took it.
    pub loaded: bool,
    /// The kernel's words, if it did not.
    pub refused: Option<String>,
    /// What is lost without it.
    pub without: &'static str,
}

impl HookState {
    /// Whether it is one of the LSM's hooks, in whatever way it is asked.
    #[must_use]
    pub fn is_of_lsm(&self) -> bool {
        [Way::Lsm, Way::ModifyReturn]
            .iter()
            .any(|way| way.as_str() == self.by)
    }
}

/// All that was found out.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The host's parts.
    pub checks: Vec<Check>,
    /// The programs, hook by hook.
    pub hooks: Vec<HookState>,
    /// What it comes to.
    pub enforcement: Enforcement,
    /// What else to know, and to do, where that is not everything.
    pub advice: Vec<&'static str>,
}

/// Where everything can be tried, whatever this host lacks.
pub const GUEST: &str = "to try everything: `cargo xtask vm -- COMMAND`, in a clone of OpenSafe, runs a command in a guest that enforces it";

/// Why what was refused here may not be there for the asking.
const FROM_OUTSIDE: &str = "a hypervisor, or the host of a container, may be what refuses: then only whoever runs that can allow it";

impl Examination {
    /// Everything, a part, or nothing.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.enforcement.overall()
    }
}

/// Examines this host: loads every program, arms a throw-away cgroup, and has a process in it try
/// what is denied to it. Needs root; leaves nothing behind.
///
/// # Errors
/// If it cannot even be tried: no BTF, no cgroup v2, maps refused.
pub fn examine() -> Result<Examination, RunError> {
    let (kernel, outcome) = canary::send()?;
    let enforcement = confirmed(kernel.enforcement(), outcome);
    let hooks = hooks(&kernel);
    let examination = Examination {
        checks: checks(&kernel, &enforcement, outcome),
        advice: advice(enforcement.overall(), &hooks),
        hooks,
        enforcement,
    };
    kernel.let_go();
    Ok(examination)
}

fn advice(level: Level, hooks: &[HookState]) -> Vec<&'static str> {
    let mut advice = Vec::new();
    if level == Level::Full {
        return advice;
    }
    let mut lsm = hooks.iter().filter(|hook| hook.is_of_lsm());
    let by_the_kernel = |words: &String| words.starts_with("BPF_PROG_LOAD");
    if lsm.all(|hook| hook.refused.as_ref().is_some_and(by_the_kernel)) {
        advice.push(FROM_OUTSIDE);
    }
    advice.push(GUEST);
    advice
}

/// What the programs promise, as far as the canary bears it out.
fn confirmed(promised: Enforcement, outcome: Outcome) -> Enforcement {
    let confirm = |operation: Operation, borne_out: bool, passed: bool| {
        if operation.level == Level::None || borne_out && passed {
            return operation;
        }
        let why = if borne_out {
            "what is allowed failed in a sandbox"
        } else {
            "the programs are loaded and attached, but what they deny went ahead"
        };
        Operation::none(vec![Missing {
            what: "a denial on trial".to_owned(),
            why: why.to_owned(),
            fix: "please report it, with `opensafe doctor --json` and the kernel's release"
                .to_owned(),
        }])
    };
    Enforcement {
        way: promised.way,
        exec: confirm(promised.exec, outcome.exec_denied, outcome.exec_passed),
        file: confirm(
            promised.file,
            outcome.read_denied && outcome.create_denied,
            outcome.read_passed,
        ),
        connect: confirm(
            promised.connect,
            outcome.connect_denied,
            outcome.connect_passed,
        ),
        operation: confirm(promised.operation, outcome.signal_denied, true),
    }
}

fn checks(kernel: &Kernel, enforcement: &Enforcement, outcome: Outcome) -> Vec<Check> {
    let ok = |what, found: String, so: &str| Check {
        what,
        found,
        state: Finding::Ok,
        so: so.to_owned(),
    };
    let mut checks = Vec::new();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    checks.push(ok("kernel", release.trim().to_owned(), ""));
    if let Ok(point) = cgroup::mount_point() {
        checks.push(ok("cgroup v2", point.display().to_string(), ""));
    }
    checks.push(ok("BTF", VMLINUX.to_owned(), ""));
    checks.push(lsm(kernel, enforcement, outcome));
    checks.push(group(
        kernel,
        "cgroup hooks",
        Attach::Cgroup,
        "connect rules for IP can be enforced without BPF LSM and modify-return",
        "without these nothing could be enforced",
    ));
    checks.push(group(
        kernel,
        "tracepoints",
        Attach::RawTracepoint,
        "programs and exits are on record",
        "programs and exits are not on record",
    ));
    checks.push(group(
        kernel,
        "failed opens",
        Attach::SystemCall,
        "without BPF LSM and modify-return, opens that fail are on record, whoever refuses them",
        "without BPF LSM and modify-return, nothing about files is on record",
    ));
    checks.push(if kernel.caches_directories() {
        ok(
            "path cache",
            "rename_lock is in /proc/kallsyms".to_owned(),
            "verdicts on paths are cached by directory",
        )
    } else {
        Check {
            what: "path cache",
            found: "rename_lock is not in /proc/kallsyms, or no hook for freed inodes".to_owned(),
            state: Finding::Partly,
            so: "verdicts on paths are not cached: right, and slower".to_owned(),
        }
    });
    checks.push(landlock());
    checks
}

fn lsm(kernel: &Kernel, enforcement: &Enforcement, outcome: Outcome) -> Check {
    let all = HOOKS.iter().filter(|hook| hook.attach == Attach::Lsm);
    let (count, loaded) = (
        all.clone()
            .filter(|hook| !kernel.lacks(hook.program))
            .count(),
        all.clone().filter(|hook| kernel.has(hook.program)).count(),
    );
    let canary = outcome.read_denied && outcome.exec_denied && outcome.create_denied;
    let how = match kernel.way() {
        Some(Way::ModifyReturn) => {
            format!("{}, so before the functions that call them: ", unlisted())
        }
        _ => String::new(),
    };
    let is_full = enforcement.overall() == Level::Full;
    let (found, state, so) = if loaded == count && canary && is_full {
        (
            format!("{how}all {count} hooks; a trial was denied, as it has to be"),
            Finding::Ok,
            "exec, file and connect rules are enforced in the kernel",
        )
    } else if loaded > 0 && canary {
        (
            format!("{how}{loaded} of {count} hooks; a trial was denied, as it has to be"),
            Finding::Partly,
            "see below for what is missing",
        )
    } else if loaded > 0 {
        (
            format!("{how}{loaded} of {count} hooks; a trial went ahead that was to be denied"),
            Finding::Missing,
            "programs load and do not deny",
        )
    } else {
        let found = match listed() {
            Some(true) => format!(
                "listed, but loading is refused; modify-return programs: {}",
                refusal(kernel)
            ),
            _ => format!(
                "{}; modify-return programs: {}",
                unlisted(),
                refusal(kernel)
            ),
        };
        (found, Finding::Missing, NO_FILES)
    };
    Check {
        what: kernel.way().unwrap_or(Way::Lsm).mechanism(),
        found,
        state,
        so: so.to_owned(),
    }
}

fn unlisted() -> String {
    match listed() {
        Some(true) => format!("bpf is in {LSM_LIST}, but loading is refused"),
        Some(false) => format!("bpf is not in {LSM_LIST}"),
        None => format!("{LSM_LIST} cannot be read"),
    }
}

const NO_FILES: &str = "file and exec rules cannot be enforced here";

fn refusal(kernel: &Kernel) -> String {
    kernel
        .states()
        .find_map(|(hook, state)| match state {
            State::Refused(words) if hook.attach == Attach::Lsm => {
                Some(words.lines().next()?.to_owned())
            }
            _ => None,
        })
        .unwrap_or_default()
}

fn group(kernel: &Kernel, what: &'static str, attach: Attach, with: &str, without: &str) -> Check {
    let all = HOOKS.iter().filter(|hook| hook.attach == attach);
    let (loaded, refused): (Vec<_>, Vec<_>) = all.partition(|hook| kernel.has(hook.program));
    let names = |hooks: &[&crate::kernel::Hook]| {
        hooks
            .iter()
            .map(|hook| hook.target.trim_start_matches("cgroup/"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (found, state, so) = if refused.is_empty() {
        (format!("all {}", loaded.len()), Finding::Ok, with)
    } else {
        let state = if loaded.is_empty() {
            Finding::Missing
        } else {
            Finding::Partly
        };
        (format!("refused: {}", names(&refused)), state, without)
    };
    Check {
        what,
        found,
        state,
        so: so.to_owned(),
    }
}

fn landlock() -> Check {
    let Ok(list) = fs::read_to_string(Path::new(LSM_LIST)) else {
        return Check {
            what: "Landlock",
            found: format!("{LSM_LIST} cannot be read"),
            state: Finding::Partly,
            so: "mount securityfs to find out".to_owned(),
        };
    };
    let listed = list.trim().split(',').any(|name| name == "landlock");
    Check {
        what: "Landlock",
        found: if listed { "listed" } else { "not listed" }.to_owned(),
        state: if listed { Finding::Ok } else { Finding::Partly },
        so: if listed {
            ""
        } else {
            "sandboxes that rely on it do not work here"
        }
        .to_owned(),
    }
}

fn hooks(kernel: &Kernel) -> Vec<HookState> {
    kernel
        .states()
        .map(|(hook, state)| HookState {
            hook: hook.target,
            by: match hook.attach {
                Attach::Lsm => kernel.way().unwrap_or(Way::Lsm).as_str(),
                Attach::Iterator => "iterator",
                Attach::RawTracepoint | Attach::SystemCall => "raw_tracepoint",
                Attach::Cgroup => "cgroup",
            },
            purpose: hook.purpose,
            there: !matches!(state, State::NotThere),
            loaded: matches!(state, State::Loaded),
            refused: match state {
                State::Loaded => None,
                State::Refused(words) => Some(words.clone()),
                State::NotThere => Some(format!(
                    "not in this kernel: it came with Linux {}, with what it is for",
                    hook.since.unwrap_or("later")
                )),
            },
            without: hook.without,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promised() -> Enforcement {
        Enforcement {
            way: Some(Way::Lsm),
            exec: Operation::full("BPF LSM"),
            file: Operation::full("BPF LSM"),
            connect: Operation::full("BPF LSM"),
            operation: Operation::full("BPF LSM"),
        }
    }

    #[test]
    fn what_the_canary_does_not_bear_out_is_not_enforced() {
        let outcome = Outcome {
            exec_denied: true,
            connect_denied: true,
            exec_passed: true,
            read_passed: true,
            connect_passed: true,
            ..Outcome::default()
        };
        let found = confirmed(promised(), outcome);
        assert_eq!(found.exec.level, Level::Full);
        assert_eq!(found.file.level, Level::None);
        assert_eq!(found.connect.level, Level::Full);
    }

    fn hooks(refused: Option<&str>) -> [HookState; 2] {
        [("file_open", "lsm"), ("cgroup/connect4", "cgroup")].map(|(hook, by)| {
            let refused = refused.filter(|_| by == "lsm").map(str::to_owned);
            HookState {
                hook,
                by,
                purpose: crate::kernel::Purpose::File,
                there: true,
                loaded: refused.is_none(),
                refused,
                without: "",
            }
        })
    }

    #[test]
    fn where_something_is_missing_a_guest_is_offered() {
        assert!(advice(Level::Full, &hooks(None)).is_empty());
        assert_eq!(advice(Level::Partial, &hooks(None)), [GUEST]);
        assert_eq!(advice(Level::None, &hooks(None)), [GUEST]);
    }

    #[test]
    fn where_lsm_programs_are_refused_it_is_said_that_the_refusal_may_come_from_outside() {
        let refused = hooks(Some("BPF_PROG_LOAD: EPERM: Operation not permitted"));
        assert_eq!(advice(Level::Partial, &refused), [FROM_OUTSIDE, GUEST]);
    }

    #[test]
    fn a_host_on_which_nothing_works_any_more_enforces_nothing() {
        let outcome = Outcome {
            read_denied: true,
            create_denied: true,
            exec_denied: true,
            connect_denied: true,
            ..Outcome::default()
        };
        assert_eq!(confirmed(promised(), outcome).overall(), Level::None);
    }
}
