//! Reaching into the kernel. Nothing is changed there: files are opened and not written, a module is none.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use linux_keyutils::{KeyRing, KeyRingIdentifier};
use nix::{
    errno::Errno,
    kmod::{ModuleInitFlags, finit_module},
    unistd::{gethostname, sethostname},
};

use super::super::{
    attempt::{Attempt, command},
    namespaces::Namespace,
};
use crate::kernel::knock;

pub(super) const ALL: &[Attempt] = &[
    Attempt::event(
        "kernel.module",
        "loading code (finit_module, of no module)",
        &["module"],
        |site| {
            let file = File::open(site.open("other"))?;
            match finit_module(&file, c"", ModuleInitFlags::empty()) {
                // It was read, and is none: what is decided is who may have the kernel read it.
                Err(Errno::ENOEXEC) => Ok(()),
                other => Ok(other?),
            }
        },
    ),
    Attempt::event("kernel.bpf-map", "a BPF map of its own", &["bpf"], |_| {
        knock::make_a_map()
    }),
    Attempt::event(
        "kernel.key",
        "a key that the kernel keeps",
        &["keyring"],
        |_| {
            let ring = KeyRing::from_special_id(KeyRingIdentifier::Process, true);
            let added = ring.and_then(|ring| ring.add_key("opensafe-boundary", b"content"));
            added.map(drop).map_err(|error| error_of_key(&error))
        },
    ),
    Attempt::event(
        "kernel.terminal",
        "typing into a terminal (TIOCSTI)",
        &["terminal"],
        |_| {
            let script = "import fcntl, os, pty, termios\n\
                          there, here = pty.openpty()\n\
                          try: fcntl.ioctl(here, termios.TIOCSTI, b'x')\n\
                          except OSError as e: os._exit(13 if e.errno in (1, 13) else 2)";
            command("python3", &["-c", script])
        },
    )
    .or_ends(&["status 13"]),
    Attempt::event(
        "kernel.terminal-outside",
        "a terminal outside, for itself alone (TIOCEXCL)",
        &["terminal"],
        |site| {
            let script = "import fcntl, os, sys, termios\n\
                          try: fcntl.ioctl(os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY), termios.TIOCEXCL)\n\
                          except OSError as e: os._exit(13 if e.errno in (1, 13) else 2)";
            let terminal = site.terminal()?.as_os_str();
            command("python3", &[OsStr::new("-c"), OsStr::new(script), terminal])
        },
    )
    .or_ends(&["status 13"]),
    Attempt::event(
        "kernel.network",
        "the network outside (its loopback set up, as it is)",
        &["network"],
        |_| command("ip", &["link", "set", "lo", "up"]),
    )
    .or_ends(&["status 2"])
    .of_others(Namespace::Network),
    Attempt::event(
        "kernel.host-name",
        "the host's name (set to what it is)",
        &["kernel"],
        |_| Ok(sethostname(gethostname()?)?),
    )
    .of_others(Namespace::HostName),
    Attempt::event(
        "kernel.memory",
        "the machine's memory (/dev/mem)",
        &["kernel", "file"],
        |_| opens("/dev/mem"),
    ),
    Attempt::event(
        "kernel.core",
        "the kernel's memory (/proc/kcore)",
        &["kernel", "file"],
        |_| opens("/proc/kcore"),
    ),
    Attempt::event(
        "kernel.ports",
        "I/O ports (/dev/port)",
        &["kernel", "file"],
        |_| opens("/dev/port"),
    ),
    Attempt::event(
        "kernel.trace",
        "what the kernel traces (tracefs)",
        &["kernel", "file"],
        |_| opens("/sys/kernel/tracing/trace"),
    ),
    Attempt::event(
        "kernel.core-pattern",
        "what runs when a process crashes",
        &["file"],
        |_| opens_for_writing("/proc/sys/kernel/core_pattern"),
    ),
    Attempt::event(
        "kernel.modprobe",
        "what runs to load a module",
        &["file"],
        |_| opens_for_writing("/proc/sys/kernel/modprobe"),
    ),
    Attempt::event(
        "kernel.sysrq",
        "commands to the kernel (SysRq)",
        &["file"],
        |_| opens_for_writing("/proc/sysrq-trigger"),
    ),
    Attempt::event(
        "kernel.messages",
        "the kernel's messages, written",
        &["file"],
        |_| opens_for_writing("/dev/kmsg"),
    ),
];

fn opens(path: impl AsRef<Path>) -> io::Result<()> {
    File::open(path).map(drop)
}

fn opens_for_writing(path: impl AsRef<Path>) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

fn error_of_key(error: &linux_keyutils::KeyError) -> io::Error {
    use linux_keyutils::KeyError;
    match error {
        KeyError::AccessDenied => Errno::EACCES.into(),
        KeyError::OperationNotSupported => Errno::ENOSYS.into(),
        KeyError::PermissionDenied => Errno::EPERM.into(),
        other => io::Error::other(format!("{other:?}")),
    }
}
