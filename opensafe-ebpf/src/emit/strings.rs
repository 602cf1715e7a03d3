//! The strings of a record: where the object is, the name as asked, the arguments.

use core::ffi::c_void;

use aya_ebpf::helpers::generated;
use opensafe_common::event::{Header, MAX_ARGS_BYTES, MAX_REQUESTED_BYTES, flag};

use super::Requested;
use crate::{
    bound::masked,
    kernel::SystemCall,
    maps::{SCRATCH, constant},
    scratch::{PATH_END, Sources},
    walk::Walked,
};

/// Reads the strings that a slot's sources name, and the path that was walked there, into its record; gives the record's length, 0
/// if there is none. A function that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn read_strings(index: u32, walked: u64) -> u64 {
    let Some(slot) = SCRATCH.get_ptr_mut(index) else {
        return 0;
    };
    // SAFETY: the slot is claimed by the caller, so nobody else touches it.
    let sources = unsafe { &(*slot).sources };
    let path = Walked::unpack(walked);
    let mut flags = if path.whole { 0 } else { flag::PATH_PARTIAL };
    // SAFETY: as above. Every offset below is at most 127 + 8,191 + 8,191 and every length at most
    // 8,191, which is within RECORD_BYTES; the masks say so to the verifier and take nothing from a
    // right value.
    unsafe {
        let record = (&raw mut (*slot).record).cast::<u8>();
        let header = record.cast::<Header>();
        let mut at = masked::<0x7f>(sources.head);

        let path_len = masked::<0x1fff>(u64::from(PATH_END.saturating_sub(path.start)));
        let from = (&raw const (*slot).path)
            .cast::<u8>()
            .add(masked::<0x1fff>(u64::from(path.start)));
        let path_len = match path_len {
            0 => 0,
            _ => or_zero(
                path_len,
                generated::bpf_probe_read_kernel(
                    record.add(at).cast(),
                    path_len as u32,
                    from.cast(),
                ),
            ),
        };
        at += masked::<0x1fff>(noted(&raw mut (*header).path_len, path_len));

        let requested_len = read_requested(record.add(at), sources);
        at += masked::<0x1fff>(noted(&raw mut (*header).requested_len, requested_len));

        let mut args_len = sources.args_end.saturating_sub(sources.args_start);
        if args_len > MAX_ARGS_BYTES as u64 {
            args_len = MAX_ARGS_BYTES as u64;
            flags |= flag::ARGS_TRUNCATED;
        }
        let args_len = masked::<0xfff>(args_len);
        let args_len = match args_len {
            0 => 0,
            _ => or_zero(
                args_len,
                generated::bpf_probe_read_user(
                    record.add(at).cast(),
                    args_len as u32,
                    sources.args_start as *const c_void,
                ),
            ),
        };
        at += masked::<0xfff>(noted(&raw mut (*header).args_len, args_len));

        (*header).flags |= flags;
        at as u64
    }
}

/// Notes a length in the header and takes it from there. To the verifier it then is any number, and what follows is
/// checked once, not for each way to it.
///
/// # Safety
/// `field` must be valid for reading and writing.
#[inline(always)]
unsafe fn noted(field: *mut u16, len: u64) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe {
        field.write_volatile(len as u16);
        u64::from(field.read_volatile())
    }
}

/// `len`, or 0 if the helper that was to read so many bytes failed.
#[inline(always)]
fn or_zero(len: usize, failed: i64) -> u64 {
    if failed == 0 { len as u64 } else { 0 }
}

/// Copies the name as asked to `to`; returns its bytes, without a terminating NUL.
///
/// # Safety
/// `to` must have room for 8,191 bytes.
#[inline(always)]
unsafe fn read_requested(to: *mut u8, sources: &Sources) -> u64 {
    const MAX: u32 = MAX_REQUESTED_BYTES as u32;
    let from = sources.requested as *const c_void;
    // SAFETY: by the caller's promise; the helpers check the source.
    let with_nul = unsafe {
        match sources.requested_len {
            0 => 0,
            Sources::KERNEL_STRING => generated::bpf_probe_read_kernel_str(to.cast(), MAX, from),
            Sources::USER_STRING => generated::bpf_probe_read_user_str(to.cast(), MAX, from),
            len => {
                let len = masked::<0xff>(len);
                match generated::bpf_probe_read_kernel(to.cast(), len as u32, from) {
                    0 => len as i64 + 1,
                    failed => failed,
                }
            }
        }
    };
    if with_nul > 1 && with_nul <= i64::from(MAX) {
        with_nul as u64 - 1
    } else {
        0
    }
}

impl Requested {
    /// Address and length for [`Sources`].
    #[inline(always)]
    pub(super) fn locate(self) -> (u64, u64) {
        match self {
            Self::Unknown => (0, 0),
            Self::Kernel(address) => (address, Sources::KERNEL_STRING),
            Self::KernelBytes(address, len) => (address, u64::from(len)),
            Self::SystemCall => match requested_in_system_call() {
                0 => (0, 0),
                address => (address, Sources::USER_STRING),
            },
        }
    }
}

/// User address of the path that the current system call was given; 0 if it is none that we know. A function that the verifier
/// checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn requested_in_system_call() -> u64 {
    let (first_at, second_at) = (constant!(OFFSETS.pt_regs_di), constant!(OFFSETS.pt_regs_si));
    let Some(call) = SystemCall::current() else {
        return 0;
    };
    if call.is_32_bit {
        return 0;
    }
    let field = |at: u32| call.register(at).unwrap_or(0);
    // arch/x86/entry/syscalls/syscall_64.tbl
    match call.number {
        // open, creat, execve, truncate, rename, mkdir, rmdir, link, unlink, mknod
        2 | 85 | 59 | 76 | 82 | 83 | 84 | 86 | 87 | 133 => field(first_at),
        // symlink: the new name is the second
        88 => field(second_at),
        // openat, openat2, execveat, mkdirat, mknodat, unlinkat, renameat, linkat, renameat2
        257 | 437 | 322 | 258 | 259 | 263 | 264 | 265 | 316 => field(second_at),
        _ => 0,
    }
}
