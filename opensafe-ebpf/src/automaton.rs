//! Reading down: bytes through the policy's two automata, and what they say where they arrive.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_loop, generated};
use opensafe_common::{
    tables::{BELOW_CELL, CHUNK_CELLS, DEAD, Policy, ROW_HEAD_CELLS, Start},
    verdict::Word,
};

use crate::{
    bound::masked,
    maps::{ARENAS, POLICIES, SCRATCH},
    memo::{NAME_WORDS, Question},
    scratch::PATH_BYTES,
};

/// Names shorter than this are read on the stack.
pub const SHORT_NAME_BYTES: usize = 64;
/// A cell that no table has: reading on from it fails, so an incomplete table never fails open.
const NOWHERE: u32 = u32::MAX;
/// Nowhere in both automata.
const LOST: Start = Start {
    anchored: NOWHERE,
    floating: NOWHERE,
};

/// Reads a path that lies in a slot.
pub struct ReadingPath {
    /// Where the automata stand.
    pub state: Start,
    /// The slot.
    pub slot: u32,
    /// Index of the policy.
    pub policy_index: u32,
    /// The first byte that is not read yet.
    pub from: u32,
}

impl ReadingPath {
    /// Reads up to `end`, one byte a round.
    #[inline(always)]
    pub fn run(&mut self, end: u32) {
        let rounds = end.saturating_sub(self.from);
        // SAFETY: the callback has the signature that bpf_loop wants, and `self` outlives the call.
        let done = unsafe {
            bpf_loop(
                rounds,
                read_path_byte as *mut c_void,
                (&raw mut *self).cast(),
                0,
            )
        };
        if done != i64::from(rounds) {
            self.state = LOST;
        }
        self.from = end;
    }
}

unsafe extern "C" fn read_path_byte(round: u32, context: *mut c_void) -> i64 {
    // SAFETY: `ReadingPath::run` passes itself, and nobody else has it.
    let reading = unsafe { &mut *context.cast::<ReadingPath>() };
    let (Some(policy), Some(slot)) = (
        POLICIES.get(reading.policy_index),
        SCRATCH.get_ptr(reading.slot),
    ) else {
        reading.state = LOST;
        return 1;
    };
    // From the round, not counted in the context: what changes from round to round the verifier
    // follows value by value.
    let at = masked::<{ PATH_BYTES as i32 - 1 }>(u64::from(reading.from.wrapping_add(round)));
    // SAFETY: the mask keeps the index inside the buffer.
    let byte = unsafe { *(&raw const (*slot).path).cast::<u8>().add(at) };
    reading.state = step(reading.policy_index, policy, reading.state, byte);
    0
}

/// Reads a name that lies on the stack.
pub struct ReadingName<const WORDS: usize> {
    /// The name.
    pub bytes: [u64; WORDS],
    /// Where the automata stand.
    pub state: Start,
    /// Index of the policy.
    pub policy_index: u32,
}

impl<const WORDS: usize> ReadingName<WORDS> {
    /// Copies `len` bytes of kernel memory; `MASK` is the number of bytes less one.
    #[inline(always)]
    pub fn fill<const MASK: i32>(&mut self, name: u64, len: u32) -> bool {
        let len = masked::<MASK>(u64::from(len)) as u32;
        // SAFETY: `len` is at most `MASK`; the helper checks the source.
        unsafe {
            generated::bpf_probe_read_kernel(
                self.bytes.as_mut_ptr().cast(),
                len,
                name as *const c_void,
            ) == 0
        }
    }

    /// Reads so many bytes.
    #[inline(always)]
    pub fn run(&mut self, len: u32) {
        // SAFETY: the callback has the signature that bpf_loop wants, and `self` outlives the call.
        unsafe {
            bpf_loop(
                len,
                read_name_byte::<WORDS> as *mut c_void,
                (&raw mut *self).cast(),
                0,
            )
        };
    }
}

impl ReadingName<{ SHORT_NAME_BYTES / 8 }> {
    /// What is asked about these bytes, read on from `state`.
    #[inline(always)]
    pub fn question(&self, policy: &Policy, state: Start, len: u32) -> Question<'_> {
        // SAFETY: the bytes are more words than that.
        let name = unsafe { &*self.bytes.as_ptr().cast::<[u64; NAME_WORDS]>() };
        Question {
            epoch: policy.epoch,
            len,
            state,
            name,
        }
    }
}

unsafe extern "C" fn read_name_byte<const WORDS: usize>(round: u32, context: *mut c_void) -> i64 {
    // SAFETY: `ReadingName::run` passes itself, and nobody else has it.
    let reading = unsafe { &mut *context.cast::<ReadingName<WORDS>>() };
    let Some(policy) = POLICIES.get(reading.policy_index) else {
        reading.state = LOST;
        return 1;
    };
    let at = if WORDS * 8 == SHORT_NAME_BYTES {
        masked::<0x3f>(u64::from(round))
    } else {
        masked::<0x7f>(u64::from(round))
    };
    // SAFETY: the mask keeps the index inside the buffer.
    let byte = unsafe { *reading.bytes.as_ptr().cast::<u8>().add(at) };
    reading.state = step(reading.policy_index, policy, reading.state, byte);
    0
}

/// One byte through both automata.
#[inline(always)]
pub fn step(policy_index: u32, policy: &Policy, state: Start, byte: u8) -> Start {
    let class = u32::from(policy.classes[byte as usize]);
    Start {
        anchored: next(policy_index, state.anchored, class),
        floating: next(policy_index, state.floating, class),
    }
}

#[inline(always)]
fn next(policy_index: u32, state: u32, class: u32) -> u32 {
    if state == DEAD {
        return DEAD;
    }
    cell(
        policy_index,
        state
            .wrapping_add(ROW_HEAD_CELLS as u32)
            .wrapping_add(class),
    )
    .unwrap_or(NOWHERE)
}

/// What both automata say at a pair of states.
#[inline(always)]
pub fn word_at(policy_index: u32, state: Start) -> Option<Word> {
    Some(
        row_word(policy_index, state.anchored)?
            .merge(row_word(policy_index, state.floating)?)
            .settled(),
    )
}

/// The two automata's numbers for what is denied below a directory; see [`opensafe_common::tables`].
#[inline(always)]
pub fn below_at(policy_index: u32, state: Start) -> Option<u64> {
    let number = |state: u32| cell(policy_index, state.wrapping_add(BELOW_CELL));
    let (anchored, floating) = (number(state.anchored)?, number(state.floating)?);
    Some(u64::from(anchored) | u64::from(floating) << 32)
}

#[inline(always)]
fn row_word(policy_index: u32, state: u32) -> Option<Word> {
    if state == NOWHERE {
        return None;
    }
    Some(Word::from_cells(
        cell(policy_index, state)?,
        cell(policy_index, state.wrapping_add(1))?,
    ))
}

#[inline(always)]
fn cell(policy_index: u32, index: u32) -> Option<u32> {
    let chunk = ARENAS.get_value(policy_index, &(index / CHUNK_CELLS as u32))?;
    let at = masked::<{ CHUNK_CELLS as i32 - 1 }>(u64::from(index));
    // SAFETY: the mask keeps the index inside the chunk.
    Some(unsafe { *chunk.as_ptr().add(at) })
}
