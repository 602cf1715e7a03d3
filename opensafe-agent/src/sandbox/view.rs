//! Fills in a [`View`]: reads the mounts, and follows the links in a policy's rules.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use nix::sys::memfd::{MFdFlags, memfd_create};
use opensafe_common::verdict::Verdict;

use crate::{
    rules::{Peer, Rule, RuleSet, Subject, glob::PathGlob},
    view::{Dev, Mount, View},
};

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mountinfo {
    /// Its id.
    pub id: u64,
    /// What a view needs of it.
    pub mount: Mount,
    /// Whether it may be written to by this mount; the file system as a whole may still be read-only.
    pub writable: bool,
}

impl Mountinfo {
    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.mount.point.clone()))
    }
}

/// Directories that the sandbox itself can write to; what a link in them means is its own choice.
pub struct Writable<'a>(pub &'a [&'a Path]);

/// The view of a process in this mount namespace.
pub fn view(rules: &RuleSet, writable: &Writable<'_>) -> io::Result<View> {
    let mounts = mountinfo(Path::new("/proc/self/mountinfo"))?;
    let mut view = View {
        mounts: mounts.into_iter().map(|line| line.mount).collect(),
        memfd_dev: memfd_dev(),
        ..View::default()
    };
    let mut seen = BTreeSet::new();
    for rule in &rules.rules {
        for prefix in globs(rule).flat_map(PathGlob::literal_prefixes) {
            if seen.insert((prefix.clone(), rule.verdict == Verdict::Deny))
                && let Some(target) = follow(&prefix, rule.verdict, writable)
            {
                view.links.insert(prefix, target);
            }
        }
    }
    Ok(view)
}

/// Reads a mountinfo file (proc_pid_mountinfo(5)).
pub fn mountinfo(path: &Path) -> io::Result<Vec<Mountinfo>> {
    first_of_mountinfo(path, u64::MAX)
}

/// Reads as many lines of one as are in its first `max_bytes`.
pub(super) fn first_of_mountinfo(path: &Path, max_bytes: u64) -> io::Result<Vec<Mountinfo>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(mounts_in(&bytes))
}

/// The lines of a mountinfo that are whole.
pub(crate) fn mounts_in(bytes: &[u8]) -> Vec<Mountinfo> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .filter_map(|line| parse_line(line.strip_suffix(b"\n")?))
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mountinfo> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = fields.nth(1)?;
    let (root, point) = (fields.next()?, fields.next()?);
    let mut options = fields.next()?.split(|&byte| byte == b',');
    let fs_type = fields.skip_while(|field| *field != b"-").nth(1)?;
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    Some(Mountinfo {
        id,
        mount: Mount {
            dev: Dev::new(major.parse().ok()?, minor.parse().ok()?),
            fs_type: String::from_utf8_lossy(fs_type).into_owned(),
            root: unescape(root),
            point: unescape(point),
        },
        writable: options.any(|option| option == b"rw"),
    })
}

/// Spaces, tabs, newlines and backslashes stand there as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| {
            first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit))
        });
        match octal {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0_u32, |value, digit| value << 3 | u32::from(digit - b'0'));
                bytes.push(u8::try_from(value & 0xff).unwrap_or(0));
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

/// Device of the kernel's own tmpfs.
fn memfd_dev() -> Option<Dev> {
    let file = memfd_create("opensafe", MFdFlags::MFD_CLOEXEC).ok()?;
    let device = fs::File::from(file).metadata().ok()?.dev();
    Some(dev(device))
}

/// A device number as stat(2) gives it (gnu_dev_major(3)).
fn dev(device: u64) -> Dev {
    let major = nix::sys::stat::major(device);
    let minor = nix::sys::stat::minor(device);
    Dev::new(
        u32::try_from(major).unwrap_or(0),
        u32::try_from(minor).unwrap_or(0),
    )
}

fn globs(rule: &Rule) -> impl Iterator<Item = &PathGlob> {
    let (globs, peers): (&[PathGlob], &[Peer]) = match &rule.subject {
        Subject::Exec(globs) | Subject::File { globs, .. } => (globs, &[]),
        Subject::Connect { peers, .. } => (&[], peers),
        Subject::Bind { .. } | Subject::Socket(_) | Subject::Operation(_) => (&[], &[]),
    };
    globs
        .iter()
        .chain(peers.iter().filter_map(|peer| match peer {
            Peer::UnixPath(glob) => Some(glob),
            _ => None,
        }))
}

/// Where a name in a rule leads, if not to itself. What does not exist yet is followed as far as it
/// does. A denial follows every link. A rule that allows follows none that the sandbox could have
/// made: it would widen itself.
fn follow(name: &[u8], verdict: Verdict, writable: &Writable<'_>) -> Option<Vec<u8>> {
    let path = PathBuf::from(OsString::from_vec(name.to_vec()));
    if path.starts_with("/proc") {
        return None; // its links lead elsewhere for each process that asks
    }
    if verdict != Verdict::Deny
        && writable
            .0
            .iter()
            .any(|directory| path.starts_with(directory) && path != **directory)
    {
        return None;
    }
    let mut missing = Vec::new();
    let mut existing = path.as_path();
    let resolved = loop {
        match existing.canonicalize() {
            Ok(resolved) => break resolved,
            Err(_) => {
                missing.push(existing.file_name()?.to_owned());
                existing = existing.parent()?;
            }
        }
    };
    let target = missing
        .iter()
        .rev()
        .fold(resolved, |path, name| path.join(name));
    let target = target.as_os_str().as_bytes().to_vec();
    (target != name).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_a_space_and_a_newline_is_read_as_it_is() {
        let line = br"36 35 98:0 /mnt1 /a\040b\012c rw,noatime master:1 - ext3 /dev/root rw";
        let parsed = parse_line(line).unwrap();
        assert_eq!(parsed.mount.point, b"/a b\nc");
        assert_eq!(parsed.mount.root, b"/mnt1");
        assert_eq!(parsed.mount.fs_type, "ext3");
        assert_eq!(parsed.mount.dev, Dev::new(98, 0));
    }

    #[test]
    fn a_line_of_other_shape_is_passed_over() {
        assert_eq!(parse_line(b"36 35 98:0 /mnt1"), None);
        assert_eq!(parse_line(b""), None);
    }

    #[test]
    fn a_denial_follows_a_link_and_what_it_allows_does_not_widen_itself() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("real"), "").unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let link = root.join("link").as_os_str().as_bytes().to_vec();
        let real = root.join("real").as_os_str().as_bytes().to_vec();
        let writable = [root.as_path()];
        let writable = Writable(&writable);
        assert_eq!(follow(&link, Verdict::Deny, &writable), Some(real.clone()));
        assert_eq!(follow(&link, Verdict::Allow, &writable), None);
        assert_eq!(
            follow(&link, Verdict::Allow, &Writable(&[])),
            Some(real.clone())
        );
        assert_eq!(follow(&real, Verdict::Deny, &writable), None);
    }

    #[test]
    fn what_does_not_exist_is_followed_as_far_as_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let name = root.join("link/a/b").as_os_str().as_bytes().to_vec();
        let target = root.join("real/a/b").as_os_str().as_bytes().to_vec();
        assert_eq!(follow(&name, Verdict::Deny, &Writable(&[])), Some(target));
    }
}
