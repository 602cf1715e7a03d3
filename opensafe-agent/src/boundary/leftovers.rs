//! What a test that was killed has left: its throwaway directory, and cgroups. The next one removes it.
//!
//! A directory is a test's if it is called so and has, of the same owner as this process, a file that says so; and its test
//! goes on as long as its lock is held, which the kernel gives back however a process ends.

use std::{
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::Path,
    str::FromStr as _,
};

use nix::{
    fcntl::{Flock, FlockArg, OFlag},
    unistd::Uid,
};

use crate::{
    run::RunId,
    sandbox::{
        cgroup::Cgroup,
        view::{Mountinfo, mountinfo},
    },
};

/// How throwaway directories are called, before the test's id.
const PREFIX: &str = "opensafe-boundary-";
/// The file that says whose a directory is. It has the id of the test's run, once there is one.
const MARK: &str = "boundary-test";

/// The throwaway directory of a test.
pub(super) fn directory(id: &RunId) -> String {
    format!("{PREFIX}{id}")
}

/// The name of the cgroup outside the sandbox that attempts go for.
pub(super) fn cgroup_outside(id: &RunId) -> String {
    format!("boundary-{id}")
}

/// The name of the one in which attempts are made outside.
pub(super) fn cgroup_of_attempts(id: &RunId) -> String {
    format!("boundary-{id}-attempts")
}

/// A test's directory, from now on known as one that is in use.
pub(super) struct Claim(
    #[allow(dead_code, reason = "its lock is held as long as it is there")] Flock<File>,
);

impl Claim {
    /// Of a directory that was just made.
    pub(super) fn of(root: &Path) -> io::Result<Self> {
        // Whoever looks for what is left has it for a moment.
        let lock = Flock::lock(open(root)?, FlockArg::LockExclusive);
        let lock = lock.map_err(|(_, errno)| io::Error::from(errno))?;
        fs::write(root.join(MARK), "")?;
        Ok(Self(lock))
    }
}

/// Notes the test's run, whose cgroup may be left too: in the directory, and on the cgroup, lest a directory that somebody else
/// has made names the run of others.
pub(super) fn note_run(root: &Path, id: &RunId, run: &RunId) {
    // Without the notes that cgroup stays, and nothing else.
    let _ = Cgroup::note(run.as_str(), id.as_str());
    let _ = fs::write(root.join(MARK), run.as_str());
}

/// Removes what tests that are gone have left in a directory, and their cgroups with all that is in them.
pub(super) fn remove(parent: &Path) {
    // What cannot be looked at or removed stays.
    let Ok(mounts) = mountinfo(Path::new("/proc/self/mountinfo")) else {
        return;
    };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if let Some(id) = id.and_then(|id| RunId::from_str(id).ok()) {
            let _ = remove_one(&entry.path(), &id, &mounts);
        }
    }
}

fn remove_one(root: &Path, id: &RunId, mounts: &[Mountinfo]) -> io::Result<()> {
    let directory = open(root)?;
    let is_ours = |owner: u32| owner == Uid::effective().as_raw();
    let mark = fs::symlink_metadata(root.join(MARK))?;
    if !is_ours(directory.metadata()?.uid()) || !is_ours(mark.uid()) || !mark.is_file() {
        return Ok(());
    }
    let Ok(_lock) = Flock::lock(directory, FlockArg::LockExclusiveNonblock) else {
        return Ok(());
    };
    // A test's own are gone with it: this is somebody else's.
    let is_within = |line: &Mountinfo| {
        Path::new(std::ffi::OsStr::from_bytes(&line.mount.point)).starts_with(root)
    };
    if mounts.iter().any(is_within) {
        return Ok(());
    }
    let run = fs::read_to_string(root.join(MARK))?;
    let run = RunId::from_str(&run)
        .ok()
        .map(|run| run.as_str().to_owned());
    // All that is in them is ended, and they are removed.
    for name in [cgroup_of_attempts(id), cgroup_outside(id)] {
        drop(Cgroup::left(&name, None));
    }
    if let Some(run) = run {
        drop(Cgroup::left(&run, Some(id.as_str())));
    }
    fs::remove_dir_all(root)
}

fn open(directory: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(parent: &Path) -> Vec<String> {
        let entries = fs::read_dir(parent).unwrap().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_directory_goes_when_its_test_has_gone_and_only_if_it_is_a_test_s() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let root = folder.path().join(name);
            fs::create_dir_all(root.join("deep/down")).unwrap();
            root
        };
        let gone = make("opensafe-boundary-00000001");
        drop(Claim::of(&gone).unwrap());
        let claim = Claim::of(&make("opensafe-boundary-00000002")).unwrap();
        make("opensafe-boundary-00000003");
        let other = make("opensafe-boundary-other");
        drop(Claim::of(&other).unwrap());
        let target = make("elsewhere");
        drop(Claim::of(&target).unwrap());
        let link = folder.path().join("opensafe-boundary-00000004");
        std::os::unix::fs::symlink(&target, link).unwrap();
        remove(folder.path());
        let stay = [
            "elsewhere",
            "opensafe-boundary-00000002",
            "opensafe-boundary-00000003",
            "opensafe-boundary-00000004",
            "opensafe-boundary-other",
        ];
        assert_eq!(left(folder.path()), stay);
        drop(claim);
        remove(folder.path());
        assert_eq!(left(folder.path()).len(), stay.len() - 1);
    }
}
