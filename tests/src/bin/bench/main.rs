//! What runs in the guest for `cargo xtask bench`. Not for people.
//!
//! ```text
//! bench count   alternates rounds of operations with and without OpenSafe; writes figures
//! bench time    times whole runs by the clock; writes figures
//! bench worker  does operations when told to on its standard input
//! ```

mod count;
mod operation;
mod policy;
mod sandbox;
mod time;
mod worker;

use std::{fs, process::ExitCode};

use anyhow::{Context as _, Result, bail};

/// Where figures go: the guest's way out.
const FIGURES: &str = "/out/figures.json";

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).unwrap_or_default();
    match run(&mode) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(mode: &str) -> Result<()> {
    let figures = match mode {
        "worker" => return worker::serve(),
        "count" => count::figures()?,
        "time" => time::figures()?,
        other => bail!("no mode {other:?}: count, time or worker"),
    };
    fs::write(FIGURES, figures.to_string()).context(FIGURES)
}
