use crate::cli::TestArgs;
use anyhow::{Result, bail};
use std::process::ExitCode;
pub(crate) fn command(args: &TestArgs) -> Result<ExitCode> {
    let _ = (&args.kernel, &args.only);
    bail!("not yet");
}
