//! Where a run's record goes, and the rule that keeps the run's hands off it.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd as _,
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
};
use opensafe_common::verdict::{Access, Verdict};

use super::{
    error::{RunError, system},
    state::RecordState,
    view::{Mountinfo, mountinfo},
};
use crate::{
    rules::{
        RECORDS, RECORDS_REASON, Rule, RuleId, Severity, Subject,
        glob::{PathGlob, escape},
    },
    run::RunId,
    sink::record::{
        Record,
        file::{CreateError, Existing, Owner},
        place::Invoker,
        written::Written,
    },
    view::Dev,
};

/// Where a run's record is.
pub(super) struct RecordPlace {
    path: PathBuf,
    /// Where records are that nobody has named.
    runs: PathBuf,
    existing: Existing,
    owner: Option<Owner>,
}

impl RecordPlace {
    /// The place named by the user, relative to `directory`, or the customary one.
    pub(super) fn new(named: Option<&Path>, id: &RunId, directory: &Path) -> Self {
        let invoker = Invoker::current();
        let (path, existing) = match named {
            Some(path) => (directory.join(path), Existing::Replace),
            None => (directory.join(invoker.record(id)), Existing::Refuse),
        };
        Self {
            path,
            runs: directory.join(invoker.runs()),
            existing,
            owner: invoker.owner,
        }
    }

    /// As it is kept, to be found again.
    pub(super) fn kept(&self) -> RecordState {
        RecordState {
            path: self.path.clone(),
            runs: self.runs.clone(),
            owner: self.owner.map(|owner| (owner.uid, owner.gid)),
        }
    }

    /// The one that was kept.
    pub(super) fn of_kept(kept: RecordState) -> Self {
        Self {
            path: kept.path,
            runs: kept.runs,
            existing: Existing::Replace,
            owner: kept.owner.map(|(uid, gid)| Owner { uid, gid }),
        }
    }

    /// Goes on with the record that is there; also what it has already.
    pub(super) fn reopen(
        &self,
        id: &RunId,
        noted: Option<Written>,
    ) -> Result<(Record, Written), RunError> {
        let written = Written::of(&self.path, noted)
            .map_err(|error| system("read the run's record", io::Error::other(error)))?;
        let record = Record::reopen(id.clone(), &self.path, self.owner, &written)?;
        Ok((record, written))
    }

    /// Where what is there already lies, if anything is.
    pub(super) fn existing(&self) -> Option<(Dev, u64)> {
        where_it_is(&opened(&self.path).ok()?).ok()
    }

    /// Creates the record.
    pub(super) fn create(&self, id: &RunId) -> Result<Record, CreateError> {
        Record::create(id.clone(), &self.path, self.existing, self.owner)
    }

    /// Whatever the policy says, a run cannot change what is on record about it or others. Records of runs that go on and lie
    /// elsewhere are the kernel's to know ([`crate::kernel::Kernel::keep_record`]).
    pub(super) fn rule(&self) -> Option<Rule> {
        let runs = escape(self.runs.as_os_str().as_bytes());
        let places = [
            escape(self.path.as_os_str().as_bytes()),
            format!("{runs}/**"),
        ];
        let globs: Vec<PathGlob> = places
            .iter()
            .filter_map(|glob| PathGlob::parse(glob).ok())
            .collect();
        (!globs.is_empty()).then(|| Rule {
            id: RuleId(RECORDS.to_owned()),
            verdict: Verdict::Deny,
            severity: Severity::High,
            reason: RECORDS_REASON.to_owned(),
            origin: None,
            subject: Subject::File {
                globs,
                access: Access::CHANGING.union(Access::CREATE),
            },
        })
    }
}

/// An open file's device, as the kernel keeps it, and its inode's number. The device is its mount's: stat(2) tells
/// another one for a subvolume of btrfs.
pub(super) fn where_it_is(file: &File) -> io::Result<Place> {
    where_among(file, &mounts()?)
}

