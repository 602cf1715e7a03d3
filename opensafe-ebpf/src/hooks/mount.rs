//! Mounts: those that processes outside see, and file systems of a sandbox's own.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    counter::Counter,
    event::flag,
    operation::{How, Operation},
    room::Room,
    tables::SuperblockKey,
    verdict::Access,
};

use super::{capability::is_inner, own::shares_mounts, spread::any_spreads};
use crate::{
    actor::Actor,
    decide::{self, By},
    gate::{change, operation, plain_operation, refuse},
    kernel::{
        Credentials, Dentry, FileSystemContext, FileSystemType, Mount, Path, Superblock, Task,
        argument, read,
    },
    maps::{BPF_NOEXIST, EEXIST, OWN_TMPFS, constant, count},
    path, room,
};

/// `sb_mount(device, path, type, flags, data)`: mount(2), also for binds, moves and remounts.
#[inline(always)]
pub fn mount(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/uapi/linux/mount.h: MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE, MS_SHARED. They say how mounts spread
    // from here on, and are how a namespace is cut off from the one that it was copied from.
    const SPREADING: u64 = 1 << 17 | 1 << 18 | 1 << 19 | 1 << 20;
    // MS_REMOUNT, MS_BIND: looked at before the others (`path_mount` of fs/namespace.c).
    const BEFORE: u64 = 1 << 5 | 1 << 12;
    let place = Path(argument(ctx, 1));
    let flags = argument(ctx, 3);
    if flags & BEFORE == 0 && is_overlay(argument(ctx, 2)) {
        let errno = named_overlay(actor);
        if errno != 0 {
            return errno;
        }
    }
    if flags & BEFORE == 0 && is_the_hosts_own(argument(ctx, 2)) {
        return operation(actor, Operation::Mount, How::Remount, 0, 0, 0);
    }
    if flags & SPREADING != 0 && flags & BEFORE == 0 && !shares_mounts(actor) {
        return 0;
    }
    at_mount(actor, How::Mount, place.mount(), place.dentry())
}

/// `move_mount(from, to)`: move_mount(2), also of what `open_tree` and `fsmount` made.
#[inline(always)]
pub fn move_mount(actor: &Actor, ctx: &LsmContext) -> i32 {
    let to = Path(argument(ctx, 1));
    let (mut mount, place) = (to.mount(), to.dentry());
    // At a mount's own root, it may be put beneath that mount (MOVE_MOUNT_BENEATH, Linux >= 6.5), which the hook is not
    // told. If either has peers, it spreads.
    if let (Some(on), Some(place)) = (mount, place)
        && !on.is_shared()
        && on.root() == Some(place)
    {
        mount = on.around();
    }
    at_mount(actor, How::MoveMount, mount, place)
}

/// `sb_umount(mount, flags)`.
#[inline(always)]
pub fn unmount(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/linux/fs.h
    const MNT_DETACH: u64 = 2;
    let mount = Mount(argument(ctx, 0));
    if let Some(root) = mount.root()
        && decide::is_pins(root.superblock())
    {
        return refuse(actor, root, Access::DELETE, flag::RECORD);
    }
    // What goes here goes wherever the mount around it has peers.
    let mut around = mount.around();
    if argument(ctx, 1) & MNT_DETACH != 0 && any_spreads(mount) {
        around = None;
    }
    at_mount(actor, How::Unmount, around, mount.root())
}

/// A name that is taken away while, in whatever namespace, something is mounted on it: it would be unmounted there
/// (`detach_mounts` in fs/namespace.c). Where it is mounted on in the task's own namespace the kernel would refuse it, but it
/// cannot be told from here that it is so in no other.
#[inline(always)]
pub fn unmounts_elsewhere(actor: &Actor, dentry: Dentry) -> i32 {
    let flags = dentry.flags().unwrap_or(u32::MAX);
    match flags & constant!(HOST.dentry_is_mounted_on) {
        0 => 0,
        _ => operation(actor, Operation::Mount, How::Unmount, 0, 0, dentry.0),
    }
}

