//! Every map, and the two blocks of constants that the agent fills in before load.

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    btf_maps::{self, ArrayOfMaps, HashOfMaps, RingBuf},
    macros::{btf_map, map},
    maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray},
};
use opensafe_common::{
    counter::Counter,
    layout::{Host, Offsets},
    places::Places,
    room::{MAX_OWN, Taken},
    tables::{
        CGROUP_SLOTS, CHUNK_CELLS, FIRST_CGROUPS, FirstCgroup, MAX_CGROUPS, MAX_POLICIES,
        MAX_SANDBOXES, MAX_SUPERBLOCKS, MAX_TASKS, NO_POLICY, NetKey, Policy, PortKey, RecordKey,
        RecordsBelow, Sandbox, Start, SuperblockKey,
    },
    verdict::Access,
};

use crate::{atomic::Cell, memo, scratch::Slot};

/// Where the running kernel keeps its fields.
#[unsafe(no_mangle)]
pub static OFFSETS: Offsets = Offsets::ZERO;

/// What else the agent found out about the host.
#[unsafe(no_mangle)]
pub static HOST: Host = Host::ZERO;

/// Reads one field of [`OFFSETS`] or [`HOST`]. The map behind them is frozen before load, so to the
/// verifier it is a constant; volatile, so that the compiler does not take the zeroes here for it.
macro_rules! constant {
    ($block:ident . $field:ident) => {
        $crate::maps::volatile(&raw const $crate::maps::$block.$field)
    };
}
pub(crate) use constant;

/// For [`constant`] only.
#[inline(always)]
pub fn volatile<T: Copy>(field: *const T) -> T {
    // SAFETY: [`constant`] passes a field of a static of plain integers that nothing writes.
    unsafe { core::ptr::read_volatile(field) }
}

/// Sandbox → where its events go. Each has a reader and a ring buffer of its own, of any size.
#[btf_map]
pub static EVENTS: HashOfMaps<u32, RingBuf<u8, 4096>, { MAX_SANDBOXES as usize }> =
    HashOfMaps::new();

/// Sandbox → when it last had something to tell, in nanoseconds since boot.
#[map]
pub static TOLD: Array<u64> = Array::with_max_entries(MAX_SANDBOXES, 0);

/// Sandbox → [`Counter`]s: all of them in one value, so that one look-up finds several.
#[map]
pub static COUNTERS: PerCpuArray<[u64; Counter::COUNT]> =
    PerCpuArray::with_max_entries(MAX_SANDBOXES, 0);

/// Cgroup id → sandbox, for every armed cgroup.
#[map]
pub static CGROUPS: HashMap<u64, u32> = HashMap::with_max_entries(MAX_CGROUPS, 0);

/// Cgroup id modulo [`CGROUP_SLOTS`] → 0 if surely none with such an id is armed. Lets everyone else pass with one load. A
/// word each, as the agent writes them too, and a map's update is no atomic operation on a part of a word.
#[map]
pub static CGROUP_FILTER: Array<u64> = Array::with_max_entries(CGROUP_SLOTS, 0);

/// Cgroup id modulo [`FIRST_CGROUPS`] → a sandbox's first cgroup: spares asking [`CGROUPS`].
#[map]
pub static FIRST: Array<FirstCgroup> = Array::with_max_entries(FIRST_CGROUPS, 0);

/// Task address → sandbox, for every marked task. Exact: written before the task can run
/// (`task_alloc`), removed when its memory is freed (`task_free`).
#[map]
pub static TASKS: HashMap<u64, u32> = HashMap::with_max_entries(MAX_TASKS, 0);

/// The marked tasks that fall on each slot: the sum of what [`crate::actor::mark`] adds for each. 0 means surely not
/// marked.
#[map]
pub static TASK_FILTER: Array<u64> = Array::with_max_entries(TASK_SLOTS, 0);
/// Number of slots in [`TASK_FILTER`]; a power of two.
pub const TASK_SLOTS: u32 = 65_536;

/// Sandbox index → where it stands.
#[map]
pub static SANDBOXES: Array<Sandbox> = Array::with_max_entries(MAX_SANDBOXES, 0);

/// Who has which sandbox: the agents' own, which no program reads. One value, so that it is
/// read and written at once.
#[map]
pub static PLACES: Array<Places> = Array::with_max_entries(1, 0);

/// Policy index → policy.
#[map]
pub static POLICIES: Array<Policy> = Array::with_max_entries(MAX_POLICIES, 0);

