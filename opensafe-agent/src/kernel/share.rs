//! Kernel programs that several runs share.
//!
//! Loading and attaching is most of a start, and every program that is attached costs each system call of everybody, so
//! runs of the same binary share one set: the first loads it, the others get themselves a descriptor of the file system
//! ([`Held`]) that has its links and maps. It goes with the last of them, and stays if that is killed ([`super::kept`]).
//!
//! It is found where root has mounted it, or, as long as it is not, by `/proc`: a process of the same executable that has a BPF
//! file system made by root. So nothing is trusted but what root alone can have.
//!
//! Where a whole set with room is found, it is joined, and nothing else is looked at: that takes hardly longer beside a
//! thousand runs than beside one. Else, of any number that start at once, one loads and the others wait for it. Each makes a
//! file system, which others can find from then on, notes in it the time at which it did so, and only then looks for others:
//! whoever noted an earlier time goes first (L. Lamport, A New Solution of Dijkstra's Concurrent Programming Problem, 1974).

use std::{
    collections::BTreeSet,
    fs, io,
    ops::ControlFlow,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::sys::statfs::{FsType, statfs};

use super::{
    HOOKS, Kernel, KernelError, Sizes, State,
    held::{Held, Lock, OnWait, Turn, Users},
    install::Policies,
    kept, listed,
    maps::{Maps, PLACES},
    own::now_s,
    preemption::passes_over,
    seat::{Others, Seat},
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

impl Kernel {
    /// Those of another run, attached already; else as [`Kernel::load`], for others to join. `on_wait` is called while
    /// another run is loading.
    ///
    /// # Errors
    /// As [`Kernel::load`], and if `on_wait` gives up.
    pub fn shared(sizes: &Sizes, on_wait: OnWait<'_>) -> Result<Self, KernelError> {
        // Where the programs of the LSM's hooks are not asked, there is little to be shared: what stands in for them belongs to a
        // cgroup.
        if listed() != Some(true) && passes_over().is_some() {
            return Self::load(sizes);
        }
        let mut given_up = false;
        let mut on_wait = |waited| {
            let flow = on_wait(waited);
            given_up |= flow.is_break();
            flow
        };
        // Whoever joins loads nothing, so this needs no turn.
        let joined = whole(&mut on_wait).find_map(|(held, lock)| Self::join(sizes, held, lock));
        if let Some(joined) = joined {
            return Ok(joined);
        }
        let ours = || {
            let held = Held::new(Users::Any).ok()?;
            let lock = held.lock(PATIENCE, &mut go_on).ok()??;
            let turn = held.turn()?.ok()?;
            Some((held, lock, turn))
        };
        let Some((held, lock, turn)) = ours() else {
            return Self::load(sizes);
        };
        let mut theirs = before(turn, &mut on_wait);
        if let Some(joined) = theirs.find_map(|(held, lock)| Self::join(sizes, held, lock)) {
            return Ok(joined);
        }
        drop(theirs);
        if given_up {
            return Err(KernelError::GivenUp);
        }
        Self::load_for(sizes, Some(held), Sharing::Later(lock))
    }

    /// `None` if there is no room, or what is there cannot be used.
    fn join(sizes: &Sizes, held: Held, lock: Lock) -> Option<Self> {
        held.way()?;
        let mut maps = Maps::pinned(&held).ok()?;
        let seat = Seat::take(&mut maps, || kept::places_in(&held)).ok()??;
        drop(lock);
        Some(Self::of_held(sizes, held, maps, seat))
    }

    /// A place in a set that is attached.
    pub(super) fn of_held(sizes: &Sizes, held: Held, maps: Maps, seat: Seat) -> Self {
        // Only a whole set is shared: what has no link is not in this kernel.
        let state = |program| match held.has(program) {
            true => State::Loaded,
            false => State::NotThere,
        };
        let states = HOOKS
            .iter()
            .map(|hook| (hook.program, state(hook.program)))
            .collect();
        Self {
            maps,
            programs: None,
            messages: None,
            states,
            seat,
            policies: Policies::new(),
            ring_bytes: sizes.ring_bytes,
            rename_lock_known: true,
            way: held.way(),
            started_s: now_s(),
            sharing: Sharing::Yes,
            held: Some(held),
            kept: None,
            why_not_kept: None,
        }
    }

    /// Everything is attached: lets others join if all that this kernel has is there.
    pub(super) fn open_to_others(&mut self) {
        let waiting = std::mem::replace(&mut self.sharing, Sharing::No);
        let is_whole = HOOKS
            .iter()
            .filter(|hook| !hook.attach.stands_in())
            .all(|hook| self.has(hook.program) || self.lacks(hook.program));
        let way = self.way;
        let (Sharing::Later(lock), Some(held), true) = (waiting, &mut self.held, is_whole) else {
            return;
        };
        // If it cannot be, this run is alone.
        if way.is_some_and(|way| held.note_way(way).is_ok()) && self.maps.pin(held).is_ok() {
            self.programs = None;
            self.sharing = Sharing::Yes;
            let ours = executable(Path::new("/proc/self"));
            let mounted = ours
                .ok_or_else(|| io::ErrorKind::NotFound.into())
                .and_then(|ours| held.note_executable(ours))
                .and_then(|()| kept::mount(held));
            self.why_not_kept = mounted.err().map(|error| error.to_string());
        }
        drop(lock);
    }

    /// The lock on what is shared, if anything is.
    pub(super) fn lock(&self) -> Result<Option<Lock>, KernelError> {
        match (&self.sharing, &self.held) {
            (Sharing::Yes, Some(held)) => match held.lock(PATIENCE, &mut go_on) {
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
        self.policies.clear(&mut self.maps, self.seat);
        if let Ok(Some(_lock)) = self.lock() {
            self.forget();
            // A place that is not given back is lost to the others, and no harm.
            let others = self.seat.leave(&mut self.maps);
            if let (Ok(Others::None), Some(held)) = (others, &mut self.held)
                && kept::places_in(held).is_empty()
            {
                held.close();
            }
        }
        self.sharing = Sharing::No;
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.leave();
    }
}

/// How long one waits for another run that loads, or for one that has the lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long one waits for another to note when it began.
const PATIENCE_FOR_A_NOTE: Duration = Duration::from_secs(2);
/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The directory of every sandbox's cgroup.
pub const CGROUP_PARENT: &str = "opensafe";

/// `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
pub(super) const BPF_FS_MAGIC: FsType = FsType(0xcafe_4a11);

/// What others have loaded and this run can join, each with its lock taken.
fn whole(on_wait: OnWait<'_>) -> impl Iterator<Item = (Held, Lock)> {
    let loaded_by = Instant::now() + PATIENCE;
    file_systems()
        .filter(|held| held.has(PLACES))
        .filter_map(move |held| {
            let patience = loaded_by.saturating_duration_since(Instant::now());
            let lock = held.lock(patience, on_wait).ok()??;
            Some((held, lock))
        })
}

/// What others began before us and this run can join, each with its lock taken; the first of them first.
fn before(ours: Turn, on_wait: OnWait<'_>) -> impl Iterator<Item = (Held, Lock)> {
    // However many there are, one waits no longer for all of them than for one.
    let now = Instant::now();
    let (noted_by, loaded_by) = (now + PATIENCE_FOR_A_NOTE, now + PATIENCE);
    let mut theirs: Vec<(Turn, Held)> = file_systems()
        .filter_map(|held| Some((turn(&held, noted_by)?, held)))
        .filter(|(turn, _)| *turn < ours)
        .collect();
    theirs.sort_by_key(|(turn, _)| *turn);
    theirs.into_iter().filter_map(move |(_, held)| {
        let patience = loaded_by.saturating_duration_since(Instant::now());
        let lock = held.lock(patience, on_wait).ok()??;
        // Without it, whoever was about to load has failed, or cannot share, or has joined another.
        held.has(PLACES).then_some((held, lock))
    })
}

/// Waits on.
pub(super) fn go_on(_: Duration) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// When they began; `None` if theirs is not to be shared.
fn turn(held: &Held, noted_by: Instant) -> Option<Turn> {
    loop {
        match held.turn() {
            Some(noted) => return noted.ok(),
            None if Instant::now() > noted_by => return None,
            None => thread::sleep(LOOK_EVERY),
        }
    }
}

/// The BPF file systems that root has made and that processes with our executable have mounted or have open, each once. Those of the latest processes first, as what they have is the likeliest to have room.
fn file_systems() -> impl Iterator<Item = Held> {
    let ours = executable(Path::new("/proc/self"));
    let of_ours = |held: &Held| ours.is_some_and(|ours| held.is_of_executable(ours));
    let is_ours = move |process: &PathBuf| {
        ours.is_some() && executable(process) == ours && !is_confined(process)
    };
    let mounted: Vec<Held> = kept::ours()
        .filter_map(|place| Held::mounted_at(place).ok())
        .filter(of_ours)
        .collect();
    let mut known: BTreeSet<u64> = mounted
        .iter()
        .filter_map(|held| held.stat_device().ok())
        .collect();
    let unmounted = others()
        .map(|process| Path::new("/proc").join(process.to_string()))
        .filter(is_ours)
        .flat_map(|process| {
            let descriptors = fs::read_dir(process.join("fd"));
            descriptors.into_iter().flatten().flatten()
        })
        .filter_map(move |descriptor| file_system(&descriptor.path(), &mut known))
        // Whoever looks has every set open for a moment, others' too.
        .filter(move |held| ours.is_some_and(|ours| !held.is_of_another_than(ours)));
    mounted.into_iter().chain(unmounted)
}

/// Every other process, the one with the highest id first.
fn others() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let id = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut all: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(id)
        .filter(|id| *id != own)
        .collect();
    all.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
    all.into_iter()
}

/// Whether a process is in a sandbox, as far as its cgroup tells: root in there can make a BPF file system, and nothing in
/// it, and would have everyone wait for its lock. Where it is not told, it is taken for one.
fn is_confined(process: &Path) -> bool {
    let cgroups = fs::read(process.join("cgroup"));
    cgroups.map_or(true, |cgroups| {
        is_below_ours(&String::from_utf8_lossy(&cgroups))
    })
}

/// Whether one of the paths in a `/proc/PID/cgroup` is of a cgroup below [`CGROUP_PARENT`] (cgroups(7)).
fn is_below_ours(cgroups: &str) -> bool {
    let paths = cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2));
    paths
        .flat_map(|path| path.split('/'))
        .any(|name| name == CGROUP_PARENT)
}

/// Which file a process runs.
fn executable(process: &Path) -> Option<(u64, u64)> {
    let file = fs::metadata(process.join("exe")).ok()?;
    Some((file.dev(), file.ino()))
}

/// The one whose root a descriptor is of, unless it is known already, by its device. Root's only: anyone can make one in a user
/// namespace of theirs.
fn file_system(descriptor: &Path, known: &mut BTreeSet<u64>) -> Option<Held> {
    let root = fs::metadata(descriptor).ok()?;
    if known.contains(&root.dev()) {
        return None;
    }
    let is_bpf = statfs(descriptor).ok()?.filesystem_type() == BPF_FS_MAGIC;
    if is_bpf && !(root.uid() == 0 && root.is_dir()) {
        return None;
    }
    known.insert(root.dev());
    if is_bpf {
        Held::at(descriptor).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_a_sandbox_is_told_by_the_cgroup() {
        for inside in ["0::/opensafe/k3q9\n", "1:name=x:/\n0::/opensafe/k3q9/own\n"] {
            assert!(is_below_ours(inside), "{inside}");
        }
        for outside in [
            "0::/\n",
            "0::/user.slice/opensafe.scope\n",
            "0::/system.slice/opensafe-1\n",
            "",
        ] {
            assert!(!is_below_ours(outside), "{outside}");
        }
    }
}
