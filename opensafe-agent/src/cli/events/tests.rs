use std::io::BufReader;

use clap::ValueEnum as _;

use super::*;
use crate::{
    cli::args::EventName,
    event::{Losses, UnixNano},
    run::{Cleanup, Counts, RunEnd, Touched},
    sink::{record::line, samples},
};

/// A record with everything in it.
fn record() -> Vec<u8> {
    let (run, ending) = (samples::start(), samples::ending());
    let mut out = Vec::new();
    line::start(&run, &mut out).unwrap();
    for event in samples::events().iter().chain(&samples::nasty()) {
        line::event(&run.id, event, &mut out).unwrap();
    }
    for responded in samples::responses() {
        line::response(&run.id, &responded, &mut out).unwrap();
    }
    line::adopted(&run.id, &samples::adopted(), &mut out).unwrap();
    line::applied(&run.id, &samples::applied(), &mut out).unwrap();
    let losses = Losses {
        seen: 20,
        sent: 17,
        ring_full: 3,
        ..Losses::default()
    };
    line::loss(&run.id, UnixNano(samples::TIME), &losses, &mut out).unwrap();
    let end = RunEnd {
        policy: "coding-agent@9c41e07b".into(),
        time: ending.time,
        duration: ending.duration,
        status: ending.status,
        counts: Counts::default(),
        touched: Touched::default(),
        responses: crate::run::Responses::default(),
        losses,
        trouble: crate::run::Trouble::default(),
        cleanup: Cleanup::default(),
    };
    line::end(&run.id, &end, &mut out).unwrap();
    out
}

fn shown(record: &[u8], args: &EventsArgs, width: Option<usize>) -> String {
    let lines = Lines::new(Path::new("r.jsonl"), BufReader::new(record)).unwrap();
    let mut out = Vec::new();
    table(lines, args, &TimeZone::UTC, width, &mut out).unwrap();
    anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string()
}

fn args() -> EventsArgs {
    EventsArgs {
        record: None,
        denied: false,
        event: Vec::new(),
        json: false,
    }
}

#[test]
fn a_record_is_a_table() {
    insta::assert_snapshot!(shown(&record(), &args(), None));
}

#[test]
fn on_a_terminal_the_table_fits() {
    insta::assert_snapshot!(shown(&record(), &args(), Some(100)));
}

#[test]
fn denials_are_shown_whole_on_a_narrow_terminal() {
    let denied = EventsArgs {
        denied: true,
        ..args()
    };
    insta::assert_snapshot!(shown(&record(), &denied, Some(80)));
}

#[test]
fn denials_alone_can_be_asked_for() {
    let args = EventsArgs {
        denied: true,
        ..args()
    };
    let table = shown(&record(), &args, None);
    assert!(
        table
            .lines()
            .skip(1)
            .all(|line| line.contains("  denied  ")),
        "{table}"
    );
    assert!(table.contains("id_ed25519"));
}

#[test]
fn some_events_alone_can_be_asked_for() {
    let args = EventsArgs {
        event: vec![EventName::Connect, EventName::Exec],
        ..args()
    };
    let table = shown(&record(), &args, None);
    let what = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    assert!(
        table
            .lines()
            .skip(1)
            .all(|line| ["connect", "exec"].contains(&what(line).unwrap().as_str())),
        "{table}"
    );
}

#[test]
fn operations_are_events_that_can_be_asked_for() {
    let args = EventsArgs {
        event: vec![
            EventName::Ptrace,
            EventName::Signal,
            EventName::Socket,
            EventName::Bind,
        ],
        ..args()
    };
    let table = shown(&record(), &args, None);
    let seen: Vec<String> = table
        .lines()
        .skip(1)
        .map(|line| {
            line.split_whitespace()
                .skip(1)
                .take(6)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        seen,
        [
            "socket denied packet raw tcpdump (4731)",
            "bind denied 0.0.0.0:8080 tcp node (4732)",
            "ptrace denied attach to bash (812)",
            "signal denied SIGKILL to opensafe (700)",
            "signal denied SIGKILL to process 701",
        ]
    );
}

#[test]
fn every_event_of_a_record_has_a_name_to_ask_for_it_by() {
    let record = record();
    let lines = Lines::new(Path::new("r.jsonl"), BufReader::new(&record[..])).unwrap();
    let names: Vec<String> = lines.map(|line| line.unwrap().event().to_owned()).collect();
    let operations =
        opensafe_common::operation::Operation::ALL.map(opensafe_common::operation::Operation::name);
    for name in names.iter().map(String::as_str).chain(operations) {
        let known = EventName::value_variants()
            .iter()
            .any(|event| event.is(name));
        assert!(known, "{name}");
    }
}

#[test]
fn no_name_makes_a_second_row_or_reaches_the_terminal_as_a_command() {
    let record = record();
    let table = shown(&record, &args(), None);
    let lines = record.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(table.lines().count(), lines + 1);
    let hidden = |c: char| c != '\n' && crate::sink::text::is_hidden(c);
    assert!(!table.chars().any(hidden));
}

#[test]
fn a_broken_line_is_left_out_and_the_rest_is_shown() {
    let mut record = record();
    let second = record.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    record.splice(second..second, *b"{\"half\n");
    let lines = Lines::new(Path::new("r.jsonl"), BufReader::new(&record[..])).unwrap();
    let mut out = Vec::new();
    let seen = table(lines, &args(), &TimeZone::UTC, None, &mut out).unwrap();
    assert_eq!((seen.broken, seen.end), (1, true));
    assert!(String::from_utf8(out).unwrap().contains("id_ed25519"));
}

#[test]
fn a_command_is_shown_as_a_shell_would_take_it() {
    let shown = |words: &[&str]| command(&samples::args(words));
    assert_eq!(
        shown(&["git", "commit", "-m", "a b"]),
        "git commit -m 'a b'"
    );
    assert_eq!(shown(&["echo", "it's", ""]), "echo \"it's\" ''");
    assert_eq!(shown(&["echo", "$HOME", "*"]), "echo '$HOME' '*'");
    assert_eq!(shown(&["x", "[redacted]", "é"]), "x [redacted] é");
}
