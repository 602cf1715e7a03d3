//! One event, one line of JSON: the form that `docs/events.md` describes.
//!
//! Keys are flat, and none is the beginning of another before a dot, so that a reader may also turn
//! them into a tree. Every function appends one line with its newline and nothing else.

use std::{io, net::IpAddr, path::Path};

use nix::errno::Errno;
use serde::{Serialize, Serializer as _, ser::SerializeMap as _};
use serde_json::ser::{Compound, Formatter, Serializer};

use crate::{
    enforcement::Way,
    enrich::{Action, Enriched, Peer, Process, Ruling},
    event::{Losses, PolicyNumber, UnixNano},
    response::{Outcome, Responded},
    rules::access::kind_words,
    run::{Adopted, Applied, PolicyInfo, RunEnd, RunId, RunStart, Status},
    sink::{
        redact::redact_args,
        response::{done_to, said},
        text::{encode, is_hidden},
    },
};
use opensafe_common::verdict::Verdict;

/// The form's version, `opensafe.record.version` of a record's first line. It goes up when a key is
/// renamed, removed or changes its meaning; more keys and events may come without.
pub const VERSION: u32 = 1;

/// Why an event could not be made into a line.
pub type Error = serde_json::Error;

/// The first line: the run.
///
/// # Errors
/// None with the values that the types allow.
pub fn start(run: &RunStart, out: &mut Vec<u8>) -> Result<(), Error> {
    line(out, run.time, &run.id, "run.start", |fields| {
        fields.put("opensafe.record.version", &VERSION)?;
        fields.put("opensafe.version", env!("CARGO_PKG_VERSION"))?;
        fields.put("opensafe.mode", run.mode.as_str())?;
        fields.put("opensafe.partial", &run.partial)?;
        fields.policy(&run.policy)?;
        let overall = run.enforcement.overall().as_str();
        fields.put("opensafe.enforcement.overall", overall)?;
        let way = run.enforcement.way.map_or("", Way::as_str);
        fields.put("opensafe.enforcement.way", way)?;
        for (name, operation) in run.enforcement.operations() {
            let key = format!("opensafe.enforcement.{name}");
            fields.put(&format!("{key}.level"), operation.level.as_str())?;
            fields.put(&format!("{key}.by"), &operation.by)?;
            fields.put(&format!("{key}.missing"), &operation.missing)?;
        }
        fields.put("gen_ai.agent.name", &run.agent)?;
        fields.path("opensafe.workspace", &run.workspace)?;
        fields.texts("process.command_args", &redact_args(&run.command))?;
        fields.path("process.working_directory", &run.directory)?;
        fields.put("user.name", &run.user.name)?;
        fields.put("user.id", &run.user.uid.to_string())?;
        fields.put("opensafe.user.group.id", &run.user.gid)?;
        fields.path("opensafe.user.home", &run.user.home)?;
        fields.put("host.name", &run.host.name)?;
        fields.put("os.type", "linux")?;
        fields.put("os.version", &run.host.kernel)?;
        fields.path("opensafe.cgroup.path", &run.cgroup.path)?;
        fields.put("opensafe.cgroup.id", &run.cgroup.id)?;
        fields.put("opensafe.enforcement.outlives_supervisor", &run.outlives)?;
        fields.put("opensafe.supervisor.pid", &run.pid)
    })
}

/// The line of a run that was taken up.
///
/// # Errors
/// None with the values that the types allow.
pub fn adopted(run: &RunId, adopted: &Adopted, out: &mut Vec<u8>) -> Result<(), Error> {
    line(out, adopted.time, run, "run.adopted", |fields| {
        let nanoseconds = u64::try_from(adopted.unattended.as_nanos()).unwrap_or(u64::MAX);
        fields.put("opensafe.unattended.duration_nano", &nanoseconds)?;
        fields.put("opensafe.unattended.lost", &adopted.lost)?;
        fields.put("opensafe.supervisor.pid", &adopted.pid)?;
        match adopted.from {
            Some(from) => fields.put("opensafe.supervisor.before", &from),
            None => Ok(()),
        }
    })
}

/// The line of a policy that is in force from now on.
///
/// # Errors
/// None with the values that the types allow.
pub fn applied(run: &RunId, applied: &Applied, out: &mut Vec<u8>) -> Result<(), Error> {
    line(out, applied.time, run, "policy.applied", |fields| {
        fields.put("opensafe.policy.number", &applied.number)?;
        fields.policy(&applied.policy)?;
        fields.put("opensafe.policy.before", &applied.before)
    })
}

