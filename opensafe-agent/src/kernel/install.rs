//! Writes a policy's tables into the kernel's maps.
//!
//! A sandbox has room for two policies. One is in force, the other is written; then the sandbox is
//! switched to it by one store. What a switch leaves behind is overwritten by the next policy, after
//! every program that could still read it has ended.

use aya::maps::lpm_trie::Key;
use opensafe_common::tables::{
    CHUNK_CELLS, DEAD, DEAD_CELLS, NetKey, POLICIES_A_SANDBOX, Policy, PortKey, SuperblockKey,
};
use zerocopy::transmute;

use super::{
    KernelError,
    maps::{Maps, map_error},
    seat::Seat,
};
use crate::{
    event::Generation,
    tables::{NetEntry, PortEntry, SuperblockId, Tables},
};

type NetBytes = [u8; size_of::<NetKey>()];
type PortBytes = [u8; size_of::<PortKey>()];
type SuperblockBytes = [u8; size_of::<SuperblockKey>()];

/// Cells in one chunk of the arena, as bytes of a map value.
const CHUNK_BYTES: usize = CHUNK_CELLS * size_of::<u32>();

/// The two regions where a sandbox's policy can be.
pub(super) struct Regions {
    /// How many policies were installed.
    installed: u32,
    /// What each region holds besides cells, to be removed before it is used again.
    leftovers: [Leftovers; POLICIES_A_SANDBOX as usize],
}

/// Keys of one policy in the maps that all policies share.
#[derive(Default)]
pub(super) struct Leftovers {
    superblocks: Vec<SuperblockBytes>,
    nets: Vec<(u32, NetBytes)>,
    ports: Vec<(u32, PortBytes)>,
}

/// Where one policy goes.
pub(super) struct Region {
    /// Index of the [`Policy`].
    pub(super) policy: u32,
    /// First chunk of the arena.
    pub(super) first_chunk: u32,
    /// How many.
    pub(super) chunks: u32,
}

impl Region {
    fn first_cell(&self) -> u32 {
        u32::try_from(self.first_chunk as usize * CHUNK_CELLS).unwrap_or(u32::MAX)
    }
}

/// A policy that was written.
pub(super) struct Installed {
    /// Index of its [`Policy`].
    pub(super) slot: u32,
    leftovers: Leftovers,
}

impl Regions {
    /// Nothing is installed yet.
    pub(super) fn new() -> Self {
        Self {
            installed: 0,
            leftovers: Default::default(),
        }
    }

    /// Generation of the policy in force.
    pub(super) fn generation(&self) -> Generation {
        Generation(self.installed)
    }

    /// Notes that the policy just written is in force.
    pub(super) fn use_next(&mut self, installed: Installed) {
        self.leftovers[self.next()] = installed.leftovers;
        self.installed += 1;
    }

    /// Removes what is left of all policies. Nobody may be in the sandbox any more.
    pub(super) fn clear(&mut self, maps: &mut Maps) {
        wait_for_programs();
        for leftovers in &mut self.leftovers {
            remove(maps, &std::mem::take(leftovers));
        }
    }

    fn next(&self) -> usize {
        (self.installed % POLICIES_A_SANDBOX) as usize
    }
}

/// Chunks for a sandbox with policies of that size, each with half as much again: a mount that appears makes a policy
/// larger.
pub(super) fn chunks_for(cells: usize) -> u32 {
    let region = (cells + cells / 2 + CHUNK_CELLS).div_ceil(CHUNK_CELLS);
    u32::try_from(region)
        .unwrap_or(u32::MAX)
        .saturating_mul(POLICIES_A_SANDBOX)
}

/// Chunks at the head of the arena that no sandbox has: those of the dead state.
pub(super) const DEAD_CHUNKS: u32 = 1;
const _: () = assert!(DEAD_CELLS <= DEAD_CHUNKS as usize * CHUNK_CELLS && DEAD == 0);

/// Writes everything of a policy but the switch to it. `epoch` is the policy's own among all in these maps.
pub(super) fn write(
    maps: &mut Maps,
    seat: Seat,
    regions: &mut Regions,
    epoch: u32,
    tables: &Tables,
) -> Result<Installed, KernelError> {
    let region = regions.next();
    wait_for_programs();
    remove(maps, &std::mem::take(&mut regions.leftovers[region]));
    let place = seat.region(region);
    let policy = Policy {
        generation: regions.installed + 1,
        epoch,
        default: tables.default,
        nameless: tables.nameless,
        other_family: tables.other_family,
        operations: tables.operations,
        sockets: tables.sockets,
        abstract_names: Tables::relocate_start(tables.abstract_names, place.first_cell()),
        classes: tables.classes,
    };
    let keys = Leftovers::of(place.policy, tables);
    let written = write_all(maps, &place, policy, tables, &keys);
    if written.is_err() {
        remove(maps, &keys);
    }
    written.map(|()| Installed {
        slot: place.policy,
        leftovers: keys,
    })
}

