//! The atomic instructions that the programs use, on 64-bit cells.
//!
//! `core::sync::atomic` has no read-modify-write for this target, so they are written out; the
//! instructions are those of the kernel's Documentation/bpf/standardization/instruction-set.rst
//! (`BPF_ATOMIC`, Linux ≥ 5.12).

use core::arch::asm;

/// A cell in a map that several tasks change.
///
/// # Safety
/// Whoever makes one promises that the pointer is to a live map value, aligned to 8 bytes, that is
/// changed through this type only.
#[derive(Clone, Copy)]
pub struct Cell(*mut u64);

impl Cell {
    /// # Safety
    /// See [`Cell`].
    #[inline(always)]
    pub unsafe fn at(cell: *mut u64) -> Self {
        Self(cell)
    }

    /// What is there.
    #[inline(always)]
    pub fn get(self) -> u64 {
        // SAFETY: a live, aligned cell by the promise at `at`; others change it atomically.
        unsafe { self.0.read_volatile() }
    }

    /// Adds, wrapping.
    #[inline(always)]
    pub fn add(self, value: u64) {
        // SAFETY: a live, aligned cell by the promise at `at`.
        unsafe {
            asm!("lock *(u64 *)({cell} + 0) += {value}", cell = in(reg) self.0, value = in(reg) value)
        };
    }

    /// Puts `new` in place of 0; says whether it was 0.
    #[inline(always)]
    pub fn claim(self, new: u64) -> bool {
        let mut seen: u64 = 0;
        // SAFETY: as above; r0 is where the instruction expects the old value and leaves the seen one.
        unsafe {
            asm!("r0 = cmpxchg_64({cell} + 0, r0, {new})", cell = in(reg) self.0, new = in(reg) new, inout("r0") seen);
        }
        seen == 0
    }

    /// Puts 0 in place of whatever is there; says what that was.
    #[inline(always)]
    pub fn clear(self) -> u64 {
        let mut value: u64 = 0;
        // SAFETY: as above.
        unsafe {
            asm!("{value} = xchg_64({cell} + 0, {value})", cell = in(reg) self.0, value = inout(reg) value)
        };
        value
    }
}
