//! What a person can type. Doc comments here are the help, the man pages and the completions.

mod event;
mod policy;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use jiff::{Span, SpanRelativeTo};

use super::help;
use crate::{
    boundary::{Kind, Runtime},
    run::{Mode, RunId},
};
pub use event::EventName;
pub use policy::{
    PolicyApplyArgs, PolicyCheckArgs, PolicyCommand, PolicyRulesArgs, PolicyTestArgs,
};

/// Run AI agents in a sandbox whose policy the kernel enforces
///
/// OpenSafe holds a command, and everything it starts, to a policy written in Rego. The kernel itself
/// allows or denies what it runs, what it does to files, whom it contacts, and what it does to other
/// processes, to mounts and to the kernel; every denial is shown and put on record, with the rule that
/// made it.
#[derive(Debug, Parser)]
#[command(
    name = "opensafe",
    version,
    long_version = help::LONG_VERSION,
    styles = help::STYLES,
    after_help = help::SEE_ALSO,
    after_long_help = help::OPENSAFE,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    /// When to use colour: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    pub color: Color,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal
    Auto,
    /// Also in a pipe or a file
    Always,
    /// Not at all
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command in a sandbox
    ///
    /// A cgroup is made and armed before the command's first instruction. The command, and everything it
    /// starts, is held to the policy; what the policy denies fails with `Permission denied` (EACCES). Its
    /// terminal, job control, signals and exit status pass through as if it ran alone.
    ///
    /// Denials are shown on standard error, one line each, and every event is put on record. At the end
    /// a summary says what was run, touched, contacted and denied, and the cgroup is removed with
    /// whatever is left in it.
    Run(RunArgs),

    /// Show what happened in a run
    ///
    /// Shows a run's record as a table: when, what, the verdict, on which object, by whom, by which rule.
    Events(EventsArgs),

    /// Attend to a run again, after the opensafe that did was killed, or take it over
    ///
    /// Its processes were confined all the time. What they did meanwhile goes on record now, as far as there was room for it,
    /// with how long nobody attended to it and how many events were lost. From then on this is as 'opensafe run': it ends when
    /// the command does, passes signals on, and exits as the command does.
    ///
    /// With --take-over a new version takes the place of the one that runs, without stopping the command: enforcement goes on,
    /// and no event is lost.
    #[command(after_long_help = help::ADOPT)]
    Adopt(AdoptArgs),

    /// List the runs on record, or delete old records
    Runs(RunsArgs),

    /// Stop all processes of a run where they are
    ///
    /// What they were about to do waits until 'opensafe thaw' lets them go on, or 'opensafe kill' ends them. What has
    /// left the sandbox's cgroup, as root inside can, does not stop.
    #[command(after_long_help = help::FREEZE)]
    Freeze(ControlArgs),

    /// Let a run go on that was frozen, by a response of its policy or by 'opensafe freeze'
    #[command(after_long_help = help::THAW)]
    Thaw(ControlArgs),

    /// End all processes of a run, frozen or not
    ///
    /// 'opensafe run' then puts the end on record and exits as for a command that SIGKILL has ended.
    #[command(after_long_help = help::KILL)]
    Kill(ControlArgs),

    /// Say what this host can enforce
    ///
    /// Finds out by doing it: programs are loaded into the kernel and a canary is denied, operation by
    /// operation. What is missing is said, and how to get it.
    Doctor(DoctorArgs),

    /// Try whether anything gets out of a sandbox here
    #[command(subcommand, arg_required_else_help = true)]
    Boundary(BoundaryCommand),

    /// Check, show, test and apply policies
    #[command(subcommand, arg_required_else_help = true)]
    Policy(PolicyCommand),

    /// Print a shell's completions
    #[command(after_long_help = help::COMPLETIONS)]
    Completions(CompletionsArgs),

    /// Print the manual
    ///
    /// Prints the page `opensafe(1)`, or writes a page for every command.
    #[command(after_long_help = help::MAN)]
    Man(ManArgs),
}

