//! `opensafe policy` and what is below it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::{PolicyArg, SandboxArgs};
use crate::cli::help;

/// `opensafe policy`.
#[derive(Clone, Debug, Subcommand)]
pub enum PolicyCommand {
    /// Give a run that goes on another policy
    ///
    /// The policy is evaluated for the run's sandbox, and takes the place of the one in force at one instant: each operation
    /// is decided by the one or by the other. What is open stays open. A policy that is not fit leaves the one before, and
    /// so does whatever else goes wrong. Takes root.
    Apply(PolicyApplyArgs),

    /// Say whether a policy is fit to be enforced
    ///
    /// Loads it and evaluates it for a sandbox like the one `opensafe run` would make here. Needs no
    /// privileges, and starts nothing.
    Check(PolicyCheckArgs),

    /// Show the rules that a sandbox would get
    Rules(PolicyRulesArgs),

    /// Run a policy's tests
    ///
    /// Runs every rule whose name starts with `test_`, those of `*_test.rego` files too, as `opa test`
    /// does. One whose name starts with `todo_test_` is left out.
    Test(PolicyTestArgs),
}

/// `opensafe policy apply`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::POLICY_APPLY)]
pub struct PolicyApplyArgs {
    /// A run that goes on: its id or the first characters of it, or its record's path
    #[arg(value_name = "RUN", value_hint = ValueHint::FilePath)]
    pub run: PathBuf,

    /// The policy
    #[command(flatten)]
    pub policy: PolicyArg,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `opensafe policy check`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::POLICY_CHECK)]
pub struct PolicyCheckArgs {
    /// The policy
    #[command(flatten)]
    pub policy: PolicyArg,

    /// The sandbox
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// `opensafe policy rules`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::POLICY_RULES)]
pub struct PolicyRulesArgs {
    /// The policy
    #[command(flatten)]
    pub policy: PolicyArg,

    /// The sandbox
    #[command(flatten)]
    pub sandbox: SandboxArgs,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `opensafe policy test`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::POLICY_TEST)]
pub struct PolicyTestArgs {
    /// The policy
    #[command(flatten)]
    pub policy: PolicyArg,

    /// Print one JSON object a test
    #[arg(long)]
    pub json: bool,
}
