//! What the kernel reads to decide: map keys and values, and the shape of the path automata.
//!
//! # Path automata
//! A sandbox's path rules are two DFAs that read the same bytes side by side: one for patterns that
//! are anchored to a directory, one for patterns that float (`/**/.env`). Both lie in one arena of
//! `u32` cells. A **state** is the index of its row's first cell:
//!
//! ```text
//! row:   [ allow | audit << 16 ] [ deny | flags << 16 ] [ below ] [ next(class 0) ] [ next(class 1) ] …
//! ```
//!
//! `below` is a number for what is denied below a directory there: two states with the same number deny
//! the same at every path from there on, so a directory may be moved from one to the other.
//!
//! Row 0 is the dead state: it says nothing and every transition leads back to it, which zeroed
//! cells give for free. The bytes read are, for each component below the superblock's root, `/` and
//! the component's name; the superblock's root is the empty string. The state to start from depends
//! on the superblock ([`SuperblockKey`] → [`Start`]).
//!
//! # Addresses
//! An address is looked up in [`NetKey`] (IPv4 in its IPv6-mapped form), which gives a **class**:
//! all rules whose prefixes hold it. [`PortKey`] then takes class, protocol and port to a verdict.
//! Both are longest-prefix maps in which the more specific entry already holds what the wider ones
//! say, so one look-up each is the whole answer.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::verdict::Word;

/// Cells in one arena chunk; a chunk is one map value, so a policy is installed in few system calls.
pub const CHUNK_CELLS: usize = 4096;
/// Cells at the head of a row, before its transitions.
pub const ROW_HEAD_CELLS: usize = 3;
/// Which cell of a row says what is denied below.
pub const BELOW_CELL: u32 = 2;
/// The state in which no pattern can match any more.
pub const DEAD: u32 = 0;
/// Cells kept zero at the start of the arena for [`DEAD`]'s row, whatever the number of classes.
pub const DEAD_CELLS: usize = ROW_HEAD_CELLS + 256;
/// Sandboxes that can be armed at once.
pub const MAX_SANDBOXES: u32 = 1024;
/// Policies of each sandbox: the one in force, and the next one. So a policy's index tells its sandbox; see
/// [`sandbox_of_policy`].
pub const POLICIES_A_SANDBOX: u32 = 2;
/// Policies that can be installed at once.
pub const MAX_POLICIES: u32 = POLICIES_A_SANDBOX * MAX_SANDBOXES;
/// A place for automata that no policy has.
pub const NO_POLICY: u32 = MAX_POLICIES;
/// Cgroups that can be armed at once, those which sandboxes make for themselves included.
pub const MAX_CGROUPS: u32 = 16_384;
/// Tasks (threads) that can be marked at once. A fork over it is refused.
pub const MAX_TASKS: u32 = 65_536;
/// Superblocks of anyone's that can be told apart at once, 4 MiB for each of the two maps that know them.
pub const MAX_SUPERBLOCKS: u32 = 65_536;
/// Longest path that is looked at, in bytes, without a terminating NUL (`PATH_MAX` of linux/limits.h).
pub const MAX_PATH_BYTES: usize = 4096;

/// The sandbox that a policy's place belongs to.
#[inline(always)]
#[must_use]
pub const fn sandbox_of_policy(index: u32) -> u32 {
    index / POLICIES_A_SANDBOX
}

/// A sandbox's first cgroup, where most of its tasks are. Written before any task is in it.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FirstCgroup {
    /// Id of the cgroup.
    pub cgroup: u64,
    /// Index of the sandbox.
    pub sandbox: u64,
}

/// Places for [`FirstCgroup`]s, by the cgroup's id; where two fall on one, the hash of all armed ones knows both.
pub const FIRST_CGROUPS: u32 = 1024;
/// Places that say whether any cgroup with such an id may be armed, by the cgroup's id.
pub const CGROUP_SLOTS: u32 = 16_384;

