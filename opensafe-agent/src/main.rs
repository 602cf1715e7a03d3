//! The command `opensafe`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use opensafe_agent::{
    boundary, cli, kernel,
    sandbox::{alert, canary, stage},
};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == stage::ENTER => stage::enter(rest),
        Some((first, rest)) if first == alert::ALERT => alert::deliver(rest),
        Some((first, rest)) if first == kernel::LET_GO => {
            kernel::let_go(rest);
            ExitCode::SUCCESS
        }
        Some((first, rest)) if first == canary::TRY => canary::try_all(rest),
        Some((first, rest)) if first == boundary::ATTEMPT => boundary::inside(rest),
        _ => cli::dispatch(cli::parse()),
    }
}
