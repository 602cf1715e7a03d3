//! The only place that builds a record and sends it, and counts what could not be sent.

use core::{ffi::c_void, mem::size_of};

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_current_uid_gid, generated};
use opensafe_common::{
    counter::Counter,
    event::{
        ConnectBody, FileBody, Header, Kind, MAX_ARGS_BYTES, MAX_REQUESTED_BYTES, PAUSE_NS, flag,
    },
    verdict::{Access, Verdict},
};

use crate::{
    bound::{masked, zeroed},
    kernel::{Dentry, SystemCall, Task},
    maps::{Counters, EVENTS, SCRATCH, TOLD, constant},
    scratch::{Claim, PATH_END, RECORD_BYTES, Sources},
    walk::{Walked, walk},
};

/// Flags of bpf_ringbuf_output, and what bpf_ringbuf_query is asked for (include/uapi/linux/bpf.h).
const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;
const AVAIL_DATA: u64 = 0;
const RING_SIZE: u64 = 1;

/// What is common to all records.
#[derive(Clone, Copy)]
pub struct Report {
    /// What it is about.
    pub kind: Kind,
    /// Index of the sandbox.
    pub sandbox: u32,
    /// Id of the task's cgroup.
    pub cgroup: u64,
    /// Generation of the policy that decided.
    pub generation: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// [`flag`] bits.
    pub flags: u16,
    /// What was asked for.
    pub access: Access,
    /// Where the object is; 0 if it has no path.
    pub dentry: u64,
    /// The name as asked.
    pub requested: Requested,
}

/// Where the name as asked is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Requested {
    /// Nowhere.
    Unknown,
    /// In the arguments of the system call that the task is in.
    SystemCall,
    /// A NUL-terminated string at this kernel address.
    Kernel(u64),
    /// So many bytes at this kernel address.
    KernelBytes(u64, u32),
}

/// The body of a record.
pub trait Body: Copy {}
impl Body for FileBody {}
impl Body for ConnectBody {}
impl Body for opensafe_common::event::OperationBody {}
impl Body for opensafe_common::event::ForkBody {}
impl Body for opensafe_common::event::ExitBody {}

/// Sends a record. `args` is the range of user memory with the arguments, or empty.
#[inline(always)]
pub fn emit<B: Body>(report: &Report, body: &B, args: (u64, u64)) {
    emit_or_else(report, body, args, || Counter::LostNoScratch);
}

/// Sends a record about a file: without its path if there is no memory to find that in.
#[inline(always)]
pub fn emit_file(report: &Report) {
    let body = file_body(Dentry(report.dentry));
    emit_or_else(report, &body, (0, 0), || {
        let ids = u64::from(report.sandbox) | u64::from(report.generation) << 32;
        let what = u64::from(report.kind as u8)
            | u64::from(report.verdict as u8) << 8
            | u64::from(report.flags) << 16
            | u64::from(report.access.0) << 32;
        sent_or_full(send_without_path(report.cgroup, ids, what, report.dentry) == 0)
    });
}

/// Sends a record that is all header and body, which takes no scratch memory.
#[inline(always)]
pub fn emit_plain<B: Body>(report: &Report, body: &B) {
    let Some(counters) = Counters::of(report.sandbox) else {
        return;
    };
    counters.count(Counter::Seen);
    counters.count(sent_or_full(send_without_strings(report, body)));
}

#[inline(always)]
fn emit_or_else<B: Body>(
    report: &Report,
    body: &B,
    args: (u64, u64),
    no_scratch: impl FnOnce() -> Counter,
) {
    let Some(counters) = Counters::of(report.sandbox) else {
        return;
    };
    counters.count(Counter::Seen);
    counters.count(match Claim::take(report.sandbox) {
        None => no_scratch(),
        Some(claim) => sent_or_full(build_and_send(claim, report, body, args)),
    });
}

#[inline(always)]
fn sent_or_full(sent: bool) -> Counter {
    match sent {
        true => Counter::Sent,
        false => Counter::LostRingFull,
    }
}

/// For [`emit_file`]: 0 if it went out. A function that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn send_without_path(cgroup: u64, ids: u64, what: u64, dentry: u64) -> u64 {
    let (Some(kind), Some(verdict)) = (
        Kind::from_u8(what as u8),
        Verdict::from_u8((what >> 8) as u8),
    ) else {
        return 1;
    };
    let report = Report {
        kind,
        sandbox: ids as u32,
        cgroup,
        generation: (ids >> 32) as u32,
        verdict,
        flags: (what >> 16) as u16,
        access: Access((what >> 32) as u16),
        dentry,
        requested: Requested::Unknown,
    };
    let body = file_body(Dentry(dentry));
    let len = (size_of::<Header>() + size_of::<FileBody>()) as u64;
    // SAFETY: as in `send_without_strings`. There is no room on the stack to have all before it is reserved.
    unsafe {
        let Some(events) = EVENTS.get(&report.sandbox) else {
            return 1;
        };
        let events = core::ptr::from_ref(events).cast_mut().cast();
        let header = generated::bpf_ringbuf_reserve(events, len, 0).cast::<Header>();
        if header.is_null() {
            return 1;
        }
        begin(header, &report, &body);
        without_strings(header);
        sign(header, flag::PATH_PARTIAL);
        generated::bpf_ringbuf_submit(header.cast(), FORCE_WAKEUP);
    }
    0
}

