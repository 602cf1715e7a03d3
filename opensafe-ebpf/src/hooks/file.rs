//! Files: opening and receiving them, changing them, asking devices.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    event::{Kind, flag},
    verdict::Access,
};

use crate::{
    actor::Actor,
    gate::{By, PathRequest, change, known_path, path, withdraw},
    hooks::{capability, guard, mount, net, terminal},
    kernel::{
        DEVPTS, Dentry, File, Inode, Path, S_IFBLK, S_IFCHR, S_IFMT, S_IFSOCK, Sock, Socket,
        acts_for_the_kernel, argument,
    },
    known::{self, Known, KnownTask, thread},
    maps::{TENTATIVE, constant},
};

// include/linux/fs.h
const FMODE_READ: u32 = 0x1;
const FMODE_WRITE: u32 = 0x2;
const FMODE_CREATED: u32 = 0x10_0000;
const FMODE_NOACCOUNT: u32 = 0x2000_0000;
const FMODE_EXEC_FLAG: u32 = 0x20;
// include/uapi/asm-generic/fcntl.h
pub(super) const O_CREAT: u32 = 0o100;
pub(super) const O_TRUNC: u32 = 0o1000;

/// `file_open(file)`: opening a file for whatever purpose, the kernel's own opens of programs and
/// interpreters included. Not called for `O_PATH`.
#[inline(always)]
pub fn open(actor: &Actor, ctx: &LsmContext) -> i32 {
    let file = Known::argument(ctx, 0);
    let flags: u32 = file.get(constant!(OFFSETS.file_flags));
    let mode: u32 = file.get(constant!(OFFSETS.file_mode));
    // The file below an overlay's, or its work file; the layers of a directory, and what is copied up:
    // the overlay's own open was decided.
    if mode & FMODE_NOACCOUNT != 0 || flags & O_CREAT == 0 && known::acts_for_the_kernel() {
        return 0;
    }
    let known = file.follow(constant!(OFFSETS.file_path_dentry));
    let dentry = Dentry(KnownTask::current().number_of(known));
    // One request and one way on, which the verifier follows once.
    let mut request = PathRequest {
        dentry,
        access: Access::EXEC,
        kind: Kind::ExecGate,
        flags: 0,
        by: By::Rules,
    };
    if flags & FMODE_EXEC_FLAG == 0 || takes_any_flag(known) {
        if flags & O_CREAT != 0 && mode & FMODE_CREATED == 0 {
            withdraw_tentative(actor, dentry);
        }
        request.access = access_of(flags, mode);
        request.kind = Kind::File;
        request.by = By::Policy;
    }
    let errno = guard::open(actor, known, &request);
    if errno != 0 {
        return errno;
    }
    known_path(actor, known, &request)
}

/// Whether a file is of those that are opened with whatever flags a process gives (`mq_open` in ipc/mqueue.c,
/// `ptm_open_peer` in drivers/tty/pty.c), the kernel's own for opening programs among them. No programs are run there.
#[inline(always)]
fn takes_any_flag(dentry: Known) -> bool {
    // ipc/mqueue.c
    const MQUEUE: u64 = 0x1980_0202;
    let magic: u64 = dentry
        .follow(constant!(OFFSETS.dentry_sb))
        .get(constant!(OFFSETS.sb_magic));
    matches!(magic, DEVPTS | MQUEUE)
}

/// `file_receive(file)`: a descriptor that comes with a message (`SCM_RIGHTS`) or out of another process
/// (`pidfd_getfd`). Decided as if it were opened here; a socket, as if it were connected here.
#[inline(always)]
pub fn receive(actor: &Actor, ctx: &LsmContext) -> i32 {
    let file = File(argument(ctx, 0));
    let mode = file.dentry().map_or(0, Dentry::mode);
    if mode & S_IFMT == S_IFSOCK
        && let Some(socket) = file.private()
    {
        return net::receive(actor, Socket(socket));
    }
    // include/linux/fs.h: what O_PATH gives can do nothing but name a file.
    const FMODE_PATH: u32 = 0x4000;
    let (Some(dentry), Some(mode), Some(flags)) = (file.dentry(), file.mode(), file.flags()) else {
        return on_unreadable(actor);
    };
    if mode & FMODE_PATH != 0 {
        return 0;
    }
    // It was opened, and cut if it was to be, by someone else.
    let access = access_of(flags & !O_TRUNC, mode & !FMODE_CREATED);
    let errno = guard::receive(actor, file, dentry, access);
    if errno != 0 {
        return errno;
    }
    path(
        actor,
        &PathRequest {
            flags: flag::RECEIVED,
            ..PathRequest::change(dentry, access)
        },
    )
}

/// `path_notify(path, mask, type)`: watching by inotify or fanotify tells what is in a directory. Who is asked for
/// permission holds up, or refuses, what everyone does there.
#[inline(always)]
pub fn watch(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/linux/fsnotify_backend.h: FS_OPEN_PERM, FS_ACCESS_PERM, FS_OPEN_EXEC_PERM, FS_PRE_ACCESS
    const ASKS: u64 = 0x1_0000 | 0x2_0000 | 0x4_0000 | 0x10_0000;
    let mask = argument(ctx, 1);
    if mask & ASKS != 0 {
        let errno = guard::decides_for_others(actor, mask as u32);
        if errno != 0 {
            return errno;
        }
    }
    at_path(actor, ctx, Access::READ)
}

