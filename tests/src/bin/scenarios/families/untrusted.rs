//! Arguments that a careful program would not give: nowhere, cut off, too long, of any bytes, and changing while they are
//! read. What came of a call is compared with what comes of it outside, and with what really happened to the object.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram, UnixListener},
    },
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    harness::{Finished, Outcome, Policy, Problems, Run, Scenario, deny, directory, write},
    scenarios,
};

scenarios![
    a_path_from_the_edge_of_what_is_mapped_is_decided_as_any_other,
    an_address_of_any_length_is_decided_as_any_other,
    names_and_arguments_of_any_bytes_are_denied_and_on_record_as_they_are,
    what_changes_while_it_is_read_leads_nowhere_that_is_denied,
];

/// Whether it takes no longer than others.
pub(super) fn is_quick(scenario: &Scenario) -> bool {
    scenario.name.starts_with("a_path_from")
}

const SCRIPT: &str = include_str!("untrusted.py");

/// `open` and `closed`, each with a file, a directory and a program that ends well.
struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Result<Self> {
        let folder = directory()?;
        for place in PLACES {
            let place = folder.path().join(place);
            fs::create_dir_all(place.join("directory"))?;
            fs::copy("/bin/true", place.join("program"))?;
            write(&place.join("file"), place.as_os_str().as_encoded_bytes())?;
        }
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// All is allowed but what is in `closed`.
    fn policy(&self) -> Policy {
        let closed = self.path("closed");
        let all = format!("{}/**", closed.display());
        Policy::open().rule(deny("closed").below(&closed)).rule(
            deny("program")
                .with("on", "exec".into())
                .with("match", all.into()),
        )
    }

    fn command(&self, what: &str, more: &[String]) -> Vec<String> {
        let folder = self.folder.path().display().to_string();
        let words = ["python3", "-c", SCRIPT, what, &folder];
        words
            .into_iter()
            .map(str::to_owned)
            .chain(more.iter().cloned())
            .collect()
    }
}

/// Where everything may be done, and where nothing may.
const PLACES: [&str; 2] = ["open", "closed"];

/// What came of each call, by its place and name.
type Said = BTreeMap<(String, String), String>;

fn said(text: &str) -> Result<Said> {
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some(((words.next()?, words.next()?), words.next()?))
    };
    let lines = text.lines().map(|text| line(text).context(text.to_owned()));
    lines.collect()
}