fn write_all(
    maps: &mut Maps,
    place: &Region,
    policy: Policy,
    tables: &Tables,
    keys: &Leftovers,
) -> Result<(), KernelError> {
    write_cells(maps, place, tables)?;
    write_keys(maps, place.first_cell(), tables, keys)?;
    let bytes: [u8; size_of::<Policy>()] = transmute!(policy);
    let mut policies = maps.array::<[u8; size_of::<Policy>()]>("POLICIES")?;
    policies
        .set(place.policy, bytes, 0)
        .map_err(map_error("POLICIES"))
}

/// Returns once every program that was running has ended, so that none still reads the tables of the
/// policy before the one in force.
fn wait_for_programs() {
    // SAFETY: membarrier(2) takes three integers and touches no memory of ours. Its global form waits
    // for an RCU grace period, and LSM programs run inside RCU's read side.
    let waited = unsafe { nix::libc::syscall(nix::libc::SYS_membarrier, 1, 0, 0) };
    if waited != 0 {
        // Not in this kernel, or not on CPUs with nohz_full: longer than any program runs.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn remove(maps: &mut Maps, leftovers: &Leftovers) {
    // What is not there need not be removed.
    if let Ok(mut superblocks) = maps.hash::<SuperblockBytes, [u8; 8]>("SUPERBLOCKS") {
        for key in &leftovers.superblocks {
            let _ = superblocks.remove(key);
        }
    }
    if let Ok(mut nets) = maps.trie::<NetBytes>("NETS") {
        for (bits, key) in &leftovers.nets {
            let _ = nets.remove(&Key::new(*bits, *key));
        }
    }
    if let Ok(mut ports) = maps.trie::<PortBytes>("PORTS") {
        for (bits, key) in &leftovers.ports {
            let _ = ports.remove(&Key::new(*bits, *key));
        }
    }
}

fn write_cells(maps: &mut Maps, place: &Region, tables: &Tables) -> Result<(), KernelError> {
    let cells = tables.relocate(place.first_cell());
    let room = place.chunks as usize * CHUNK_CELLS;
    if cells.len() > room {
        return Err(KernelError::NoRoom {
            needed: cells.len(),
            room,
        });
    }
    let mut arena = maps.array::<[u8; CHUNK_BYTES]>("ARENA")?;
    for (chunk, index) in cells.chunks(CHUNK_CELLS).zip(place.first_chunk..) {
        let mut whole = [0u32; CHUNK_CELLS];
        whole[..chunk.len()].copy_from_slice(chunk);
        let bytes: [u8; CHUNK_BYTES] = transmute!(whole);
        arena.set(index, bytes, 0).map_err(map_error("ARENA"))?;
    }
    Ok(())
}

fn write_keys(
    maps: &mut Maps,
    cells_at: u32,
    tables: &Tables,
    keys: &Leftovers,
) -> Result<(), KernelError> {
    let mut superblocks = maps.hash::<SuperblockBytes, [u8; 8]>("SUPERBLOCKS")?;
    for (key, (_, start)) in keys.superblocks.iter().zip(&tables.superblocks) {
        let value: [u8; 8] = transmute!(Tables::relocate_start(*start, cells_at));
        superblocks
            .insert(key, value, 0)
            .map_err(map_error("SUPERBLOCKS"))?;
    }
    let mut nets = maps.trie::<NetBytes>("NETS")?;
    for ((bits, key), entry) in keys.nets.iter().zip(&tables.nets) {
        nets.insert(&Key::new(*bits, *key), entry.class, 0)
            .map_err(map_error("NETS"))?;
    }
    let mut ports = maps.trie::<PortBytes>("PORTS")?;
    for ((bits, key), entry) in keys.ports.iter().zip(&tables.ports) {
        ports
            .insert(&Key::new(*bits, *key), entry.verdict as u32, 0)
            .map_err(map_error("PORTS"))?;
    }
    Ok(())
}

impl Leftovers {
    /// The keys of a policy's tables, in the tables' order.
    fn of(policy: u32, tables: &Tables) -> Self {
        let superblock = |id| {
            let (by, id) = match id {
                SuperblockId::ByDev(dev) => (SuperblockKey::BY_DEVICE, u64::from(dev.0)),
                SuperblockId::ByTmpfsDev(dev) => (SuperblockKey::BY_TMPFS_DEVICE, u64::from(dev.0)),
                SuperblockId::OwnTmpfs => (SuperblockKey::BY_OWN_TMPFS, 0),
                SuperblockId::ByMagic(magic) => (SuperblockKey::BY_MAGIC, magic),
            };
            transmute!(SuperblockKey { policy, by, id })
        };
        let policy = policy.to_be_bytes();
        let net = |&NetEntry { address, bits, .. }: &NetEntry| {
            let key = transmute!(NetKey { policy, address });
            (NetKey::FIXED_BITS + u32::from(bits), key)
        };
        let port = |entry: &PortEntry| {
            let key = transmute!(PortKey {
                policy,
                class: entry.class.to_be_bytes(),
                protocol: entry.transport.to_be_bytes(),
                port: entry.port.to_be_bytes(),
            });
            (PortKey::FIXED_BITS + u32::from(entry.bits), key)
        };
        Self {
            superblocks: tables
                .superblocks
                .iter()
                .map(|(id, _)| superblock(*id))
                .collect(),
            nets: tables.nets.iter().map(net).collect(),
            ports: tables.ports.iter().map(port).collect(),
        }
    }
}
