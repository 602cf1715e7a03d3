//! Whether what is done to a namespace's mounts shows in others.
//!
//! A namespace begins as a copy of another one, and its mounts as peers of those there (mount_namespaces(7)): what is
//! mounted on a mount that has peers, or taken away from it, is so on all of them. One that was made together with a
//! user namespace has none, and who wants none makes them private or slaves first.

use core::ffi::c_void;

use aya_ebpf::helpers::bpf_loop;

use crate::{
    kernel::{Mount, read},
    maps::constant,
};

/// Mounts that are looked at; whoever has more is taken to have one with peers.
const MAX_STEPS: u32 = 8192;

/// A walk over all mounts of a namespace.
struct Walk {
    /// The `struct mount` that it is at.
    at: u64,
    next: u64,
    answer: u64,
}

// What comes next.
/// Going up to the namespace's root.
const TO_ROOT: u64 = 1;
/// A mount that is seen for the first time.
const DOWN: u64 = 2;
/// One with everything below it seen.
const UP: u64 = 3;
// Answers.
const UNKNOWN: u64 = 4;
const NO: u64 = 5;
const YES: u64 = 6;

/// Whether any mount in the namespace of this one has both peers and other mounts on it. To take a whole tree of mounts
/// away (`MNT_DETACH`) takes each from the one around it. Not the tree alone is looked at: another thread may bind
/// something into it meanwhile, and a copy of what has peers is one more.
#[inline(always)]
pub fn any_spreads(mount: Mount) -> bool {
    walk_of_mounts(mount.whole(), TO_ROOT, UNKNOWN) != NO
}

/// The answer. A function that the verifier checks once; see [`crate::path`]. What the walk begins with are arguments, so
/// that they are any number to it: up to Linux 6.6 it follows a callback for one round only, and takes out what that round
/// cannot reach.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn walk_of_mounts(mount: u64, next: u64, answer: u64) -> u64 {
    let mut walk = Walk {
        at: mount,
        next,
        answer,
    };
    // SAFETY: the callback has the signature that bpf_loop wants, and `walk` outlives the call.
    unsafe { bpf_loop(MAX_STEPS, step as *mut c_void, (&raw mut walk).cast(), 0) };
    walk.answer
}

unsafe extern "C" fn step(_round: u32, context: *mut c_void) -> i64 {
    // SAFETY: `walk_of_mounts` passes its walk, and nobody else has it.
    let walk = unsafe { &mut *context.cast::<Walk>() };
    match go(walk) {
        Some(()) if walk.answer == UNKNOWN => 0,
        Some(()) => 1,
        None => {
            walk.answer = YES;
            1
        }
    }
}

/// `None` if something could not be read.
#[inline(always)]
fn go(walk: &mut Walk) -> Option<()> {
    let sibling = u64::from(constant!(OFFSETS.mount_sibling));
    let children = u64::from(constant!(OFFSETS.mount_children));
    if walk.next == DOWN {
        // The list's head is a member of the mount, and so is each link (`next_mnt` in fs/namespace.c).
        let first: u64 = read(walk.at + children)?;
        if first == walk.at + children {
            walk.next = UP;
            return Some(());
        }
        if read::<u32>(walk.at + u64::from(constant!(OFFSETS.mount_group)))? != 0 {
            walk.answer = YES;
            return Some(());
        }
        walk.at = first.wrapping_sub(sibling);
        return Some(());
    }
    let parent: u64 = read(walk.at + u64::from(constant!(OFFSETS.mount_parent)))?;
    if walk.next == TO_ROOT {
        if parent == walk.at {
            walk.next = DOWN;
        }
        walk.at = parent;
        return Some(());
    }
    if parent == walk.at {
        walk.answer = NO;
        return Some(());
    }
    let next: u64 = read(walk.at + sibling)?;
    if next == parent + children {
        walk.at = parent;
    } else {
        walk.at = next.wrapping_sub(sibling);
        walk.next = DOWN;
    }
    Some(())
}
