//! Patches as Codex writes them: `*** Begin Patch`, then files that are added, deleted or updated.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

/// Applies a patch to the files below `directory`; returns the files' names.
pub(crate) fn apply(patch: &str, directory: &Path) -> Result<String> {
    let mut lines = patch.lines().peekable();
    if lines.next().map(str::trim) != Some("*** Begin Patch") {
        bail!("not a patch");
    }
    let mut done = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim() == "*** End Patch" {
            return Ok(done.join("\n"));
        }
        let mut body = Vec::new();
        while let Some(next) = lines.next_if(|next| !next.starts_with("*** ")) {
            body.push(next);
        }
        let place = |name: &str| directory.join(name.trim());
        if let Some(name) = line.strip_prefix("*** Add File: ") {
            let text: String = body
                .iter()
                .filter_map(|line| line.strip_prefix('+'))
                .flat_map(|line| [line, "\n"])
                .collect();
            let file = place(name);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
            }
            fs::write(&file, text).with_context(|| file.display().to_string())?;
            done.push(format!("A {name}"));
        } else if let Some(name) = line.strip_prefix("*** Delete File: ") {
            let file = place(name);
            fs::remove_file(&file).with_context(|| file.display().to_string())?;
            done.push(format!("D {name}"));
        } else if let Some(name) = line.strip_prefix("*** Update File: ") {
            let file = place(name);
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let text = updated(&text, &body).with_context(|| file.display().to_string())?;
            fs::write(&file, text).with_context(|| file.display().to_string())?;
            done.push(format!("M {name}"));
        } else {
            bail!("not a line of a patch: {line}");
        }
    }
    bail!("the patch has no end")
}

/// A file's text after its hunks, each of which begins with `@@`.
fn updated(text: &str, body: &[&str]) -> Result<String> {
    let mut text = text.to_owned();
    for hunk in body.split(|line| line.starts_with("@@")) {
        let side = |other: char| -> String {
            hunk.iter()
                .filter(|line| !line.starts_with(other))
                .flat_map(|line| [line.get(1..).unwrap_or_default(), "\n"])
                .collect()
        };
        let (old, new) = (side('+'), side('-'));
        if !text.contains(&old) {
            bail!("does not contain the lines to be changed");
        }
        text = text.replacen(&old, &new, 1);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_added_changed_and_deleted() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(file("a"), "1\n2\n3\n").unwrap();
        fs::write(file("b"), "").unwrap();
        let patch = "*** Begin Patch\n*** Add File: c/d\n+x\n+\n*** Update File: a\n@@\n 1\n-2\n+two\n*** Delete File: b\n*** End Patch";
        assert_eq!(apply(patch, folder.path()).unwrap(), "A c/d\nM a\nD b");
        assert_eq!(fs::read_to_string(file("c/d")).unwrap(), "x\n\n");
        assert_eq!(fs::read_to_string(file("a")).unwrap(), "1\ntwo\n3\n");
        assert!(!file("b").exists());
        assert!(apply("*** Begin Patch\n", folder.path()).is_err());
    }
}
