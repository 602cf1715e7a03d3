//! Descriptors that the command would inherit from whoever started opensafe.
//!
//! The kernel asks about a file when it is opened, and about a peer when it is contacted. What was opened or contacted
//! before the sandbox was armed would be used unasked, so each is asked about here, as if the command did it: what is
//! denied is closed before the command's first instruction. Standard input, output and error are the caller's choice
//! and stay.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::{fd::RawFd, unix::ffi::OsStringExt as _},
};

use nix::sys::socket::{UnixAddr, getpeername, getsockname};
use opensafe_common::{
    guarded::MAPPINGS,
    operation::Operation,
    socket::{AF_PACKET, SOCK_RAW},
    tables::transport,
    verdict::{Access, Verdict},
};

use crate::{
    enrich::{Action, Enriched, Peer, Process, Ruling},
    event::{Errno, PolicyNumber, UnixNano},
    kernel::{Terminal, is_master},
    rules::{Decided, RuleSet, Severity},
};

/// A descriptor that the policy denies.
#[derive(Debug)]
pub(super) struct Denied {
    descriptor: RawFd,
    action: Action,
}

impl Denied {
    /// Closes it.
    pub(super) fn close(&self) {
        // We inherited it and never used it; that it may be gone already is no trouble.
        let _ = nix::unistd::close(self.descriptor);
    }

    /// As it goes on record.
    pub(super) fn on_record(self, process: Process) -> Enriched {
        Enriched {
            time: UnixNano::now(),
            process,
            action: self.action,
        }
    }
}

/// The descriptors that the command would get and may not have.
pub(super) fn denied(rules: &RuleSet, enforced: bool) -> Vec<Denied> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok())
        .filter(|descriptor| *descriptor > 2)
        .filter_map(|descriptor| {
            let action = judged(descriptor, rules, enforced)?;
            Some(Denied { descriptor, action })
        })
        .collect()
}

/// What is on record about a descriptor, if it is one that is inherited and denied.
fn judged(descriptor: RawFd, rules: &RuleSet, enforced: bool) -> Option<Action> {
    let flags = flags(descriptor)?;
    // include/uapi/asm-generic/fcntl.h: O_CLOEXEC, O_PATH
    if flags & (0o2_000_000 | 0o10_000_000) != 0 {
        return None;
    }
    let link = fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    let name = link.into_os_string().into_vec();
    let requested = format!("descriptor {descriptor}").into_bytes();
    if name.starts_with(b"/")
        && let Some((operation, how)) = beyond_the_file(descriptor, &name, flags & 3 != 0)
        && let decided = rules.decide_operation(operation)
        && decided.verdict == Verdict::Deny
    {
        return Some(Action::Operation {
            ruling: ruling(&decided, rules, operation.name(), enforced),
            operation,
            how: how.to_owned(),
            target: None,
            path: Some(name),
        });
    }
    if name.starts_with(b"/") {
        let path = name.strip_suffix(b" (deleted)").unwrap_or(&name);
        let access = match flags & 3 {
            0 => Access::READ,
            1 => Access::WRITE,
            _ => Access::READ.union(Access::WRITE),
        };
        let decided = rules.decide_path(path, access);
        return (decided.verdict == Verdict::Deny).then(|| Action::File {
            ruling: ruling(&decided, rules, "file", enforced),
            path: path.to_vec(),
            requested,
            access,
            received: true,
        });
    }
    if name == b"anon_inode:[io_uring]" {
        // Whoever made it is who opens and contacts by it.
        return Some(Action::File {
            ruling: Ruling {
                verdict: Verdict::Deny,
                enforced,
                errno: Errno::default(),
                rule: None,
                severity: Severity::High,
                reason: "what is done by an io_uring from outside is done outside".to_owned(),
                policy: Some(PolicyNumber::FIRST),
            },
            path: name,
            requested,
            access: Access::READ.union(Access::WRITE),
            received: true,
        });
    }
    if let Ok(peer) = getpeername::<UnixAddr>(descriptor) {
        return of_unix_peer(&peer, rules, enforced);
    }
    let inode = name.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    let inode: u64 = std::str::from_utf8(inode).ok()?.parse().ok()?;
    let Some((number, transport, peer)) = peer_of(inode) else {
        return of_no_known_peer(descriptor, inode, rules, enforced);
    };
    let address = match peer.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let decided = rules.decide_peer(address, number, peer.port());
    (decided.verdict == Verdict::Deny).then(|| Action::Connect {
        ruling: ruling(&decided, rules, "connect", enforced),
        peer: Peer::Ip(address.to_canonical(), peer.port()),
        transport: transport.to_owned(),
        by_send: false,
    })
}

