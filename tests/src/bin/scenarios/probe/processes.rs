//! Attempts on other processes and on the kernel itself. A process is named by its id, or `supervisor`: the `opensafe`
//! that watches.

use std::{
    ffi::{CString, OsString},
    fs::{self, File, OpenOptions},
    io::{self, IoSlice, IoSliceMut},
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    path::Path,
    sync::{Arc, RwLock},
};

use nix::{
    errno::Errno,
    libc,
    sched::{CpuSet, sched_setaffinity},
    sys::{
        ptrace,
        signal::{Signal, kill},
        uio::{RemoteIoVec, process_vm_readv, process_vm_writev},
        wait::waitpid,
    },
    unistd::Pid,
};
use rustix::process::{
    PidfdFlags, Resource, Rlimit, pidfd_open, pidfd_send_signal, prlimit, setpriority_process,
};

use super::{Verb, argument, number};

/// Verbs on processes; the first argument names one.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("ptrace-attach", |a| {
        let process = process(a)?;
        ptrace::attach(process)?;
        waitpid(process, None)?;
        Ok(ptrace::detach(process, None)?)
    }),
    ("ptrace-seize", |a| {
        let process = process(a)?;
        Ok(ptrace::seize(process, ptrace::Options::empty())?)
    }),
    // The second argument is an address there.
    ("vm-read", |a| {
        let mut byte = [0];
        let there = [remote(a, 1)?];
        process_vm_readv(process(a)?, &mut [IoSliceMut::new(&mut byte)], &there)?;
        Ok(())
    }),
    ("vm-write", |a| {
        let there = [remote(a, 1)?];
        process_vm_writev(process(a)?, &[IoSlice::new(b"x")], &there)?;
        Ok(())
    }),
    ("mem-read", |a| {
        let memory = File::open(format!("/proc/{}/mem", process(a)?))?;
        memory.read_exact_at(&mut [0], address(a, 1)?)
    }),
    ("mem-write", |a| {
        let memory = OpenOptions::new()
            .write(true)
            .open(format!("/proc/{}/mem", process(a)?))?;
        memory.write_all_at(b"x", address(a, 1)?)
    }),
    // The second argument is a signal's name.
    ("signal", |a| Ok(kill(process(a)?, signal(a)?)?)),
    ("signal-by-descriptor", |a| {
        let process = pidfd_open(other(process(a)?)?, PidfdFlags::empty())?;
        let number = signal(a)? as i32;
        let signal = rustix::process::Signal::from_named_raw(number).ok_or(Errno::EINVAL)?;
        Ok(pidfd_send_signal(&process, signal)?)
    }),
    ("threads-until-refused", threads_until_refused),
    // The kernel sends it, for a pipe that becomes readable.
    ("signal-by-owner", signal_by_owner),
    ("limit", |a| {
        let new = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        prlimit(Some(other(process(a)?)?), Resource::Core, new)?;
        Ok(())
    }),
    ("affinity", |a| {
        let mut set = CpuSet::new();
        set.set(0)?;
        Ok(sched_setaffinity(process(a)?, &set)?)
    }),
    ("priority", |a| {
        Ok(setpriority_process(Some(other(process(a)?)?), 0)?)
    }),
    // As it is: SCHED_OTHER.
    ("schedule", |a| {
        let at_all = libc::sched_param { sched_priority: 0 };
        called(&[
            libc::SYS_sched_setscheduler,
            process(a)?.as_raw().into(),
            libc::SCHED_OTHER.into(),
            (&raw const at_all).addr().cast_signed() as libc::c_long,
        ])
    }),
    // IOPRIO_WHO_PROCESS, and IOPRIO_CLASS_BE of the middle priority (include/uapi/linux/ioprio.h).
    ("io-priority", |a| {
        called(&[
            libc::SYS_ioprio_set,
            1,
            process(a)?.as_raw().into(),
            2 << 13 | 4,
        ])
    }),
    // No pages.
    ("move-memory", |a| {
        called(&[libc::SYS_move_pages, process(a)?.as_raw().into()])
    }),
    // Moves itself to the cgroup whose directory this is.
    ("move-to-cgroup", |a| {
        fs::write(
            std::path::Path::new(argument(a, 0)?).join("cgroup.procs"),
            "0",
        )
    }),
    // The whole of a sandbox's parent: its cgroup's directory, by what the kernel says.
    ("move-to-parent-cgroup", |_| {
        let text = fs::read_to_string("/proc/self/cgroup")?;
        let path = text.trim().strip_prefix("0::").ok_or(Errno::ENOENT)?;
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        fs::write(format!("/sys/fs/cgroup{parent}/cgroup.procs"), "0")
    }),
    // Any kernel object of BPF's that is there, by its id.
    ("bpf-map", |_| bpf_object(12, 14)),
    ("bpf-program", |_| bpf_object(11, 13)),
    ("bpf-link", |_| bpf_object(31, 30)),
    ("perf", perf),
    // A key that was put into the user's keyring outside, by its description.
    ("read-key", read_key),
    ("write-file", |a| {
        fs::write(argument(a, 0)?, argument(a, 1)?.as_encoded_bytes())
    }),
];

