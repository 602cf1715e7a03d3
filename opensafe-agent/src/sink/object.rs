//! What an operation was about and who did it, in words that a terminal can be given. An event and its
//! line in a record come to the same words.

use std::{borrow::Cow, fmt::Write as _, net::IpAddr, path::Path};

use super::text::{printable, printable_path};
use crate::{
    enrich::{Action, Peer},
    rules::access,
};

/// Ancestors that are shown.
const ANCESTORS: usize = 4;

/// The word for what was done: the operation's name, or what was done to a file.
#[must_use]
pub fn operation_word(action: &Action) -> Cow<'static, str> {
    match action {
        Action::File { access, .. } | Action::OpenFailed { access, .. } => {
            access::one_word(*access)
        }
        other => Cow::Borrowed(other.name()),
    }
}

/// What it was done to, with `~` for `home`; nothing for a process's end.
#[must_use]
pub fn object_text(action: &Action, home: &Path) -> String {
    match action {
        Action::Exec { path, .. } => printable_path(path, home).into_owned(),
        Action::File { path, received, .. } => file_text(path, *received, home),
        Action::Connect {
            peer, transport, ..
        } => peer_over(peer_text(peer), transport),
        Action::Socket {
            family,
            socket_type,
            ..
        } => socket_text(family, socket_type),
        Action::Bind {
            address,
            port,
            transport,
            ..
        } => bind_text(*address, *port, transport),
        Action::Operation {
            how, target, path, ..
        } => {
            let target = target
                .as_ref()
                .map(|target| (target.comm.as_slice(), u64::from(target.pid.0)));
            operation_text(how, target, path.as_deref(), home)
        }
        Action::OpenFailed { requested, .. } => printable_path(requested, home).into_owned(),
        Action::Exit { .. } => String::new(),
    }
}

/// A file, and whether it was open already when it came.
#[must_use]
pub fn file_text(path: &[u8], received: bool, home: &Path) -> String {
    let path = printable_path(path, home);
    if received {
        format!("{path} (received open)")
    } else {
        path.into_owned()
    }
}

/// A peer, as policies write it.
#[must_use]
pub fn peer_text(peer: &Peer) -> String {
    match peer {
        Peer::Ip(address, port) => ip_text(*address, *port),
        Peer::UnixPath(path) => format!("unix:{}", printable(path)),
        Peer::UnixAbstract(name) => format!("unix:@{}", printable(name)),
        Peer::Family(name) => printable(name.as_bytes()).into_owned(),
    }
}

/// A peer and how it was contacted, where that is not how most are: `192.0.2.1:53 (udp)`.
#[must_use]
pub fn peer_over(peer: String, transport: &str) -> String {
    match transport {
        "udp" | "sctp" | "icmp" => format!("{peer} ({transport})"),
        _ => peer,
    }
}

/// `192.0.2.1:443`, `[2001:db8::1]:443`; without a port the address alone.
#[must_use]
pub fn ip_text(address: IpAddr, port: u16) -> String {
    match port {
        0 => address.to_string(),
        port => std::net::SocketAddr::new(address, port).to_string(),
    }
}

/// `packet raw`.
#[must_use]
pub fn socket_text(family: &str, socket_type: &str) -> String {
    printable(format!("{family} {socket_type}").as_bytes()).into_owned()
}

/// `0.0.0.0:8080 tcp`; a port that the kernel is to choose is 0.
#[must_use]
pub fn bind_text(address: IpAddr, port: u16, transport: &str) -> String {
    let local = std::net::SocketAddr::new(address, port);
    format!("{local} {}", printable(transport.as_bytes()))
}

/// `attach to bash (812)`, `mount ~/x`, `BPF_PROG_LOAD`.
#[must_use]
pub fn operation_text(
    how: &str,
    target: Option<(&[u8], u64)>,
    path: Option<&[u8]>,
    home: &Path,
) -> String {
    let mut text = printable(how.as_bytes()).into_owned();
    match target {
        Some(([], pid)) => {
            let _ = write!(text, " to process {pid}");
        }
        Some((comm, pid)) => {
            let _ = write!(text, " to {} ({pid})", printable(comm));
        }
        None => {}
    }
    if let Some(path) = path {
        let _ = write!(text, " {}", printable_path(path, home));
    }
    text
}

/// `python3 (4711) ← bash ← agent`: the executable's name, or its `comm`, and its ancestors'.
#[must_use]
pub fn who(executable: &[u8], comm: &[u8], pid: u64, ancestors: &[Vec<u8>]) -> String {
    let name = executable.rsplit(|byte| *byte == b'/').next();
    let name = name.filter(|name| !name.is_empty()).unwrap_or(comm);
    let mut who = format!("{} ({pid})", printable(name));
    for ancestor in ancestors.iter().take(ANCESTORS) {
        let _ = write!(who, " ← {}", printable(ancestor));
    }
    if ancestors.len() > ANCESTORS {
        who.push_str(" ← …");
    }
    who
}
