use std::path::Path;

use super::*;
use crate::{
    enrich::Action,
    run::{Cleanup, Mode, Status},
};

const HOME: &str = "/home/me";

struct Nowhere;

impl Store for Nowhere {
    fn append(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn take_back(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }
}

impl Store for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn take_back(&mut self, count: usize) -> io::Result<()> {
        self.truncate(self.len() - count);
        Ok(())
    }
}

/// A screen whose text can still be read when the sinks are gone.
#[derive(Clone, Default)]
struct Shared(std::rc::Rc<std::cell::RefCell<String>>, Option<usize>);

impl Screen for Shared {
    fn columns(&self) -> Option<usize> {
        self.1
    }

    fn show(&mut self, line: &str) {
        self.0.borrow_mut().push_str(line);
    }

    fn finish(&mut self, last: &str) {
        self.show(last);
    }
}

/// What a run with `events` shows.
fn shown<S: Store>(
    run: &RunStart,
    events: &[Enriched],
    ending: Ending,
    store: S,
    show: impl FnOnce(Shared) -> Show<Shared>,
) -> String {
    let path = Path::new("/home/me/.local/state/opensafe/runs/7f3k2aaa.jsonl");
    let record = Record::to_store(run.id.clone(), path, store);
    let screen = Shared::default();
    let mut sinks = Sinks::start(run.clone(), record, show(screen.clone()));
    for event in events {
        sinks.write(event);
    }
    sinks.tick();
    sinks.end(ending);
    screen.0.take()
}

fn lines(screen: Shared) -> Show<Shared> {
    Show::Lines(Terminal::new(screen, Path::new(HOME), false))
}

#[test]
fn what_is_done_about_events_is_shown_and_a_kill_explains_the_end() {
    let path = Path::new("/home/me/.local/state/opensafe/runs/7f3k2aaa.jsonl");
    for (name, columns) in [("wide", None), ("narrow", Some(80))] {
        let run = samples::start();
        let record = Record::to_store(run.id.clone(), path, Vec::new());
        let screen = Shared(std::rc::Rc::default(), columns);
        let mut sinks = Sinks::start(run, record, lines(screen.clone()));
        for responded in samples::responses() {
            sinks.respond(&responded);
        }
        let end = sinks.end(Ending {
            status: Some(Status::Signal(9)),
            ..samples::ending()
        });
        assert_eq!(end.responses.killed_by.as_deref(), Some("secrets"));
        assert_eq!((end.responses.done, end.responses.failed), (4, 1));
        insta::assert_snapshot!(format!("responses_{name}"), screen.0.take());
    }
}

#[test]
fn an_alert_is_shown_also_where_nothing_else_is() {
    let run = samples::start();
    let record = Record::to_store(run.id.clone(), Path::new("/r"), Vec::new());
    let screen = Shared::default();
    let nothing = Show::Nothing(Terminal::new(screen.clone(), Path::new(HOME), false));
    let mut sinks = Sinks::start(run, record, nothing);
    sinks.respond(&samples::responses()[0]);
    assert_eq!(screen.0.borrow().as_str(), "");
    sinks.respond(&samples::responses()[1]);
    assert!(
        screen
            .0
            .borrow()
            .starts_with("opensafe: alert  response secrets: ")
    );
}

#[test]
fn who_is_told_of_an_alert_is_told_in_one_line_of_json() {
    let run = samples::start();
    let record = Record::to_store(run.id.clone(), Path::new("/r"), Vec::new());
    let sinks = Sinks::start(run, record, lines(Shared::default()));
    let told = String::from_utf8(sinks.told_of(&samples::responses()[1])).unwrap();
    assert_eq!(told.matches('\n').count(), 1);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(
        told["text"]
            .as_str()
            .unwrap()
            .contains("5 events, the last: denied read ~/.ssh/id_ed25519")
    );
    assert_eq!(told["response"]["opensafe.response.id"], "secrets");
    assert_eq!(told["event"]["file.path"], "/home/me/.ssh/id_ed25519");
    assert_eq!(told["run"]["gen_ai.agent.name"], "agent");
}

#[test]
fn a_run_that_is_taken_up_says_so_and_goes_on_with_what_was_counted() {
    let path = Path::new("/home/me/.local/state/opensafe/runs/7f3k2aaa.jsonl");
    let run = samples::start();
    let record = Record::to_store(run.id.clone(), path, Vec::new());
    let screen = Shared::default();
    let mut before = record::written::Written::default();
    before.counts.file.deny = 3;
    let show = lines(screen.clone());
    let mut sinks = Sinks::resume(run, record, true, show, &before, &samples::adopted());
    let events = samples::events();
    for event in &events {
        sinks.write(event);
    }
    sinks.applied(&samples::applied());
    let denied = |event: &&crate::enrich::Enriched| {
        let ruling = event.action.ruling();
        event.action.name() == "file"
            && ruling
                .is_some_and(|ruling| ruling.verdict == opensafe_common::verdict::Verdict::Deny)
    };
    let denials = events.iter().filter(denied).count() as u64;
    let end = sinks.end(samples::ending());
    assert_eq!(end.counts.file.deny, 3 + denials);
    assert_eq!(end.policy, samples::applied().policy.revision);
    insta::assert_snapshot!(screen.0.take());
}

#[test]
fn a_run_shows_its_start_its_denials_and_its_end() {
    let shown = shown(
        &samples::start(),
        &samples::events(),
        samples::ending(),
        Vec::new(),
        lines,
    );
    insta::assert_snapshot!(shown);
}