/// What using an open file may mean beyond the file; the kernel programs ask the same of one that is opened.
fn beyond_the_file(
    descriptor: RawFd,
    name: &[u8],
    writes: bool,
) -> Option<(Operation, &'static str)> {
    use std::os::unix::fs::FileTypeExt as _;
    let path = format!("/proc/self/fd/{descriptor}");
    if fs::metadata(&path).ok()?.file_type().is_block_device() {
        return Some((Operation::Device, "open"));
    }
    if is_master(descriptor) {
        return Some((Operation::Terminal, "open"));
    }
    if let Some(terminal) = Terminal::of(descriptor) {
        let own = Terminal::own() == Some(terminal);
        return (!own).then_some((Operation::Terminal, "open"));
    }
    if is_private_of_a_process(descriptor, name, writes) {
        return Some((Operation::Ptrace, "/proc file"));
    }
    let kind = nix::sys::statfs::statfs(path.as_str())
        .ok()?
        .filesystem_type();
    let cgroups = [
        nix::sys::statfs::CGROUP2_SUPER_MAGIC,
        nix::sys::statfs::CGROUP_SUPER_MAGIC,
    ];
    (writes && cgroups.contains(&kind)).then_some((Operation::Cgroup, "control file"))
}

/// Whether it is what /proc tells of a process only to who could trace it. Whoever it is about, it is none of the sandbox's:
/// that has none yet.
fn is_private_of_a_process(descriptor: RawFd, name: &[u8], writes: bool) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let mut parts = name.split(|byte| *byte == b'/').skip(1);
    let of_a_process = parts.next() == Some(b"proc")
        && parts
            .next()
            .is_some_and(|id| id.iter().all(u8::is_ascii_digit));
    let last = parts.last().unwrap_or_default();
    let told = fs::metadata(format!("/proc/self/fd/{descriptor}"))
        .is_ok_and(|found| found.permissions().mode() & 0o044 != 0);
    let mapped = MAPPINGS.iter().any(|start| last.starts_with(start));
    of_a_process && (writes || !told || mapped)
}

/// A Unix socket that is connected, to whom the peer's name tells: of what was accepted, that of the socket which listened.
fn of_unix_peer(peer: &UnixAddr, rules: &RuleSet, enforced: bool) -> Option<Action> {
    let (decided, peer) = match (peer.path(), peer.as_abstract()) {
        (None, None) => return None, // one of a pair
        (None, Some(name)) => (
            rules.decide_abstract(name),
            Peer::UnixAbstract(name.to_vec()),
        ),
        (Some(path), _) if path.is_absolute() => {
            // Where it lies; without that, because it was removed or is hidden, as it was called.
            let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let place = place.into_os_string().into_vec();
            (
                rules.decide_path(&place, Access::UNIX),
                Peer::UnixPath(place),
            )
        }
        // Named in a directory that nobody tells.
        (Some(path), _) => (
            rules.decide_other_family(),
            Peer::UnixPath(path.as_os_str().as_encoded_bytes().to_vec()),
        ),
    };
    (decided.verdict == Verdict::Deny).then(|| Action::Connect {
        ruling: ruling(&decided, rules, "connect", enforced),
        peer,
        transport: "unix".to_owned(),
        by_send: false,
    })
}