/// Where one armed sandbox stands.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sandbox {
    /// Index of its policy; switched by one aligned store.
    pub policy: u32,
    /// 1: denials are enforced, 0: decided and recorded only.
    pub enforce: u32,
    /// Inode number of the mount namespace in which it was started, shared with processes outside.
    pub mount_namespace: u32,
    /// When it was started, in seconds since 1970: what changed after that, the sandbox may have changed.
    pub started_s: u32,
    /// Inode number of the network namespace in which it was started; 0 if that is not known.
    pub network_namespace: u32,
    /// The same of the UTS namespace, which has the host's name.
    pub uts_namespace: u32,
    /// The terminal on which it was started: the device number of its devpts as the kernel keeps it, 0 without one.
    pub terminal_device: u32,
    /// Its inode's number there.
    pub terminal_inode: u32,
    /// The agent's process id (the kernel's tgid), which is in no sandbox, whoever moved it into the cgroup.
    pub agent: u32,
    /// When the agent began, in hundredths of a second since the host was started, modulo 2^32: its id is given out again
    /// when it is gone.
    pub agent_began_cs: u32,
}

/// One compiled policy. Written before any [`Sandbox`] names it, and never changed while one does.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Policy {
    /// Counts up with every policy that is installed for the sandbox; events carry it.
    pub generation: u32,
    /// Counts up with every policy that is installed in these maps, so that what is cached is never taken for another
    /// policy's. The number of the look at the mounts that the tables come from: what was made later is not in them.
    pub epoch: u32,
    /// What holds for a named object where no rule speaks.
    pub default: Word,
    /// What holds for an object without a name in the sandbox's view.
    pub nameless: Word,
    /// What holds for a peer that is neither an IP address nor a Unix socket; its `UNIX` kind.
    pub other_family: Word,
    /// What holds for each [`crate::operation::Operation`], by its bit; every one has a verdict.
    pub operations: Word,
    /// What holds for making a socket: a byte a family, in it two bits for each
    /// [`socket_class`]'s verdict.
    pub sockets: [u8; FAMILIES],
    /// Where abstract Unix names start.
    pub abstract_names: Start,
    /// Byte → class, for both automata.
    pub classes: [u8; 256],
}

/// Address families that have a byte of their own in [`Policy::sockets`]; the last one's stands for all
/// beyond (`AF_MAX` is 46 in Linux 7.2's include/linux/socket.h).
pub const FAMILIES: usize = 64;

/// The classes of socket types that a policy tells apart: the shift into a family's byte.
#[inline(always)]
#[must_use]
pub const fn socket_class(socket_type: u32) -> u32 {
    // SOCK_* of include/linux/net.h; flags come above these four bits.
    match socket_type & 0xf {
        1 => 0,
        2 => 2,
        3 => 4,
        _ => 6,
    }
}

/// Where the number of the latest look stands that any agent took at the mounts; a policy's epoch is that of the look that
/// it comes from.
pub const LATEST_LOOK: u32 = 0;
/// Where the one stands up to which no device number counts: after it a superblock was made that could not be noted.
pub const UNNOTED_LOOK: u32 = 1;

/// A run's record, which no sandbox changes, or a directory above it, which none moves: where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordKey {
    /// Its inode's number.
    pub inode: u64,
    /// Its superblock's `s_dev`.
    pub device: u64,
}

impl RecordKey {
    /// How many directories above records are kept, of all runs together.
    pub const MAX_DIRECTORIES: u32 = 65_536;
}

/// The sandboxes whose records lie below a directory: a bit each.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RecordsBelow([u64; MAX_SANDBOXES as usize / 64]);

impl RecordsBelow {
    /// Adds one.
    pub fn add(&mut self, sandbox: u32) {
        if let Some(word) = self.0.get_mut(sandbox as usize / 64) {
            *word |= 1 << (sandbox % 64);
        }
    }

