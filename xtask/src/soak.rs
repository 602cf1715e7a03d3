//! `cargo xtask soak`: a sandbox under load while all about it changes, in a guest. What happens inside is in `tests/src/bin/soak`.

use std::{fs, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};

use crate::{
    build::{self, Built},
    cli::SoakArgs,
    repo,
    vm::{Guest, Show},
};

/// What runs in the guest, and what it leaves in its way out.
const SOAK: &str = "/share/bin/opensafe-soak";
const FIGURES: &str = "soak.json";

/// What a guest needs besides: to start, to begin and to end.
const MORE: Duration = Duration::from_secs(15 * 60);

pub(crate) fn command(args: &SoakArgs) -> Result<ExitCode> {
    let built = build::everything()?;
    let numbers = [
        ("--minutes", args.minutes),
        ("--pace-ms", args.pace_ms),
        ("--kill-ms", args.kill_ms),
        ("--seed", args.seed),
    ];
    let numbers = numbers.map(|(name, number)| [name.to_owned(), number.to_string()]);
    let words = numbers.iter().flatten().map(String::as_str);
    let command: Vec<&str> = std::iter::once(SOAK).chain(words).collect();
    let guest = Guest {
        memory: args.memory,
        timeout: Duration::from_secs(60 * args.minutes) + MORE,
        show: Show::AsItIs,
        ..guest(&args.kernel, &built, &command)
    };
    let figures = guest.out.join(FIGURES);
    // One of another soak.
    let _ = fs::remove_file(&figures);
    let status = guest.run()?.status;
    if let Some(file) = &args.json {
        fs::copy(&figures, file).with_context(|| figures.display().to_string())?;
    }
    Ok(ExitCode::from(status))
}

/// A short one, as a part of the tests.
pub(crate) fn short(kernel: &str, built: &Built) -> Guest {
    guest(kernel, built, &[SOAK, "--minutes", "2"])
}

fn guest(kernel: &str, built: &Built, command: &[&str]) -> Guest {
    let name = format!("{kernel}-soak");
    Guest {
        // What happens at once is to happen at once.
        cpus: Some(2),
        out: repo::target().join("vm/out").join(&name),
        name,
        ..Guest::new(kernel, built, command)
    }
}
