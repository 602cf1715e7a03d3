//! Exec, file, connect: what is denied fails and is on record, what is allowed works and is.

use std::{
    fs,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::{
            fs::symlink,
            net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener},
        },
    },
    path::Path,
};

use anyhow::Result;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use serde_json::json;

use crate::{
    harness::{
        Attempt, Batch, Expected, Outcome, Policy, Rule, allow, attempt, audit, connect, deny,
        directory, exec, file, held, this_program, write,
    },
    scenarios,
};

scenarios![
    a_denied_file_cannot_be_read_written_or_made_and_an_allowed_one_can,
    a_denied_program_does_not_run_and_an_allowed_one_does,
    where_programs_are_denied_an_allowed_one_starts_and_no_other_in_any_way,
    a_denied_ip_peer_is_not_reached_in_any_way_and_an_allowed_one_is,
    what_no_rule_is_about_is_decided_by_the_defaults,
    a_denied_unix_socket_is_not_reached_and_an_allowed_one_is,
    a_rule_for_one_kind_of_access_leaves_the_others,
    names_of_protected_files_can_be_neither_taken_nor_given,
    where_sockets_are_denied_files_come_from_and_sockets_do_not,
    a_directory_above_a_protected_place_is_not_moved_away,
    what_is_audited_goes_ahead_and_is_on_record_each_time,
    observing_denies_nothing_and_records_what_it_would_have_denied,
];

fn on(verb: &str, path: &Path) -> Attempt {
    attempt(verb, &[path])
}

fn a_denied_file_cannot_be_read_written_or_made_and_an_allowed_one_can() -> Result<Outcome> {
    let folder = directory()?;
    let (closed, open) = (folder.path().join("closed"), folder.path().join("open"));
    for directory in [&closed, &open] {
        fs::create_dir(directory)?;
        for name in [
            "read", "write", "append", "both", "empty", "cut", "fifo", "ring", "path", "before",
            "thread",
        ] {
            write(&directory.join(name), "content")?;
        }
    }
    let policy = Policy::open()
        .rule(
            deny("closed")
                .below(&closed)
                .with("reason", json!("it is closed")),
        )
        .rule(allow("open").below(&open));
    let mut batch = Batch::new(&policy)?;
    // What is tried, on which file, and the kind of access on record.
    let all = [
        ("read", "read", "read"),
        ("write", "write", "write"),
        ("append", "append", "write"),
        ("read-write", "both", "write"),
        ("open-and-empty", "empty", "write"),
        ("truncate", "cut", "write"),
        ("create", "new", "create"),
        ("open-or-create", "new-too", "create"),
        ("mkdir", "directory", "create"),
        ("fifo", "pipe", "create"),
        ("reopen-path", "path", "read"),
        ("ring-read", "ring", "read"),
        ("ring-read-as-before", "before", "read"),
        ("ring-read-as-before-by-thread", "thread", "read"),
    ];
    for (verb, name, access) in all {
        let path = closed.join(name);
        let expected = file("closed", &path, access)
            .text("opensafe.reason", b"it is closed")
            .text("opensafe.severity", b"medium");
        batch.denied(on(verb, &path), expected);
    }
    batch.denied(on("list", &closed), file("closed", &closed, "read"));
    for (verb, name, access) in all {
        let path = open.join(name);
        // Names that are taken or given are on record where they are denied.
        match verb {
            "mkdir" | "fifo" | "truncate" => batch.works(on(verb, &path)),
            _ => batch.allowed(on(verb, &path), file("open", &path, access)),
        }
    }
    batch.allowed(on("list", &open), file("open", &open, "read"));
    // Looking at a name opens nothing.
    batch.works(on("stat", &closed.join("read")));
    batch.works(on("open-path", &closed.join("read")));
    let (_, mut problems) = batch.run()?;
    for name in ["new", "new-too", "directory", "pipe"] {
        problems.check(!closed.join(name).exists(), || {
            format!("{name} was made all the same")
        });
        problems.check(open.join(name).exists(), || format!("{name} was not made"));
    }
    for name in ["write", "append", "empty", "cut"] {
        let content = fs::read_to_string(closed.join(name))?;
        problems.equal(
            &format!("the content of {name}"),
            content.as_str(),
            "content",
        );
    }
    problems.outcome()
}

