//! From where a file is to the names it has in the sandbox's view.

use opensafe_common::tables::SuperblockKey;

use crate::{
    event::Place,
    tables::{OWN_TMPFS, pseudo_type},
    view::{Dev, Mount, View},
};

/// Every name of a place in a view: one for each mount that shows it, the likeliest first (the mount
/// that shows least besides it). Empty for what has no name there.
#[must_use]
pub(super) fn names(view: &View, place: &Place) -> Vec<Vec<u8>> {
    if place.partial {
        return Vec::new();
    }
    let pseudo = pseudo_type(place.magic);
    let mut found: Vec<(&Mount, Vec<u8>)> = view
        .mounts
        .iter()
        .rev()
        .chain(&view.elsewhere)
        .filter(|mount| match pseudo {
            Some((fs_type, _)) => mount.fs_type == fs_type,
            None => mount.dev == place.dev && may_be_of_one_kind(&mount.fs_type, place.magic),
        })
        .filter_map(|mount| Some((mount, name_through(mount, &place.path)?)))
        .collect();
    found.sort_by_key(|(mount, _)| std::cmp::Reverse(mount.root.len()));
    let mut names: Vec<Vec<u8>> = found.into_iter().map(|(_, name)| name).collect();
    if names.is_empty()
        && let Some((_, point)) = pseudo
    {
        // Not mounted in the view: the tables take its customary place.
        names.push(
            [
                point.as_bytes(),
                if place.path == b"/" { b"" } else { &place.path },
            ]
            .concat(),
        );
    }
    names
}

/// Types of file systems that have no device of their own and get any number that is free, with the magic number of
/// their superblocks (linux/magic.h). What is matched by its magic number alone has a table of its own.
const WITHOUT_A_DEVICE: &[(&str, u64)] = &[
    ("tmpfs", SuperblockKey::TMPFS_MAGIC),
    ("devtmpfs", SuperblockKey::TMPFS_MAGIC),
    ("rootfs", SuperblockKey::TMPFS_MAGIC),
    ("ramfs", RAMFS_MAGIC),
    // In kernels without tmpfs, and the first root where it is told to be one (init/do_mounts.c).
    ("devtmpfs", RAMFS_MAGIC),
    ("rootfs", RAMFS_MAGIC),
    ("hugetlbfs", 0x9584_58f6),
    ("overlay", 0x794c_7630),
    ("btrfs", 0x9123_683e),
    ("fuse", FUSE_MAGIC),
    ("fuseblk", FUSE_MAGIC),
    ("virtiofs", FUSE_MAGIC),
    ("9p", 0x0102_1997),
    ("nfs", NFS_MAGIC),
    ("nfs4", NFS_MAGIC),
];
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const FUSE_MAGIC: u64 = 0x6573_5546;
const NFS_MAGIC: u64 = 0x6969;

/// Whether a superblock with this magic number can be the one that a view has under its device number: what was mounted
/// may be gone, and its number another's. Those of which nothing is known are told by the number alone.
fn may_be_of_one_kind(fs_type: &str, magic: u64) -> bool {
    // `fuse.sshfs` is a `fuse`.
    let fs_type = fs_type.split_once('.').map_or(fs_type, |(kind, _)| kind);
    let known = |&&(name, number): &&(&str, u64)| name == fs_type || number == magic;
    let mut known = WITHOUT_A_DEVICE.iter().filter(known).peekable();
    known.peek().is_none() || known.any(|&(name, number)| name == fs_type && number == magic)
}

/// The name that a tmpfs of the sandbox's own counts as having until it is met: the kernel has found a place there.
#[must_use]
pub(super) fn name_of_own_tmpfs(place: &Place) -> Option<Vec<u8>> {
    let path = if place.path == b"/" {
        b""
    } else {
        place.path.as_slice()
    };
    let is_tmpfs = place.magic == SuperblockKey::TMPFS_MAGIC && !place.partial;
    is_tmpfs.then(|| [OWN_TMPFS.as_bytes(), path].concat())
}

/// What to call a place that has no name in the view: as the links in `/proc/PID/fd` do for what never
/// has a path; the end of a path whose beginning could not be walked is marked as one.
#[must_use]
pub(super) fn label(view: &View, place: &Place) -> Vec<u8> {
    let kind = match place.magic {
        0x5049_5045 => Some("pipe"),
        0x534f_434b => Some("socket"),
        0x0904_1934 => Some("anon_inode"),
        0x6e73_6673 => Some("ns"),
        0x5049_4446 => Some("pidfd"),
        _ if view.memfd_dev == Some(place.dev) => Some("memfd"),
        _ => None,
    };
    match kind {
        Some(kind) => format!("{kind}:[{}]", place.inode).into_bytes(),
        None if place.dev == Dev(0) && place.magic == 0 => b"(unknown)".to_vec(),
        None if place.partial => [b"(...)", place.path.as_slice()].concat(),
        None => place.path.clone(),
    }
}

