//! Bounds that the verifier can see.
//!
//! The compiler drops a mask that it can prove to change nothing; the verifier, which tracks ranges in
//! another way, then misses it. So the instruction is written out.

use core::arch::asm;

/// `value & MASK`, as an instruction that stays. `MASK` is at most 0x7fff_ffff.
#[inline(always)]
pub fn masked<const MASK: i32>(value: u64) -> usize {
    let mut value = value;
    // SAFETY: one operation on a register.
    unsafe { asm!("{value} &= {mask}", value = inout(reg) value, mask = const MASK) };
    value as usize
}

/// `value`, of which the compiler then knows nothing and the verifier what it knew before: a loop that counts with it
/// is not written out round by round.
#[inline(always)]
pub fn unforeseen(value: u32) -> u32 {
    let mut value = value;
    // SAFETY: no instruction at all.
    unsafe { asm!("", inout("r0") value) };
    value
}

/// Zeroed bytes on the stack. `[0; N]` becomes a call that writes byte by byte on this target; these
/// are `WORDS` stores.
#[inline(always)]
pub fn zeroed<const WORDS: usize>() -> [u64; WORDS] {
    let mut words = core::mem::MaybeUninit::<[u64; WORDS]>::uninit();
    let first = words.as_mut_ptr().cast::<u64>();
    let mut i = 0;
    while i < WORDS {
        // SAFETY: within the array.
        unsafe { core::ptr::write_volatile(first.add(i), 0) };
        i += 1;
    }
    // SAFETY: every word was written.
    unsafe { words.assume_init() }
}