fn script(path: &Path, interpreter: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    write(path, format!("#!{}\n", interpreter.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn a_denied_program_does_not_run_and_an_allowed_one_does() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["denied", "allowed", "interpreter"] {
        fs::copy("/bin/true", path(name))?;
    }
    script(&path("denied-script"), Path::new("/bin/true"))?;
    script(&path("script-of-denied"), &path("interpreter"))?;
    script(&path("allowed-script"), Path::new("/bin/true"))?;
    let policy = Policy::open()
        .rule(deny("program").exec(path("denied")))
        .rule(deny("script").exec(path("denied-script")))
        .rule(deny("interpreter").exec(path("interpreter")))
        .rule(allow("fine").exec(path("allowed")));
    let mut batch = Batch::new(&policy)?;
    let (denied, allowed) = (path("denied"), path("allowed"));
    for verb in ["exec", "exec-by-descriptor", "exec-by-empty-path"] {
        batch.denied(on(verb, &denied), exec("program", &denied));
    }
    batch.allowed(on("exec", &allowed), exec("fine", &allowed));
    batch.allowed(on("exec-by-descriptor", &allowed), exec("fine", &allowed));
    batch.denied(
        on("exec", &path("denied-script")),
        exec("script", path("denied-script")),
    );
    batch.denied(
        on("exec", &path("script-of-denied")),
        exec("interpreter", path("interpreter")),
    );
    batch.works(on("exec", &path("allowed-script")));
    // A loader that is told the program opens it as a file; it is denied as a program, not as a file.
    batch.works(on("read", &denied));
    batch.check()?;
    held()
}

/// Peers that listen on this host's loopback addresses.
struct Listeners {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Listeners {
    fn new() -> Self {
        Self {
            tcp: Vec::new(),
            udp: Vec::new(),
        }
    }

    fn tcp(&mut self, address: &str) -> Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        self.tcp.push(listener);
        Ok(address)
    }

    fn udp(&mut self, address: &str) -> Result<SocketAddr> {
        let socket = UdpSocket::bind(address)?;
        let address = socket.local_addr()?;
        self.udp.push(socket);
        Ok(address)
    }

    fn got_datagrams(&self) -> Result<Vec<bool>> {
        let mut got = Vec::new();
        for socket in &self.udp {
            socket.set_nonblocking(true)?;
            got.push(socket.recv(&mut [0; 8]).is_ok());
        }
        Ok(got)
    }
}

fn peer(rule: &str, transport: &str, address: &str, port: u16) -> Expected {
    connect(rule, transport, address).port(port)
}

fn a_denied_ip_peer_is_not_reached_in_any_way_and_an_allowed_one_is() -> Result<Outcome> {
    let mut listeners = Listeners::new();
    // Of each pair, the first is denied.
    let v4 = [
        listeners.tcp("127.0.0.1:0")?.port(),
        listeners.tcp("127.0.0.1:0")?.port(),
    ];
    let v6 = [
        listeners.tcp("[::1]:0")?.port(),
        listeners.tcp("[::1]:0")?.port(),
    ];
    let u4 = [
        listeners.udp("127.0.0.1:0")?.port(),
        listeners.udp("127.0.0.1:0")?.port(),
    ];
    let u6 = [
        listeners.udp("[::1]:0")?.port(),
        listeners.udp("[::1]:0")?.port(),
    ];
    let mut policy = Policy::open();
    // A port of the one protocol may have the number of one of the other.
    for (name, ports, address, protocol) in [
        ("v4", v4, "127.0.0.0/8", "tcp"),
        ("v6", v6, "::1", "tcp"),
        ("u4", u4, "127.0.0.1", "udp"),
        ("u6", u6, "::1", "udp"),
    ] {
        let peer = |rule: Rule, port| {
            let rule = rule.connect(address).port(port);
            rule.with("protocol", protocol.into())
        };
        policy = policy
            .rule(peer(deny(&format!("no.{name}")), ports[0]))
            .rule(peer(allow(&format!("yes.{name}")), ports[1]));
    }
    let mut batch = Batch::new(&policy)?;
    let rules = ["no", "yes"];
    for (at, rule) in rules.iter().enumerate() {
        let mut attempts: Vec<(Attempt, Expected)> = Vec::new();
        let mut tried =
            |verb: &str, to: &str, port: u16, rule: String, transport: &str, recorded: &str| {
                attempts.push((
                    attempt(verb, &[format!("{to}:{port}")]),
                    peer(&rule, transport, recorded, port),
                ));
            };
        let (four, six) = (format!("{rule}.v4"), format!("{rule}.v6"));
        for verb in ["tcp", "tcp-fastopen", "ring-tcp"] {
            tried(verb, "127.0.0.1", v4[at], four.clone(), "tcp", "127.0.0.1");
            tried(verb, "[::1]", v6[at], six.clone(), "tcp", "::1");
            tried(
                verb,
                "[::ffff:127.0.0.1]",
                v4[at],
                four.clone(),
                "tcp",
                "127.0.0.1",
            );
        }
        tried("tcp", "0.0.0.0", v4[at], four.clone(), "tcp", "0.0.0.0");
        tried("tcp", "[::]", v6[at], six, "tcp", "::");
        let (four, six) = (format!("{rule}.u4"), format!("{rule}.u6"));
        for verb in ["udp-connect", "udp-send", "udp-sendmmsg", "ring-udp-send"] {
            tried(verb, "127.0.0.1", u4[at], four.clone(), "udp", "127.0.0.1");
            tried(verb, "[::1]", u6[at], six.clone(), "udp", "::1");
            tried(
                verb,
                "[::ffff:127.0.0.1]",
                u4[at],
                four.clone(),
                "udp",
                "127.0.0.1",
            );
        }
        for (attempt, expected) in attempts {
            if at == 0 {
                batch.denied(attempt, expected);
            } else {
                batch.allowed(attempt, expected);
            }
        }
    }
    let (finished, mut problems) = batch.run()?;
    problems.equal(
        "what got datagrams (u4 denied, u4 allowed, u6 denied, u6 allowed)",
        listeners.got_datagrams()?,
        vec![false, true, false, true],
    );
    let by_send = finished.record.of("connect").any(|line| {
        line.flag("opensafe.network.by_send") == Some(true)
            && line.number("network.peer.port") == u64::from(u4[0])
    });
    problems.check(by_send, || "no denied send is on record as one".to_owned());
    problems.outcome()
}

fn what_no_rule_is_about_is_decided_by_the_defaults() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    write(&path("file"), "x")?;
    write(&path("open"), "x")?;
    fs::copy(this_program()?, path("probe"))?;
    let mut listeners = Listeners::new();
    let (denied, allowed) = (listeners.tcp("127.0.0.1:0")?, listeners.tcp("127.0.0.1:0")?);
    let name = format!("opensafe-scenario-{}", std::process::id());
    let _unix = UnixListener::bind_addr(&UnixAddress::from_abstract_name(&name)?)?;
    let name = format!("@{name}");
    let program = Path::new("/usr/bin/true");
    let probe_runs = |policy: Policy| policy.rule(allow("probe").exec(path("probe")));
    let all = |verdict: &str| {
        probe_runs(
            Policy::open()
                .default("file", verdict)
                .default("exec", verdict)
                .default("connect", verdict),
        )
    };

    let policy = all("deny")
        .rule(allow("open").file(path("open")))
        .rule(allow("one").connect("127.0.0.1").port(allowed.port()));
    let mut batch = Batch::new(&policy)?.probe(&path("probe"));
    batch.denied(
        on("read", &path("file")),
        file("defaults.file", path("file"), "read"),
    );
    batch.denied(
        on("create", &path("new")),
        file("defaults.file", path("new"), "create"),
    );
    batch.denied(
        on("list", folder.path()),
        file("defaults.file", folder.path(), "read"),
    );
    batch.allowed(
        on("read", &path("open")),
        file("open", path("open"), "read"),
    );
    // What belongs to the process itself has no name that a rule could be about.
    batch.works(attempt::<&str>("pipe", &[]));
    batch.denied(on("exec", program), exec("defaults.exec", program));
    let (tcp, udp) = ([denied.to_string()], [denied.to_string()]);
    let no = |transport| peer("defaults.connect", transport, "127.0.0.1", denied.port());
    batch.denied(attempt("tcp", &tcp), no("tcp"));
    batch.denied(attempt("udp-send", &udp), no("udp"));
    batch.denied(
        attempt("unix-stream", &[&name]),
        connect("defaults.connect", "unix", &name),
    );
    batch.denied(
        attempt("raw-icmp", &["127.0.0.1:0"]),
        Expected::socket("defaults.socket", "inet"),
    );
    // A family that has neither addresses nor names for rules; where the kernel has it.
    if socket(
        AddressFamily::Vsock,
        SockType::Stream,
        SockFlag::empty(),
        None,
    )
    .is_ok()
    {
        let expected = Expected::socket("defaults.socket", "vsock");
        batch.denied(attempt::<&str>("vsock", &[]), expected);
    }
    batch.allowed(
        attempt("tcp", &[allowed.to_string()]),
        peer("one", "tcp", "127.0.0.1", allowed.port()),
    );
    let (_, mut problems) = batch.run()?;

    let mut batch = Batch::new(&all("audit"))?.probe(&path("probe"));
    batch.audited(
        on("read", &path("file")),
        file("defaults.file", path("file"), "read"),
    );
    batch.audited(on("exec", program), exec("defaults.exec", program));
    batch.audited(
        attempt("tcp", &tcp),
        peer("defaults.connect", "tcp", "127.0.0.1", denied.port()),
    );
    let (_, more) = batch.run()?;
    problems.add(more);
    problems.outcome()
}

fn where_programs_are_denied_an_allowed_one_starts_and_no_other_in_any_way() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    fs::copy(this_program()?, path("probe"))?;
    for name in ["script", "allowed-script"] {
        script(&path(name), Path::new("/usr/bin/true"))?;
    }
    script(&path("script-of-denied"), Path::new("/usr/bin/ls"))?;
    let (yes, no) = (Path::new("/usr/bin/true"), Path::new("/usr/bin/ls"));
    let policy = Policy::open()
        .default("exec", "deny")
        .rule(allow("probe").exec(path("probe")))
        .rule(allow("true").exec(yes))
        .rule(allow("script").with("on", json!("exec")).with(
            "match",
            json!([path("allowed-script"), path("script-of-denied")]),
        ));
    let mut batch = Batch::new(&policy)?.probe(&path("probe"));
    // A dynamic program: its ELF interpreter needs no rule.
    batch.allowed(on("exec", yes), exec("true", yes));
    batch.allowed(on("exec-by-descriptor", yes), exec("true", yes));
    batch.denied(on("exec", no), exec("defaults.exec", no));
    batch.denied(on("exec-by-descriptor", no), exec("defaults.exec", no));
    batch.denied(on("exec-by-empty-path", no), exec("defaults.exec", no));
    batch.denied(
        on("exec", &path("script")),
        exec("defaults.exec", path("script")),
    );
    batch.denied(
        on("exec", &path("script-of-denied")),
        exec("defaults.exec", no),
    );
    batch.works(on("exec", &path("allowed-script")));
    batch.fails(on("exec-from-memory", yes), "EACCES");
    // The ELF interpreter itself, as a program that is told what to run.
    let loader = fs::canonicalize("/lib64/ld-linux-x86-64.so.2")?;
    batch.denied(
        attempt("exec", &[loader.as_path(), no]),
        exec("defaults.exec", &loader),
    );
    let (finished, mut problems) = batch.run()?;
    let from_memory = finished.record.of("exec").any(|line| {
        line.text("opensafe.verdict") == "deny" && line.text("file.path").contains("memfd:")
    });
    problems.check(from_memory, || {
        "the program that was in memory only is not on record as denied".to_owned()
    });
    problems.outcome()
}

