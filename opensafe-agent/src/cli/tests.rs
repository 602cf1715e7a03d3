use std::path::PathBuf;

use clap::{CommandFactory as _, Parser as _};

use super::*;
use crate::{run::Mode, sink::record::line};

/// The help of `opensafe WORDS…`, in a terminal of 100 columns.
fn help(words: &[&str], long: bool) -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut below = &mut command;
    for word in words {
        below = below.find_subcommand_mut(word).unwrap();
    }
    let help = if long {
        below.render_long_help()
    } else {
        below.render_help()
    };
    help.to_string()
}

fn parsed(words: &[&str]) -> Cli {
    Cli::try_parse_from([&["opensafe"], words].concat()).unwrap()
}

fn refused(words: &[&str]) -> String {
    Cli::try_parse_from([&["opensafe"], words].concat())
        .unwrap_err()
        .to_string()
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_commands_help_is_as_reviewed() {
    fn check(words: &[String]) {
        let name = [&["opensafe".to_owned()], words].concat().join("_");
        let borrowed: Vec<&str> = words.iter().map(String::as_str).collect();
        insta::assert_snapshot!(format!("{name}_short"), help(&borrowed, false));
        insta::assert_snapshot!(format!("{name}_long"), help(&borrowed, true));
        let mut command = Cli::command();
        let mut below = &mut command;
        for word in words {
            below = below.find_subcommand_mut(word).unwrap();
        }
        for next in below.get_subcommands().filter(|it| !it.is_hide_set()) {
            check(&[words, &[next.get_name().to_owned()]].concat());
        }
    }
    check(&[]);
}

#[test]
fn what_follows_the_command_is_the_commands_own() {
    for words in [
        &["run", "--", "ls", "--json", "-p", "x"][..],
        &["run", "ls", "--json", "-p", "x"],
    ] {
        let Command::Run(args) = parsed(words).command else {
            panic!("{words:?}")
        };
        assert_eq!(args.command, ["ls", "--json", "-p", "x"]);
        assert!(
            !args.json && args.policy == [PathBuf::from("default")] && args.mode == Mode::Enforce
        );
    }
}

#[test]
fn a_mistyped_option_is_not_taken_for_the_command() {
    let error = refused(&["run", "--polcy", "x", "ls"]);
    assert!(error.contains("'--policy'"), "{error}");
}

#[test]
fn a_run_without_a_command_is_refused() {
    assert!(refused(&["run", "--policy", "x"]).contains("COMMAND"));
}

#[test]
fn events_take_names_of_events_only() {
    let Command::Events(args) = parsed(&["events", "7f3k2", "--event", "exec,file"]).command else {
        panic!()
    };
    assert_eq!(args.event, [EventName::Exec, EventName::File]);
    assert!(refused(&["events", "--event", "exce"]).contains("exec"));
}

#[test]
fn an_age_is_typed_in_units_of_one_length() {
    let age = |typed| match Cli::try_parse_from(["opensafe", "runs", "--prune", typed]) {
        Ok(Cli {
            command: Command::Runs(args),
            ..
        }) => args.prune.map(|age| age.as_secs()),
        _ => None,
    };
    assert_eq!(age("30d"), Some(30 * 86_400));
    assert_eq!(age("12h"), Some(12 * 3_600));
    assert_eq!(age("1w 12h"), Some(7 * 86_400 + 12 * 3_600));
    assert_eq!(age("0s"), Some(0));
    for refused in ["30", "1mo", "1y", "30d ago", "-30d", "", "soon"] {
        assert_eq!(age(refused), None, "{refused}");
    }
    let error = refused(&["runs", "--prune", "1mo"]);
    assert!(error.contains("weeks, days, hours"), "{error}");
}

#[test]
fn what_is_deleted_is_not_a_matter_of_how_many_are_listed() {
    assert!(refused(&["runs", "--prune", "30d", "--last", "3"]).contains("--last"));
}

#[test]
fn the_version_names_the_records_format() {
    let format = format!("record format {}\n", line::VERSION);
    assert!(help::LONG_VERSION.contains(&format));
}

#[test]
fn an_error_is_one_line_and_its_advice_the_next() {
    let cause = io::Error::new(io::ErrorKind::PermissionDenied, "not yours");
    let error = anyhow::Error::new(cause).context("cannot read x");
    let error = Err::<(), _>(error)
        .advise("ask whose it is")
        .advise("or take another")
        .unwrap_err();
    assert_eq!(
        explain(&error),
        "cannot read x: not yours\n  ask whose it is\n  or take another"
    );
}

#[test]
fn a_cause_that_was_said_is_not_said_again() {
    let error = anyhow::anyhow!("no room").context("cannot write x: no room");
    assert_eq!(explain(&error), "cannot write x: no room");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let broken = io::Error::from(io::ErrorKind::BrokenPipe);
    assert!(is_broken_pipe(
        &anyhow::Error::new(broken).context("cannot print")
    ));
    assert!(!is_broken_pipe(&anyhow::anyhow!("Broken pipe")));
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("man1");
    shell::man(&ManArgs {
        out: Some(out.clone()),
    })
    .unwrap();
    let mut pages: Vec<_> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    insta::assert_snapshot!(pages.join("\n"));
}

#[test]
fn a_name_in_an_error_is_nothing_but_a_name() {
    let error = anyhow::anyhow!("no rule \u{1b}]0;x\u{7}\u{202e}:\n  \tor é\r");
    assert_eq!(
        harmless(&explain(&error)),
        "no rule \\x1b]0;x\\x07\\u{202e}:\n  \tor é\\r"
    );
}
