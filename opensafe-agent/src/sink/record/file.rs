//! The file that a record is written to: who owns it, and what it must not overwrite or follow.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

/// Whose file it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// What may be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing: for a record that is named by its run.
    Refuse,
    /// An empty file, or another record, which is overwritten: for a record that the user named.
    Replace,
}

/// Why a record could not be created.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CreateError {
    #[error("cannot create the directory {}: {cause}", path.display())]
    Directory { path: PathBuf, cause: io::Error },
    #[error("cannot create the record {}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("cannot create the record {}: it is a symbolic link", path.display())]
    Link { path: PathBuf },
    #[error("cannot create the record {}: it exists and is no regular file", path.display())]
    NotRegular { path: PathBuf },
    #[error("will not overwrite {}: it is not empty and no record", path.display())]
    NotARecord { path: PathBuf },
    #[error("cannot act as user {uid}, group {gid} to create {}", path.display())]
    Credentials { path: PathBuf, uid: u32, gid: u32 },
}

/// Why a record could not be deleted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RemoveError {
    #[error("cannot delete the record {}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("cannot act as user {uid}, group {gid} to delete {}", path.display())]
    Credentials { path: PathBuf, uid: u32, gid: u32 },
}

/// Creates the file at `path`, readable and writable by its owner alone, and its missing directories.
///
/// With an `owner`, every step is done with the owner's rights in the file system: nothing can be
/// created, overwritten or reached through a link that the owner could not create, overwrite or reach.
/// So a privileged `opensafe` may write into a user's directory without trusting what is there.
/// The last component is never followed if it is a symbolic link.
///
/// # Errors
/// See [`CreateError`].
pub fn create(path: &Path, existing: Existing, owner: Option<Owner>) -> Result<File, CreateError> {
    let _acting = acting(path, owner)?;
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(|cause| CreateError::Directory {
                path: parent.to_owned(),
                cause,
            })?;
    }
    match open(path, true) {
        Err(error)
            if error.kind() == io::ErrorKind::AlreadyExists && existing == Existing::Replace =>
        {
            replace(path)
        }
        opened => opened.map_err(|cause| failed(path, cause)),
    }
}

/// Opens the record at `path` to go on with it, as [`create`] does.
///
/// # Errors
/// See [`CreateError`].
pub fn reopen(path: &Path, owner: Option<Owner>) -> Result<File, CreateError> {
    let _acting = acting(path, owner)?;
    open(path, false).map_err(|cause| failed(path, cause))
}

/// Acts as the owner, if there is one, until it is dropped.
fn acting(path: &Path, owner: Option<Owner>) -> Result<Option<ActingAs>, CreateError> {
    let act = |owner: Owner| {
        ActingAs::new(owner).ok_or_else(|| CreateError::Credentials {
            path: path.to_owned(),
            uid: owner.uid,
            gid: owner.gid,
        })
    };
    owner.map(act).transpose()
}

fn open(path: &Path, new: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(new)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)
}

/// Opens what is there and empties it, if it is a record or empty already.
fn replace(path: &Path) -> Result<File, CreateError> {
    let mut file = open(path, false).map_err(|cause| failed(path, cause))?;
    let failed = |cause| failed(path, cause);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(CreateError::NotRegular { path: path.into() });
    }
    let mut start = Vec::new();
    (&mut file)
        .take(4096)
        .read_to_end(&mut start)
        .map_err(failed)?;
    if !start.is_empty() && !super::read::is_start(&start) {
        return Err(CreateError::NotARecord { path: path.into() });
    }
    file.set_len(0).map_err(failed)?;
    Ok(file)
}

fn failed(path: &Path, cause: io::Error) -> CreateError {
    let path = path.to_owned();
    match cause.raw_os_error() {
        Some(nix::libc::ELOOP) => CreateError::Link { path },
        // A FIFO that nobody reads, a socket, a directory.
        Some(nix::libc::ENXIO | nix::libc::EISDIR) => CreateError::NotRegular { path },
        _ => CreateError::File { path, cause },
    }
}

