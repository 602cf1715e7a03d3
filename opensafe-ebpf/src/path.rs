//! Where a file is, and what the policy's automata say about it.
//!
//! The automata read a path from the superblock's root down; the kernel's dentries lead from the
//! file up. So the state reached at a directory is cached (see [`crate::maps::DIRECTORIES`]), and
//! only a miss walks up ([`crate::walk`]), into scratch memory, and then reads down
//! ([`crate::automaton`]).
//!
//! Functions with `no_mangle` are global to the verifier: it checks each once, by itself, instead of
//! once for every way in. They take and give numbers only.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    counter::Counter,
    guarded::sandbox_of_note,
    room::Room,
    tables::{Policy, Start, sandbox_of_policy},
    verdict::Word,
};

use crate::{
    automaton::{ReadingName, ReadingPath, SHORT_NAME_BYTES, below_at, step, word_at},
    bound::{masked, zeroed},
    kernel::{Dentry, DentryHead, S_IFCHR, S_IFDIR, S_IFMT, rename_sequence},
    known::{Known, KnownTask, short_name},
    maps::{
        DIRECTORIES, DirectoryState, OWN_TERMINALS, POLICIES, POLICIES_A_DIRECTORY, SCRATCH,
        constant, count,
    },
    memo::{NAME_BYTES, Question},
    room,
    scratch::{Claim, PATH_END},
    superblock::{is_own_and_unnamed, start},
    walk::{LONGEST_NAME, Walked, walk},
};

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

/// 1 where the agent may find a name for the superblock that `dentry` lies on and compile that in: one that the policy's
/// tables do not know, or that counts as lying elsewhere till then, where that was a denial. Else 0. A function that the
/// verifier checks once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn wants_a_name(policy_index: u32, dentry: u64, nameless: u32, denied: u32) -> u64 {
    let Some(superblock) = Dentry(dentry).superblock() else {
        return u64::from(nameless);
    };
    u64::from(nameless | denied) & is_own_and_unnamed(policy_index, superblock.0)
}

#[inline(always)]
fn forget_terminal(inode: u64) {
    // SAFETY: the value, one aligned u64, is copied out.
    if let Some(note) = unsafe { OWN_TERMINALS.get(&inode) }.copied()
        && OWN_TERMINALS.remove(&inode).is_ok()
    {
        room::give_back(sandbox_of_note(note), Room::Terminals);
    }
}

/// Forgets what was cached for the inode that is the argument of `inode_free_security`: its memory goes.
#[inline(always)]
pub fn forget(ctx: &LsmContext) {
    // Only directories are cached, and terminals known as a sandbox's own.
    let mode: u16 = Known::argument(ctx, 0).get(constant!(OFFSETS.inode_mode));
    match mode & S_IFMT {
        0 | S_IFDIR => {
            let _ = DIRECTORIES.remove(&ctx.arg::<u64>(0));
        }
        S_IFCHR => {
            forget_terminal(ctx.arg::<u64>(0));
        }
        _ => {}
    }
}

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
        epoch: policy.epoch,
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
    let sandbox = sandbox_of_policy(policy_index);
    count(sandbox, Counter::CacheMisses);
    let Some(slot) = Claim::take(sandbox) else {
        count(sandbox, Counter::UndecidedNoScratch);
        return NO_WORD;
    };
    let walked = walk(slot.index(), dentry);
    let packed = read_down(slot.index(), policy_index, dentry, walked);
    slot.release();
    if packed == NO_WORD {
        count(sandbox, Counter::UndecidedNoPath);
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
    pack(word_at(policy_index, reading.state))
}

