use serde_json::json;

use super::*;

fn end(said: &str) -> End {
    End {
        process: None,
        said: said.to_owned(),
    }
}

/// A record with these processes, each with its id, parent and name, and each denied something.
fn record(processes: &[(u64, u64, &str)]) -> Record {
    let file = tempfile::NamedTempFile::new().unwrap();
    let start = json!({ "opensafe.event": "run.start", "opensafe.record.version": 1 });
    let lines = processes.iter().map(|(process, parent, name)| {
        json!({
            "opensafe.event": "file", "opensafe.verdict": "deny", "process.pid": process,
            "process.parent_pid": parent, "opensafe.process.comm": name,
        })
    });
    let lines: Vec<String> = std::iter::once(start)
        .chain(lines)
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(file.path(), lines.concat()).unwrap();
    Record::read(file.path()).unwrap()
}

fn of(record: &Record, number: usize, end: &End) -> Vec<u64> {
    let lines = record.of(number, end);
    lines
        .filter_map(|line| line.number("process.pid"))
        .collect()
}

#[test]
fn where_ids_are_not_known_lines_are_found_by_a_name_and_by_who_had_it() {
    let record = record(&[
        (700, 699, "opensafe"),
        (701, 700, "try-3"),
        (702, 701, "cat"),
        // It has become another program.
        (701, 700, "sh"),
        (703, 700, "try-4"),
        (704, 703, "cat"),
    ]);
    assert_eq!(of(&record, 3, &end("EACCES")), [701, 702, 701]);
    assert_eq!(of(&record, 4, &end("EACCES")), [703, 704]);
    assert_eq!(of(&record, 5, &end("EACCES")), [] as [u64; 0]);
    let known = End {
        process: Some(703),
        ..end("EACCES")
    };
    assert_eq!(of(&record, 5, &known), [703, 704]);
}

#[test]
fn only_what_works_without_the_runtime_is_stopped_by_it() {
    let site = Site::default();
    let runtime = "bwrap".parse().unwrap();
    let judge = Judge {
        site: &site,
        given: &[],
        attempts: &[],
        runtime: Some(&runtime),
        control: &[end("ESRCH"), end("ENOENT"), end("EPERM")],
        alone: &[
            ("signal", end("ok")),
            ("disk", end("ENOENT")),
            ("key", end("ENOSYS")),
        ],
        tried: &[],
        ends: &[],
    };
    let because = |why: &str| Outcome::NotTried(why.to_owned());
    assert_eq!(
        judge.outside(0, "signal"),
        Outcome::ByRuntime("ESRCH".to_owned())
    );
    assert_eq!(
        judge.outside(1, "disk"),
        because("what it takes is not here")
    );
    assert_eq!(
        judge.outside(2, "key"),
        because("does not work outside either: ENOSYS")
    );
    let alone = Judge {
        runtime: None,
        alone: &[],
        ..judge
    };
    assert_eq!(
        alone.outside(0, "signal"),
        because("does not work outside either: ESRCH")
    );
}
