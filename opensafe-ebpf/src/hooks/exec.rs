//! Running programs.

use aya_ebpf::programs::{LsmContext, RawTracePointContext};
use opensafe_common::{
    event::{FileBody, Kind},
    verdict::{Access, Verdict},
};

use crate::{
    actor::{Actor, SandboxId, mark},
    decide,
    emit::{Requested, emit, file_body},
    gate::{By, PathRequest, known_path, report},
    kernel::{Area, Bprm, Dentry, File, Task, argument},
    known::{Known, KnownTask},
    maps::constant,
};

/// `bprm_check_security(bprm)`: once for the program, once more for each interpreter that its first
/// line names; not for an ELF interpreter. Rules were applied when the file was opened; here is known
/// that it is a program, so the default for programs is too. Asked anew, not remembered: the file may
/// have been renamed in between.
#[inline(always)]
pub fn check(actor: &Actor, ctx: &LsmContext) -> i32 {
    let known = Known::argument(ctx, 0)
        .follow(constant!(OFFSETS.bprm_file))
        .follow(constant!(OFFSETS.file_path_dentry));
    // Without a dentry it has no place: dentry 0 gets the verdict for the nameless.
    let dentry = Dentry(KnownTask::current().number_of(known));
    known_path(
        actor,
        known,
        &PathRequest {
            dentry,
            access: Access::EXEC,
            kind: Kind::ExecGate,
            flags: 0,
            by: By::Policy,
        },
    )
}

/// `mmap_file(file, asked, protection, flags)`: a file is mapped; decided if as code. This is how a loader
/// runs a program that nobody executes (`ld.so PROGRAM`).
#[inline(always)]
pub fn map(actor: &Actor, ctx: &LsmContext) -> i32 {
    let file = File(argument(ctx, 0));
    if file.0 == 0 || protection(ctx) & PROT_EXEC == 0 {
        return 0;
    }
    as_code(actor, file)
}

/// What may be done with what is mapped. `security_mmap_file(file, asked, flags)` has yet to find out (`mmap_prot` of
/// security/security.c): for old programs, what is readable is code. Here also where the mount forbids that, which nobody
/// would notice but by a denial.
#[inline(always)]
fn protection(ctx: &LsmContext) -> u64 {
    // include/uapi/linux/personality.h
    const READ_IMPLIES_EXEC: u32 = 0x0040_0000;
    if constant!(HOST.before_functions) == 0 {
        return argument(ctx, 2);
    }
    let asked = argument(ctx, 1);
    let personality = Task::current().personality().unwrap_or(READ_IMPLIES_EXEC);
    if asked & PROT_READ != 0 && personality & READ_IMPLIES_EXEC != 0 {
        return asked | PROT_EXEC;
    }
    asked
}

/// `file_mprotect(area, asked, protection)`: what is mapped already becomes code.
#[inline(always)]
pub fn protect(actor: &Actor, ctx: &LsmContext) -> i32 {
    if argument(ctx, 2) & PROT_EXEC == 0 {
        return 0;
    }
    match Area(argument(ctx, 0)).file() {
        Some(file) if file.0 != 0 => as_code(actor, file),
        _ => 0, // memory of its own
    }
}

// include/uapi/asm-generic/mman-common.h
const PROT_READ: u64 = 0x1;
const PROT_EXEC: u64 = 0x4;

#[inline(always)]
fn as_code(actor: &Actor, file: File) -> i32 {
    let dentry = file.dentry().unwrap_or(Dentry(0));
    match map_gate(dentry.0, actor.pack(), actor.cgroup) {
        0 => 0,
        _ => decide::REFUSED,
    }
}

/// Decides and reports; 1 if it is refused. A function that the verifier checks once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn map_gate(dentry: u64, actor: u64, cgroup: u64) -> u64 {
    let Some(actor) = Actor::unpack(actor, cgroup) else {
        return 0;
    };
    let (decision, access) = decide::at_mapping(&actor, Dentry(dentry));
    if decision.verdict as u8 == Verdict::Allow as u8 {
        return 0;
    }
    let report = report(
        &actor,
        decision,
        Kind::File,
        access,
        dentry,
        Requested::Unknown,
    );
    emit(&report, &file_body(Dentry(dentry)), (0, 0));
    u64::from(decision.refuses(&actor))
}

/// `sched_process_exec(task, old_pid, bprm)`: the process runs another program from here on.
#[inline(always)]
pub fn done(actor: &Actor, ctx: &RawTracePointContext) {
    let bprm = Bprm(ctx.arg::<u64>(2));
    let Some(dentry) = bprm.file().and_then(|file| file.dentry()) else {
        return;
    };
    // Exactly, not by the filter: a process that was moved in may be moved out again.
    let _ = mark(Task::current(), SandboxId(actor.sandbox));
    let decision = decide::at_path(actor, dentry, Access::EXEC, By::Policy);
    let requested = match bprm.filename() {
        Some(address) => Requested::Kernel(address),
        None => Requested::Unknown,
    };
    let args = match Known::task().follow_or_null(constant!(OFFSETS.task_mm)) {
        Some(mm) => (
            mm.get(constant!(OFFSETS.mm_arg_start)),
            mm.get(constant!(OFFSETS.mm_arg_end)),
        ),
        None => (0, 0),
    };
    let mut report = report(
        actor,
        decision,
        Kind::Exec,
        Access::EXEC,
        dentry.0,
        requested,
    );
    report.flags &= !opensafe_common::event::flag::ENFORCED;
    let body: FileBody = file_body(dentry);
    emit(&report, &body, args);
}
