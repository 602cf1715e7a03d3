//! Opening, creating, naming and removing files.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    event::{Kind, flag},
    verdict::Access,
};

use crate::{
    actor::Actor,
    decide::REFUSED,
    gate::{Answer, By, PathRequest, ask, known_path, not_laxer, path, withdraw},
    kernel::{Dentry, Path, Superblock, argument},
    known::{Known, KnownTask, acts_for_the_kernel},
    maps::{TENTATIVE, constant},
};

// include/linux/fs.h
const FMODE_READ: u32 = 0x1;
const FMODE_WRITE: u32 = 0x2;
const FMODE_CREATED: u32 = 0x10_0000;
const FMODE_NOACCOUNT: u32 = 0x2000_0000;
const FMODE_EXEC_FLAG: u32 = 0x20;
// include/uapi/asm-generic/fcntl.h
const O_CREAT: u32 = 0o100;
const O_TRUNC: u32 = 0o1000;
// include/uapi/linux/stat.h
const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;

/// `file_open(file)`: opening a file for whatever purpose, the kernel's own opens of programs and
/// interpreters included. Not called for `O_PATH`.
#[inline(always)]
pub fn open(actor: &Actor, ctx: &LsmContext) -> i32 {
    let file = Known::argument(ctx, 0);
    let flags: u32 = file.get(constant!(OFFSETS.file_flags));
    let mode: u32 = file.get(constant!(OFFSETS.file_mode));
    // The file below an overlay's, or its work file; the layers of a directory, and what is copied up:
    // the overlay's own open was decided.
    if mode & FMODE_NOACCOUNT != 0 || flags & O_CREAT == 0 && acts_for_the_kernel() {
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
    if flags & FMODE_EXEC_FLAG == 0 {
        if flags & O_CREAT != 0 && mode & FMODE_CREATED == 0 {
            withdraw_tentative(actor, dentry);
        }
        request.access = access_of(flags, mode);
        request.kind = Kind::File;
        request.by = By::Policy;
    }
    known_path(actor, known, &request)
}

/// `path_mknod(dir, dentry, …)`: a name for a new file, device, pipe or socket.
///
/// An open with `O_CREAT` passes here before the kernel knows whether the file exists, and a denial
/// is then void if it does. So a denial of a regular file's creation is reported as tentative, and
/// taken back in [`open`].
#[inline(always)]
pub fn mknod(actor: &Actor, ctx: &LsmContext) -> i32 {
    let dentry = Dentry(argument(ctx, 1));
    let regular = matches!(ctx.arg::<u32>(2) & S_IFMT, 0 | S_IFREG);
    let flags = if regular { flag::TENTATIVE } else { 0 };
    let request = PathRequest {
        dentry,
        access: Access::CREATE,
        kind: Kind::File,
        flags,
        by: By::Policy,
    };
    let answer = ask(actor, &request);
    if answer != Answer::Silent && regular {
        let _ = TENTATIVE.insert(&thread(), &dentry.0, 0);
    }
    if answer == Answer::Refused {
        REFUSED
    } else {
        0
    }
}

/// `path_mkdir(dir, dentry, mode)`, `path_symlink(dir, dentry, old_name)`: a name for something new.
#[inline(always)]
pub fn make(actor: &Actor, ctx: &LsmContext) -> i32 {
    change(actor, Dentry(argument(ctx, 1)), Access::CREATE)
}

/// `path_unlink(dir, dentry)`, `path_rmdir(dir, dentry)`: taking a name away counts as writing.
#[inline(always)]
pub fn remove(actor: &Actor, ctx: &LsmContext) -> i32 {
    change(actor, Dentry(argument(ctx, 1)), Access::WRITE)
}

/// `path_link(old_dentry, new_dir, new_dentry)`: one more name, which must not allow more.
#[inline(always)]
pub fn link(actor: &Actor, ctx: &LsmContext) -> i32 {
    let (old, new) = (Dentry(argument(ctx, 0)), Dentry(argument(ctx, 2)));
    match not_laxer(actor, old, new) {
        0 => change(actor, new, Access::CREATE),
        errno => errno,
    }
}

/// `path_rename(old_dir, old_dentry, new_dir, new_dentry, flags)`: takes one name away and gives one,
/// which must not allow more; an exchange does so both ways (called once for it since Linux 5.19).
#[inline(always)]
pub fn rename(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/uapi/linux/fs.h
    const RENAME_EXCHANGE: u64 = 1 << 1;
    let (old, new) = (Dentry(argument(ctx, 1)), Dentry(argument(ctx, 3)));
    let exchange = argument(ctx, 4) & RENAME_EXCHANGE != 0;
    let replaces = matches!(new.inode(), Some(inode) if inode.0 != 0);
    let at_new = if replaces {
        Access::CREATE.union(Access::WRITE)
    } else {
        Access::CREATE
    };
    let at_old = if exchange {
        Access::CREATE.union(Access::WRITE)
    } else {
        Access::WRITE
    };
    let mut errno = not_laxer(actor, old, new);
    if errno == 0 && exchange {
        errno = not_laxer(actor, new, old);
    }
    if errno == 0 {
        errno = change(actor, old, at_old);
    }
    if errno == 0 {
        errno = change(actor, new, at_new);
    }
    errno
}

/// `sb_kern_mount(superblock)`: a new superblock, by mount(2) or fsmount(2). An overlay would have the
/// kernel open what lies below it in the mounter's name ([`open`] lets that pass), so a sandbox may
/// not make one where anything is denied to it: it has no name in the view, and gets the verdict for
/// that.
#[inline(always)]
pub fn mount(actor: &Actor, ctx: &LsmContext) -> i32 {
    // linux/magic.h
    const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
    let superblock = Superblock(argument(ctx, 0));
    if superblock.magic() != Some(OVERLAYFS_SUPER_MAGIC) {
        return 0;
    }
    change(actor, superblock.root().unwrap_or(Dentry(0)), Access::FILE)
}

/// `path_truncate(path)`: truncate(2); on 6.1 also ftruncate(2).
#[inline(always)]
pub fn truncate(actor: &Actor, ctx: &LsmContext) -> i32 {
    match Path(ctx.arg::<u64>(0)).dentry() {
        Some(dentry) => change(actor, dentry, Access::WRITE),
        None => on_unreadable(actor),
    }
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

#[inline(always)]
fn change(actor: &Actor, dentry: Dentry, access: Access) -> i32 {
    path(
        actor,
        &PathRequest {
            dentry,
            access,
            kind: Kind::File,
            flags: 0,
            by: By::Policy,
        },
    )
}

/// The file's own fields could not be read, so it has no place: the verdict for the nameless.
#[inline(always)]
fn on_unreadable(actor: &Actor) -> i32 {
    path(
        actor,
        &PathRequest {
            dentry: Dentry(0),
            access: Access::FILE,
            kind: Kind::File,
            flags: 0,
            by: By::Policy,
        },
    )
}

#[inline(always)]
fn withdraw_tentative(actor: &Actor, dentry: Dentry) {
    let thread = thread();
    // SAFETY: the value, one aligned u64, is copied out.
    if unsafe { TENTATIVE.get(&thread) }.copied() != Some(dentry.0) {
        return;
    }
    let _ = TENTATIVE.remove(&thread);
    withdraw(actor);
}

#[inline(always)]
fn thread() -> u32 {
    aya_ebpf::helpers::bpf_get_current_pid_tgid() as u32
}
