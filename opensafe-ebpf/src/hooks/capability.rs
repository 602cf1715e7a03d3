//! What root in a sandbox could do by right alone: no other hook tells what is done there.
//!
//! Rights over what a sandbox has made for itself (user and network namespaces, a host name of its own) are its own.

use aya_ebpf::programs::LsmContext;
use opensafe_common::operation::{How, Operation};

use super::own::{is_shared_network, network, shares_host_name, shares_mounts, shares_network};
use crate::{
    actor::Actor,
    gate::plain_operation,
    kernel::{
        Credentials, Message, NetworkNamespace, Sock, SystemCall, UserNamespace, argument, read,
    },
};

/// `capable(credentials, user_namespace, capability, options)`
#[inline(always)]
pub fn check(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/linux/security.h: CAP_OPT_NOAUDIT, of whoever asks only in order to show more.
    const NO_AUDIT: u32 = 0x2;
    // include/uapi/linux/capability.h
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_SYS_MODULE: u32 = 16;
    const CAP_SYS_PACCT: u32 = 20;
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_SYS_BOOT: u32 = 22;
    const CAP_SYS_TIME: u32 = 25;
    const CAP_SYS_TTY_CONFIG: u32 = 26;
    const CAP_AUDIT_WRITE: u32 = 29;
    const CAP_AUDIT_CONTROL: u32 = 30;
    const CAP_MAC_ADMIN: u32 = 33;
    if argument(ctx, 3) as u32 & NO_AUDIT != 0 {
        return 0;
    }
    let asked = UserNamespace(argument(ctx, 1));
    let capability = argument(ctx, 2) as u32;
    let what = match capability {
        CAP_SYS_ADMIN => return by_system_call(actor, Credentials(argument(ctx, 0))),
        CAP_NET_ADMIN => return of_network(actor, asked, capability),
        CAP_SYS_MODULE => Operation::Module,
        CAP_SYS_TTY_CONFIG => Operation::Terminal,
        CAP_SYS_PACCT | CAP_SYS_BOOT | CAP_SYS_TIME | CAP_AUDIT_WRITE | CAP_AUDIT_CONTROL
        | CAP_MAC_ADMIN => Operation::Kernel,
        _ => return 0,
    };
    if is_inner(asked) {
        return 0;
    }
    plain_operation(actor, what, How::Capability, capability)
}

/// A right over a network: the one that the task is in, or one of a user namespace that it has made.
#[inline(always)]
fn of_network(actor: &Actor, asked: UserNamespace, capability: u32) -> i32 {
    if !shares_network(actor) || is_inner(asked) && is_owner_of_network(asked.0) == 0 {
        return 0;
    }
    plain_operation(actor, Operation::Network, How::Capability, capability)
}

/// Whether it is not the first user namespace, whose rights are about the host.
#[inline(always)]
pub fn is_inner(namespace: UserNamespace) -> bool {
    namespace.level().is_some_and(|level| level != 0)
}

/// 1 unless the running task's network is of another user namespace. A function that the verifier checks once; see
/// [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn is_owner_of_network(namespace: u64) -> u64 {
    match network().and_then(NetworkNamespace::owner) {
        Some(owner) => u64::from(owner.0 == namespace),
        None => 1,
    }
}

/// `netlink_send(sock, message)`: rights are asked about in the namespace that the task is in, messages are about the one
/// that the socket is of, and about those that they name.
#[inline(always)]
pub fn netlink(actor: &Actor, ctx: &LsmContext) -> i32 {
    const NETLINK_ROUTE: u16 = 0; // include/uapi/linux/netlink.h
    let sock = Sock(argument(ctx, 0));
    if shares_network(actor) {
        return 0; // `check` is asked
    }
    let inner = network()
        .and_then(NetworkNamespace::owner)
        .is_some_and(is_inner);
    let reaches_out = !inner
        && sock.protocol() == Some(NETLINK_ROUTE)
        && names_other_networks(Message(argument(ctx, 1)));
    if reaches_out || is_shared_network(actor, sock.network()) {
        return plain_operation(actor, Operation::Network, How::NetworkSocket, 0);
    }
    0
}