fn a_denied_unix_socket_is_not_reached_and_an_allowed_one_is() -> Result<Outcome> {
    let folder = directory()?;
    let unique = std::process::id();
    let abstract_names = [
        format!("scenario-denied-{unique}"),
        format!("scenario-allowed-{unique}"),
    ];
    let path = |kind: &str, rule: &str| folder.path().join(format!("{kind}-{rule}"));
    let mut streams = Vec::new();
    let mut datagrams = Vec::new();
    let mut packets = Vec::new();
    for (at, rule) in ["no", "yes"].iter().enumerate() {
        streams.push(UnixListener::bind(path("stream", rule))?);
        packets.push(packet_listener(&path("packets", rule))?);
        datagrams.push(UnixDatagram::bind(path("datagram", rule))?);
        let name = &abstract_names[at];
        streams.push(UnixListener::bind_addr(&UnixAddress::from_abstract_name(
            name,
        )?)?);
        datagrams.push(UnixDatagram::bind_addr(&UnixAddress::from_abstract_name(
            format!("{name}-datagram"),
        )?)?);
    }
    let policy = Policy::open()
        .rule(deny("no.path").connect(format!("unix:{}/*-no", folder.path().display())))
        .rule(allow("yes.path").connect(format!("unix:{}/*-yes", folder.path().display())))
        .rule(deny("no.abstract").connect("unix:@scenario-denied-*"))
        .rule(allow("yes.abstract").connect("unix:@scenario-allowed-*"));
    let mut batch = Batch::new(&policy)?;
    for (at, rule) in ["no", "yes"].iter().enumerate() {
        let stream = path("stream", rule).display().to_string();
        let datagram = path("datagram", rule).display().to_string();
        let packet = path("packets", rule).display().to_string();
        let (by_path, by_name) = (format!("{rule}.path"), format!("{rule}.abstract"));
        let name = format!("@{}", abstract_names[at]);
        let datagram_name = format!("{name}-datagram");
        let all = [
            ("unix-stream", &stream, &by_path),
            ("unix-seqpacket", &packet, &by_path),
            ("unix-datagram-connect", &datagram, &by_path),
            ("unix-send", &datagram, &by_path),
            ("unix-stream", &name, &by_name),
            ("unix-datagram-connect", &datagram_name, &by_name),
            ("unix-send", &datagram_name, &by_name),
        ];
        for (verb, address, rule_id) in all {
            let expected = connect(rule_id, "unix", address);
            if at == 0 {
                batch.denied(attempt(verb, &[address]), expected);
            } else {
                batch.allowed(attempt(verb, &[address]), expected);
            }
        }
    }
    batch.check()?;
    held()
}

