//! What a sandbox may do beyond files and peers: to processes and cgroups outside, to devices, to the kernel.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    guarded::MAPPINGS,
    operation::{How, Operation},
    verdict::Access,
};

use super::terminal;
use crate::{
    actor::{Actor, is_in},
    gate::{PathRequest, operation, plain_operation},
    kernel::{Dentry, File, Inode, S_IFBLK, S_IFCHR, S_IFMT, Superblock, Task, argument, read},
    known::{Known, process},
    maps::constant,
};

/// `ptrace_access_check(task, mode)`: attaching to a process, reading or writing its memory, taking its
/// descriptors, and what /proc tells only to who could do so.
#[inline(always)]
pub fn ptrace(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/linux/ptrace.h: PTRACE_MODE_NOAUDIT, of whoever asks only in order to show less.
    const NO_AUDIT: u32 = 0x4;
    let mode = argument(ctx, 1) as u32;
    if mode & NO_AUDIT != 0 {
        return 0;
    }
    to_task(actor, Operation::Ptrace, How::Ptrace, mode, ctx)
}

/// `ptrace_traceme(parent)`: being controlled by one's parent, which is told of everything then and waits for it.
#[inline(always)]
pub fn traced_by_parent(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/linux/ptrace.h: PTRACE_MODE_ATTACH
    to_task(actor, Operation::Ptrace, How::Ptrace, 2, ctx)
}

/// `task_kill(task, info, signal, credentials)`: a signal to a process; the kernel's own do not pass here.
#[inline(always)]
pub fn signal(actor: &Actor, ctx: &LsmContext) -> i32 {
    to_task(
        actor,
        Operation::Signal,
        How::Signal,
        argument(ctx, 2) as u32,
        ctx,
    )
}

/// `file_send_sigiotask(task, owner, signal)`: a signal that a descriptor sends to its owner (`F_SETOWN`).
#[inline(always)]
pub fn signal_by_file(actor: &Actor, ctx: &LsmContext) -> i32 {
    to_task(
        actor,
        Operation::Signal,
        How::SignalByFile,
        argument(ctx, 2) as u32,
        ctx,
    )
}

/// `task_setrlimit(task, resource, limit)`: prlimit(2).
#[inline(always)]
pub fn limit(actor: &Actor, ctx: &LsmContext) -> i32 {
    to_task(
        actor,
        Operation::Signal,
        How::Limit,
        argument(ctx, 1) as u32,
        ctx,
    )
}

/// `task_setnice`, `task_setscheduler`, `task_setioprio`, `task_movememory`: the first argument is the task.
#[inline(always)]
pub fn schedule(actor: &Actor, ctx: &LsmContext) -> i32 {
    to_task(actor, Operation::Signal, How::Scheduling, 0, ctx)
}

/// `userns_create(credentials)`.
#[inline(always)]
pub fn user_namespace(actor: &Actor, _ctx: &LsmContext) -> i32 {
    plain_operation(actor, Operation::Namespace, How::UserNamespace, 0)
}

/// `bpf(command, attributes, size)`.
#[inline(always)]
pub fn bpf(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain_operation(actor, Operation::Bpf, How::Bpf, argument(ctx, 0) as u32)
}

/// `perf_event_open`.
#[inline(always)]
pub fn perf_event(actor: &Actor, _ctx: &LsmContext) -> i32 {
    plain_operation(actor, Operation::Bpf, How::PerfEvent, 0)
}

/// `kernel_read_file(file, id, contents)`: modules, firmware, kexec images.
#[inline(always)]
pub fn kernel_read_file(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain_operation(
        actor,
        Operation::Module,
        How::KernelReadFile,
        argument(ctx, 1) as u32,
    )
}

/// `kernel_load_data(id, contents)`: as above, out of memory.
#[inline(always)]
pub fn kernel_load_data(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain_operation(
        actor,
        Operation::Module,
        How::KernelLoadData,
        argument(ctx, 0) as u32,
    )
}

/// `key_alloc(key, credentials, flags)`.
#[inline(always)]
pub fn make_key(actor: &Actor, _ctx: &LsmContext) -> i32 {
    plain_operation(actor, Operation::Keyring, How::KeyMake, 0)
}

/// `key_permission(key, credentials, permission)`.
#[inline(always)]
pub fn use_key(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain_operation(
        actor,
        Operation::Keyring,
        How::KeyUse,
        argument(ctx, 2) as u32,
    )
}

/// `locked_down(reason)`: what kernel lockdown would refuse to everyone.
#[inline(always)]
pub fn locked_down(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain_operation(
        actor,
        Operation::Kernel,
        How::LockedDown,
        argument(ctx, 0) as u32,
    )
}

/// `settime(time, zone)`: the clock by which files are told from later ones is everyone's.
#[inline(always)]
pub fn clock(actor: &Actor, _ctx: &LsmContext) -> i32 {
    plain_operation(actor, Operation::Kernel, How::Clock, 0)
}

/// Answering for everyone whether a file may be opened or read (fanotify(7)).
#[inline(always)]
pub fn decides_for_others(actor: &Actor, mask: u32) -> i32 {
    plain_operation(actor, Operation::Kernel, How::Fanotify, mask)
}

