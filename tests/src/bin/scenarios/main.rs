//! What OpenSafe claims, tried out in a running kernel: each scenario starts the built `opensafe` with a policy, does
//! something inside and outside the sandbox, and compares what happened with what is on record.
//!
//! ```text
//! scenarios [PART OF A NAME]...   those scenarios, or all: a line each, and the counts
//! scenarios --of-kernel           those to which a kernel may make a difference
//! scenarios --attacks             of these, the list of escapes and whatever the way in which programs are asked may matter to
//! scenarios --others              the rest of all
//! scenarios list                  their names
//! scenarios probe ...             what the scenarios run inside sandboxes; see `probe`
//! ```
//! As root, in a guest. It works in a mount namespace of its own.

mod families;
mod harness;
mod probe;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
    time::Instant,
};

use harness::{Outcome, Scenario};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "probe" => probe::main(rest),
        Some((first, _)) if first == "list" => {
            for scenario in families::all() {
                println!("{}", scenario.name);
            }
            ExitCode::SUCCESS
        }
        _ => run(&arguments),
    }
}

fn run(wanted: &[OsString]) -> ExitCode {
    if let Err(error) = harness::prepare() {
        eprintln!("scenarios: {error:#}");
        return ExitCode::FAILURE;
    }
    let part = wanted.first().and_then(|word| word.to_str());
    let (scenarios, wanted) = match part {
        Some("--of-kernel") => (families::of_kernel(), &wanted[1..]),
        Some("--attacks") => (families::attacks(), &wanted[1..]),
        Some("--others") => (families::others(), &wanted[1..]),
        _ => (families::all(), wanted),
    };
    let is_wanted = |scenario: &Scenario| {
        wanted.is_empty()
            || wanted
                .iter()
                .any(|part| scenario.name.contains(&*part.to_string_lossy()))
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut seconds = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| is_wanted(scenario)) {
        let start = Instant::now();
        let (word, why) = match (scenario.run)() {
            Ok(Outcome::Held) => {
                passed += 1;
                ("ok", String::new())
            }
            Ok(Outcome::Skipped(why)) => {
                skipped += 1;
                ("skip", format!(": {why}"))
            }
            Err(error) => {
                failed += 1;
                ("FAILED", format!(": {error:#}").replace('\n', "\n    "))
            }
        };
        println!("{word} {}{why}", scenario.name);
        let _ = io::stdout().flush();
        seconds.push((start.elapsed().as_secs_f64(), scenario.name));
    }
    seconds.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    for (seconds, name) in seconds.iter().take(15) {
        println!("{seconds:.1} s {name}");
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
