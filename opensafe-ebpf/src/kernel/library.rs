//! Whether a file is called like a shared library.

use aya_ebpf::helpers::{bpf_loop, generated};

use super::Dentry;
use crate::bound::{masked, zeroed};

impl Dentry {
    /// Whether it is called like a shared library: `….so`, `….so.6`. Not for names that are longer than any
    /// library's.
    #[inline(always)]
    pub fn is_library(self) -> bool {
        is_library(self.0) == 1
    }
}

/// [`Dentry::is_library`], as a function of its own for its stack's sake.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn is_library(dentry: u64) -> u64 {
    u64::from(is_called_library(Dentry(dentry)))
}

#[inline(always)]
fn is_called_library(dentry: Dentry) -> bool {
    let Some(head) = dentry.head() else {
        return false;
    };
    let len = head.name_len();
    if len as usize > LIBRARY_NAME_BYTES {
        return false;
    }
    let mut looking = Looking {
        name: zeroed::<{ LIBRARY_NAME_BYTES / 8 + 1 }>(),
        found: 0,
    };
    let len = masked::<0x3f>(u64::from(len)) as u32;
    // SAFETY: `len` is below the buffer's size; the helper checks the source. The callback has the
    // signature that bpf_loop wants, and `looking` outlives the call.
    unsafe {
        let failed = generated::bpf_probe_read_kernel(
            looking.name.as_mut_ptr().cast(),
            len,
            head.name() as *const core::ffi::c_void,
        );
        if failed != 0 {
            return false;
        }
        bpf_loop(
            len,
            look_for_so as *mut core::ffi::c_void,
            (&raw mut looking).cast(),
            0,
        );
    }
    looking.found != 0
}

/// Names of libraries are shorter.
const LIBRARY_NAME_BYTES: usize = 63;

/// A name in which `.so` is looked for, with zeroes after it.
struct Looking {
    name: [u64; LIBRARY_NAME_BYTES / 8 + 1],
    found: u64,
}

unsafe extern "C" fn look_for_so(round: u32, context: *mut core::ffi::c_void) -> i64 {
    // SAFETY: `is_library` passes its `Looking`, which nobody else has.
    let looking = unsafe { &mut *context.cast::<Looking>() };
    let at = masked::<0x3f>(u64::from(round));
    // SAFETY: `at` is at most 63 and the three bytes after it are still in the struct: `found` follows.
    let byte = |more: usize| unsafe { *(&raw const *looking).cast::<u8>().add(at + more) };
    let ends = byte(3) == 0 || byte(3) == b'.';
    if byte(0) == b'.' && byte(1) == b's' && byte(2) == b'o' && ends {
        looking.found = 1;
        return 1;
    }
    0
}
