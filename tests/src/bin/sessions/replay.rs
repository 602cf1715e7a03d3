//! Recorded sessions, each with the policy and without one. With it nothing may be denied, every call must end as it
//! does without, and the workspace must be the same in the end.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{
    ground::{self, Ground},
    sandbox::{Player, denial, lines},
    servers,
    user::User,
};

const USER: &str = "agent";

/// Denials that are right, as [`denial`] has them: the session, the denial, and why no honest session needs it.
const RIGHT: &[(&str, &str, &str)] = &[];

/// `replay FOLDER OUT`: prints `ok NAME`, `skip NAME: WHY` or `FAILED NAME: WHY` for each session, then the counts.
/// Records are left in OUT.
pub(crate) fn command(folder: &Path, out: &Path) -> Result<ExitCode> {
    let mut sessions: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .flatten()
        .map(|entry| entry.path())
        .filter(|file| file.extension().is_some_and(|kind| kind == "jsonl"))
        .collect();
    sessions.sort();
    let texts: Vec<String> = sessions
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect();
    ground::prepare(&texts)?;
    servers::start()?;
    let user = User::named(USER)?;
    let (mut passed, mut failed) = (0, 0);
    for file in sessions {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        match replay(&name, &file, out, &user) {
            Ok(summary) => {
                passed += 1;
                println!("ok {name}");
                println!("   {summary}");
            }
            Err(error) => {
                failed += 1;
                println!("FAILED {name}: {error:#}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn replay(name: &str, file: &Path, out: &Path, user: &User) -> Result<String> {
    let record = out.join(format!("{name}.jsonl"));
    let plain = play(name, file, user, None)?;
    let confined = play(name, file, user, Some(&record))?;
    fs::copy(&confined.log, out.join(format!("{name}.steps")))?;
    let mut wrong = Vec::new();
    let events = lines(&record)?;
    for denied in events.iter().filter_map(denial) {
        if RIGHT
            .iter()
            .all(|(session, right, _)| *session != name || *right != denied)
        {
            wrong.push(format!("denied: {denied}"));
        }
    }
    wrong.dedup();
    wrong.extend(differences(&plain, &confined));
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    let end = events.last();
    let count = |event: &str| {
        end.and_then(|end| end.get(format!("opensafe.count.{event}.allow"))?.as_u64())
            .unwrap_or(0)
    };
    let of = |wanted: fn(&Option<i64>) -> bool| {
        confined
            .steps
            .iter()
            .filter(|(_, status)| wanted(status))
            .count()
    };
    let mut summary = format!(
        "{} calls, {} went well",
        confined.steps.len(),
        of(|status| *status == Some(0))
    );
    let failed = of(|status| status.is_some_and(|status| status != 0));
    if failed > 0 {
        summary += &format!(", {failed} failed as without a policy");
    }
    let others = of(Option::is_none);
    if others > 0 {
        summary += &format!(", {others} had nothing to do with the operating system");
    }
    Ok(format!(
        "{summary}; nothing denied of programs {}, files {}, connects {}",
        count("exec"),
        count("file"),
        count("connect"),
    ))
}

/// How a session went.
struct Played {
    log: PathBuf,
    /// Each call as it is shown, and its exit status.
    steps: Vec<(String, Option<i64>)>,
    files: Vec<String>,
}

/// Plays a session in a workspace of its own: in a sandbox if there is a `record` to be made.
fn play(name: &str, file: &Path, user: &User, record: Option<&Path>) -> Result<Played> {
    for left in ["/tmp/decorator_example.py", "/tmp/replay.steps"] {
        let _ = fs::remove_file(left);
    }
    let ground = Ground::make(name, user).context("the workspace could not be set up")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = match &ground.programs {
        Some(programs) => format!("{}:{path}", programs.display()),
        None => path,
    };
    let log = PathBuf::from("/tmp/replay.steps");
    let player = Player {
        session: file,
        agent: name,
        workspace: &ground.workspace,
        user,
        path: &path,
        program: &std::env::current_exe()?,
        log: log.clone(),
    };
    let mut seen = Vec::new();
    match record {
        None => player.plainly()?,
        Some(record) => drop(player.confined(record, false, &mut seen)?),
    }
    let steps = lines(&log).with_context(|| {
        format!(
            "the session did not start\n{}",
            String::from_utf8_lossy(&seen)
        )
    })?;
    let steps = steps.iter().map(|step| {
        let shown = step.get("shown").and_then(Value::as_str);
        let status = step.get("status").and_then(Value::as_i64);
        (shown.unwrap_or_default().to_owned(), status)
    });
    Ok(Played {
        log,
        steps: steps.collect(),
        files: ground.files()?,
    })
}

fn differences(plain: &Played, confined: &Played) -> Vec<String> {
    let mut found = Vec::new();
    if plain.steps.len() != confined.steps.len() {
        let (with, without) = (confined.steps.len(), plain.steps.len());
        found.push(format!("{with} calls, {without} without a policy"));
    }
    for (with, without) in confined.steps.iter().zip(&plain.steps) {
        if with != without {
            let status = |status: Option<i64>| status.map_or("none".into(), |it| it.to_string());
            found.push(format!(
                "{}: exit status {}, {} without a policy",
                with.0,
                status(with.1),
                status(without.1)
            ));
        }
    }
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        let only = these.iter().filter(|file| !those.contains(file));
        only.cloned().collect()
    };
    for file in only(&plain.files, &confined.files) {
        found.push(format!("left only without a policy: {file}"));
    }
    for file in only(&confined.files, &plain.files) {
        found.push(format!("left only with the policy: {file}"));
    }
    found
}