/// `path_chmod(path, mode)`, `path_chown(path, user, group)`.
#[inline(always)]
pub fn attributes(actor: &Actor, ctx: &LsmContext) -> i32 {
    at_path(actor, ctx, Access::ATTRIBUTES)
}

/// `inode_setattr(dentry, attributes)`, from Linux 6.3 on with another argument before them, and before the function that
/// calls it earlier. Only what no
/// other hook sees: times that are set (utimensat(2)).
#[inline(always)]
pub fn times(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/linux/fs.h: ATTR_ATIME_SET, ATTR_MTIME_SET, ATTR_TOUCH; and ATTR_SIZE, which sets times too.
    const SETS_TIMES: u32 = 1 << 7 | 1 << 8 | 1 << 17;
    const SIZE: u32 = 1 << 3;
    let first = constant!(HOST.setattr_dentry) as usize;
    let valid = argument(ctx, first + 1) + u64::from(constant!(OFFSETS.iattr_ia_valid));
    let valid = crate::kernel::read::<u32>(valid).unwrap_or(SETS_TIMES);
    if valid & SETS_TIMES == 0 || valid & SIZE != 0 {
        return 0;
    }
    attributes_of(actor, Dentry(argument(ctx, first)))
}

/// `inode_setxattr`, `inode_removexattr`, `inode_set_acl`, `inode_remove_acl`: the second argument is the
/// dentry.
#[inline(always)]
pub fn extended_attributes(actor: &Actor, ctx: &LsmContext) -> i32 {
    attributes_of(actor, Dentry(argument(ctx, 1)))
}

/// `inode_file_setattr(dentry, attributes)`: file_setattr(2).
#[inline(always)]
pub fn flags(actor: &Actor, ctx: &LsmContext) -> i32 {
    attributes_of(actor, Dentry(argument(ctx, 0)))
}

#[inline(always)]
fn attributes_of(actor: &Actor, dentry: Dentry) -> i32 {
    if acts_for_the_kernel() || is_private(dentry) {
        return 0;
    }
    change(actor, dentry, Access::ATTRIBUTES)
}

/// `file_ioctl(file, command, argument)`: typing into a terminal is guarded; of commands to other devices
/// rules decide. Terminals are asked all the time, and were opened or given.
#[inline(always)]
pub fn ioctl(actor: &Actor, ctx: &LsmContext) -> i32 {
    let file = File(argument(ctx, 0));
    let Some(dentry) = file.dentry() else {
        return 0; // its opening was decided
    };
    let kind = dentry.mode() & S_IFMT;
    if kind == S_IFCHR {
        let command = ctx.arg::<u32>(1);
        let mut errno = terminal::ioctl(actor, file, command, argument(ctx, 2));
        // include/uapi/linux/if_tun.h: it makes a device in the network in which the file was opened, of which there is a
        // socket at the beginning (`struct tun_file` of drivers/net/tun.c).
        const TUNSETIFF: u32 = 0x4004_54ca;
        if errno == 0 && command == TUNSETIFF {
            errno = capability::from_own_network(actor, Sock(file.private().unwrap_or(0)));
        }
        if errno != 0 || is_terminal(dentry) {
            return errno;
        }
    } else if kind == S_IFSOCK {
        return socket_ioctl(actor, file, ctx.arg::<u32>(1));
    } else if kind != S_IFBLK {
        return file_ioctl(actor, dentry, ctx.arg::<u32>(1));
    }
    path(
        actor,
        &PathRequest {
            by: By::Rules,
            ..PathRequest::change(dentry, Access::IOCTL)
        },
    )
}

/// Commands about the network, by one of its sockets (include/uapi/linux/sockios.h, wireless.h).
#[inline(always)]
fn socket_ioctl(actor: &Actor, file: File, command: u32) -> i32 {
    // Whose signals it sends, and what a device is called, has and does: nothing is changed there.
    const SMALL: core::ops::RangeInclusive<u32> = 0x8901..=0x8907;
    let asks = matches!(
        command,
        0x8910
            | 0x8912
            | 0x8913
            | 0x8915
            | 0x8917
            | 0x8919
            | 0x891b
            | 0x891d
            | 0x8921
            | 0x8927
            | 0x8933
    );
    if asks || SMALL.contains(&command) || !matches!(command >> 8, 0x89 | 0x8b) {
        return 0;
    }
    // A socket's file has the `struct socket`.
    let sock = file.private().map(Socket).and_then(Socket::sock);
    capability::from_own_network(actor, sock.unwrap_or(Sock(0)))
}

