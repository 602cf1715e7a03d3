//! The guests' root: a Debian with what agents, sandboxes and tests use, one image for all kernels.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{KEYRING, debian};
use crate::{
    repo::{self, say},
    run::quietly,
};

const SUITE: &str = "trixie";
const PACKAGES: &[&str] = &[
    // a usual host
    "bash",
    "passwd",
    "sudo",
    "util-linux",
    "procps",
    "psmisc",
    "kmod",
    "iproute2",
    "ca-certificates",
    "file",
    "less",
    "acl",
    "attr",
    "libcap2-bin",
    // an agent's tools
    "git",
    "curl",
    "jq",
    "make",
    "gcc",
    "libc6-dev",
    "python3",
    "python3-venv",
    "strace",
    "socat",
    "netcat-openbsd",
    // sandboxes
    "bubblewrap",
    "crun",
];
/// What a guest has no use for.
const LEFT_OUT: &[&str] = &[
    "/usr/share/man/*",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
];
const FINISH: &str = include_str!("../../guest/root.sh");
/// After this time, an image of an older recipe is deleted.
const KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// The image, made if it is not there for this recipe.
pub(super) fn image() -> Result<PathBuf> {
    let folder = repo::vm().join("root");
    let recipe = repo::fingerprint(&[
        SUITE.as_bytes(),
        PACKAGES.join(" ").as_bytes(),
        LEFT_OUT.join(" ").as_bytes(),
        FINISH.as_bytes(),
    ]);
    let image = folder.join(format!("{recipe}.img"));
    if image.exists() {
        return Ok(image);
    }
    let _alone = repo::lock(&folder.join("lock"))?;
    if !image.exists() {
        say(format_args!(
            "making the guests' root, Debian {SUITE} (a minute or two, once)"
        ));
        let unfinished = folder.join(format!("{recipe}.unfinished"));
        make(&folder, &unfinished)?;
        fs::rename(&unfinished, &image).with_context(|| image.display().to_string())?;
        forget_old(&folder, &image);
    }
    Ok(image)
}

fn make(folder: &Path, image: &Path) -> Result<()> {
    let script = folder.join("finish.sh");
    repo::write_if_changed(&script, FINISH.as_bytes())?;
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--components=main", "--format=null"]);
    command.arg(format!("--include={}", PACKAGES.join(",")));
    for path in LEFT_OUT {
        command.arg(format!("--dpkgopt=path-exclude={path}"));
    }
    for option in debian::download_options() {
        command.arg(format!("--aptopt={option}"));
    }
    command
        .arg(format!(
            "--customize-hook=sh '{}' \"$1\" '{}'",
            script.display(),
            image.display()
        ))
        .args([SUITE, "/dev/null"])
        .arg(format!(
            "deb [signed-by={KEYRING}] {} {SUITE} main",
            debian::mirror()
        ));
    quietly(&mut command).context("the guests' root could not be made")?;
    Ok(())
}

/// Deletes images of older recipes that nobody made lately. A guest that still runs on one keeps it until it ends.
fn forget_old(folder: &Path, current: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let old = || Some(fs::metadata(&path).ok()?.modified().ok()?.elapsed().ok()? > KEPT);
        if path.extension().is_some_and(|kind| kind == "img")
            && path != current
            && old() == Some(true)
        {
            let _ = fs::remove_file(&path);
        }
    }
}
