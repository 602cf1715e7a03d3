//! Running programs.

use aya_ebpf::programs::{LsmContext, RawTracePointContext};
use opensafe_common::{
    event::{FileBody, Kind},
    verdict::Access,
};

use crate::{
    actor::{Actor, SandboxId, mark},
    decide,
    emit::{Requested, emit, file_body},
    gate::{By, PathRequest, known_path, report},
    kernel::{Bprm, Dentry, Task},
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
