//! `cargo xtask demo`: an honest and a misled agent session, side by side.

use std::process::ExitCode;

use anyhow::{Result, bail};

pub(crate) fn command() -> Result<ExitCode> {
    bail!("the demo is not there yet");
}
