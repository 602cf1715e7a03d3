//! What cannot be run is said, and starts nothing.

use std::{fs, os::unix::process::CommandExt as _, path::Path, process::Command};

use anyhow::Result;

use crate::{
    harness::{Leftovers, Outcome, Policy, Problems, Run, directory, opensafe},
    scenarios,
};

scenarios![
    a_bad_policy_is_named_by_file_line_and_rule_and_starts_nothing,
    a_wrong_place_for_a_policy_record_workspace_or_user_starts_nothing,
    who_is_not_root_is_told_so_in_a_sentence,
    a_host_without_cgroup_v2_is_told_so_in_a_sentence,
];

/// The exit status for what is opensafe's own to refuse.
const REFUSED: i32 = 125;

/// A policy that is wrong, and what has to be said about it.
struct Bad {
    what: &'static str,
    rego: &'static str,
    said: &'static [&'static str],
}

const HEAD: &str = "package opensafe.sandbox\n\n";

const BAD: &[Bad] = &[
    Bad {
        what: "does not parse",
        rego: "rules contains {\"id\": \"a\", \"on\": }\n",
        said: &[
            "bad.rego:3:",
            "rules contains {\"id\": \"a\", \"on\": }",
            "^",
        ],
    },
    Bad {
        what: "an unknown verdict",
        rego: r#"rules contains {"id": "r.verdict", "on": "file", "match": "/a", "verdict": "forbid"}"#,
        said: &["r.verdict", "forbid", "bad.rego:3"],
    },
    Bad {
        what: "an unknown key",
        rego: r#"rules contains {"id": "r.key", "on": "file", "match": "/a", "verdict": "deny", "severty": "high"}"#,
        said: &["r.key", "severty", "did you mean \"severity\""],
    },
    Bad {
        what: "an unknown operation",
        rego: r#"rules contains {"id": "r.on", "on": "open", "match": "/a", "verdict": "deny"}"#,
        said: &["r.on", "open"],
    },
    Bad {
        what: "a relative path",
        rego: r#"rules contains {"id": "r.relative", "on": "file", "match": "etc/passwd", "verdict": "deny"}"#,
        said: &["r.relative", "etc/passwd", "absolute"],
    },
    Bad {
        what: "a bad CIDR",
        rego: r#"rules contains {"id": "r.cidr", "on": "connect", "match": ["10.0.0.0/33"], "verdict": "deny"}"#,
        said: &["r.cidr", "10.0.0.0/33", "32"],
    },
    Bad {
        what: "a port over 65,535",
        rego: r#"rules contains {"id": "r.port", "on": "connect", "match": "*", "ports": [70000], "verdict": "deny"}"#,
        said: &["r.port", "70000"],
    },
    Bad {
        what: "two rules with one id",
        rego: "rules contains {\"id\": \"r.twice\", \"on\": \"file\", \"match\": \"/a\", \"verdict\": \"deny\"}\n\
               rules contains {\"id\": \"r.twice\", \"on\": \"file\", \"match\": \"/b\", \"verdict\": \"deny\"}",
        said: &["r.twice", "2 different rules"],
    },
    Bad {
        what: "a glob that is none",
        rego: r#"rules contains {"id": "r.glob", "on": "file", "match": "/a/[b", "verdict": "deny"}"#,
        said: &["r.glob", "/a/[b", "never closed"],
    },
    Bad {
        what: "a glob that grows too large",
        rego: r#"rules contains {"id": "r.large", "on": "file", "match": "/{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}", "verdict": "deny"}"#,
        said: &["r.large", "alternatives"],
    },
    Bad {
        what: "no id",
        rego: r#"rules contains {"on": "file", "match": "/nameless", "verdict": "deny"}"#,
        said: &["/nameless", "id"],
    },
    Bad {
        what: "an unknown default",
        rego: "defaults := {\"file\": \"refuse\"}\nrules := []",
        said: &["defaults", "refuse"],
    },
    Bad {
        what: "rules of another kind",
        rego: "rules := \"none\"",
        said: &["rules", "array"],
    },
    Bad {
        what: "a conflict",
        rego: "defaults := {\"file\": \"deny\"}\ndefaults := {\"file\": \"allow\"}\nrules := []",
        said: &["defaults"],
    },
    Bad {
        what: "an input that there is not",
        rego: r#"rules contains {"id": "r.input", "on": "file", "match": sprintf("%s/a", [input.workspce]), "verdict": "deny"}"#,
        said: &["workspce", "bad.rego:3:"],
    },
];

