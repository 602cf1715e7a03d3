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
            policy: "coding-agent@9c41e07b".into(),
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
            responses: crate::run::Responses::default(),
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
fn a_run_has_the_policy_that_it_got_last() {
    let (directory, _) = runs();
    let policy = |name: &str| {
        let path = directory.path().join(name).with_extension("jsonl");
        Run::read(&path, |_| false).unwrap().policy
    };
    assert_eq!(policy("0000000e"), samples::start().policy.revision);
    let path = directory.path().join("0000000e.jsonl");
    let run = "0000000e".parse().unwrap();
    let mut out = fs::read(&path).unwrap();
    line::applied(&run, &samples::applied(), &mut out).unwrap();
    fs::write(&path, out).unwrap();
    assert_eq!(policy("0000000e"), samples::applied().policy.revision);
    assert_eq!(policy("0000000a"), "coding-agent@9c41e07b");
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

/// A minute after the runs' end.
fn later() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(samples::TIME) + Duration::from_secs(101)
}

fn ids(runs: &[Run]) -> Vec<String> {
    runs.iter().map(|run| run.text("opensafe.run.id")).collect()
}

fn age(run: &Run, written: SystemTime) {
    let record = fs::File::options().append(true).open(&run.record).unwrap();
    record.set_modified(written).unwrap();
}

#[test]
fn records_of_runs_that_ended_before_are_deleted_however_they_ended() {
    let (directory, runs) = runs();
    let pruned = prune(runs, later(), None);
    assert_eq!(
        ids(&pruned.deleted),
        ["0000000a", "0000000b", "0000000c", "0000000d"]
    );
    assert!(pruned.failed.is_empty());
    assert_eq!(
        pruned.summary(),
        "4 records deleted, 2 records kept; deleted:"
    );
    let mut left: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["0000000e.jsonl", "0000000f.jsonl"]);
}

#[test]
fn records_of_runs_that_ended_since_are_kept() {
    let (_directory, runs) = runs();
    let pruned = prune(runs, later() - Duration::from_secs(61), None);
    assert_eq!(pruned.summary(), "0 records deleted, 6 records kept");
}

#[test]
fn the_record_of_a_run_that_goes_on_is_kept_however_old() {
    let (_directory, runs) = runs();
    runs.iter().for_each(|run| age(run, SystemTime::UNIX_EPOCH));
    let pruned = prune(runs, SystemTime::now(), None);
    assert_eq!(
        pruned.summary(),
        "5 records deleted, 1 record kept; deleted:"
    );
    assert!(!ids(&pruned.deleted).contains(&"0000000f".to_owned()));
}

#[test]
fn a_run_that_was_cut_off_was_so_when_its_record_was_last_written() {
    let second = Duration::from_secs(1);
    for (written, deleted) in [(later() - second, 1), (later() + second, 0)] {
        let (_directory, runs) = runs();
        let cut_off = runs.into_iter().nth(4).unwrap();
        age(&cut_off, written);
        let pruned = prune(vec![cut_off], later(), None);
        assert_eq!(pruned.deleted.len(), deleted);
    }
}

#[test]
fn a_record_that_cannot_be_deleted_is_named_and_not_among_the_deleted() {
    let (directory, runs) = runs();
    fs::remove_file(directory.path().join("0000000b.jsonl")).unwrap();
    let pruned = prune(runs, later(), None);
    assert_eq!(ids(&pruned.deleted), ["0000000a", "0000000c", "0000000d"]);
    let [error] = &pruned.failed[..] else {
        panic!("{:?}", pruned.failed)
    };
    assert!(error.to_string().contains("0000000b.jsonl"), "{error}");
}

#[test]
fn a_process_that_is_not_there_runs_nothing() {
    assert!(!is_opensafe(0));
    assert!(!is_opensafe(u64::from(u32::MAX)));
}
