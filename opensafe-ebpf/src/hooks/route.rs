//! Ways that packets take before they reach the peer that was decided, and what decides about those of others.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    event::ConnectBody,
    socket::{AF_INET, AF_INET6, AF_UNSPEC},
};

use super::{capability, net::to_unknown};
use crate::{
    actor::Actor,
    bound::unforeseen,
    kernel::{Sock, Socket, argument, read},
};

/// `socket_setsockopt(socket, level, option)`: a route that packets take before they reach the peer that was
/// decided. Who is on it is not told apart.
#[inline(always)]
pub fn option(actor: &Actor, ctx: &LsmContext) -> i32 {
    // By which hops: include/uapi/linux/in.h: SOL_IP, IP_OPTIONS; in6.h: SOL_IPV6, IPV6_2292PKTOPTIONS, IPV6_RTHDR, and
    // IPV6_FLOWLABEL_MGR, which keeps options for all packets with a label. By which device, whatever the address is, so that
    // loopback's even leaves this host: asm-generic/socket.h: SOL_SOCKET, SO_DONTROUTE, SO_BINDTODEVICE, SO_BINDTOIFINDEX;
    // in.h: IP_UNICAST_IF; in6.h: IPV6_PKTINFO, IPV6_UNICAST_IF.
    match (ctx.arg::<u32>(1), ctx.arg::<u32>(2)) {
        (1, 5 | 25 | 62) => to_unknown(actor, AF_UNSPEC, ConnectBody::CONNECT),
        (0, 4 | 50) => to_unknown(actor, AF_INET, ConnectBody::CONNECT),
        (41, 6 | 32 | 50 | 57 | 76) => to_unknown(actor, AF_INET6, ConnectBody::CONNECT),
        // Routing multicast packets: MRT_INIT and what follows, MRT6_INIT. To begin with it takes no right.
        (0, 200..=211) | (41, 200..=211) => {
            let sock = Socket(argument(ctx, 0)).sock();
            capability::routes_for_others(actor, sock.unwrap_or(Sock(0)))
        }
        // Packet filters and balancers of the socket's network (IPT_BASE_CTL, ARPT_BASE_CTL, EBT_BASE_CTL, IP_VS_BASE_CTL;
        // IP6T_BASE_CTL).
        (0, 64..) | (41, 64 | 65) => {
            let sock = Socket(argument(ctx, 0)).sock();
            capability::from_own_network(actor, sock.unwrap_or(Sock(0)))
        }
        _ => 0,
    }
}

/// `sctp_bind_connect(sock, option, addresses, length)`: several addresses at once, contacted or bound to, which
/// are not told apart.
#[inline(always)]
pub fn sctp(actor: &Actor, _ctx: &LsmContext) -> i32 {
    to_unknown(actor, AF_INET, ConnectBody::CONNECT)
}

/// 1 if what is sent along with a message names hops on the way, or a device other than the loopback's: who is there is
/// not told apart. A function that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn has_a_route(control: u64, len: u64) -> u64 {
    /// `struct cmsghdr`
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Head {
        len: u64,
        level: u32,
        kind: u32,
    }
    // Of IPv4 and IPv6 there are fewer that can be sent (`ip_cmsg_send`, `ip6_datagram_send_ctl`).
    const MAX_PARTS: u32 = 16;
    const NONE: u64 = u64::MAX;
    // LOOPBACK_IFINDEX of include/net/flow.h; 0 is any device.
    const LOOPBACK: u32 = 1;
    let mut at = 0_u64;
    let mut parts = 0;
    while parts < MAX_PARTS {
        if at.saturating_add(size_of::<Head>() as u64) > len {
            return 0;
        }
        let Some(head) = read::<Head>(control.wrapping_add(at)) else {
            return 1;
        };
        if head.len < size_of::<Head>() as u64 || head.len > len {
            return 0; // the kernel refuses it
        }
        // include/uapi/linux/in.h: SOL_IP, IP_RETOPTS; in6.h: SOL_IPV6, IPV6_2292RTHDR, IPV6_RTHDR.
        if matches!((head.level, head.kind), (0, 7) | (41, 5 | 57)) {
            return 1;
        }
        // IP_PKTINFO, whose first word is a device; IPV6_PKTINFO and IPV6_2292PKTINFO, where it follows the address.
        let device = match (head.level, head.kind) {
            (0, 8) => 0,
            (41, 2 | 50) => 16,
            _ => NONE,
        };
        if device != NONE {
            let place = control.wrapping_add(at + size_of::<Head>() as u64 + device);
            if read::<u32>(place).is_none_or(|device| device > LOOPBACK) {
                return 1;
            }
        }
        at += head.len + 7 & !7;
        parts = unforeseen(parts + 1);
    }
    1
}