/// The name of `path` (below the superblock's root) through one mount.
fn name_through(mount: &Mount, path: &[u8]) -> Option<Vec<u8>> {
    let below = match mount.root.as_slice() {
        b"/" => path,
        root => match path.strip_prefix(root)? {
            rest @ ([] | [b'/', ..]) => rest,
            _ => return None,
        },
    };
    let below = if below == b"/" { b"" } else { below };
    let point = if mount.point == b"/" {
        b""
    } else {
        mount.point.as_slice()
    };
    let name = [point, below].concat();
    Some(if name.is_empty() { b"/".to_vec() } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(dev: u32, root: &str, point: &str) -> Mount {
        Mount {
            dev: Dev::new(dev, 0),
            fs_type: "ext4".to_owned(),
            root: root.into(),
            point: point.into(),
        }
    }

    fn place(dev: u32, path: &str) -> Place {
        Place {
            dev: Dev::new(dev, 0),
            magic: 0,
            path: path.into(),
            partial: false,
            inode: 1,
            mode: 0,
        }
    }

    #[test]
    fn a_file_below_a_bind_mount_has_two_names() {
        let view = View {
            mounts: vec![mount(8, "/", "/"), mount(8, "/srv/a", "/mnt")],
            ..View::default()
        };
        assert_eq!(
            names(&view, &place(8, "/srv/a/b")),
            [b"/mnt/b".to_vec(), b"/srv/a/b".to_vec()]
        );
        assert_eq!(names(&view, &place(8, "/srv/ab")), [b"/srv/ab".to_vec()]);
        assert_eq!(names(&view, &place(8, "/srv/a"))[0], b"/mnt");
    }

    #[test]
    fn a_superblock_that_is_not_mounted_gives_no_name() {
        let view = View {
            mounts: vec![mount(8, "/", "/")],
            ..View::default()
        };
        assert!(names(&view, &place(9, "/x")).is_empty());
    }

    #[test]
    fn a_device_number_that_is_used_again_gives_no_name() {
        let mounted = |fs_type: &str| View {
            mounts: vec![Mount {
                fs_type: fs_type.to_owned(),
                ..mount(9, "/", "/mnt")
            }],
            ..View::default()
        };
        let named = |fs_type: &str, magic| {
            let place = Place {
                magic,
                ..place(9, "/x")
            };
            names(&mounted(fs_type), &place)
        };
        let (ext4, cgroup) = (0xef53, 0x0027_e0eb);
        for (fs_type, magic) in [
            ("tmpfs", SuperblockKey::TMPFS_MAGIC),
            ("rootfs", SuperblockKey::TMPFS_MAGIC),
            ("rootfs", RAMFS_MAGIC),
            ("fuse.sshfs", FUSE_MAGIC),
            ("ext4", ext4),
            ("xfs", 0x5846_5342),
        ] {
            assert_eq!(named(fs_type, magic), [b"/mnt/x"], "{fs_type}");
        }
        for (fs_type, magic) in [
            ("tmpfs", RAMFS_MAGIC),
            ("tmpfs", ext4),
            ("ramfs", SuperblockKey::TMPFS_MAGIC),
            ("ext4", RAMFS_MAGIC),
            ("proc", RAMFS_MAGIC),
            ("fuse.sshfs", NFS_MAGIC),
        ] {
            assert!(named(fs_type, magic).is_empty(), "{fs_type} {magic:x}");
        }
        // Told by its magic number, it is where it is by custom.
        assert_eq!(named("tmpfs", cgroup), [b"/sys/fs/cgroup/x"]);
        assert_eq!(named("cgroup", cgroup), [b"/mnt/x"]);
    }

    #[test]
    fn a_tmpfs_of_the_sandboxs_own_is_named_by_where_it_counts_as_lying() {
        let tmpfs = Place {
            magic: SuperblockKey::TMPFS_MAGIC,
            ..place(9, "/x")
        };
        assert_eq!(name_of_own_tmpfs(&tmpfs), Some(b"/tmp/x".to_vec()));
        assert_eq!(name_of_own_tmpfs(&place(9, "/x")), None);
    }

    #[test]
    fn what_never_has_a_path_is_called_as_in_proc() {
        let pipe = Place {
            magic: 0x5049_5045,
            inode: 42,
            partial: true,
            ..place(9, "/")
        };
        assert_eq!(label(&View::default(), &pipe), b"pipe:[42]");
        let long = Place {
            partial: true,
            ..place(9, "/z")
        };
        assert_eq!(label(&View::default(), &long), b"(...)/z");
    }

    #[test]
    fn the_root_is_a_slash() {
        let view = View {
            mounts: vec![mount(8, "/", "/")],
            ..View::default()
        };
        assert_eq!(names(&view, &place(8, "/")), [b"/".to_vec()]);
    }
}