/// A device and the number of an inode.
type Place = (Dev, u64);

/// The directories above an open file that lies at `at`, by each of the names that it has in this mount namespace, up to the
/// root.
pub(super) fn directories_above(file: &File, at: Place) -> io::Result<Vec<Place>> {
    let mounts = mounts()?;
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let mut above = BTreeSet::new();
    for name in names(&path, at.0, &mounts) {
        // What the mounts say may be hidden by others.
        if opened(&name)
            .and_then(|file| where_among(&file, &mounts))
            .ok()
            != Some(at)
        {
            continue;
        }
        for directory in name.ancestors().skip(1) {
            above.insert(where_among(&opened(directory)?, &mounts)?);
        }
    }
    Ok(above.into_iter().collect())
}

/// Every name that what lies at `path`, on a device, may have by its mounts; that one first.
fn names(path: &Path, device: Dev, mounts: &[Mountinfo]) -> Vec<PathBuf> {
    let on_device = || mounts.iter().filter(|line| line.mount.dev == device);
    let root = |line: &Mountinfo| PathBuf::from(OsStr::from_bytes(&line.mount.root));
    // Where it may be below its superblock's root; and where that is mounted.
    let mut names = vec![path.to_owned()];
    for through in on_device() {
        let Ok(below) = path.strip_prefix(through.point()) else {
            continue;
        };
        let place = root(through).join(below);
        let others = on_device().filter_map(|other| {
            let below = place.strip_prefix(root(other)).ok()?;
            Some(other.point().join(below))
        });
        for name in others {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn opened(path: &Path) -> io::Result<File> {
    // O_PATH: neither a device nor a pipe is asked anything.
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

fn mounts() -> io::Result<Vec<Mountinfo>> {
    mountinfo(Path::new("/proc/self/mountinfo"))
}

fn where_among(file: &File, mounts: &[Mountinfo]) -> io::Result<Place> {
    let inode = file.metadata()?.ino();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let id: Option<u64> = id.and_then(|id| id.trim().parse().ok());
    let mount = mounts.iter().find(|line| Some(line.id) == id);
    mount
        .map(|line| (line.mount.dev, inode))
        .ok_or_else(|| io::Error::other("its mount is not in /proc/self/mountinfo"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Mount;

    fn mounted(id: u64, device: u32, root: &str, point: &str) -> Mountinfo {
        Mountinfo {
            id,
            mount: Mount {
                dev: Dev(device),
                fs_type: "ext4".to_owned(),
                root: root.into(),
                point: point.into(),
            },
            writable: true,
        }
    }

    #[test]
    fn a_record_has_a_name_by_each_mount_that_shows_it() {
        let mounts = [
            mounted(1, 8, "/", "/"),
            mounted(2, 9, "/", "/srv"),
            mounted(3, 9, "/records", "/mnt/records"),
            mounted(4, 9, "/other", "/mnt/other"),
        ];
        let expected = ["/mnt/records/b.jsonl", "/srv/records/b.jsonl"];
        for path in expected {
            let mut found = names(Path::new(path), Dev(9), &mounts);
            assert_eq!(found[0], Path::new(path));
            found.sort();
            assert_eq!(found, expected.map(PathBuf::from));
        }
    }

    #[test]
    fn the_directories_above_a_file_are_those_up_to_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().canonicalize().unwrap().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let file = File::create(deep.join("record")).unwrap();
        let above = directories_above(&file, where_it_is(&file).unwrap()).unwrap();
        for directory in deep.ancestors() {
            let place = where_it_is(&opened(directory).unwrap()).unwrap();
            assert!(above.contains(&place), "{}", directory.display());
        }
        let beside = folder.path().join("beside");
        fs::create_dir(&beside).unwrap();
        let beside = where_it_is(&opened(&beside).unwrap()).unwrap();
        assert!(!above.contains(&beside));
    }
}
