//! The task that runs: who it is, what it is in, and for whom it acts.

use aya_ebpf::helpers::{bpf_get_current_task_btf, generated};

use super::{Task, read};
use crate::maps::constant;

impl Task {
    /// The task that runs.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: no arguments; always the running task.
        Self(unsafe { bpf_get_current_task_btf() } as u64)
    }
}

/// [`Task::process_began_cs`] of the running task.
#[inline(always)]
pub fn current_process_began_cs() -> Option<u32> {
    u32::try_from(began_cs_of_current()).ok()
}

/// `u64::MAX` if it cannot be told. A function that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn began_cs_of_current() -> u64 {
    Task::current()
        .process_began_cs()
        .map_or(u64::MAX, u64::from)
}

/// The system call that the running task is in.
#[derive(Clone, Copy)]
pub struct SystemCall {
    registers: u64,
    /// Its number (arch/x86/entry/syscalls/syscall_64.tbl, or syscall_32.tbl).
    pub number: u64,
    /// Whether it is one for 32-bit programs, which have other numbers.
    pub is_32_bit: bool,
}

impl SystemCall {
    /// Of the running task; `None` where the registers are not known.
    #[inline(always)]
    pub fn current() -> Option<Self> {
        let number_at = constant!(OFFSETS.pt_regs_orig_ax);
        if number_at == 0 {
            return None;
        }
        // SAFETY: the running task's own registers.
        let registers = unsafe { generated::bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
        let call = Self {
            registers,
            number: 0,
            is_32_bit: is_in_32_bit_call(),
        };
        // arch/x86/include/uapi/asm/unistd.h: __X32_SYSCALL_BIT
        let number = call.register(number_at)? & !0x4000_0000;
        Some(Self { number, ..call })
    }

    /// The register at an offset.
    #[inline(always)]
    pub fn register(self, at: u32) -> Option<u64> {
        read(self.registers + u64::from(at))
    }
}

/// Any program can make 32-bit calls (`int 0x80`), so its code segment does not tell.
#[inline(always)]
fn is_in_32_bit_call() -> bool {
    // arch/x86/include/asm/thread_info.h
    const TS_COMPAT: u32 = 0x2;
    let at = constant!(OFFSETS.task_compat_status);
    at != 0 && read::<u32>(Task::current().0 + u64::from(at)).unwrap_or(0) & TS_COMPAT != 0
}

/// The running task's address, and the id of its cgroup v2.
#[inline(always)]
pub fn current_task_and_cgroup() -> (u64, u64) {
    // SAFETY: helpers without arguments.
    unsafe {
        (
            generated::bpf_get_current_task(),
            generated::bpf_get_current_cgroup_id(),
        )
    }
}

/// The address of the running task's `mm_struct`, 0 without one.
#[inline(always)]
pub fn current_memory() -> u64 {
    Task::current().memory().unwrap_or(0)
}

/// Whether the kernel acts with another's credentials for the running task, as overlayfs does with the
/// mounter's when it copies a file up or lists a directory's layers. A task that uses io_uring could
/// have brought such credentials about itself (`IORING_REGISTER_PERSONALITY`), so of it this is not
/// believed.
#[inline(always)]
pub fn acts_for_the_kernel() -> bool {
    let task = Task::current();
    let (Some(acting), Some(own), Some(flags)) =
        (task.credentials(), task.own_credentials(), task.flags())
    else {
        return false;
    };
    acting != own && may_act_for_the_kernel(flags)
}

/// [`acts_for_the_kernel`], if the running task has these flags and another's credentials.
#[inline(always)]
pub fn may_act_for_the_kernel(flags: u32) -> bool {
    // include/linux/sched.h: PF_IO_WORKER, PF_USER_WORKER. Such a task works for another's request.
    const WORKS_FOR_ANOTHER: u32 = 0x10 | 0x4000;
    if flags & WORKS_FOR_ANOTHER != 0 {
        return false;
    }
    let uses_io_uring = constant!(OFFSETS.task_io_uring);
    // A kernel without io_uring has no such field. Its pointer is read as a number: the verifier may hold a pointer
    // that it knows for one that is never NULL.
    uses_io_uring == 0 || read::<u64>(Task::current().0 + u64::from(uses_io_uring)) == Some(0)
}
