//! `opensafe doctor`.

use std::process::ExitCode;

use super::args::DoctorArgs;

pub(super) fn doctor(_args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("doctor")
}
