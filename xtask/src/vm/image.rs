//! File system images made of directories, without mounting anything.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::run::{find, quietly};

/// Writes an ext4 image that holds what `directory` holds; it is sparse, so a generous size costs nothing.
pub(super) fn ext4(directory: &Path, image: &Path) -> Result<()> {
    let Usage { bytes, files } = usage(directory)?;
    let size = bytes + bytes / 16 + files * 512 + (16 << 20);
    let mkfs = find("mkfs.ext4").context("mkfs.ext4 is missing")?;
    File::create(image)
        .and_then(|file| file.set_len(size.next_multiple_of(4096)))
        .with_context(|| image.display().to_string())?;
    quietly(
        Command::new(mkfs)
            .args([
                "-q",
                "-F",
                "-m",
                "0",
                "-b",
                "4096",
                "-O",
                "^has_journal,^resize_inode",
            ])
            .args([
                "-E",
                "lazy_itable_init=0",
                "-N",
                &(files + 64).to_string(),
                "-d",
            ])
            .arg(directory)
            .arg(image),
    )
    .with_context(|| format!("an image of {}", directory.display()))?;
    // What is in the image is what is in the directory.
    let debugfs = find("debugfs").context("debugfs is missing")?;
    quietly(
        Command::new(debugfs)
            .args(["-w", "-R", "rmdir lost+found"])
            .arg(image),
    )
    .map(drop)
}

#[derive(Default)]
struct Usage {
    bytes: u64,
    files: u64,
}

/// What the files below a directory take in blocks of 4 KiB.
fn usage(directory: &Path) -> Result<Usage> {
    let mut usage = Usage::default();
    let mut todo = vec![directory.to_path_buf()];
    while let Some(directory) = todo.pop() {
        let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let entry = entry.with_context(|| directory.display().to_string())?;
            let meta = entry
                .metadata()
                .with_context(|| entry.path().display().to_string())?;
            usage.files += 1;
            usage.bytes += meta.len().next_multiple_of(4096).max(4096);
            if meta.is_dir() {
                todo.push(entry.path());
            }
        }
    }
    Ok(usage)
}
