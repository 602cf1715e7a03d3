//! The superblocks of a view, and the names that each has in it.

use std::collections::BTreeMap;

use crate::view::{Dev, Mount, View};

/// How the kernel tells a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SuperblockId {
    /// By its device number.
    ByDev(Dev),
    /// A tmpfs, by its device number.
    ByTmpfsDev(Dev),
    /// A tmpfs that the sandbox has made and that has no other name.
    OwnTmpfs,
    /// One that it has made, by its device number.
    ByOwnTmpfsDev(Dev),
    /// By its type's magic number: pseudo-filesystems, of which there may be many with one content.
    ByMagic(u64),
}

/// One name: what lies in the superblock's directory `root` is seen at `point`. Both without a trailing
/// slash, so that the root directory is the empty string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) root: Vec<u8>,
    pub(super) point: Vec<u8>,
}

impl Name {
    /// Whether the other's directory is this one's or lies in it.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let rest = other.root.strip_prefix(&self.root[..]);
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// Whether all files that the other names have those names from this one already.
    fn implies(&self, other: &Self) -> bool {
        let below = |path: &[u8], of: &[u8]| path.strip_prefix(of).map(<[u8]>::to_vec);
        self.covers(other) && below(&other.root, &self.root) == below(&other.point, &self.point)
    }
}

/// A pseudo-filesystem that is matched by type: a detached or a second mount of it shows the same content,
/// whatever its device number is.
struct Pseudo {
    /// As mountinfo has it.
    fs_type: &'static str,
    magic: u64,
    /// Where it is by custom, for a view in which it is not mounted (yet).
    point: &'static str,
}

/// Magic numbers: linux/magic.h, those that it lacks from the file system's own source.
const PSEUDO: &[Pseudo] = &[
    pseudo("proc", 0x9fa0, "/proc"),
    pseudo("sysfs", 0x6265_6572, "/sys"),
    pseudo("cgroup", 0x0027_e0eb, "/sys/fs/cgroup"),
    pseudo("cgroup2", 0x6367_7270, "/sys/fs/cgroup"),
    pseudo("devpts", 0x1cd1, "/dev/pts"),
    pseudo("securityfs", 0x7363_6673, "/sys/kernel/security"),
    pseudo("selinuxfs", 0xf97c_ff8c, "/sys/fs/selinux"),
    pseudo("smackfs", 0x4341_5d53, "/sys/fs/smackfs"),
    pseudo("debugfs", 0x6462_6720, "/sys/kernel/debug"),
    pseudo("tracefs", 0x7472_6163, "/sys/kernel/tracing"),
    pseudo("bpf", 0xcafe_4a11, "/sys/fs/bpf"),
    pseudo("pstore", 0x6165_676c, "/sys/fs/pstore"),
    pseudo("efivarfs", 0xde5e_81e4, "/sys/firmware/efi/efivars"),
    pseudo("resctrl", 0x0765_5821, "/sys/fs/resctrl"),
    pseudo("binfmt_misc", 0x4249_4e4d, "/proc/sys/fs/binfmt_misc"),
    pseudo("mqueue", 0x1980_0202, "/dev/mqueue"), // ipc/mqueue.c
    pseudo("configfs", 0x6265_6570, "/sys/kernel/config"), // fs/configfs/mount.c
    pseudo("fusectl", 0x6573_5543, "/sys/fs/fuse/connections"), // fs/fuse/control.c
];

const fn pseudo(fs_type: &'static str, magic: u64, point: &'static str) -> Pseudo {
    Pseudo {
        fs_type,
        magic,
        point,
    }
}

/// Where a tmpfs of the sandbox's own counts as lying until it has a name.
pub const OWN_TMPFS: &str = "/tmp";

/// File systems of objects that never have a path: a task's own pipes, sockets, namespaces and the like.
const NAMELESS: &[(&str, u64)] = &[
    ("pipefs", 0x5049_5045),
    ("sockfs", 0x534f_434b),
    ("anon_inodefs", 0x0904_1934),
    ("nsfs", 0x6e73_6673),
    ("pidfs", 0x5049_4446),
    ("dmabuf", 0x444d_4142),
    ("secretmem", 0x5345_434d),
];

/// Every superblock that can be told, with the names it has; in the order of their ids.
pub(super) fn named(view: &View) -> BTreeMap<SuperblockId, Vec<Name>> {
    let mut named: BTreeMap<SuperblockId, Vec<Name>> = BTreeMap::new();
    let seen = view.mounts.iter().enumerate().filter(|(at, mount)| {
        let mut later = view.mounts[at + 1..].iter();
        !later.any(|later| trim(&later.point) == trim(&mount.point))
    });
    let is_nameless = |mount: &Mount| NAMELESS.iter().any(|(kind, _)| *kind == mount.fs_type);
    let seen = seen.map(|(_, mount)| (by_type_or_device(mount), mount));
    let own = |mount: &Mount| SuperblockId::ByOwnTmpfsDev(mount.dev);
    let elsewhere = view.elsewhere.iter().map(|mount| (own(mount), mount));
    for (id, mount) in seen
        .chain(elsewhere)
        .filter(|(_, mount)| !is_nameless(mount))
    {
        named.entry(id).or_default().push(Name {
            root: trim(&mount.root).to_vec(),
            point: trim(&mount.point).to_vec(),
        });
    }
    for pseudo in PSEUDO {
        named
            .entry(SuperblockId::ByMagic(pseudo.magic))
            .or_insert_with(|| {
                vec![Name {
                    root: Vec::new(),
                    point: pseudo.point.into(),
                }]
            });
    }
    named.insert(
        SuperblockId::OwnTmpfs,
        vec![Name {
            root: Vec::new(),
            point: OWN_TMPFS.into(),
        }],
    );
    for names in named.values_mut() {
        names.sort_unstable();
        names.dedup();
        let all = names.clone();
        names.retain(|name| !all.iter().any(|other| other != name && other.implies(name)));
    }
    named
}

/// Superblocks of kernel objects without a name.
pub(super) fn nameless(view: &View) -> impl Iterator<Item = SuperblockId> {
    let by_type = NAMELESS
        .iter()
        .map(|(_, magic)| SuperblockId::ByMagic(*magic));
    by_type.chain(view.memfd_dev.map(SuperblockId::ByTmpfsDev))
}

/// `devtmpfs` is a tmpfs to the kernel (drivers/base/devtmpfs.c).
fn by_type_or_device(mount: &Mount) -> SuperblockId {
    let pseudo = |pseudo: &&Pseudo| pseudo.fs_type == mount.fs_type;
    if let Some(pseudo) = PSEUDO.iter().find(pseudo) {
        return SuperblockId::ByMagic(pseudo.magic);
    }
    match mount.fs_type.as_str() {
        "tmpfs" | "devtmpfs" => SuperblockId::ByTmpfsDev(mount.dev),
        _ => SuperblockId::ByDev(mount.dev),
    }
}

fn trim(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// The type of a pseudo-filesystem that is matched by its magic number, and where it is by custom.
#[must_use]
pub fn pseudo_type(magic: u64) -> Option<(&'static str, &'static str)> {
    PSEUDO
        .iter()
        .find(|pseudo| pseudo.magic == magic)
        .map(|pseudo| (pseudo.fs_type, pseudo.point))
}
