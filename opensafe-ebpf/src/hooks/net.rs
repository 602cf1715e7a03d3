//! Contacting peers, connected or not.

use core::ffi::c_void;

use aya_ebpf::{helpers::generated, programs::LsmContext};
use opensafe_common::{
    event::ConnectBody,
    socket::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, AF_UNSPEC},
    tables::transport,
    verdict::Verdict,
};

use crate::{
    actor::Actor,
    bound::zeroed,
    decide::{self, Decision},
    emit::Requested,
    gate::{is_first, peer},
    hooks::{route::has_a_route, unix},
    kernel::{Sock, Socket, argument, current_memory, read},
    known::{Known, KnownTask, process},
    maps::{ReportKey, constant},
};

/// Bytes of an address that are looked at: a `sockaddr_in6`.
pub const ADDRESS_BYTES: usize = 28;
/// And the words that hold them.
pub const ADDRESS_WORDS: usize = ADDRESS_BYTES.div_ceil(8);

/// `socket_connect(socket, address, length)`.
#[inline(always)]
pub fn connect(actor: &Actor, ctx: &LsmContext) -> i32 {
    let address = Named {
        at: ctx.arg::<u64>(1),
        len: ctx.arg::<u32>(2),
        with_control: false,
    };
    to_address(
        actor,
        Known::argument(ctx, 0),
        address,
        ConnectBody::CONNECT,
    )
}

/// `socket_sendmsg(socket, message, size)`: sends that name a peer (unconnected UDP, TCP fast open).
#[inline(always)]
pub fn send(actor: &Actor, ctx: &LsmContext) -> i32 {
    let (socket, message) = (Known::argument(ctx, 0), Known::argument(ctx, 1));
    let control_len: u64 = message.get(constant!(OFFSETS.msghdr_control_len));
    let family = family_of(socket);
    // include/linux/socket.h: past all routes, as SO_DONTROUTE.
    const MSG_DONTROUTE: u32 = 0x4;
    let flags: u32 = message.get(constant!(OFFSETS.msghdr_flags));
    if flags & MSG_DONTROUTE != 0 && matches!(family, AF_INET | AF_INET6) {
        return to_unknown(actor, family, ConnectBody::SEND);
    }
    if control_len != 0 && matches!(family, AF_INET | AF_INET6) {
        // As a number: to newer verifiers what is loaded through a known pointer is memory.
        let control = argument(ctx, 1) + u64::from(constant!(OFFSETS.msghdr_control));
        let control = read::<u64>(control).unwrap_or(0);
        if has_a_route(control, control_len) != 0 {
            return to_unknown(actor, family, ConnectBody::SEND);
        }
    }
    match message.get::<u64>(constant!(OFFSETS.msghdr_name)) {
        0 => to_peer_of(actor, family),
        name => {
            let address = Named {
                at: name,
                len: message.get(constant!(OFFSETS.msghdr_namelen)),
                with_control: control_len != 0,
            };
            to_address(actor, socket, address, ConnectBody::SEND)
        }
    }
}

/// A send that names no peer. Where sockets are connected, it goes to whom was decided then; where
/// they are bound to something and written to (packet, CAN, XDP), the send is all there is to decide.
#[inline(always)]
fn to_peer_of(actor: &Actor, family: u16) -> i32 {
    match family {
        AF_UNIX | AF_INET | AF_INET6 | AF_NETLINK => 0,
        family => to_unknown(actor, family, ConnectBody::SEND),
    }
}

#[inline(always)]
fn family_of(socket: Known) -> u16 {
    match socket.follow_or_null(constant!(OFFSETS.socket_sk)) {
        Some(sock) => sock.get(constant!(OFFSETS.sock_family)),
        None => AF_UNSPEC,
    }
}

/// A peer of another family, or one that cannot be made out.
#[inline(always)]
pub fn to_unknown(actor: &Actor, family: u16, how: u16) -> i32 {
    Peer {
        family,
        how,
        ..Peer::UNKNOWN
    }
    .gate(actor)
}