/// An event's line.
///
/// # Errors
/// None with the values that the types allow.
pub fn event(run: &RunId, event: &Enriched, out: &mut Vec<u8>) -> Result<(), Error> {
    let action = &event.action;
    line(out, event.time, run, action.name(), |fields| {
        match action.ruling() {
            Some(ruling) => fields.operation(ruling, action.default_name(), &event.process)?,
            None => fields.process(&event.process)?,
        }
        match action {
            Action::Exec {
                path, requested, ..
            } => {
                fields.text("file.path", path)?;
                fields.text_unless_empty("opensafe.file.requested", requested)
            }
            Action::File {
                path,
                requested,
                access,
                received,
                ..
            } => {
                fields.text("file.path", path)?;
                fields.text_unless_empty("opensafe.file.requested", requested)?;
                fields.put("opensafe.file.access", &kind_words(*access))?;
                fields.put_if("opensafe.file.received", *received)
            }
            Action::Connect {
                peer,
                transport,
                by_send,
                ..
            } => {
                fields.peer(peer)?;
                fields.put("network.transport", transport)?;
                fields.put("opensafe.network.by_send", by_send)
            }
            Action::Socket {
                family,
                socket_type,
                protocol,
                ..
            } => {
                fields.put("opensafe.network.family", family)?;
                fields.put("opensafe.network.socket_type", socket_type)?;
                fields.put("opensafe.network.protocol", protocol)
            }
            Action::Bind {
                address,
                port,
                transport,
                ..
            } => {
                fields.put("network.local.address", address)?;
                fields.put("network.local.port", port)?;
                fields.put("network.type", ip_version(*address))?;
                fields.put("network.transport", transport)
            }
            Action::Operation {
                how, target, path, ..
            } => {
                fields.put("opensafe.operation.how", how)?;
                if let Some(target) = target {
                    fields.put("opensafe.target.pid", &target.pid)?;
                    fields.text_unless_empty("opensafe.target.comm", &target.comm)?;
                }
                match path {
                    Some(path) => fields.text("file.path", path),
                    None => Ok(()),
                }
            }
            Action::OpenFailed {
                requested,
                access,
                errno,
            } => {
                fields.text_unless_empty("opensafe.file.requested", requested)?;
                fields.put("opensafe.file.access", &kind_words(*access))?;
                fields.put("error.type", &errno_name(*errno))
            }
            Action::Exit { code, signal } => {
                fields.some("process.exit.code", code.as_ref())?;
                fields.some("opensafe.process.exit.signal", signal.as_ref())
            }
        }
    })
}

/// `EACCES` and its like.
fn errno_name(errno: i32) -> String {
    match Errno::from_raw(errno) {
        Errno::UnknownErrno => errno.to_string(),
        known => format!("{known:?}"),
    }
}

/// What was done about an event, or could not be.
///
/// # Errors
/// None with the values that the types allow.
pub fn response(run: &RunId, responded: &Responded, out: &mut Vec<u8>) -> Result<(), Error> {
    let event = &responded.event;
    line(out, responded.time, run, "response", |fields| {
        fields.put("opensafe.response.id", &responded.response)?;
        fields.put("opensafe.response.action", responded.deed.name())?;
        fields.put("opensafe.response.outcome", responded.outcome.name())?;
        if let Outcome::Failed { error, why } = &responded.outcome {
            fields.put("error.type", error)?;
            fields.text("opensafe.response.error", why.as_bytes())?;
        }
        fields.put("opensafe.response.reason", &responded.reason)?;
        fields.put("opensafe.response.count", &responded.count)?;
        fields.put("opensafe.response.event", event.action.name())?;
        fields.put("opensafe.response.event_time_unix_nano", &event.time)?;
        let object = done_to(&event.action, Path::new(""));
        fields.put("opensafe.response.object", &object)?;
        if let Some(ruling) = event.action.ruling() {
            fields.rule(ruling, event.action.default_name())?;
            fields.put("opensafe.severity", &ruling.severity)?;
        }
        fields.process(&event.process)
    })
}

