//! Whole runs: `true` by itself, and under `opensafe run` with policies of few and of many rules.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};

use crate::{operation, policy, sandbox};

/// How often each is timed; the least counts, since whatever else the machine does only adds.
const TIMES: usize = 3;
/// Rules of the policies.
const RULES: [usize; 3] = [policy::NEEDED_RULES, 16, 1000];
const PROGRAM: &str = "/usr/bin/true";

/// Milliseconds by the clock, as JSON.
pub(crate) fn figures() -> Result<Value> {
    times(TIMES, milliseconds)
}

/// Milliseconds of processor time, as JSON; where instructions are counted, millions of them.
pub(crate) fn processor_times() -> Result<Value> {
    times(1, |command| {
        let before = operation::processor_time()?;
        milliseconds(command)?;
        Ok(operation::processor_time()?
            .saturating_sub(before)
            .as_secs_f64()
            * 1e3)
    })
}

fn times(repetitions: usize, measure: impl Fn(&mut Command) -> Result<f64>) -> Result<Value> {
    let programs = sandbox::Programs::now();
    let mut bare = f64::INFINITY;
    let mut sandboxed = [f64::INFINITY; RULES.len()];
    for _ in 0..repetitions {
        bare = bare.min(measure(&mut Command::new(PROGRAM))?);
        for (rules, least) in RULES.iter().zip(&mut sandboxed) {
            let policy = policy::write(*rules)?;
            *least = least.min(measure(sandbox::opensafe(&policy).arg(PROGRAM))?);
            programs.wait();
        }
    }
    let mut runs: Map<_, _> = RULES
        .iter()
        .map(usize::to_string)
        .zip(sandboxed.map(Value::from))
        .collect();
    runs.insert(
        "16_beside".to_owned(),
        beside_another(repetitions, measure)?.into(),
    );
    programs.wait();
    Ok(json!({"true": bare, "run": runs}))
}

/// A run that finds its programs loaded, as another one goes on.
fn beside_another(
    repetitions: usize,
    measure: impl Fn(&mut Command) -> Result<f64>,
) -> Result<f64> {
    let policy = policy::write(16)?;
    let mut other = sandbox::recording(&policy, Path::new("/tmp/beside.jsonl"))
        .args(["/bin/sh", "-c", "echo; read -r _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("another run")?;
    let said = other.stdout.take().context("no standard output")?;
    BufReader::new(said).read_line(&mut String::new())?;
    let mut least = f64::INFINITY;
    for _ in 0..repetitions {
        least = least.min(measure(sandbox::opensafe(&policy).arg(PROGRAM))?);
    }
    drop(other.stdin.take());
    other.wait()?;
    Ok(least)
}

fn milliseconds(command: &mut Command) -> Result<f64> {
    let begin = Instant::now();
    let status = command.status().with_context(|| format!("{command:?}"))?;
    let spent = begin.elapsed();
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(spent.as_secs_f64() * 1e3)
}
