//! Attempts to contact peers.

use std::{
    ffi::OsString,
    io::{self, IoSlice},
    net::{SocketAddr, TcpStream, UdpSocket},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr as UnixAddress, UnixDatagram, UnixStream},
        },
    },
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrStorage, UnixAddr,
    VsockAddr, connect, sendmmsg, sendto, socket,
};

use super::{Verb, argument};

/// TCP_FASTOPEN's way to connect by sending: MSG_FASTOPEN (include/linux/socket.h).
pub(super) const MSG_FASTOPEN: i32 = 0x2000_0000;

/// Verbs on peers. Unix addresses that start with `@` are abstract.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("tcp", |a| TcpStream::connect(address(a)?).map(drop)),
    ("udp-connect", |a| udp(a)?.connect(address(a)?)),
    ("udp-send", |a| udp(a)?.send_to(b"x", address(a)?).map(drop)),
    ("udp-sendmmsg", |a| {
        let socket = udp(a)?;
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(1, None);
        let payload = [[IoSlice::new(b"x")]];
        let to = [Some(SockaddrStorage::from(address(a)?))];
        let sent = sendmmsg(
            socket.as_raw_fd(),
            &mut headers,
            &payload,
            to,
            [],
            MsgFlags::empty(),
        )?
        .count();
        if sent == 1 {
            Ok(())
        } else {
            Err(io::Error::other("nothing was sent"))
        }
    }),
    ("tcp-fastopen", |a| {
        let address = address(a)?;
        let socket = open(family_of(address), SockType::Stream)?;
        let flags = MsgFlags::from_bits_retain(MSG_FASTOPEN);
        sendto(
            socket.as_raw_fd(),
            b"x",
            &SockaddrStorage::from(address),
            flags,
        )?;
        Ok(())
    }),
    ("unix-stream", |a| {
        UnixStream::connect_addr(&unix(a)?).map(drop)
    }),
    ("unix-send", |a| {
        UnixDatagram::unbound()?
            .send_to_addr(b"x", &unix(a)?)
            .map(drop)
    }),
    ("unix-datagram-connect", |a| {
        UnixDatagram::unbound()?.connect_addr(&unix(a)?)
    }),
    ("unix-seqpacket", |a| {
        let socket = open(AddressFamily::Unix, SockType::SeqPacket)?;
        let name = argument(a, 0)?;
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => UnixAddr::new_abstract(name)?,
            None => UnixAddr::new(name.as_bytes())?,
        };
        Ok(connect(socket.as_raw_fd(), &address)?)
    }),
    // To the host, at port 1.
    ("vsock", |_| {
        let socket = open(AddressFamily::Vsock, SockType::Stream)?;
        Ok(connect(socket.as_raw_fd(), &VsockAddr::new(2, 1))?)
    }),
    // An echo request that a raw socket sends.
    ("raw-icmp", |a| {
        let address = address(a)?;
        let socket = socket(
            family_of(address),
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            nix::sys::socket::SockProtocol::Icmp,
        )?;
        let echo = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
        sendto(
            socket.as_raw_fd(),
            &echo,
            &SockaddrStorage::from(address),
            MsgFlags::empty(),
        )?;
        Ok(())
    }),
];

pub(super) fn address(arguments: &[OsString]) -> io::Result<SocketAddr> {
    argument(arguments, 0)?
        .to_string_lossy()
        .parse()
        .map_err(io::Error::other)
}

pub(super) fn udp(arguments: &[OsString]) -> io::Result<UdpSocket> {
    UdpSocket::bind(match address(arguments)? {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    })
}

fn unix(arguments: &[OsString]) -> io::Result<UnixAddress> {
    let name = argument(arguments, 0)?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => UnixAddress::from_abstract_name(name),
        None => UnixAddress::from_pathname(name),
    }
}

fn family_of(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn open(family: AddressFamily, kind: SockType) -> io::Result<OwnedFd> {
    Ok(socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?)
}
