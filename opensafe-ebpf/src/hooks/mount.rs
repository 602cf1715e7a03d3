//! Mounts: those that processes outside see, and file systems of a sandbox's own.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    operation::{How, Operation},
    tables::SuperblockKey,
    verdict::Access,
};

use super::own::shares_mounts;
use crate::{
    actor::Actor,
    decide::{self, By},
    gate::{change, operation, plain_operation},
    kernel::{Dentry, FileSystemContext, FileSystemType, Mount, Path, Superblock, argument, read},
    maps::OWN_TMPFS,
    path,
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
    if flags & SPREADING != 0 && flags & BEFORE == 0 && !shares_mounts(actor) {
        return 0;
    }
    at_mount(actor, How::Mount, place.mount(), place.dentry())
}

/// `move_mount(from, to)`: move_mount(2), also of what `open_tree` and `fsmount` made.
#[inline(always)]
pub fn move_mount(actor: &Actor, ctx: &LsmContext) -> i32 {
    let to = Path(argument(ctx, 1));
    at_mount(actor, How::MoveMount, to.mount(), to.dentry())
}

/// `sb_umount(mount, flags)`.
#[inline(always)]
pub fn unmount(actor: &Actor, ctx: &LsmContext) -> i32 {
    let mount = Mount(argument(ctx, 0));
    // What goes here goes wherever the mount around it has peers.
    at_mount(actor, How::Unmount, mount.around(), mount.root())
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
    let superblock = Superblock(argument(ctx, 0));
    match superblock.magic() {
        Some(OVERLAYFS_SUPER_MAGIC) => overlay(actor, superblock.root().unwrap_or(Dentry(0))),
        Some(SuperblockKey::TMPFS_MAGIC) => {
            note_own_tmpfs(actor, superblock);
            0
        }
        _ => 0,
    }
}

/// `fs_context_parse_param(context, parameter)`: a parameter of a file system that is to be mounted, before the file
/// system has seen it. 0 leaves it to whoever comes after us.
#[inline(always)]
pub fn mount_parameter(actor: &Actor, ctx: &LsmContext) -> i32 {
    let kind = FileSystemContext(argument(ctx, 0)).kind();
    match kind.and_then(FileSystemType::name) {
        Some(name) if is_overlay(name) => named_overlay(actor),
        _ => 0,
    }
}

/// Freezing or shutting down a file system, which everyone on it waits for.
#[inline(always)]
pub fn stops_file_system(actor: &Actor, command: u32) -> i32 {
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
        let _ = OWN_TMPFS.insert(&superblock.0, &actor.sandbox, 0);
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

/// Whether a file system's name, at this address, is that of overlays.
#[inline(always)]
fn is_overlay(name: u64) -> bool {
    read::<[u8; 8]>(name) == Some(*b"overlay\0")
}

/// Mounting or unmounting at a place: refused where processes outside would see it, because the namespace is
/// theirs too or what is mounted spreads to them.
#[inline(always)]
fn at_mount(actor: &Actor, how: How, mount: Option<Mount>, dentry: Option<Dentry>) -> i32 {
    // include/linux/mount.h
    const MNT_SHARED: u32 = 0x1000;
    let spreads = match mount.and_then(Mount::flags) {
        Some(flags) => flags & MNT_SHARED != 0,
        None => true,
    };
    if !spreads && !shares_mounts(actor) {
        return 0;
    }
    let place = dentry.unwrap_or(Dentry(0));
    operation(actor, Operation::Mount, how, 0, 0, place.0)
}
