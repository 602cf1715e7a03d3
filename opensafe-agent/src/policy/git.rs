//! The Git directories that a sandbox's workspace belongs to.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directories in which Git keeps the repository that `workspace` is or is part of, as they are
/// now: one, or two for a linked work tree, or none.
///
/// A policy opens them for writing, so what a `.git` file says is believed only if the repository says
/// the same: an agent can write the one, not the other.
pub(super) fn directories(workspace: &Path, home: &Path) -> Vec<PathBuf> {
    for directory in workspace.ancestors() {
        // A home directory under version control is not the repository of all that lies in it.
        if directory == home && directory != workspace || directory.parent().is_none() {
            break;
        }
        let git = directory.join(".git");
        let Ok(kind) = fs::symlink_metadata(&git) else {
            continue;
        };
        return if kind.is_dir() && git.join("HEAD").exists() {
            vec![git]
        } else if kind.is_file() {
            linked(&git).or_else(|| submodule(&git)).unwrap_or_default()
        } else {
            Vec::new()
        };
    }
    Vec::new()
}

/// The work tree's own directory and the repository's, from a `.git` file, `gitdir: PATH`.
fn linked(file: &Path) -> Option<Vec<PathBuf>> {
    let own = path_in(file, b"gitdir: ")?;
    let back = path_in(&own.join("gitdir"), b"")?;
    if back != fs::canonicalize(file).ok()? {
        return None;
    }
    let common = path_in(&own.join("commondir"), b"")?;
    let is_inside = own.starts_with(common.join("worktrees"));
    (is_inside && common.join("HEAD").exists()).then(|| vec![own, common])
}

/// A submodule's own directory, below that of the repository that it is part of; its configuration says
/// where its work tree is.
fn submodule(file: &Path) -> Option<Vec<PathBuf>> {
    let own = path_in(file, b"gitdir: ")?;
    let config = fs::read(own.join("config")).ok()?;
    let tree = config
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.trim_ascii().strip_prefix(b"worktree = "))?;
    let tree = own.join(std::ffi::OsStr::from_bytes(tree));
    let is_this = fs::canonicalize(tree).ok()? == fs::canonicalize(file.parent()?).ok()?;
    let is_inside = own
        .ancestors()
        .any(|above| above.ends_with("modules") && above.with_file_name("HEAD").exists());
    (is_this && is_inside && own.join("HEAD").exists()).then(|| vec![own])
}

/// The path that a file of one line holds after `prefix`, followed to where it leads.
fn path_in(file: &Path, prefix: &[u8]) -> Option<PathBuf> {
    let line = fs::read(file).ok()?;
    let path = line.strip_prefix(prefix)?.trim_ascii_end();
    let path = file.parent()?.join(std::ffi::OsStr::from_bytes(path));
    fs::canonicalize(path).ok()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn repository(at: &Path) -> PathBuf {
        let git = at.join(".git");
        fs::create_dir_all(&git).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        git
    }

    #[test]
    fn a_part_of_a_repository_belongs_to_it() {
        let root = TempDir::new().unwrap();
        let git = repository(root.path());
        let part = root.path().join("a/b");
        fs::create_dir_all(&part).unwrap();
        let home = Path::new("/home/me");
        for inside in [root.path(), &part] {
            assert_eq!(directories(inside, home), std::slice::from_ref(&git));
        }
        assert!(directories(&part, root.path()).is_empty());
    }

    #[test]
    fn a_git_file_is_believed_only_if_the_repository_agrees() {
        let root = TempDir::new().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let git = repository(&root.join("main"));
        let own = git.join("worktrees/x");
        let tree = root.join("tree");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&tree).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        let home = Path::new("/home/me");
        assert!(directories(&tree, home).is_empty());
        fs::write(own.join("gitdir"), format!("{}/.git\n", tree.display())).unwrap();
        assert_eq!(directories(&tree, home), [own, git]);
        fs::write(tree.join(".git"), "gitdir: /etc\n").unwrap();
        assert!(directories(&tree, home).is_empty());
    }

    #[test]
    fn a_submodule_is_believed_only_if_its_configuration_agrees() {
        let root = TempDir::new().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let own = repository(&root).join("modules/lib/x");
        let tree = root.join("lib/x");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&tree).unwrap();
        fs::write(own.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(tree.join(".git"), "gitdir: ../../.git/modules/lib/x\n").unwrap();
        let home = Path::new("/home/me");
        let config =
            |tree: &str| fs::write(own.join("config"), format!("[core]\n\tworktree = {tree}\n"));
        config("../../../../other").unwrap();
        assert!(directories(&tree, home).is_empty());
        config("../../../../lib/x").unwrap();
        assert_eq!(directories(&tree, home), std::slice::from_ref(&own));
    }
}
