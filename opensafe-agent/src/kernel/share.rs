//! Kernel programs that several runs share.
//!
//! Loading and attaching is most of a start, and every program that is attached costs each system call of everybody, so
//! runs of the same binary share one set: the first loads it, the others get themselves a descriptor of the file system
//! ([`Held`]) that has its links and maps. It is gone when the last of them is, however they end.
//!
//! Which is found by nothing but `/proc`: a process of the same executable, older than this one, that has a BPF file system
//! made by root. So there is nothing to be left behind, nothing that a sandbox could reach, and nothing to be trusted but
//! what root alone can have. Who starts while an older run still loads waits for it, so of any number that start at once
//! the oldest loads.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::statfs::{FsType, statfs};
use procfs::process::Process;

use super::{
    HOOKS, Kernel, KernelError, Sizes, State,
    held::{Held, Lock},
    hooks::Attach,
    install::{Regions, chunks_for},
    listed,
    maps::{Maps, PLACES},
    now_s,
    seat::Seat,
};

/// Whether other runs have the same programs and maps.
pub(super) enum Sharing {
    /// No.
    No,
    /// They will, once everything is attached; till then they wait for the lock.
    Later(Lock),
    /// They may have.
    Yes,
}

impl Sharing {
    /// Chunks of the arena for the policies of others.
    pub(super) const fn more_chunks(&self) -> u32 {
        match self {
            Self::No => 0,
            Self::Later(_) | Self::Yes => CHUNKS_OF_OTHERS,
        }
    }
}

/// 16 MiB.
const CHUNKS_OF_OTHERS: u32 = 1024;

impl Kernel {
    /// Those of another run, attached already; else as [`Kernel::load`], for others to join.
    ///
    /// # Errors
    /// As [`Kernel::load`].
    pub fn shared(sizes: &Sizes) -> Result<Self, KernelError> {
        let ours = || {
            let held = Held::new().ok()?;
            let lock = held.lock(PATIENCE).ok()??;
            Some((held, lock))
        };
        // Where programs are not called, there is little to be shared: what stands in for them belongs to a cgroup.
        let Some((held, lock)) = (listed() == Some(true)).then(ours).flatten() else {
            return Self::load(sizes);
        };
        // Looked for after ours is there: of two that start at once, the younger sees the older.
        if let Some(joined) = others().find_map(|(held, lock)| Self::join(sizes, held, lock)) {
            return Ok(joined);
        }
        Self::load_for(sizes, Some(held), Sharing::Later(lock))
    }

    /// `None` if there is no room, or what is there cannot be used.
    fn join(sizes: &Sizes, held: Held, lock: Lock) -> Option<Self> {
        let mut maps = Maps::pinned(&held).ok()?;
        let seat = Seat::take(&mut maps, chunks_for(sizes.policy_cells)).ok()??;
        drop(lock);
        // Only a whole set is shared: what has no link is not in this kernel.
        let state = |program| match held.has(program) {
            true => State::Loaded,
            false => State::NotThere,
        };
        let states = HOOKS
            .iter()
            .map(|hook| (hook.program, state(hook.program)))
            .collect();
        Some(Self {
            maps,
            programs: None,
            messages: None,
            states,
            seat,
            regions: Regions::new(),
            ring_bytes: sizes.ring_bytes,
            rename_lock_known: true,
            started_s: now_s(),
            sharing: Sharing::Yes,
            held: Some(held),
        })
    }

    /// Everything is attached: lets others join if all that this kernel has is there.
    pub(super) fn open_to_others(&mut self) {
        let waiting = std::mem::replace(&mut self.sharing, Sharing::No);
        let is_whole = HOOKS
            .iter()
            .filter(|hook| hook.attach != Attach::Cgroup)
            .all(|hook| self.has(hook.program) || self.lacks(hook.program));
        let (Sharing::Later(lock), Some(held), true) = (waiting, &self.held, is_whole) else {
            return;
        };
        // If it cannot be, this run is alone.
        if self.lsm_in_effect() && self.maps.pin(held).is_ok() {
            self.programs = None;
            self.sharing = Sharing::Yes;
        }
        drop(lock);
    }

    /// The lock on what is shared, if anything is.
    pub(super) fn lock(&self) -> Result<Option<Lock>, KernelError> {
        match (&self.sharing, &self.held) {
            (Sharing::Yes, Some(held)) => match held.lock(PATIENCE) {
                Ok(Some(lock)) => Ok(Some(lock)),
                Ok(None) => Err(KernelError::Locked),
                Err(error) => Err(KernelError::Lock(error)),
            },
            _ => Ok(None),
        }
    }

    /// Takes back what this run has in what is shared. Where marked tasks are left, it stays: they are confined as long as
    /// any other run goes on.
    pub(super) fn leave(&mut self) {
        if !matches!(self.sharing, Sharing::Yes) || self.marked() > 0 {
            return;
        }
        self.seat.disarm(&mut self.maps);
        self.regions.clear(&mut self.maps);
        if self.lock().is_ok_and(|lock| lock.is_some()) {
            // A place that is not given back is lost to the others, and no harm.
            let _ = self.seat.leave(&mut self.maps);
        }
        self.sharing = Sharing::No;
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.leave();
    }
}

/// How long one waits for an older run that loads, or for one that has the lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const BPF_FS_MAGIC: FsType = FsType(0xcafe_4a11);

/// What other runs hold and this one can join, each with its lock taken; the oldest first.
fn others() -> impl Iterator<Item = (Held, Lock)> {
    older_runs().into_iter().filter_map(|process| {
        let held = bpf_file_system(&process)?;
        let lock = held.lock(PATIENCE).ok()??;
        // Without it, whoever was about to load has failed, or cannot share.
        held.has(PLACES).then_some((held, lock))
    })
}

/// `/proc/PID` of processes with our executable that were there before us, by age.
fn older_runs() -> Vec<PathBuf> {
    let Some((ours, our_age)) = Process::myself()
        .ok()
        .and_then(|process| Some((executable(Path::new("/proc/self"))?, age(&process)?)))
    else {
        return Vec::new();
    };
    let mut runs: Vec<_> = procfs::process::all_processes()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|process| {
            let directory = PathBuf::from(format!("/proc/{}", process.pid));
            let theirs = age(&process)?;
            (executable(&directory)? == ours && theirs < our_age).then_some((theirs, directory))
        })
        .collect();
    runs.sort();
    runs.into_iter().map(|(_, directory)| directory).collect()
}

/// When a process started, in ticks since boot, and its id.
fn age(process: &Process) -> Option<(u64, i32)> {
    Some((process.stat().ok()?.starttime, process.pid))
}

/// Which file a process runs.
fn executable(process: &Path) -> Option<(u64, u64)> {
    let file = fs::metadata(process.join("exe")).ok()?;
    Some((file.dev(), file.ino()))
}

/// The BPF file system that a process has, if root made it: anyone can make one in a user namespace of theirs.
fn bpf_file_system(process: &Path) -> Option<Held> {
    let descriptors = fs::read_dir(process.join("fd")).ok()?;
    descriptors
        .flatten()
        .map(|entry| entry.path())
        .find_map(|path| {
            let is_bpf = statfs(&path).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC);
            let is_roots = |path: &Path| fs::metadata(path).is_ok_and(|root| root.uid() == 0);
            if is_bpf && is_roots(&path) {
                Held::at(&path).ok()
            } else {
                None
            }
        })
}