/// A system call without a wrapper: its number, and its arguments, those that are left out being 0.
#[allow(unsafe_code, reason = "system calls without wrappers")]
fn called(words: &[libc::c_long]) -> io::Result<()> {
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    // SAFETY: `VERBS` gives numbers, and addresses of what outlives the call.
    let result = unsafe {
        libc::syscall(
            word(0),
            word(1),
            word(2),
            word(3),
            word(4),
            word(5),
            word(6),
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

fn process(arguments: &[OsString]) -> io::Result<Pid> {
    let word = argument(arguments, 0)?;
    if word == "supervisor" {
        return supervisor();
    }
    let id = i32::try_from(number(word)?).map_err(io::Error::other)?;
    Ok(Pid::from_raw(id))
}

fn other(process: Pid) -> io::Result<rustix::process::Pid> {
    Ok(rustix::process::Pid::from_raw(process.as_raw()).ok_or(Errno::ESRCH)?)
}

/// The nearest ancestor that is called `opensafe`; where there is none, the parent.
fn supervisor() -> io::Result<Pid> {
    let mut process = nix::unistd::getppid();
    let parent = process;
    while process.as_raw() > 1 {
        let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let (name, rest) = text.rsplit_once(") ").ok_or(Errno::EINVAL)?;
        if name.ends_with("(opensafe") {
            return Ok(process);
        }
        let id = rest.split(' ').nth(1).and_then(|id| id.parse().ok());
        process = Pid::from_raw(id.ok_or(Errno::EINVAL)?);
    }
    Ok(parent)
}

fn address(arguments: &[OsString], at: usize) -> io::Result<u64> {
    let text = argument(arguments, at)?.to_string_lossy();
    text.parse().map_err(io::Error::other)
}

fn remote(arguments: &[OsString], at: usize) -> io::Result<RemoteIoVec> {
    let base = usize::try_from(address(arguments, at)?).map_err(io::Error::other)?;
    Ok(RemoteIoVec { base, len: 1 })
}

fn signal(arguments: &[OsString]) -> io::Result<Signal> {
    let name = argument(arguments, 1)?.to_string_lossy();
    Ok(name.parse()?)
}

#[allow(unsafe_code, reason = "fcntl(2) for owners has no safe wrapper")]
fn signal_by_owner(arguments: &[OsString]) -> io::Result<()> {
    let process = process(arguments)?;
    let number = signal(arguments)? as i32;
    let (reader, mut writer) = io::pipe()?;
    let set = |command: i32, value: i32| {
        // SAFETY: these commands take an integer and touch no memory of ours.
        Errno::result(unsafe { libc::fcntl(reader.as_raw_fd(), command, value) })
    };
    set(libc::F_SETOWN, process.as_raw())?;
    // F_SETSIG (include/uapi/asm-generic/fcntl.h)
    set(10, number)?;
    set(libc::F_SETFL, libc::O_ASYNC)?;
    io::Write::write_all(&mut writer, b"x")?;
    // Nobody tells us whether it was sent.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let state = text
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with('T'));
    match state {
        Some(true) => Ok(()),
        _ => Err(Errno::EACCES.into()),
    }
}

/// The first object after id 0, and a descriptor of it: commands of enum bpf_cmd (include/uapi/linux/bpf.h).
fn bpf_object(next: u32, get: u32) -> io::Result<()> {
    let id = bpf(next, [0, 0, 0])?.1;
    let (descriptor, _) = bpf(get, [id, 0, 0])?;
    let _ = nix::unistd::close(i32::try_from(descriptor).map_err(io::Error::other)?);
    Ok(())
}

#[allow(unsafe_code, reason = "bpf(2) has no safe wrapper")]
fn bpf(command: u32, mut attributes: [u32; 3]) -> io::Result<(i64, u32)> {
    // SAFETY: the kernel reads and writes the given number of bytes of `attributes`, which is as long, and keeps no
    // reference to it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
        )
    };
    Ok((Errno::result(result)?, attributes[1]))
}

