//! What every hook does, said once: who is asking, the verdict, the record, the errno.

mod operation;

use opensafe_common::{
    event::{ConnectBody, Kind, flag},
    verdict::{Access, Verdict},
};

use crate::{
    actor::Actor,
    decide::{self, Decision},
    emit::{Report, Requested, emit, emit_plain, emit_without_path, file_body, try_emit},
    kernel::{Dentry, Inode, S_IFLNK, S_IFMT, S_IFREG, current_memory},
    known::{Known, KnownTask, process},
    maps::{REPORTED, ReportKey, ReportedFile, constant},
    path,
};

pub use decide::By;
pub use operation::{operation, plain_operation};

/// A question about an object with a path.
#[derive(Clone, Copy)]
pub struct PathRequest {
    /// The object.
    pub dentry: Dentry,
    /// What is to be done with it.
    pub access: Access,
    /// What a record about it is.
    pub kind: Kind,
    /// More [`flag`]s for the record.
    pub flags: u16,
    /// Which part of the policy answers.
    pub by: By,
}

impl PathRequest {
    /// Doing `access` to the file at `dentry`, by the whole policy.
    #[inline(always)]
    pub const fn change(dentry: Dentry, access: Access) -> Self {
        Self {
            dentry,
            access,
            kind: Kind::File,
            flags: 0,
            by: By::Policy,
        }
    }
}

/// Runs a hook: lets everyone outside pass, asks `hook` for those inside.
#[inline(always)]
pub fn gate(hook: impl FnOnce(&Actor) -> i32) -> i32 {
    match Actor::current() {
        None => 0,
        Some(actor) => hook(&actor),
    }
}

/// [`gate`] of a hook that is called all the time: dearer to load, and quicker.
#[inline(always)]
pub fn busy_gate(hook: impl FnOnce(&Actor) -> i32) -> i32 {
    match Actor::current_of_busy_hook() {
        None => 0,
        Some(actor) => hook(&actor),
    }
}

/// Decides a question about a path, and puts it on record.
#[inline(always)]
pub fn path(actor: &Actor, request: &PathRequest) -> i32 {
    match ask(actor, request) {
        Answer::Refused => decide::REFUSED,
        Answer::Silent | Answer::Reported => 0,
    }
}

/// [`path`] of an object that the verifier knows as `known`. What is allowed at a place that was asked about before,
/// and is on record already, passes at once; all else is asked as if there were no such way.
#[inline(always)]
pub fn known_path(actor: &Actor, known: Known, request: &PathRequest) -> i32 {
    match passes(known, request.pack(), actor.pack()) {
        0 => path(actor, request),
        _ => 0,
    }
}

/// 1 where [`path_gate`] would surely allow it and put nothing on record. A function for the sake of its stack, and
/// not a global one: it takes a pointer that is known.
#[inline(never)]
extern "C" fn passes(known: Known, request: u64, actor: u64) -> u64 {
    let Some(actor) = Actor::unpack(actor, 0) else {
        return 0;
    };
    let request = PathRequest::unpack(Dentry(0), request);
    let task = KnownTask::current();
    let Some(word) = path::known_word(actor.policy, &task, known) else {
        return 0;
    };
    let decision = decide::by_word(&actor, Some(word), request.access, request.by);
    if decision.verdict as u8 != Verdict::Allow as u8 {
        return 0;
    }
    if request.access.changes() {
        let inode = Inode(task.number_of(known.follow(constant!(OFFSETS.dentry_inode))));
        if inode.0 == 0 || decide::is_record(inode) {
            return 0;
        }
    }
    let news = request.kind as u8 == Kind::File as u8
        && is_known_news(&actor, &task, known, request.access);
    u64::from(!news)
}

/// As [`is_news`], without noting it.
#[inline(always)]
fn is_known_news(actor: &Actor, task: &KnownTask, known: Known, access: Access) -> bool {
    let inode = known.follow(constant!(OFFSETS.dentry_inode));
    let file = ReportedFile {
        inode: task.number_of(inode),
        number: inode.get(constant!(OFFSETS.inode_number)),
        generation: inode.get(constant!(OFFSETS.inode_generation)),
        access,
    };
    let pid = task.pointer.get(constant!(OFFSETS.task_tgid));
    let key = ReportKey::file(task.memory(), pid, actor.policy, &file);
    // SAFETY: only whether it is there matters.
    unsafe { REPORTED.get(&key) }.is_none()
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is allowed, and need not be on record.
    Silent,
    /// It goes ahead and is on record: it is audited, or denied in observe mode.
    Reported,
    /// It is refused.
    Refused,
}

/// As [`path`], for who wants to know more than the errno.
#[inline(always)]
pub fn ask(actor: &Actor, request: &PathRequest) -> Answer {
    match path_gate(request.dentry.0, request.pack(), actor.pack(), actor.cgroup) {
        0 => Answer::Silent,
        1 => Answer::Refused,
        _ => Answer::Reported,
    }
}

