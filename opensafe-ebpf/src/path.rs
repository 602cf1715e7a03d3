//! Where a file is, and what the policy's automata say about it.
//!
//! The automata read a path from the superblock's root down; the kernel's dentries lead from the
//! file up. So the state reached at a directory is cached (see [`crate::maps::DIRECTORIES`]), and
//! only a miss walks up, into scratch memory, and then reads down.
//!
//! Functions with `no_mangle` are global to the verifier: it checks each once, by itself, instead of
//! once for every way in. They take and give numbers only.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::{bpf_loop, generated},
    programs::LsmContext,
};
use opensafe_common::{
    counter::Counter,
    tables::{
        BELOW_CELL, CHUNK_CELLS, DEAD, MAX_PATH_BYTES, Policy, ROW_HEAD_CELLS, Start, SuperblockKey,
    },
    verdict::Word,
};

use crate::{
    bound::{masked, zeroed},
    kernel::{Dentry, DentryHead, Superblock, rename_sequence},
    known::{Known, KnownTask, short_name},
    maps::{ARENA, DIRECTORIES, DirectoryState, POLICIES, SCRATCH, SUPERBLOCKS, constant, count},
    memo::{NAME_BYTES, NAME_WORDS, Question},
    scratch::{Claim, PATH_BYTES, PATH_END},
};

/// Names shorter than this are read on the stack.
const SHORT_NAME_BYTES: usize = 64;
/// A cell that no table has: reading on from it fails, so an incomplete table never fails open.
const NOWHERE: u32 = u32::MAX;
/// Components that a path of [`MAX_PATH_BYTES`] can have, and one to find the root.
const MAX_COMPONENTS: u32 = MAX_PATH_BYTES as u32 / 2 + 1;
/// A packed word that is none: no word denies, audits and allows every kind.
const NO_WORD: u64 = u64::MAX;

/// What the tables say about where `dentry` is; `None` if that could not be found out.
#[inline(always)]
pub fn word(policy_index: u32, dentry: Dentry) -> Option<Word> {
    let mut packed = cached_word(policy_index, dentry.0);
    if packed == NO_WORD {
        packed = walked_word(policy_index, dentry.0);
    }
    unpack(packed)
}

/// What the tables say about an abstract Unix name of `len` bytes at kernel address `name`.
#[inline(always)]
pub fn abstract_word(policy_index: u32, name: u64, len: u32) -> Option<Word> {
    unpack(abstract_name_word(policy_index, name, len))
}

/// Whether at every path below a directory the same is denied for it at `old` as at `new`; `None` if that
/// could not be found out.
#[inline(always)]
pub fn same_below(policy_index: u32, old: Dentry, new: Dentry) -> Option<bool> {
    equal(
        below(policy_index, old.0, WHOLE_NAME),
        below(policy_index, new.0, WHOLE_NAME),
    )
}

/// Whether something else is denied below this name than below any other in its directory: what rules
/// protect lies there, or would; `None` if that could not be found out.
#[inline(always)]
pub fn is_special(policy_index: u32, dentry: Dentry) -> Option<bool> {
    let plain = equal(
        below(policy_index, dentry.0, WHOLE_NAME),
        below(policy_index, dentry.0, SOME_OTHER_NAME),
    );
    plain.map(|plain| !plain)
}

#[inline(always)]
fn equal(one: u64, other: u64) -> Option<bool> {
    if one == NO_WORD || other == NO_WORD {
        None
    } else {
        Some(one == other)
    }
}

/// Whether the policy's tables know the superblock that `dentry` lies on.
#[inline(always)]
pub fn knows(policy_index: u32, dentry: Dentry) -> bool {
    match dentry.superblock() {
        Some(superblock) => start(policy_index, superblock).is_some(),
        None => false,
    }
}

/// Forgets what was cached for the inode that is the argument of `inode_free_security`: its memory goes.
#[inline(always)]
pub fn forget_directory(ctx: &LsmContext) {
    // include/uapi/linux/stat.h. Only directories are cached.
    const S_IFMT: u16 = 0o170_000;
    const S_IFDIR: u16 = 0o040_000;
    let mode: u16 = Known::argument(ctx, 0).get(constant!(OFFSETS.inode_mode));
    if matches!(mode & S_IFMT, 0 | S_IFDIR) {
        let _ = DIRECTORIES.remove(&ctx.arg::<u64>(0));
    }
}

