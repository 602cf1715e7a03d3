//! Walking up: from a dentry to its superblock's root, into a slot of scratch memory.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_loop, generated};
use opensafe_common::tables::MAX_PATH_BYTES;

use crate::{
    bound::masked,
    kernel::{Dentry, rename_sequence},
    maps::SCRATCH,
    scratch::{PATH_BYTES, PATH_END},
};

/// Components that a path of [`MAX_PATH_BYTES`] can have, and one to find the root.
const MAX_COMPONENTS: u32 = MAX_PATH_BYTES as u32 / 2 + 1;

/// Bytes of the longest name that is read; one less than a power of two. NAME_MAX is 255, but that is each file system's to
/// keep: FUSE has names of 1,024 bytes and more (`FUSE_NAME_MAX` in fs/fuse/fuse_i.h), and those of 255 UTF-16 units, such
/// as exFAT, take up to 765. What is longer has no path.
pub const LONGEST_NAME: i32 = 0x7ff;

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
    let len = head.name_len();
    if len > LONGEST_NAME as u32 {
        walk.failed = 1;
        return 1;
    }
    let len = masked::<LONGEST_NAME>(u64::from(len)) as u32;
    let start = walk.start.wrapping_sub(len + 1);
    if !(256..PATH_END).contains(&start) {
        walk.failed = 1; // over MAX_PATH_BYTES
        return 1;
    }
    let at = masked::<{ PATH_BYTES as i32 - 1 }>(u64::from(start));
    // SAFETY: `at` is below PATH_END = 4,352 and `len` below 2,048, so 1 + `len` bytes from `at` lie in
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
