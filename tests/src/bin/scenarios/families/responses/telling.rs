//! Notes, alerts, and what decides whether something is done at all.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Counting, about_denials, of, run, signal};
use crate::{
    harness::{Outcome, Problems, ask, directory, opensafe, write},
    scenarios,
};

scenarios![
    a_threshold_is_not_reached_by_one_less,
    an_alert_tells_a_program_and_an_address_outside,
    whom_an_alert_cannot_tell_is_on_record_and_said,
    an_alert_has_the_rights_of_who_started_the_run_and_none_of_its_own,
    an_observed_run_is_neither_frozen_nor_killed,
    a_frozen_run_that_is_asked_to_end_ends,
    a_run_that_has_ended_is_neither_frozen_nor_killed,
];

fn with(mut response: Value, key: &str, value: Value) -> Value {
    response[key] = value;
    response
}

fn cat(times: usize) -> String {
    "cat /etc/shadow; ".repeat(times)
}

fn a_threshold_is_not_reached_by_one_less() -> Result<Outcome> {
    let mut problems = Problems::default();
    let threshold = json!({"count": 3, "within_s": 600});
    for (denials, due) in [(2, 0), (3, 1), (7, 1)] {
        let response = with(
            about_denials("three", "note"),
            "threshold",
            threshold.clone(),
        );
        let each = with(about_denials("each", "note"), "repeat_after_s", json!(0));
        let script = format!("{}exit 0", cat(denials));
        let finished = run(&[response, each])?.run(&["sh", "-c", &script])?;
        let record = finished.sound()?;
        let notes = of(record, "three", "note");
        problems.equal("the denials", record.denials().count(), denials);
        problems.equal(&format!("notes of {denials}"), notes.len(), due);
        for note in notes {
            problems.equal(
                "events of the note",
                note.number("opensafe.response.count"),
                3,
            );
        }
        problems.equal("notes of each", of(record, "each", "note").len(), denials);
        let done = record.end()?.number("opensafe.count.response.done");
        problems.equal("responses at the end", done, (denials + due) as u64);
        problems.check(!finished.said().contains("response three"), || {
            format!("a note was shown: {}", finished.said())
        });
    }
    problems.outcome()
}

/// Answers whoever posts with this status, and sends on what came.
fn listener(status: &'static str) -> Result<(u16, Receiver<String>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                request.extend_from_slice(&buffer[..count]);
                if is_whole(&request) {
                    break;
                }
            }
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
            let _ = sender.send(String::from_utf8_lossy(&request).into_owned());
        }
    });
    Ok((port, receiver))
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.eq_ignore_ascii_case("content-length");
        is_it.then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    length.is_none_or(|length| body.len() >= length)
}