    /// Only those of which `stays` is true.
    pub fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        for sandbox in 0..MAX_SANDBOXES {
            if let Some(word) = self.0.get_mut(sandbox as usize / 64)
                && *word >> (sandbox % 64) & 1 == 1
                && !stays(sandbox)
            {
                *word &= !(1 << (sandbox % 64));
            }
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// A pair of states, one in each automaton.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Start {
    /// In the automaton of anchored patterns.
    pub anchored: u32,
    /// In the automaton of floating patterns.
    pub floating: u32,
}

/// Which superblock: by device number, or, for pseudo-filesystems, by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SuperblockKey {
    /// Index of the policy.
    pub policy: u32,
    /// [`SuperblockKey::BY_DEVICE`] or [`SuperblockKey::BY_MAGIC`].
    pub by: u32,
    /// `s_dev` as the kernel keeps it (major << 20 | minor), or `s_magic`.
    pub id: u64,
}

impl SuperblockKey {
    /// `id` is a device number.
    pub const BY_DEVICE: u32 = 0;
    /// `id` is a file-system magic number (linux/magic.h).
    pub const BY_MAGIC: u32 = 1;
    /// `id` is the device number of a tmpfs. Kept apart: such numbers are given out again, and what a
    /// tmpfs was called must not become the name of an overlay.
    pub const BY_TMPFS_DEVICE: u32 = 2;
    /// A tmpfs that the sandbox has made; `id` is its device number, or 0 for those that have no name of their own.
    pub const BY_OWN_TMPFS: u32 = 3;
    /// `TMPFS_MAGIC` of linux/magic.h.
    pub const TMPFS_MAGIC: u64 = 0x0102_1994;
}

/// Key of the address map, after its prefix length in bits: policy (32 bits), address (128 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NetKey {
    /// Index of the policy, big-endian, as every longest-prefix key is compared from its first byte.
    pub policy: [u8; 4],
    /// IPv6 address; an IPv4 address in its mapped form `::ffff:a.b.c.d`.
    pub address: [u8; 16],
}

impl NetKey {
    /// Bits of the key that are always significant.
    pub const FIXED_BITS: u32 = 32;
    /// Bits of a whole key.
    pub const BITS: u32 = 160;
}

/// Key of the port map, after its prefix length in bits: policy, class (32 bits each), protocol (16), port (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PortKey {
    /// Index of the policy, big-endian.
    pub policy: [u8; 4],
    /// Class that the address map gave, big-endian.
    pub class: [u8; 4],
    /// [`transport`] number, big-endian.
    pub protocol: [u8; 2],
    /// Port, big-endian; 0 where the protocol has none.
    pub port: [u8; 2],
}

impl PortKey {
    /// Bits of the key that are always significant (the port's are not).
    pub const FIXED_BITS: u32 = 80;
    /// Bits of a whole key.
    pub const BITS: u32 = 96;
}

/// The protocols that a rule can name; every other is [`transport::OTHER`].
pub mod transport {
    /// Neither of the below.
    pub const OTHER: u16 = 0;
    /// TCP, and MPTCP, which carries it.
    pub const TCP: u16 = 1;
    /// UDP and UDP-Lite.
    pub const UDP: u16 = 2;
    /// SCTP.
    pub const SCTP: u16 = 3;
    /// ICMP and `ICMPv6` (ping sockets).
    pub const ICMP: u16 = 4;
    /// Every number above, for a rule without a protocol.
    pub const ALL: [u16; 5] = [OTHER, TCP, UDP, SCTP, ICMP];
    /// Added to a number: binding to a local address, not contacting a peer.
    pub const BIND: u16 = 1 << 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_kept_until_the_last_record_below_it_is_forgotten() {
        let mut below = RecordsBelow::default();
        for sandbox in [0, 63, 64, MAX_SANDBOXES - 1] {
            below.add(sandbox);
            below.add(sandbox);
        }
        below.retain(|sandbox| sandbox == 64 || sandbox == 5);
        assert!(!below.is_empty());
        below.retain(|sandbox| sandbox != 64);
        assert!(below.is_empty());
        // Nobody's.
        below.add(MAX_SANDBOXES);
        assert!(below.is_empty());
    }
}
