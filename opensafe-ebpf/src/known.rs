//! Reading the kernel's structures through pointers whose type the verifier knows.
//!
//! Such a pointer is the argument of a hook, the running task, or what was loaded through another. A member is then
//! one load, where [`crate::kernel`] needs a helper's hundred instructions; a load that faults reads 0, as for NULL.
//! What it cannot do is be passed to a global function, which takes numbers; [`KnownTask::number_of`] makes one of it.
//! Nor does it help to compare it with NULL, unless the verifier says that it may be: else it may drop the branch.
//!
//! It is for what is called all the time: where a member of such a pointer is a pointer itself, the verifier (Linux ≥ 6.4)
//! looks through all of the kernel's types by name, up to four times (`btf_nested_type_is_trusted`), which for every
//! program was a quarter of what loading them took.

use aya_ebpf::{
    helpers::{bpf_get_current_task_btf, generated::bpf_get_current_task},
    programs::LsmContext,
};

use crate::{
    kernel::may_act_for_the_kernel,
    maps::constant,
    memo::{NAME_BYTES, NAME_WORDS},
};

/// A pointer to a structure that the verifier knows.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Known(*const u8);

impl Known {
    /// An argument of an LSM hook that is a pointer to a structure.
    #[inline(always)]
    pub fn argument(ctx: &LsmContext, index: usize) -> Self {
        Self(ctx.arg::<*const u8>(index))
    }

    /// The running task.
    #[inline(always)]
    pub fn task() -> Self {
        // SAFETY: no arguments; always the running task.
        Self(unsafe { bpf_get_current_task_btf() }.cast())
    }

    /// Follows a member that is a pointer to a structure.
    #[inline(always)]
    pub fn follow(self, offset: u32) -> Self {
        Self(self.get(offset))
    }

    /// Follows a member that may be NULL, where some kernels want that to be asked (`socket.sk`, Linux ≥ 6.9).
    #[inline(always)]
    pub fn follow_or_null(self, offset: u32) -> Option<Self> {
        let pointer = self.follow(offset);
        (!pointer.0.is_null()).then_some(pointer)
    }

    /// Loads a member that is a number, or a pointer to no structure.
    #[inline(always)]
    pub fn get<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the verifier checks the load against the kernel's types, so it stays inside the structure; one that
        // faults reads 0. `T` is an integer or a pointer, for which every bit pattern is a value.
        unsafe { core::ptr::read_volatile(self.0.wrapping_add(offset as usize).cast::<T>()) }
    }

    /// How far it lies behind another, wrapping: all that the verifier lets be computed of two pointers.
    #[inline(always)]
    pub fn distance(self, other: Self) -> u64 {
        let mut distance = self.0 as u64;
        // SAFETY: one subtraction between registers.
        unsafe {
            core::arch::asm!("{d} -= {other}", d = inout(reg) distance, other = in(reg) other.0 as u64);
        }
        distance
    }
}

/// The running task, which the kernel gives as a pointer and as a number; so it tells any pointer's number.
#[derive(Clone, Copy)]
pub struct KnownTask {
    /// As a pointer.
    pub pointer: Known,
    number: u64,
}

impl KnownTask {
    /// The running task.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: a helper without arguments.
        let number = unsafe { bpf_get_current_task() };
        Self {
            pointer: Known::task(),
            number,
        }
    }

    /// The address of its `mm_struct`, 0 without one.
    #[inline(always)]
    pub fn memory(&self) -> u64 {
        self.number_of(self.pointer.follow(constant!(OFFSETS.task_mm)))
    }

    /// A pointer's address as a number.
    #[inline(always)]
    pub fn number_of(&self, pointer: Known) -> u64 {
        pointer.distance(self.pointer).wrapping_add(self.number)
    }
}

/// The name of a dentry, filled up with zeroes, and its length; `None` for one that is longer, or not kept in the dentry
/// itself. A move may mix it with another, so ask [`crate::kernel::rename_sequence`] afterwards.
#[inline(always)]
pub fn short_name(task: &KnownTask, dentry: Known) -> Option<([u64; NAME_WORDS], u32)> {
    let at = match constant!(OFFSETS.dentry_short_name) {
        0 => constant!(OFFSETS.dentry_short_name_before_6_15),
        at => at,
    };
    let name: u64 = dentry.get(constant!(OFFSETS.dentry_name));
    let len: u32 = dentry.get(constant!(OFFSETS.dentry_name_len));
    // Without such a member, 0 is where the dentry's flags are, and no name.
    if at == 0 || name != task.number_of(dentry).wrapping_add(u64::from(at)) || len > NAME_BYTES {
        return None;
    }
    let mut words = [0; NAME_WORDS];
    let mut i = 0;
    while i < NAME_WORDS {
        let before = i as u32 * 8;
        if len <= before {
            break;
        }
        let word: u64 = dentry.get(at + before);
        // What follows the name is left from another.
        words[i] = match len - before {
            bytes @ 1..8 => word & u64::to_le((1 << (8 * bytes)) - 1),
            _ => word,
        };
        i += 1;
    }
    Some((words, len))
}

/// What everyone who is not in a sandbox pays for when a file is opened: the running task's address, to the verifier a pointer still, and the
/// id of its cgroup v2. Each pointer on the way is set for a task's whole life.
#[inline(always)]
pub fn current_task_and_cgroup() -> (u64, u64) {
    let task = Known::task();
    let node = task
        .follow(constant!(OFFSETS.task_cgroups))
        .follow(constant!(OFFSETS.css_set_dfl_cgrp))
        .follow(constant!(OFFSETS.cgroup_kn));
    (task.0 as u64, node.get(constant!(OFFSETS.kernfs_node_id)))
}

/// Process id of the running task.
#[inline(always)]
pub fn process() -> u32 {
    Known::task().get(constant!(OFFSETS.task_tgid))
}

/// Thread id of the running task.
#[inline(always)]
pub fn thread() -> u32 {
    Known::task().get(constant!(OFFSETS.task_pid))
}

/// [`crate::kernel::acts_for_the_kernel`], for when a file is opened.
#[inline(always)]
pub fn acts_for_the_kernel() -> bool {
    let task = Known::task();
    let cred = task.follow(constant!(OFFSETS.task_cred));
    let real_cred = task.follow(constant!(OFFSETS.task_real_cred));
    cred.distance(real_cred) != 0 && may_act_for_the_kernel(task.get(constant!(OFFSETS.task_flags)))
}
