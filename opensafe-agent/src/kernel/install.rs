//! Writes a policy's tables into the kernel's maps.
//!
//! There is room for two policies. One is in force, the other is written; then the sandbox is
//! switched to it by one store. What a switch leaves behind is overwritten by the next policy, after
//! every program that could still read it has ended.

use aya::{
    Ebpf,
    maps::{
        MapData,
        lpm_trie::{Key, LpmTrie},
    },
};
use opensafe_common::tables::{
    CHUNK_CELLS, DEAD, DEAD_CELLS, NetKey, Policy, PortKey, SuperblockKey,
};
use zerocopy::transmute;

use super::{KernelError, array, hash, map_error};
use crate::{
    event::Generation,
    tables::{NetEntry, PortEntry, SuperblockId, Tables},
};

type NetBytes = [u8; size_of::<NetKey>()];
type PortBytes = [u8; size_of::<PortKey>()];
type SuperblockBytes = [u8; size_of::<SuperblockKey>()];

/// Cells in one chunk of the arena, as bytes of a map value.
const CHUNK_BYTES: usize = CHUNK_CELLS * size_of::<u32>();

/// The two places where a policy can be.
pub(super) struct Regions {
    /// Cells in each.
    room: usize,
    /// How many policies were installed.
    installed: u32,
    /// What each place holds besides cells, to be removed before it is used again.
    leftovers: [Leftovers; 2],
}

/// Keys of one policy in the maps that all policies share.
#[derive(Default)]
pub(super) struct Leftovers {
    superblocks: Vec<SuperblockBytes>,
    nets: Vec<(u32, NetBytes)>,
    ports: Vec<(u32, PortBytes)>,
}

/// A policy that was written.
pub(super) struct Installed {
    /// Index of its [`Policy`].
    pub(super) slot: u32,
    leftovers: Leftovers,
}

impl Regions {
    /// Room for two policies of that size, each with half as much again: a mount that appears makes
    /// a policy larger.
    pub(super) fn for_policies_of(cells: usize) -> Self {
        let room = (cells + cells / 2 + CHUNK_CELLS).next_multiple_of(CHUNK_CELLS);
        Self {
            room,
            installed: 0,
            leftovers: Default::default(),
        }
    }

    /// Cells in the whole arena.
    pub(super) fn cells(&self) -> usize {
        CHUNK_CELLS + 2 * self.room
    }

    /// Generation of the policy in force.
    pub(super) fn generation(&self) -> Generation {
        Generation(self.installed)
    }

    /// Notes that the policy just written is in force.
    pub(super) fn use_next(&mut self, installed: Installed) {
        self.leftovers[installed.slot as usize & 1] = installed.leftovers;
        self.installed += 1;
    }

    fn next_slot(&self) -> u32 {
        self.installed & 1
    }

    /// First cell of a place; the first chunk is the dead state's.
    fn base(&self, slot: u32) -> usize {
        CHUNK_CELLS + slot as usize * self.room
    }
}

/// Writes everything of a policy but the switch to it.
pub(super) fn write(
    ebpf: &mut Ebpf,
    regions: &mut Regions,
    tables: &Tables,
) -> Result<Installed, KernelError> {
    const _: () = assert!(DEAD_CELLS <= CHUNK_CELLS && DEAD == 0);
    let slot = regions.next_slot();
    wait_for_programs();
    remove(
        ebpf,
        &std::mem::take(&mut regions.leftovers[slot as usize & 1]),
    );
    let keys = Leftovers::of(slot, tables);
    let base = regions.base(slot);
    let written = write_all(ebpf, regions, base, tables, &keys);
    if written.is_err() {
        remove(ebpf, &keys);
    }
    written.map(|()| Installed {
        slot,
        leftovers: keys,
    })
}