/// Reports that a tentative denial of this thread did not take place.
#[inline(always)]
pub fn withdraw(actor: &Actor) {
    let request = PathRequest {
        kind: Kind::NotCreated,
        ..PathRequest::change(Dentry(0), Access::CREATE)
    };
    let allowed = Decision {
        verdict: Verdict::Allow,
        nameless: false,
    };
    put_on_record(actor, Dentry(0), &request, allowed);
}

/// [`path`], as a function that the verifier checks once; see [`crate::path`]. 1 if
/// refused, 2 if a verdict other than allow goes ahead, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn path_gate(dentry: u64, request: u64, actor: u64, cgroup: u64) -> u64 {
    // The policy was there when the actor was made out, and policies are never taken out.
    let Some(actor) = Actor::unpack(actor, cgroup) else {
        return 0;
    };
    let actor = &actor;
    let mut request = PathRequest::unpack(Dentry(dentry), request);
    let mut decision = decide::at_path(actor, request.dentry, request.access, request.by);
    if decision.verdict as u8 != Verdict::Deny as u8
        && request.access.changes()
        && decide::is_ours(request.dentry)
    {
        decision = Decision::of_record();
        request.flags |= flag::RECORD;
    }
    let request = &request;
    if decision.verdict as u8 != Verdict::Allow as u8 || is_news(actor, request) {
        put_on_record(actor, Dentry(dentry), request, decision);
    }
    if decision.refuses(actor) {
        1
    } else if decision.verdict as u8 != Verdict::Allow as u8 {
        2
    } else {
        0
    }
}

/// Refuses to give what is at `old` the name `new` if the sandbox might do something with it there
/// that it is denied where it is.
#[inline(always)]
pub fn not_laxer(actor: &Actor, old: Dentry, new: Dentry) -> i32 {
    let mut gained = decide::gained(actor.policy_index, old.0, new.0) as u16;
    if matches!(old.mode() & S_IFMT, S_IFREG | S_IFLNK) {
        // Nobody connects to a file, and it has no device's commands, wherever it is; what a link leads to is asked where
        // that is.
        gained &= !Access::UNIX.union(Access::IOCTL).0;
    }
    let gained = Access(gained);
    if gained.is_empty() {
        return 0;
    }
    change(actor, old, gained)
}

/// Decides a change to what is at `dentry`.
#[inline(always)]
pub fn change(actor: &Actor, dentry: Dentry, access: Access) -> i32 {
    path(actor, &PathRequest::change(dentry, access))
}

/// Refuses what rules on other paths than `dentry` forbid, and puts it on record there.
#[inline(always)]
pub fn refuse(actor: &Actor, dentry: Dentry, access: Access, flags: u16) -> i32 {
    let request = PathRequest {
        flags,
        ..PathRequest::change(dentry, access)
    };
    let decision = Decision {
        verdict: Verdict::Deny,
        nameless: false,
    };
    put_on_record(actor, dentry, &request, decision);
    decision.errno(actor)
}

/// Puts a decision about a path on record, and if there is no memory to find that path in, without it.
#[inline(always)]
fn put_on_record(actor: &Actor, dentry: Dentry, request: &PathRequest, decision: Decision) {
    let (request, cgroup) = (request.pack(), actor.cgroup);
    let (actor, decision) = (actor.pack(), decision.pack());
    if path_report(dentry.0, request, actor, cgroup, decision) != 0 {
        pathless_report(dentry.0, request, actor, cgroup, decision);
    }
}

/// Puts a decision about a path on record: 1 if there is no memory to find that path in. A function that the verifier checks
/// once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn path_report(
    dentry: u64,
    request: u64,
    actor: u64,
    cgroup: u64,
    decision: u32,
) -> u64 {
    let Some(actor) = Actor::unpack(actor, cgroup) else {
        return 0;
    };
    let decision = Decision::unpack(decision);
    let denied = decision.verdict as u8 == Verdict::Deny as u8;
    let (nameless, denied) = (u32::from(decision.nameless), u32::from(denied));
    if path::wants_a_name(actor.policy_index, dentry, nameless, denied) != 0 {
        nameless_report(dentry, request, actor.pack(), cgroup);
    }
    let report = report_on_path(&actor, dentry, request, decision);
    u64::from(!try_emit(&report, &file_body(Dentry(dentry)), (0, 0)))
}

/// Tells the agent of a superblock, for which it may find a name and compile that in. A function that the verifier checks once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn nameless_report(dentry: u64, request: u64, actor: u64, cgroup: u64) -> u64 {
    if let Some(actor) = Actor::unpack(actor, cgroup) {
        let nobodys = Decision {
            verdict: Verdict::Allow,
            nameless: false,
        };
        let report = Report {
            kind: Kind::UnknownSuperblock,
            flags: 0,
            requested: Requested::Unknown,
            ..report_on_path(&actor, dentry, request, nobodys)
        };
        emit(&report, &file_body(Dentry(dentry)), (0, 0));
    }
    0
}