/// Opens a counter of what another process does.
#[allow(unsafe_code, reason = "perf_event_open(2) has no wrapper")]
fn perf(arguments: &[OsString]) -> io::Result<()> {
    let process = process(arguments)?;
    // struct perf_event_attr, its first version (include/uapi/linux/perf_event.h): a software event, the task's clock.
    let mut attributes = [0_u32; 16];
    attributes[0] = 1;
    attributes[1] = 64;
    attributes[2] = 1;
    // SAFETY: the kernel reads as many bytes of `attributes` as its size field says, which it has.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            process.as_raw(),
            -1,
            -1,
            0,
        )
    };
    let descriptor = i32::try_from(Errno::result(result)?).map_err(io::Error::other)?;
    Ok(nix::unistd::close(descriptor)?)
}

#[allow(unsafe_code, reason = "keyctl(2) has no wrapper")]
fn read_key(arguments: &[OsString]) -> io::Result<()> {
    // include/uapi/linux/keyctl.h
    const KEYCTL_SEARCH: i32 = 10;
    const KEYCTL_READ: i32 = 11;
    const USER_KEYRING: i32 = -4;
    let name = CString::new(argument(arguments, 0)?.as_encoded_bytes())?;
    let mut content = [0_u8; 64];
    // SAFETY: both texts end with a NUL; nothing is kept.
    let key = Errno::result(unsafe {
        let (kind, name) = (c"user".as_ptr(), name.as_ptr());
        libc::syscall(libc::SYS_keyctl, KEYCTL_SEARCH, USER_KEYRING, kind, name, 0)
    })?;
    // SAFETY: the kernel writes at most as many bytes as it is told.
    Errno::result(unsafe {
        let (buffer, length) = (content.as_mut_ptr(), content.len());
        libc::syscall(libc::SYS_keyctl, KEYCTL_READ, key, buffer, length)
    })?;
    Ok(())
}

/// So many threads at once, if there is room for them. Makes the file `full` when there is none for one more, and keeps the others
/// until there is a file `stop`.
fn threads_until_refused(arguments: &[OsString]) -> io::Result<()> {
    const STACK_BYTES: usize = 16 << 10;
    let (full, stop) = (argument(arguments, 1)?, argument(arguments, 2)?);
    let ended = Arc::new(RwLock::new(()));
    let not_yet = ended.write();
    let mut threads = Vec::new();
    let mut refused = Ok(());
    for _ in 0..number(argument(arguments, 0)?)? {
        let ended = Arc::clone(&ended);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        match thread.spawn(move || drop(ended.read())) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                refused = Err(error);
                break;
            }
        }
    }
    File::create(full)?;
    while !Path::new(stop).exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(not_yet);
    for thread in threads {
        let _ = thread.join();
    }
    refused
}