fn packet_listener(path: &Path) -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::new(8)?)?;
    Ok(socket)
}

fn a_rule_for_one_kind_of_access_leaves_the_others() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["unread", "unwritten"] {
        write(&path(name), "x")?;
    }
    fs::create_dir(path("unmade"))?;
    write(&path("unmade/there"), "x")?;
    let policy = Policy::open()
        .rule(deny("no.read").file(path("unread")).access(&["read"]))
        .rule(deny("no.write").file(path("unwritten")).access(&["write"]))
        .rule(deny("no.create").below(path("unmade")).access(&["create"]));
    let mut batch = Batch::new(&policy)?;
    batch.denied(
        on("read", &path("unread")),
        file("no.read", path("unread"), "read"),
    );
    batch.works(on("write", &path("unread")));
    batch.denied(
        on("read-write", &path("unread")),
        file("no.read", path("unread"), "read"),
    );
    batch.denied(
        on("write", &path("unwritten")),
        file("no.write", path("unwritten"), "write"),
    );
    batch.denied(
        on("read-and-empty", &path("unwritten")),
        file("no.write", path("unwritten"), "write"),
    );
    batch.works(on("read", &path("unwritten")));
    let new = path("unmade/new");
    batch.denied(on("create", &new), file("no.create", &new, "create"));
    batch.works(on("write", &path("unmade/there")));
    batch.check()?;
    held()
}