/// What opening a file may mean beyond the file: a disk's blocks, from under every rule on the files in it; a
/// cgroup's control file; what /proc has of a process.
#[inline(always)]
pub fn open(actor: &Actor, known: Known, request: &PathRequest) -> i32 {
    let mode: u16 = known
        .follow(constant!(OFFSETS.dentry_inode))
        .get(constant!(OFFSETS.inode_mode));
    if mode & S_IFMT == S_IFCHR {
        let device = known
            .follow(constant!(OFFSETS.dentry_inode))
            .get(constant!(OFFSETS.inode_rdev));
        return terminal::open(actor, request.dentry, device);
    }
    let magic: u64 = known
        .follow(constant!(OFFSETS.dentry_sb))
        .get(constant!(OFFSETS.sb_magic));
    beyond_the_file(actor, request.dentry, request.access, mode, magic)
}

/// As [`open`], of a file that is open already.
#[inline(always)]
pub fn receive(actor: &Actor, file: File, dentry: Dentry, access: Access) -> i32 {
    if dentry.mode() & S_IFMT == S_IFCHR {
        let device = dentry.inode().and_then(Inode::device).unwrap_or(0);
        return match terminal::receive_master(actor, dentry, file) {
            0 => terminal::open(actor, dentry, device),
            errno => errno,
        };
    }
    let magic = dentry.superblock().and_then(Superblock::magic).unwrap_or(0);
    beyond_the_file(actor, dentry, access, dentry.mode(), magic)
}

#[inline(always)]
fn beyond_the_file(actor: &Actor, dentry: Dentry, access: Access, mode: u16, magic: u64) -> i32 {
    if mode & S_IFMT == S_IFBLK {
        return at_device(actor, How::OpenDevice, dentry);
    }
    let writes = access.contains(Access::WRITE);
    match magic {
        CGROUP1 | CGROUP2 if writes => cgroup_of_others(actor, dentry),
        PROC if writes || is_private(dentry, mode) => process_of_others(actor, dentry),
        _ => 0,
    }
}

/// Whether a file of /proc tells what only who could trace the process may know: those that nobody but its
/// owner can read, and what is mapped where. The kernel asks about tracing too, but from 7.x on not only: who may
/// look into every process (CAP_PERFMON) is told all the same (`may_access_mm` of kernel/fork.c).
#[inline(always)]
fn is_private(dentry: Dentry, mode: u16) -> bool {
    if mode & 0o044 == 0 {
        return true;
    }
    let name = dentry.name().unwrap_or(0);
    let start: u32 = read(name).unwrap_or(0);
    MAPPINGS
        .iter()
        .any(|known| u32::from_ne_bytes(*known) == start)
}

/// What /proc has of a process, for one that could trace it: its memory, its patience with the kernel.
#[inline(always)]
fn process_of_others(actor: &Actor, dentry: Dentry) -> i32 {
    let Some(task) = dentry.inode().and_then(Inode::process) else {
        return 0; // of no process: for rules to decide
    };
    let target = task.process();
    if target == Some(process()) || is_in(task, actor.sandbox) {
        return 0;
    }
    operation(
        actor,
        Operation::Ptrace,
        How::ProcessFile,
        0,
        target.unwrap_or(0),
        dentry.0,
    )
}

/// Making a device node: one more name for a disk or for memory. A character device 0:0 is a whiteout, which
/// opens nothing.
#[inline(always)]
pub fn make_device(actor: &Actor, dentry: Dentry, mode: u16, device: u32) -> i32 {
    match mode & S_IFMT {
        S_IFBLK => at_device(actor, How::MakeDevice, dentry),
        S_IFCHR if device != 0 => at_device(actor, How::MakeDevice, dentry),
        _ => 0,
    }
}

#[inline(always)]
fn at_device(actor: &Actor, how: How, dentry: Dentry) -> i32 {
    operation(actor, Operation::Device, how, 0, 0, dentry.0)
}

/// A change at `dentry` if it is a cgroup's control file, or a cgroup in another: refused unless the cgroup
/// is the sandbox's. By such files processes are frozen, killed, and moved.
#[inline(always)]
pub fn cgroup_of_others(actor: &Actor, dentry: Dentry) -> i32 {
    let magic = dentry.superblock().and_then(Superblock::magic).unwrap_or(0);
    if !is_of_cgroups(magic) {
        return 0;
    }
    // The directory's inode number is the cgroup's id.
    let directory = dentry
        .parent()
        .and_then(Dentry::inode)
        .and_then(Inode::number);
    if magic == CGROUP2
        && let Some(cgroup) = directory
        && let Some(sandbox) = crate::actor::armed(cgroup)
        && sandbox.0 == actor.sandbox
    {
        return 0;
    }
    operation(
        actor,
        Operation::Cgroup,
        How::CgroupFile,
        directory.unwrap_or(0) as u32,
        0,
        dentry.0,
    )
}

// linux/magic.h: CGROUP2_SUPER_MAGIC, CGROUP_SUPER_MAGIC.
const CGROUP2: u64 = 0x6367_7270;

const CGROUP1: u64 = 0x0027_e0eb;

/// `PROC_SUPER_MAGIC`
const PROC: u64 = 0x9fa0;

/// Whether a superblock of that type holds cgroups.
#[inline(always)]
pub fn is_of_cgroups(magic: u64) -> bool {
    magic == CGROUP2 || magic == CGROUP1
}

/// Something done to the task that is the hook's first argument: refused if it is outside.
#[inline(always)]
fn to_task(actor: &Actor, what: Operation, how: How, number: u32, ctx: &LsmContext) -> i32 {
    let task = Task(argument(ctx, 0));
    let target = task.process();
    if target == Some(process()) || is_in(task, actor.sandbox) {
        return 0;
    }
    operation(actor, what, how, number, target.unwrap_or(0), 0)
}
