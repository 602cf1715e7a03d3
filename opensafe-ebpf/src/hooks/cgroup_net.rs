//! Contacting peers, on hosts whose kernel refuses LSM programs: the same verdicts by the cgroup's
//! own address hooks. They see IP only.

use aya_ebpf::programs::SockAddrContext;
use opensafe_common::event::ConnectBody;

use crate::{
    actor::{Actor, SandboxId, armed},
    decide,
    gate::peer_of_cgroup,
    kernel::current_task_and_cgroup,
};

/// `cgroup/connect4`, `cgroup/sendmsg4`. Returns 1 to let it pass, 0 to refuse (`EPERM`).
#[inline(always)]
pub fn v4(ctx: &SockAddrContext, how: u16) -> i32 {
    // SAFETY: the program's own context, whose fields the verifier knows.
    let [a, b, c, d] = unsafe { (*ctx.sock_addr).user_ip4 }.to_ne_bytes();
    contact(
        ctx,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
        how,
    )
}

/// `cgroup/connect6`, `cgroup/sendmsg6`.
#[inline(always)]
pub fn v6(ctx: &SockAddrContext, how: u16) -> i32 {
    // SAFETY: as in `v4`; the context takes only whole words.
    let words = unsafe {
        let words = &raw const (*ctx.sock_addr).user_ip6;
        let word = |i: usize| core::ptr::read_volatile(words.cast::<u32>().add(i));
        [word(0), word(1), word(2), word(3)]
    };
    let mut address = [0; 16];
    let mut i = 0;
    while i < 4 {
        let bytes = words[i].to_ne_bytes();
        address[4 * i] = bytes[0];
        address[4 * i + 1] = bytes[1];
        address[4 * i + 2] = bytes[2];
        address[4 * i + 3] = bytes[3];
        i += 1;
    }
    contact(ctx, address, how)
}

#[inline(always)]
fn contact(ctx: &SockAddrContext, address: [u8; 16], how: u16) -> i32 {
    let (_, cgroup) = current_task_and_cgroup();
    // It runs because the socket belongs to the sandbox's cgroup, whoever uses it.
    let sandbox = armed(cgroup).unwrap_or(SandboxId(0));
    let Some(actor) = Actor::of(sandbox, cgroup) else {
        return 1;
    };
    // SAFETY: as in `v4`.
    let (family, port, socket_type, protocol) = unsafe {
        let asked = &*ctx.sock_addr;
        (
            asked.user_family,
            asked.user_port,
            asked.type_,
            asked.protocol,
        )
    };
    let (socket_type, protocol) = (socket_type as u16, protocol as u16);
    let body = ConnectBody {
        magic: 0,
        address,
        dev: 0,
        family: family as u16,
        port: u16::from_be(port as u16),
        transport: decide::transport_of(socket_type, protocol),
        socket_type,
        protocol,
        how,
    };
    let decision = decide::at_address(&actor, address, body.transport, body.port);
    i32::from(peer_of_cgroup(&actor, decision, &body))
}