fn outside(command: &[String]) -> Result<Said> {
    let output = Command::new(&command[0])
        .args(&command[1..])
        .current_dir("/")
        .output()?;
    ensure!(
        output.status.success(),
        "outside: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    said(&String::from_utf8_lossy(&output.stdout))
}

fn inside(
    policy: &Policy,
    command: &[String],
    problems: &mut Problems,
) -> Result<(Finished, Said)> {
    let finished = Run::new(policy)?.run(command)?;
    finished.sound()?;
    problems.check(finished.code() == 0, || {
        format!("it ended with {}: {}", finished.code(), finished.said())
    });
    // Names in it are any bytes.
    problems.check(
        !finished
            .raw_record
            .iter()
            .any(|byte| *byte < b' ' && *byte != b'\n'),
        || "a line of the record has control characters in it".to_owned(),
    );
    let end = finished.record.end()?;
    problems.equal("malformed events", end.number("opensafe.loss.malformed"), 0);
    let said = said(&finished.text())?;
    Ok((finished, said))
}

fn a_path_from_the_edge_of_what_is_mapped_is_decided_as_any_other() -> Result<Outcome> {
    let ground = Ground::new()?;
    let outside = outside(&ground.command("paths", &[]))?;
    let ground = Ground::new()?;
    let mut problems = Problems::default();
    let (finished, inside) = inside(
        &ground.policy(),
        &ground.command("paths", &[]),
        &mut problems,
    )?;
    let (mut denied, mut alike) = (0, 0);
    for ((place, call), there) in &outside {
        let here = inside.get(&(place.clone(), call.clone()));
        let here = here.map_or("nothing", String::as_str);
        let stopped = ["EACCES", "EPERM"].contains(&here);
        let right = match (place.as_str(), there.as_str()) {
            ("open", there) => here == there,
            (_, "ok") => stopped,
            // Who may not do it may be told so before what is wrong with it.
            (_, there) => here == there || stopped,
        };
        problems.check(right, || {
            format!("{place} {call}: outside {there}, inside {here}")
        });
        denied += u32::from(right && stopped);
        alike += u32::from(right && !stopped);
    }
    problems.check(denied > 70 && alike > 300, || {
        format!("hardly tried: {denied} denied, {alike} as outside")
    });
    let kept = fs::read_to_string(ground.path("closed/file"))?;
    problems.check(kept.ends_with("/closed"), || {
        format!("the file was written to: {kept}")
    });
    // As it was asked for is on record whole, if it is as long as may be.
    let longest = finished
        .record
        .denials()
        .map(|line| line.bytes("opensafe.file.requested").len());
    problems.equal(
        "bytes of the longest path on record",
        longest.max(),
        Some(4095),
    );
    problems.outcome()
}

/// Who listens in both places, by TCP, UDP and Unix sockets, and counts who came to the closed one.
struct Listeners {
    ports: [u16; 2],
    came: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Listeners {
    fn at(folder: &Path) -> Result<Self> {
        let (came, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let mut threads = Vec::new();
        let mut ports = [0; 2];
        for (place, port) in PLACES.iter().zip(&mut ports) {
            // One port for both protocols.
            let stream = TcpListener::bind("127.0.0.1:0")?;
            *port = stream.local_addr()?.port();
            let datagram = UdpSocket::bind(("127.0.0.1", *port))?;
            let path = folder.join(place).join("socket");
            let name = folder.join(place);
            let name = name.as_os_str().as_encoded_bytes();
            let with_end = |path: &[u8]| [path, b"-dgram"].concat();
            let unix = UnixListener::bind(&path)?;
            let unix_datagram = UnixDatagram::bind(format!("{}-dgram", path.display()))?;
            let named = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
            let named_datagram =
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(with_end(name))?)?;
            stream.set_nonblocking(true)?;
            datagram.set_nonblocking(true)?;
            unix.set_nonblocking(true)?;
            unix_datagram.set_nonblocking(true)?;
            named.set_nonblocking(true)?;
            named_datagram.set_nonblocking(true)?;
            let counts = *place == "closed";
            let (came, stop) = (came.clone(), stop.clone());
            threads.push(std::thread::spawn(move || {
                let mut data = [0; 8];
                loop {
                    let all_said = stop.load(Ordering::Acquire);
                    let new = [
                        stream.accept().is_ok(),
                        datagram.recv(&mut data).is_ok(),
                        unix.accept().is_ok(),
                        unix_datagram.recv(&mut data).is_ok(),
                        named.accept().is_ok(),
                        named_datagram.recv(&mut data).is_ok(),
                    ];
                    let new = new.into_iter().filter(|new| *new).count();
                    if counts {
                        came.fetch_add(new as u64, Ordering::AcqRel);
                    }
                    if new == 0 {
                        if all_said {
                            return;
                        }
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }));
        }
        Ok(Self {
            ports,
            came,
            stop,
            threads,
        })
    }

    fn words(&self) -> Vec<String> {
        self.ports.iter().map(u16::to_string).collect()
    }

    /// How many came to the closed one.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.came.load(Ordering::Acquire)
    }
}

/// The policy of [`Ground::policy`], and nobody is contacted at the closed port, path and name.
fn nobody_closed(ground: &Ground, listeners: &Listeners) -> Policy {
    let closed = ground.path("closed");
    let (name, path) = (
        format!("unix:@{}*", closed.display()),
        format!("unix:{}/**", closed.display()),
    );
    ground
        .policy()
        .rule(deny("path").connect(path))
        .rule(deny("port").connect("127.0.0.0/8").port(listeners.ports[1]))
        .rule(deny("name").connect(name))
}

fn an_address_of_any_length_is_decided_as_any_other() -> Result<Outcome> {
    let ground = Ground::new()?;
    let listeners = Listeners::at(ground.folder.path())?;
    let outside = outside(&ground.command("peers", &listeners.words()))?;
    let came_outside = listeners.end();
    let ground = Ground::new()?;
    let listeners = Listeners::at(ground.folder.path())?;
    let mut problems = Problems::default();
    let policy = nobody_closed(&ground, &listeners);
    let command = ground.command("peers", &listeners.words());
    let (finished, inside) = inside(&policy, &command, &mut problems)?;
    problems.equal("who came to whom nobody may contact", listeners.end(), 0);
    problems.check(came_outside > 100, || {
        format!("outside, only {came_outside} came")
    });
    let mut denied = 0;
    for ((place, call), there) in &outside {
        let here = inside.get(&(place.clone(), call.clone()));
        let here = here.map_or("nothing", String::as_str);
        let stopped = ["EACCES", "EPERM"].contains(&here);
        denied += u32::from(stopped);
        // Whether who listens keeps up is chance.
        let arrived = |said: &str| ["ok", "EINPROGRESS", "EAGAIN"].contains(&said);
        let right = if place == "open" {
            // What is no address at all may be refused before it is found to be none.
            here == there || arrived(here) && arrived(there) || stopped && there == "EINVAL"
        } else {
            // Not each leads to whom it is about: a name that is cut off is another, a port that is taken stays so.
            stopped || here == there || here != "ok"
        };
        problems.check(right, || {
            format!("{place} {call}: outside {there}, inside {here}")
        });
    }
    problems.check(denied > 100, || format!("hardly tried: {denied} denied"));
    let told = finished.record.denials().any(|line| {
        line.text("opensafe.rule.id") == "name" && line.text("opensafe.event") == "connect"
    });
    problems.check(told, || "no denial of the name is on record".to_owned());
    problems.outcome()
}

fn names_and_arguments_of_any_bytes_are_denied_and_on_record_as_they_are() -> Result<Outcome> {
    let ground = Ground::new()?;
    let mut problems = Problems::default();
    let (finished, inside) = inside(
        &ground.policy(),
        &ground.command("names", &[]),
        &mut problems,
    )?;
    for ((place, call), here) in &inside {
        let should = if place == "open" { "ok" } else { "EACCES" };
        problems.check(here == should, || {
            format!("{place} {call}: {here}, not {should}")
        });
    }
    let record = &finished.record;
    let every: Vec<u8> = (1..=u8::MAX).filter(|byte| *byte != b'/').collect();
    let closed = ground.path("closed");
    for first in [1, 10, 34, 92, 128, 255] {
        let start = every
            .iter()
            .position(|byte| *byte == first)
            .context("a byte")?;
        let name = [&every[start..], &every[..start], &[first]].concat();
        let path = [closed.as_os_str().as_encoded_bytes(), b"/", &name].concat();
        let found = record.denials().any(|line| line.bytes("file.path") == path);
        problems.check(found, || {
            format!("the name from {first} on is not on record")
        });
    }
    // 15 bytes of it are kept (TASK_COMM_LEN in include/linux/sched.h).
    let comm = b"\n\xff\"}\n{\x1b[2J\\x41cut";
    let found = |key: &str, bytes: &[u8]| record.events.iter().any(|line| line.bytes(key) == bytes);
    problems.check(found("opensafe.process.comm", &comm[..15]), || {
        "the process's name is not on record as it is".to_owned()
    });
    let program = ground.path("open/program");
    let arguments = record
        .of("exec")
        .filter(|line| line.bytes("file.path") == program.as_os_str().as_encoded_bytes());
    let most = arguments
        .map(|line| line.texts("process.command_args").concat().len())
        .max();
    // 2,048 bytes, each of which may stand there as four.
    problems.check(
        most.is_some_and(|most| most > 500 && most <= 4 * 2048),
        || format!("{most:?} bytes of arguments are on record"),
    );
    problems.outcome()
}

fn what_changes_while_it_is_read_leads_nowhere_that_is_denied() -> Result<Outcome> {
    let ground = Ground::new()?;
    // Whoever ran it shows by its end.
    let (shell, place) = ("#!/bin/sh\nexit ", ground.path("closed/program"));
    fs::write(&place, format!("{shell}7\n"))?;
    let listeners = Listeners::at(ground.folder.path())?;
    let policy = nobody_closed(&ground, &listeners);
    let command = ground.command("race", &listeners.words());
    let mut problems = Problems::default();
    let finished = Run::new(&policy)?.run(&command)?;
    let record = finished.sound()?;
    problems.check(finished.code() == 0, || {
        format!("it ended with {}: {}", finished.code(), finished.said())
    });
    let text = finished.text();
    let times = |what: &str, said: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{what} {said} ")));
        line.and_then(|times| times.parse::<u64>().ok())
            .unwrap_or_default()
    };
    let (open, closed) = (ground.path("open"), ground.path("closed"));
    for (what, good, bad) in [
        (
            "open",
            open.display().to_string(),
            closed.display().to_string(),
        ),
        (
            "rename",
            open.display().to_string(),
            closed.display().to_string(),
        ),
        ("execve", "ok".to_owned(), "7".to_owned()),
        ("openat2", "ENOENT".to_owned(), "ok".to_owned()),
    ] {
        problems.equal(&format!("{what} of what is denied"), times(what, &bad), 0);
        for seen in [good.as_str(), "EACCES"] {
            problems.check(times(what, seen) > 0, || {
                format!("{what}: never {seen}: {text}")
            });
        }
    }
    problems.equal("who came to whom nobody may contact", listeners.end(), 0);
    for what in [
        "connect-inet",
        "sendto-inet",
        "sendmsg-inet",
        "connect-unix",
    ] {
        let stopped = times(what, "EACCES") + times(what, "EPERM");
        problems.check(stopped > 0, || format!("{what}: never stopped: {text}"));
    }
    let mut kept = String::new();
    fs::File::open(ground.path("closed/file"))?.read_to_string(&mut kept)?;
    problems.check(kept.ends_with("/closed"), || format!("the file is {kept}"));
    // What was asked for is read again, and may have changed; where it is has not.
    for line in record
        .denials()
        .filter(|line| line.text("opensafe.event") == "file")
    {
        problems.check(line.text("file.path").contains("/closed/"), || {
            format!("another place is on record: {line}")
        });
    }
    problems.outcome()
}
