//! What has neither a file's content nor a peer: what is done to processes, mounts, the kernel.

use opensafe_common::{
    event::{Kind, OperationBody},
    operation::{How, Operation},
    verdict::{Access, Verdict},
};

use super::{is_first, report};
use crate::{
    actor::Actor,
    decide,
    emit::{Requested, emit, emit_plain, file_body},
    kernel::{Dentry, current_memory},
    known::process,
    maps::ReportKey,
};

/// Decides an operation without a file's content or a peer, and puts it on record unless it is allowed.
#[inline(always)]
pub fn operation(
    actor: &Actor,
    operation: Operation,
    how: How,
    number: u32,
    target: u32,
    dentry: u64,
) -> i32 {
    let what = u64::from(operation as u16) | (how as u64) << 16 | u64::from(number) << 32;
    let refused = operation_gate(what, u64::from(target), dentry, actor.pack(), actor.cgroup);
    if refused == 0 { 0 } else { decide::REFUSED }
}

/// [`operation`], where there is no process or place that it is done to.
#[inline(always)]
pub fn plain_operation(actor: &Actor, what: Operation, how: How, number: u32) -> i32 {
    operation(actor, what, how, number, 0, 0)
}

/// [`operation`], as a function that the verifier checks once. `what` is operation, way and number.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn operation_gate(
    what: u64,
    target: u64,
    dentry: u64,
    actor: u64,
    cgroup: u64,
) -> u64 {
    let Some(actor) = Actor::unpack(actor, cgroup) else {
        return 0;
    };
    let (operation, how, number) = (what as u16, (what >> 16) as u16, (what >> 32) as u32);
    let decision = decide::at_operation(&actor, operation);
    if decision.verdict as u8 == Verdict::Allow as u8 {
        return 0;
    }
    let refused = u64::from(decision.refuses(&actor));
    // Looking at many processes is one event a process looked at, whoever looks how often.
    let looks = how == How::Ptrace as u16 && number & PTRACE_MODE_ATTACH == 0;
    if looks && !is_first_look(&actor, target) {
        return refused;
    }
    let mut body = OperationBody {
        magic: 0,
        dev: 0,
        operation,
        how,
        number,
        target_pid: target as u32,
    };
    if dentry != 0 {
        let place = file_body(Dentry(dentry));
        body.magic = place.magic;
        body.dev = place.dev;
    }
    let report = report(
        &actor,
        decision,
        Kind::Operation,
        Access::NONE,
        dentry,
        Requested::Unknown,
    );
    if dentry == 0 {
        emit_plain(&report, &body);
    } else {
        emit(&report, &body, (0, 0));
    }
    refused
}

/// include/linux/ptrace.h
const PTRACE_MODE_ATTACH: u32 = 0x2;

#[inline(always)]
fn is_first_look(actor: &Actor, target: u64) -> bool {
    is_first(&ReportKey::other(
        current_memory(),
        process(),
        actor.policy,
        (target, 0),
        1 << 28,
    ))
}
