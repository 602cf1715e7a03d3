//! Memory for what does not fit a program's 512 bytes of stack: a path, and a record being built.
//!
//! A per-CPU buffer would be shared: a task can be preempted inside an LSM program by another that
//! runs the same program on that CPU. So slots are claimed and released, each by one task at a time.
//! A program cannot end without releasing: nothing between claim and release returns early. How long it takes to get there is
//! the scheduler's to say, where programs are preempted, so a sandbox may have a share of the slots only: tasks that hardly get
//! to run leave others theirs.

use aya_ebpf::helpers::{bpf_get_prandom_u32, bpf_get_smp_processor_id};
use opensafe_common::{room::Room, tables::MAX_PATH_BYTES};

use crate::{
    atomic::Cell,
    bound::unforeseen,
    kernel::DentryHead,
    maps::{DirectoryState, POLICIES_A_DIRECTORY, SCRATCH, constant},
    room,
};

/// Bytes that a path is built in: filled from its end, with room to write one more name before the
/// check that it is too long.
pub const PATH_BYTES: usize = 2 * MAX_PATH_BYTES;
/// Where a path ends in [`Slot::path`].
pub const PATH_END: u32 = MAX_PATH_BYTES as u32 + 256;
/// Bytes that a record is built in: header, body, and three strings at the bounds which the verifier
/// can be shown.
pub const RECORD_BYTES: usize = 24 * 1024;
/// What [`claim`] returns if nothing is free.
const NONE_FREE: u64 = u64::MAX;

/// How many slots are looked at before giving up: first some of the CPU's own, then any. Even with three quarters of them taken,
/// hardly one of three thousand finds none.
const TRIES: u32 = OWN_TRIES + 28;
/// Of those, the first.
const OWN_TRIES: u32 = 4;
/// A sandbox may have one slot of so many.
const SHARES: u32 = 4;
/// Slots that belong to a CPU first.
const SLOTS_A_CPU: u32 = 8;

/// One slot.
#[repr(C)]
pub struct Slot {
    /// 0 for a free one, else one more than the sandbox's index.
    busy: u64,
    /// What the record's strings are read from.
    pub sources: Sources,
    /// The dentry that a walk is at.
    pub head: DentryHead,
    /// What is to be kept of a directory.
    pub states: [DirectoryState; POLICIES_A_DIRECTORY],
    /// A path, from some offset up to [`PATH_END`].
    pub path: [u8; PATH_BYTES],
    /// A record.
    pub record: [u8; RECORD_BYTES],
}

/// Where a record's strings come from, and how many bytes precede them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sources {
    /// Address of the name as asked, 0 if unknown.
    pub requested: u64,
    /// Bytes at `requested` in kernel memory, or one of [`Sources::KERNEL_STRING`],
    /// [`Sources::USER_STRING`].
    pub requested_len: u64,
    /// User memory with the arguments: from here.
    pub args_start: u64,
    /// To here.
    pub args_end: u64,
    /// Bytes of header and body.
    pub head: u64,
}

impl Sources {
    /// The name as asked is a NUL-terminated string of the kernel's.
    pub const KERNEL_STRING: u64 = 1 << 32;
    /// The name as asked is a NUL-terminated string of the process's.
    pub const USER_STRING: u64 = 1 << 33;
}

/// A claimed slot.
#[derive(Clone, Copy)]
pub struct Claim(u32);

impl Claim {
    /// Claims a slot for a sandbox; `None` if it has its share, or all that were looked at are taken.
    #[inline(always)]
    pub fn take(sandbox: u32) -> Option<Self> {
        match claim(sandbox) {
            NONE_FREE => None,
            index => Some(Self(index as u32)),
        }
    }

    /// Its index.
    #[inline(always)]
    pub fn index(self) -> u32 {
        self.0
    }

    /// Gives it back.
    #[inline(always)]
    pub fn release(self) {
        if let Some(slot) = SCRATCH.get_ptr_mut(self.0) {
            // SAFETY: the slot with this claim's index.
            unsafe { self.release_at(slot) };
        }
    }

    /// As [`Claim::release`], for who has the slot already.
    ///
    /// # Safety
    /// `slot` must be the one with this claim's index.
    #[inline(always)]
    pub unsafe fn release_at(self, slot: *mut Slot) {
        // SAFETY: a map value, aligned; `busy` is only ever changed through cells.
        let owner = unsafe { Cell::at(&raw mut (*slot).busy) }.clear();
        room::give_back((owner as u32).wrapping_sub(1), Room::Scratch);
    }
}

/// A function that the verifier checks once, by itself: `no_mangle` keeps it global. It takes and
/// gives numbers only.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn claim(sandbox: u32) -> u64 {
    let slots = constant!(HOST.scratch_slots);
    if slots == 0 || !room::take_of(sandbox, Room::Scratch, slots / SHARES) {
        return NONE_FREE;
    }
    // SAFETY: no arguments.
    let first = unsafe { bpf_get_smp_processor_id() } * SLOTS_A_CPU;
    let mut tries = 0;
    while tries < TRIES {
        let nth = match tries {
            0..OWN_TRIES => first + tries,
            // SAFETY: no arguments.
            _ => unsafe { bpf_get_prandom_u32() },
        };
        let index = nth % slots;
        let Some(slot) = SCRATCH.get_ptr_mut(index) else {
            return NONE_FREE;
        };
        // SAFETY: a map value, aligned; `busy` is only ever changed through cells.
        if unsafe { Cell::at(&raw mut (*slot).busy) }.claim(u64::from(sandbox) + 1) {
            return u64::from(index);
        }
        tries = unforeseen(tries + 1);
    }
    room::give_back(sandbox, Room::Scratch);
    NONE_FREE
}
