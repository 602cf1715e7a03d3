//! Loading and attaching programs.
//!
//! The verifier takes most of a start, and checks the programs of a privileged loader side by side, so they are
//! loaded on as many threads as there are processors.

use std::{
    collections::BTreeMap,
    io,
    num::NonZero,
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, PoisonError},
    thread,
};

use aya::{
    Btf, Ebpf, VerifierLogLevel,
    programs::{
        CgroupAttachMode, CgroupSockAddr, Iter, Lsm, Program, ProgramError, RawTracePoint,
        links::FdLink,
    },
    sys::SyscallError,
};
use nix::errno::Errno;

use super::{
    OBJECT, State, bpf, btf,
    held::Held,
    hooks::{Attach, HOOKS, Hook},
    modify_return,
};
use crate::enforcement::Way;

/// How each program fared, by its name.
pub(super) type States = BTreeMap<&'static str, State>;

/// The programs, as long as they are one run's.
pub(super) struct Programs {
    pub(super) ebpf: Ebpf,
    /// Those that run before the functions that call the LSM's hooks.
    before: BTreeMap<&'static str, OwnedFd>,
    /// Links of theirs that nobody else holds.
    links: Vec<OwnedFd>,
}

/// A program that is to be loaded.
enum Waiting<'a> {
    /// As one of the kind that the object says.
    AsDeclared(&'a mut Program),
    /// As one that runs before the function that calls its hook.
    Before(&'a modify_return::Object),
}

impl Programs {
    /// Those of an object whose maps are made; none is loaded yet.
    pub(super) const fn new(ebpf: Ebpf) -> Self {
        Self {
            ebpf,
            before: BTreeMap::new(),
            links: Vec::new(),
        }
    }

    /// Loads those that are `wanted`; the LSM's in that way, or not, for that reason.
    pub(super) fn load(
        &mut self,
        vmlinux: &btf::Btf,
        btf: &Btf,
        way: &Result<Way, String>,
        wanted: impl Fn(&Hook) -> bool,
    ) -> States {
        let mut states = States::new();
        let object = match way {
            Ok(Way::Lsm) => None,
            Ok(Way::ModifyReturn) => Some(modify_return::Object::new(OBJECT, &self.ebpf)),
            Err(why) => Some(Err(why.clone())),
        };
        let mut programs: BTreeMap<String, &mut Program> = self
            .ebpf
            .programs_mut()
            .map(|(name, program)| (name.to_owned(), program))
            .collect();
        let mut waiting = Vec::new();
        for hook in HOOKS.iter().filter(|hook| wanted(hook)) {
            let object = object.as_ref().filter(|_| hook.attach == Attach::Lsm);
            let state = match (programs.remove(hook.program), object) {
                _ if is_later(vmlinux, hook, way.as_ref().ok()) => State::NotThere,
                (None, _) => State::Refused(NOT_IN_OBJECT.to_owned()),
                (Some(_), Some(Err(why))) => State::Refused(why.clone()),
                (Some(program), None) => {
                    waiting.push((hook, Waiting::AsDeclared(program)));
                    continue;
                }
                (Some(_), Some(Ok(object))) => {
                    waiting.push((hook, Waiting::Before(object)));
                    continue;
                }
            };
            states.insert(hook.program, state);
        }
        let threads = thread::available_parallelism()
            .map_or(1, NonZero::get)
            .min(waiting.len());
        let waiting = Mutex::new(waiting);
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let loaded = Mutex::new((states, &mut self.before));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((hook, program)) = next() {
                        let outcome = match program {
                            Waiting::AsDeclared(program) => load(program, hook, btf).map(|()| None),
                            Waiting::Before(object) => object.load(hook, vmlinux).map(Some),
                        };
                        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
                        let state = match outcome {
                            Ok(descriptor) => {
                                loaded.1.extend(descriptor.map(|it| (hook.program, it)));
                                State::Loaded
                            }
                            Err(why) => State::Refused(why),
                        };
                        loaded.0.insert(hook.program, state);
                    }
                });
            }
        });
        loaded
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Attaches a program, and has the link held if that can be: one to a cgroup stays here.
    // A link of its own adds itself to what others attached there; aya's modes are for kernels without links.
    pub(super) fn attach(
        &mut self,
        hook: &Hook,
        cgroup: &impl AsFd,
        held: Option<&Held>,
    ) -> Result<(), String> {
        if let Some(program) = self.before.get(hook.program) {
            let link = bpf::attach(program.as_fd()).map_err(|error| {
                attach_words(hook, &error, || format!("BPF_RAW_TRACEPOINT_OPEN: {error}"))
            })?;
            match held {
                Some(held) => held
                    .hold_descriptor(&link, hook.program)
                    .map_err(|error| format!("BPF_OBJ_PIN: {error}"))?,
                None => self.links.push(link),
            }
            return Ok(());
        }
        let program = self.ebpf.program_mut(hook.program).ok_or(NOT_IN_OBJECT)?;
        let attached = match hook.attach {
            Attach::Lsm => <&mut Lsm>::try_from(program).and_then(|lsm| {
                let link = lsm.attach()?;
                held.map(|held| Ok((held, lsm.take_link(link)?.into())))
                    .transpose()
            }),
            Attach::RawTracepoint | Attach::SystemCall => <&mut RawTracePoint>::try_from(program)
                .and_then(|tracepoint| {
                    let link = tracepoint.attach(hook.target)?;
                    held.map(|held| Ok((held, tracepoint.take_link(link)?.into())))
                        .transpose()
                }),
            Attach::Iterator => <&mut Iter>::try_from(program).and_then(|iterator| {
                let link = iterator.attach()?;
                held.map(|held| {
                    let link = FdLink::try_from(iterator.take_link(link)?);
                    Ok((
                        held,
                        link.map_err(|error| ProgramError::IOError(io::Error::other(error)))?,
                    ))
                })
                .transpose()
            }),
            Attach::Cgroup => <&mut CgroupSockAddr>::try_from(program).and_then(|hook| {
                hook.attach(cgroup.as_fd(), CgroupAttachMode::Single)
                    .map(|_| None)
            }),
        };
        match attached.map_err(|error| refused(hook, &error))? {
            Some((held, link)) => held
                .hold(link, hook.program)
                .map_err(|error| with_cause(&error)),
            None => Ok(()),
        }
    }
}

