//! Attempts to contact peers by less usual sockets.

use std::{
    ffi::OsString,
    io::{self, IoSlice, Write as _},
    mem::size_of_val,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{fs::OpenOptionsExt as _, net::UnixStream},
    },
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    sys::socket::{MsgFlags, SockaddrLike as _, SockaddrStorage, sendmsg},
};

use super::{
    Verb, argument,
    net::{MSG_FASTOPEN, address, udp},
    number,
};

// include/uapi/linux/in.h
const IPPROTO_MPTCP: i32 = 262;
const IP_OPTIONS: i32 = 4;
// include/uapi/linux/tcp.h
const TCP_FASTOPEN_CONNECT: i32 = 30;
// include/uapi/linux/sctp.h
const SCTP_SOCKOPT_CONNECTX: i32 = 110;

/// Verbs on peers; the first argument is an address and a port.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("udp-sendmsg", |a| {
        let to = SockaddrStorage::from(address(a)?);
        let (content, flags) = ([IoSlice::new(b"x")], MsgFlags::empty());
        sendmsg(udp(a)?.as_raw_fd(), &content, &[], flags, Some(&to))?;
        Ok(())
    }),
    // To an address that says it is of no family.
    ("udp-send-unspecified", |a| {
        send_unspecified(&udp(a)?, address(a)?)
    }),
    // Connected to the second address, sent to the first.
    ("udp-send-elsewhere", |a| {
        let socket = udp(a)?;
        let other = argument(a, 1)?.to_string_lossy().into_owned();
        socket.connect(other)?;
        socket.send_to(b"x", address(a)?).map(drop)
    }),
    // To the second address, by way of the first (RFC 791, loose source routing).
    ("udp-send-by-way-of", send_by_way_of),
    ("udp-send-with-a-way", send_with_a_way),
    ("flow-label", |_| make_flow_label()),
    ("tcp-fastopen-sendmsg", |a| {
        let to = SockaddrStorage::from(address(a)?);
        let socket = open(family(address(a)?), libc::SOCK_STREAM, 0)?;
        let (content, flags) = (
            [IoSlice::new(b"x")],
            MsgFlags::from_bits_retain(MSG_FASTOPEN),
        );
        sendmsg(socket.as_raw_fd(), &content, &[], flags, Some(&to))?;
        Ok(())
    }),
    ("tcp-fastopen-connect", |a| {
        let socket = open(family(address(a)?), libc::SOCK_STREAM, 0)?;
        set(&socket, libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &1_i32)?;
        connect(&socket, address(a)?)?;
        std::fs::File::from(socket).write_all(b"x")
    }),
    ("mptcp", |a| {
        by_protocol(a, libc::SOCK_STREAM, IPPROTO_MPTCP)
    }),
    ("sctp", |a| {
        by_protocol(a, libc::SOCK_STREAM, libc::IPPROTO_SCTP)
    }),
    ("sctp-connectx", |a| {
        let socket = open(family(address(a)?), libc::SOCK_STREAM, libc::IPPROTO_SCTP)?;
        let to = SockaddrStorage::from(address(a)?);
        set_bytes(
            &socket,
            libc::IPPROTO_SCTP,
            SCTP_SOCKOPT_CONNECTX,
            to.as_ptr().cast(),
            // Of an address alone, as several may follow: `sockaddr_in`, `sockaddr_in6`.
            if address(a)?.is_ipv4() { 16 } else { 28 },
        )
    }),
    ("udplite", |a| {
        let socket = open(family(address(a)?), libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE)?;
        send_to(&socket, b"x", address(a)?)
    }),
    ("ping", |a| {
        let socket = open(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)?;
        send_to(&socket, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0], address(a)?)
    }),
    ("ping-connected", |a| {
        let socket = open(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)?;
        connect(&socket, address(a)?)?;
        std::fs::File::from(socket).write_all(&[8, 0, 0xf7, 0xff, 0, 0, 0, 0])
    }),
    ("ping6", |a| {
        let socket = open(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6)?;
        send_to(&socket, &[128, 0, 0, 0, 0, 0, 0, 0], address(a)?)
    }),
    // A raw socket's UDP, to whom the call names.
    ("raw-udp", |a| {
        let socket = open(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP)?;
        send_to(&socket, &udp_header(address(a)?.port()), address(a)?)
    }),
    // A raw socket's own IP header names the first address, the call names the second.
    ("raw-header", |a| {
        let SocketAddr::V4(to) = address(a)? else {
            return Err(Errno::EAFNOSUPPORT.into());
        };
        let socket = open(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)?;
        let named: SocketAddr = argument(a, 1)?
            .to_string_lossy()
            .parse()
            .map_err(io::Error::other)?;
        send_to(&socket, &ip_packet(to), named)
    }),
    ("raw-open", |_| {
        open(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP).map(drop)
    }),
    ("packet-open", |_| {
        open(libc::AF_PACKET, libc::SOCK_DGRAM, PACKET_IP).map(drop)
    }),
    // A packet that goes past the IP layer, on the loopback interface.
    ("packet-send", |a| {
        let SocketAddr::V4(to) = address(a)? else {
            return Err(Errno::EAFNOSUPPORT.into());
        };
        packet_send(&ip_packet(to))
    }),
    ("algorithm", algorithm),
    // A message for a process, by its id, in the kernel's family for such.
    ("netlink-peer", |a| netlink_peer(number(argument(a, 0)?)?)),
    ("vsock-connect", |_| {
        use nix::sys::socket::VsockAddr;
        let socket = open(libc::AF_VSOCK, libc::SOCK_STREAM, 0)?;
        // VMADDR_CID_LOCAL (include/uapi/linux/vm_sockets.h), where a listener may be.
        let to = VsockAddr::new(1, 1025);
        Ok(nix::sys::socket::connect(socket.as_raw_fd(), &to)?)
    }),
    // Asks a name server for the address of a name, and waits for the answer.
    ("ask", |a| {
        let socket = udp(a)?;
        socket.set_read_timeout(Some(Duration::from_secs(3)))?;
        socket.send_to(&question(&argument(a, 1)?.to_string_lossy())?, address(a)?)?;
        socket.recv(&mut [0; 512]).map(drop)
    }),
    // By the number of a descriptor for the socket's name.
    ("unix-by-descriptor", |a| {
        let name = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(argument(a, 0)?)?;
        UnixStream::connect(format!("/proc/self/fd/{}", name.as_raw_fd())).map(drop)
    }),
    ("bind-tcp", |a| {
        std::net::TcpListener::bind(address(a)?).map(drop)
    }),
    ("bind-foreign", |a| {
        let socket = open(libc::AF_INET, libc::SOCK_STREAM, 0)?;
        set(&socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT, &1_i32)?;
        let address = SockaddrStorage::from(address(a)?);
        Ok(nix::sys::socket::bind(socket.as_raw_fd(), &address)?)
    }),
    ("listen-unbound", |_| {
        let socket = open(libc::AF_INET, libc::SOCK_STREAM, 0)?;
        Ok(nix::sys::socket::listen(
            &socket,
            nix::sys::socket::Backlog::new(1)?,
        )?)
    }),
    ("bind-udp", |a| UdpSocket::bind(address(a)?).map(drop)),
];