#[test]
fn on_a_terminal_no_line_is_wider_than_it_where_blanks_allow() {
    let on = |columns| {
        let show = move |Shared(text, _)| lines(Shared(text, Some(columns)));
        let (run, ending) = (samples::start(), samples::ending());
        shown(&run, &samples::events(), ending, Vec::new(), show)
    };
    for columns in 70..200 {
        let wide = on(columns)
            .lines()
            .find(|line| line.chars().count() > columns)
            .map(str::to_owned);
        assert_eq!(wide, None, "{columns}");
    }
    insta::assert_snapshot!(on(80));
}

#[test]
fn on_a_terminal_words_are_coloured() {
    let shown = shown(
        &samples::start(),
        &samples::events()[2..3],
        samples::ending(),
        Vec::new(),
        |screen| Show::Lines(Terminal::new(screen, Path::new(HOME), true)),
    );
    insta::assert_snapshot!(shown.replace('\x1b', "␛"));
}

#[test]
fn no_name_reaches_a_terminal_as_anything_but_a_name() {
    let events = samples::nasty();
    let mut run = samples::start();
    run.policy.revision = "evil\x1b[2J\n@1".into();
    let shown = shown(&run, &events, samples::ending(), Vec::new(), lines);
    assert!(!shown.chars().any(|c| c != '\n' && text::is_hidden(c)));
    insta::assert_snapshot!(shown);
}

#[test]
fn an_observed_run_says_what_would_be_denied() {
    let mut run = samples::start();
    run.mode = Mode::Observe;
    let mut events = samples::events();
    for event in &mut events {
        if let Action::Exec { ruling, .. }
        | Action::File { ruling, .. }
        | Action::Connect { ruling, .. }
        | Action::Operation { ruling, .. } = &mut event.action
        {
            ruling.enforced = false;
        }
    }
    let shown = shown(&run, &events[2..4], samples::ending(), Vec::new(), lines);
    insta::assert_snapshot!(shown);
}

#[test]
fn a_host_that_lacks_something_is_said_to_at_the_start() {
    let mut run = samples::start();
    run.partial = true;
    run.enforcement = samples::partly();
    let shown = shown(&run, &[], samples::ending(), Vec::new(), lines);
    insta::assert_snapshot!(shown);
}

#[test]
fn observing_on_such_a_host_says_what_it_does_not_see() {
    let mut run = samples::start();
    run.partial = true;
    run.mode = Mode::Observe;
    run.enforcement = samples::partly();
    let shown = shown(&run, &[], samples::ending(), Vec::new(), lines);
    assert!(shown.contains("not observed: exec, file, operation · why: opensafe doctor"));
}

#[test]
fn an_end_with_trouble_says_so() {
    let mut ending = samples::ending();
    ending.status = Some(Status::Signal(9));
    ending.losses.seen = 15;
    ending.losses.ring_full = 3;
    ending.trouble.outlived = 1;
    ending.trouble.forks_refused = 2;
    ending.cleanup = Cleanup {
        killed: 2,
        cgroup_left: Some("Device or resource busy".into()),
    };
    let shown = shown(
        &samples::start(),
        &samples::events()[2..3],
        ending,
        Nowhere,
        lines,
    );
    insta::assert_snapshot!(shown);
}

#[test]
fn quiet_shows_nothing_but_that_the_record_cannot_be_written() {
    let quiet = |screen| Show::Nothing(Terminal::new(screen, Path::new(HOME), false));
    let (run, events) = (samples::start(), samples::events());
    assert_eq!(
        shown(&run, &events, samples::ending(), Vec::new(), quiet),
        ""
    );
    let trouble = shown(&run, &events, samples::ending(), Nowhere, quiet);
    assert_eq!(trouble.lines().count(), 1, "{trouble}");
    assert!(
        trouble.starts_with("opensafe: cannot write the record "),
        "{trouble}"
    );
}

#[test]
fn json_shows_the_lines_of_the_record() {
    let mut written = Vec::new();
    let (run, events) = (samples::start(), samples::events());
    line::start(&run, &mut written).unwrap();
    for event in &events {
        line::event(&run.id, event, &mut written).unwrap();
    }
    let shown = shown(&run, &events, samples::ending(), Vec::new(), Show::Json);
    let (but_last, last) = shown.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(format!("{but_last}\n").as_bytes(), written);
    assert!(last.contains(r#""opensafe.event":"run.end""#), "{last}");
}

#[test]
fn json_shows_every_loss_once() {
    let run = samples::start();
    let record = Record::to_store(run.id.clone(), Path::new("r"), Vec::new());
    let screen = Shared::default();
    let mut sinks = Sinks::start(run, record, Show::Json(screen.clone()));
    for (ring_full, lines) in [(0, 1), (3, 2), (3, 2), (4, 3)] {
        let losses = Losses {
            seen: 10,
            sent: 10 - ring_full,
            ring_full,
            ..Losses::default()
        };
        sinks.loss(UnixNano(samples::TIME), &losses);
        assert_eq!(screen.0.borrow().lines().count(), lines);
    }
}

#[test]
fn durations_read_like_a_persons() {
    use std::time::Duration;
    let cases = [
        (0.04, "0.0 s"),
        (4.25, "4.2 s"),
        (9.99, "10.0 s"),
        (41.9, "41 s"),
        (185.0, "3 min 5 s"),
        (9600.0, "2 h 40 min"),
    ];
    for (seconds, text) in cases {
        assert_eq!(terminal::duration(Duration::from_secs_f64(seconds)), text);
    }
}
