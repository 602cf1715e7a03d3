//! Stopping or blinding what confines: `opensafe` itself, its record, its programs in the kernel. What would hurt it if it
//! worked is tried in a way that does not.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
};

use nix::sys::signal::Signal;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::{
    super::attempt::{Attempt, Expects, Make},
    processes::{attach, environment, id, limit, signal, signal_by_descriptor},
};
use crate::kernel::knock;

pub(super) const ALL: &[Attempt] = &[
    Attempt::event(
        "against-opensafe.signal",
        "a signal to opensafe",
        &["signal"],
        |site| signal(&site.supervisor, Signal::SIGCONT),
    ),
    Attempt::event(
        "against-opensafe.pidfd",
        "the same by a pidfd",
        &["signal"],
        |site| signal_by_descriptor(&site.supervisor, rustix::process::Signal::CONT),
    ),
    Attempt::event(
        "against-opensafe.trace",
        "tracing it",
        &["ptrace"],
        |site| attach(&site.supervisor),
    ),
    Attempt::event(
        "against-opensafe.limits",
        "its limits",
        &["signal"],
        |site| limit(&site.supervisor),
    ),
    Attempt::event(
        "against-opensafe.environment",
        "its environment",
        &["ptrace", "file"],
        |site| environment(&site.supervisor),
    ),
    Attempt::event(
        "against-opensafe.memory",
        "its memory, opened for writing",
        &["ptrace", "file"],
        |site| {
            let path = site.supervisor.directory.join("mem");
            OpenOptions::new().write(true).open(path).map(drop)
        },
    ),
    Attempt::event(
        "against-opensafe.descriptor",
        "what it has open (pidfd_getfd)",
        &["ptrace", "file"],
        |site| {
            let there = pidfd_open(id(&site.supervisor)?, PidfdFlags::empty())?;
            Ok(pidfd_getfd(&there, 2, PidfdGetfdFlags::empty()).map(drop)?)
        },
    ),
    Attempt::event(
        "against-opensafe.programs",
        "its programs in the kernel",
        &["bpf"],
        |_| knock::open_a_program(),
    ),
    Attempt::event(
        "against-opensafe.tables",
        "its tables in the kernel",
        &["bpf"],
        |_| knock::open_a_map(),
    ),
    record(
        "against-opensafe.record",
        "writing into the record",
        |site| {
            OpenOptions::new()
                .append(true)
                .open(&site.record)?
                .write_all(b"{}\n")
        },
    ),
    record(
        "against-opensafe.record-empty",
        "emptying the record",
        |site| {
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&site.record)
                .map(drop)
        },
    ),
    record(
        "against-opensafe.record-delete",
        "deleting the record",
        |site| {
            fs::rename(&site.record, site.open("taken"))?;
            fs::rename(site.open("taken"), &site.record)
        },
    ),
    record(
        "against-opensafe.record-forge",
        "another record in its place",
        |site| {
            let forged = site.open("forged");
            File::create(&forged)?;
            fs::rename(forged, &site.record)
        },
    ),
];

const fn record(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt {
        expects: Expects::Place,
        ..Attempt::event(name, shows, &[], make)
    }
}
