//! Where things are, and how this program speaks.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Where builds go.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// Where kernels, roots and runs of guests are kept. `OPENSAFE_VM_DIR` puts it elsewhere, so that several checkouts
/// share one.
pub(crate) fn vm() -> PathBuf {
    let chosen = std::env::var_os("OPENSAFE_VM_DIR").map(PathBuf::from);
    chosen
        .and_then(|chosen| std::path::absolute(chosen).ok())
        .unwrap_or_else(|| target().join("vm"))
}

/// A line of progress for a person.
pub(crate) fn say(line: impl std::fmt::Display) {
    eprintln!("xtask: {line}");
}

/// Held until dropped: nobody else makes what `path` names meanwhile, in this process or another.
pub(crate) fn lock(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    let lock = File::create(path).with_context(|| path.display().to_string())?;
    match lock.try_lock() {
        Ok(()) => return Ok(lock),
        Err(TryLockError::WouldBlock) => {
            say(format_args!("waiting for whoever holds {}", path.display()));
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| path.display().to_string());
        }
    }
    lock.lock().with_context(|| path.display().to_string())?;
    Ok(lock)
}

/// A name for a recipe: FNV-1a over its parts, the same on every machine and day.
pub(crate) fn fingerprint(parts: &[&[u8]]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// Writes a file as a whole or not at all, and not when it would stay the same.
pub(crate) fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&unfinished, bytes).with_context(|| unfinished.display().to_string())?;
    fs::rename(&unfinished, path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn a_fingerprint_tells_where_one_part_ends() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
        assert_eq!(fingerprint(&[b"ab"]), fingerprint(&[b"ab"]));
    }
}
