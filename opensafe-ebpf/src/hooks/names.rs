//! Names given and taken away: creating, linking, renaming, removing.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{event::flag, verdict::Access};

use crate::{
    actor::Actor,
    decide::{REFUSED, leads_to_record},
    gate::{Answer, PathRequest, ask, change, not_laxer, refuse},
    hooks::{guard, mount},
    kernel::{Dentry, Inode, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, argument},
    known::thread,
    maps::TENTATIVE,
    path,
};

/// `path_mknod(dir, dentry, …)`: a name for a new file, device, pipe or socket.
///
/// An open with `O_CREAT` passes here before the kernel knows whether the file exists, and a denial
/// is then void if it does. So a denial of a regular file's creation is reported as tentative, and
/// taken back in [`super::file::open`].
#[inline(always)]
pub fn mknod(actor: &Actor, ctx: &LsmContext) -> i32 {
    let dentry = Dentry(argument(ctx, 1));
    let (mode, device) = (ctx.arg::<u32>(2) as u16, ctx.arg::<u32>(3));
    let errno = guard::make_device(actor, dentry, mode, device);
    if errno != 0 {
        return errno;
    }
    let regular = matches!(mode & S_IFMT, 0 | S_IFREG);
    let flags = if regular { flag::TENTATIVE } else { 0 };
    let request = PathRequest {
        flags,
        ..PathRequest::change(dentry, Access::CREATE)
    };
    let answer = ask(actor, &request);
    if answer != Answer::Silent && regular {
        let _ = TENTATIVE.insert(&thread(), &dentry.identity(), 0);
    }
    if answer == Answer::Refused {
        REFUSED
    } else {
        0
    }
}

/// `path_mkdir(dir, dentry, mode)`: a name for a new directory, in a cgroup file system a new cgroup.
#[inline(always)]
pub fn make_directory(actor: &Actor, ctx: &LsmContext) -> i32 {
    let dentry = Dentry(argument(ctx, 1));
    match guard::cgroup_of_others(actor, dentry) {
        0 => change(actor, dentry, Access::CREATE),
        errno => errno,
    }
}

/// `path_symlink(dir, dentry, old_name)`: a name for a new symbolic link. Where rules protect what lies
/// below the name, a link would lead whoever looks there elsewhere.
#[inline(always)]
pub fn make_link(actor: &Actor, ctx: &LsmContext) -> i32 {
    let dentry = Dentry(argument(ctx, 1));
    match change(actor, dentry, Access::CREATE) {
        0 if is_special(actor, dentry) => refuse(actor, dentry, Access::CREATE, flag::BELOW),
        errno => errno,
    }
}

/// `path_unlink(dir, dentry)`: a file's name is taken away.
#[inline(always)]
pub fn remove(actor: &Actor, ctx: &LsmContext) -> i32 {
    taken_away(actor, Dentry(argument(ctx, 1)))
}

#[inline(always)]
fn taken_away(actor: &Actor, dentry: Dentry) -> i32 {
    match mount::unmounts_elsewhere(actor, dentry) {
        0 => change(actor, dentry, Access::DELETE),
        errno => errno,
    }
}

/// `path_rmdir(dir, dentry)`: an empty directory is taken away, in a cgroup file system a cgroup.
#[inline(always)]
pub fn remove_directory(actor: &Actor, ctx: &LsmContext) -> i32 {
    let dentry = Dentry(argument(ctx, 1));
    match guard::cgroup_of_others(actor, dentry) {
        0 => taken_away(actor, dentry),
        errno => errno,
    }
}

/// `path_link(old_dentry, new_dir, new_dentry)`: one more name, which must not allow more.
#[inline(always)]
pub fn link(actor: &Actor, ctx: &LsmContext) -> i32 {
    let (old, new) = (Dentry(argument(ctx, 0)), Dentry(argument(ctx, 2)));
    let mut errno = not_laxer(actor, old, new);
    if errno == 0 {
        errno = change(actor, old, Access::LINK);
    }
    if errno == 0 {
        errno = change(actor, new, Access::CREATE);
    }
    if errno == 0 && mode_of(old) & S_IFMT == S_IFLNK && is_special(actor, new) {
        errno = refuse(actor, new, Access::CREATE, flag::BELOW);
    }
    errno
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
    let at_new = match (exchange, replaces) {
        (true, _) => Access::CREATE.union(Access::RENAME),
        (false, true) => Access::CREATE.union(Access::DELETE),
        (false, false) => Access::CREATE,
    };
    let at_old = if exchange {
        Access::CREATE.union(Access::RENAME)
    } else {
        Access::RENAME
    };
    let mut errno = mount::unmounts_elsewhere(actor, old);
    if errno == 0 {
        errno = mount::unmounts_elsewhere(actor, new);
    }
    if errno == 0 {
        errno = not_laxer(actor, old, new);
    }
    if errno == 0 && exchange {
        errno = not_laxer(actor, new, old);
    }
    if errno == 0 {
        errno = change(actor, old, at_old);
    }
    if errno == 0 {
        errno = change(actor, new, at_new);
    }
    if errno == 0 {
        errno = stays_below(actor, old, new);
    }
    if errno == 0 && exchange {
        errno = stays_below(actor, new, old);
    }
    if errno == 0 {
        errno = keeps_records(actor, old);
    }
    if errno == 0 && exchange {
        errno = keeps_records(actor, new);
    }
    errno
}

/// Refuses to take its name from a directory with the record of a run that goes on below it: whoever looked for that record
/// would be shown another.
#[inline(always)]
fn keeps_records(actor: &Actor, dentry: Dentry) -> i32 {
    if mode_of(dentry) & S_IFMT != S_IFDIR || leads_to_record(dentry.0) == 0 {
        return 0;
    }
    refuse(actor, dentry, Access::RENAME, flag::RECORD)
}

/// Refuses to give the directory at `old` the name `new` if for anything below it other rules would hold
/// there; and a symbolic link, the name of a place with protected ones below.
#[inline(always)]
fn stays_below(actor: &Actor, old: Dentry, new: Dentry) -> i32 {
    match mode_of(old) & S_IFMT {
        S_IFLNK if is_special(actor, new) => refuse(actor, new, Access::RENAME, flag::BELOW),
        S_IFDIR if !same_below(actor, old, new) => {
            let what = if is_special(actor, old) { old } else { new };
            refuse(actor, what, Access::RENAME, flag::BELOW)
        }
        _ => 0,
    }
}

/// As [`path::is_special`]; if it could not be found out, so if anything is denied to the sandbox anywhere.
#[inline(always)]
fn is_special(actor: &Actor, dentry: Dentry) -> bool {
    path::is_special(actor.policy_index, dentry).unwrap_or(denies_anything(actor))
}

/// As [`path::same_below`]; if it could not be found out, only if nothing is denied to the sandbox anywhere.
#[inline(always)]
fn same_below(actor: &Actor, old: Dentry, new: Dentry) -> bool {
    path::same_below(actor.policy_index, old, new).unwrap_or(!denies_anything(actor))
}

#[inline(always)]
fn denies_anything(actor: &Actor) -> bool {
    actor.policy.nameless.deny != 0
}

/// The file's mode, or a directory's if it cannot be read: about those is asked most.
#[inline(always)]
fn mode_of(dentry: Dentry) -> u16 {
    dentry.inode().and_then(Inode::mode).unwrap_or(S_IFDIR)
}