fn write_all(
    ebpf: &mut Ebpf,
    regions: &Regions,
    base: usize,
    tables: &Tables,
    keys: &Leftovers,
) -> Result<(), KernelError> {
    write_cells(ebpf, regions.room, base, tables)?;
    let cells_at = u32::try_from(base).unwrap_or(u32::MAX);
    write_keys(ebpf, cells_at, tables, keys)?;
    let policy = Policy {
        generation: regions.installed + 1,
        reserved: 0,
        default: tables.default,
        nameless: tables.nameless,
        other_family: tables.other_family,
        operations: tables.operations,
        sockets: tables.sockets,
        abstract_names: Tables::relocate_start(tables.abstract_names, cells_at),
        classes: tables.classes,
    };
    let bytes: [u8; size_of::<Policy>()] = transmute!(policy);
    let mut policies = array::<[u8; size_of::<Policy>()]>(ebpf, "POLICIES")?;
    policies
        .set(regions.next_slot(), bytes, 0)
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

fn remove(ebpf: &mut Ebpf, leftovers: &Leftovers) {
    // What is not there need not be removed.
    if let Ok(mut superblocks) = hash::<SuperblockBytes, [u8; 8]>(ebpf, "SUPERBLOCKS") {
        for key in &leftovers.superblocks {
            let _ = superblocks.remove(key);
        }
    }
    if let Ok(mut nets) = trie::<NetBytes>(ebpf, "NETS") {
        for (bits, key) in &leftovers.nets {
            let _ = nets.remove(&Key::new(*bits, *key));
        }
    }
    if let Ok(mut ports) = trie::<PortBytes>(ebpf, "PORTS") {
        for (bits, key) in &leftovers.ports {
            let _ = ports.remove(&Key::new(*bits, *key));
        }
    }
}

fn write_cells(
    ebpf: &mut Ebpf,
    room: usize,
    base: usize,
    tables: &Tables,
) -> Result<(), KernelError> {
    let cells = tables.relocate(u32::try_from(base).unwrap_or(u32::MAX));
    if cells.len() > room {
        return Err(KernelError::NoRoom {
            needed: cells.len(),
            room,
        });
    }
    let mut arena = array::<[u8; CHUNK_BYTES]>(ebpf, "ARENA")?;
    for (i, chunk) in cells.chunks(CHUNK_CELLS).enumerate() {
        let mut whole = [0u32; CHUNK_CELLS];
        whole[..chunk.len()].copy_from_slice(chunk);
        let bytes: [u8; CHUNK_BYTES] = transmute!(whole);
        let index = u32::try_from(base / CHUNK_CELLS + i).unwrap_or(u32::MAX);
        arena.set(index, bytes, 0).map_err(map_error("ARENA"))?;
    }
    Ok(())
}

fn write_keys(
    ebpf: &mut Ebpf,
    cells_at: u32,
    tables: &Tables,
    keys: &Leftovers,
) -> Result<(), KernelError> {
    let mut superblocks = hash::<SuperblockBytes, [u8; 8]>(ebpf, "SUPERBLOCKS")?;
    for (key, (_, start)) in keys.superblocks.iter().zip(&tables.superblocks) {
        let value: [u8; 8] = transmute!(Tables::relocate_start(*start, cells_at));
        superblocks
            .insert(key, value, 0)
            .map_err(map_error("SUPERBLOCKS"))?;
    }
    let mut nets = trie::<NetBytes>(ebpf, "NETS")?;
    for ((bits, key), entry) in keys.nets.iter().zip(&tables.nets) {
        nets.insert(&Key::new(*bits, *key), entry.class, 0)
            .map_err(map_error("NETS"))?;
    }
    let mut ports = trie::<PortBytes>(ebpf, "PORTS")?;
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

fn trie<'a, K: aya::Pod>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<LpmTrie<&'a mut MapData, K, u32>, KernelError> {
    let map = ebpf.map_mut(name).ok_or(KernelError::Absent(name))?;
    LpmTrie::try_from(map).map_err(map_error(name))
}