/// Sends header and body, written where they are sent from. Whether it went out.
///
/// What is reserved in the ring buffer and not submitted yet keeps all that comes behind it from the reader, for as long as a
/// task is preempted there. So between the two there is nothing but stores.
#[inline(always)]
fn send_without_strings<B: Body>(report: &Report, body: &B) -> bool {
    let len = (size_of::<Header>() + size_of::<B>()) as u64;
    let teller = Teller::current();
    // SAFETY: the ring buffer lives as long as a program that has found it may run; what is reserved has room for header and
    // body, is nobody else's until it is submitted, and that it is on every way from here.
    unsafe {
        let Some(events) = EVENTS.get(&report.sandbox) else {
            return false;
        };
        let events = core::ptr::from_ref(events).cast_mut().cast();
        let urgent = is_urgent(report.flags, report.kind as u8);
        let wakeup = wakeup(events, report.sandbox, urgent, teller.time_ns, len);
        let header = generated::bpf_ringbuf_reserve(events, len, 0).cast::<Header>();
        if header.is_null() {
            return false;
        }
        begin(header, report, body);
        without_strings(header);
        teller.sign(header);
        generated::bpf_ringbuf_submit(header.cast(), wakeup);
    }
    true
}

/// # Safety
/// `header` must be valid for writing.
#[inline(always)]
unsafe fn without_strings(header: *mut Header) {
    // SAFETY: by the caller's promise.
    unsafe {
        (*header).path_len = 0;
        (*header).requested_len = 0;
        (*header).args_len = 0;
    }
}

/// Writes what the caller knows of a record.
///
/// # Safety
/// `header` must be valid for writing, with room for the body behind it.
#[inline(always)]
unsafe fn begin<B: Body>(header: *mut Header, report: &Report, body: &B) {
    // SAFETY: by the caller's promise.
    unsafe {
        (*header).cgroup = report.cgroup;
        (*header).sandbox = report.sandbox;
        (*header).generation = report.generation;
        (*header).kind = report.kind as u8;
        (*header).verdict = report.verdict as u8;
        (*header).flags = report.flags;
        (*header).access = report.access;
        header.add(1).cast::<B>().write_unaligned(*body);
    }
}

/// Who tells, and when.
struct Teller {
    time_ns: u64,
    ids: u64,
    users: u64,
    parent: u32,
    comm: [u64; 2],
}

/// [`Teller::sign`] for who has no room on the stack for one.
///
/// # Safety
/// `header` must be valid for reading and writing.
#[inline(always)]
unsafe fn sign(header: *mut Header, flags: u16) {
    // SAFETY: by the caller's promise; the helpers take no other memory.
    unsafe {
        let ids = bpf_get_current_pid_tgid();
        let users = bpf_get_current_uid_gid();
        (*header).time_ns = generated::bpf_ktime_get_boot_ns();
        (*header).pid = (ids >> 32) as u32;
        (*header).tid = ids as u32;
        (*header).parent_pid = Task::current()
            .parent()
            .and_then(Task::process)
            .unwrap_or(0);
        (*header).uid = users as u32;
        (*header).gid = (users >> 32) as u32;
        (*header).flags |= flags;
        generated::bpf_get_current_comm((&raw mut (*header).comm).cast(), 16);
    }
}

impl Teller {
    #[inline(always)]
    fn current() -> Self {
        let mut comm = zeroed::<2>();
        let parent = Task::current().parent().and_then(Task::process);
        // SAFETY: the helpers take no memory but `comm`, which has that many bytes.
        let time_ns = unsafe {
            generated::bpf_get_current_comm((&raw mut comm).cast(), 16);
            generated::bpf_ktime_get_boot_ns()
        };
        Self {
            time_ns,
            ids: bpf_get_current_pid_tgid(),
            users: bpf_get_current_uid_gid(),
            parent: parent.unwrap_or(0),
            comm,
        }
    }

    /// # Safety
    /// `header` must be valid for writing.
    #[inline(always)]
    unsafe fn sign(&self, header: *mut Header) {
        // SAFETY: by the caller's promise.
        unsafe {
            (*header).time_ns = self.time_ns;
            (*header).pid = (self.ids >> 32) as u32;
            (*header).tid = self.ids as u32;
            (*header).parent_pid = self.parent;
            (*header).uid = self.users as u32;
            (*header).gid = (self.users >> 32) as u32;
            (&raw mut (*header).comm)
                .cast::<[u64; 2]>()
                .write_unaligned(self.comm);
        }
    }
}