/// An address in a system call, copied into the kernel.
#[derive(Clone, Copy)]
struct Named {
    at: u64,
    len: u32,
    /// With what says from where and how a packet goes (`IP_PKTINFO`).
    with_control: bool,
}

#[inline(always)]
fn to_address(actor: &Actor, socket: Known, address: Named, how: u16) -> i32 {
    let Some(sock) = socket.follow_or_null(constant!(OFFSETS.socket_sk)) else {
        return to_unknown(actor, AF_UNSPEC, how);
    };
    let family: u16 = sock.get(constant!(OFFSETS.sock_family));
    if family == AF_UNIX {
        return 0; // decided where the kernel has found the peer
    }
    let mut words = zeroed::<ADDRESS_WORDS>();
    let Some(bytes) = read_address(&mut words, address.at, address.len) else {
        return to_unknown(actor, family, how);
    };
    let asked = u16::from_ne_bytes([bytes[0], bytes[1]]);
    let mut peer = Peer {
        family,
        how,
        socket_type: sock.get(constant!(OFFSETS.sock_type)),
        protocol: sock.get(constant!(OFFSETS.sock_protocol)),
        ..Peer::UNKNOWN
    };
    match (family, asked) {
        // Dissolves a connection. As a peer to send to, an IPv4 socket takes it for AF_INET
        // (net/ipv4/udp.c), an IPv6 one for none (net/ipv6/udp.c), or for AF_INET6 (net/ipv6/raw.c).
        (AF_INET | AF_INET6 | AF_NETLINK, AF_UNSPEC) if how == ConnectBody::CONNECT => return 0,
        (AF_INET6, AF_UNSPEC)
            if matches!(
                decide::transport_of(peer.socket_type, peer.protocol),
                transport::TCP | transport::UDP
            ) =>
        {
            return 0;
        }
        (AF_INET, AF_UNSPEC) | (AF_INET | AF_INET6, AF_INET) => {
            (peer.high, peer.low) = v4(bytes);
            peer.has_address = true;
        }
        (AF_INET6, AF_INET6 | AF_UNSPEC) => {
            (peer.high, peer.low) = v6(bytes);
            peer.has_address = true;
        }
        // The kernel itself is no peer: requests for routes and addresses go there. A group's
        // members are.
        (AF_NETLINK, AF_NETLINK) if u64_at(bytes, 4) == 0 => return 0,
        _ => {}
    }
    if peer.has_address {
        peer.port = port(bytes, peer.socket_type, peer.protocol);
    }
    if (peer.high, peer.low) == mapped(0) && peer.has_address {
        let sock = Sock(KnownTask::current().number_of(sock));
        match sock.where_unspecified_leads() {
            Some(0) if !address.with_control => {} // asked as loopback
            Some(own) if !address.with_control => (peer.high, peer.low) = mapped(u32::from_be(own)),
            _ => peer.is_untold = true,
        }
    }
    peer.gate(actor)
}

/// Who is contacted, if it is not a Unix socket.
struct Peer {
    /// The address (IPv4 mapped), its high and low half; 0 without one.
    high: u64,
    low: u64,
    has_address: bool,
    /// The address leads to one that the hook is not told.
    is_untold: bool,
    family: u16,
    port: u16,
    socket_type: u16,
    protocol: u16,
    how: u16,
}

impl Peer {
    const UNKNOWN: Self = Self {
        high: 0,
        low: 0,
        has_address: false,
        is_untold: false,
        family: 0,
        port: 0,
        socket_type: 0,
        protocol: 0,
        how: 0,
    };

    /// Decides, and puts it on record.
    #[inline(always)]
    fn gate(&self, actor: &Actor) -> i32 {
        match peer_gate(self.high, self.low, self.pack(), actor.pack(), actor.cgroup) {
            0 => 0,
            _ => decide::REFUSED,
        }
    }

