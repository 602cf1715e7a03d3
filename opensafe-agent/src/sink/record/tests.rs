use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use opensafe_common::verdict::Access;

use super::*;
use crate::{
    enrich::{Action, Peer, Ruling},
    event::PolicyNumber,
    rules::Severity,
    run::Counts,
    sink::{
        record::read::Lines,
        samples::{self, TIME},
    },
};

/// A disk with room for so many bytes more.
#[derive(Clone, Default)]
struct Disk(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    bytes: Vec<u8>,
    room: usize,
    take_back_fails: bool,
}

impl Store for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.borrow_mut();
        let count = bytes.len().min(disk.room);
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.room -= count;
        disk.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn take_back(&mut self, count: usize) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        if disk.take_back_fails {
            return Err(io::ErrorKind::Other.into());
        }
        let length = disk.bytes.len() - count;
        disk.bytes.truncate(length);
        disk.room += count;
        Ok(())
    }
}

impl Disk {
    fn with_room(room: usize) -> Self {
        let disk = Self::default();
        disk.0.borrow_mut().room = room;
        disk
    }

    fn set_room(&self, room: usize) {
        self.0.borrow_mut().room = room;
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().bytes.clone()).unwrap()
    }

    /// Events by name; `?` for a line that is none.
    fn events(&self) -> Vec<String> {
        let text = self.text();
        Lines::new(Path::new("disk"), text.as_bytes())
            .unwrap()
            .map(|line| line.map_or("?".into(), |line| line.event().to_owned()))
            .collect()
    }
}

fn record(disk: &Disk) -> Record<Disk> {
    let run = samples::start();
    let mut record = Record::to_store(run.id.clone(), Path::new("disk"), disk.clone());
    let _ = record.start(&run);
    record
}

fn losses(sent: u64) -> Losses {
    Losses {
        seen: sent,
        sent,
        ..Losses::default()
    }
}

fn end(losses: Losses) -> RunEnd {
    let ending = samples::ending();
    RunEnd {
        policy: "coding-agent@9c41e07b".into(),
        time: ending.time,
        duration: ending.duration,
        status: ending.status,
        counts: Counts::default(),
        touched: crate::run::Touched::default(),
        responses: crate::run::Responses::default(),
        losses,
        trouble: ending.trouble,
        cleanup: ending.cleanup,
    }
}

#[test]
fn every_event_has_its_line() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    for event in samples::events() {
        record.write(&event).unwrap();
    }
    let loss = Losses {
        seen: 14,
        ring_full: 3,
        ..losses(11)
    };
    record.loss(UnixNano(TIME), &loss).unwrap();
    record.loss(UnixNano(TIME), &loss).unwrap();
    let taken_over = Adopted {
        from: Some(crate::event::Pid(4711)),
        ..samples::adopted()
    };
    record.adopted(&taken_over).unwrap();
    record.applied(&samples::applied()).unwrap();
    for policy in [Some(PolicyNumber(1)), None] {
        let ruling = Ruling {
            policy,
            ..samples::denied("keys", Severity::High, "they open other hosts")
        };
        let action = samples::file(ruling, b"/home/me/.ssh/id_ed25519", Access::READ);
        let event = samples::event(22_000, samples::process("cat", 4711), action);
        record.write(&event).unwrap();
    }
    let loss = record.account(&loss);
    record.end(&end(loss)).unwrap();
    insta::assert_snapshot!(disk.text());
}

#[test]
fn one_event_is_one_line_whatever_its_names_contain() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    let events = samples::nasty();
    for event in &events {
        record.write(event).unwrap();
    }
    let text = disk.text();
    let (_, lines) = text.split_once('\n').unwrap();
    assert_eq!(lines.lines().count(), events.len());
    assert!(
        !lines
            .chars()
            .any(|c| c != '\n' && crate::sink::text::is_hidden(c))
    );
    insta::assert_snapshot!(lines);
}

#[test]
fn names_are_read_back_byte_for_byte() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    let events = samples::nasty();
    for event in &events {
        record.write(event).unwrap();
    }
    let text = disk.text();
    let lines = Lines::new(Path::new("disk"), text.as_bytes()).unwrap();
    for (line, event) in lines.skip(1).zip(&events) {
        let line = line.unwrap();
        if let Action::File { path, .. } = &event.action {
            assert_eq!(&line.bytes("file.path").unwrap(), path);
        }
        assert_eq!(
            line.bytes("opensafe.process.comm").unwrap(),
            event.process.comm
        );
    }
}