/// Commands to file systems that change what no other hook sees.
#[inline(always)]
fn file_ioctl(actor: &Actor, dentry: Dentry, command: u32) -> i32 {
    // include/uapi/linux/fs.h; the second is the first's 32-bit form.
    const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
    const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
    const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
    // include/uapi/linux/fsverity.h
    const FS_IOC_ENABLE_VERITY: u32 = 0x4080_6685;
    // include/uapi/linux/btrfs.h
    const BTRFS_IOC_SNAP_CREATE: u32 = 0x5000_9401;
    const BTRFS_IOC_SNAP_CREATE_V2: u32 = 0x5000_9417;
    // include/uapi/linux/fs.h; and what ext4, f2fs and xfs call EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN.
    const FIFREEZE: u32 = 0xc004_5877;
    const FITHAW: u32 = 0xc004_5878;
    const SHUTDOWN: u32 = 0x8004_587d;
    const FITRIM: u32 = 0xc018_5879;
    const FS_IOC_SETFSLABEL: u32 = 0x4100_9432;
    // include/uapi/linux/ext4.h
    const EXT4_IOC_GROUP_EXTEND: u32 = 0x4008_6607;
    const EXT4_IOC_GROUP_ADD: u32 = 0x4028_6608;
    const EXT4_IOC_RESIZE_FS: u32 = 0x4008_6610;
    const EXT4_IOC_SWAP_BOOT: u32 = 0x6611;
    const EXT4_IOC_CHECKPOINT: u32 = 0x4004_662b;
    const EXT4_IOC_SETFSUUID: u32 = 0x4008_662c;
    const EXT4_IOC_SET_TUNE_SB_PARAM: u32 = 0x40e8_662e;
    match command {
        FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS | FS_IOC_FSSETXATTR | FS_IOC_ENABLE_VERITY => {
            change(actor, dentry, Access::ATTRIBUTES)
        }
        // Every file of a subvolume gets one more name, which no rule was asked about.
        BTRFS_IOC_SNAP_CREATE | BTRFS_IOC_SNAP_CREATE_V2 => on_unreadable(actor),
        FIFREEZE
        | FITHAW
        | SHUTDOWN
        | FITRIM
        | FS_IOC_SETFSLABEL
        | EXT4_IOC_GROUP_EXTEND
        | EXT4_IOC_GROUP_ADD
        | EXT4_IOC_RESIZE_FS
        | EXT4_IOC_SWAP_BOOT
        | EXT4_IOC_CHECKPOINT
        | EXT4_IOC_SETFSUUID
        | EXT4_IOC_SET_TUNE_SB_PARAM => mount::command_to_file_system(actor, command),
        _ => 0,
    }
}

/// `path_truncate(path)`: truncate(2); on 6.1 also ftruncate(2).
#[inline(always)]
pub fn truncate(actor: &Actor, ctx: &LsmContext) -> i32 {
    at_path(actor, ctx, Access::WRITE)
}

#[inline(always)]
fn at_path(actor: &Actor, ctx: &LsmContext, access: Access) -> i32 {
    // A layer below an overlay's file, which was decided.
    if acts_for_the_kernel() {
        return 0;
    }
    match Path(argument(ctx, 0)).dentry() {
        Some(dentry) if is_private(dentry) => 0,
        Some(dentry) => change(actor, dentry, access),
        None => on_unreadable(actor),
    }
}

/// Whether nobody is asked about a file by the hooks' callers. Where these programs run before those, they see it all the
/// same; in a directory of that kind nobody has a name for anything, so the hooks of names need not ask.
#[inline(always)]
fn is_private(dentry: Dentry) -> bool {
    constant!(HOST.before_functions) != 0 && dentry.inode().is_some_and(Inode::is_private)
}

/// Whether a character device is a terminal, by its major number (Documentation/admin-guide/devices.txt).
#[inline(always)]
fn is_terminal(dentry: Dentry) -> bool {
    let device = dentry.inode().and_then(Inode::device).unwrap_or(0);
    matches!(device >> 20, 4 | 5 | 136..=143)
}

#[inline(always)]
fn access_of(flags: u32, mode: u32) -> Access {
    let mut access = Access::NONE;
    if mode & FMODE_READ != 0 {
        access = access.union(Access::READ);
    }
    if mode & FMODE_WRITE != 0 || flags & O_TRUNC != 0 {
        access = access.union(Access::WRITE);
    }
    if mode & FMODE_CREATED != 0 {
        access = access.union(Access::CREATE);
    }
    // Access mode 3 asks for neither and allows ioctl(2).
    if access.is_empty() {
        Access::READ
    } else {
        access
    }
}

/// The file's own fields could not be read, so it has no place: the verdict for the nameless.
#[inline(always)]
fn on_unreadable(actor: &Actor) -> i32 {
    change(actor, Dentry(0), Access::FILE)
}

#[inline(always)]
fn withdraw_tentative(actor: &Actor, dentry: Dentry) {
    let thread = thread();
    // SAFETY: the value, one aligned u64, is copied out.
    let said = unsafe { TENTATIVE.get(&thread) }.copied();
    // The dentry of a name that did not come to be may have become another's.
    if said.is_none() || said != Some(dentry.identity()) {
        return;
    }
    let _ = TENTATIVE.remove(&thread);
    withdraw(actor);
}