/// A path in a scratch slot.
#[derive(Clone, Copy)]
pub struct Walked {
    /// Its first byte; it ends at [`PATH_END`].
    pub start: u32,
    /// Whether it begins at the superblock's root.
    pub whole: bool,
    /// The kernel's rename sequence before the walk; odd if it is not known.
    pub sequence: u32,
}

impl Walked {
    /// [`walk`]'s result for what has no path.
    pub const NOWHERE: u64 = PATH_END as u64 | 1 << WHOLE_BIT;

    /// From what [`walk`] returns.
    #[inline(always)]
    pub fn unpack(packed: u64) -> Self {
        Self {
            start: packed as u32 & ((1 << WHOLE_BIT) - 1),
            whole: packed >> WHOLE_BIT & 1 == 1,
            sequence: (packed >> 32) as u32,
        }
    }
}

/// Bit of [`walk`]'s result that says that the path is whole.
const WHOLE_BIT: u32 = 31;

/// [`word`], for a dentry that the verifier knows, and only if the state at its directory is cached and what its name
/// leads to is remembered.
#[inline(always)]
pub fn known_word(policy: &Policy, task: &KnownTask, dentry: Known) -> Option<Word> {
    let parent = dentry.follow(constant!(OFFSETS.dentry_parent));
    // A root is its own parent, and its name is no component.
    if parent.distance(dentry) == 0 {
        return None;
    }
    let directory = task.number_of(parent.follow(constant!(OFFSETS.dentry_inode)));
    let (state, sequence) = cached_directory(policy, directory)?;
    let (name, len) = short_name(task, dentry)?;
    let question = Question {
        generation: policy.generation,
        len,
        state,
        name: &name,
    };
    let packed = question.recall()?;
    // Asked last, as in `cached_word`.
    if rename_sequence() != Some(sequence) {
        return None;
    }
    unpack(packed)
}

/// The word, if the state at the directory is cached and the name is short; else [`NO_WORD`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn cached_word(policy_index: u32, dentry: u64) -> u64 {
    let Some(policy) = POLICIES.get(policy_index) else {
        return NO_WORD;
    };
    let Some(head) = Dentry(dentry).head() else {
        return NO_WORD;
    };
    let parent = head.parent();
    if parent.0 == dentry {
        return NO_WORD;
    }
    let Some(inode) = parent.inode() else {
        return NO_WORD;
    };
    let Some((state, sequence)) = cached_directory(policy, inode.0) else {
        return NO_WORD;
    };
    let packed = word_of_short_name(policy_index, policy, state, &head);
    // Asked last: if nothing has moved since the state was kept, nothing did while parent, state and
    // name were looked up either.
    if rename_sequence() != Some(sequence) {
        return NO_WORD;
    }
    packed
}

/// The word, by walking up and reading down; leaves the parent directory's state behind.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn walked_word(policy_index: u32, dentry: u64) -> u64 {
    count(Counter::CacheMisses);
    let Some(slot) = Claim::take() else {
        count(Counter::UndecidedNoScratch);
        return NO_WORD;
    };
    let walked = walk(slot.index(), dentry);
    let packed = read_down(slot.index(), policy_index, dentry, walked);
    slot.release();
    if packed == NO_WORD {
        count(Counter::UndecidedNoPath);
    }
    packed
}

/// The word at the end of a path that was walked into a slot.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn read_down(slot: u32, policy_index: u32, dentry: u64, walked: u64) -> u64 {
    pack(read_walked(
        slot,
        policy_index,
        Dentry(dentry),
        Walked::unpack(walked),
    ))
}

/// The word of an abstract Unix name.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn abstract_name_word(policy_index: u32, name: u64, len: u32) -> u64 {
    // sun_path has 108 bytes (include/uapi/linux/un.h); the leading NUL is not read.
    const MAX_NAME_BYTES: u32 = 107;
    if len > MAX_NAME_BYTES {
        return NO_WORD;
    }
    let Some(policy) = POLICIES.get(policy_index) else {
        return NO_WORD;
    };
    let mut reading = ReadingName {
        bytes: zeroed::<16>(),
        state: policy.abstract_names,
        policy_index,
    };
    if !reading.fill::<0x7f>(name, len) {
        return NO_WORD;
    }
    reading.run(len);
    pack(word_at(reading.state))
}