/// The keys of lines in which everything is that can be.
fn keys_of_everything() -> BTreeSet<String> {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    for event in samples::events().iter().chain(&samples::nasty()) {
        record.write(event).unwrap();
    }
    let mut process = samples::process("x", 1);
    process.container_id = Some("c0ffee".into());
    let family = Peer::Family("vsock".into());
    let connect = samples::connect(samples::allowed(), family, "vsock");
    let killed = Action::Exit {
        code: None,
        signal: Some(9),
    };
    let failed = Action::OpenFailed {
        requested: b"../key".to_vec(),
        access: Access::READ,
        errno: 13,
    };
    for action in [connect, killed, failed] {
        let event = samples::event(0, process.clone(), action);
        record.write(&event).unwrap();
    }
    for responded in samples::responses() {
        record.respond(&responded).unwrap();
    }
    let taken_over = Adopted {
        from: Some(crate::event::Pid(4711)),
        ..samples::adopted()
    };
    record.adopted(&taken_over).unwrap();
    record.applied(&samples::applied()).unwrap();
    let ruling = Ruling {
        policy: None,
        ..samples::allowed()
    };
    let action = samples::file(ruling, b"/x", Access::READ);
    let event = samples::event(0, samples::process("x", 1), action);
    record.write(&event).unwrap();
    let mut ended = end(losses(1));
    ended.responses.killed_by = Some("r".into());
    ended.cleanup.cgroup_left = Some("busy".into());
    record.end(&ended).unwrap();
    let text = disk.text();
    text.lines()
        .flat_map(|line| {
            let line: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(line).unwrap();
            line.into_iter().map(|(key, _)| key)
        })
        .collect()
}

#[test]
fn no_key_is_the_beginning_of_another_so_that_keys_can_become_a_tree() {
    let keys = keys_of_everything();
    for key in &keys {
        let inside = format!("{key}.");
        assert!(
            !keys.iter().any(|other| other.starts_with(&inside)),
            "{key}"
        );
    }
}

#[test]
fn a_would_be_denial_says_neither_who_denied_nor_an_error() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    let mut event = samples::events().swap_remove(2);
    if let Action::File { ruling, .. } = &mut event.action {
        ruling.enforced = false;
    }
    record.write(&event).unwrap();
    let text = disk.text();
    let line = text.lines().last().unwrap();
    assert!(
        line.contains(r#""opensafe.verdict":"deny","opensafe.enforced":false"#),
        "{line}"
    );
    assert!(
        !line.contains("denied_by") && !line.contains("error.type"),
        "{line}"
    );
}

#[test]
fn a_short_shortage_of_room_loses_nothing_and_leaves_no_half_line() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    let events = samples::events();
    for room in [0, 1, 100, 700, 1500] {
        disk.set_room(room);
        for event in &events {
            let _ = record.write(event);
        }
        assert!(record.flush().is_err());
        assert!(disk.text().ends_with("}\n"));
    }
    disk.set_room(usize::MAX);
    record.flush().unwrap();
    assert!(!disk.events().contains(&"?".into()));
    assert_eq!(disk.events().len(), 1 + 5 * events.len());
    assert_eq!(record.account(&losses(55)), losses(55));
}

#[test]
fn a_half_line_that_cannot_be_taken_back_is_ended_and_written_again() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    disk.0.borrow_mut().take_back_fails = true;
    let events = samples::events();
    for room in [10, 0, 1, 2000, 1, 0] {
        disk.set_room(room);
        for event in &events {
            let _ = record.write(event);
        }
    }
    disk.set_room(usize::MAX);
    record.flush().unwrap();
    let mut written = disk.events();
    written.retain(|event| event != "?");
    assert_eq!(written.len(), 1 + 6 * events.len());
}

#[test]
fn a_full_disk_costs_a_bounded_memory_and_what_is_lost_is_counted_and_noted() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    disk.set_room(0);
    let event = &samples::events()[1];
    let mut errors = 0;
    let total = 10_000;
    for _ in 0..total {
        errors += u64::from(record.write(event).is_err());
    }
    assert!(record.pending.len() < KEEP + 4096);
    assert!(errors > 0);

    disk.set_room(usize::MAX);
    record.flush().unwrap();
    record.write(event).unwrap();
    record.flush().unwrap();
    let accounted = record.account(&losses(total + 1));
    let written = disk.events();
    let files = written.iter().filter(|event| *event == "file").count() as u64;
    assert_eq!(files, accounted.sent);
    assert!(accounted.record_failed > 0);
    assert_eq!(
        accounted.sent + crate::run::lost(&accounted),
        accounted.seen
    );
    assert_eq!(written.iter().filter(|event| *event == "loss").count(), 1);
    assert_eq!(written.last().unwrap(), "file");
}

