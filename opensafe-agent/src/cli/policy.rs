//! `opensafe policy`: looks at policies without enforcing them.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use super::{Advise as _, args::PolicyCommand};

/// Where policies that ship with OpenSafe are installed.
const SHIPPED: &str = "/usr/share/opensafe/policies";

/// The policy that holds where none is named.
const DEFAULT: &str = "default";

/// Where the policies that `named` means are: each a path, or the name of one that ships with
/// OpenSafe. A name without a slash is a path if there is something of that name here.
///
/// # Errors
/// If there is neither a file, a directory nor a shipped policy of a name.
pub fn sources(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let shipped = env::var_os("OPENSAFE_POLICIES").map_or_else(|| SHIPPED.into(), PathBuf::from);
    let default = [PathBuf::from(DEFAULT)];
    let named = if named.is_empty() { &default } else { named };
    named.iter().map(|name| source(name, &shipped)).collect()
}

fn source(name: &Path, shipped: &Path) -> anyhow::Result<PathBuf> {
    if name.exists() {
        return Ok(name.to_owned());
    }
    let no_such = || Err(anyhow::anyhow!("there is no policy {}", name.display()));
    if name.components().count() != 1 || name.has_root() {
        return no_such().advise("name a Rego file or a directory of them");
    }
    let inside = shipped.join(name);
    if inside.exists() {
        Ok(inside)
    } else {
        no_such().advise(format_args!(
            "neither is it here, nor in {}",
            shipped.display()
        ))
    }
}

pub(super) fn policy(command: &PolicyCommand) -> anyhow::Result<ExitCode> {
    match command {
        PolicyCommand::Check(args) => sources(&args.policy.policy)?,
        PolicyCommand::Rules(args) => sources(&args.policy.policy)?,
        PolicyCommand::Test(args) => sources(&args.policy.policy)?,
    };
    Err(anyhow::anyhow!("this build cannot evaluate policies yet"))
}