/// Walks from `dentry` to its superblock's root and writes the path into a slot; see [`Walked::unpack`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn walk(slot: u32, dentry: u64) -> u64 {
    let sequence = rename_sequence().unwrap_or(1);
    let mut walk = Walk {
        dentry,
        slot,
        start: PATH_END,
        at_root: 0,
        failed: 0,
    };
    let root = match Dentry(dentry).superblock() {
        Some(superblock) => superblock.root(),
        None => None,
    };
    // SAFETY: the callback has the signature that bpf_loop wants, and `walk` outlives the call.
    unsafe {
        bpf_loop(
            MAX_COMPONENTS,
            climb as *mut c_void,
            (&raw mut walk).cast(),
            0,
        )
    };
    let whole = walk.failed == 0 && walk.at_root == 1 && root == Some(Dentry(walk.dentry));
    u64::from(walk.start) | u64::from(whole) << WHOLE_BIT | u64::from(sequence) << 32
}

struct Walk {
    dentry: u64,
    slot: u32,
    start: u32,
    at_root: u32,
    failed: u32,
}

/// One step up: writes `/` and the dentry's name before what is there.
unsafe extern "C" fn climb(_round: u32, context: *mut c_void) -> i64 {
    // SAFETY: `walk` passes its `Walk`, which nobody else has.
    let walk = unsafe { &mut *context.cast::<Walk>() };
    let Some(slot) = SCRATCH.get_ptr_mut(walk.slot) else {
        walk.failed = 1;
        return 1;
    };
    // SAFETY: the slot is claimed for this walk, so nobody else touches it.
    let head = unsafe {
        if !Dentry(walk.dentry).copy_head(&raw mut (*slot).head) {
            walk.failed = 1;
            return 1;
        }
        &(*slot).head
    };
    let parent = head.parent();
    if parent.0 == walk.dentry {
        walk.at_root = 1;
        return 1;
    }
    // A name is at most 255 bytes (NAME_MAX), so the mask takes nothing from a right one.
    let len = masked::<0xff>(u64::from(head.name_len())) as u32;
    let start = walk.start.wrapping_sub(len + 1);
    if !(256..PATH_END).contains(&start) {
        walk.failed = 1; // over MAX_PATH_BYTES
        return 1;
    }
    let at = masked::<{ PATH_BYTES as i32 - 1 }>(u64::from(start));
    // SAFETY: `at` is below PATH_END = 4,352 and `len` below 256, so 1 + `len` bytes from `at` lie in
    // the 8,192 of the path buffer; the helper checks the source.
    let failed = unsafe {
        let to = (&raw mut (*slot).path).cast::<u8>().add(at);
        to.write(b'/');
        generated::bpf_probe_read_kernel(to.add(1).cast(), len, head.name() as *const c_void)
    };
    if failed != 0 {
        walk.failed = 1;
        return 1;
    }
    walk.start = start;
    walk.dentry = parent.0;
    0
}

#[inline(always)]
fn read_walked(slot: u32, policy_index: u32, dentry: Dentry, walked: Walked) -> Option<Word> {
    let state = start(policy_index, dentry.superblock()?)?;
    if !walked.whole {
        // Without a way to the root there is no name. What never has one (pipes, memfd) has its
        // word at the start state, which says so.
        return word_at(state).filter(|word| word.flags & Word::NAMED == 0);
    }
    let mut reading = ReadingPath {
        state,
        slot,
        policy_index,
        from: walked.start,
    };
    let head = dentry.head()?;
    let parent = head.parent();
    if parent != dentry {
        reading.run(PATH_END - 1 - masked::<0xff>(u64::from(head.name_len())) as u32);
        remember_directory(policy_index, parent, reading.state, walked.sequence);
    }
    reading.run(PATH_END);
    word_at(reading.state)
}

/// [`below`] reads the path up to its end.
const WHOLE_NAME: u32 = 0;
/// [`below`] reads a name that no rule mentions in place of the last one.
const SOME_OTHER_NAME: u32 = 1;

/// The two automata's numbers for what is denied below a directory at `dentry`; [`NO_WORD`] for what
/// has no name. A function that the verifier checks once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn below(policy_index: u32, dentry: u64, name: u32) -> u64 {
    let Some(slot) = Claim::take() else {
        count(Counter::UndecidedNoScratch);
        return NO_WORD;
    };
    let walked = walk(slot.index(), dentry);
    let numbers = read_below(slot.index(), policy_index, Dentry(dentry), walked, name);
    slot.release();
    numbers.unwrap_or(NO_WORD)
}

