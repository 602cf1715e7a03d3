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