/// `opensafe adopt`.
#[derive(Clone, Debug, Args)]
pub struct AdoptArgs {
    /// The run's id
    #[arg(value_name = "RUN")]
    pub run: RunId,

    /// Take it over if another opensafe attends to it; that one then only waits for the command
    #[arg(long)]
    pub take_over: bool,

    /// Show nothing but trouble
    #[arg(short, long)]
    pub quiet: bool,

    /// Show events as the record's lines
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
}

/// `opensafe run`.
#[derive(Clone, Debug, Args)]
#[command(
    after_long_help = help::RUN,
    override_usage = "opensafe run [OPTIONS] [--] COMMAND [ARGUMENT]..."
)]
pub struct RunArgs {
    /// Policy to hold the command to; may be given more than once
    ///
    /// A Rego file, a directory of them, or the name of a policy that ships with OpenSafe, such as
    /// `coding-agent`.
    #[arg(
        short,
        long,
        value_name = "DIR|FILE|NAME",
        default_value = "default",
        value_hint = ValueHint::AnyPath
    )]
    pub policy: Vec<PathBuf>,

    /// What becomes of denials
    #[arg(short, long, value_name = "MODE", default_value = "enforce")]
    pub mode: Mode,

    /// Start even if this host cannot enforce everything the policy asks for
    ///
    /// What is not enforced is listed at the start and in the record.
    #[arg(long)]
    pub partial: bool,

    /// The agent's name, in the policy's input and on record [default: the command's name]
    #[arg(short, long, value_name = "NAME")]
    pub agent: Option<String>,

    /// The directory that the agent works on [default: the current directory]
    ///
    /// Policies know it as `input.workspace`.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,

    /// The user to run the command as [default: who called, also through sudo]
    #[arg(short, long, value_name = "USER", value_hint = ValueHint::Username)]
    pub user: Option<String>,

    /// Where to write the record [default: $XDG_STATE_HOME/opensafe/runs/ID.jsonl]
    ///
    /// An existing record is overwritten, any other file is not.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,

    /// Show nothing about the run
    ///
    /// Errors are still shown, and so are alerts and what else the policy has done about an event, and that a record
    /// cannot be written.
    #[arg(short, long)]
    pub quiet: bool,

    /// Show the record's lines on standard error, in place of those for a person
    ///
    /// Standard output is the command's own.
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// `opensafe events`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::EVENTS)]
pub struct EventsArgs {
    /// A record's path, a run's id, or its first characters [default: the latest run]
    #[arg(value_name = "RECORD", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,

    /// Only what was denied, or would have been
    #[arg(short, long)]
    pub denied: bool,

    /// Only these events
    #[arg(short, long, value_name = "EVENT", value_delimiter = ',')]
    pub event: Vec<EventName>,

    /// Print the record's lines as they are
    #[arg(long)]
    pub json: bool,
}

/// `opensafe runs`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::RUNS)]
pub struct RunsArgs {
    /// Only so many, the latest ones; they are listed oldest first
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub last: Option<usize>,

    /// Delete the records of runs that ended longer ago than this: 30d, 12h
    ///
    /// Units are w, d, h, m and s, also together: `1w 12h`. What was deleted is listed, and nothing else. A run that
    /// goes on keeps its record; one that was cut off counts from its record's last change.
    #[arg(long, value_name = "DURATION", value_parser = age, conflicts_with = "last")]
    pub prune: Option<Duration>,

    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// How long ago, as it is typed. A month or a year is not always equally long, and refused.
fn age(typed: &str) -> Result<Duration, &'static str> {
    let span: Option<Span> = typed.parse().ok();
    span.and_then(|span| {
        span.to_duration(SpanRelativeTo::days_are_24_hours())
            .ok()?
            .try_into()
            .ok()
    })
    .ok_or("weeks, days, hours, minutes and seconds are understood, such as 30d or 12h")
}

