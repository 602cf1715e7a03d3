//! A record goes out: who tells, and whether the reader is woken for it.

use core::{ffi::c_void, mem::size_of};

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_current_uid_gid, generated};
use opensafe_common::event::{Header, PAUSE_NS, flag};

use super::{Body, Report};
use crate::{
    bound::{masked, zeroed},
    kernel::Task,
    maps::{EVENTS, SCRATCH, TOLD},
    scratch::RECORD_BYTES,
};

/// Flags of bpf_ringbuf_output, and what bpf_ringbuf_query is asked for (include/uapi/linux/bpf.h).
const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;
const AVAIL_DATA: u64 = 0;
const RING_SIZE: u64 = 1;

/// Who tells, and when.
struct Teller {
    time_ns: u64,
    ids: u64,
    users: u64,
    parent: u32,
    comm: [u64; 2],
}

/// Sends the record of that length that was built in a slot: 0 if it went out. A function that the verifier checks once; see
/// [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn send_from(index: u32, len: u64) -> u64 {
    let len = masked::<0x7fff>(len);
    let Some(slot) = SCRATCH.get_ptr_mut(index) else {
        return 1;
    };
    if len == 0 || len > RECORD_BYTES {
        return 1;
    }
    let teller = Teller::current();
    // SAFETY: the slot is claimed by the caller, so nobody else touches it; the ring buffer lives as long as a program that has
    // found it may run.
    unsafe {
        let header = (&raw mut (*slot).record).cast::<Header>();
        teller.sign(header);
        // Whoever has no reader yet, or none any more, has no ring buffer.
        let Some(events) = EVENTS.get(&(*header).sandbox) else {
            return 1;
        };
        let events = core::ptr::from_ref(events).cast_mut().cast();
        let urgent = (*header).flags & flag::ENFORCED != 0;
        let wakeup = wakeup(
            events,
            (*header).sandbox,
            urgent,
            teller.time_ns,
            len as u64,
        );
        u64::from(generated::bpf_ringbuf_output(events, header.cast(), len as u64, wakeup) != 0)
    }
}

/// Sends header and body, written where they are sent from. Whether it went out.
///
/// What is reserved in the ring buffer and not submitted yet keeps all that comes behind it from the reader, for as long as a
/// task is preempted there. So between the two there is nothing but stores.
#[inline(always)]
pub(super) fn send_without_strings<B: Body>(report: &Report, body: &B) -> bool {
    let len = (size_of::<Header>() + size_of::<B>()) as u64;
    let teller = Teller::current();
    // SAFETY: the ring buffer lives as long as a program that has found it may run; what is reserved has room for header and
    // body, is nobody else's until it is submitted, and that it is on every way from here.
    unsafe {
        let Some(events) = EVENTS.get(&report.sandbox) else {
            return false;
        };
        let events = core::ptr::from_ref(events).cast_mut().cast();
        let urgent = report.flags & flag::ENFORCED != 0;
        let wakeup = wakeup(events, report.sandbox, urgent, teller.time_ns, len);
        let header = generated::bpf_ringbuf_reserve(events, len, 0).cast::<Header>();
        if header.is_null() {
            return false;
        }
        begin(header, report, body);
        (*header).path_len = 0;
        (*header).requested_len = 0;
        (*header).args_len = 0;
        teller.sign(header);
        generated::bpf_ringbuf_submit(header.cast(), wakeup);
    }
    true
}

/// Writes what the caller knows of a record.
///
/// # Safety
/// `header` must be valid for writing, with room for the body behind it.
#[inline(always)]
pub(super) unsafe fn begin<B: Body>(header: *mut Header, report: &Report, body: &B) {
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

/// Whether the reader is to be woken for a record of that length: for a denial, after a pause, and lest the ring buffer fills up.
/// Else it comes by soon. To be asked before there is room for the record.
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
