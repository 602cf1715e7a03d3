//! Which superblock is which: where the automata start for it.
//!
//! The tables know most by their device numbers, and those are given out again: when a file system goes, the next one that
//! is mounted may get its number. So it is noted for each new superblock after which look at the mounts it came, and
//! what a policy has for its number counts only if the policy comes from a later look.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    counter::Counter,
    room::Room,
    tables::{LATEST_LOOK, MAX_SUPERBLOCKS, Start, SuperblockKey, UNNOTED_LOOK, sandbox_of_policy},
};

use crate::{
    actor::{SandboxId, current_sandbox},
    kernel::Superblock,
    maps::{LOOKS, MADE, NOBODYS, OWN_TMPFS, POLICIES, SUPERBLOCKS, UNMOUNTED, count},
    room,
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
    if magic == SuperblockKey::TMPFS_MAGIC {
        // Asked here, as only eight functions may be in each other on Linux 6.1.
        let anothers = is_anothers(policy, superblock.dev()?);
        return unpack(own_tmpfs_start(policy, superblock.0, anothers));
    }
    let by_magic = SuperblockKey {
        policy,
        by: SuperblockKey::BY_MAGIC,
        id: magic,
    };
    // SAFETY: as above.
    unsafe { SUPERBLOCKS.get(&by_magic) }.copied()
}

/// No automaton is that large.
const NOWHERE: u64 = u64::MAX;

/// Where the automata start for a tmpfs that the sandbox has made, both numbers in one; [`NOWHERE`] for one that it has not. What
/// the sandbox calls a tmpfs in a namespace of its own holds for such alone: of any other it chooses the name as well, by
/// mounting it there, and not what is in it. A function that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn own_tmpfs_start(policy: u32, superblock: u64, number_is_anothers: u64) -> u64 {
    if !is_own_tmpfs(policy, superblock) {
        return NOWHERE;
    }
    let device = Superblock(superblock).dev().unwrap_or(0);
    let mut own = SuperblockKey {
        policy,
        by: SuperblockKey::BY_OWN_TMPFS,
        id: u64::from(device),
    };
    // SAFETY: as in `start`.
    if let Some(start) = unsafe { SUPERBLOCKS.get(&own) }
        && number_is_anothers == 0
    {
        return pack(*start);
    }
    own.id = 0;
    // SAFETY: as in `start`.
    unsafe { SUPERBLOCKS.get(&own) }.map_or(NOWHERE, |start| pack(*start))
}

#[inline(always)]
fn pack(start: Start) -> u64 {
    u64::from(start.anchored) | u64::from(start.floating) << 32
}

#[inline(always)]
fn unpack(packed: u64) -> Option<Start> {
    (packed != NOWHERE).then_some(Start {
        anchored: packed as u32,
        floating: (packed >> 32) as u32,
    })
}

#[inline(always)]
fn is_own_tmpfs(policy: u32, superblock: u64) -> bool {
    // SAFETY: the value, one aligned u32, is copied out.
    unsafe { OWN_TMPFS.get(&superblock) }.copied() == Some(sandbox_of_policy(policy))
}

/// 1 for a tmpfs that the sandbox has made and that the policy's tables have no name for yet, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn is_own_and_unnamed(policy: u32, superblock: u64) -> u64 {
    if !is_own_tmpfs(policy, superblock) {
        return 0;
    }
    let device = Superblock(superblock).dev().unwrap_or(0);
    let mut by_device = SuperblockKey {
        policy,
        by: SuperblockKey::BY_TMPFS_DEVICE,
        id: u64::from(device),
    };
    // SAFETY: only whether it is there matters.
    let in_view = unsafe { SUPERBLOCKS.get(&by_device) }.is_some();
    by_device.by = SuperblockKey::BY_OWN_TMPFS;
    // SAFETY: as above.
    let named = in_view || unsafe { SUPERBLOCKS.get(&by_device) }.is_some();
    u64::from(!named || is_anothers(policy, device) != 0)
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

/// Notes that a superblock is there and not mounted yet: the argument of `sb_alloc_security`. A sandbox that has used up its
/// share of the room for that makes no more.
#[inline(always)]
pub fn made(ctx: &LsmContext) -> i32 {
    let sandbox = current_sandbox().map(|sandbox| sandbox.0);
    if let Some(sandbox) = sandbox
        && !room::take(sandbox, Room::Unmounted)
    {
        return no_room(sandbox);
    }
    let noted = UNMOUNTED.insert(&ctx.arg::<u64>(0), &sandbox.unwrap_or(NOBODYS), 0);
    match (noted, sandbox) {
        (Ok(()), _) => 0,
        (Err(_), Some(sandbox)) => {
            room::give_back(sandbox, Room::Unmounted);
            no_room(sandbox)
        }
        (Err(_), None) => {
            doubt_all();
            0
        }
    }
}

#[inline(always)]
fn no_room(sandbox: u32) -> i32 {
    count(sandbox, Counter::NoRoom);
    -ENOMEM
}

/// Takes back that it is not mounted yet. Whether it was not.
#[inline(always)]
fn is_first_mount(superblock: u64) -> bool {
    // SAFETY: the value, one aligned u32, is copied out.
    let Some(sandbox) = unsafe { UNMOUNTED.get(&superblock) }.copied() else {
        return false;
    };
    if UNMOUNTED.remove(&superblock).is_err() {
        return false; // somebody else did
    }
    if sandbox != NOBODYS {
        room::give_back(sandbox, Room::Unmounted);
    }
    true
}

/// Notes that a superblock's device number is new: the argument of `sb_kern_mount`. One that is mounted already, and is
/// mounted once more, is not new.
#[inline(always)]
pub fn note(ctx: &LsmContext) -> i32 {
    let superblock = Superblock(ctx.arg::<u64>(0));
    // Each mount, and whoever is about to make one, has a reference; mount(2) of newer kernels (7.2, not 6.12) has made its
    // mount by then. Of what was made before these programs were there, references are all that is known.
    let is_first = is_first_mount(superblock.0);
    if !is_first && superblock.references().is_some_and(|count| count > 1) {
        return 0;
    }
    let device = superblock.dev();
    let sandbox = current_sandbox();
    if let Some(SandboxId(sandbox)) = sandbox
        && device.is_some_and(is_of_the_upper_half)
    {
        return no_room(sandbox);
    }
    if device.is_some_and(|device| note_device(device) && note_device(device)) {
        return 0;
    }
    if let Some(SandboxId(sandbox)) = sandbox {
        return no_room(sandbox);
    }
    doubt_all();
    0
}

/// Whether this is one of the numbers for file systems without a device that are given out when half of those that can be noted
/// are there already: what sandboxes make leaves the other half to what is outside. Each such number is the lowest that is free
/// (`get_anon_bdev` in fs/super.c), and all have 0 for a major number.
#[inline(always)]
fn is_of_the_upper_half(device: u32) -> bool {
    const MINORS: u32 = 1 << 20;
    (MAX_SUPERBLOCKS / 2..MINORS).contains(&device)
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
    let superblock = ctx.arg::<u64>(0);
    is_first_mount(superblock);
    // SAFETY: the value, one aligned u32, is copied out.
    if let Some(sandbox) = unsafe { OWN_TMPFS.get(&superblock) }.copied()
        && OWN_TMPFS.remove(&superblock).is_ok()
    {
        room::give_back(sandbox, Room::Tmpfs);
    }
}