/// `sb_remount(superblock, options)`: other options for a superblock, by mount(2) or fsconfig(2), hold for
/// everyone who uses it. Not asked about one of the sandbox's own, which the policy's tables do not know.
#[inline(always)]
pub fn remount(actor: &Actor, ctx: &LsmContext) -> i32 {
    let root = Superblock(argument(ctx, 0)).root().unwrap_or(Dentry(0));
    if !shares_mounts(actor) && !path::knows(actor.policy_index, root) {
        return 0;
    }
    operation(actor, Operation::Mount, How::Remount, 0, 0, root.0)
}

/// `sb_pivotroot(old, new)`.
#[inline(always)]
pub fn pivot_root(actor: &Actor, ctx: &LsmContext) -> i32 {
    let place = Path(argument(ctx, 1));
    at_mount(actor, How::PivotRoot, place.mount(), place.dentry())
}

/// `sb_kern_mount(superblock)`: a new superblock, by mount(2) or fsmount(2).
#[inline(always)]
pub fn new_superblock(actor: &Actor, ctx: &LsmContext) -> i32 {
    // linux/magic.h
    const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
    const BINFMTFS_MAGIC: u64 = 0x4249_4e4d;
    const CGROUP_SUPER_MAGIC: u64 = 0x0027_e0eb;
    let superblock = Superblock(argument(ctx, 0));
    match superblock.magic() {
        Some(OVERLAYFS_SUPER_MAGIC) => overlay(actor, superblock.root().unwrap_or(Dentry(0))),
        Some(SuperblockKey::TMPFS_MAGIC) => {
            note_own_tmpfs(actor, superblock);
            0
        }
        // A hierarchy of cgroup's first version is the host's, whoever mounts it.
        Some(CGROUP_SUPER_MAGIC) => mounts(actor, superblock),
        // Programs of the sandbox's choice would be handed files that it may run and not read, open (the `O` and `C` of
        // Documentation/admin-guide/binfmt-misc.rst; one of a user namespace's own since Linux 6.7).
        Some(BINFMTFS_MAGIC) => mounts(actor, superblock),
        _ => 0,
    }
}

#[inline(always)]
fn mounts(actor: &Actor, superblock: Superblock) -> i32 {
    let root = superblock.root().unwrap_or(Dentry(0));
    operation(actor, Operation::Mount, How::Mount, 0, 0, root.0)
}

/// `fs_context_parse_param(context, parameter)`: a parameter of a file system that is to be mounted, before the file
/// system has seen it. 0 leaves it to whoever comes after us.
#[inline(always)]
pub fn mount_parameter(actor: &Actor, ctx: &LsmContext) -> i32 {
    let kind = FileSystemContext(argument(ctx, 0)).kind();
    match kind.and_then(FileSystemType::name) {
        Some(name) if is_overlay(name) => named_overlay(actor),
        Some(name) if !is_source(argument(ctx, 1)) && is_the_hosts_own(name) => {
            operation(actor, Operation::Mount, How::Remount, 0, 0, 0)
        }
        _ => 0,
    }
}

/// What is done to a whole file system by a command to one of its files: everyone on it has it.
#[inline(always)]
pub fn command_to_file_system(actor: &Actor, command: u32) -> i32 {
    plain_operation(actor, Operation::Mount, How::FileSystemIoctl, command)
}

