//! From a record's bytes to an [`Event`]. Total: bytes that are no record give an error.

use std::net::Ipv6Addr;

use opensafe_common::{
    event::{
        ConnectBody, ExitBody, FileBody, ForkBody, Header, Kind, OpenFailedBody, OperationBody,
        flag,
    },
    operation::{How, Operation},
    socket::{AF_INET, AF_INET6, AF_UNIX},
    verdict::Verdict,
};
use zerocopy::FromBytes;

use crate::{
    event::{
        Because, Decision, Errno, Event, Generation, PeerAddress, Pid, Place, Task, UnixNano, What,
        split_args,
    },
    view::Dev,
};

/// The bytes are no record.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("malformed record of {len} bytes: {what}")]
pub(crate) struct Malformed {
    len: usize,
    what: &'static str,
}

/// Decodes one record. `boot_ns` is what `CLOCK_BOOTTIME`'s zero was in nanoseconds since 1970.
pub(crate) fn decode(bytes: &[u8], boot_ns: u64) -> Result<Event, Malformed> {
    let malformed = |what| Malformed {
        len: bytes.len(),
        what,
    };
    let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| malformed("no header"))?;
    let kind = Kind::from_u8(header.kind).ok_or(malformed("unknown kind"))?;
    let verdict = Verdict::from_u8(header.verdict).ok_or(malformed("unknown verdict"))?;
    let decision = Decision {
        verdict,
        enforced: header.flags & flag::ENFORCED != 0,
        errno: if header.flags & flag::EPERM == 0 {
            Errno::Eacces
        } else {
            Errno::Eperm
        },
        nameless: header.flags & flag::NAMELESS != 0,
        generation: Generation(header.generation),
    };
    let what = match kind {
        Kind::Fork => {
            let (body, _) =
                ForkBody::read_from_prefix(rest).map_err(|_| malformed("no fork body"))?;
            What::Fork {
                child: Pid(body.child_pid),
            }
        }
        Kind::Exit => {
            let (body, _) =
                ExitBody::read_from_prefix(rest).map_err(|_| malformed("no exit body"))?;
            What::Exit {
                status: body.status,
            }
        }
        Kind::Connect => {
            let (body, strings) =
                ConnectBody::read_from_prefix(rest).map_err(|_| malformed("no connect body"))?;
            let strings = Strings::split(&header, strings).ok_or(malformed("strings cut off"))?;
            connect(decision, &header, &body, &strings)
        }
        Kind::Socket | Kind::Bind => {
            let (body, _) =
                ConnectBody::read_from_prefix(rest).map_err(|_| malformed("no socket body"))?;
            socket(kind, decision, &body)
        }
        Kind::Operation => {
            let (body, strings) = OperationBody::read_from_prefix(rest)
                .map_err(|_| malformed("no operation body"))?;
            let strings = Strings::split(&header, strings).ok_or(malformed("strings cut off"))?;
            operation(decision, &header, &body, &strings).ok_or(malformed("unknown operation"))?
        }
        Kind::OpenFailed => {
            let (body, strings) = OpenFailedBody::read_from_prefix(rest)
                .map_err(|_| malformed("no body of an open"))?;
            let strings = Strings::split(&header, strings).ok_or(malformed("strings cut off"))?;
            What::OpenFailed {
                requested: strings.requested.to_vec(),
                access: header.access,
                errno: i32::try_from(body.errno).map_err(|_| malformed("no error number"))?,
            }
        }
        Kind::NotCreated => What::NotCreated,
        Kind::Exec | Kind::ExecGate | Kind::File | Kind::UnknownSuperblock => {
            let (body, strings) =
                FileBody::read_from_prefix(rest).map_err(|_| malformed("no file body"))?;
            let strings = Strings::split(&header, strings).ok_or(malformed("strings cut off"))?;
            file(kind, decision, &header, &body, &strings)
        }
    };
    Ok(Event {
        time: UnixNano(boot_ns.saturating_add(header.time_ns)),
        task: Task {
            pid: Pid(header.pid),
            tid: Pid(header.tid),
            parent_pid: Pid(header.parent_pid),
            uid: header.uid,
            gid: header.gid,
            cgroup: header.cgroup,
            comm: until_nul(&header.comm).to_vec(),
        },
        what,
    })
}

/// What follows a body.
struct Strings<'a> {
    path: &'a [u8],
    requested: &'a [u8],
    args: &'a [u8],
}

impl<'a> Strings<'a> {
    fn split(header: &Header, bytes: &'a [u8]) -> Option<Self> {
        let (path, bytes) = bytes.split_at_checked(usize::from(header.path_len))?;
        let (requested, bytes) = bytes.split_at_checked(usize::from(header.requested_len))?;
        let (args, _) = bytes.split_at_checked(usize::from(header.args_len))?;
        Some(Self {
            path,
            requested,
            args,
        })
    }
}

