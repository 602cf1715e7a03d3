//! Who holds what is attached: a BPF file system, which is mounted where nobody else has business once it is whole
//! ([`super::kept`]), or nowhere.
//!
//! So there are two ways to let go: with nothing left when it is done, and without waiting for that. Closing a tracing
//! link's descriptor waits until no task can be inside its trampoline any more: on Linux 6.1 and 6.12 with
//! `CONFIG_PREEMPTION` at least 0.1 s for each (`ftrace_shutdown` in kernel/trace/ftrace.c waits for a grace period of RCU
//! tasks, and `rcu_tasks_kthread` in kernel/rcu/tasks.h pauses between two), 8 s for all the hooks. The last reference to
//! a pinned link goes with its inode, and the kernel then detaches in a worker of its own (`bpf_link_put` in
//! kernel/bpf/syscall.c), for which nobody waits. One that is mounted nowhere goes with the last descriptor, however
//! processes end; one that is mounted is closed by whoever leaves it last, and what is killed in it stays confined.
//!
//! Before Linux 6.5 the worker does so only for who may not sleep, and whoever closes the file system waits after all.
//! There, another process is the last to have it.
//!
//! Other runs can have it too ([`super::share`]): by a descriptor of their own, which they get through `/proc` as root. The
//! lock on its directory is then what keeps them from writing to the maps at once.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io,
    num::ParseIntError,
    ops::ControlFlow,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use aya::{
    maps::{Map, MapData, MapError},
    pin::PinError,
    programs::links::{FdLink, LinkError, PinnedLink},
};
use nix::time::{ClockId, clock_gettime};
use procfs::sys::kernel::Version;
use rustix::{
    fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, fstat, open, openat, unlinkat},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
        fsmount, fsopen, move_mount, unmount,
    },
};

use super::{bpf, hooks::HOOKS, maps::PLACES};
use crate::{enforcement::Way, view::Dev};

/// The file system. Dropped, it takes every link back and waits until all are detached, unless others have it too;
/// [`Held::let_go`] does not wait.
pub(super) struct Held {
    root: Option<OwnedFd>,
    /// The mount, of whoever has made it: it can be attached as long as this is open.
    mount: Option<OwnedFd>,
    /// Where it is mounted, if it outlives who holds it.
    place: Option<PathBuf>,
    /// Whether nobody else is to use it any more.
    is_last: bool,
}

/// Whom a file system is made for.
#[derive(Clone, Copy)]
pub(super) enum Users {
    /// One run, or an examination of the host.
    One,
    /// Whoever comes.
    Any,
}

/// What a note of an executable begins with.
const EXECUTABLE: &str = "executable-";

/// Says that a file system is one process's alone.
pub(super) struct Alone;
/// Its note.
const ALONE: &str = "alone";

/// When a process began to load programs for others, and which: an order in which all agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    since_boot_ns: u128,
    process: u32,
}

/// What is done every now and then while somebody else has the lock: it gets how long that has been, and may give up.
pub type OnWait<'a> = &'a mut dyn FnMut(Duration) -> ControlFlow<()>;

