//! Who is in a sandbox: tasks and cgroups that come and go.

use aya_ebpf::{
    bindings::seq_file,
    helpers::generated,
    programs::{LsmContext, RawTracePointContext},
};
use aya_log_ebpf::warn;
use opensafe_common::{
    counter::Counter,
    event::{ExitBody, ForkBody, Kind, MarkedTask},
    operation::{How, Operation},
    verdict::{Access, Verdict},
};

use crate::{
    actor::{Actor, arm, armed, current_sandbox, disarm, is_agent, mark, marked, unmark},
    decide::Decision,
    emit::{Requested, emit_plain},
    gate::{plain_operation, report},
    kernel::{Cgroup, Task},
    known::Known,
    maps::{constant, count},
};

/// `ENOMEM` of include/uapi/asm-generic/errno-base.h.
const ENOMEM: i32 = 12;

/// Of clone3(2): the child starts in another cgroup (include/uapi/linux/sched.h; Linux ≥ 5.7).
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// `task_alloc(task, clone_flags)`: before a new task exists for anyone else. Returns an error if it
/// cannot be marked, and the fork fails. Into which cgroup a child is cloned cannot be told here, so into any other is
/// refused: it would count for limits, and to whoever goes by cgroups, as one of those.
#[inline(always)]
pub fn alloc(ctx: &LsmContext) -> i32 {
    let child = Task(ctx.arg::<u64>(0));
    // A mark that was left at this address is nobody's.
    unmark(child);
    let Some(sandbox) = current_sandbox() else {
        return 0;
    };
    if ctx.arg::<u64>(1) & CLONE_INTO_CGROUP != 0
        && let Some(actor) = Actor::current()
    {
        let errno = plain_operation(&actor, Operation::Cgroup, How::CloneIntoCgroup, 0);
        if errno != 0 {
            return errno;
        }
    }
    match mark(child, sandbox) {
        Ok(()) => 0,
        Err(()) => {
            count(sandbox.0, Counter::ForksRefused);
            warn!(
                ctx,
                "{} a fork was refused: no room to mark the child", sandbox.0
            );
            -ENOMEM
        }
    }
}

/// `task_free(task)`: a task's memory goes, and with it its address's meaning.
#[inline(always)]
pub fn free(ctx: &LsmContext) {
    unmark(Task(ctx.arg::<u64>(0)));
}

/// `sched_process_fork(parent, child)`: the child is complete and has not run. One that was cloned
/// into an armed cgroup from outside is marked here.
#[inline(always)]
pub fn fork(ctx: &RawTracePointContext) {
    let child = Task(ctx.arg::<u64>(1));
    if marked(child).is_none() {
        let cgroup = child
            .cgroups()
            .and_then(|set| set.default_cgroup())
            .and_then(|cgroup| cgroup.id());
        let process = child.process().unwrap_or(0);
        let sandbox = cgroup.and_then(armed);
        let is_agents = |sandbox| is_agent(sandbox, process, || child.process_began_cs());
        let Some(sandbox) = sandbox.filter(|sandbox| !is_agents(*sandbox)) else {
            return;
        };
        let _ = mark(child, sandbox);
    }
    let Some(actor) = Actor::current() else {
        return;
    };
    let (Some(id), Some(process)) = (child.id(), child.process()) else {
        return;
    };
    if id != process {
        return; // a thread
    }
    let body = ForkBody {
        child_pid: process,
        reserved: 0,
    };
    emit_plain(&plain(&actor, Kind::Fork), &body);
}

/// `sched_process_exit(task)`: told once a process, by its last thread.
#[inline(always)]
pub fn exit(actor: &Actor) {
    let task = Known::task();
    let signal = task.follow(constant!(OFFSETS.task_signal));
    if signal.get::<u32>(constant!(OFFSETS.signal_live)) != 0 {
        return;
    }
    let status = match signal.get(constant!(OFFSETS.signal_group_exit_code)) {
        0 => task.get(constant!(OFFSETS.task_exit_code)),
        code => code,
    };
    emit_plain(
        &plain(actor, Kind::Exit),
        &ExitBody {
            status,
            reserved: 0,
        },
    );
}

/// `cgroup_mkdir(cgroup, path)`: a cgroup below an armed one is armed before anyone can find it.
#[inline(always)]
pub fn cgroup_made(ctx: &RawTracePointContext) {
    let cgroup = Cgroup(ctx.arg::<u64>(0));
    let parent = cgroup.parent().and_then(|parent| parent.id());
    let Some(sandbox) = parent.and_then(armed) else {
        return;
    };
    let done = match cgroup.id() {
        Some(id) => arm(id, sandbox),
        None => Err(()),
    };
    if done.is_err() {
        count(sandbox.0, Counter::CgroupsUnarmed);
        warn!(
            ctx,
            "{} a cgroup that the sandbox made could not be armed: no room; its processes are held by their marks",
            sandbox.0
        );
    }
}

/// `cgroup_rmdir(cgroup, path)`.
#[inline(always)]
pub fn cgroup_removed(ctx: &RawTracePointContext) {
    if let Some(id) = Cgroup(ctx.arg::<u64>(0)).id() {
        disarm(id);
    }
}

/// `iter/task`: writes a [`MarkedTask`] for each marked task, for whoever reads.
#[inline(always)]
pub fn tell_marked(context: *const u64) -> i32 {
    // `struct bpf_iter__task`: a pointer to `struct bpf_iter_meta`, whose first member is the file to write
    // to, and the task, NULL after the last one. Both are pointers to the verifier.
    // SAFETY: the context is that struct, and the verifier checks each load.
    let (file, task) = unsafe {
        let meta = core::ptr::read_volatile(context.cast::<*const *mut seq_file>());
        let task = core::ptr::read_volatile(context.add(1).cast::<*const u8>());
        if task.is_null() {
            return 0;
        }
        (core::ptr::read_volatile(meta), task)
    };
    let task = Task(task as u64);
    let (Some(sandbox), Some(process)) = (marked(task), task.process()) else {
        return 0;
    };
    let told = MarkedTask {
        process,
        sandbox: sandbox.0,
    };
    // SAFETY: the file is the one that this run of the iterator writes to.
    unsafe {
        generated::bpf_seq_write(
            file,
            (&raw const told).cast(),
            core::mem::size_of::<MarkedTask>() as u32,
        )
    };
    0
}

#[inline(always)]
fn plain(actor: &Actor, kind: Kind) -> crate::emit::Report {
    let decision = Decision {
        verdict: Verdict::Allow,
        nameless: false,
    };
    report(actor, decision, kind, Access::NONE, 0, Requested::Unknown)
}