/// What those who are told of an alert are told: a sentence, and the lines of the response, of the event, and of the run's
/// start.
///
/// # Errors
/// None with the values that the types allow.
pub fn told(run: &RunStart, responded: &Responded, out: &mut Vec<u8>) -> Result<(), Error> {
    let text = said(responded, &run.id, &run.user.home).map(|said| said.text());
    let text = serde_json::to_string(&text.unwrap_or_default())?;
    out.extend_from_slice(format!("{{\"text\":{text}").as_bytes());
    let mut put = |key: &str, make: &dyn Fn(&mut Vec<u8>) -> Result<(), Error>| {
        out.extend_from_slice(format!(",\"{key}\":").as_bytes());
        make(out)?;
        out.pop_if(|last| *last == b'\n');
        Ok::<(), Error>(())
    };
    put("response", &|out| response(&run.id, responded, out))?;
    put("event", &|out| event(&run.id, &responded.event, out))?;
    put("run", &|out| start(run, out))?;
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// What was lost so far.
///
/// # Errors
/// None with the values that the types allow.
pub fn loss(run: &RunId, time: UnixNano, losses: &Losses, out: &mut Vec<u8>) -> Result<(), Error> {
    line(out, time, run, "loss", |fields| fields.losses(losses))
}

/// The last line: how the run ended.
///
/// # Errors
/// None with the values that the types allow.
pub fn end(run: &RunId, end: &RunEnd, out: &mut Vec<u8>) -> Result<(), Error> {
    line(out, end.time, run, "run.end", |fields| {
        let nanoseconds = u64::try_from(end.duration.as_nanos()).unwrap_or(u64::MAX);
        fields.put("opensafe.run.duration_nano", &nanoseconds)?;
        match end.status {
            Some(Status::Code(code)) => fields.put("process.exit.code", &code)?,
            Some(Status::Signal(signal)) => fields.put("opensafe.process.exit.signal", &signal)?,
            None => {}
        }
        fields.put("opensafe.policy.revision", &end.policy)?;
        for (name, counts) in end.counts.all() {
            let key = format!("opensafe.count.{name}");
            fields.put(&format!("{key}.allow"), &counts.allow)?;
            fields.put(&format!("{key}.audit"), &counts.audit)?;
            fields.put(&format!("{key}.deny"), &counts.deny)?;
        }
        let touched = end.touched;
        fields.put("opensafe.distinct.programs", &touched.programs)?;
        fields.put("opensafe.distinct.files_read", &touched.files_read)?;
        fields.put("opensafe.distinct.files_written", &touched.files_written)?;
        fields.put("opensafe.distinct.destinations", &touched.destinations)?;
        fields.put("opensafe.distinct.denials", &touched.denials)?;
        fields.put("opensafe.count.response.done", &end.responses.done)?;
        fields.put("opensafe.count.response.failed", &end.responses.failed)?;
        fields.some("opensafe.killed_by", end.responses.killed_by.as_ref())?;
        fields.losses(&end.losses)?;
        for (name, count, _) in end.trouble.all() {
            fields.put(&format!("opensafe.trouble.{name}"), &count)?;
        }
        fields.put("opensafe.cleanup.killed", &end.cleanup.killed)?;
        let left = end.cleanup.cgroup_left.as_ref();
        fields.put("opensafe.cleanup.cgroup_removed", &left.is_none())?;
        fields.some("opensafe.cleanup.cgroup_left", left)
    })
}

/// A verdict's word.
#[must_use]
pub const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Audit => "audit",
        Verdict::Deny => "deny",
    }
}

const fn ip_version(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "ipv4",
        IpAddr::V6(_) => "ipv6",
    }
}

