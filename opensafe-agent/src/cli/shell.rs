//! What a shell and `man` need to know of the command line, from the same definition as the help.

use std::{fs, io::Write as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::{
    args::{Cli, CompletionsArgs, ManArgs},
    output::stdout,
};

pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    // Made in memory: clap_complete takes a failed write for a bug.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "opensafe", &mut script);
    let mut out = stdout();
    out.write_all(&script)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match &args.out {
        Some(directory) => {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create the directory {}", directory.display()))?;
            write_pages(command, directory)?;
        }
        None => {
            let mut text = Vec::new();
            page(command).render(&mut text)?;
            let mut out = stdout();
            out.write_all(&text)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of `command` and of each command below it.
fn write_pages(command: clap::Command, directory: &Path) -> anyhow::Result<()> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write_pages(below.clone(), directory)?;
    }
    page(command)
        .generate_to(directory)
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    Ok(())
}

fn page(command: clap::Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command)
        .manual("OpenSafe")
        .source(concat!("opensafe ", env!("CARGO_PKG_VERSION")))
}