/// Deletes the record at `path`; with an `owner`, by the owner's rights in the file system, as [`create`] does.
///
/// # Errors
/// See [`RemoveError`].
pub fn remove(path: &Path, owner: Option<Owner>) -> Result<(), RemoveError> {
    let _acting = owner
        .map(|owner| {
            ActingAs::new(owner).ok_or_else(|| RemoveError::Credentials {
                path: path.to_owned(),
                uid: owner.uid,
                gid: owner.gid,
            })
        })
        .transpose()?;
    fs::remove_file(path).map_err(|cause| RemoveError::File {
        path: path.to_owned(),
        cause,
    })
}

/// Another user's rights in the file system, for this thread, as long as it lives.
///
/// When a thread's file-system user id stops being 0, the kernel takes the capabilities that overrule
/// file permissions from it, and gives them back when the id is 0 again (capabilities(7)).
struct ActingAs {
    uid: Uid,
    gid: Gid,
}

impl ActingAs {
    /// Takes them; `None` if that cannot be done.
    fn new(owner: Owner) -> Option<Self> {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        // Each returns what was before, and has no other way to say that it failed than asking again.
        let before = Self {
            gid: setfsgid(gid),
            uid: setfsuid(uid),
        };
        (setfsgid(gid) == gid && setfsuid(uid) == uid).then_some(before)
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        setfsuid(self.uid);
        setfsgid(self.gid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    #[test]
    fn a_new_record_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/r.jsonl");
        let file = create(&path, Existing::Refuse, None).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(dir.path().join("a")).unwrap().mode() & 0o777,
            0o700
        );
        assert_eq!(
            fs::metadata(dir.path().join("a/b")).unwrap().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn a_link_is_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "").unwrap();
        let link = dir.path().join("r.jsonl");
        symlink(&target, &link).unwrap();
        for existing in [Existing::Refuse, Existing::Replace] {
            assert!(create(&link, existing, None).is_err());
        }
        assert_eq!(fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn a_record_named_by_its_run_overwrites_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        fs::write(&path, "").unwrap();
        let error = create(&path, Existing::Refuse, None).unwrap_err();
        assert!(matches!(error, CreateError::File { .. }), "{error}");
    }

    #[test]
    fn a_named_record_replaces_a_record_but_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let old = r#"{"time_unix_nano":1,"opensafe.run.id":"7f3k2aaa","opensafe.event":"run.start","more":1}"#;
        fs::write(&path, format!("{old}\n{{}}\n")).unwrap();
        create(&path, Existing::Replace, None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");

        fs::write(&path, "fn main() {}").unwrap();
        let error = create(&path, Existing::Replace, None).unwrap_err();
        assert!(matches!(error, CreateError::NotARecord { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"fn main() {}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [fifo.as_path(), dir.path(), Path::new("/dev/null")] {
            let error = create(path, Existing::Replace, None).unwrap_err();
            assert!(matches!(error, CreateError::NotRegular { .. }), "{error}");
        }
    }

    #[test]
    fn a_privileged_writer_reaches_nothing_that_the_owner_could_not() {
        if !Uid::effective().is_root() {
            eprintln!("skipped: takes root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner {
            uid: 65534,
            gid: 65534,
        };
        let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("ours"));
        fs::create_dir(&theirs).unwrap();
        fs::create_dir(&ours).unwrap();
        fs::set_permissions(
            dir.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        std::os::unix::fs::chown(&theirs, Some(owner.uid), Some(owner.gid)).unwrap();
        symlink(&ours, theirs.join("runs")).unwrap();

        let error =
            create(&theirs.join("runs/r.jsonl"), Existing::Refuse, Some(owner)).unwrap_err();
        assert!(matches!(error, CreateError::File { .. }), "{error}");
        let file = create(&theirs.join("mine/r.jsonl"), Existing::Refuse, Some(owner)).unwrap();
        assert_eq!(file.metadata().unwrap().uid(), owner.uid);
        assert_eq!(file.metadata().unwrap().gid(), owner.gid);
        // Afterwards the thread is itself again.
        create(&ours.join("r.jsonl"), Existing::Refuse, None).unwrap();

        let error = remove(&theirs.join("runs/r.jsonl"), Some(owner)).unwrap_err();
        assert!(matches!(error, RemoveError::File { .. }), "{error}");
        assert!(ours.join("r.jsonl").exists());
        remove(&theirs.join("mine/r.jsonl"), Some(owner)).unwrap();
        assert!(!theirs.join("mine/r.jsonl").exists());
    }
}