    /// All but the address. Families, types and ways are small numbers (AF_MAX, SOCK_PACKET).
    #[inline(always)]
    fn pack(&self) -> u64 {
        u64::from(self.port)
            | u64::from(self.protocol) << 16
            | u64::from(self.family & 0xff) << 32
            | u64::from(self.socket_type & 0xff) << 40
            | u64::from(self.how & 0xff) << 48
            | u64::from(self.has_address) << 56
            | u64::from(self.is_untold) << 57
    }

    #[inline(always)]
    fn unpack(high: u64, low: u64, packed: u64) -> Self {
        Self {
            high,
            low,
            has_address: packed >> 56 & 1 == 1,
            is_untold: packed >> 57 & 1 == 1,
            family: (packed >> 32) as u16 & 0xff,
            port: packed as u16,
            socket_type: (packed >> 40) as u16 & 0xff,
            protocol: (packed >> 16) as u16,
            how: (packed >> 48) as u16 & 0xff,
        }
    }
}

/// [`Peer::gate`], as a function that the verifier checks once; see [`crate::path`]. 1 if refused.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn peer_gate(high: u64, low: u64, who: u64, actor: u64, cgroup: u64) -> u64 {
    // The policy was there when the actor was made out, and policies are never taken out.
    let Some(actor) = Actor::unpack(actor, cgroup) else {
        return 0;
    };
    let who = Peer::unpack(high, low, who);
    let body = ConnectBody {
        magic: 0,
        address: (u128::from(high) << 64 | u128::from(low)).to_be_bytes(),
        dev: 0,
        family: who.family,
        port: who.port,
        transport: decide::transport_of(who.socket_type, who.protocol),
        socket_type: who.socket_type,
        protocol: who.protocol,
        how: who.how,
    };
    let (decision, what) = if who.is_untold {
        (decide::at_untold(), 0)
    } else if who.has_address {
        (
            decide::at_address(&actor, body.address, body.transport, body.port),
            u32::from(body.port) | u32::from(body.transport) << 16 | 1 << 31,
        )
    } else {
        (
            decide::at_other_family(&actor),
            u32::from(who.family) | 1 << 29,
        )
    };
    if who.how != ConnectBody::SEND || is_news(&actor, decision, low, high, what) {
        peer(&actor, decision, 0, Requested::Unknown, &body);
    }
    u64::from(decision.refuses(&actor))
}

/// Copies an address of `len` bytes out of the kernel; `None` if it is none or cannot be read.
#[inline(always)]
pub fn read_address(
    words: &mut [u64; ADDRESS_WORDS],
    address: u64,
    len: u32,
) -> Option<&[u8; ADDRESS_BYTES]> {
    let len = if len > ADDRESS_BYTES as u32 {
        ADDRESS_BYTES as u32
    } else {
        len
    };
    // SAFETY: `len` bytes fit `words`; the helper checks the source.
    let failed = unsafe {
        generated::bpf_probe_read_kernel(words.as_mut_ptr().cast(), len, address as *const c_void)
    };
    // SAFETY: the words are that many bytes and more, and bytes need no alignment.
    (failed == 0 && len >= 2).then_some(unsafe { &*words.as_ptr().cast::<[u8; ADDRESS_BYTES]>() })
}