fn names_of_protected_files_can_be_neither_taken_nor_given() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for directory in ["closed", "closed/directory", "open"] {
        fs::create_dir(path(directory))?;
    }
    for name in ["closed/file", "open/file", "open/other"] {
        write(&path(name), "x")?;
    }
    let policy = Policy::open().rule(deny("closed").below(path("closed")));
    let mut batch = Batch::new(&policy)?;
    let inside = path("closed/file");
    batch.denied(on("unlink", &inside), file("closed", &inside, "delete"));
    batch.denied(
        on("ring-unlink", &inside),
        file("closed", &inside, "delete"),
    );
    let directory = path("closed/directory");
    batch.denied(
        on("rmdir", &directory),
        file("closed", &directory, "delete"),
    );
    batch.denied(
        attempt("rename", &[&inside, &path("open/taken")]),
        file("closed", &inside, "write"),
    );
    batch.denied(
        attempt("link", &[&inside, &path("open/linked")]),
        file("closed", &inside, "write"),
    );
    let given = path("closed/given");
    batch.denied(
        attempt("rename", &[&path("open/file"), &given]),
        file("closed", &given, "create"),
    );
    batch.denied(
        attempt("link", &[&path("open/file"), &given]),
        file("closed", &given, "create"),
    );
    batch.denied(
        attempt("symlink", &[Path::new("/etc"), &path("closed/symlink")]),
        file("closed", path("closed/symlink"), "create"),
    );
    // The directory itself, by its parent.
    batch.denied(
        attempt("rename", &[&path("closed"), &path("moved")]),
        file("closed", path("closed"), "write"),
    );
    batch.works(attempt(
        "rename",
        &[&path("open/file"), &path("open/renamed")],
    ));
    batch.works(on("unlink", &path("open/other")));
    let (_, mut problems) = batch.run()?;
    problems.check(inside.exists() && directory.exists(), || {
        "a protected name is gone".into()
    });
    problems.check(!given.exists(), || "a name was given".into());
    problems.outcome()
}