fn a_bad_policy_is_named_by_file_line_and_rule_and_starts_nothing() -> Result<Outcome> {
    let mut problems = Problems::default();
    let before = Leftovers::now()?;
    for Bad { what, rego, said } in BAD {
        let folder = directory()?;
        let (policy, marker) = (folder.path().join("bad.rego"), folder.path().join("marker"));
        fs::write(&policy, format!("{HEAD}{rego}"))?;
        let finished =
            Run::with_policy_file(folder, &policy)?.run(&[Path::new("touch"), &marker])?;
        is_refused(&mut problems, what, &finished, said);
    }
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn is_refused(
    problems: &mut Problems,
    what: &str,
    finished: &crate::harness::Finished,
    said: &[&str],
) {
    let text = finished.said();
    problems.check(finished.code() == REFUSED, || {
        format!("{what}: exit status {}: {text}", finished.code())
    });
    problems.check(text.starts_with("error: "), || {
        format!("{what}: no error is said: {text}")
    });
    for part in said {
        problems.check(text.contains(part), || {
            format!("{what}: {part:?} is not said: {text}")
        });
    }
    problems.check(!text.contains("ended after"), || {
        format!("{what}: something ran: {text}")
    });
    problems.check(finished.raw_record.is_empty(), || {
        format!("{what}: there is a record")
    });
    problems.check(!finished.made_marker, || format!("{what}: the command ran"));
}

fn a_wrong_place_for_a_policy_record_workspace_or_user_starts_nothing() -> Result<Outcome> {
    let mut problems = Problems::default();
    let before = Leftovers::now()?;
    let touch = ["touch", "marker"];
    let case = |problems: &mut Problems, what: &str, run: Run, said: &[&str]| -> Result<()> {
        let finished = run.run(&touch)?;
        is_refused(problems, what, &finished, said);
        Ok(())
    };
    let empty = directory()?;
    let place = empty.path().to_owned();
    case(
        &mut problems,
        "an empty directory",
        Run::with_policy_file(empty, &place)?,
        &["no .rego file"],
    )?;
    let none = directory()?;
    let place = none.path().join("absent.rego");
    case(
        &mut problems,
        "no such file",
        Run::with_policy_file(none, &place)?,
        &["absent.rego", "no such file"],
    )?;
    let name = directory()?;
    case(
        &mut problems,
        "no such name",
        Run::with_policy_file(name, Path::new("no-such-policy"))?,
        &["no-such-policy", "/usr/share/opensafe/policies"],
    )?;
    let text = directory()?;
    let place = text.path().join("policy.txt");
    fs::write(&place, "x")?;
    case(
        &mut problems,
        "no Rego",
        Run::with_policy_file(text, &place)?,
        &["policy.txt", ".rego"],
    )?;
    let other = directory()?;
    let place = other.path().join("other.rego");
    fs::write(&place, "package other\nrules := []\n")?;
    case(
        &mut problems,
        "another package",
        Run::with_policy_file(other, &place)?,
        &["opensafe.sandbox", "other"],
    )?;
    let two = directory()?;
    for (file, file_default) in [("a.rego", "deny"), ("b.rego", "allow")] {
        let rego = format!("{HEAD}defaults := {{\"file\": \"{file_default}\"}}\nrules := []\n");
        fs::write(two.path().join(file), rego)?;
    }
    let place = two.path().to_owned();
    case(
        &mut problems,
        "two policies in one",
        Run::with_policy_file(two, &place)?,
        &["defaults"],
    )?;

    let open = || Run::new(&Policy::open());
    case(
        &mut problems,
        "no such user",
        open()?.options(&["--user", "nobody-here"]),
        &["nobody-here"],
    )?;
    case(
        &mut problems,
        "no such workspace",
        open()?.options(&["--workspace", "/no/such/place"]),
        &["/no/such/place"],
    )?;
    let file = directory()?;
    let precious = file.path().join("precious");
    fs::write(&precious, "precious")?;
    let finished = open()?.record(&precious).run(&touch)?;
    problems.equal(
        "the status with another file for a record",
        finished.code(),
        REFUSED,
    );
    problems.equal(
        "the other file",
        fs::read_to_string(&precious)?.as_str(),
        "precious",
    );
    Leftovers::gone_since(&before)?;
    problems.outcome()
}

fn who_is_not_root_is_told_so_in_a_sentence() -> Result<Outcome> {
    let folder = directory()?;
    let policy = folder.path().join("policy.rego");
    Policy::open().write(&policy)?;
    let output = opensafe()
        .args(["run", "--policy"])
        .arg(&policy)
        .args(["--", "true"])
        .current_dir(folder.path())
        .env("HOME", "/home/agent")
        .uid(1000)
        .gid(1000)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut problems = Problems::default();
    problems.equal("the status", output.status.code(), Some(REFUSED));
    problems.check(said.contains("only root") && said.contains("sudo"), || {
        format!("it says {said}")
    });
    problems.check(said.lines().count() <= 2, || {
        format!("that is more than a sentence: {said}")
    });
    problems.outcome()
}

fn a_host_without_cgroup_v2_is_told_so_in_a_sentence() -> Result<Outcome> {
    let folder = directory()?;
    let policy = folder.path().join("policy.rego");
    Policy::open().write(&policy)?;
    let before = Leftovers::now()?;
    let opensafe = std::env::var("OPENSAFE").unwrap_or_else(|_| "opensafe".into());
    let output = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            "umount -R /sys/fs/cgroup && exec \"$@\"",
            "sh",
        ])
        .args([&opensafe, "run", "--policy"])
        .arg(&policy)
        .args(["--record", "record.jsonl", "--", "touch", "marker"])
        .current_dir(folder.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut problems = Problems::default();
    problems.equal("the status", output.status.code(), Some(REFUSED));
    problems.check(
        said.contains("cgroup v2") && said.contains("mount -t cgroup2"),
        || format!("it says {said}"),
    );
    problems.check(said.lines().count() <= 2, || {
        format!("that is more than a sentence: {said}")
    });
    problems.check(!folder.path().join("marker").exists(), || {
        "the command ran".into()
    });
    Leftovers::gone_since(&before)?;
    problems.outcome()
}
