//! What a shell and `man` need to know of the command line, from the same definition as the help.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

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
            let page = page(command)?;
            let mut out = stdout();
            out.write_all(&page)?;
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
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.1"));
    let page = page(command)?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

/// A command's page. What its help says after the options becomes sections of their own.
fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let after = command.get_after_long_help().map(ToString::to_string);
    let has_commands = command.has_subcommands();
    let man = clap_mangen::Man::new(command)
        .manual("OpenSafe")
        .source(concat!("opensafe ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend_from_slice(sections(&after.unwrap_or_default()).as_bytes());
    Ok(page)
}

/// Help as sections of a manual page: a line that ends in a colon is a heading, all others stay as
/// they are.
fn sections(help: &str) -> String {
    let mut roff = String::new();
    let mut inside = false;
    for line in help.lines().filter(|line| !line.is_empty()) {
        let heading = line.strip_suffix(':').filter(|line| !line.starts_with(' '));
        if let Some(heading) = heading {
            roff.push_str(if inside { ".fi\n" } else { "" });
            roff.push_str(&format!(".SH {}\n.nf\n", heading.to_uppercase()));
            inside = true;
            continue;
        }
        if !inside {
            roff.push_str(".SH NOTES\n.nf\n");
            inside = true;
        }
        // A dot or a quotation mark at its beginning would make it a request.
        let line = line.strip_prefix("  ").unwrap_or(line);
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        roff.push_str(&format!("\\&{line}\n"));
    }
    roff.push_str(if inside { ".fi\n" } else { "" });
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_becomes_sections_as_it_is() {
        let help = "Examples:\n  Why?\n      opensafe 'a\\b'\n\nExit statuses:\n  .0  done";
        assert_eq!(
            sections(help),
            ".SH EXAMPLES\n.nf\n\\&Why?\n\\&    opensafe 'a\\eb'\n.fi\n\
             .SH EXIT STATUSES\n.nf\n\\&.0  done\n.fi\n"
        );
    }
}
