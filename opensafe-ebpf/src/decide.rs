//! The only place where a look-up becomes a verdict, and a verdict an errno.
//!
//! On error the verdict is written out, never left open: an object whose place cannot be found gets
//! the policy's verdict for the nameless, an address that the tables lack the policy's default.

use aya_ebpf::maps::lpm_trie::Key;
use opensafe_common::{
    socket::SOCK_RAW,
    tables::{FAMILIES, NetKey, Policy, PortKey, RecordKey, socket_class, transport},
    verdict::{Access, Verdict, Word},
};

use crate::{
    actor::Actor,
    bound::masked,
    kernel::{Dentry, Inode, Superblock},
    maps::{NETS, POLICIES, PORTS, RECORD_DIRECTORIES, RECORDS, SANDBOXES, constant},
    path,
};

/// What a hook returns to refuse: `-EACCES` (include/uapi/asm-generic/errno-base.h).
pub const REFUSED: i32 = -13;

/// A verdict, and what it rests on.
#[derive(Clone, Copy)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// It is the one for objects without a name.
    pub nameless: bool,
}

impl Decision {
    /// As one number, for functions that take numbers only.
    #[inline(always)]
    pub fn pack(self) -> u32 {
        self.verdict as u32 | u32::from(self.nameless) << 8
    }

    /// What [`Decision::pack`] gave.
    #[inline(always)]
    pub fn unpack(packed: u32) -> Self {
        Self {
            verdict: Verdict::from_u8(packed as u8).unwrap_or(Verdict::Deny),
            nameless: packed >> 8 == 1,
        }
    }

    /// What the hook returns.
    #[inline(always)]
    pub fn errno(self, actor: &Actor) -> i32 {
        if self.refuses(actor) { REFUSED } else { 0 }
    }

    /// Whether the operation fails because of it.
    #[inline(always)]
    pub fn refuses(self, actor: &Actor) -> bool {
        self.verdict as u8 == Verdict::Deny as u8 && actor.enforce
    }
}

impl Decision {
    /// What a run's record is asked about: whatever the policy says, no sandbox changes one, be it its own or another's.
    #[inline(always)]
    pub const fn of_record() -> Self {
        Self {
            verdict: Verdict::Deny,
            nameless: false,
        }
    }
}

/// Whether what is, or is to be, at `dentry` is the record of a run that goes on, or one of the pins that hold what is enforced.
#[inline(always)]
pub fn is_ours(dentry: Dentry) -> bool {
    if is_pins(dentry.superblock()) {
        return true;
    }
    let Some(inode) = dentry.inode().filter(|inode| inode.0 != 0) else {
        return false; // it does not exist yet
    };
    is_record(inode)
}

/// Whether a file is the record of a run that goes on.
#[inline(always)]
pub fn is_record(inode: Inode) -> bool {
    match record_key(inode) {
        // SAFETY: only whether it is there matters.
        Some(key) => unsafe { RECORDS.get(&key) }.is_some(),
        None => true, // what it is cannot be told
    }
}

/// Whether a superblock is the file system that holds the programs' links and the maps.
#[inline(always)]
pub fn is_pins(superblock: Option<Superblock>) -> bool {
    match superblock.and_then(|superblock| superblock.dev()) {
        Some(device) => device != 0 && device == constant!(HOST.pins_device),
        None => true, // what it is cannot be told
    }
}

/// 1 for a directory with the record of a run that goes on below it, however deep, else 0. A function that the verifier checks
/// once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leads_to_record(dentry: u64) -> u64 {
    let Some(inode) = Dentry(dentry).inode().filter(|inode| inode.0 != 0) else {
        return 0; // it does not exist yet
    };
    match record_key(inode) {
        // SAFETY: only whether it is there matters.
        Some(key) => u64::from(unsafe { RECORD_DIRECTORIES.get(&key) }.is_some()),
        None => 1, // what it is cannot be told
    }
}

/// By what records, and the directories above them, are known.
#[inline(always)]
fn record_key(inode: Inode) -> Option<RecordKey> {
    Some(RecordKey {
        inode: inode.number()?,
        device: u64::from(inode.superblock()?.dev()?),
    })
}

/// May the actor do `access` to the object at `dentry`?
#[inline(always)]
pub fn at_path(actor: &Actor, dentry: Dentry, access: Access, by: By) -> Decision {
    let word = path::word(actor.policy_index, dentry);
    by_word(actor, word, access, by)
}

/// May the actor do `access` to the object about whose place the tables say `word`?
#[inline(always)]
pub fn by_word(actor: &Actor, word: Option<Word>, access: Access, by: By) -> Decision {
    let default = match by {
        By::Policy => actor.policy.default,
        By::Rules => Word::NONE,
    };
    with_default(actor, word, access, default)
}

