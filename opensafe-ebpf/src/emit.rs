//! The only place that builds a record and sends it, and counts what could not be sent.

mod send;
mod strings;

use core::mem::size_of;

use opensafe_common::{
    counter::Counter,
    event::{ConnectBody, FileBody, Header, Kind, flag},
    verdict::{Access, Verdict},
};

use crate::{
    kernel::Dentry,
    maps::{Counters, SCRATCH, count},
    scratch::{Claim, Sources},
    walk::{Walked, walk},
};

use send::{begin, send_from, send_without_strings};
use strings::read_strings;

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
    if !try_emit(report, body, args) {
        count(report.sandbox, Counter::LostNoScratch);
    }
}

/// Sends a record, unless there is no scratch memory to build it in: whether there was. If not, [`emit_without_path`] is to follow.
#[inline(always)]
pub fn try_emit<B: Body>(report: &Report, body: &B, args: (u64, u64)) -> bool {
    let Some(counters) = Counters::of(report.sandbox) else {
        return true;
    };
    counters.count(Counter::Seen);
    let Some(claim) = Claim::take(report.sandbox) else {
        return false;
    };
    counters.count(sent_or_full(build_and_send(claim, report, body, args)));
    true
}

/// Sends the record for which [`try_emit`] found no memory, without a path.
#[inline(always)]
pub fn emit_without_path<B: Body>(mut report: Report, body: &B) {
    report.flags |= flag::PATH_PARTIAL;
    let sent = send_without_strings(&report, body);
    count(report.sandbox, sent_or_full(sent));
}

/// Sends a record that is all header and body, which takes no scratch memory.
#[inline(always)]
pub fn emit_plain<B: Body>(report: &Report, body: &B) {
    count(report.sandbox, Counter::Seen);
    count(
        report.sandbox,
        sent_or_full(send_without_strings(report, body)),
    );
}

#[inline(always)]
fn sent_or_full(sent: bool) -> Counter {
    match sent {
        true => Counter::Sent,
        false => Counter::LostRingFull,
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
    let len = read_strings(claim.index(), walked);
    let sent = send_from(claim.index(), len) == 0;
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