/// Policy index → cells of its path automata, in chunks. Each policy has a map of its own, of its size.
#[btf_map]
pub static ARENAS: ArrayOfMaps<Arena, { NO_POLICY as usize + 1 }> = ArrayOfMaps::new();
/// `BPF_F_INNER_MAP` of include/uapi/linux/bpf.h (Linux ≥ 5.10): arrays of any length fit.
type Arena = btf_maps::Array<[u32; CHUNK_CELLS], 1, { 1 << 12 }>;

/// Superblock → where the path automata start.
#[map]
pub static SUPERBLOCKS: HashMap<SuperblockKey, Start> =
    HashMap::with_max_entries(STARTS, BPF_F_NO_PREALLOC);
/// Some forty for each policy of as many sandboxes as there can be, and as many again for those that come next.
const STARTS: u32 = 131_072;

/// Address → class.
#[map]
pub static NETS: LpmTrie<NetKey, u32> = LpmTrie::with_max_entries(262_144, 0);

/// Class, protocol, port → verdict.
#[map]
pub static PORTS: LpmTrie<PortKey, u32> = LpmTrie::with_max_entries(262_144, 0);

/// Scratch memory. Its size is set at load.
#[map]
pub static SCRATCH: Array<Slot> = Array::with_max_entries(1, 0);

/// Inode address of a directory → the states that the automata have reached there. A directory has one
/// name in its superblock; the entry goes when the inode's memory does (`inode_free_security`).
#[map]
pub static DIRECTORIES: LruHashMap<u64, [DirectoryState; POLICIES_A_DIRECTORY]> =
    LruHashMap::with_max_entries(16_384, 0);
/// Policies whose states a directory has room for, by their epochs: sandboxes that work on the same files do not drive
/// out each other's. A power of two.
pub const POLICIES_A_DIRECTORY: usize = 4;

/// A state, valid while the kernel's rename sequence stands where it stood.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DirectoryState {
    /// After the directory's path.
    pub state: Start,
    /// `rename_lock`'s sequence when it was walked; even.
    pub rename_seq: u32,
    /// Epoch of the policy.
    pub epoch: u32,
    /// Of all the above and the inode's address. An LRU map may hand an entry's memory to another
    /// key while it is being read; a mixture then does not match its seal.
    pub seal: u64,
}

impl DirectoryState {
    /// A sealed state.
    #[inline(always)]
    pub fn sealed(inode: u64, state: Start, rename_seq: u32, epoch: u32) -> Self {
        let parts = [
            inode,
            u64::from(state.anchored) << 32 | u64::from(state.floating),
            u64::from(rename_seq) << 32 | u64::from(epoch),
        ];
        // Each step is a bijection of the running value, so a change of one part always shows.
        let mut seal = 0x9e37_79b9_7f4a_7c15_u64;
        for part in parts {
            seal = (seal ^ part).wrapping_mul(0xff51_afd7_ed55_8ccd);
            seal ^= seal >> 32;
        }
        Self {
            state,
            rename_seq,
            epoch,
            seal,
        }
    }
}

/// What the automata say about names, for each CPU.
#[map]
pub static NAMES: PerCpuArray<memo::Entry> = PerCpuArray::with_max_entries(memo::ENTRIES, 0);

/// Records of runs → the sandbox that each is about.
#[map]
pub static RECORDS: HashMap<RecordKey, u32> = HashMap::with_max_entries(MAX_SANDBOXES, 0);

/// Directories above records of runs → the sandboxes that those are about. As long as one is here it keeps its name.
#[map]
pub static RECORD_DIRECTORIES: HashMap<RecordKey, RecordsBelow> =
    HashMap::with_max_entries(RecordKey::MAX_DIRECTORIES, BPF_F_NO_PREALLOC);

/// What was already reported and may be passed over: allowed accesses, by process image and object.
#[map]
pub static REPORTED: LruHashMap<ReportKey, u8> = LruHashMap::with_max_entries(65_536, 0);

/// One process image and one thing that it did. In four words, as it is hashed and compared whenever something is allowed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ReportKey {
    /// Address of the `mm_struct`, another one after exec, with the policy's epoch.
    image: u64,
    /// Inode number, or the low half of a peer's address.
    object: u64,
    /// Address of the inode with the access, or the high half of a peer's address.
    object_more: u64,
    /// The inode's generation, or protocol and port.
    what: u32,
    /// Process: the next one may get the same `mm_struct`.
    pid: u32,
}