/// A socket whose peer, if it has one, is not known: those of families of which no rule tells the peers apart.
fn of_no_known_peer(
    descriptor: RawFd,
    inode: u64,
    rules: &RuleSet,
    enforced: bool,
) -> Option<Action> {
    let listed = |table: &str| {
        fs::read_to_string(format!("/proc/net/{table}")).is_ok_and(|text| {
            text.lines().any(|line| {
                let inodes = line.split_whitespace().nth(9);
                inodes.and_then(|text| text.parse().ok()) == Some(inode)
            })
        })
    };
    // Not by the kernel's list of Unix sockets, which has their names: any bytes, line ends too, by whoever binds one.
    let is_unix = getsockname::<UnixAddr>(descriptor).is_ok();
    let known = ["netlink", "tcp", "tcp6", "udp", "udp6"];
    if is_unix || known.into_iter().any(listed) {
        return None;
    }
    // Which stand for all of them.
    let decided = rules.decide_socket(AF_PACKET, SOCK_RAW);
    (decided.verdict == Verdict::Deny).then(|| Action::Socket {
        ruling: ruling(&decided, rules, "connect", enforced),
        family: "unknown".to_owned(),
        socket_type: "unknown".to_owned(),
        protocol: 0,
    })
}

/// The flags that it was opened with.
fn flags(descriptor: RawFd) -> Option<u32> {
    flags_in(&fs::read(format!("/proc/self/fdinfo/{descriptor}")).ok()?)
}

/// The flags that fdinfo tells. What else it tells may hold names, which are any bytes: those of the files that an
/// io_uring was given, that of a DMA buffer.
pub(crate) fn flags_in(information: &[u8]) -> Option<u32> {
    let line = information
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"flags:"))?;
    u32::from_str_radix(std::str::from_utf8(line).ok()?.trim(), 8).ok()
}

/// Whom a socket is connected to, by its inode.
fn peer_of(inode: u64) -> Option<(u16, &'static str, SocketAddr)> {
    let stream = [procfs::net::tcp(), procfs::net::tcp6()];
    let datagram = [procfs::net::udp(), procfs::net::udp6()];
    let stream = stream.into_iter().flatten().flatten();
    let streams = stream.map(|entry| (entry.inode, transport::TCP, "tcp", entry.remote_address));
    let datagram = datagram.into_iter().flatten().flatten();
    let datagrams =
        datagram.map(|entry| (entry.inode, transport::UDP, "udp", entry.remote_address));
    let unspecified = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(address) => address.is_unspecified(),
        IpAddr::V6(address) => address == Ipv6Addr::UNSPECIFIED,
    };
    streams
        .chain(datagrams)
        .find(|(of, _, _, remote)| *of == inode && !unspecified(remote))
        .map(|(_, number, name, remote)| (number, name, remote))
}

