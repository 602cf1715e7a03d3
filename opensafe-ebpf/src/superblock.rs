//! Which superblock is which: where the automata start for it.
//!
//! The tables know most by their device numbers, and those are given out again: when a file system goes, the next one that
//! is mounted may get its number. So it is noted for each new superblock after which look at the mounts it came, and
//! what a policy has for its number counts only if the policy comes from a later look.

use aya_ebpf::programs::LsmContext;
use opensafe_common::tables::{LATEST_LOOK, Start, SuperblockKey, UNNOTED_LOOK, sandbox_of_policy};

use crate::{
    actor::current_sandbox,
    kernel::Superblock,
    maps::{LOOKS, MADE, OWN_TMPFS, POLICIES, SUPERBLOCKS, UNMOUNTED},
};

/// `ENOMEM` of include/uapi/asm-generic/errno-base.h.
const ENOMEM: i32 = 12;

/// Where the automata start for a superblock: by its device, else by its type.
#[inline(always)]
pub fn start(policy: u32, superblock: Superblock) -> Option<Start> {
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
    if let Some(start) = unsafe { SUPERBLOCKS.get(&by_device) }
        && is_anothers(policy, superblock.dev()?) == 0
    {
        return Some(*start);
    }
    // Computed, not branched on: the verifier follows each way by itself.
    const FURTHER: u32 = SuperblockKey::BY_OWN_TMPFS - SuperblockKey::BY_MAGIC;
    let own = is_own_tmpfs(sandbox_of_policy(policy), superblock.0, magic);
    let otherwise = SuperblockKey {
        policy,
        by: SuperblockKey::BY_MAGIC + FURTHER * own as u32,
        id: magic & own.wrapping_sub(1),
    };
    // SAFETY: as above.
    unsafe { SUPERBLOCKS.get(&otherwise) }.copied()
}

/// 1 for a tmpfs that this sandbox has made, else 0. A function that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn is_own_tmpfs(sandbox: u32, superblock: u64, magic: u64) -> u64 {
    if magic != SuperblockKey::TMPFS_MAGIC {
        return 0;
    }
    // SAFETY: the value, one aligned u32, is copied out.
    u64::from(unsafe { OWN_TMPFS.get(&superblock) }.copied() == Some(sandbox))
}

/// 1 for a tmpfs that the sandbox has made and that the policy's tables have no name for yet, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn is_own_and_unnamed(policy: u32, superblock: u64) -> u64 {
    let device = Superblock(superblock).dev().unwrap_or(0);
    let by_device = SuperblockKey {
        policy,
        by: SuperblockKey::BY_TMPFS_DEVICE,
        id: u64::from(device),
    };
    // SAFETY: only whether it is there matters.
    let there = unsafe { SUPERBLOCKS.get(&by_device) }.is_some();
    let named = there && is_anothers(policy, device) == 0;
    is_own_tmpfs(
        sandbox_of_policy(policy),
        superblock,
        SuperblockKey::TMPFS_MAGIC,
    ) & u64::from(!named)
}

/// 1 if a superblock with that device number was made after the look at the mounts that the policy comes from, else 0. A
/// function that the verifier checks once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn is_anothers(policy: u32, device: u32) -> u64 {
    let Some(policy) = POLICIES.get(policy) else {
        return 1;
    };
    // SAFETY: the value, one aligned u64, is copied out.
    let made = unsafe { MADE.get(&device) }.copied().unwrap_or(0);
    let unnoted = LOOKS.get(UNNOTED_LOOK).copied().unwrap_or(u64::MAX);
    u64::from(made >= u64::from(policy.epoch) || unnoted >= u64::from(policy.epoch))
}

/// Notes that a superblock is there and not mounted yet: the argument of `sb_alloc_security`. A sandbox that has used up the
/// room for that makes no more.
#[inline(always)]
pub fn made(ctx: &LsmContext) -> i32 {
    if UNMOUNTED.insert(&ctx.arg::<u64>(0), &0, 0).is_ok() {
        return 0;
    }
    if current_sandbox().is_some() {
        return -ENOMEM;
    }
    doubt_all();
    0
}

/// Notes that a superblock's device number is new: the argument of `sb_kern_mount`. One that is mounted already, and is
/// mounted once more, is not new.
#[inline(always)]
pub fn note(ctx: &LsmContext) -> i32 {
    let superblock = Superblock(ctx.arg::<u64>(0));
    // Each mount, and whoever is about to make one, has a reference; mount(2) of newer kernels (7.2, not 6.12) has made its
    // mount by then. Of what was made before these programs were there, references are all that is known.
    let is_first = UNMOUNTED.remove(&superblock.0).is_ok();
    if !is_first && superblock.references().is_some_and(|count| count > 1) {
        return 0;
    }
    let device = superblock.dev();
    if device.is_some_and(|device| note_device(device) && note_device(device)) {
        return 0;
    }
    if current_sandbox().is_some() {
        return -ENOMEM;
    }
    doubt_all();
    0
}

/// Twice, in case that a look was taken between reading its number and noting it.
#[inline(always)]
fn note_device(device: u32) -> bool {
    let latest = LOOKS.get(LATEST_LOOK).copied().unwrap_or(u64::MAX);
    MADE.insert(&device, &latest, 0).is_ok()
}

/// From now on no device number counts until the mounts were looked at again.
#[inline(always)]
fn doubt_all() {
    let latest = LOOKS.get(LATEST_LOOK).copied().unwrap_or(u64::MAX);
    if let Some(unnoted) = LOOKS.get_ptr_mut(UNNOTED_LOOK) {
        // One more than it is, in case that another look is being taken: then two looks dispel the doubt in place of one.
        // SAFETY: a map's value, which is one aligned word and lives as long as the map; whoever else writes it writes a word.
        unsafe { *unnoted = latest.saturating_add(1) };
    }
}

/// Forgets what was noted of a superblock by its address: the argument of `sb_free_security`.
#[inline(always)]
pub fn forget(ctx: &LsmContext) {
    let _ = UNMOUNTED.remove(&ctx.arg::<u64>(0));
    let _ = OWN_TMPFS.remove(&ctx.arg::<u64>(0));
}
