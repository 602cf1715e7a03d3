use super::{watch::*, *};
use crate::{
    rules::Severity,
    sink::samples::{allowed, denied, event, file, process},
};
use opensafe_common::verdict::Access;

fn denial(after_ms: u64, rule: &str, severity: Severity) -> Enriched {
    let action = file(denied(rule, severity, ""), b"/x", Access::READ);
    event(after_ms, process("cat", 7), action)
}

fn pass(after_ms: u64) -> Enriched {
    event(
        after_ms,
        process("cat", 7),
        file(allowed(), b"/x", Access::READ),
    )
}

fn response(on: Trigger, threshold: Threshold, repeat_after: Duration) -> Response {
    Response {
        id: "r".into(),
        on,
        action: Action::Note,
        threshold,
        repeat_after,
        reason: String::new(),
        origin: None,
    }
}

fn denials() -> Trigger {
    Trigger {
        verdicts: vec![Verdict::Deny],
        ..Trigger::default()
    }
}

/// How many events are told of by each that is due, by the events' times.
fn due(response: Response, times_ms: &[u64]) -> Vec<(u64, u64)> {
    let mut watch = Watch::new([response].into());
    let mut all = Vec::new();
    for &time in times_ms {
        let due = watch.see(&denial(time, "r", Severity::High));
        all.extend(due.into_iter().map(|due| (time, due.count)));
    }
    all
}

#[test]
fn a_trigger_holds_if_all_that_it_names_does() {
    let event = denial(0, "secrets.ssh", Severity::High);
    let glob = |text: &str| vec![RuleGlob::parse(text).unwrap()];
    let holds = |change: &dyn Fn(&mut Trigger)| {
        let mut trigger = denials();
        change(&mut trigger);
        trigger.holds(&event)
    };
    assert!(holds(&|_| ()));
    assert!(holds(&|on| on.rules = glob("secrets.*")));
    assert!(!holds(&|on| on.rules = glob("secrets")));
    assert!(holds(&|on| on.severity = Some(Severity::High)));
    assert!(!holds(&|on| on.severity = Some(Severity::Critical)));
    assert!(holds(&|on| on.enforced = Some(true)));
    assert!(!holds(&|on| on.enforced = Some(false)));
    assert!(holds(&|on| on.denied_by = vec!["opensafe"]));
    assert!(holds(&|on| on.events = vec!["connect", "file"]));
    assert!(!holds(&|on| on.events = vec!["connect"]));
    assert!(!denials().holds(&pass(0)));
}

#[test]
fn where_no_rule_decided_the_default_is_its_name() {
    let on = |text| Trigger {
        rules: vec![RuleGlob::parse(text).unwrap()],
        ..Trigger::default()
    };
    assert!(on("defaults.file").holds(&pass(0)));
    assert!(on("defaults.*").holds(&pass(0)));
    assert!(!on("defaults.exec").holds(&pass(0)));
}

#[test]
fn a_processs_end_is_nothing_to_respond_to() {
    let action = crate::enrich::Action::Exit {
        code: Some(0),
        signal: None,
    };
    assert!(!Trigger::default().holds(&event(0, process("cat", 7), action)));
}

#[test]
fn a_response_is_due_with_the_event_that_reaches_its_threshold() {
    let threshold = Threshold {
        count: 3,
        within: Duration::from_secs(10),
    };
    let response = response(denials(), threshold, Duration::from_secs(60));
    assert_eq!(due(response.clone(), &[0, 5_000]), []);
    assert_eq!(due(response.clone(), &[0, 5_000, 10_001]), []);
    assert_eq!(due(response, &[0, 5_000, 10_000]), [(10_000, 3)]);
}

#[test]
fn a_response_is_quiet_for_its_time_and_counts_meanwhile() {
    let response = response(denials(), Threshold::default(), Duration::from_secs(60));
    let times = [0, 1, 59_999, 60_000, 60_001];
    assert_eq!(due(response, &times), [(0, 1), (60_000, 3)]);
}

#[test]
fn events_of_the_quiet_time_count_for_the_threshold_after_it() {
    let threshold = Threshold {
        count: 2,
        within: Duration::from_secs(1),
    };
    let response = response(denials(), threshold, Duration::from_secs(60));
    let times = [0, 500, 59_800, 60_500, 130_000];
    assert_eq!(due(response, &times), [(500, 2), (60_500, 2)]);
}

#[test]
fn an_address_is_one_that_needs_no_look_up() {
    let read = |url: &str| Webhook::parse(url).map(|webhook| webhook.by_address());
    for (url, meant) in [
        ("http://127.0.0.1:8080/x?y", "http://127.0.0.1:8080/x?y"),
        ("http://localhost:9/a", "http://127.0.0.1:9/a"),
        ("http://localhost", "http://127.0.0.1:80"),
        ("http://192.0.2.1/", "http://192.0.2.1:80/"),
        ("http://[2001:db8::1]:81/", "http://[2001:db8::1]:81/"),
        ("http://[::1]/", "http://[::1]:80/"),
    ] {
        assert_eq!(read(url).as_deref(), Ok(meant), "{url}");
    }
    for (url, why) in [
        ("https://192.0.2.1/", "https"),
        ("http://alerts.example/", "not looked up"),
        ("http://localhostile/", "not looked up"),
        ("http://me:secret@192.0.2.1/", "password"),
        ("http://", "neither"),
        ("192.0.2.1", "http://"),
        ("http://192.0.2.1/a b", "blanks"),
        ("http://192.0.2.1:99999/", "neither"),
    ] {
        let error = read(url).unwrap_err();
        assert!(error.contains(why), "{url}: {error}");
    }
}

#[test]
fn an_errors_name_is_the_systems() {
    let error = |error: io::Error| match Outcome::failed(&error, "") {
        Outcome::Failed { error, .. } => error,
        _ => String::new(),
    };
    assert_eq!(error(io::Error::from_raw_os_error(2)), "ENOENT");
    assert_eq!(error(ErrorKind::TimedOut.into()), "ETIMEDOUT");
    assert_eq!(error(io::Error::other("x")), "other");
}
