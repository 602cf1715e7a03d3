//! What root in a sandbox could do by right alone: no other hook tells what is done there.
//!
//! Rights over what a sandbox has made for itself (user and network namespaces, a host name of its own) are its own.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    operation::{How, Operation},
    tables::Sandbox,
};

use super::guard::{plain, shares_mounts};
use crate::{
    actor::Actor,
    kernel::{NetworkNamespace, NsProxy, Sock, SystemCall, Task, UserNamespace, argument},
    maps::SANDBOXES,
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
    const CAP_AUDIT_CONTROL: u32 = 30;
    const CAP_MAC_ADMIN: u32 = 33;
    let capability = argument(ctx, 2) as u32;
    let what = match capability {
        CAP_SYS_ADMIN => return by_system_call(actor),
        CAP_NET_ADMIN => Operation::Network,
        CAP_SYS_MODULE => Operation::Module,
        CAP_SYS_TTY_CONFIG => Operation::Terminal,
        CAP_SYS_PACCT | CAP_SYS_BOOT | CAP_SYS_TIME | CAP_AUDIT_CONTROL | CAP_MAC_ADMIN => {
            Operation::Kernel
        }
        _ => return 0,
    };
    if argument(ctx, 3) as u32 & NO_AUDIT != 0 {
        return 0;
    }
    let own = if capability == CAP_NET_ADMIN {
        !shares_network(actor)
    } else {
        UserNamespace(argument(ctx, 1)).level() != Some(0)
    };
    if own {
        return 0;
    }
    plain(actor, what, How::Capability, capability)
}

/// `netlink_send(sock, message)`: rights are asked about in the namespace that the task is in, messages are about the one
/// that the socket is of.
#[inline(always)]
pub fn netlink(actor: &Actor, ctx: &LsmContext) -> i32 {
    from_own_network(actor, Sock(argument(ctx, 0)))
}

/// Refuses a socket of the network outside to who is in a network of the sandbox's own.
#[inline(always)]
pub fn from_own_network(actor: &Actor, sock: Sock) -> i32 {
    if shares_network(actor) || !is_shared(actor, sock.network()) {
        return 0;
    }
    plain(actor, Operation::Network, How::NetworkSocket, 0)
}

/// `CAP_SYS_ADMIN` is asked for by nearly everything; these calls pass no other hook.
#[inline(always)]
fn by_system_call(actor: &Actor) -> i32 {
    // arch/x86/entry/syscalls/syscall_64.tbl
    const MADVISE: u32 = 28; // only for MADV_HWPOISON and MADV_SOFT_OFFLINE (mm/madvise.c)
    const SWAPON: u32 = 167;
    const SWAPOFF: u32 = 168;
    const SETHOSTNAME: u32 = 170;
    const SETDOMAINNAME: u32 = 171;
    const QUOTACTL: u32 = 179;
    const MOUNT_SETATTR: u32 = 442;
    const QUOTACTL_FD: u32 = 443;
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
        (true, 442) => MOUNT_SETATTR,
        (true, 443) => QUOTACTL_FD,
        (true, _) => return 0,
    };
    let (what, own) = match number {
        MOUNT_SETATTR => (Operation::Mount, !shares_mounts(actor)),
        SETHOSTNAME | SETDOMAINNAME => (Operation::Kernel, !shares_host_name(actor)),
        MADVISE | SWAPON | SWAPOFF | QUOTACTL | QUOTACTL_FD => (Operation::Kernel, false),
        _ => return 0,
    };
    if own {
        return 0;
    }
    plain(actor, what, How::SystemCall, number)
}

/// Whether the running task is in the network namespace that its sandbox was started in.
#[inline(always)]
fn shares_network(actor: &Actor) -> bool {
    let network = Task::current().namespaces().and_then(NsProxy::network);
    is_shared(actor, network)
}

#[inline(always)]
fn is_shared(actor: &Actor, network: Option<NetworkNamespace>) -> bool {
    let Some(Sandbox {
        network_namespace, ..
    }) = SANDBOXES.get(actor.sandbox)
    else {
        return true;
    };
    is_number(
        network.and_then(NetworkNamespace::number),
        *network_namespace,
    )
}

#[inline(always)]
fn shares_host_name(actor: &Actor) -> bool {
    let Some(Sandbox { uts_namespace, .. }) = SANDBOXES.get(actor.sandbox) else {
        return true;
    };
    let name = Task::current().namespaces().and_then(NsProxy::host_name);
    is_number(name.and_then(|name| name.number()), *uts_namespace)
}

/// Whether a namespace is the one with that number, as far as is known.
#[inline(always)]
pub fn is_number(namespace: Option<u32>, number: u32) -> bool {
    number == 0 || namespace.is_none_or(|namespace| namespace == number)
}