const NOT_IN_OBJECT: &str = "not in the kernel object";

/// Whether a hook is one that came with a later kernel.
fn is_later(vmlinux: &btf::Btf, hook: &Hook, way: Option<&Way>) -> bool {
    let way = way.copied().unwrap_or(Way::Lsm);
    hook.since.is_some() && !has_hook(vmlinux, hook, way)
}

/// Whether this kernel has what a hook's program is attached to, in that way.
fn has_hook(vmlinux: &btf::Btf, hook: &Hook, way: Way) -> bool {
    match way {
        Way::Lsm => vmlinux.has_hook(hook.target),
        Way::ModifyReturn => vmlinux
            .security_function(&hook.security_function())
            .is_some(),
    }
}

fn load(program: &mut Program, hook: &Hook, btf: &Btf) -> Result<(), String> {
    let loaded = match hook.attach {
        Attach::Lsm => <&mut Lsm>::try_from(program).and_then(|lsm| lsm.load(hook.target, btf)),
        Attach::RawTracepoint | Attach::SystemCall => {
            <&mut RawTracePoint>::try_from(program).and_then(RawTracePoint::load)
        }
        Attach::Iterator => {
            <&mut Iter>::try_from(program).and_then(|iterator| iterator.load(hook.target, btf))
        }
        Attach::Cgroup => <&mut CgroupSockAddr>::try_from(program).and_then(CgroupSockAddr::load),
    };
    loaded.map_err(|error| describe(&error))
}

/// Why a program could not be attached.
fn refused(hook: &Hook, error: &ProgramError) -> String {
    match error {
        ProgramError::SyscallError(SyscallError { io_error, .. }) => {
            attach_words(hook, io_error, || describe(error))
        }
        other => describe(other),
    }
}

fn attach_words(hook: &Hook, error: &io::Error, words: impl Fn() -> String) -> String {
    if hook.attach == Attach::Lsm && error.raw_os_error() == Some(Errno::E2BIG as i32) {
        // BPF_MAX_TRAMP_LINKS of include/linux/bpf.h, on x86-64
        return "as many programs as Linux takes are there already, which is 38 with those of other tools, and every run \
                has its own\n  wait for another run to end"
            .to_owned();
    }
    words()
}

/// The kernel's words: the errno, and in a developer's run the verifier's last lines.
pub(super) fn describe(error: &ProgramError) -> String {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => in_words(io_error, &verifier_log.to_string()),
        other => with_cause(other),
    }
}

/// Why a program could not be loaded.
pub(super) fn in_words(error: &io::Error, verifier_log: &str) -> String {
    let errno = error
        .raw_os_error()
        .map_or_else(|| error.to_string(), |raw| Errno::from_raw(raw).to_string());
    match verifier_log.trim() {
        log if log.is_empty() || !wants_log() => format!("BPF_PROG_LOAD: {errno}"),
        log => format!("BPF_PROG_LOAD: {errno}\n{log}"),
    }
}

// aya's own words leave the errno to the source.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|source| format!(": {source}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// Set it to have the verifier's words in errors.
const VERIFIER_LOG: &str = "OPENSAFE_VERIFIER_LOG";

/// Whether they are wanted.
pub(super) fn wants_log() -> bool {
    std::env::var_os(VERIFIER_LOG).is_some()
}

pub(super) fn verifier_log_level() -> VerifierLogLevel {
    if wants_log() {
        VerifierLogLevel::default()
    } else {
        VerifierLogLevel::DISABLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hook_that_a_kernel_has_is_asked_by_the_function_that_it_is_known_by() {
        let Ok(vmlinux) = btf::Btf::vmlinux() else {
            println!("skip: this kernel has no BTF");
            return;
        };
        for hook in HOOKS.iter().filter(|hook| hook.attach == Attach::Lsm) {
            let [lsm, before] =
                [Way::Lsm, Way::ModifyReturn].map(|way| has_hook(&vmlinux, hook, way));
            assert!(before || !lsm, "{}", hook.security_function());
        }
    }
}