#[inline(always)]
fn read_walked(slot: u32, policy_index: u32, dentry: Dentry, walked: Walked) -> Option<Word> {
    let state = start(policy_index, dentry.superblock()?)?;
    if !walked.whole {
        // Without a way to the root there is no name. What never has one (pipes, memfd) has its
        // word at the start state, which says so.
        return word_at(policy_index, state).filter(|word| word.flags & Word::NAMED == 0);
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
        reading.run(PATH_END - 1 - masked::<LONGEST_NAME>(u64::from(head.name_len())) as u32);
        remember_directory(slot, policy_index, parent, reading.state, walked.sequence);
    }
    reading.run(PATH_END);
    word_at(policy_index, reading.state)
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
    let sandbox = sandbox_of_policy(policy_index);
    let Some(slot) = Claim::take(sandbox) else {
        count(sandbox, Counter::UndecidedNoScratch);
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
        let len = masked::<LONGEST_NAME>(u64::from(dentry.head()?.name_len())) as u32;
        reading.run(PATH_END - 1 - len);
        let policy = POLICIES.get(policy_index)?;
        // A control character: rules could name it, and then protect what they need not.
        let at_directory = step(policy_index, policy, reading.state, b'/');
        reading.state = step(policy_index, policy, at_directory, 1);
    } else {
        reading.run(PATH_END);
    }
    below_at(policy_index, reading.state)
}

/// The state at a directory with this inode, if it was reached before, and the rename sequence at which it holds.
#[inline(always)]
fn cached_directory(policy: &Policy, inode: u64) -> Option<(Start, u32)> {
    let cached = DIRECTORIES.get_ptr(&inode)?.cast::<DirectoryState>();
    // SAFETY: of as many states as the mask lets through, one is copied out; the seal tells a torn copy.
    let cached = unsafe { cached.add(place_of(policy)).read_volatile() };
    let whole = DirectoryState::sealed(inode, cached.state, cached.rename_seq, policy.epoch);
    (cached.seal == whole.seal).then_some((cached.state, cached.rename_seq))
}

/// Keeps a directory's state, unless something moved while it was walked into `slot`.
#[inline(always)]
fn remember_directory(
    slot: u32,
    policy_index: u32,
    directory: Dentry,
    state: Start,
    sequence: u32,
) {
    if sequence & 1 != 0 || rename_sequence() != Some(sequence) {
        return;
    }
    let (Some(policy), Some(inode)) = (POLICIES.get(policy_index), directory.inode()) else {
        return;
    };
    let value = DirectoryState::sealed(inode.0, state, sequence, policy.epoch);
    let place = place_of(policy);
    if let Some(known) = DIRECTORIES.get_ptr_mut(&inode.0) {
        // SAFETY: of as many states as the mask lets through, one is overwritten. Whoever reads it meanwhile, or is given
        // this memory for another directory, tells by the seal.
        unsafe {
            known
                .cast::<DirectoryState>()
                .add(place)
                .write_volatile(value);
        }
        return;
    }
    let Some(slot) = SCRATCH.get_ptr_mut(slot) else {
        return;
    };
    // SAFETY: the slot is claimed, so nobody else touches it.
    let states = unsafe {
        let states = (&raw mut (*slot).states).cast::<DirectoryState>();
        let mut i = 0;
        // In every place: another policy's epoch does not match it.
        while i < POLICIES_A_DIRECTORY {
            states.add(i).write_volatile(value);
            i += 1;
        }
        &(*slot).states
    };
    // A full cache evicts; a failed insertion costs the next look-up a walk.
    let _ = DIRECTORIES.insert(&inode.0, states, 0);
}

/// Which of a directory's states is a policy's.
#[inline(always)]
fn place_of(policy: &Policy) -> usize {
    masked::<{ POLICIES_A_DIRECTORY as i32 - 1 }>(u64::from(policy.epoch))
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
        state: step(policy_index, policy, state, b'/'),
        policy_index,
    };
    if !reading.fill::<{ SHORT_NAME_BYTES as i32 - 1 }>(head.name(), len) {
        return NO_WORD;
    }
    if let Some(packed) = reading.question(policy, state, len).recall() {
        return packed;
    }
    reading.run(len);
    let packed = pack(word_at(policy_index, reading.state));
    if len <= NAME_BYTES && packed != NO_WORD {
        reading.question(policy, state, len).remember(packed);
    }
    packed
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