/// htons(ETH_P_IP)
const PACKET_IP: i32 = 0x0800_u16.to_be() as i32;

#[allow(unsafe_code, reason = "families and protocols that no wrapper knows")]
pub(super) fn open(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    let descriptor = Errno::result(result)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(super) fn family(address: SocketAddr) -> i32 {
    if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    }
}

fn by_protocol(arguments: &[OsString], kind: i32, protocol: i32) -> io::Result<()> {
    let address = address(arguments)?;
    connect(&open(family(address), kind, protocol)?, address)
}

pub(super) fn connect(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let address = SockaddrStorage::from(address);
    Ok(nix::sys::socket::connect(socket.as_raw_fd(), &address)?)
}

pub(super) fn send_to(socket: &OwnedFd, content: &[u8], address: SocketAddr) -> io::Result<()> {
    let address = SockaddrStorage::from(address);
    nix::sys::socket::sendto(socket.as_raw_fd(), content, &address, MsgFlags::empty())?;
    Ok(())
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let length = u32::try_from(size_of_val(value)).map_err(io::Error::other)?;
    set_bytes(
        socket,
        level,
        option,
        std::ptr::from_ref(value).cast(),
        length,
    )
}

#[allow(unsafe_code, reason = "options that no wrapper knows")]
fn set_bytes(
    socket: &OwnedFd,
    level: i32,
    option: i32,
    value: *const libc::c_void,
    length: u32,
) -> io::Result<()> {
    // SAFETY: the callers pass a value and its length; the kernel reads no more than that.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) };
    Errno::result(result)?;
    Ok(())
}

