//! Running other programs, with errors that name them.

use std::{
    env,
    ffi::OsStr,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// Runs it and wants success; its output goes where this program's error output goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command
        .stdout(std::io::stderr())
        .status()
        .with_context(|| shown.clone())?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs it and wants success; its output is kept, and shown when it fails.
pub(crate) fn quietly(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| shown.clone())?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    if !status.success() {
        bail!(
            "{shown}: {status}\n{stdout}{}",
            String::from_utf8_lossy(&stderr)
        );
    }
    Ok(stdout)
}

/// Runs it and wants success; its output is kept, its error output goes to the person.
pub(crate) fn stdout(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| shown.clone())?;
    if !output.status.success() {
        bail!("{shown}: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The line a person would type for it, cut where it grows long.
fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    let line = words.join(" ");
    if line.chars().count() <= 160 {
        line
    } else {
        line.chars().take(160).chain("…".chars()).collect()
    }
}

/// A program on PATH, or where administrators' programs are.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| {
            file.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// `cargo`, as this program was started by it, without what that put into the environment for this program alone.
pub(crate) fn cargo() -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    clean(&mut command);
    command.current_dir(crate::repo::root());
    command
}

/// Takes away what an outer cargo or rustup set; settings of the user's (proxies, registries, jobs) stay.
pub(crate) fn clean(command: &mut Command) {
    const USERS: &[&str] = &[
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
        "CARGO_BUILD_JOBS",
    ];
    const OURS: &[&str] = &[
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "LD_LIBRARY_PATH",
    ];
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let outer = name == "CARGO"
            || name.starts_with("CARGO_") && !USERS.iter().any(|user| name.starts_with(user));
        if outer || OURS.contains(&&*name) {
            command.env_remove(&*name);
        }
    }
}