fn file(
    kind: Kind,
    decision: Decision,
    header: &Header,
    body: &FileBody,
    strings: &Strings<'_>,
) -> What {
    let place = place(
        header,
        (body.dev, body.magic),
        strings.path,
        body.inode,
        body.mode,
    );
    let requested = strings.requested.to_vec();
    match kind {
        Kind::Exec => What::Exec {
            decision,
            place,
            requested,
            args: split_args(strings.args),
            args_truncated: header.flags & flag::ARGS_TRUNCATED != 0,
        },
        Kind::ExecGate => What::ExecGate {
            decision,
            place,
            requested,
        },
        Kind::UnknownSuperblock => What::UnknownSuperblock { place },
        _ => What::File {
            decision,
            place,
            requested,
            access: header.access,
            tentative: header.flags & flag::TENTATIVE != 0,
            because: if header.flags & flag::BELOW != 0 {
                Because::Below
            } else if header.flags & flag::RECORD != 0 {
                Because::Record
            } else if header.flags & flag::RECEIVED != 0 {
                Because::Received
            } else {
                Because::Itself
            },
        },
    }
}

fn socket(kind: Kind, decision: Decision, body: &ConnectBody) -> What {
    if kind == Kind::Bind {
        What::Bind {
            decision,
            address: Ipv6Addr::from(body.address),
            port: body.port,
            transport: body.transport,
            protocol: body.protocol,
        }
    } else {
        What::Socket {
            decision,
            family: body.family,
            socket_type: body.socket_type,
            protocol: body.protocol,
        }
    }
}

fn operation(
    decision: Decision,
    header: &Header,
    body: &OperationBody,
    strings: &Strings<'_>,
) -> Option<What> {
    let has_place = body.dev != 0 || !strings.path.is_empty();
    Some(What::Operation {
        decision,
        operation: Operation::from_u16(body.operation)?,
        how: How::from_u16(body.how)?,
        number: body.number,
        target: (body.target_pid != 0).then_some(Pid(body.target_pid)),
        place: has_place.then(|| place(header, (body.dev, body.magic), strings.path, 0, 0)),
    })
}

fn connect(decision: Decision, header: &Header, body: &ConnectBody, strings: &Strings<'_>) -> What {
    let peer = match body.family {
        AF_INET | AF_INET6 if body.address != [0; 16] || body.port != 0 => PeerAddress::Ip {
            address: Ipv6Addr::from(body.address),
            port: body.port,
        },
        AF_UNIX if !strings.path.is_empty() || body.dev != 0 => {
            PeerAddress::UnixPath(place(header, (body.dev, body.magic), strings.path, 0, 0))
        }
        AF_UNIX => PeerAddress::UnixAbstract(strings.requested.to_vec()),
        family => PeerAddress::Other { family },
    };
    What::Connect {
        decision,
        peer,
        transport: body.transport,
        protocol: body.protocol,
        socket_type: body.socket_type,
        by_send: body.how == ConnectBody::SEND,
    }
}

fn place(header: &Header, (dev, magic): (u32, u64), path: &[u8], inode: u64, mode: u32) -> Place {
    let path = if path.is_empty() { b"/" } else { path };
    Place {
        dev: Dev(dev),
        magic,
        path: path.to_vec(),
        partial: header.flags & flag::PATH_PARTIAL != 0,
        inode,
        mode,
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use opensafe_common::verdict::Access;
    use zerocopy::IntoBytes;

    use super::*;

    fn record(header: Header, body: &[u8], strings: &[u8]) -> Vec<u8> {
        [header.as_bytes(), body, strings].concat()
    }

    #[test]
    fn a_denied_open_is_decoded_with_its_path_and_the_name_as_asked() {
        let header = Header {
            kind: Kind::File as u8,
            verdict: Verdict::Deny as u8,
            flags: flag::ENFORCED,
            path_len: 8,
            requested_len: 3,
            access: Access::READ,
            time_ns: 5,
            ..Header::default()
        };
        let body = FileBody {
            dev: Dev::new(8, 1).0,
            ..FileBody::default()
        };
        let event = decode(&record(header, body.as_bytes(), b"/a/\xffb/\nc../"), 100).unwrap();
        assert_eq!(event.time, UnixNano(105));
        let What::File {
            decision,
            place,
            requested,
            access,
            tentative,
            because,
        } = event.what
        else {
            panic!("{event:?}")
        };
        assert!(decision.enforced && !tentative && because == Because::Itself);
        assert_eq!(place.path, b"/a/\xffb/\nc");
        assert_eq!(requested, b"../");
        assert_eq!(access, Access::READ);
    }

    #[test]
    fn strings_longer_than_the_record_are_malformed() {
        let header = Header {
            kind: Kind::File as u8,
            path_len: 9,
            ..Header::default()
        };
        let body = FileBody::default();
        assert!(decode(&record(header, body.as_bytes(), b"/a"), 0).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes, u64::MAX);
        }
    }
}