/// [`path_report`] without the path, and without memory for it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn pathless_report(
    dentry: u64,
    request: u64,
    actor: u64,
    cgroup: u64,
    decision: u32,
) -> u64 {
    if let Some(actor) = Actor::unpack(actor, cgroup) {
        let report = report_on_path(&actor, dentry, request, Decision::unpack(decision));
        emit_without_path(report, &file_body(Dentry(dentry)));
    }
    0
}

#[inline(always)]
fn report_on_path(actor: &Actor, dentry: u64, request: u64, decision: Decision) -> Report {
    let request = PathRequest::unpack(Dentry(dentry), request);
    let mut report = report(
        actor,
        decision,
        request.kind,
        request.access,
        dentry,
        Requested::SystemCall,
    );
    report.flags |= request.flags;
    report
}

impl PathRequest {
    #[inline(always)]
    fn pack(&self) -> u64 {
        u64::from(self.access.0)
            | (self.kind as u64) << 16
            | u64::from(self.flags) << 24
            | (self.by as u64) << 40
    }

    #[inline(always)]
    fn unpack(dentry: Dentry, packed: u64) -> Self {
        Self {
            dentry,
            access: Access(packed as u16),
            kind: Kind::from_u8((packed >> 16) as u8).unwrap_or(Kind::File),
            flags: (packed >> 24) as u16,
            by: match packed >> 40 {
                0 => By::Policy,
                _ => By::Rules,
            },
        }
    }
}

/// Puts a decision about a socket itself on record: what it is, or what it is bound to.
#[inline(always)]
pub fn socket(actor: &Actor, decision: Decision, kind: Kind, body: &ConnectBody) -> i32 {
    let report = report(actor, decision, kind, Access::NONE, 0, Requested::Unknown);
    emit(&report, body, (0, 0));
    decision.errno(actor)
}

/// Puts a decision about a peer on record.
#[inline(always)]
pub fn peer(
    actor: &Actor,
    decision: Decision,
    dentry: u64,
    requested: Requested,
    body: &ConnectBody,
) -> i32 {
    let report = report(
        actor,
        decision,
        Kind::Connect,
        Access::UNIX,
        dentry,
        requested,
    );
    if dentry == 0 && requested == Requested::Unknown {
        emit_plain(&report, body);
    } else {
        emit(&report, body, (0, 0));
    }
    decision.errno(actor)
}

/// As [`peer`], for hooks whose refusal is `EPERM`; whether it goes ahead.
#[inline(always)]
pub fn peer_of_cgroup(actor: &Actor, decision: Decision, body: &ConnectBody) -> bool {
    let mut report = report(
        actor,
        decision,
        Kind::Connect,
        Access::UNIX,
        0,
        Requested::Unknown,
    );
    report.flags |= flag::EPERM;
    emit_plain(&report, body);
    !decision.refuses(actor)
}

/// The report on a decision.
#[inline(always)]
pub fn report(
    actor: &Actor,
    decision: Decision,
    kind: Kind,
    access: Access,
    dentry: u64,
    requested: Requested,
) -> Report {
    let mut flags = 0;
    if decision.refuses(actor) {
        flags |= flag::ENFORCED;
    }
    if decision.nameless {
        flags |= flag::NAMELESS;
    }
    Report {
        kind,
        sandbox: actor.sandbox,
        cgroup: actor.cgroup,
        generation: actor.policy.generation,
        verdict: decision.verdict,
        flags,
        access,
        dentry,
        requested,
    }
}

/// Whether something allowed has to be put on record: the first time that this process image does it.
/// A program that passed the gate is on record when it runs.
#[inline(always)]
fn is_news(actor: &Actor, request: &PathRequest) -> bool {
    if request.kind as u8 != Kind::File as u8 {
        return false;
    }
    let Some(inode) = request.dentry.inode() else {
        return true;
    };
    if inode.0 == 0 {
        return true; // it does not exist yet
    }
    let file = ReportedFile {
        inode: inode.0,
        number: inode.number().unwrap_or(0),
        generation: inode.generation().unwrap_or(0),
        access: request.access,
    };
    is_first(&ReportKey::file(
        current_memory(),
        process(),
        actor.policy,
        &file,
    ))
}

/// Whether a key was not met before; notes it.
#[inline(always)]
pub fn is_first(key: &ReportKey) -> bool {
    // SAFETY: only whether it is there matters.
    if unsafe { REPORTED.get(key) }.is_some() {
        return false;
    }
    let _ = REPORTED.insert(key, &1, 0);
    true
}