#[allow(unsafe_code, reason = "an address whose family is none")]
fn send_unspecified(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    let SocketAddr::V4(address) = address else {
        return Err(Errno::EAFNOSUPPORT.into());
    };
    let mut bytes = [0_u8; 16];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&address.ip().octets());
    // SAFETY: the kernel reads as many bytes of both as it is told.
    let result = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            c"x".as_ptr().cast(),
            1,
            0,
            bytes.as_ptr().cast(),
            16,
        )
    };
    Errno::result(result)?;
    Ok(())
}

fn send_by_way_of(arguments: &[OsString]) -> io::Result<()> {
    let socket = open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    set(
        &socket,
        libc::IPPROTO_IP,
        IP_OPTIONS,
        &way_by(address(arguments)?)?,
    )?;
    send_to(&socket, b"x", second(arguments)?)
}

/// IP options: IPOPT_LSRR, its length, the pointer to the first hop; then the hop, and the end of options.
fn way_by(hop: SocketAddr) -> io::Result<[u8; 8]> {
    let SocketAddr::V4(hop) = hop else {
        return Err(Errno::EAFNOSUPPORT.into());
    };
    let mut options = [131, 7, 4, 0, 0, 0, 0, 0];
    options[3..7].copy_from_slice(&hop.ip().octets());
    Ok(options)
}

fn second(arguments: &[OsString]) -> io::Result<SocketAddr> {
    let text = argument(arguments, 1)?.to_string_lossy();
    text.parse().map_err(io::Error::other)
}

/// A label for packets to this host, with no options.
fn make_flow_label() -> io::Result<()> {
    /// `struct in6_flowlabel_req` of include/uapi/linux/in6.h
    #[repr(C)]
    struct Request {
        to: [u8; 16],
        label: [u8; 4],
        action: u8,
        share: u8,
        flags: u16,
        expires: u16,
        linger: u16,
        padding: u32,
    }
    const IPV6_FLOWLABEL_MGR: i32 = 32;
    let socket = open(libc::AF_INET6, libc::SOCK_DGRAM, 0)?;
    let request = Request {
        to: std::net::Ipv6Addr::LOCALHOST.octets(),
        label: [0, 0, 0x12, 0x34],
        action: 0, // IPV6_FL_A_GET
        share: 1,  // IPV6_FL_S_EXCL
        flags: 1,  // IPV6_FL_F_CREATE
        expires: 0,
        linger: 0,
        padding: 0,
    };
    set(&socket, libc::IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &request)
}

