//! Reading, changing and ending a process outside.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, IoSliceMut, Read as _},
    os::unix::fs::FileExt as _,
};

use nix::{
    sched::{CloneFlags, CpuSet, sched_setaffinity, setns},
    sys::{
        ptrace,
        signal::{Signal, kill},
        uio::{RemoteIoVec, process_vm_readv, process_vm_writev},
        wait::waitpid,
    },
    unistd::Pid,
};
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, pidfd_getfd, pidfd_open, pidfd_send_signal,
    prlimit, setpriority_process,
};

use super::{
    super::{
        attempt::{Attempt, Make},
        namespaces::Process,
        outside::Outside,
        site::Site,
    },
    names::{read, read_all},
};

const fn looks(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    // What a policy says about the files in /proc may come first.
    Attempt::event(name, shows, &["ptrace", "file"], make)
}

const fn acts(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::event(name, shows, &["signal"], make)
}

pub(super) const ALL: &[Attempt] = &[
    looks(
        "processes.attach",
        "a process outside, by PTRACE_ATTACH",
        |site| attach(&site.helper.process),
    ),
    looks("processes.seize", "by PTRACE_SEIZE", |site| {
        let options = ptrace::Options::empty();
        Ok(ptrace::seize(
            Pid::from_raw(site.helper.process.id),
            options,
        )?)
    }),
    looks(
        "processes.vm-read",
        "its memory, by process_vm_readv",
        |site| {
            let mut byte = [0];
            let mut here = [IoSliceMut::new(&mut byte)];
            process_vm_readv(
                Pid::from_raw(site.helper.process.id),
                &mut here,
                &there(site),
            )?;
            Ok(())
        },
    ),
    looks(
        "processes.vm-write",
        "its memory, by process_vm_writev",
        |site| {
            let here = [IoSlice::new(b"k")];
            process_vm_writev(Pid::from_raw(site.helper.process.id), &here, &there(site))?;
            Ok(())
        },
    ),
    looks(
        "processes.mem-read",
        "its memory, by /proc/PID/mem",
        |site| {
            let memory = File::open(site.helper.process.directory.join("mem"))?;
            memory.read_exact_at(&mut [0], address(site)?)
        },
    ),
    looks("processes.mem-write", "the same, written", |site| {
        let memory = OpenOptions::new()
            .write(true)
            .open(site.helper.process.directory.join("mem"))?;
        memory.write_all_at(b"k", address(site)?)
    }),
    looks("processes.environment", "its environment", |site| {
        environment(&site.helper.process)
    }),
    looks("processes.maps", "where its memory is", |site| {
        read(site.helper.process.directory.join("maps"))
    }),
    Attempt::event(
        "processes.descriptor",
        "a file that it has open (pidfd_getfd)",
        &["ptrace", "file"],
        |site| steal(&site.helper),
    ),
    looks("processes.namespaces", "its namespaces (setns)", |site| {
        let process = pidfd_open(id(&site.helper.process)?, PidfdFlags::empty())?;
        Ok(setns(&process, CloneFlags::CLONE_NEWUTS)?)
    }),
    acts("processes.stop", "stopping it (SIGSTOP)", |site| {
        signal(&site.victim(0)?.process, Signal::SIGSTOP)
    }),
    acts("processes.kill", "ending it (SIGKILL)", |site| {
        signal(&site.victim(1)?.process, Signal::SIGKILL)
    }),
    acts(
        "processes.pidfd",
        "ending it by a pidfd (SIGTERM)",
        |site| signal_by_descriptor(&site.victim(2)?.process, rustix::process::Signal::TERM),
    ),
    acts("processes.limits", "its limits (prlimit)", |site| {
        limit(&site.helper.process)
    }),
    acts("processes.priority", "its priority", |site| {
        Ok(setpriority_process(Some(id(&site.helper.process)?), 5)?)
    }),
    acts("processes.affinity", "the CPU that it runs on", |site| {
        let mut set = CpuSet::new();
        set.set(0)?;
        Ok(sched_setaffinity(
            Pid::from_raw(site.helper.process.id),
            &set,
        )?)
    }),
];

pub(super) fn attach(process: &Process) -> io::Result<()> {
    let process = Pid::from_raw(process.id);
    ptrace::attach(process)?;
    waitpid(process, None)?;
    Ok(ptrace::detach(process, None)?)
}

pub(super) fn environment(process: &Process) -> io::Result<()> {
    // It may be empty.
    File::open(process.directory.join("environ"))?
        .read(&mut [0])
        .map(drop)
}

pub(super) fn signal(process: &Process, signal: Signal) -> io::Result<()> {
    Ok(kill(Pid::from_raw(process.id), signal)?)
}

pub(super) fn signal_by_descriptor(
    to: &Process,
    signal: rustix::process::Signal,
) -> io::Result<()> {
    let to = pidfd_open(id(to)?, PidfdFlags::empty())?;
    Ok(pidfd_send_signal(&to, signal)?)
}

/// No core dumps for it.
pub(super) fn limit(whose: &Process) -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    prlimit(Some(id(whose)?), Resource::Core, none)?;
    Ok(())
}

fn steal(from: &Outside) -> io::Result<()> {
    let there = pidfd_open(id(&from.process)?, PidfdFlags::empty())?;
    read_all(pidfd_getfd(
        &there,
        from.descriptor,
        PidfdGetfdFlags::empty(),
    )?)
}

pub(super) fn id(process: &Process) -> io::Result<rustix::process::Pid> {
    Ok(rustix::process::Pid::from_raw(process.id).ok_or(nix::errno::Errno::ESRCH)?)
}

fn there(site: &Site) -> [RemoteIoVec; 1] {
    let base = site.helper.address;
    [RemoteIoVec { base, len: 1 }]
}

fn address(site: &Site) -> io::Result<u64> {
    u64::try_from(site.helper.address).map_err(io::Error::other)
}