fn ruling(decided: &Decided<'_>, rules: &RuleSet, operation: &str, enforced: bool) -> Ruling {
    let reason = match decided.rule {
        Some(rule) => rule.reason.clone(),
        None => format!(
            "no rule of {} allows it, and the default for {operation} is deny",
            rules.revision
        ),
    };
    Ruling {
        verdict: decided.verdict,
        enforced,
        errno: Errno::default(),
        rule: decided.rule.map(|rule| rule.id.clone()),
        severity: decided
            .rule
            .map_or_else(Severity::default, |rule| rule.severity),
        reason,
        policy: Some(PolicyNumber::FIRST),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd as _};

    use super::*;
    use crate::rules::Defaults;

    fn rules() -> RuleSet {
        RuleSet {
            defaults: Defaults::default(),
            rules: Vec::new(),
            revision: "test@0".to_owned(),
        }
    }

    #[test]
    fn what_is_closed_on_exec_is_not_inherited() {
        let file = File::open("/etc/passwd").unwrap();
        assert!(judged(file.as_raw_fd(), &rules(), true).is_none());
    }

    #[test]
    fn an_inherited_file_is_judged_as_if_it_were_opened() {
        let file = File::open("/etc/passwd").unwrap();
        let inherited = nix::unistd::dup(&file).unwrap(); // without O_CLOEXEC
        let action = judged(inherited.as_raw_fd(), &rules(), true);
        let Some(Action::File { path, access, .. }) = action else {
            panic!("{action:?}");
        };
        assert_eq!(path, b"/etc/passwd");
        assert_eq!(access, Access::READ);
    }

    #[test]
    fn an_inherited_unix_connection_is_judged_by_where_its_peer_listens() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&place).unwrap();
        let client = std::os::unix::net::UnixStream::connect(&place).unwrap();
        let inherited = nix::unistd::dup(&client).unwrap(); // without O_CLOEXEC
        let action = judged(inherited.as_raw_fd(), &rules(), true);
        let Some(Action::Connect { peer, .. }) = action else {
            panic!("{action:?}");
        };
        assert_eq!(peer, Peer::UnixPath(place.into_os_string().into_vec()));
    }

    #[test]
    fn flags_are_told_whatever_names_stand_beside_them() {
        let told = b"pos:\t0\nflags:\t02000002\nmnt_id:\t15\nUserFiles:\t1\n    0: \xff\xfe\n";
        assert_eq!(flags_in(told), Some(0o2_000_002));
        assert_eq!(flags_in(b"pos:\t0\nflags:\tx\n"), None);
    }

    #[test]
    fn a_name_in_the_list_of_unix_sockets_is_no_line_of_it() {
        use std::os::linux::net::SocketAddrExt as _;
        // As it would have to be to pass for the line of a socket that is in no list.
        const INODE: u64 = u64::MAX / 3;
        let line = format!("\n0: 00000002 00000000 00010000 0001 01 {INODE} @{INODE}\n\0");
        let address = std::os::unix::net::SocketAddr::from_abstract_name(line).unwrap();
        let _bound = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        let judged = of_no_known_peer(pipe.as_raw_fd(), INODE, &rules(), true);
        assert!(judged.is_some());
    }

    #[test]
    fn a_unix_socket_that_is_not_connected_leads_nowhere_whatever_others_are_called() {
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name([0xff, 0xfe, b'o']);
        let other = std::os::unix::net::UnixListener::bind_addr(&address.unwrap()).unwrap();
        let inherited = nix::unistd::dup(&other).unwrap();
        assert!(judged(inherited.as_raw_fd(), &rules(), true).is_none());
    }

    #[test]
    fn one_of_a_pair_of_sockets_leads_to_nobody_by_name() {
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let inherited = nix::unistd::dup(&end).unwrap();
        assert!(judged(inherited.as_raw_fd(), &rules(), true).is_none());
    }

    #[test]
    fn an_inherited_terminal_of_others_is_judged_as_one_that_is_opened() {
        let pair = nix::pty::openpty(None, None).unwrap();
        let inherited = nix::unistd::dup(&pair.slave).unwrap();
        let action = judged(inherited.as_raw_fd(), &rules(), true);
        let Some(Action::Operation { operation, .. }) = action else {
            panic!("{action:?}");
        };
        assert_eq!(operation, Operation::Terminal);
        let inherited = nix::unistd::dup(&pair.master).unwrap();
        let action = judged(inherited.as_raw_fd(), &rules(), true);
        let Some(Action::Operation { operation, .. }) = action else {
            panic!("{action:?}");
        };
        assert_eq!(operation, Operation::Terminal);
    }

    #[test]
    fn what_proc_tells_of_a_process_is_judged_as_if_it_were_opened() {
        for (name, private) in [("environ", true), ("maps", true), ("status", false)] {
            let file = File::open(format!("/proc/self/{name}")).unwrap();
            let inherited = nix::unistd::dup(&file).unwrap();
            let action = judged(inherited.as_raw_fd(), &rules(), true);
            let found = matches!(
                action,
                Some(Action::Operation {
                    operation: Operation::Ptrace,
                    ..
                })
            );
            assert_eq!(found, private, "{name}: {action:?}");
        }
    }

    #[test]
    fn a_pipe_is_nobodys_file() {
        let (end, _other) = nix::unistd::pipe().unwrap();
        assert!(judged(end.as_raw_fd(), &rules(), true).is_none());
    }
}