/// Which part of a policy answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Rules, and where none speaks, the default.
    Policy,
    /// Rules; where none speaks it is allowed. For the gate that interpreters pass too: the default for
    /// programs is applied when it is known which file is the program.
    Rules,
}

/// The kinds of access that are denied at `old` and not at `new`. A function that the verifier checks
/// once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn gained(policy_index: u32, old: u64, new: u64) -> u64 {
    let Some(policy) = POLICIES.get(policy_index) else {
        return 0;
    };
    let there = denied(policy, path::word(policy_index, Dentry(old)));
    let here = denied(policy, path::word(policy_index, Dentry(new)));
    u64::from(there & !here)
}

#[inline(always)]
fn denied(policy: &Policy, word: Option<Word>) -> u16 {
    match word {
        Some(word) if word.flags & Word::NAMED != 0 => word.or_else(policy.default).deny,
        Some(word) => word.or_else(policy.nameless).deny,
        None => policy.nameless.deny,
    }
}

/// May the actor contact the abstract Unix name of `len` bytes at kernel address `name`?
#[inline(always)]
pub fn at_abstract_name(actor: &Actor, name: u64, len: u32) -> Decision {
    let word = path::abstract_word(actor.policy_index, name, len);
    with_default(actor, word, Access::UNIX, actor.policy.default)
}

/// May the actor contact a peer that is neither IP nor Unix?
#[inline(always)]
pub fn at_other_family(actor: &Actor) -> Decision {
    Decision {
        verdict: actor.policy.other_family.verdict(Access::UNIX),
        nameless: false,
    }
}

/// May the actor contact a peer that it does not name? No rule could allow it, and one may deny it.
#[inline(always)]
pub fn at_untold() -> Decision {
    Decision {
        verdict: Verdict::Deny,
        nameless: true,
    }
}

/// May the actor do an operation, by its number?
#[inline(always)]
pub fn at_operation(actor: &Actor, operation: u16) -> Decision {
    let kind = Access(1 << (operation & 0xf));
    Decision {
        verdict: actor.policy.operations.verdict(kind),
        nameless: false,
    }
}

/// May the actor make a socket of this family and type?
#[inline(always)]
pub fn at_socket(actor: &Actor, family: u32, socket_type: u32) -> Decision {
    let last = FAMILIES as u32 - 1;
    let family = if family > last { last } else { family };
    let class = socket_class(socket_type);
    let at = masked::<{ FAMILIES as i32 - 1 }>(u64::from(family));
    // SAFETY: the mask keeps the index inside the table.
    let byte = unsafe { *actor.policy.sockets.as_ptr().add(at) };
    Decision {
        verdict: Verdict::from_u8(byte >> class & 3).unwrap_or(Verdict::Deny),
        nameless: false,
    }
}

/// May the actor bind a socket to a local `address` (IPv4 mapped)? Every address of IPv6 is every one of IPv4
/// too, unless the socket says otherwise.
#[inline(always)]
pub fn at_local_address(actor: &Actor, address: [u8; 16], transport: u16, port: u16) -> Decision {
    const EVERY_V4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];
    let how = transport | transport::BIND;
    let mut verdict = one_address(actor, address, how, port);
    if matches!(unspecified(&address), Some(IpFamily::V6)) {
        verdict = stricter(verdict, one_address(actor, EVERY_V4, how, port));
    }
    Decision {
        verdict,
        nameless: false,
    }
}

/// May the actor have the file at `dentry` in its memory as code? Where a rule forbids to run it, or to map
/// it so, no. Where programs run only if rules allow them, such a file must be one that they allow, or a
/// library that the sandbox cannot have made or changed. Programs that are only audited are on record by the
/// program that runs.
#[inline(always)]
pub fn at_mapping(actor: &Actor, dentry: Dentry) -> (Decision, Access) {
    let both = Access::EXEC.union(Access::MAP_EXEC);
    let word = path::word(actor.policy_index, dentry).unwrap_or(Word::NONE);
    let named = word.flags & Word::NAMED != 0;
    let decision = |verdict| Decision {
        verdict,
        nameless: !named,
    };
    if word.deny & both.0 != 0 {
        return (decision(Verdict::Deny), Access(word.deny & both.0));
    }
    let default = actor.policy.default.verdict(Access::EXEC);
    if default as u8 == Verdict::Allow as u8 || word.allow & Access::EXEC.0 != 0 {
        return (decision(Verdict::Allow), Access::MAP_EXEC);
    }
    let changes = Access::WRITE.union(Access::CREATE);
    let fallback = if named {
        actor.policy.default
    } else {
        actor.policy.nameless
    };
    let fixed = word.or_else(fallback).deny & changes.0 == changes.0;
    if dentry.is_library() && (fixed || named && is_from_before(actor, dentry)) {
        return (decision(Verdict::Allow), Access::MAP_EXEC);
    }
    (decision(default), Access::EXEC)
}

