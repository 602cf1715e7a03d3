//! The calls of bpf(2) that aya makes for programs of its own kinds only: to load one that runs before a function of the
//! kernel, to attach it, and to hold what is attached.

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use aya_obj::generated::{
    bpf_attach_type, bpf_cmd,
    bpf_cmd::{BPF_BTF_LOAD, BPF_OBJ_PIN, BPF_PROG_LOAD, BPF_RAW_TRACEPOINT_OPEN},
    bpf_insn,
    bpf_prog_type::BPF_PROG_TYPE_TRACING,
};
use nix::libc;
use zerocopy::{FromZeros, Immutable, IntoBytes, KnownLayout};

/// A program that is attached to a function of the kernel (`BPF_PROG_TYPE_TRACING`).
pub(super) struct Tracing<'a> {
    /// What tools call it: of a longer name, the first 15 bytes.
    pub(super) name: &'a str,
    /// Its instructions, with maps and functions relocated.
    pub(super) instructions: &'a [bpf_insn],
    /// Its licence.
    pub(super) license: &'a CStr,
    /// How it is attached.
    pub(super) attach: bpf_attach_type,
    /// The function, by its number among the types of the running kernel.
    pub(super) function: u32,
    /// The object's types.
    pub(super) types: BorrowedFd<'a>,
    /// What type each of its functions has.
    pub(super) functions: &'a [u8],
    /// Bytes of what is said of one function.
    pub(super) function_bytes: usize,
}

/// The kernel's reason, and the verifier's words if they were asked for.
pub(super) struct Refusal {
    pub(super) error: io::Error,
    pub(super) log: String,
}

/// Loads an object's types. Linux ≥ 4.18.
pub(super) fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let load = BtfLoad {
        types: address(types),
        bytes: length(types)?,
        ..BtfLoad::new_zeroed()
    };
    descriptor(BPF_BTF_LOAD, &load)
}

/// Loads a program; with `log_bytes`, the verifier has that much room for its words. Linux ≥ 5.5.
pub(super) fn load_program(program: &Tracing<'_>, log_bytes: usize) -> Result<OwnedFd, Refusal> {
    let mut log = vec![0_u8; log_bytes];
    let loaded = prog_load(program, &mut log).and_then(|load| descriptor(BPF_PROG_LOAD, &load));
    loaded.map_err(|error| Refusal {
        error,
        log: CStr::from_bytes_until_nul(&log).map_or_else(
            |_| String::new(),
            |said| said.to_string_lossy().into_owned(),
        ),
    })
}

fn prog_load(program: &Tracing<'_>, log: &mut [u8]) -> io::Result<ProgLoad> {
    let mut name = [0; NAME_BYTES];
    for (to, from) in name
        .iter_mut()
        .take(NAME_BYTES - 1)
        .zip(program.name.bytes())
    {
        *to = from;
    }
    let function_bytes = program.function_bytes.max(1);
    Ok(ProgLoad {
        program_type: BPF_PROG_TYPE_TRACING as u32,
        instruction_count: length(program.instructions)?,
        instructions: address(program.instructions),
        license: program.license.as_ptr().expose_provenance() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: length(log)?,
        log: if log.is_empty() {
            0
        } else {
            log.as_mut_ptr().expose_provenance() as u64
        },
        name,
        expected_attach_type: program.attach as u32,
        types: descriptor_number(program.types),
        function_bytes: count(function_bytes)?,
        functions: address(program.functions),
        function_count: count(program.functions.len() / function_bytes)?,
        attach_btf_id: program.function,
        ..ProgLoad::new_zeroed()
    })
}

/// Attaches a program to its function; it stays so as long as there is a reference to what comes back. Linux ≥ 5.5.
pub(super) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let open = RawTracepointOpen {
        program: descriptor_number(program),
        ..RawTracepointOpen::new_zeroed()
    };
    descriptor(BPF_RAW_TRACEPOINT_OPEN, &open)
}

/// Holds a link or a map in a BPF file system, under a name that is free.
pub(super) fn pin(object: &impl AsFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let pin = ObjPin {
        path: path.as_ptr().expose_provenance() as u64,
        object: descriptor_number(object.as_fd()),
        flags: 0,
    };
    bpf(BPF_OBJ_PIN, &pin).map(drop)
}