/// Whether it went out; gives the slot back.
#[inline(always)]
fn build_and_send<B: Body>(claim: Claim, report: &Report, body: &B, args: (u64, u64)) -> bool {
    // What was claimed is there.
    let Some(slot) = SCRATCH.get_ptr_mut(claim.index()) else {
        return false;
    };
    let (requested, requested_len) = report.requested.locate();
    // SAFETY: the slot is claimed, so nobody else touches it; header and body fit its record.
    unsafe {
        (*slot).sources = Sources {
            requested,
            requested_len,
            args_start: args.0,
            args_end: args.1,
            head: (size_of::<Header>() + size_of::<B>()) as u64,
        };
        begin((&raw mut (*slot).record).cast(), report, body);
    }
    let walked = if report.dentry == 0 {
        Walked::NOWHERE
    } else {
        walk(claim.index(), report.dentry)
    };
    let sent = complete_and_send(claim.index(), walked) == 0;
    // SAFETY: the slot that this claim is of.
    unsafe { claim.release_at(slot) };
    sent
}

/// The body of a record about a file.
#[inline(always)]
pub fn file_body(dentry: Dentry) -> FileBody {
    let mut body = FileBody {
        magic: 0,
        inode: 0,
        dev: 0,
        mode: 0,
    };
    if let Some(superblock) = dentry.superblock() {
        body.magic = superblock.magic().unwrap_or(0);
        body.dev = superblock.dev().unwrap_or(0);
    }
    if let Some(inode) = dentry.inode()
        && inode.0 != 0
    {
        body.inode = inode.number().unwrap_or(0);
        body.mode = u32::from(inode.mode().unwrap_or(0));
    }
    body
}

/// Fills in what is the same for all records, reads the strings, and sends: 0 if it went out. A
/// function that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn complete_and_send(index: u32, walked: u64) -> u64 {
    let Some(slot) = SCRATCH.get_ptr_mut(index) else {
        return 1;
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

        sign(header, flags);

        let len = masked::<0x7fff>(at as u64);
        if len > RECORD_BYTES {
            return 1;
        }
        // Whoever has no reader yet, or none any more, has no ring buffer.
        let Some(events) = EVENTS.get(&(*header).sandbox) else {
            return 1;
        };
        let events = core::ptr::from_ref(events).cast_mut().cast();
        let urgent = is_urgent((*header).flags, (*header).kind);
        let wakeup = wakeup(
            events,
            (*header).sandbox,
            urgent,
            (*header).time_ns,
            len as u64,
        );
        u64::from(generated::bpf_ringbuf_output(events, record.cast(), len as u64, wakeup) != 0)
    }
}

/// Denials, and programs that run.
#[inline(always)]
fn is_urgent(flags: u16, kind: u8) -> bool {
    flags & flag::ENFORCED != 0 || kind == Kind::Exec as u8
}

/// Whether the reader is to be woken for a record of that length: for what is urgent, after a pause, and lest the ring buffer fills
/// up. To be asked before there is room for it.
///
/// # Safety
/// `events` must be a ring buffer.
#[inline(always)]
unsafe fn wakeup(events: *mut c_void, sandbox: u32, urgent: bool, time_ns: u64, len: u64) -> u64 {
    let paused = has_paused(sandbox, time_ns);
    // SAFETY: by the caller's promise.
    match urgent || paused || unsafe { fills_an_eighth(events, len) } {
        true => FORCE_WAKEUP,
        false => NO_WAKEUP,
    }
}

/// Whether this comes after a pause, in which the reader looks ever less often. Tasks that tell at once may each take
/// themselves for the first.
#[inline(always)]
fn has_paused(sandbox: u32, now_ns: u64) -> bool {
    let Some(told) = TOLD.get_ptr_mut(sandbox) else {
        return true;
    };
    // SAFETY: a map value, aligned. Others read and write it whole.
    let last_ns = unsafe { told.read_volatile() };
    // SAFETY: as above.
    unsafe { told.write_volatile(now_ns) };
    now_ns.saturating_sub(last_ns) > PAUSE_NS
}

/// Whether with so many bytes more, another eighth of what the ring buffer has room for waits for the reader. Who writes at
/// the same time may pass one unseen, and there are eight.
///
/// # Safety
/// `events` must be a ring buffer.
#[inline(always)]
unsafe fn fills_an_eighth(events: *mut c_void, len: u64) -> bool {
    // SAFETY: by the caller's promise.
    let (waiting, size) = unsafe {
        (
            generated::bpf_ringbuf_query(events, AVAIL_DATA),
            generated::bpf_ringbuf_query(events, RING_SIZE),
        )
    };
    // The size is a power of two, so the bits from there on count eighths.
    let eighths = !(size / 8).wrapping_sub(1);
    (waiting ^ (waiting + len)) & eighths != 0
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
    fn locate(self) -> (u64, u64) {
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

/// User address of the path that the current system call was given; 0 if it is none that we know.
#[inline(always)]
fn requested_in_system_call() -> u64 {
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