/// A tmpfs is new each time, and nothing is in it but what the sandbox puts there. It counts as lying where temporary files
/// do (the tables' `OwnTmpfs`) until the agent has met it and found it a name. A devtmpfs, which shows the host's devices,
/// is none.
#[inline(always)]
fn note_own_tmpfs(actor: &Actor, superblock: Superblock) {
    let name = superblock.kind().and_then(FileSystemType::name);
    if name.and_then(read::<[u8; 6]>) == Some(*b"tmpfs\0") {
        // Without the note it is nameless.
        if !room::take(actor.sandbox, Room::Tmpfs) {
            count(actor.sandbox, Counter::NoRoom);
        } else if let Err(failed) = OWN_TMPFS.insert(&superblock.0, &actor.sandbox, BPF_NOEXIST) {
            room::give_back(actor.sandbox, Room::Tmpfs);
            if failed != -EEXIST {
                count(actor.sandbox, Counter::NoRoom);
            }
        }
    }
}

/// An overlay would have the kernel open what lies below it in the mounter's name ([`super::file::open`] lets that pass),
/// so a sandbox may not make one where anything is denied to it: it has no name in the view, and gets the verdict for
/// that.
#[inline(always)]
fn overlay(actor: &Actor, root: Dentry) -> i32 {
    change(actor, root, Access::FILE)
}

/// An overlay that is only named yet. When its superblock is complete, the kernel has made its work directory already,
/// and emptied it; so what will be refused is refused here. What goes ahead is on record when it is complete.
#[inline(always)]
fn named_overlay(actor: &Actor) -> i32 {
    if !decide::at_path(actor, Dentry(0), Access::FILE, By::Policy).refuses(actor) {
        return 0;
    }
    overlay(actor, Dentry(0))
}

/// Whether a file system, by its name at this address, has one superblock for the host: each mount gives it other options.
/// It is no hook's but this one's, as the file system takes them by itself (`debugfs_get_tree`, `cgroup_get_tree`). In a user
/// namespace it cannot be mounted, or keeps its options.
#[inline(always)]
fn is_the_hosts_own(name: u64) -> bool {
    const WHOLE: [u64; 5] = [
        u64::from_le_bytes(*b"resctrl\0"),
        u64::from_le_bytes(*b"debugfs\0"),
        u64::from_le_bytes(*b"tracefs\0"),
        u64::from_le_bytes(*b"cgroup2\0"),
        u64::from_le_bytes(*b"efivarfs"),
    ];
    // Of cgroup's first version: its hierarchies take controllers from the second.
    const SHORTER: [u64; 3] = [
        u64::from_le_bytes(*b"pstore\0\0"),
        u64::from_le_bytes(*b"cgroup\0\0"),
        u64::from_le_bytes(*b"cpuset\0\0"),
    ];
    const LOWER_SEVEN: u64 = u64::MAX >> 8;
    let name = read::<u64>(name).unwrap_or(0);
    if !WHOLE.contains(&name) && !SHORTER.contains(&(name & LOWER_SEVEN)) {
        return false;
    }
    let credentials = Task::current().credentials().map(Credentials);
    !credentials
        .and_then(Credentials::namespace)
        .is_some_and(is_inner)
}

/// Whether a mount's parameter is what is mounted, which these file systems have none of (`struct fs_parameter`, whose first
/// member is the key).
#[inline(always)]
fn is_source(parameter: u64) -> bool {
    let key = read::<u64>(parameter);
    key.and_then(read::<[u8; 7]>) == Some(*b"source\0")
}

/// Whether a file system's name, at this address, is that of overlays.
#[inline(always)]
fn is_overlay(name: u64) -> bool {
    read::<[u8; 8]>(name) == Some(*b"overlay\0")
}

/// Mounting or unmounting at a place on a mount: refused where processes outside would see it, because the namespace is
/// theirs too or what is mounted spreads to them; also where that is not known.
#[inline(always)]
fn at_mount(actor: &Actor, how: How, mount: Option<Mount>, dentry: Option<Dentry>) -> i32 {
    if !mount.is_none_or(Mount::is_shared) && !shares_mounts(actor) {
        return 0;
    }
    let place = dentry.unwrap_or(Dentry(0));
    operation(actor, Operation::Mount, how, 0, 0, place.0)
}