/// The address in a `sockaddr_in`, mapped: its high and low half.
#[inline(always)]
pub fn v4(bytes: &[u8; ADDRESS_BYTES]) -> (u64, u64) {
    mapped(u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
}

/// The address in a `sockaddr_in6`: its high and low half.
#[inline(always)]
pub fn v6(bytes: &[u8; ADDRESS_BYTES]) -> (u64, u64) {
    (
        u64::from_be(u64_at(bytes, 8)),
        u64::from_be(u64_at(bytes, 16)),
    )
}

#[inline(always)]
fn mapped(v4: u32) -> (u64, u64) {
    (0, 0xffff << 32 | u64::from(v4))
}

/// A socket that came from elsewhere: if it is connected, its peer is decided now.
#[inline(always)]
pub fn receive(actor: &Actor, socket: Socket) -> i32 {
    let family = socket.sock().and_then(|sock| sock.family());
    let refused = if family == Some(AF_UNIX) {
        received_unix(socket.0, actor.pack(), actor.cgroup)
    } else {
        received_socket(socket.0, actor.pack(), actor.cgroup)
    };
    if refused == 0 { 0 } else { decide::REFUSED }
}

/// [`receive`] of a Unix socket; its peer's place is asked about, if it has one. A function of its own for its
/// stack's sake; 1 if it is refused.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn received_unix(socket: u64, actor: u64, cgroup: u64) -> u64 {
    let peer = Socket(socket).sock().and_then(|sock| sock.unix_peer());
    match (Actor::unpack(actor, cgroup), peer) {
        (Some(actor), Some(peer)) if peer.0 != 0 => {
            u64::from(unix::to(&actor, peer, ConnectBody::CONNECT) != 0)
        }
        _ => 0,
    }
}

/// [`receive`] of any other. As above.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn received_socket(socket: u64, actor: u64, cgroup: u64) -> u64 {
    match Actor::unpack(actor, cgroup) {
        Some(actor) => u64::from(peer_of_socket(&actor, Socket(socket)) != 0),
        None => 0,
    }
}

#[inline(always)]
fn peer_of_socket(actor: &Actor, socket: Socket) -> i32 {
    let Some(sock) = socket.sock() else {
        return to_unknown(actor, AF_UNSPEC, ConnectBody::CONNECT);
    };
    let family = sock.family().unwrap_or(AF_UNSPEC);
    let (high, low) = match family {
        AF_INET => mapped(u32::from_be(sock.peer_v4().unwrap_or(0))),
        AF_INET6 => (
            u64::from_be(sock.peer_v6_high().unwrap_or(0)),
            u64::from_be(sock.peer_v6_low().unwrap_or(0)),
        ),
        AF_NETLINK => return 0,
        _ => return to_unknown(actor, family, ConnectBody::CONNECT),
    };
    if high == 0 && (low == 0 || low == 0xffff_0000_0000) {
        return 0; // not connected; whom it contacts from here on is decided then
    }
    let peer = Peer {
        high,
        low,
        has_address: true,
        is_untold: false,
        family,
        port: u16::from_be(sock.peer_port().unwrap_or(0)),
        socket_type: sock.kind().unwrap_or(0),
        protocol: sock.protocol().unwrap_or(0),
        // Passed on between processes of the sandbox it is one contact.
        how: ConnectBody::SEND,
    };
    peer.gate(actor)
}

#[inline(always)]
fn u64_at(bytes: &[u8; ADDRESS_BYTES], at: usize) -> u64 {
    let mut value = 0;
    let mut i = 0;
    while i < 8 {
        value |= u64::from(bytes[at + i]) << (8 * i);
        i += 1;
    }
    value
}

/// The port in an address, 0 for what has none: a raw socket's is its protocol (raw(7)), a ping socket's an echo's number
/// or nothing (net/ipv4/ping.c).
#[inline(always)]
pub fn port(bytes: &[u8; ADDRESS_BYTES], socket_type: u16, protocol: u16) -> u16 {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    port_of(u64::from(port), u64::from(socket_type), u64::from(protocol)) as u16
}

/// [`port`], as a function that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn port_of(port: u64, socket_type: u64, protocol: u64) -> u64 {
    match decide::transport_of(socket_type as u16, protocol as u16) {
        transport::TCP | transport::UDP | transport::SCTP => port,
        _ => 0,
    }
}

#[inline(always)]
pub fn is_news(
    actor: &Actor,
    decision: Decision,
    object: u64,
    object_more: u64,
    what: u32,
) -> bool {
    if decision.verdict as u8 != Verdict::Allow as u8 {
        return true;
    }
    is_first(&ReportKey::other(
        current_memory(),
        process(),
        actor.policy,
        (object, object_more),
        what,
    ))
}