fn where_sockets_are_denied_files_come_from_and_sockets_do_not() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    // As a package manager's store and a workspace are, of which only the latter may have servers.
    for name in ["store", "ws"] {
        fs::create_dir(path(name))?;
    }
    for name in ["linked", "moved", "exchanged"] {
        write(&path("store").join(name), "x")?;
    }
    write(&path("ws/other"), "x")?;
    symlink("linked", path("store/symlink"))?;
    let _listeners = [
        UnixListener::bind(path("store/socket"))?,
        UnixListener::bind(path("store/log"))?,
    ];
    let own = format!("unix:{}/**", path("ws").display());
    let policy = Policy::open()
        .default("connect", "deny")
        .rule(allow("own").connect(own));
    let mut batch = Batch::new(&policy)?;
    let to_ws =
        |verb: &str, name: &str| attempt(verb, &[path("store").join(name), path("ws").join(name)]);
    batch.works(to_ws("link", "linked"));
    batch.works(to_ws("rename", "moved"));
    batch.works(to_ws("rename", "symlink"));
    batch.works(attempt(
        "exchange",
        &[path("store/exchanged"), path("ws/other")],
    ));
    let denied =
        |name: &str| file("defaults.file", path("store").join(name), "connect").of_any_kind();
    batch.denied(to_ws("link", "socket"), denied("socket"));
    batch.denied(to_ws("rename", "log"), denied("log"));
    batch.check()?;
    held()
}

