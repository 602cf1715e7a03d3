//! What runs in the guest for `cargo xtask bench`. Not for people.
//!
//! ```text
//! bench count   alternates rounds of operations with and without OpenSafe; prints JSON
//! bench time    times whole runs by the clock; prints JSON
//! bench worker  does operations when told to on its standard input
//! ```

mod count;
mod operation;
mod policy;
mod sandbox;
mod time;
mod worker;

use std::process::ExitCode;

use anyhow::{Result, bail};

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
    println!("{figures}");
    Ok(())
}
