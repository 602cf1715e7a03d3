//! Attempts to contact an address of this host without naming it: to the unspecified address (0.0.0.0), which the kernel
//! takes for the socket's own.

use std::{
    ffi::OsString,
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    sys::socket::{
        ControlMessage, MsgFlags, SockaddrStorage, bind, sendmsg, sendto, setsockopt,
        sockopt::BindToDevice,
    },
};

use super::{
    Verb, argument,
    net::{MSG_FASTOPEN, address, udp},
    sockets::{connect, family, open, question},
};

/// Verbs on peers; the first argument is an address and a port, the second what the socket is bound to. Those that ask
/// wait for an answer to a question for a name.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("tcp-from", |a| connect(&stream_from(a)?, address(a)?)),
    ("tcp-fastopen-from", |a| {
        let to = SockaddrStorage::from(address(a)?);
        let flags = MsgFlags::from_bits_retain(MSG_FASTOPEN);
        sendto(stream_from(a)?.as_raw_fd(), b"x", &to, flags)?;
        Ok(())
    }),
    // The second argument is a network interface's name.
    ("tcp-by-device", |a| {
        let socket = open(family(address(a)?), libc::SOCK_STREAM, 0)?;
        setsockopt(&socket, BindToDevice, argument(a, 1)?)?;
        connect(&socket, address(a)?)
    }),
    ("ask-by-device", |a| {
        let socket = udp(a)?;
        setsockopt(&socket, BindToDevice, argument(a, 1)?)?;
        socket.send_to(&question(NAME)?, address(a)?)?;
        answered(&socket)
    }),
    ("ask-from", |a| {
        let socket = UdpSocket::bind(from(a)?)?;
        socket.send_to(&question(NAME)?, address(a)?)?;
        answered(&socket)
    }),
    ("ask-connected-from", |a| {
        let socket = UdpSocket::bind(from(a)?)?;
        socket.connect(address(a)?)?;
        socket.send(&question(NAME)?)?;
        answered(&socket)
    }),
    // The socket is bound to nothing; the message says where it comes from (IP_PKTINFO).
    ("ask-by-message", |a| {
        let SocketAddr::V4(from) = from(a)? else {
            return Err(Errno::EAFNOSUPPORT.into());
        };
        let socket = udp(a)?;
        let to = SockaddrStorage::from(address(a)?);
        let source = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr {
                s_addr: u32::from_ne_bytes(from.ip().octets()),
            },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(&question(NAME)?)],
            &[ControlMessage::Ipv4PacketInfo(&source)],
            MsgFlags::empty(),
            Some(&to),
        )?;
        answered(&socket)
    }),
];

const NAME: &str = "name.example";

/// An address to bind to, at any port.
fn from(arguments: &[OsString]) -> io::Result<SocketAddr> {
    let address: IpAddr = argument(arguments, 1)?
        .to_string_lossy()
        .parse()
        .map_err(io::Error::other)?;
    Ok((address, 0).into())
}

fn stream_from(arguments: &[OsString]) -> io::Result<OwnedFd> {
    let socket = open(family(address(arguments)?), libc::SOCK_STREAM, 0)?;
    let from = SockaddrStorage::from(from(arguments)?);
    bind(socket.as_raw_fd(), &from)?;
    Ok(socket)
}

fn answered(socket: &UdpSocket) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(3)))?;
    socket.recv(&mut [0; 512]).map(drop)
}
