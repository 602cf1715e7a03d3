//! What a sandbox has of its own: the namespaces that it made after it was started in those of others.

use opensafe_common::tables::Sandbox;

use crate::{
    actor::Actor,
    kernel::{NetworkNamespace, NsProxy, Task},
    maps::SANDBOXES,
};

/// Whether the running task is in the mount namespace that its sandbox was started in.
#[inline(always)]
pub fn shares_mounts(actor: &Actor) -> bool {
    let mounts = namespaces().and_then(NsProxy::mounts);
    started_in(
        actor,
        |sandbox| sandbox.mount_namespace,
        mounts.and_then(|mounts| mounts.number()),
    )
}

/// The same of the network namespace.
#[inline(always)]
pub fn shares_network(actor: &Actor) -> bool {
    is_shared_network(actor, network())
}

/// Whether that is the network namespace that the sandbox was started in.
#[inline(always)]
pub fn is_shared_network(actor: &Actor, network: Option<NetworkNamespace>) -> bool {
    started_in(
        actor,
        |sandbox| sandbox.network_namespace,
        network.and_then(NetworkNamespace::number),
    )
}

/// The running task's network namespace.
#[inline(always)]
pub fn network() -> Option<NetworkNamespace> {
    namespaces().and_then(NsProxy::network)
}

/// Whether the running task is in the UTS namespace that its sandbox was started in.
#[inline(always)]
pub fn shares_host_name(actor: &Actor) -> bool {
    let name = namespaces().and_then(NsProxy::host_name);
    started_in(
        actor,
        |sandbox| sandbox.uts_namespace,
        name.and_then(|name| name.number()),
    )
}

#[inline(always)]
fn namespaces() -> Option<NsProxy> {
    Task::current().namespaces()
}

/// Whether a namespace is the one that the sandbox was started in; where that is not known, it is.
#[inline(always)]
fn started_in(actor: &Actor, first: impl FnOnce(&Sandbox) -> u32, number: Option<u32>) -> bool {
    match SANDBOXES.get(actor.sandbox).map(first) {
        None | Some(0) => true,
        Some(first) => number.is_none_or(|number| number == first),
    }
}
