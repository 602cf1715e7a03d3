//! Changing what is mounted where, to reach what is denied or to hide what others see.

use std::{fs, io, os::fd::OwnedFd, path::Path};

use nix::{
    fcntl::{OFlag, openat},
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::stat::Mode,
    unistd::{Gid, Uid, chdir, chroot, pivot_root},
};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::{
    super::{
        attempt::{Attempt, Make},
        namespaces::Namespace,
    },
    names::{read, read_all},
};

const fn reads(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::any(name, shows, make)
}

const fn shared(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::event(name, shows, &["mount"], make).of_others(Namespace::Mounts)
}

pub(super) const ALL: &[Attempt] = &[
    reads(
        "mounts.bind",
        "a secret, by a bind mount of its own",
        |site| {
            own_mounts()?;
            bind(&site.path("secret"), &site.open("point"))?;
            read(site.open("point/token"))
        },
    ),
    reads("mounts.bind-file", "by a bind mount of the file", |site| {
        own_mounts()?;
        bind(&site.secret(), &site.open("file"))?;
        read(site.open("file"))
    }),
    reads(
        "mounts.bind-root",
        "by a bind mount of everything",
        |site| {
            own_mounts()?;
            bind(Path::new("/"), &site.open("point"))?;
            read(format!(
                "{}{}",
                site.open("point").display(),
                site.secret().display()
            ))
        },
    ),
    reads(
        "mounts.detached",
        "in a mount that is nowhere (open_tree)",
        |site| {
            let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            read_all(openat(
                detached(&site.path("secret"))?,
                "token",
                flags,
                Mode::empty(),
            )?)
        },
    ),
    reads("mounts.attached", "by open_tree and move_mount", |site| {
        own_mounts()?;
        let tree = detached(&site.path("secret"))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, "", rustix::fs::CWD, site.open("point"), flags)?;
        read(site.open("point/token"))
    }),
    reads(
        "mounts.overlay",
        "by an overlay over its directory",
        |site| {
            own_mounts()?;
            let scratch = site.open("overlay");
            tmpfs(&scratch)?;
            for name in ["upper", "work", "merged"] {
                fs::create_dir(scratch.join(name))?;
            }
            let data = format!(
                "lowerdir={},upperdir={},workdir={}",
                site.path("secret").display(),
                scratch.join("upper").display(),
                scratch.join("work").display()
            );
            let (kind, point) = (Some("overlay"), scratch.join("merged"));
            mount(kind, &point, kind, MsFlags::empty(), Some(data.as_str()))?;
            read(point.join("token"))
        },
    ),
    reads("mounts.pivot", "as the root (pivot_root)", |site| {
        own_mounts()?;
        bind(&site.path("secret"), &site.path("secret"))?;
        chdir(&site.path("secret"))?;
        pivot_root(".", ".")?;
        read("/token")
    }),
    reads("mounts.chroot", "as the root (chroot)", |site| {
        chroot(&site.path("secret"))?;
        read("/token")
    }),
    reads(
        "mounts.user-namespace",
        "as root of a user namespace",
        |site| {
            let (user, group) = (Uid::current(), Gid::current());
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
            bind(&site.path("secret"), &site.open("point"))?;
            read(site.open("point/token"))
        },
    ),
    shared("mounts.shared", "mounting where others see it", |site| {
        tmpfs(&site.open("elsewhere"))?;
        Ok(umount2(&site.open("elsewhere"), MntFlags::MNT_DETACH)?)
    }),
    shared(
        "mounts.shared-bind",
        "a bind mount where others see it",
        |site| {
            bind(&site.open("elsewhere"), &site.protected("point"))?;
            Ok(umount2(&site.protected("point"), MntFlags::MNT_DETACH)?)
        },
    ),
    shared("mounts.propagation", "what spreads to others", |_| {
        let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
    }),
    shared("mounts.unmount", "unmounting what others use", |site| {
        Ok(umount2(&site.open("mounted"), MntFlags::MNT_DETACH)?)
    }),
    Attempt::event(
        "mounts.remove-point",
        "removing what others have mounted on",
        &["mount"],
        |site| fs::remove_dir(site.mounted_elsewhere()?),
    ),
    Attempt::event(
        "mounts.cgroup-v1",
        "a hierarchy of cgroup v1, which is the host's",
        &["mount"],
        |site| {
            own_mounts()?;
            let (kind, data) = (Some("cgroup"), Some("none,name=opensafe-boundary"));
            Ok(mount(
                kind,
                &site.open("point"),
                kind,
                MsFlags::empty(),
                data,
            )?)
        },
    ),
];

/// A mount namespace of the process's own.
pub(in super::super) fn own_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(Some(from), to, None::<&str>, flags, None::<&str>)?)
}

pub(in super::super) fn tmpfs(point: &Path) -> io::Result<()> {
    let kind = Some("tmpfs");
    Ok(mount(kind, point, kind, MsFlags::empty(), None::<&str>)?)
}

fn detached(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(open_tree(rustix::fs::CWD, directory, flags)?)
}
