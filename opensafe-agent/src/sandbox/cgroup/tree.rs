//! The directories below a cgroup: gone through and removed by descriptors, however deep they are.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat},
    io::Errno,
    path::Arg,
};

/// How a directory is opened.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens the directory of that name, not one that a link leads to.
pub(super) fn directory_at(parent: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    openat(parent, name, DIRECTORY, Mode::empty())
}

/// One that is gone already is as good as removed.
pub(super) fn remove_at(parent: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// Goes to every directory below one, those further down first, and tells each by its parent and its name. However deep
/// they are, no more than three are open at a time, and no name gets longer.
pub(super) fn each_below(
    top: impl AsFd,
    mut leave: impl FnMut(&OwnedFd, &CString) -> rustix::io::Result<()>,
) -> io::Result<()> {
    let mut at = directory_at(top, ".")?;
    let mut way: Vec<CString> = Vec::new();
    // Of each directory on the way, what is in it and was not gone to yet.
    let mut ahead = vec![children(&at)?];
    while let Some(here) = ahead.last_mut() {
        match here.pop() {
            Some(name) => match directory_at(&at, &name) {
                Ok(below) => {
                    ahead.push(children(&below)?);
                    way.push(name);
                    at = below;
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            },
            None => {
                ahead.pop();
                if let Some(name) = way.pop() {
                    at = directory_at(&at, "..")?;
                    leave(&at, &name)?;
                }
            }
        }
    }
    Ok(())
}

fn children(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_itself = matches!(name.to_bytes(), b"." | b"..");
        if entry.file_type() == FileType::Directory && !is_itself {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{mkdirat, open};

    use super::*;

    #[test]
    fn directories_are_left_before_the_one_they_are_in_however_deep() {
        // Longer than a path may be, and deeper than descriptors would last.
        const DEPTH: usize = 3000;
        let folder = tempfile::tempdir().unwrap();
        let top = open(folder.path(), DIRECTORY, Mode::empty()).unwrap();
        let mode = Mode::from_raw_mode(0o755);
        for name in ["a", "b", "b/c", "b/d"] {
            mkdirat(&top, name, mode).unwrap();
        }
        let mut at = directory_at(&top, "a").unwrap();
        for _ in 1..DEPTH {
            mkdirat(&at, "deep", mode).unwrap();
            at = directory_at(&at, "deep").unwrap();
        }
        std::fs::write(folder.path().join("b/file"), "").unwrap();
        let mut left = Vec::new();
        each_below(&top, |_, name| {
            left.push(name.clone());
            Ok(())
        })
        .unwrap();
        assert_eq!(left.len(), DEPTH + 3);
        let place = |wanted: &str| {
            let is_it = |name: &CString| name.as_bytes() == wanted.as_bytes();
            left.iter().position(is_it).unwrap()
        };
        assert!(place("c") < place("b") && place("d") < place("b"));
        assert!(place("deep") < place("a"));
        // What is not empty stays, and says so.
        let error = each_below(&top, |parent, name| remove_at(parent, name)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        std::fs::remove_file(folder.path().join("b/file")).unwrap();
        each_below(&top, |parent, name| remove_at(parent, name)).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_gone_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let top = open(folder.path(), DIRECTORY, Mode::empty()).unwrap();
        remove_at(&top, "nothing").unwrap();
    }
}