#[inline(always)]
fn read_below(slot: u32, policy_index: u32, dentry: Dentry, walked: u64, name: u32) -> Option<u64> {
    let walked = Walked::unpack(walked);
    if !walked.whole {
        return None;
    }
    let mut reading = ReadingPath {
        state: start(policy_index, dentry.superblock()?)?,
        slot,
        policy_index,
        from: walked.start,
    };
    if name == SOME_OTHER_NAME {
        let len = masked::<0xff>(u64::from(dentry.head()?.name_len())) as u32;
        reading.run(PATH_END - 1 - len);
        let policy = POLICIES.get(policy_index)?;
        // A control character: rules could name it, and then protect what they need not.
        reading.state = step(policy, step(policy, reading.state, b'/'), 1);
    } else {
        reading.run(PATH_END);
    }
    let number = |state: u32| cell(state.wrapping_add(BELOW_CELL));
    let (anchored, floating) = (
        number(reading.state.anchored)?,
        number(reading.state.floating)?,
    );
    Some(u64::from(anchored) | u64::from(floating) << 32)
}

/// Reads a path that lies in a slot.
struct ReadingPath {
    state: Start,
    slot: u32,
    policy_index: u32,
    from: u32,
}

impl ReadingPath {
    /// Reads up to `end`, one byte a round.
    #[inline(always)]
    fn run(&mut self, end: u32) {
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
            self.state = Start {
                anchored: NOWHERE,
                floating: NOWHERE,
            };
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
        reading.state = Start {
            anchored: NOWHERE,
            floating: NOWHERE,
        };
        return 1;
    };
    // From the round, not counted in the context: what changes from round to round the verifier
    // follows value by value.
    let at = masked::<{ PATH_BYTES as i32 - 1 }>(u64::from(reading.from.wrapping_add(round)));
    // SAFETY: the mask keeps the index inside the buffer.
    let byte = unsafe { *(&raw const (*slot).path).cast::<u8>().add(at) };
    reading.state = step(policy, reading.state, byte);
    0
}

/// Reads a name that lies on the stack.
struct ReadingName<const WORDS: usize> {
    bytes: [u64; WORDS],
    state: Start,
    policy_index: u32,
}

