//! Opens that failed, where no LSM hook is asked: the kernel's answer to the system call is all that is seen.

use aya_ebpf::programs::RawTracePointContext;
use opensafe_common::{
    event::{Kind, OpenFailedBody},
    verdict::{Access, Verdict},
};

use super::file::{O_CREAT, O_TRUNC};
use crate::{
    actor::Actor,
    decide::Decision,
    emit::{Requested, emit},
    gate::report,
    kernel::{SystemCall, read_user},
    maps::constant,
};

/// include/uapi/asm-generic/errno-base.h
const EPERM: i64 = 1;
const EACCES: i64 = 13;
const EROFS: i64 = 30;

/// arch/x86/entry/syscalls/syscall_64.tbl
const OPEN: u64 = 2;
const CREAT: u64 = 85;
const OPENAT: u64 = 257;
const OPENAT2: u64 = 437;

/// include/uapi/asm-generic/fcntl.h
const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;

/// `sys_exit(regs, ret)`: a system call is over. Almost all of them succeed, and nothing is asked about those.
#[inline(always)]
pub fn system_call(ctx: &RawTracePointContext) {
    let errno = 0i64.wrapping_sub(ctx.arg::<u64>(1) as i64);
    if !matches!(errno, EPERM | EACCES | EROFS) {
        return;
    }
    let Some(actor) = Actor::current() else {
        return;
    };
    let Some(call) = SystemCall::current().filter(|call| !call.is_32_bit) else {
        return;
    };
    let Some(access) = asked_for(call) else {
        return;
    };
    let decision = Decision {
        verdict: Verdict::Allow,
        nameless: false,
    };
    let report = report(
        &actor,
        decision,
        Kind::OpenFailed,
        access,
        0,
        Requested::SystemCall,
    );
    let body = OpenFailedBody {
        errno: errno as u32,
        reserved: 0,
    };
    emit(&report, &body, (0, 0));
}

/// What a call was to open a file for; `None` if it opens none.
#[inline(always)]
fn asked_for(call: SystemCall) -> Option<Access> {
    let register = |at: u32| call.register(at).unwrap_or(0);
    let flags = match call.number {
        OPEN => register(constant!(OFFSETS.pt_regs_si)) as u32,
        CREAT => O_WRONLY | O_CREAT | O_TRUNC,
        OPENAT => register(constant!(OFFSETS.pt_regs_dx)) as u32,
        // `struct open_how` begins with them (include/uapi/linux/openat2.h).
        OPENAT2 => read_user(register(constant!(OFFSETS.pt_regs_dx))).unwrap_or(O_RDONLY),
        _ => return None,
    };
    let mut access = match flags & O_ACCMODE {
        O_RDONLY => Access::READ,
        O_WRONLY => Access::WRITE,
        _ => Access::READ.union(Access::WRITE),
    };
    if flags & O_CREAT != 0 {
        access = access.union(Access::CREATE);
    }
    if flags & O_TRUNC != 0 {
        access = access.union(Access::WRITE);
    }
    Some(access)
}