/// `opensafe freeze`, `opensafe thaw` and `opensafe kill`.
#[derive(Clone, Debug, Args)]
pub struct ControlArgs {
    /// A run that goes on: its id or the first characters of it, or its record's path
    #[arg(value_name = "RUN", value_hint = ValueHint::FilePath)]
    pub run: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `opensafe doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::DOCTOR)]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `opensafe boundary`.
#[derive(Clone, Debug, Subcommand)]
pub enum BoundaryCommand {
    /// Make attempts to get out of a throwaway sandbox
    ///
    /// Over a hundred ways to read, change, run, contact or stop what a policy denies are tried: first outside a
    /// sandbox, where one that does not work says nothing and is left out, then inside one. Each has to fail
    /// there, and to be on record. Then ordinary work is done, which has to pass.
    ///
    /// It does no harm: it works on files of its own in a temporary directory, on processes that it starts, and on
    /// listeners on loopback. Nothing is sent anywhere, and nothing of the host is changed.
    Test(BoundaryTestArgs),

    /// List the gaps of a sandbox, without trying anything
    ///
    /// Reads what is set: the policy, the user and its rights, mounts, the environment's names, limits. Each gap is
    /// shown with how much it matters, why, and how to close it. Without a run, a process or a cgroup it is about
    /// what `opensafe run` would give here.
    Audit(BoundaryAuditArgs),
}

/// `opensafe boundary audit`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::BOUNDARY_AUDIT)]
pub struct BoundaryAuditArgs {
    /// A run that goes on: its id or the first characters of it, or its record's path
    #[arg(value_name = "RUN", value_hint = ValueHint::FilePath)]
    pub run: Option<PathBuf>,

    /// A process in any sandbox, also in one that is not OpenSafe's
    #[arg(long, value_name = "PID", conflicts_with = "run")]
    pub pid: Option<i32>,

    /// A sandbox's cgroup
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["run", "pid"])]
    pub cgroup: Option<PathBuf>,

    /// The policy that holds, or would; may be given more than once [default: the run's; `default` if nothing runs]
    #[arg(short, long, value_name = "DIR|FILE|NAME", value_hint = ValueHint::AnyPath)]
    pub policy: Vec<PathBuf>,

    /// The sandbox, if it does not run
    #[command(flatten)]
    pub sandbox: SandboxArgs,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `opensafe boundary test`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = help::BOUNDARY_TEST)]
pub struct BoundaryTestArgs {
    /// Policy to try; may be given more than once [default: a built-in one]
    ///
    /// Rules about the throwaway files, programs and peers are added to it. Without it, these and a strict
    /// policy around them are what is tried.
    #[arg(short, long, value_name = "DIR|FILE|NAME", value_hint = ValueHint::AnyPath)]
    pub policy: Vec<PathBuf>,

    /// Only these kinds of attempts
    #[arg(long, value_name = "KIND", value_delimiter = ',', num_args = 1..)]
    pub only: Vec<Kind>,

    /// Runtime to make the attempts in: bwrap, crun, runc, or a command line that theirs is appended to
    ///
    /// Outside, they are made in the runtime without OpenSafe: what fails there is stopped by the runtime. Inside,
    /// the runtime is started in the sandbox. It has to show the temporary directory as it is.
    #[arg(long, value_name = "NAME|COMMAND")]
    pub runtime: Option<Runtime>,

    /// List the attempts, and make none
    #[arg(long)]
    pub list: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A policy to look at.
#[derive(Clone, Debug, Args)]
pub struct PolicyArg {
    /// A Rego file, a directory of them, or the name of a policy that ships with OpenSafe
    #[arg(required = true, value_name = "DIR|FILE|NAME", value_hint = ValueHint::AnyPath)]
    pub policy: Vec<PathBuf>,
}

/// A sandbox to evaluate a policy for.
#[derive(Clone, Debug, Args)]
pub struct SandboxArgs {
    /// The directory that the agent works on [default: the current directory]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,

    /// The agent's name [default: agent]
    #[arg(short, long, value_name = "NAME")]
    pub agent: Option<String>,

    /// The user it runs as [default: who called, also through sudo]
    #[arg(short, long, value_name = "USER", value_hint = ValueHint::Username)]
    pub user: Option<String>,
}

/// `opensafe completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `opensafe man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write a page for every command into this directory
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}
