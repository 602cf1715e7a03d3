//! Guests: a kernel under test, a Debian root, what was built, and a command to run.

mod boot;
mod cpio;
mod debian;
mod image;
mod kernel;
mod kvm;
mod root;

use std::{
    fs,
    net::TcpStream,
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};

pub(crate) use kernel::names as kernels;

use crate::{
    build,
    cli::VmArgs,
    repo::{self, say},
    setup,
};

/// The keys that Debian signs its archive with.
pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// So many guests run at once; each keeps about one processor busy.
const SIDE_BY_SIDE: usize = 2;

/// A guest to be run. Start from [`Guest::new`] and change what should differ.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// One of [`kernels`], or a path.
    pub(crate) kernel: String,
    /// What its console is kept by.
    pub(crate) name: String,
    /// What runs, as root in an empty directory.
    pub(crate) command: Vec<String>,
    /// Directories readable at /share/<base name>.
    pub(crate) share: Vec<PathBuf>,
    /// Programs that appear in /share/bin under these names; `opensafe` is also on PATH.
    pub(crate) programs: Vec<(String, PathBuf)>,
    /// Where what the command left in /out is put.
    pub(crate) out: PathBuf,
    /// Words for the kernel.
    pub(crate) cmdline: String,
    /// Whether instructions are counted instead of time.
    pub(crate) icount: bool,
    /// Memory in MiB.
    pub(crate) memory: u32,
    /// Processors; one if instructions are counted.
    pub(crate) cpus: Option<u32>,
    /// Whether it may start again when emulation fails it half-way, as a test may and a command of a person's may not.
    pub(crate) repeatable: bool,
    /// How long it may take, boot included.
    pub(crate) timeout: Duration,
    /// Ports of this machine's loopback that it may connect to, as `host:N`.
    pub(crate) ports: Vec<u16>,
    /// What happens to its output.
    pub(crate) show: Show,
}

/// What happens to a guest's output while it runs. All of standard output is in the [`Outcome`] as well, unless shown
/// as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Byte for byte to standard output and standard error.
    AsItIs,
    /// Line by line, each after this word.
    Lines(String),
    /// Nothing is shown.
    #[allow(dead_code, reason = "for measurements, which are read and not shown")]
    Nothing,
}

/// How a guest's command ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Its exit status as a shell gives it; 124 if the guest was stopped for taking too long.
    pub(crate) status: u8,
    /// Its standard output, unless that was shown as it is.
    pub(crate) stdout: Vec<u8>,
    /// What the kernel said.
    pub(crate) console: PathBuf,
}

impl Guest {
    /// A guest with what was built, as `cargo xtask vm` starts it by default.
    pub(crate) fn new(kernel: &str, built: &build::Built, command: &[&str]) -> Self {
        Self {
            kernel: kernel.into(),
            name: kernel.into(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            share: Vec::new(),
            programs: built
                .programs()
                .map(|(name, file)| (name.to_owned(), file.to_owned()))
                .collect(),
            out: repo::target().join("vm/out").join(kernel),
            cmdline: String::new(),
            icount: false,
            memory: 2048,
            cpus: None,
            repeatable: false,
            timeout: Duration::from_secs(3600),
            ports: Vec::new(),
            show: Show::Lines(kernel.into()),
        }
    }

    /// Boots it, runs its command, and waits for its end. Fetches and makes what that takes.
    pub(crate) fn run(&self) -> Result<Outcome> {
        setup::for_guests()?;
        let kernel = kernel::ready(&self.kernel)?;
        let root = root::image()?;
        boot::run(self, &kernel, &root)
            .with_context(|| format!("guest with kernel {}", self.kernel))
    }
}

/// Does what keeps a guest busy each, a few at a time and the first ones first; the results are in the jobs' order.
pub(crate) fn side_by_side<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let todo = Mutex::new(jobs.iter().enumerate());
    let next = || todo.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || {
        let mut done = Vec::new();
        while let Some((index, job)) = next() {
            done.push((index, run(job)));
        }
        done
    };
    let mut results = thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE.min(jobs.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| {
                let done = worker.join();
                done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect::<Vec<_>>()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// `cargo xtask vm`.
pub(crate) fn command(args: &VmArgs) -> Result<ExitCode> {
    let built = if args.no_build {
        build::last()
    } else {
        build::everything()?
    };
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| repo::target().join("vm/out"));
    if args.out.is_none() && out.exists() {
        fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
    }
    let names: Vec<&str> = if args.kernel == "all" {
        kernels().collect()
    } else {
        vec![&args.kernel]
    };
    let several = names.len() > 1;
    let guests: Vec<Guest> = names
        .iter()
        .map(|kernel| Guest {
            command: args.command.clone(),
            share: args.share.clone(),
            out: if several {
                out.join(kernel)
            } else {
                out.clone()
            },
            cmdline: args.cmdline.clone(),
            icount: args.icount,
            memory: args.memory,
            cpus: args.cpus,
            timeout: Duration::from_secs(args.timeout),
            ports: args.port.clone(),
            show: if several {
                Show::Lines((*kernel).into())
            } else {
                Show::AsItIs
            },
            ..Guest::new(kernel, &built, &[])
        })
        .collect();
    let mut worst = 0;
    for outcome in side_by_side(&guests, Guest::run) {
        let status = outcome.map_or_else(
            |error| {
                say(format_args!("{error:#}"));
                125
            },
            |outcome| outcome.status,
        );
        worst = worst.max(status);
    }
    Ok(ExitCode::from(worst))
}

/// Joins standard input and output to a port of this machine's loopback, as qemu starts it for each connection of a
/// guest's.
pub(crate) fn relay(port: u16) -> Result<()> {
    let stream =
        TcpStream::connect(("127.0.0.1", port)).with_context(|| format!("127.0.0.1:{port}"))?;
    let (mut from, mut to) = (stream.try_clone()?, stream);
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        boot::copy_unbuffered(&mut from, &mut std::io::stdout())
    })
}