/// Whether a file has stayed as it was since before the actor's sandbox was started.
#[inline(always)]
fn is_from_before(actor: &Actor, dentry: Dentry) -> bool {
    // linux/magic.h. Of its files a process says how old they are.
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    match dentry
        .superblock()
        .and_then(|superblock| superblock.magic())
    {
        Some(FUSE_SUPER_MAGIC) | None => return false,
        Some(_) => {}
    }
    let changed = dentry.inode().and_then(|inode| inode.changed_s());
    match (changed, SANDBOXES.get(actor.sandbox)) {
        (Some(changed), Some(sandbox)) => changed < u64::from(sandbox.started_s),
        _ => false,
    }
}

/// May the actor contact `address` (IPv4 mapped)? The unspecified address means this host
/// (connect(2) to it reaches the loopback), so it is asked as both loopback addresses.
#[inline(always)]
pub fn at_address(actor: &Actor, address: [u8; 16], transport: u16, port: u16) -> Decision {
    const V4_LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
    const V6_LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let verdict = match unspecified(&address) {
        None => one_address(actor, address, transport, port),
        Some(IpFamily::V4) => one_address(actor, V4_LOOPBACK, transport, port),
        Some(IpFamily::V6) => stricter(
            one_address(actor, V6_LOOPBACK, transport, port),
            one_address(actor, V4_LOOPBACK, transport, port),
        ),
    };
    Decision {
        verdict,
        nameless: false,
    }
}

enum IpFamily {
    V4,
    V6,
}

#[inline(always)]
fn unspecified(address: &[u8; 16]) -> Option<IpFamily> {
    let value = u128::from_be_bytes(*address);
    if value == 0 {
        Some(IpFamily::V6)
    } else if value == 0xffff_0000_0000 {
        Some(IpFamily::V4)
    } else {
        None
    }
}

#[inline(always)]
fn one_address(actor: &Actor, address: [u8; 16], transport: u16, port: u16) -> Verdict {
    let value = u128::from_be_bytes(address);
    let verdict = address_verdict(
        actor.policy_index,
        (value >> 64) as u64,
        value as u64,
        u32::from(transport) << 16 | u32::from(port),
    );
    match Verdict::from_u8(verdict as u8) {
        Some(verdict) => verdict,
        None => actor.policy.default.verdict(Access::UNIX),
    }
}

/// What [`address_verdict`] returns for what the tables lack.
const NO_ENTRY: u64 = 0xff;

/// The tables' verdict on an address (its high and low half) and `transport << 16 | port`. A function
/// that the verifier checks once; see [`crate::path`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn address_verdict(
    policy: u32,
    high: u64,
    low: u64,
    transport_and_port: u32,
) -> u64 {
    let policy = policy.to_be_bytes();
    let address = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    let key = Key::new(NetKey::BITS, NetKey { policy, address });
    let Some(class) = NETS.get(&key) else {
        return NO_ENTRY;
    };
    let key = Key::new(
        PortKey::BITS,
        PortKey {
            policy,
            class: class.to_be_bytes(),
            protocol: ((transport_and_port >> 16) as u16).to_be_bytes(),
            port: (transport_and_port as u16).to_be_bytes(),
        },
    );
    match PORTS.get(&key) {
        Some(&verdict) => u64::from(verdict),
        None => NO_ENTRY,
    }
}

#[inline(always)]
fn stricter(a: Verdict, b: Verdict) -> Verdict {
    if a as u8 >= b as u8 { a } else { b }
}

#[inline(always)]
fn with_default(actor: &Actor, word: Option<Word>, access: Access, default: Word) -> Decision {
    let word = word.unwrap_or(Word::NONE);
    if word.flags & Word::NAMED != 0 {
        return Decision {
            verdict: word.or_else(default).verdict(access),
            nameless: false,
        };
    }
    let verdict = word.or_else(actor.policy.nameless).verdict(access);
    Decision {
        verdict,
        nameless: !word.speaks_about(access),
    }
}

/// The number by which rules name a socket's protocol.
#[inline(always)]
pub fn transport_of(socket_type: u16, protocol: u16) -> u16 {
    if socket_type == SOCK_RAW {
        return transport::OTHER;
    }
    // IPPROTO_* of include/uapi/linux/in.h.
    match protocol {
        // TCP, MPTCP, and SMC, which shakes hands over TCP.
        6 | 256 | 262 => transport::TCP,
        17 | 136 => transport::UDP,
        132 => transport::SCTP,
        1 | 58 => transport::ICMP,
        _ => transport::OTHER,
    }
}
