//! Where a run's record goes, and the rule that keeps the run's hands off it.

use std::{
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

    /// Where what is there already lies, if anything is.
    pub(super) fn existing(&self) -> Option<(Dev, u64)> {
        // O_PATH: neither a device nor a pipe is asked anything.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = open(&self.path, flags, Mode::empty()).ok()?;
        where_it_is(&File::from(file)).ok()
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
pub(super) fn where_it_is(file: &File) -> io::Result<(Dev, u64)> {
    let inode = file.metadata()?.ino();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let mount = mount.and_then(|id| id.trim().parse().ok());
    let device = mount.and_then(|id| device_of_mount(id).ok()?);
    device
        .map(|device| (device, inode))
        .ok_or_else(|| io::Error::other("its mount is not in /proc/self/mountinfo"))
}

fn device_of_mount(id: i32) -> procfs::ProcResult<Option<Dev>> {
    let mounts = procfs::process::Process::myself()?.mountinfo()?;
    let mount = mounts.into_iter().find(|mount| mount.mnt_id == id);
    Ok(mount.and_then(|mount| {
        let (major, minor) = mount.majmin.split_once(':')?;
        Some(Dev::new(major.parse().ok()?, minor.parse().ok()?))
    }))
}