/// A program that writes what it is told, and who and where it is, into `told`.
fn teller(folder: &Path) -> Result<std::path::PathBuf> {
    let program = folder.join("tell");
    let text = format!(
        "#!/bin/sh\ncd {0} || exit 1\ncat >told.new\n{{ id -u; id -G; pwd; grep -o '^0::.*' /proc/self/cgroup; env; \
         grep SigBlk /proc/self/status; }} >who\nmv told.new told\n",
        folder.display()
    );
    write(&program, text)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

fn an_alert_tells_a_program_and_an_address_outside() -> Result<Outcome> {
    let folder = directory()?;
    let program = teller(folder.path())?;
    let (port, posted) = listener("204 No Content")?;
    let alert = about_denials("tell", "alert");
    let alert = with(alert, "command", json!([program, "a word"]));
    let alert = with(
        alert,
        "webhook",
        json!(format!("http://localhost:{port}/hook?x=1")),
    );
    // It is outside: its reading is nobody's denial, and the proxy of an environment is not asked.
    let finished = run(&[alert])?
        .wrapped(&["env", "http_proxy=http://127.0.0.1:1/", "SECRET=x"])
        .run(&["sh", "-c", &cat(3)])?;
    let record = finished.sound()?;
    let mut problems = Problems::default();
    for action in ["alert", "command", "webhook"] {
        let lines = of(record, "tell", action);
        problems.equal(&format!("lines of {action}"), lines.len(), 1);
        for line in lines {
            let outcome = line.text("opensafe.response.outcome");
            problems.check(outcome == "done", || format!("{line}"));
        }
    }
    let said = finished.said();
    let shown = said
        .lines()
        .filter(|line| line.contains("alert  response tell: a scenario"));
    problems.check(shown.count() == 1, || format!("said: {said}"));

    let told =
        fs::read_to_string(folder.path().join("told")).context("what the program was told")?;
    let request = posted.recv_timeout(Duration::from_secs(10))?;
    let (head, body) = request.split_once("\r\n\r\n").context("a request's end")?;
    problems.check(head.starts_with("POST /hook?x=1 HTTP/1.1"), || {
        head.to_owned()
    });
    problems.check(
        head.to_ascii_lowercase()
            .contains("content-type: application/json"),
        || head.to_owned(),
    );
    problems.check(body == told, || {
        format!("told {told:?} and posted {body:?}")
    });
    let told: Value = serde_json::from_str(&told)?;
    let event = &told["event"];
    problems.equal(
        "the event",
        event["opensafe.rule.id"].clone(),
        json!("shadow"),
    );
    problems.equal("its file", event["file.path"].clone(), json!("/etc/shadow"));
    problems.equal(
        "the response",
        told["response"]["opensafe.response.id"].clone(),
        json!("tell"),
    );
    problems.equal(
        "the run",
        told["run"]["opensafe.run.id"].clone(),
        record
            .start()?
            .get("opensafe.run.id")
            .cloned()
            .unwrap_or_default(),
    );
    let who = fs::read_to_string(folder.path().join("who"))?;
    let cgroup = who
        .lines()
        .find(|line| line.starts_with("0::"))
        .unwrap_or_default();
    problems.check(!cgroup.contains("/opensafe/"), || {
        format!("it is in {cgroup}")
    });
    problems.check(
        who.contains("OPENSAFE_RESPONSE_ID=tell") && !who.contains("SECRET"),
        || who.clone(),
    );
    // What opensafe takes as messages is not blocked for it.
    problems.check(who.contains("SigBlk:\t0000000000000000"), || who.clone());
    problems.equal(
        "who is on record",
        record
            .of("exec")
            .filter(|line| line.text("file.path").contains("tell"))
            .count(),
        0,
    );
    problems.outcome()
}

fn whom_an_alert_cannot_tell_is_on_record_and_said() -> Result<Outcome> {
    let (port, _posted) = listener("500 No")?;
    let command = |id: &str, words: Value| with(about_denials(id, "alert"), "command", words);
    let webhook = |id: &str, url: String| with(about_denials(id, "alert"), "webhook", json!(url));
    let responses = [
        command(
            "fails",
            json!(["/bin/sh", "-c", "echo no mail today >&2; exit 3"]),
        ),
        command("missing", json!(["/no/such/program"])),
        command("hangs", json!(["/bin/sh", "-c", "sleep 333; :"])),
        webhook("refuses", format!("http://127.0.0.1:{port}/")),
        // Beyond those who are told at a time.
        webhook("nobody", "http://127.0.0.1:1/".to_owned()),
    ];
    let began = Instant::now();
    let finished = run(&responses)?.run(&["sh", "-c", &cat(1)])?;
    let record = finished.sound()?;
    let mut problems = Problems::default();
    let expected = [
        (
            "fails",
            "command",
            "exit_status",
            "exit status 3: no mail today",
        ),
        (
            "missing",
            "command",
            "ENOENT",
            "cannot start /no/such/program",
        ),
        ("hangs", "command", "ETIMEDOUT", "had not ended after 10 s"),
        ("nobody", "webhook", "ECONNREFUSED", "http://127.0.0.1:1/"),
        ("refuses", "webhook", "other", "4 others are under way"),
    ];
    for (id, action, error, why) in expected {
        let lines = of(record, id, action);
        problems.equal(&format!("lines of {id}"), lines.len(), 1);
        for line in lines {
            let is_so = line.text("opensafe.response.outcome") == "failed"
                && line.text("error.type") == error
                && line.text("opensafe.response.error").contains(why);
            problems.check(is_so, || format!("{id}: {line}"));
        }
        let said = finished.said();
        problems.check(
            said.contains(&format!("failed  response {id}: {action}: ")),
            || format!("nothing is said of {id}: {said}"),
        );
    }
    problems.equal(
        "failures at the end",
        record.end()?.number("opensafe.count.response.failed"),
        5,
    );
    problems.check(began.elapsed() < Duration::from_secs(60), || {
        "it was waited for too long".into()
    });
    let left = ask(std::process::Command::new("pgrep").args(["-f", "sleep 333"]))?;
    problems.equal("what is left of it", left.1, String::new());
    problems.outcome()
}

fn an_alert_has_the_rights_of_who_started_the_run_and_none_of_its_own() -> Result<Outcome> {
    let folder = directory()?;
    chown(folder.path(), Some(1000), Some(1000))?;
    let program = teller(folder.path())?;
    let alert = with(about_denials("tell", "alert"), "command", json!([program]));
    let run = run(&[alert])?;
    // The record is theirs, too.
    chown(
        run.record_path().parent().context("a folder")?,
        Some(1000),
        Some(1000),
    )?;
    let finished = run
        .options(&["--user", "root"])
        .wrapped(&["env", "SUDO_UID=1000", "SUDO_GID=1000"])
        .run(&["sh", "-c", &cat(1)])?;
    let mut problems = Problems::default();
    let who = fs::read_to_string(folder.path().join("who"))
        .with_context(|| format!("who it was: {}", finished.said()))?;
    let lines: Vec<&str> = who.lines().collect();
    problems.equal(
        "its user and groups",
        lines.get(..2),
        Some(&["1000", "1000"][..]),
    );
    for variable in ["HOME=/home/agent", "USER=agent"] {
        problems.check(lines.contains(&variable), || format!("{variable}: {who}"));
    }
    problems.outcome()
}

fn an_observed_run_is_neither_frozen_nor_killed() -> Result<Outcome> {
    let responses = [
        about_denials("stop", "freeze"),
        about_denials("end", "kill"),
    ];
    let script = format!("{}echo survived", cat(1));
    let finished = run(&responses)?
        .options(&["--mode", "observe"])
        .run(&["sh", "-c", &script])?;
    let record = finished.sound()?;
    let mut problems = Problems::default();
    problems.check(finished.text().contains("survived"), || finished.said());
    problems.equal("the exit status", finished.code(), 0);
    for (id, action) in [("stop", "freeze"), ("end", "kill")] {
        let outcomes: Vec<&str> = of(record, id, action)
            .iter()
            .map(|line| line.text("opensafe.response.outcome"))
            .collect();
        problems.equal(action, outcomes, vec!["observed"]);
        problems.check(
            finished
                .said()
                .contains(&format!("would {action}  response {id}")),
            || finished.said(),
        );
    }
    problems.outcome()
}

fn a_frozen_run_that_is_asked_to_end_ends() -> Result<Outcome> {
    let counting = Counting::start(&[about_denials("stop", "freeze")])?;
    counting.provoke()?;
    counting.wait_for("stop", "freeze", 1)?;
    let asked = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    signal(&counting.running, Signal::SIGTERM)?;
    let finished = counting.running.finish()?;
    let record = finished.sound()?;
    let mut problems = Problems::default();
    problems.equal("the exit status", finished.code(), 137);
    // A command that could answer would have ten seconds. What comes after its end takes as long as the machine does.
    let ended = record.of("exit").map(|line| line.number("time_unix_nano"));
    let ended = Duration::from_nanos(ended.max().context("no exit on record")?);
    let took = ended.saturating_sub(asked);
    problems.check(took < Duration::from_secs(8), || {
        format!("it took {took:?}")
    });
    problems.outcome()
}

fn a_run_that_has_ended_is_neither_frozen_nor_killed() -> Result<Outcome> {
    let folder = directory()?;
    let record = folder.path().join("elsewhere.jsonl");
    let finished = run(&[])?.record(&record).run(&["true"])?;
    let mut problems = Problems::default();
    problems.equal("the exit status", finished.code(), 0);
    for word in ["freeze", "thaw", "kill"] {
        let (code, out, error) = ask(opensafe().arg(word).arg(&record))?;
        problems.check(
            code == 1 && out.is_empty() && error.contains("has ended"),
            || format!("{word}: {code}, {out:?}, {error:?}"),
        );
    }
    let (code, _, error) = ask(opensafe().args(["thaw", "zzzzzzzz"]))?;
    problems.check(code == 1 && error.contains("opensafe runs"), || {
        format!("{code}, {error:?}")
    });
    problems.outcome()
}