/// Whether a message about routes may make, move or remove a device in another network: who is root outside may do so
/// from any. All but the shortest ones about devices are taken for that.
#[inline(always)]
fn names_other_networks(message: Message) -> bool {
    /// `struct nlmsghdr`, the first bytes of it.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Head {
        len: u32,
        kind: u16,
        flags: u16,
    }
    // include/uapi/linux/rtnetlink.h: RTM_NEWLINK, RTM_DELLINK, RTM_SETLINK, RTM_NEWNSID, RTM_NEWLINKPROP
    const ABOUT_DEVICES: [u16; 5] = [16, 17, 19, 88, 108];
    // The header and `struct ifinfomsg`, without attributes: what sets a device up.
    const SHORTEST: u32 = 32;
    let (Some(data), Some(len)) = (message.data(), message.len()) else {
        return true;
    };
    let Some(head) = read::<Head>(data) else {
        return true;
    };
    let alone = head.len + 3 & !3 >= len;
    !alone || head.len > SHORTEST && ABOUT_DEVICES.contains(&head.kind)
}

/// Routing packets for others, by a socket.
#[inline(always)]
pub fn routes_for_others(actor: &Actor, sock: Sock) -> i32 {
    if !is_shared_network(actor, sock.network()) {
        return 0;
    }
    plain_operation(actor, Operation::Network, How::NetworkSocket, 0)
}

/// Refuses a socket of the network outside to who is in a network of the sandbox's own.
#[inline(always)]
pub fn from_own_network(actor: &Actor, sock: Sock) -> i32 {
    if shares_network(actor) || !is_shared_network(actor, sock.network()) {
        return 0;
    }
    plain_operation(actor, Operation::Network, How::NetworkSocket, 0)
}

/// `CAP_SYS_ADMIN` is asked for by nearly everything; these calls pass no other hook. What the call is, is known wherever
/// the kernel's types have the registers (`struct pt_regs`, x86-64).
#[inline(always)]
fn by_system_call(actor: &Actor, credentials: Credentials) -> i32 {
    // arch/x86/entry/syscalls/syscall_64.tbl
    const MADVISE: u32 = 28; // only for MADV_HWPOISON and MADV_SOFT_OFFLINE (mm/madvise.c)
    const SWAPON: u32 = 167;
    const SWAPOFF: u32 = 168;
    const SETHOSTNAME: u32 = 170;
    const SETDOMAINNAME: u32 = 171;
    const QUOTACTL: u32 = 179;
    const SETNS: u32 = 308;
    const MOUNT_SETATTR: u32 = 442;
    const QUOTACTL_FD: u32 = 443;
    const PROCESS_MADVISE: u32 = 440; // of oneself
    const OPEN_TREE_ATTR: u32 = 467; // Linux 6.15: mount_setattr(2) once more
    let Some(call) = SystemCall::current() else {
        return 0;
    };
    let number = match (call.is_32_bit, call.number) {
        (false, number) => number as u32,
        // arch/x86/entry/syscalls/syscall_32.tbl
        (true, 219) => MADVISE,
        (true, 87) => SWAPON,
        (true, 115) => SWAPOFF,
        (true, 74) => SETHOSTNAME,
        (true, 121) => SETDOMAINNAME,
        (true, 131) => QUOTACTL,
        (true, 346) => SETNS,
        (true, same @ (440 | 442 | 443 | 467)) => same as u32,
        (true, _) => return 0,
    };
    let (what, own) = match number {
        // Whose namespace it is, is not told. In a user namespace of its own, it can be no other's.
        SETNS => (
            Operation::Ptrace,
            credentials.namespace().is_some_and(is_inner),
        ),
        MOUNT_SETATTR | OPEN_TREE_ATTR => (Operation::Mount, !shares_mounts(actor)),
        SETHOSTNAME | SETDOMAINNAME => (Operation::Kernel, !shares_host_name(actor)),
        MADVISE | PROCESS_MADVISE | SWAPON | SWAPOFF | QUOTACTL | QUOTACTL_FD => {
            (Operation::Kernel, false)
        }
        _ => return 0,
    };
    if own {
        return 0;
    }
    plain_operation(actor, what, How::SystemCall, number)
}