/// The file system's lock. Goes when it is dropped, and with the process.
pub(super) struct Lock(#[expect(dead_code, reason = "closed when it is dropped")] File);

impl Held {
    /// Makes the file system. Linux ≥ 5.2; `CAP_SYS_ADMIN` in the first user namespace.
    pub(super) fn new(users: Users) -> io::Result<Self> {
        let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let none = MountAttrFlags::empty();
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, none)?;
        let root = Path::new("/proc/self/fd").join(mount.as_raw_fd().to_string());
        let mut held = Self::at(&root)?;
        held.mount = Some(mount);
        match users {
            Users::One => held.note(ALONE)?,
            // The time is taken now that the file system can be found: whoever does not see it by then comes later.
            Users::Any => held.note(&Turn::next()?.to_string())?,
        }
        Ok(held)
    }

    /// When whoever made it began, if it is to be shared; `None` until they have said so.
    pub(super) fn turn(&self) -> Option<Result<Turn, Alone>> {
        let names = std::fs::read_dir(self.path(".")).ok()?;
        names.flatten().find_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?;
            if name == ALONE {
                return Some(Err(Alone));
            }
            name.parse().ok().map(Ok)
        })
    }

    /// Notes in which way the programs of the LSM's hooks are attached.
    pub(super) fn note_way(&self, way: Way) -> io::Result<()> {
        self.note(way.as_str())
    }

    /// In which way they are; `None` if it was not noted.
    pub(super) fn way(&self) -> Option<Way> {
        [Way::Lsm, Way::ModifyReturn]
            .into_iter()
            .find(|way| self.has(way.as_str()))
    }

    // A directory, as a BPF file system has no plain files.
    fn note(&self, name: &str) -> io::Result<()> {
        std::fs::create_dir(self.path(name))
    }

    /// The one whose root is there.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root: Some(open(path, flags, Mode::empty())?),
            mount: None,
            place: None,
            is_last: false,
        })
    }

    /// The one that is mounted there.
    pub(super) fn mounted_at(place: PathBuf) -> io::Result<Self> {
        let mut held = Self::at(&place)?;
        held.place = Some(place);
        Ok(held)
    }

    /// Notes which file the processes run that may have it.
    pub(super) fn note_executable(&self, (device, inode): (u64, u64)) -> io::Result<()> {
        self.note(&format!("{EXECUTABLE}{device}-{inode}"))
    }

    /// Whether that is the one.
    pub(super) fn is_of_executable(&self, (device, inode): (u64, u64)) -> bool {
        self.has(&format!("{EXECUTABLE}{device}-{inode}"))
    }

    /// Whether it is noted that processes of another file have it. What is not mounted yet has no such note.
    pub(super) fn is_of_another_than(&self, executable: (u64, u64)) -> bool {
        let names = std::fs::read_dir(self.path(".")).into_iter().flatten();
        let mut names = names.flatten().map(|entry| entry.file_name());
        let is_note = |name: OsString| name.to_string_lossy().starts_with(EXECUTABLE);
        !self.is_of_executable(executable) && names.any(is_note)
    }

    /// Where it is mounted.
    pub(super) fn place(&self) -> Option<&Path> {
        self.place.as_deref()
    }

    /// Has it outlive this process: mounts it at `place`, an empty directory.
    pub(super) fn mount_at(&mut self, place: &Path) -> io::Result<()> {
        let mount = self.mount.take().ok_or(io::ErrorKind::Unsupported)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&mount, "", CWD, place, flags)?;
        self.place = Some(place.to_owned());
        Ok(())
    }

    /// Has nobody find it any more, and with whoever has it now go. The caller holds the lock, and knows that nobody is left who
    /// is confined by it.
    pub(super) fn close(&mut self) {
        // Whoever waits for the lock finds that it is closed.
        self.forget(PLACES);
        self.is_last = true;
        if let Some(place) = self.place.take() {
            // What cannot be unmounted is empty, and is cleaned up by the next one.
            let _ = unmount(&place, UnmountFlags::DETACH);
            let _ = std::fs::remove_dir(&place);
        }
    }

    /// Whether it is closed: with nobody to be found in it, and nobody who is about to be.
    pub(super) fn is_closed(&self) -> bool {
        let free = || self.lock(Duration::ZERO, &mut |_| ControlFlow::Break(()));
        !self.has(PLACES) && free().is_ok_and(|lock| lock.is_some())
    }

    /// Its device, as stat(2) has it.
    pub(super) fn stat_device(&self) -> io::Result<u64> {
        let root = self.root.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(fstat(root)?.st_dev)
    }

    /// `s_dev` of its superblock, as the programs see it.
    pub(super) fn device(&self) -> io::Result<Dev> {
        self.stat_device().map(Dev::of_stat)
    }

    /// Takes out what is held under a name.
    pub(super) fn forget(&self, name: &str) {
        // What cannot be taken out goes with the file system. By the descriptor: /proc may be gone.
        if let Some(root) = &self.root {
            let _ = unlinkat(root, name, AtFlags::empty());
        }
    }

    /// Takes out a directory with all that is in it, as [`Held::forget`] does.
    pub(super) fn forget_directory(&self, name: &str) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Some(root) = &self.root
            && let Ok(directory) = openat(root, name, flags, Mode::empty())
        {
            empty(&directory);
            let _ = unlinkat(root, name, AtFlags::REMOVEDIR);
        }
    }

    /// Where something is, or is to be, held.
    pub(super) fn pin_path(&self, name: &str) -> String {
        self.path(name)
    }

    /// Holds a link, under a name that no other has.
    ///
    /// # Errors
    /// If it cannot be pinned; the link is gone then.
    pub(super) fn hold(&self, link: FdLink, name: &'static str) -> Result<(), PinError> {
        link.pin(self.path(name)).map(drop)
    }

    /// As [`Held::hold`], for a link that aya does not know. It stays with whoever has its descriptor, too.
    pub(super) fn hold_descriptor(&self, link: &impl AsFd, name: &str) -> io::Result<()> {
        bpf::pin(link, Path::new(&self.path(name)))
    }

    /// Holds a map.
    pub(super) fn hold_map(&self, map: &Map, name: &'static str) -> Result<(), PinError> {
        map.pin(self.path(name))
    }

    /// A link that is held.
    pub(super) fn link(&self, name: &str) -> Result<FdLink, LinkError> {
        PinnedLink::from_pin(self.path(name)).map(FdLink::from)
    }

    /// A map that is held.
    pub(super) fn map(&self, name: &str) -> Result<MapData, MapError> {
        MapData::from_pin(self.path(name))
    }

    /// Whether something of that name is held.
    pub(super) fn has(&self, name: &str) -> bool {
        Path::new(&self.path(name)).exists()
    }

    /// Waits for the lock; `None` if somebody still has it after `patience`, or it was given up.
    pub(super) fn lock(&self, patience: Duration, on_wait: OnWait<'_>) -> io::Result<Option<Lock>> {
        let began = Instant::now();
        // Opened anew: a lock belongs to what was opened, and this must not be shared with anyone.
        // By the descriptor: /proc may be gone.
        let held = self.root.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = File::from(openat(held, ".", flags, Mode::empty())?);
        loop {
            match flock(&root, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Lock(root))),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let waited = began.elapsed();
                    if waited > patience || on_wait(waited).is_break() {
                        return Ok(None);
                    }
                    thread::sleep(LOOK_EVERY);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Has the kernel detach everything that nobody else holds, and does not wait for it.
    pub(super) fn let_go(mut self) {
        let Some(root) = self.root.take() else {
            return;
        };
        let waits = Version::current().is_ok_and(|kernel| kernel < Version::new(6, 5, 0));
        let started = waits.then(|| {
            // Nobody waits for it. Where none can be started, this process waits.
            Command::new("/proc/self/exe")
                .arg(LET_GO)
                .arg(if self.is_last { ALL } else { NOTHING })
                .stdin(root.try_clone()?)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        });
        if self.is_last && !matches!(started, Some(Ok(_))) {
            empty(&root);
        }
    }

    // BPF_OBJ_PIN takes a directory's descriptor only since Linux 6.5; a path to it has always been good.
    fn path(&self, name: &str) -> String {
        let root = self.root.as_ref().map_or(-1, OwnedFd::as_raw_fd);
        format!("/proc/self/fd/{root}/{name}")
    }
}

