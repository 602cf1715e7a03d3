//! Sockets themselves: making them, and binding them to local addresses.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    event::{ConnectBody, Kind},
    socket::{AF_INET, AF_INET6, AF_UNIX, AF_UNSPEC},
    verdict::Verdict,
};

use crate::{
    actor::Actor,
    bound::zeroed,
    decide,
    gate::socket,
    hooks::{
        net::{ADDRESS_WORDS, port, read_address, v4, v6},
        unix,
    },
    kernel::{Sock, Socket, argument},
};

/// `socket_create(family, type, protocol, by_kernel)`: also socketpair(2).
#[inline(always)]
pub fn create(actor: &Actor, ctx: &LsmContext) -> i32 {
    if ctx.arg::<u32>(3) != 0 {
        return 0; // the kernel's own
    }
    let (family, socket_type) = (ctx.arg::<u32>(0), ctx.arg::<u32>(1) & 0xf);
    let decision = decide::at_socket(actor, family, socket_type);
    if decision.verdict as u8 == Verdict::Allow as u8 {
        return 0;
    }
    let mut body = ConnectBody::NONE;
    body.family = family as u16;
    body.socket_type = socket_type as u16;
    body.protocol = ctx.arg::<u32>(2) as u16;
    socket(actor, decision, Kind::Socket, &body)
}

/// `socket_bind(socket, address, length)`. Of Unix sockets with a path the name's creation is decided, of abstract names
/// whether a rule keeps the sandbox from contacting it: who contacts it outside would be answered from inside. Other
/// families were decided when the socket was made.
#[inline(always)]
pub fn bind(actor: &Actor, ctx: &LsmContext) -> i32 {
    let Some(sock) = Socket(argument(ctx, 0)).sock() else {
        return unreadable(actor);
    };
    let family = sock.family().unwrap_or(AF_UNSPEC);
    if family == AF_UNIX {
        return unix::bind(actor, argument(ctx, 1), argument(ctx, 2) as u32);
    }
    if family != AF_INET && family != AF_INET6 {
        return 0;
    }
    let mut words = zeroed::<ADDRESS_WORDS>();
    let Some(bytes) = read_address(&mut words, argument(ctx, 1), argument(ctx, 2) as u32) else {
        return unreadable(actor);
    };
    // An IPv4 socket takes AF_UNSPEC for AF_INET (net/ipv4/af_inet.c).
    let asked = u16::from_ne_bytes([bytes[0], bytes[1]]);
    let address = if family == AF_INET6 && asked != AF_INET {
        v6(bytes)
    } else {
        v4(bytes)
    };
    let (kind, protocol) = (sock.kind().unwrap_or(0), sock.protocol().unwrap_or(0));
    to(actor, sock, family, address, port(bytes, kind, protocol))
}

/// `socket_listen(socket, backlog)`: without a bind before it, the kernel picks a port, on every address.
#[inline(always)]
pub fn listen(actor: &Actor, ctx: &LsmContext) -> i32 {
    let Some(sock) = Socket(argument(ctx, 0)).sock() else {
        return unreadable(actor);
    };
    let family = sock.family().unwrap_or(AF_UNSPEC);
    let bound = !matches!(sock.local_port(), Some(0));
    match family {
        AF_INET if !bound => to(actor, sock, family, (0, 0xffff << 32), 0),
        AF_INET6 if !bound => to(actor, sock, family, (0, 0), 0),
        _ => 0,
    }
}

#[inline(always)]
fn to(actor: &Actor, sock: Sock, family: u16, (high, low): (u64, u64), port: u16) -> i32 {
    let address = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    let mut body = ConnectBody::NONE;
    body.family = family;
    body.address = address;
    body.port = port;
    body.socket_type = sock.kind().unwrap_or(0);
    body.protocol = sock.protocol().unwrap_or(0);
    body.transport = decide::transport_of(body.socket_type, body.protocol);
    let decision = decide::at_local_address(actor, address, body.transport, port);
    socket(actor, decision, Kind::Bind, &body)
}

/// A socket or an address that cannot be read is bound to anything: the verdict for every address.
#[inline(always)]
fn unreadable(actor: &Actor) -> i32 {
    let decision = decide::at_local_address(actor, [0; 16], 0, 0);
    socket(actor, decision, Kind::Bind, &ConnectBody::NONE)
}