// Beginnings of `union bpf_attr` (include/uapi/linux/bpf.h). What is not there is 0 to the kernel.

#[derive(FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ProgLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
    interface: u32,
    expected_attach_type: u32,
    types: u32,
    function_bytes: u32,
    functions: u64,
    function_count: u32,
    line_bytes: u32,
    lines: u64,
    line_count: u32,
    attach_btf_id: u32,
}

#[derive(FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BtfLoad {
    types: u64,
    log: u64,
    bytes: u32,
    log_bytes: u32,
    log_level: u32,
    log_true_bytes: u32,
}

#[derive(FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    padding: u32,
}

#[derive(FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ObjPin {
    path: u64,
    object: u32,
    flags: u32,
}

/// `BPF_OBJ_NAME_LEN`.
const NAME_BYTES: usize = 16;

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr().expose_provenance() as u64
}

fn length<T>(of: &[T]) -> io::Result<u32> {
    count(of.len())
}

fn count(of: usize) -> io::Result<u32> {
    u32::try_from(of).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

#[expect(clippy::cast_sign_loss, reason = "an open descriptor is not negative")]
fn descriptor_number(of: BorrowedFd<'_>) -> u32 {
    of.as_raw_fd() as u32
}

/// A command that gives a descriptor.
fn descriptor(command: bpf_cmd, attributes: &(impl IntoBytes + Immutable)) -> io::Result<OwnedFd> {
    let number = bpf(command, attributes)?;
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the commands that are given here (BPF_BTF_LOAD, BPF_PROG_LOAD, BPF_RAW_TRACEPOINT_OPEN) make a new descriptor for
    // the caller, close-on-exec, and give its number if they succeed; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn bpf(command: bpf_cmd, attributes: &(impl IntoBytes + Immutable)) -> io::Result<libc::c_long> {
    let bytes = attributes.as_bytes();
    // SAFETY: the kernel reads that many bytes of attributes, all of them initialised (`IntoBytes`), and copies them. The
    // addresses in them are of what the callers, all in this file, have borrowed or own until this returns, with true lengths or
    // a NUL at the end; the kernel reads there. It writes to one alone, the log, which is its caller's own, whose address was taken
    // for that, and which is not looked at before this returns. It keeps none of them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            bytes.as_ptr(),
            bytes.len(),
        )
    };
    match done {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use aya_obj::generated::{
        bpf_attr__bindgen_ty_4, bpf_attr__bindgen_ty_5, bpf_attr__bindgen_ty_11,
        bpf_attr__bindgen_ty_12,
    };

    use super::*;

    #[test]
    fn attributes_lie_where_the_kernel_reads_them() {
        macro_rules! alike {
            ($ours:ident, $theirs:ident: $($field:ident = $member:ident),*) => {$(
                assert_eq!(
                    offset_of!($ours, $field),
                    offset_of!($theirs, $member),
                    stringify!($field)
                );
            )*};
        }
        alike!(ProgLoad, bpf_attr__bindgen_ty_4: program_type = prog_type, instruction_count = insn_cnt,
            instructions = insns, license = license, log_level = log_level, log_bytes = log_size, log = log_buf,
            flags = prog_flags, name = prog_name, expected_attach_type = expected_attach_type, types = prog_btf_fd,
            function_bytes = func_info_rec_size, functions = func_info, function_count = func_info_cnt,
            line_bytes = line_info_rec_size, lines = line_info, line_count = line_info_cnt,
            attach_btf_id = attach_btf_id);
        alike!(BtfLoad, bpf_attr__bindgen_ty_12: types = btf, log = btf_log_buf, bytes = btf_size,
            log_bytes = btf_log_size, log_level = btf_log_level);
        alike!(RawTracepointOpen, bpf_attr__bindgen_ty_11: name = name, program = prog_fd);
        alike!(ObjPin, bpf_attr__bindgen_ty_5: path = pathname, object = bpf_fd, flags = file_flags);
    }
}
