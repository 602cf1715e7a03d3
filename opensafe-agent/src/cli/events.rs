//! `opensafe events`: a record as a table.

use std::{
    borrow::Cow,
    ffi::OsString,
    io::{self, Write},
    net::IpAddr,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use jiff::{Timestamp, tz::TimeZone};

use super::{
    Advise as _,
    args::EventsArgs,
    output,
    table::{Cell, Cut, Table},
};
use crate::{
    rules::access,
    run::Status,
    sink::{
        object::{bind_text, file_text, ip_text, operation_text, peer_over, socket_text, who},
        record::{
            place::{FindError, Invoker},
            read::{Line, Lines, ReadError, read},
        },
        terminal::duration,
        text::{printable, printable_path},
    },
};
use opensafe_common::operation::Operation;

const COLUMNS: [(&str, Cut); 6] = [
    ("TIME", Cut::Never),
    ("WHAT", Cut::Never),
    ("VERDICT", Cut::Never),
    ("OBJECT", Cut::Late),
    ("WHO", Cut::Early),
    ("RULE", Cut::Early),
];

/// The columns of [`COLUMNS`] where only denials are shown: those are few, and each is to be understood.
const DENIALS: [(&str, Cut); 6] = [
    ("TIME", Cut::Never),
    ("WHAT", Cut::Never),
    ("VERDICT", Cut::Never),
    ("OBJECT", Cut::Wrap),
    ("WHO", Cut::Wrap),
    ("RULE", Cut::Wrap),
];

pub(super) fn events(args: &EventsArgs) -> anyhow::Result<ExitCode> {
    let invoker = Invoker::current();
    let path = match &args.record {
        Some(typed) => found(invoker.find(typed))?,
        None => found(invoker.latest())?,
    };
    let lines = read(&path)?;
    let out = output::stdout();
    let seen = if args.json {
        json(lines, args, out)?
    } else {
        let width = output::width();
        table(lines, args, &TimeZone::system(), width, out)?
    };
    if seen.broken > 0 {
        note(&format!("lines that are no events: {}", seen.broken));
    }
    if !args.json {
        if seen.wanted == 0 {
            note("no such events are on record");
        }
        if !seen.end {
            note("the record has no end: the run goes on, or came to a sudden one");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds what to do to a record that was not found.
pub(super) fn found(result: Result<PathBuf, FindError>) -> anyhow::Result<PathBuf> {
    match result {
        Err(error @ (FindError::NoneSo { .. } | FindError::NoSuch { .. })) => {
            Err(error).advise("`opensafe runs` lists the runs on record")
        }
        Err(error @ FindError::NoRuns { .. }) => {
            Err(error).advise("name a record's file, or make one with `opensafe run`")
        }
        Err(error @ FindError::Ambiguous { .. }) => {
            Err(error).advise("give more of its characters")
        }
        other => Ok(other?),
    }
}

/// A remark beside the output.
pub(super) fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "opensafe: {text}");
}

/// What there was to be seen in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Lines that were asked for.
    wanted: u64,
    /// Lines that could not be read.
    broken: u64,
    /// Whether the run's end is on record.
    end: bool,
}

/// The lines that were asked for, as they are.
fn json(lines: Lines, args: &EventsArgs, mut out: impl Write) -> anyhow::Result<Seen> {
    let seen = each(lines, args, |line| {
        out.write_all(line.raw())?;
        out.write_all(b"\n")
    })?;
    out.flush()?;
    Ok(seen)
}

/// The lines that were asked for, as a table.
fn table<R: io::BufRead>(
    lines: Lines<R>,
    args: &EventsArgs,
    zone: &TimeZone,
    width: Option<usize>,
    out: impl Write,
) -> anyhow::Result<Seen> {
    let home = lines
        .start()
        .and_then(|start| start.bytes("opensafe.user.home"))
        .map_or_else(PathBuf::new, |home| OsString::from_vec(home).into());
    let columns = if args.denied { DENIALS } else { COLUMNS };
    let mut table = Table::new(columns, width, out);
    let seen = each(lines, args, |line| table.row(row(line, &home, zone)))?;
    table.finish()?;
    Ok(seen)
}

/// Calls `with` for each line that was asked for.
fn each<R: io::BufRead>(
    lines: Lines<R>,
    args: &EventsArgs,
    mut with: impl FnMut(&Line) -> io::Result<()>,
) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    for line in lines {
        match line {
            Ok(line) => {
                seen.end |= line.event() == "run.end";
                if wanted(&line, args) {
                    seen.wanted += 1;
                    with(&line)?;
                }
            }
            Err(ReadError::Line { .. } | ReadError::TooLong { .. }) => seen.broken += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(seen)
}

fn wanted(line: &Line, args: &EventsArgs) -> bool {
    let named = args.event.is_empty() || args.event.iter().any(|event| event.is(line.event()));
    named && (!args.denied || line.is_denial())
}

fn row(line: &Line, home: &Path, zone: &TimeZone) -> [Cell; 6] {
    let (what, object) = what(line, home);
    let (verdict, style) = verdict(line);
    let who = match line.event() {
        "run.start" => printable(&line.bytes("user.name").unwrap_or_default()).into_owned(),
        "run.end" | "run.adopted" | "policy.applied" | "loss" => String::new(),
        _ => whom(line),
    };
    [
        Cell::new(time(line.time(), zone)),
        Cell::new(what),
        Cell::new(verdict).styled(style),
        if line.event() == "file" {
            Cell::new(object).path()
        } else {
            Cell::new(object)
        },
        Cell::new(who),
        Cell::new(rule(line)),
    ]
}

/// What was done and to what.
fn what(line: &Line, home: &Path) -> (Cow<'static, str>, String) {
    let path = |key| {
        line.bytes(key)
            .map(|path| printable_path(&path, home).into_owned())
    };
    let number = |key| line.number(key).unwrap_or_default();
    match line.event() {
        "run.start" => ("start".into(), command(&line.list("process.command_args"))),
        "run.end" => {
            let lasted = Duration::from_nanos(number("opensafe.run.duration_nano"));
            let how = status(line).map_or_else(
                || "the command never ran".to_owned(),
                |status| status.to_string(),
            );
            ("end".into(), format!("{how} after {}", duration(lasted)))
        }
        "run.adopted" => {
            let nobody = Duration::from_nanos(number("opensafe.unattended.duration_nano"));
            let lost = match number("opensafe.unattended.lost") {
                1 => "1 event".to_owned(),
                lost => format!("{lost} events"),
            };
            let object = format!("unattended for {}, {lost} lost", duration(nobody));
            ("adopted".into(), object)
        }
        "policy.applied" => {
            let before = line.text("opensafe.policy.before").unwrap_or_default();
            let object = format!("instead of {}", printable(before.as_bytes()));
            ("policy".into(), object)
        }
        "loss" => {
            let lost = number("opensafe.loss.seen").saturating_sub(number("opensafe.loss.sent"));
            ("loss".into(), format!("{lost} events lost so far"))
        }
        "exec" => {
            let mut object = path("file.path").unwrap_or_default();
            // Of a program that did not run, the arguments are of the one that wanted it to.
            let arguments = line.list("process.command_args");
            if !line.is("opensafe.enforced") && arguments.len() > 1 {
                object = format!("{object} {}", command(&arguments[1..]));
            }
            ("exec".into(), object)
        }
        "file" => {
            let access = access::from_kind_words(&line.list("opensafe.file.access"));
            let received = line.is("opensafe.file.received");
            let path = line.bytes("file.path").unwrap_or_default();
            (access::one_word(access), file_text(&path, received, home))
        }
        "connect" => ("connect".into(), peer(line)),
        "socket" => ("socket".into(), socket(line)),
        "bind" => ("bind".into(), bound(line)),
        "response" => {
            let action = line.text("opensafe.response.action").unwrap_or_default();
            let action = printable(action.as_bytes()).into_owned();
            (action.into(), responded_to(line))
        }
        "file.failed" => {
            let access = access::from_kind_words(&line.list("opensafe.file.access"));
            let asked = line.bytes("opensafe.file.requested").unwrap_or_default();
            let error = line.text("error.type").unwrap_or_default();
            let error = printable(error.as_bytes());
            let object = format!("{} · {error}", printable(&asked));
            (access::one_word(access), object)
        }
        "exit" => {
            let how = status(line).map(|status| status.to_string());
            ("exit".into(), how.unwrap_or_default())
        }
        name => match Operation::ALL.iter().find(|known| known.name() == name) {
            Some(known) => (known.name().into(), operation(line, home)),
            None => ("other".into(), printable(name.as_bytes()).into_owned()),
        },
    }
}

pub(super) fn status(line: &Line) -> Option<Status> {
    let number = |key| {
        line.integer(key)
            .and_then(|number| i32::try_from(number).ok())
    };
    let code = number("process.exit.code").map(Status::Code);
    code.or_else(|| number("opensafe.process.exit.signal").map(Status::Signal))
}

/// A peer, as policies write it, and its protocol if it is not TCP.
fn peer(line: &Line) -> String {
    let text = |key| line.text(key).unwrap_or_default();
    let address = line.bytes("network.peer.address").unwrap_or_default();
    if text("network.transport") == "unix" {
        return format!("unix:{}", printable(&address));
    }
    let peer = match (ip(&address), line.number("network.peer.port")) {
        (Some(address), port) => ip_text(address, narrow(port)),
        (None, _) if address.is_empty() => {
            printable(text("opensafe.network.family").as_bytes()).into_owned()
        }
        (None, _) => printable(&address).into_owned(),
    };
    peer_over(peer, text("network.transport"))
}

fn socket(line: &Line) -> String {
    let text = |key| line.text(key).unwrap_or_default();
    socket_text(
        text("opensafe.network.family"),
        text("opensafe.network.socket_type"),
    )
}

/// The address that a socket was bound to.
fn bound(line: &Line) -> String {
    let address = line.bytes("network.local.address").unwrap_or_default();
    match ip(&address) {
        Some(ip) => bind_text(
            ip,
            narrow(line.number("network.local.port")),
            line.text("network.transport").unwrap_or_default(),
        ),
        None => printable(&address).into_owned(),
    }
}

fn operation(line: &Line, home: &Path) -> String {
    let comm = line.bytes("opensafe.target.comm").unwrap_or_default();
    let target = line
        .number("opensafe.target.pid")
        .map(|pid| (comm.as_ref(), pid));
    operation_text(
        line.text("opensafe.operation.how").unwrap_or_default(),
        target,
        line.bytes("file.path").as_deref(),
        home,
    )
}

/// `5 events, the last: read /x`.
fn responded_to(line: &Line) -> String {
    let object = line.text("opensafe.response.object").unwrap_or_default();
    let object = printable(object.as_bytes());
    match line.number("opensafe.response.count") {
        Some(count @ 2..) => format!("{count} events, the last: {object}"),
        _ => object.into_owned(),
    }
}

fn ip(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn narrow(port: Option<u64>) -> u16 {
    port.and_then(|port| u16::try_from(port).ok())
        .unwrap_or_default()
}

fn whom(line: &Line) -> String {
    who(
        &line.bytes("process.executable.path").unwrap_or_default(),
        &line.bytes("opensafe.process.comm").unwrap_or_default(),
        line.number("process.pid").unwrap_or_default(),
        &line.list("opensafe.process.ancestors"),
    )
}

fn verdict(line: &Line) -> (&'static str, Style) {
    match (line.text("opensafe.verdict"), line.is("opensafe.enforced")) {
        (Some("deny"), true) => ("denied", AnsiColor::Red.on_default().bold()),
        (Some("deny"), false) => ("would deny", AnsiColor::Yellow.on_default().bold()),
        (Some("audit"), _) => ("audit", AnsiColor::Cyan.on_default()),
        (Some("allow"), _) => ("allow", Style::new()),
        _ if line.event() == "file.failed" => ("failed", Style::new()),
        _ => match line.text("opensafe.response.outcome") {
            Some("failed") => ("failed", AnsiColor::Red.on_default().bold()),
            Some("observed") => ("observed", Style::new()),
            Some("late") => ("late", Style::new()),
            _ => ("", Style::new()),
        },
    }
}

/// The rule, and for what it did not simply let pass, its reason.
fn rule(line: &Line) -> String {
    let begins = matches!(line.event(), "run.start" | "policy.applied");
    if let Some(revision) = line.text("opensafe.policy.revision").filter(|_| begins) {
        return printable(revision.as_bytes()).into_owned();
    }
    let text = |key| printable(line.text(key).unwrap_or_default().as_bytes()).into_owned();
    let (rule, reason) = match line.event() {
        "response" => {
            let why = match line.text("opensafe.response.error") {
                Some(_) => text("opensafe.response.error"),
                None => text("opensafe.response.reason"),
            };
            (text("opensafe.response.id"), why)
        }
        _ => (text("opensafe.rule.id"), text("opensafe.reason")),
    };
    if line.text("opensafe.verdict") == Some("allow") || reason.is_empty() {
        rule
    } else {
        format!("{rule}: {reason}")
    }
}

/// Local time of day, to the millisecond.
fn time(nanoseconds: u64, zone: &TimeZone) -> String {
    local(nanoseconds, zone, "%H:%M:%S%.3f")
}

/// Local time in a form.
pub(super) fn local(nanoseconds: u64, zone: &TimeZone, form: &str) -> String {
    Timestamp::from_nanosecond(i128::from(nanoseconds))
        .map(|time| time.to_zoned(zone.clone()).strftime(form).to_string())
        .unwrap_or_default()
}

/// A command line as a shell would take it, for a person.
pub(super) fn command(arguments: &[Vec<u8>]) -> String {
    let words: Vec<String> = arguments.iter().map(|argument| word(argument)).collect();
    words.join(" ")
}

fn word(argument: &[u8]) -> String {
    let plain = |byte: &u8| {
        byte.is_ascii_alphanumeric() || b"-_./:=@%+,~[]{}^".contains(byte) || *byte >= 0x80
    };
    let text = printable(argument);
    if !argument.is_empty() && argument.iter().all(plain) {
        text.into_owned()
    } else if text.contains('\'') {
        format!("\"{}\"", text.replace('"', "\\\""))
    } else {
        format!("'{text}'")
    }
}

/// A record as a table, or why it is none.
#[cfg(any(test, feature = "untrusted"))]
pub(crate) fn shown(record: &[u8], width: Option<usize>) -> String {
    let args = EventsArgs {
        record: None,
        denied: false,
        event: Vec::new(),
        json: false,
    };
    let mut out = Vec::new();
    let shown = Lines::new(Path::new("r.jsonl"), record)
        .map_err(Into::into)
        .and_then(|lines| table(lines, &args, &TimeZone::UTC, width, &mut out));
    shown.map_or_else(
        |error| error.to_string(),
        |_| String::from_utf8_lossy(&out).into_owned(),
    )
}

#[cfg(test)]
mod tests;