/// A file that was accessed; an address that is reused has another number or generation.
#[derive(Clone, Copy)]
pub struct ReportedFile {
    /// The inode's address.
    pub inode: u64,
    /// Its number.
    pub number: u64,
    /// Its generation.
    pub generation: u32,
    /// What was done with it.
    pub access: Access,
}

impl ReportKey {
    /// Access to a file by the process `pid` with the address space `memory`.
    #[inline(always)]
    pub fn file(memory: u64, pid: u32, policy: &Policy, file: &ReportedFile) -> Self {
        Self {
            object: file.number,
            object_more: with(file.inode, file.access.0),
            what: file.generation,
            ..Self::image(memory, pid, policy)
        }
    }

    /// Anything else: two words, and a third that says what they are.
    #[inline(always)]
    pub fn other(memory: u64, pid: u32, policy: &Policy, words: (u64, u64), what: u32) -> Self {
        Self {
            object: words.0,
            object_more: words.1,
            what,
            ..Self::image(memory, pid, policy)
        }
    }

    #[inline(always)]
    fn image(memory: u64, pid: u32, policy: &Policy) -> Self {
        Self {
            image: with(memory, policy.epoch as u16),
            object: 0,
            object_more: 0,
            what: 0,
            pid,
        }
    }
}

/// An address and a small number in one word: the upper 16 bits of the kernel's addresses of objects are all the same.
#[inline(always)]
fn with(address: u64, number: u16) -> u64 {
    address << 16 | u64::from(number)
}

/// Address of a pseudoterminal's inode → its number, and the sandbox whose processes made it; the entry goes when the
/// inode's memory does.
#[map]
pub static OWN_TERMINALS: HashMap<u64, u64> = HashMap::with_max_entries(MAX_OWN, 0);

/// `LATEST_LOOK` and `UNNOTED_LOOK` of [`opensafe_common::tables`].
#[map]
pub static LOOKS: Array<u64> = Array::with_max_entries(2, 0);
/// Device number → the latest look when a superblock with it was made. Anonymous numbers are given out from the lowest, so
/// they are as many as there are file systems at once.
#[map]
pub static MADE: HashMap<u32, u64> = HashMap::with_max_entries(MAX_SUPERBLOCKS, 0);

/// Addresses of superblocks that were made and never mounted yet → the sandbox whose they are, [`NOBODYS`] of others; an entry
/// goes with its superblock.
#[map]
pub static UNMOUNTED: HashMap<u64, u32> = HashMap::with_max_entries(MAX_SUPERBLOCKS, 0);

/// No sandbox's index.
pub const NOBODYS: u32 = u32::MAX;

/// Address of a tmpfs's superblock → the sandbox that made it; the entry goes when the superblock does.
#[map]
pub static OWN_TMPFS: HashMap<u64, u32> = HashMap::with_max_entries(MAX_OWN, 0);

/// Sandbox → what it has taken of the room that all have.
#[map]
pub static TAKEN: Array<Taken> = Array::with_max_entries(MAX_SANDBOXES, 0);

/// Threads with a denial of creation that may turn out void; see the `path_mknod` hook.
#[map]
pub static TENTATIVE: LruHashMap<u32, u64> = LruHashMap::with_max_entries(1024, 0);

/// Flag of an insertion that changes nothing that is there (include/uapi/linux/bpf.h).
pub const BPF_NOEXIST: u64 = 1;
/// What it fails with if there is something (include/uapi/asm-generic/errno-base.h).
pub const EEXIST: i32 = 17;

/// Counts one for a sandbox.
#[inline(always)]
pub fn count(sandbox: u32, counter: Counter) {
    if let Some(counters) = Counters::of(sandbox) {
        counters.count(counter);
    }
}

/// A sandbox's counters of this CPU. A program stays on its CPU.
#[derive(Clone, Copy)]
pub struct Counters(*mut [u64; Counter::COUNT]);

impl Counters {
    /// `None` never happens: the map has a value for every sandbox.
    #[inline(always)]
    pub fn of(sandbox: u32) -> Option<Self> {
        COUNTERS.get_ptr_mut(sandbox).map(Self)
    }

    /// Counts one.
    #[inline(always)]
    pub fn count(self, counter: Counter) {
        let cell = self.0.cast::<u64>().wrapping_add(counter as usize);
        // SAFETY: a map value of this CPU, which has a word for each counter, aligned. A task preempting another one in
        // here could race on it, hence the atomic addition.
        unsafe { Cell::at(cell) }.add(1);
    }
}
