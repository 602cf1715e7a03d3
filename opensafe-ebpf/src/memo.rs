//! What the automata say about a name, read on from a state: remembered, so that a name which is asked about again and
//! again is not read byte by byte each time.
//!
//! It depends on the policy's tables alone, not on any file, so an entry never goes stale: it is found by the
//! policy's epoch, both states, and the name with its length, and every bit of them is compared. So it is true of
//! the bytes that were read, whatever happens to the file that they were read from.
//!
//! Entries belong to a CPU. A task can be preempted in here by another that looks for or writes the same entry, so a
//! version tells a reader that it was written meanwhile; between tasks of one CPU nothing is reordered.

use opensafe_common::tables::Start;

use crate::{atomic::Cell, maps::NAMES};

/// Words that a name has to fit, with a NUL after it: what `d_shortname` holds on every kernel since 6.1.
pub const NAME_WORDS: usize = 4;
/// Bytes in a name at most.
pub const NAME_BYTES: u32 = NAME_WORDS as u32 * 8 - 1;
/// Entries for each CPU; a power of two.
pub const ENTRIES: u32 = 1 << ENTRY_BITS;
const ENTRY_BITS: u32 = 10;

/// What is asked: where the automata stand at the directory, and the name in it, filled up with zeroes.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The policy's epoch.
    pub epoch: u32,
    /// Bytes in the name. Nothing is remembered of more than [`NAME_BYTES`].
    pub len: u32,
    /// The states reached at the directory.
    pub state: Start,
    /// The name.
    pub name: &'a [u64; NAME_WORDS],
}

/// A question with its answer.
#[repr(C)]
pub struct Entry {
    /// 1 while it is being written.
    busy: u64,
    /// How often writing began or ended: odd while it is being written.
    version: u64,
    epoch_and_len: u64,
    state: u64,
    name: [u64; NAME_WORDS],
    word: u64,
}

impl Question<'_> {
    /// The packed word that was remembered.
    #[inline(always)]
    pub fn recall(&self) -> Option<u64> {
        let entry = NAMES.get_ptr(self.index())?;
        // SAFETY: a map value of this CPU. Whoever writes to it meanwhile is noticed by the version.
        unsafe {
            let version = (&raw const (*entry).version).read_volatile();
            let word = (&raw const (*entry).word).read_volatile();
            let mut differs =
                (&raw const (*entry).epoch_and_len).read_volatile() ^ self.epoch_and_len();
            differs |= (&raw const (*entry).state).read_volatile() ^ packed(self.state);
            let mut i = 0;
            while i < NAME_WORDS {
                differs |= (&raw const (*entry).name[i]).read_volatile() ^ self.name[i];
                i += 1;
            }
            differs |= version & 1;
            differs |= (&raw const (*entry).version).read_volatile() ^ version;
            (differs == 0).then_some(word)
        }
    }

    /// Remembers a packed word, in place of whatever was there.
    #[inline(always)]
    pub fn remember(&self, word: u64) {
        let Some(entry) = NAMES.get_ptr_mut(self.index()) else {
            return;
        };
        // SAFETY: a map value of this CPU, aligned; `busy` is only ever changed through cells, and whoever claimed it
        // is the only one that writes the rest.
        unsafe {
            let busy = Cell::at(&raw mut (*entry).busy);
            if !busy.claim(1) {
                return;
            }
            let version = (&raw const (*entry).version).read_volatile();
            (&raw mut (*entry).version).write_volatile(version.wrapping_add(1));
            (&raw mut (*entry).epoch_and_len).write_volatile(self.epoch_and_len());
            (&raw mut (*entry).state).write_volatile(packed(self.state));
            let mut i = 0;
            while i < NAME_WORDS {
                (&raw mut (*entry).name[i]).write_volatile(self.name[i]);
                i += 1;
            }
            (&raw mut (*entry).word).write_volatile(word);
            (&raw mut (*entry).version).write_volatile(version.wrapping_add(2));
            busy.clear();
        }
    }

    #[inline(always)]
    fn epoch_and_len(&self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.len)
    }

    /// Which entry: any spreading will do, since what is found there is compared.
    #[inline(always)]
    fn index(&self) -> u32 {
        let mut hash = packed(self.state) ^ self.epoch_and_len();
        let mut i = 0;
        while i < NAME_WORDS {
            // 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
            hash = (hash ^ self.name[i]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
            i += 1;
        }
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ENTRY_BITS)) as u32
    }
}

#[inline(always)]
fn packed(state: Start) -> u64 {
    u64::from(state.anchored) << 32 | u64::from(state.floating)
}
