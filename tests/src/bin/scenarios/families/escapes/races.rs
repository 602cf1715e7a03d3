//! What is looked up while it changes.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::{
    harness::{Outcome, Policy, Problems, Run, deny, directory, write},
    scenarios,
};

scenarios![a_directory_that_is_moved_while_it_is_read_is_where_it_is];

const SCRIPT: &str = include_str!("races.py");

fn a_directory_that_is_moved_while_it_is_read_is_where_it_is() -> Result<Outcome> {
    const ROUNDS: &str = "400";
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["open/moved", "secret"] {
        fs::create_dir_all(path(name))?;
    }
    write(&path("open/moved/file"), "content")?;
    write(&path("state"), [0; 16])?;
    let policy = Policy::open().rule(deny("secret").below(path("secret")));
    let (state, here, there) = (path("state"), path("open/moved"), path("secret/moved"));
    let inside = ["python3".as_ref(), "-c".as_ref(), SCRIPT.as_ref()];
    let inside = [
        &inside[..],
        &["open".as_ref(), state.as_os_str(), here.as_os_str()],
    ]
    .concat();
    let mut running = Run::new(&policy)?.start(&inside)?;
    running.wait_for_output("ready")?;
    let moved = Command::new("python3")
        .args(["-c", SCRIPT, "move"])
        .args([&state, &there, &here])
        .arg(ROUNDS)
        .status()?;
    ensure!(moved.success(), "what moves it ended with {moved}");
    let finished = running.finish()?;
    let text = finished.text();
    let seen = |place: &str| -> Result<[u64; 2]> {
        let line = text.lines().find_map(|line| line.strip_prefix(place));
        let mut words = line.context("nothing was seen")?.split_whitespace();
        let mut next = || words.next().and_then(|word| word.parse().ok());
        Ok([next().context("no number")?, next().context("no number")?])
    };
    let ([opened_here, refused_here], [opened_there, refused_there]) =
        (seen("here")?, seen("there")?);
    let mut problems = Problems::default();
    problems.equal("opens where it is denied", opened_there, 0);
    problems.equal("refusals where it is not", refused_here, 0);
    for tries in [opened_here, refused_there] {
        problems.check(tries > 100, || format!("hardly tried: {text}"));
    }
    problems.outcome()
}
