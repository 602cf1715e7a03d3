//! Unix sockets: decided by where the other one was bound.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{event::ConnectBody, socket::AF_UNIX, verdict::Access};

use super::net::{is_news, to_unknown};
use crate::{
    actor::Actor,
    decide::{self, Decision},
    emit::{Requested, file_body},
    gate::{By, peer},
    kernel::{Sock, Socket, read},
    path,
};

/// `unix_stream_connect(sock, other, new)`.
#[inline(always)]
pub fn connect(actor: &Actor, ctx: &LsmContext) -> i32 {
    to(actor, Sock(ctx.arg::<u64>(1)), ConnectBody::CONNECT)
}

/// `unix_may_send(socket, other)`: connecting or sending to a datagram socket.
#[inline(always)]
pub fn send(actor: &Actor, ctx: &LsmContext) -> i32 {
    match Socket(ctx.arg::<u64>(1)).sock() {
        Some(other) => to(actor, other, ConnectBody::SEND),
        None => to_unknown(actor, AF_UNIX, ConnectBody::SEND),
    }
}

/// Binding to the `len` bytes of a `sockaddr_un` at `address`: an abstract name that a rule denies as a peer is not taken
/// either.
#[inline(always)]
pub fn bind(actor: &Actor, address: u64, len: u32) -> i32 {
    // A family and a leading NUL come before the name.
    const BEFORE: u32 = 3;
    // Without a name the kernel picks one of its own; with one that begins otherwise it is a path.
    if len <= BEFORE || read::<u8>(address + 2) != Some(0) {
        return 0;
    }
    let (name, len) = (address + u64::from(BEFORE), len - BEFORE);
    match path::abstract_word(actor.policy_index, name, len) {
        Some(word) if word.deny & Access::UNIX.0 == 0 => return 0,
        _ => {}
    }
    let mut body = ConnectBody::NONE;
    body.family = AF_UNIX;
    body.how = ConnectBody::CONNECT;
    let decision = decide::at_abstract_name(actor, name, len);
    peer(actor, decision, 0, Requested::KernelBytes(name, len), &body)
}

#[inline(always)]
pub fn to(actor: &Actor, other: Sock, how: u16) -> i32 {
    let kind = other.kind().unwrap_or(0);
    let mut body = ConnectBody {
        magic: 0,
        address: [0; 16],
        dev: 0,
        family: AF_UNIX,
        port: 0,
        transport: 0,
        socket_type: kind,
        protocol: 0,
        how,
    };
    if let Some(dentry) = other.unix_dentry()
        && dentry.0 != 0
    {
        let place = file_body(dentry);
        body.magic = place.magic;
        body.dev = place.dev;
        let decision = decide::at_path(actor, dentry, Access::UNIX, By::Policy);
        if how == ConnectBody::SEND && !is_first_unix_send(actor, decision, place.inode, place.dev)
        {
            return decision.errno(actor);
        }
        return peer(actor, decision, dentry.0, Requested::Unknown, &body);
    }
    let Some(address) = other.unix_address() else {
        return to_unknown(actor, AF_UNIX, how);
    };
    if address.0 == 0 {
        return 0; // a socket without a name: reached by a descriptor only
    }
    // A family and a leading NUL come before the name.
    let len = address.len().unwrap_or(0).saturating_sub(3);
    let name = address.name() + 1;
    let decision = decide::at_abstract_name(actor, name, len);
    if how == ConnectBody::SEND && !is_first_unix_send(actor, decision, address.0, 0) {
        return decision.errno(actor);
    }
    peer(actor, decision, 0, Requested::KernelBytes(name, len), &body)
}

#[inline(always)]
fn is_first_unix_send(actor: &Actor, decision: Decision, object: u64, dev: u32) -> bool {
    is_news(actor, decision, object, u64::from(dev), 1 << 30)
}