impl Turn {
    fn next() -> io::Result<Self> {
        Ok(Self {
            since_boot_ns: Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?).as_nanos(),
            process: std::process::id(),
        })
    }
}

impl fmt::Display for Turn {
    // The kernel keeps names with a dot to itself (`bpf_lookup` in kernel/bpf/inode.c).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.since_boot_ns, self.process)
    }
}

impl FromStr for Turn {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (since_boot_ns, process) = text.split_once('-').unwrap_or((text, ""));
        Ok(Self {
            since_boot_ns: since_boot_ns.parse()?,
            process: process.parse()?,
        })
    }
}

/// The name of the hidden command that lets go in the place of another process, with the file system as its standard input;
/// and what it is told to take out.
pub const LET_GO: &str = "__let-go";
const ALL: &str = "all";
const NOTHING: &str = "nothing";

/// What [`LET_GO`] does.
pub fn let_go(arguments: &[OsString]) {
    if arguments.first().is_some_and(|what| what == ALL)
        && let Ok(root) = io::stdin().as_fd().try_clone_to_owned()
    {
        empty(&root);
    }
}

/// Takes out all that is in a file system, so that it goes also where somebody has copied the mount.
fn empty(root: &OwnedFd) {
    let entries: Vec<_> = Dir::read_from(root)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    for entry in entries {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // What cannot be taken out goes with the file system.
        let _ = unlinkat(root, name, AtFlags::empty())
            .or_else(|_| unlinkat(root, name, AtFlags::REMOVEDIR));
    }
}

/// How often a lock that somebody has is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Drop for Held {
    fn drop(&mut self) {
        if self.root.is_none() {
            return; // let go
        }
        let links: Vec<_> = HOOKS
            .iter()
            .filter_map(|hook| self.link(hook.program).ok())
            .collect();
        if let (Some(root), true) = (&self.root, self.is_last) {
            empty(root);
        }
        // Whoever has a link last waits for it: that is not to be the kernel's worker.
        drop(self.root.take());
        drop(links);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_told_by_their_names_and_go_by_time_first() {
        let turn = |since_boot_ns, process| Turn {
            since_boot_ns,
            process,
        };
        for one in [turn(7, 300), turn(u128::from(u64::MAX), 1)] {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert!(turn(7, 300) < turn(8, 2));
        assert!(turn(7, 300) < turn(7, 301));
        for name in ["file_open", "PLACES", "alone", "7-", "-7", "7"] {
            assert!(name.parse::<Turn>().is_err(), "{name}");
        }
    }
}