/// The same for one message (IP_RETOPTS).
#[allow(unsafe_code, reason = "ancillary data that no wrapper knows")]
fn send_with_a_way(arguments: &[OsString]) -> io::Result<()> {
    #[repr(C)]
    struct Control {
        head: libc::cmsghdr,
        options: [u8; 8],
    }
    let SocketAddr::V4(to) = second(arguments)? else {
        return Err(Errno::EAFNOSUPPORT.into());
    };
    let socket = open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut control = Control {
        head: libc::cmsghdr {
            cmsg_len: size_of::<Control>(),
            cmsg_level: libc::IPPROTO_IP,
            cmsg_type: libc::IP_RETOPTS,
        },
        options: way_by(address(arguments)?)?,
    };
    let mut name = nix::sys::socket::SockaddrIn::from(to);
    let mut part = libc::iovec {
        iov_base: b"x".as_ptr().cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: all zeroes are a value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = u32::try_from(size_of::<libc::sockaddr_in>()).unwrap_or_default();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: everything that the message names is alive, and of the length that is said; nothing is written to.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    Ok(Errno::result(sent).map(drop)?)
}

fn udp_header(port: u16) -> [u8; 9] {
    let [high, low] = port.to_be_bytes();
    [0x30, 0x39, high, low, 0, 9, 0, 0, b'x']
}

/// An IP packet with a datagram of a byte; the kernel fills in length and checksum, and the source where it is 0.
fn ip_packet(to: SocketAddrV4) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 29, 0, 1, 0, 0, 64, 17, 0, 0];
    packet.extend(Ipv4Addr::LOCALHOST.octets());
    packet.extend(to.ip().octets());
    let sum: u32 = packet
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let checksum = !u16::try_from(folded).unwrap_or_default();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(udp_header(to.port()));
    packet
}

#[allow(unsafe_code, reason = "packet sockets' addresses have no constructor")]
fn packet_send(packet: &[u8]) -> io::Result<()> {
    let socket = open(libc::AF_PACKET, libc::SOCK_DGRAM, PACKET_IP)?;
    // SAFETY: a structure of integers, for which zeros are a value.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
    to.sll_protocol = 0x0800_u16.to_be();
    // The loopback interface is always the first.
    to.sll_ifindex = 1;
    to.sll_halen = 6;
    let length = u32::try_from(size_of_val(&to)).map_err(io::Error::other)?;
    // SAFETY: the kernel reads as many bytes of both as it is told.
    let result = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const to).cast(),
            length,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// Has the kernel's cryptography at hand: AF_ALG, bound to a hash.
#[allow(unsafe_code, reason = "its address has no constructor")]
fn algorithm(_: &[OsString]) -> io::Result<()> {
    let socket = open(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)?;
    // SAFETY: a structure of integers, for which zeros are a value.
    let mut to: libc::sockaddr_alg = unsafe { std::mem::zeroed() };
    to.salg_family = u16::try_from(libc::AF_ALG).map_err(io::Error::other)?;
    to.salg_type[..4].copy_from_slice(b"hash");
    to.salg_name[..6].copy_from_slice(b"sha256");
    let length = u32::try_from(size_of_val(&to)).map_err(io::Error::other)?;
    // SAFETY: the kernel reads as many bytes as it is told.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const to).cast(), length) };
    Errno::result(result)?;
    Ok(())
}

#[allow(unsafe_code, reason = "its address has no constructor")]
fn netlink_peer(process: u32) -> io::Result<()> {
    // NETLINK_USERSOCK (include/uapi/linux/netlink.h)
    let socket = open(libc::AF_NETLINK, libc::SOCK_DGRAM, 2)?;
    // SAFETY: a structure of integers, for which zeros are a value.
    let mut to: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    to.nl_family = u16::try_from(libc::AF_NETLINK).map_err(io::Error::other)?;
    to.nl_pid = process;
    let length = u32::try_from(size_of_val(&to)).map_err(io::Error::other)?;
    let content = [0_u8; 16];
    // SAFETY: the kernel reads as many bytes of both as it is told.
    let result = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            content.as_ptr().cast(),
            content.len(),
            0,
            (&raw const to).cast(),
            length,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// A question for a name's address (RFC 1035).
pub(super) fn question(name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).map_err(io::Error::other)?);
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    Ok(bytes)
}
