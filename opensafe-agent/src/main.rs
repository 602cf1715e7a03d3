//! The command `opensafe`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use opensafe_agent::cli;

fn main() -> ExitCode {
    cli::dispatch(cli::parse())
}