#[test]
fn what_the_record_neither_has_nor_says_to_be_lost_is_not_done_with() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    let event = &samples::events()[1];
    record.write(event).unwrap();
    record.flush().unwrap();
    assert_eq!(record.unwritten(), 0);
    disk.set_room(0);
    let total = 5000;
    for _ in 0..total {
        let _ = record.write(event);
    }
    let (pending, failed) = (record.unwritten() - record.failed, record.failed);
    assert!(pending > 0 && failed > 0 && pending + failed == total);
    // Who takes the run up now has nothing to tell that from.
    disk.set_room(usize::MAX);
    record.flush().unwrap();
    assert_eq!(record.unwritten(), failed);
    record.loss(UnixNano(TIME), &losses(total + 1)).unwrap();
    record.flush().unwrap();
    assert_eq!(record.unwritten(), 0);
}

#[test]
fn how_far_a_record_has_come_is_told_only_when_nothing_waits_and_goes_to_json_and_back() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    let event = &samples::events()[1];
    for _ in 0..3 {
        record.write(event).unwrap();
    }
    record.flush().unwrap();
    let written = record.written().unwrap();
    assert_eq!(written.bytes, disk.text().len() as u64);
    assert_eq!(written.lines, 3);
    // It has room in what is kept of a run, however high the counts.
    let high = Written {
        counts: Counts {
            operations: [crate::run::PerVerdict {
                allow: u64::MAX,
                audit: u64::MAX,
                deny: u64::MAX,
            }; _],
            ..Counts::default()
        },
        ..written.clone()
    };
    for written in [written, high] {
        let json = serde_json::to_vec(&written).unwrap();
        assert!(json.len() < 4000, "{}", json.len());
        assert_eq!(serde_json::from_slice::<Written>(&json).unwrap(), written);
    }
    // Half a line is taken back; what waits is not told of.
    disk.set_room(10);
    let _ = record.write(event);
    let _ = record.flush();
    assert_eq!(record.written(), None);
    disk.set_room(usize::MAX);
    record.flush().unwrap();
    assert_eq!(record.written().unwrap().bytes, disk.text().len() as u64);
}

#[test]
fn what_whoever_was_killed_could_not_write_stays_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let run = samples::start();
    let written = Written {
        losses: Losses {
            record_failed: 3,
            ..Losses::default()
        },
        ..Written::default()
    };
    std::fs::write(&path, "").unwrap();
    let mut record = Record::reopen(run.id.clone(), &path, None, &written).unwrap();
    let accounted = record.account(&losses(10));
    assert_eq!((accounted.sent, accounted.record_failed), (7, 3));
}

#[test]
fn what_is_still_unwritten_at_the_end_counts_as_lost() {
    let disk = Disk::with_room(usize::MAX);
    let mut record = record(&disk);
    disk.set_room(0);
    let events = samples::events();
    for event in &events {
        let _ = record.write(event);
    }
    let count = u64::try_from(events.len()).unwrap();
    let accounted = record.account(&losses(count));
    assert_eq!((accounted.sent, accounted.record_failed), (0, count));
    disk.set_room(usize::MAX);
    record.end(&end(accounted)).unwrap();
    assert_eq!(disk.events(), ["run.start", "run.end"]);
}

#[test]
fn the_last_line_is_found_without_reading_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let run = samples::start();
    let mut record = Record::create(run.id.clone(), &path, Existing::Refuse, None).unwrap();
    record.start(&run).unwrap();
    for _ in 0..500 {
        record.write(&samples::events()[0]).unwrap();
    }
    record.flush().unwrap();
    assert_eq!(read::last(&path).unwrap().unwrap().event(), "exec");
    record.end(&end(losses(500))).unwrap();
    assert_eq!(read::last(&path).unwrap().unwrap().event(), "run.end");
    record.store.write_all(b"{\"half").unwrap();
    assert_eq!(read::last(&path).unwrap(), None);
}

#[test]
fn every_key_and_event_is_in_the_reference() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.md");
    let reference = std::fs::read_to_string(path).unwrap();
    for key in keys_of_everything() {
        assert!(reference.contains(&format!("`{key}`")), "{key}");
    }
    assert!(reference.contains(&format!("reference of format {}", line::VERSION)));
}