fn a_directory_above_a_protected_place_is_not_moved_away() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for directory in ["above/shut", "also-above/shut", "beside"] {
        fs::create_dir_all(path(directory))?;
        write(&path(directory).join("file"), "x")?;
    }
    let policy = Policy::open()
        .rule(deny("shut").below(path("above/shut")))
        .rule(deny("shut-too").below(path("also-above/shut")));
    let mut batch = Batch::new(&policy)?;
    batch.fails(
        attempt("rename", &[path("above"), path("elsewhere")]),
        "EACCES",
    );
    batch.fails(
        attempt("exchange", &[path("also-above"), path("beside")]),
        "EACCES",
    );
    // Nothing protected is in these.
    batch.works(attempt(
        "rename",
        &[path("beside/file"), path("above/file")],
    ));
    let (_, problems) = batch.run()?;
    problems.outcome()
}

fn what_is_audited_goes_ahead_and_is_on_record_each_time() -> Result<Outcome> {
    let folder = directory()?;
    let watched = folder.path().join("watched");
    write(&watched, "x")?;
    let mut listeners = Listeners::new();
    let address = listeners.tcp("127.0.0.1:0")?;
    let policy = Policy::open()
        .rule(audit("file").file(&watched))
        .rule(audit("program").exec("/usr/bin/true"))
        .rule(audit("peer").connect("127.0.0.1").port(address.port()));
    let mut batch = Batch::new(&policy)?;
    for _ in 0..3 {
        batch.audited(on("read", &watched), file("file", &watched, "read"));
        batch.audited(
            attempt("exec", &["/usr/bin/true"]),
            exec("program", "/usr/bin/true"),
        );
        batch.audited(
            attempt("tcp", &[address.to_string()]),
            peer("peer", "tcp", "127.0.0.1", address.port()),
        );
    }
    let (finished, mut problems) = batch.run()?;
    for (event, rule) in [("file", "file"), ("exec", "program"), ("connect", "peer")] {
        let times = finished
            .record
            .of(event)
            .filter(|line| line.text("opensafe.rule.id") == rule)
            .count();
        problems.equal(&format!("lines by {rule}"), times, 3);
        let counted = finished
            .record
            .end()?
            .number(&format!("opensafe.count.{event}.audit"));
        problems.equal(&format!("counted for {event}"), counted, 3);
    }
    problems.outcome()
}

fn observing_denies_nothing_and_records_what_it_would_have_denied() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    write(&path("file"), "x")?;
    let program_path = path("program");
    fs::copy("/bin/true", &program_path)?;
    let mut listeners = Listeners::new();
    let (tcp, udp) = (listeners.tcp("127.0.0.1:0")?, listeners.udp("127.0.0.1:0")?);
    let policy = Policy::open()
        .rule(deny("files").below(folder.path()))
        .rule(deny("programs").exec(&program_path))
        .rule(deny("peers").connect("127.0.0.0/8"));
    let mut batch = Batch::new(&policy)?.observed();
    batch.denied(
        on("read", &path("file")),
        file("files", path("file"), "read"),
    );
    batch.denied(
        on("create", &path("new")),
        file("files", path("new"), "create"),
    );
    batch.denied(
        on("unlink", &path("file")),
        file("files", path("file"), "delete"),
    );
    batch.denied(on("exec", &program_path), exec("programs", &program_path));
    batch.denied(
        attempt("tcp", &[tcp.to_string()]),
        peer("peers", "tcp", "127.0.0.1", tcp.port()),
    );
    batch.denied(
        attempt("udp-send", &[udp.to_string()]),
        peer("peers", "udp", "127.0.0.1", udp.port()),
    );
    let (finished, mut problems) = batch.run()?;
    let start = finished.record.start()?;
    problems.equal("the mode on record", start.text("opensafe.mode"), "observe");
    problems.check(finished.said().contains("would deny"), || {
        format!(
            "nothing on standard error says what would be denied: {}",
            finished.said()
        )
    });
    problems.outcome()
}
