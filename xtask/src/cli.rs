//! What one can type after `cargo xtask`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Set-up, build, test, guests, demo and benchmarks of OpenSafe.
///
/// Each command does whatever set-up it still needs and says what it is doing.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Install what building and testing need: the eBPF toolchain, qemu and the tools that make guests
    Setup,
    /// Build the kernel programs, then the agent and the test helpers, all static
    Build,
    /// Run a command as root in a guest with its own kernel and a Debian root
    Vm(VmArgs),
    /// Run every test: format, lints, unit tests, policies, and the scenarios in guests
    Test(TestArgs),
    /// Run an honest and a misled agent session under OpenSafe and show both records
    Demo,
    /// Measure what OpenSafe costs, in a guest that counts instructions
    Bench(BenchArgs),
    /// Have many processes try what is closed while their policy changes and opensafe is killed and replaced, in a guest
    Soak(SoakArgs),
    /// Join standard input and output to a port of this machine; guests' connections come through here
    #[command(hide = true)]
    Relay { port: u16 },
}

/// A guest has no network but its loopback. Its output is streamed, the command's exit status is passed on, and 125
/// means that the guest ended before its command did.
///
/// Examples:
///   cargo xtask vm -- opensafe doctor
///   cargo xtask vm --kernel all -- uname -r
///   cargo xtask vm --share tests --out results -- sh -c 'ls /share/tests >/out/list'
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct VmArgs {
    /// 6.1, 6.12, 7.2, all three (`all`), or the path of a kernel image or of an unpacked kernel package
    #[arg(long, default_value = "6.12", value_name = "KERNEL")]
    pub(crate) kernel: String,
    /// Make a copy of this directory readable at /share/<its name>; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(crate) share: Vec<PathBuf>,
    /// Where what the command left in /out is put [default: target/vm/out]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Add this to the kernel's command line
    #[arg(
        long,
        default_value = "",
        value_name = "WORDS",
        allow_hyphen_values = true
    )]
    pub(crate) cmdline: String,
    /// Count instructions instead of time: one processor, and the same work takes the same time in every run
    #[arg(long)]
    pub(crate) icount: bool,
    /// The guest's memory
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    pub(crate) memory: u32,
    /// The guest's processors [default: 2; 1 with --icount]
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<u32>,
    /// Stop the guest after this time, with exit status 124
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Let the guest connect to this port of this machine's loopback, as `host:N`; may be given several times
    #[arg(long, value_name = "N")]
    pub(crate) port: Vec<u16>,
    /// Take the agent and helpers as they were last built
    #[arg(long)]
    pub(crate) no_build: bool,
    /// The command, run by root in an empty directory
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Args)]
pub(crate) struct TestArgs {
    /// Run the scenarios on these kernels only; may be given several times [default: all three]
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Vec<String>,
    /// Run this stage only: format, lints, units, policies, sessions, trajectories, scenarios or soak; may be given several
    /// times
    #[arg(long, value_name = "STAGE")]
    pub(crate) only: Vec<String>,
    /// Run every scenario on every kernel (some ten minutes more); else what a kernel makes no difference to runs on one
    #[arg(long)]
    pub(crate) whole: bool,
}

#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Write the figures into this file as well
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Measure on these kernels only; may be given several times [default: all three]
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Vec<String>,
}

/// 64 processes open, run and connect to what is open and what is closed. Meanwhile the policy changes every second, opensafe is
/// killed every 20 seconds and another file of it takes the run over every minute. It is said of each claim whether it held, then
/// what was counted.
#[derive(Args)]
pub(crate) struct SoakArgs {
    /// How long
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub(crate) minutes: u64,
    /// On which kernel
    #[arg(long, default_value = "6.12", value_name = "KERNEL")]
    pub(crate) kernel: String,
    /// How long each process pauses between two rounds; 0: not at all, and then much is lost, and counted
    #[arg(long, default_value_t = 150, value_name = "MS")]
    pub(crate) pace_ms: u64,
    /// How often opensafe is killed: with 1500, a thousand times in half an hour
    #[arg(long, default_value_t = 20_000, value_name = "MS")]
    pub(crate) kill_ms: u64,
    /// What is different from one soak to the next
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// The guest's memory, which its record goes into: some 200 MiB a minute at the pace that is not asked for
    #[arg(long, default_value_t = 8192, value_name = "MIB")]
    pub(crate) memory: u32,
    /// Write the figures into this file as well
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
