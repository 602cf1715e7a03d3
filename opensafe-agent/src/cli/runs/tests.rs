use super::*;
use crate::{
    event::Losses,
    run::{Cleanup, Counts, PerVerdict, RunEnd, Touched},
    sink::{record::line, samples},
};

/// Writes a record of a run that denied three things, with its end or without.
fn write(path: &Path, id: &str, status: Option<Option<Status>>) {
    let mut run = samples::start();
    run.id = id.parse().unwrap();
    let mut out = Vec::new();
    line::start(&run, &mut out).unwrap();
    for event in &samples::events()[..4] {
        line::event(&run.id, event, &mut out).unwrap();
    }
    if let Some(status) = status {
        let ending = samples::ending();
        let end = RunEnd {
            time: ending.time,
            duration: ending.duration,
            status,
            counts: Counts {
                file: PerVerdict {
                    allow: 1,
                    audit: 0,
                    deny: 2,
                },
                connect: PerVerdict {
                    deny: 1,
                    ..PerVerdict::default()
                },
                ..Counts::default()
            },
            touched: Touched::default(),
            losses: Losses::default(),
            trouble: crate::run::Trouble::default(),
            cleanup: Cleanup::default(),
        };
        line::end(&run.id, &end, &mut out).unwrap();
    }
    fs::write(path, out).unwrap();
}

fn runs() -> (tempfile::TempDir, Vec<Run>) {
    let directory = tempfile::tempdir().unwrap();
    let all = [
        ("0000000a", Some(Some(Status::Code(0)))),
        ("0000000b", Some(Some(Status::Code(101)))),
        ("0000000c", Some(Some(Status::Signal(9)))),
        ("0000000d", Some(None)),
        ("0000000e", None),
        ("0000000f", None),
    ];
    let runs = all.map(|(id, status)| {
        let path = directory.path().join(id).with_extension("jsonl");
        write(&path, id, status);
        Run::read(&path, |_| id.ends_with('f')).unwrap()
    });
    (directory, runs.into())
}

#[test]
fn runs_are_a_table() {
    let (_directory, runs) = runs();
    let mut out = Vec::new();
    print_table(&runs, &TimeZone::UTC, None, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    insta::assert_snapshot!(anstream::adapter::strip_str(&out).to_string());
}

#[test]
fn runs_fit_into_80_columns() {
    let (_directory, runs) = runs();
    let mut out = Vec::new();
    print_table(&runs, &TimeZone::UTC, Some(80), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    let out = anstream::adapter::strip_str(&out).to_string();
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn runs_are_json_lines() {
    let (directory, runs) = runs();
    let mut out = Vec::new();
    print_json(&runs[2..5], &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    insta::assert_snapshot!(out.replace(directory.path().to_str().unwrap(), "[runs]"));
}

#[test]
fn denials_of_a_run_without_an_end_are_counted_from_its_events() {
    let (_directory, runs) = runs();
    let denials: Vec<u64> = runs.iter().map(|run| run.denials).collect();
    assert_eq!(denials, [3, 3, 3, 3, 2, 2]);
}
