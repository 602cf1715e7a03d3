//! What the kernel hands over: records of the ring buffer, and its type information.

use std::sync::{Arc, OnceLock};

use opensafe_common::{layout::Offsets, verdict::Verdict};

use crate::{
    enrich::{Action, Enriched, Enricher, InForce},
    event::{Event, Generation, PolicyNumber, What},
    kernel::{btf::Btf, decode::decode},
    rules::{Defaults, Peer, Rule, RuleId, RuleSet, Severity, Subject, glob::PathGlob},
    run::RunId,
    sink::{
        record::{line, read::Lines},
        text::is_hidden,
    },
    view::{Dev, Mount, View},
};

/// The event that a record of the ring buffer holds, if it is one.
#[must_use]
pub fn decoded(bytes: &[u8]) -> Option<Event> {
    decode(bytes, 1 << 60).ok()
}

/// A record of the ring buffer is an error, or an event that holds no more than it did; and what becomes of that is one
/// line of a record, from which the bytes come back.
pub(super) fn event(bytes: &[u8]) {
    let Some(mut event) = decoded(bytes) else {
        return;
    };
    assert!(strings(&event) <= bytes.len(), "more than there was");
    // No process has such an id: what comes of this is not to depend on those there are.
    for pid in [
        &mut event.task.pid,
        &mut event.task.tid,
        &mut event.task.parent_pid,
    ] {
        pid.0 |= 1 << 31;
    }
    if let What::Operation {
        target: Some(target),
        ..
    } = &mut event.what
    {
        target.0 |= 1 << 31;
    }
    let mut enriched = Vec::new();
    let mut enricher = Enricher::new(Generation(1), in_force());
    enricher.take(event, &mut enriched);
    enricher.finish(&mut enriched);
    assert!(enriched.len() <= 1, "{enriched:?}");
    for one in enriched {
        is_one_line(&one);
    }
}

/// Bytes in the strings of an event.
fn strings(event: &Event) -> usize {
    // An empty path stands for the root, and is told as such.
    let of_place = |path: &[u8]| if path == b"/" { 0 } else { path.len() };
    event.task.comm.len()
        + match &event.what {
            What::Exec {
                place,
                requested,
                args,
                ..
            } => {
                let args: usize = args.iter().map(Vec::len).sum();
                of_place(&place.path) + requested.len() + args
            }
            What::ExecGate {
                place, requested, ..
            }
            | What::File {
                place, requested, ..
            } => of_place(&place.path) + requested.len(),
            What::OpenFailed { requested, .. } => requested.len(),
            What::UnknownSuperblock { place }
            | What::Operation {
                place: Some(place), ..
            } => of_place(&place.path),
            _ => 0,
        }
}

fn is_one_line(event: &Enriched) {
    let run: RunId = "7f3k2aaa".parse().expect("a run's id");
    let mut out = Vec::new();
    line::event(&run, event, &mut out).expect("a line");
    assert_eq!(out.pop(), Some(b'\n'));
    let text = std::str::from_utf8(&out).expect("UTF-8");
    assert!(!text.chars().any(is_hidden), "{text:?}");

    let start = br#"{"opensafe.event":"run.start"}"#;
    let record = [start, b"\n".as_slice(), &out, b"\n"].concat();
    let mut lines = Lines::new("r.jsonl".as_ref(), record.as_slice()).expect("a record");
    let (_, line) = (lines.next(), lines.next().expect("a line"));
    let line = line.expect("a line that can be read");
    assert!(lines.next().is_none() && !lines.cut_off());
    assert_eq!(line.raw(), out);
    assert_eq!(line.event(), event.action.name());
    assert_eq!(line.time(), event.time.0);
    let bytes = |key| line.bytes(key).unwrap_or_default();
    assert_eq!(bytes("opensafe.process.comm"), event.process.comm);
    assert_eq!(bytes("process.executable.path"), event.process.executable);
    match &event.action {
        Action::Exec {
            path, requested, ..
        }
        | Action::File {
            path, requested, ..
        } => {
            assert_eq!(&bytes("file.path"), path);
            assert_eq!(&bytes("opensafe.file.requested"), requested);
            assert_eq!(line.list("process.command_args"), event.process.args);
        }
        Action::Connect {
            peer: crate::enrich::Peer::UnixPath(path),
            ..
        } => assert_eq!(&bytes("network.peer.address"), path),
        _ => {}
    }
}

/// A policy over a view with a directory that shows in two places.
fn in_force() -> InForce {
    static POLICY: OnceLock<InForce> = OnceLock::new();
    POLICY
        .get_or_init(|| {
            let rule = |id: &str, verdict, subject| Rule {
                id: RuleId(id.to_owned()),
                verdict,
                severity: Severity::default(),
                reason: String::new(),
                origin: None,
                subject,
            };
            let glob = |text| PathGlob::parse(text).expect("a glob");
            let mount = |minor, root: &str, point: &str| Mount {
                dev: Dev::new(8, minor),
                fs_type: "ext4".to_owned(),
                root: root.into(),
                point: point.into(),
            };
            let rules = vec![
                rule(
                    "read",
                    Verdict::Deny,
                    Subject::File {
                        globs: vec![glob("/a/**"), glob("/**/*.key")],
                        access: opensafe_common::verdict::Access::FILE,
                    },
                ),
                rule("run", Verdict::Audit, Subject::Exec(vec![glob("/b/*")])),
                rule(
                    "contact",
                    Verdict::Deny,
                    Subject::Connect {
                        peers: ["10.0.0.0/8", "unix:/run/**", "unix:@a*"]
                            .map(|text| Peer::parse(text).expect("a peer"))
                            .into(),
                        ports: Vec::new(),
                        protocol: None,
                    },
                ),
            ];
            InForce {
                rules: Arc::new(RuleSet {
                    defaults: Defaults::default(),
                    rules,
                    revision: "test@0".to_owned(),
                }),
                view: Arc::new(View {
                    mounts: vec![
                        mount(1, "/", "/"),
                        mount(2, "/", "/mnt"),
                        mount(2, "/a", "/b"),
                    ],
                    ..View::default()
                }),
                number: PolicyNumber::FIRST,
            }
        })
        .clone()
}

/// Type information is an error, or answers each question, in bounded time.
pub(super) fn btf(bytes: &[u8]) {
    let Ok(btf) = Btf::parse(bytes.to_vec(), Offsets::PATHS) else {
        return;
    };
    let offsets = btf.offsets();
    if let Err(error) = offsets {
        assert!(error.to_string().contains("has no"), "{error}");
    }
    let _ = btf.has_hook("file_open");
    assert!(btf.setattr_dentry(crate::enforcement::Way::Lsm) < 2);
    let _ = btf.dentry_is_mounted_on();
}
