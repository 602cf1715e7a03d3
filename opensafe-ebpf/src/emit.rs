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
    kernel::{Dentry, read_or_zero},
    maps::{Counters, SCRATCH, constant, count},
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
impl Body for opensafe_common::event::OpenFailedBody {}

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

/// The body of a record about a file; 0 for what it does not have.
#[inline(always)]
pub fn file_body(dentry: Dentry) -> FileBody {
    let superblock: u64 = read_or_zero(dentry.0 + u64::from(constant!(OFFSETS.dentry_sb)));
    let inode: u64 = read_or_zero(dentry.0 + u64::from(constant!(OFFSETS.dentry_inode)));
    let mode: u16 = read_or_zero(inode + u64::from(constant!(OFFSETS.inode_mode)));
    FileBody {
        magic: read_or_zero(superblock + u64::from(constant!(OFFSETS.sb_magic))),
        inode: read_or_zero(inode + u64::from(constant!(OFFSETS.inode_number))),
        dev: read_or_zero(superblock + u64::from(constant!(OFFSETS.sb_dev))),
        mode: u32::from(mode),
    }
}