/// Appends one line: what every line has, then what `more` adds. Leaves `out` alone if it fails.
fn line(
    out: &mut Vec<u8>,
    time: UnixNano,
    run: &RunId,
    event: &str,
    more: impl FnOnce(&mut Fields<'_, '_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let before = out.len();
    let mut serializer = Serializer::with_formatter(&mut *out, OneLine);
    let written = serializer.serialize_map(None).and_then(|map| {
        let mut fields = Fields(map);
        fields.put("time_unix_nano", &time)?;
        fields.put("opensafe.run.id", run)?;
        fields.put("opensafe.event", event)?;
        more(&mut fields)?;
        fields.0.end()
    });
    match written {
        Ok(()) => out.push(b'\n'),
        Err(_) => out.truncate(before),
    }
    written
}

/// The fields of one line.
struct Fields<'s, 'o>(Compound<'s, &'o mut Vec<u8>, OneLine>);

impl Fields<'_, '_> {
    fn put(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.0.serialize_entry(key, value)
    }

    /// A key that is there only if it is true.
    fn put_if(&mut self, key: &str, value: bool) -> Result<(), Error> {
        if value { self.put(key, &true) } else { Ok(()) }
    }

    fn some(&mut self, key: &str, value: Option<&impl Serialize>) -> Result<(), Error> {
        value.map_or(Ok(()), |value| self.put(key, value))
    }

    fn text(&mut self, key: &str, bytes: &[u8]) -> Result<(), Error> {
        self.put(key, &*encode(bytes))
    }

    fn text_unless_empty(&mut self, key: &str, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            Ok(())
        } else {
            self.text(key, bytes)
        }
    }

    fn texts(&mut self, key: &str, all: &[Vec<u8>]) -> Result<(), Error> {
        let all: Vec<_> = all.iter().map(|bytes| encode(bytes)).collect();
        self.put(key, &all)
    }

    fn path(&mut self, key: &str, path: &Path) -> Result<(), Error> {
        self.text(key, path.as_os_str().as_encoded_bytes())
    }

    fn paths(&mut self, key: &str, paths: &[impl AsRef<Path>]) -> Result<(), Error> {
        let all: Vec<_> = paths
            .iter()
            .map(|path| encode(path.as_ref().as_os_str().as_encoded_bytes()))
            .collect();
        self.put(key, &all)
    }

    /// What every line of an operation has: the verdict on it, and whose it is. `default` names what decided
    /// where no rule did.
    fn operation(
        &mut self,
        ruling: &Ruling,
        default: &str,
        process: &Process,
    ) -> Result<(), Error> {
        self.put("opensafe.verdict", verdict(ruling.verdict))?;
        self.put("opensafe.enforced", &ruling.enforced)?;
        self.rule(ruling, default)?;
        self.put("opensafe.reason", &ruling.reason)?;
        self.put("opensafe.severity", &ruling.severity)?;
        if ruling.policy != Some(PolicyNumber::FIRST) {
            self.put("opensafe.policy.number", &ruling.policy)?;
        }
        if ruling.enforced && ruling.verdict == Verdict::Deny {
            self.put("opensafe.denied_by", "opensafe")?;
            self.put("error.type", ruling.errno.name())?;
        }
        self.process(process)?;
        self.texts("process.command_args", &process.args)
    }

    fn policy(&mut self, policy: &PolicyInfo) -> Result<(), Error> {
        self.put("opensafe.policy.revision", &policy.revision)?;
        self.paths("opensafe.policy.sources", &policy.sources)?;
        self.put("opensafe.policy.rules", &policy.rules)?;
        for (name, default) in policy.defaults.all() {
            let key = format!("opensafe.policy.defaults.{name}");
            self.put(&key, verdict(default))?;
        }
        Ok(())
    }

    fn rule(&mut self, ruling: &Ruling, default: &str) -> Result<(), Error> {
        match &ruling.rule {
            Some(rule) => self.put("opensafe.rule.id", rule),
            None => self.put("opensafe.rule.id", &format!("defaults.{default}")),
        }
    }

    fn process(&mut self, process: &Process) -> Result<(), Error> {
        self.put("process.pid", &process.pid)?;
        self.put("process.parent_pid", &process.parent_pid)?;
        self.put("process.user.id", &process.uid)?;
        self.text_unless_empty("process.executable.path", &process.executable)?;
        self.text("opensafe.process.comm", &process.comm)?;
        self.texts("opensafe.process.ancestors", &process.ancestors)?;
        self.some("container.id", process.container_id.as_ref())
    }

    fn peer(&mut self, peer: &Peer) -> Result<(), Error> {
        match peer {
            Peer::Ip(address, port) => {
                self.put("network.peer.address", address)?;
                self.put("network.peer.port", port)?;
                self.put("network.type", ip_version(*address))
            }
            Peer::UnixPath(path) => self.text("network.peer.address", path),
            Peer::UnixAbstract(name) => {
                self.text("network.peer.address", &[b"@", name.as_slice()].concat())
            }
            Peer::Family(name) => self.put("opensafe.network.family", name),
        }
    }

    fn losses(&mut self, losses: &Losses) -> Result<(), Error> {
        self.put("opensafe.loss.seen", &losses.seen)?;
        self.put("opensafe.loss.sent", &losses.sent)?;
        self.put("opensafe.loss.ring_full", &losses.ring_full)?;
        self.put("opensafe.loss.no_scratch", &losses.no_scratch)?;
        self.put("opensafe.loss.queue_full", &losses.queue_full)?;
        self.put("opensafe.loss.malformed", &losses.malformed)?;
        self.put("opensafe.loss.agent_killed", &losses.agent_killed)?;
        self.put("opensafe.loss.record_failed", &losses.record_failed)
    }
}

/// JSON that every reader takes for one line, and that is harmless on a terminal: characters that
/// end a line somewhere, that a terminal acts on or that nobody sees are written `\uHHHH`.
#[derive(Clone)]
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        while let Some((at, hidden)) = rest.char_indices().find(|(_, c)| is_hidden(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in hidden.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + hidden.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}