impl<const WORDS: usize> ReadingName<WORDS> {
    /// Copies `len` bytes of kernel memory; `MASK` is the number of bytes less one.
    #[inline(always)]
    fn fill<const MASK: i32>(&mut self, name: u64, len: u32) -> bool {
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

    #[inline(always)]
    fn run(&mut self, len: u32) {
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
    fn question(&self, policy: &Policy, state: Start, len: u32) -> Question<'_> {
        // SAFETY: the bytes are more words than that.
        let name = unsafe { &*self.bytes.as_ptr().cast::<[u64; NAME_WORDS]>() };
        Question {
            generation: policy.generation,
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
        reading.state = Start {
            anchored: NOWHERE,
            floating: NOWHERE,
        };
        return 1;
    };
    let at = if WORDS * 8 == SHORT_NAME_BYTES {
        masked::<0x3f>(u64::from(round))
    } else {
        masked::<0x7f>(u64::from(round))
    };
    // SAFETY: the mask keeps the index inside the buffer.
    let byte = unsafe { *reading.bytes.as_ptr().cast::<u8>().add(at) };
    reading.state = step(policy, reading.state, byte);
    0
}

/// The state at a directory with this inode, if it was reached before, and the rename sequence at which it holds.
#[inline(always)]
fn cached_directory(policy: &Policy, inode: u64) -> Option<(Start, u32)> {
    // SAFETY: the value is copied out, and the seal tells a torn copy.
    let cached = *unsafe { DIRECTORIES.get(&inode) }?;
    let whole = DirectoryState::sealed(inode, cached.state, cached.rename_seq, policy.generation);
    (cached.seal == whole.seal).then_some((cached.state, cached.rename_seq))
}

/// Keeps a directory's state, unless something moved while it was walked.
#[inline(always)]
fn remember_directory(policy_index: u32, directory: Dentry, state: Start, sequence: u32) {
    if sequence & 1 != 0 || rename_sequence() != Some(sequence) {
        return;
    }
    let (Some(policy), Some(inode)) = (POLICIES.get(policy_index), directory.inode()) else {
        return;
    };
    let value = DirectoryState::sealed(inode.0, state, sequence, policy.generation);
    // A full cache evicts; a failed insertion costs the next look-up a walk.
    let _ = DIRECTORIES.insert(&inode.0, &value, 0);
}

/// The word after `/` and the dentry's name, remembered or read; [`NO_WORD`] for a name too long for the stack.
#[inline(always)]
fn word_of_short_name(policy_index: u32, policy: &Policy, state: Start, head: &DentryHead) -> u64 {
    let len = head.name_len();
    if len as usize >= SHORT_NAME_BYTES {
        return NO_WORD;
    }
    let mut reading = ReadingName {
        bytes: zeroed::<{ SHORT_NAME_BYTES / 8 }>(),
        state: step(policy, state, b'/'),
        policy_index,
    };
    if !reading.fill::<{ SHORT_NAME_BYTES as i32 - 1 }>(head.name(), len) {
        return NO_WORD;
    }
    if let Some(packed) = reading.question(policy, state, len).recall() {
        return packed;
    }
    reading.run(len);
    let packed = pack(word_at(reading.state));
    if len <= NAME_BYTES && packed != NO_WORD {
        reading.question(policy, state, len).remember(packed);
    }
    packed
}

/// One byte through both automata.
#[inline(always)]
fn step(policy: &Policy, state: Start, byte: u8) -> Start {
    let class = u32::from(policy.classes[byte as usize]);
    Start {
        anchored: next(state.anchored, class),
        floating: next(state.floating, class),
    }
}

#[inline(always)]
fn next(state: u32, class: u32) -> u32 {
    if state == DEAD {
        return DEAD;
    }
    cell(
        state
            .wrapping_add(ROW_HEAD_CELLS as u32)
            .wrapping_add(class),
    )
    .unwrap_or(NOWHERE)
}

/// What both automata say at a pair of states.
#[inline(always)]
fn word_at(state: Start) -> Option<Word> {
    Some(
        row_word(state.anchored)?
            .merge(row_word(state.floating)?)
            .settled(),
    )
}

#[inline(always)]
fn row_word(state: u32) -> Option<Word> {
    if state == NOWHERE {
        return None;
    }
    Some(Word::from_cells(cell(state)?, cell(state.wrapping_add(1))?))
}

#[inline(always)]
fn cell(index: u32) -> Option<u32> {
    let chunk = ARENA.get_ptr(index / CHUNK_CELLS as u32)?;
    let at = masked::<{ CHUNK_CELLS as i32 - 1 }>(u64::from(index));
    // SAFETY: the mask keeps the index inside the chunk.
    Some(unsafe { *chunk.cast::<u32>().add(at) })
}

/// Where the automata start for a superblock: by its device, else by its type.
#[inline(always)]
fn start(policy: u32, superblock: Superblock) -> Option<Start> {
    let magic = superblock.magic()?;
    let by_device = SuperblockKey {
        policy,
        by: if magic == SuperblockKey::TMPFS_MAGIC {
            SuperblockKey::BY_TMPFS_DEVICE
        } else {
            SuperblockKey::BY_DEVICE
        },
        id: u64::from(superblock.dev()?),
    };
    // SAFETY: the value is copied out; entries of a policy are written before it is in force.
    if let Some(start) = unsafe { SUPERBLOCKS.get(&by_device) } {
        return Some(*start);
    }
    let by_magic = SuperblockKey {
        policy,
        by: SuperblockKey::BY_MAGIC,
        id: magic,
    };
    // SAFETY: as above.
    unsafe { SUPERBLOCKS.get(&by_magic) }.copied()
}

#[inline(always)]
fn pack(word: Option<Word>) -> u64 {
    match word {
        Some(Word {
            allow,
            audit,
            deny,
            flags,
        }) => {
            u64::from(allow)
                | u64::from(audit) << 16
                | u64::from(deny) << 32
                | u64::from(flags) << 48
        }
        None => NO_WORD,
    }
}

#[inline(always)]
fn unpack(packed: u64) -> Option<Word> {
    (packed != NO_WORD).then_some(Word {
        allow: packed as u16,
        audit: (packed >> 16) as u16,
        deny: (packed >> 32) as u16,
        flags: (packed >> 48) as u16,
    })
}
