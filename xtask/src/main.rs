//! Set-up, build, test, guests, demo and benchmarks of OpenSafe: `cargo xtask --help`.
#![forbid(unsafe_code)]

mod bench;
mod build;
mod cli;
mod demo;
mod repo;
mod run;
mod setup;
mod soak;
mod test;
mod vm;

use std::process::ExitCode;

use clap::Parser as _;
use cli::{Cli, Command};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Setup => setup::everything().map(|()| ExitCode::SUCCESS),
        Command::Build => build::everything().map(|_| ExitCode::SUCCESS),
        Command::Vm(args) => vm::command(&args),
        Command::Test(args) => test::command(&args),
        Command::Demo => demo::command(),
        Command::Bench(args) => bench::command(&args),
        Command::Soak(args) => soak::command(&args),
        Command::Relay { port } => vm::relay(port).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
