//! Loading and attaching programs.
//!
//! The verifier takes most of a start, and checks the programs of a privileged loader side by side, so they are
//! loaded on as many threads as there are processors.

use std::{
    collections::BTreeMap,
    io,
    num::NonZero,
    os::fd::AsFd,
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
    State, btf,
    held::Held,
    hooks::{Attach, HOOKS, Hook},
};

/// How each program fared, by its name.
pub(super) type States = BTreeMap<&'static str, State>;

/// Loads those of the programs that are `wanted`.
pub(super) fn load(
    ebpf: &mut Ebpf,
    vmlinux: &btf::Btf,
    btf: &Btf,
    wanted: impl Fn(&Hook) -> bool,
) -> States {
    let mut states = States::new();
    let mut programs: BTreeMap<String, &mut Program> = ebpf
        .programs_mut()
        .map(|(name, program)| (name.to_owned(), program))
        .collect();
    let mut waiting = Vec::new();
    for hook in HOOKS.iter().filter(|hook| wanted(hook)) {
        if hook.since.is_some() && !vmlinux.has_hook(hook.target) {
            states.insert(hook.program, State::NotThere);
        } else if let Some(program) = programs.remove(hook.program) {
            waiting.push((hook, program));
        } else {
            let why = "not in the kernel object".to_owned();
            states.insert(hook.program, State::Refused(why));
        }
    }
    let threads = thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(waiting.len());
    let waiting = Mutex::new(waiting);
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let loaded = Mutex::new(states);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((hook, program)) = next() {
                    let state = load_one(program, hook, btf);
                    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
                    loaded.insert(hook.program, state);
                }
            });
        }
    });
    loaded.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn load_one(program: &mut Program, hook: &Hook, btf: &Btf) -> State {
    let loaded = match hook.attach {
        Attach::Lsm => <&mut Lsm>::try_from(program).and_then(|lsm| lsm.load(hook.target, btf)),
        Attach::RawTracepoint => {
            <&mut RawTracePoint>::try_from(program).and_then(RawTracePoint::load)
        }
        Attach::Iterator => {
            <&mut Iter>::try_from(program).and_then(|iterator| iterator.load(hook.target, btf))
        }
        Attach::Cgroup => <&mut CgroupSockAddr>::try_from(program).and_then(CgroupSockAddr::load),
    };
    match loaded {
        Ok(()) => State::Loaded,
        Err(error) => State::Refused(describe(&error)),
    }
}

/// Attaches a program, and has the link held if that can be: one to a cgroup stays with `ebpf`.
// A link of its own adds itself to what others attached there; aya's modes are for kernels without links.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    hook: &Hook,
    cgroup: &impl AsFd,
    held: Option<&Held>,
) -> Result<(), String> {
    let program = ebpf
        .program_mut(hook.program)
        .ok_or("not in the kernel object")?;
    let attached = match hook.attach {
        Attach::Lsm => <&mut Lsm>::try_from(program).and_then(|lsm| {
            let link = lsm.attach()?;
            held.map(|held| Ok((held, lsm.take_link(link)?.into())))
                .transpose()
        }),
        Attach::RawTracepoint => <&mut RawTracePoint>::try_from(program).and_then(|tracepoint| {
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

/// Why a program could not be attached.
fn refused(hook: &Hook, error: &ProgramError) -> String {
    let is_full = |error: &SyscallError| error.io_error.raw_os_error() == Some(Errno::E2BIG as i32);
    match error {
        ProgramError::SyscallError(error) if hook.attach == Attach::Lsm && is_full(error) => {
            // BPF_MAX_TRAMP_LINKS of include/linux/bpf.h, on x86-64
            "as many programs as Linux takes are there already, which is 38 with those of other tools, and every run \
             has its own\n  wait for another run to end"
                .to_owned()
        }
        other => describe(other),
    }
}

/// The kernel's words: the errno, and in a developer's run the verifier's last lines.
pub(super) fn describe(error: &ProgramError) -> String {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let errno = io_error.raw_os_error().map_or_else(
                || io_error.to_string(),
                |raw| Errno::from_raw(raw).to_string(),
            );
            let log = verifier_log.to_string();
            let log = log.trim();
            if log.is_empty() || std::env::var_os(VERIFIER_LOG).is_none() {
                format!("BPF_PROG_LOAD: {errno}")
            } else {
                format!("BPF_PROG_LOAD: {errno}\n{log}")
            }
        }
        other => with_cause(other),
    }
}

// aya's own words leave the errno to the source.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|source| format!(": {source}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// Set it to have the verifier's words in errors.
const VERIFIER_LOG: &str = "OPENSAFE_VERIFIER_LOG";

pub(super) fn verifier_log_level() -> VerifierLogLevel {
    if std::env::var_os(VERIFIER_LOG).is_some() {
        VerifierLogLevel::default()
    } else {
        VerifierLogLevel::DISABLE
    }
}
