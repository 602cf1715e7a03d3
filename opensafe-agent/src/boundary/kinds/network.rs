//! Contacting who is denied, by whatever socket, spelling or message.

use std::{
    fs::File,
    io::{self, IoSlice, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::{
            fs::symlink,
            net::{SocketAddr as UnixAddress, UnixDatagram, UnixStream},
        },
    },
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, SockaddrStorage,
    UnixAddr, connect, sendmmsg, sendmsg, sendto, socket,
};

use super::{
    super::{
        attempt::{Attempt, Make, command},
        site::{DENIED_ADDRESS, Site},
    },
    names::received,
};

const fn peer(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::event(name, shows, &["connect"], make)
}

const fn made(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::event(name, shows, &["socket"], make)
}

/// TCP_FASTOPEN's way to connect by sending: MSG_FASTOPEN (include/linux/socket.h).
const MSG_FASTOPEN: i32 = 0x2000_0000;

pub(super) const ALL: &[Attempt] = &[
    peer("network.tcp", "a denied peer, by TCP", |site| {
        tcp(site, DENIED_ADDRESS.into())
    }),
    peer(
        "network.mapped",
        "by its IPv4-mapped IPv6 address",
        |site| tcp(site, DENIED_ADDRESS.to_ipv6_mapped().into()),
    ),
    peer("network.unspecified", "this host as 0.0.0.0", |site| {
        tcp(site, Ipv4Addr::UNSPECIFIED.into())
    }),
    peer("network.ipv6", "this host as ::1", |site| {
        tcp(site, Ipv6Addr::LOCALHOST.into())
    }),
    peer("network.udp-connect", "by UDP, connected", |site| {
        udp()?.connect(denied(site))
    }),
    peer("network.udp-send", "by UDP, sendto", |site| {
        udp()?.send_to(b"x", denied(site)).map(drop)
    }),
    peer("network.udp-sendmsg", "by UDP, sendmsg", |site| {
        let to = SockaddrStorage::from(denied(site));
        let content = [IoSlice::new(b"x")];
        let flags = MsgFlags::empty();
        sendmsg(udp()?.as_raw_fd(), &content, &[], flags, Some(&to))?;
        Ok(())
    }),
    peer("network.udp-sendmmsg", "by UDP, sendmmsg", |site| {
        let socket = udp()?;
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(1, None);
        let content = [[IoSlice::new(b"x")]];
        let to = [Some(SockaddrStorage::from(denied(site)))];
        let flags = MsgFlags::empty();
        match sendmmsg(socket.as_raw_fd(), &mut headers, &content, to, [], flags)?.count() {
            1 => Ok(()),
            _ => Err(io::Error::other("nothing was sent")),
        }
    }),
    peer("network.fast-open", "by sending (MSG_FASTOPEN)", |site| {
        let socket = open(AddressFamily::Inet, SockType::Stream, None)?;
        let flags = MsgFlags::from_bits_retain(MSG_FASTOPEN);
        let to = SockaddrStorage::from(denied(site));
        sendto(socket.as_raw_fd(), b"x", &to, flags)?;
        Ok(())
    }),
    peer("network.mptcp", "by MPTCP", |site| {
        let protocol = Some(rustix::net::ipproto::MPTCP);
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            protocol,
        )?;
        Ok(rustix::net::connect(&socket, &denied(site))?)
    }),
    peer("network.unix", "a denied Unix socket", |site| {
        UnixStream::connect(site.path("sockets/stream")).map(drop)
    }),
    peer("network.unix-link", "by a symbolic link", |site| {
        let link = site.open("socket-link");
        symlink(site.path("sockets/stream"), &link)?;
        UnixStream::connect(link).map(drop)
    }),
    peer("network.unix-proc", "by /proc/self/root", |site| {
        let path = site.path("sockets/stream");
        UnixStream::connect(format!("/proc/self/root{}", path.display())).map(drop)
    }),
    peer("network.unix-datagram", "a datagram to one", |site| {
        let socket = UnixDatagram::unbound()?;
        socket
            .send_to(b"x", site.path("sockets/datagram"))
            .map(drop)
    }),
    peer(
        "network.unix-abstract",
        "a denied abstract Unix socket",
        |site| {
            let name = UnixAddress::from_abstract_name(&site.abstract_name)?;
            UnixStream::connect_addr(&name).map(drop)
        },
    ),
    Attempt::event(
        "network.received",
        "a connection from outside (SCM_RIGHTS)",
        &["connect", "file"],
        |site| File::from(received(site, "peer")?).write_all(b"x"),
    ),
    Attempt::event("network.bind", "a denied local port", &["bind"], |site| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, site.closed_port)).map(drop)
    }),
    Attempt::event(
        "network.bind-any",
        "the same on 0.0.0.0",
        &["bind"],
        |site| TcpListener::bind((Ipv4Addr::UNSPECIFIED, site.closed_port)).map(drop),
    ),
    made("network.raw", "a raw socket", |_| {
        open(AddressFamily::Inet, SockType::Raw, Some(SockProtocol::Icmp)).map(drop)
    }),
    made("network.packet", "a packet socket", |_| {
        open(AddressFamily::Packet, SockType::Raw, None).map(drop)
    }),
    made(
        "network.vsock",
        "a socket to the machine's host (vsock)",
        |_| open(AddressFamily::Vsock, SockType::Stream, None).map(drop),
    ),
    made(
        "network.alg",
        "a socket to the kernel's ciphers (AF_ALG)",
        |_| open(AddressFamily::Alg, SockType::SeqPacket, None).map(drop),
    ),
    Attempt::event(
        "network.systemd",
        "systemd, which starts programs for others",
        &["connect"],
        |_| {
            let path = UnixAddr::new("/run/systemd/private")?;
            let socket = open(AddressFamily::Unix, SockType::Stream, None)?;
            Ok(connect(socket.as_raw_fd(), &path)?)
        },
    ),
    peer("network.python", "a denied peer, by python3", |site| {
        let script = format!(
            "import socket; socket.create_connection(('{DENIED_ADDRESS}', {}))",
            site.denied_port
        );
        command("python3", &["-c", &script])
    })
    .or_ends(&["status 1"]),
];

fn denied(site: &Site) -> SocketAddr {
    (DENIED_ADDRESS, site.denied_port).into()
}

fn tcp(site: &Site, address: IpAddr) -> io::Result<()> {
    TcpStream::connect((address, site.denied_port)).map(drop)
}

fn udp() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
}

fn open(
    family: AddressFamily,
    kind: SockType,
    protocol: Option<SockProtocol>,
) -> io::Result<OwnedFd> {
    Ok(socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?)
}
