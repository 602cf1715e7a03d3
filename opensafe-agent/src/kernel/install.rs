//! Writes a policy's tables into the kernel's maps.
//!
//! There is room for two policies. One is in force, the other is written; then the sandbox is
//! switched to it by one store. What the switch leaves behind is overwritten by the next policy but
//! one, long after the last program that could still read it has ended.

use aya::{
    Ebpf,
    maps::lpm_trie::{Key, LpmTrie},
};
use opensafe_common::tables::{
    CHUNK_CELLS, DEAD, DEAD_CELLS, NetKey, Policy, PortKey, Start, SuperblockKey,
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
    regions: &Regions,
    tables: &Tables,
) -> Result<Installed, KernelError> {
    const _: () = assert!(DEAD_CELLS <= CHUNK_CELLS && DEAD == 0);
    let slot = regions.next_slot();
    remove(ebpf, &regions.leftovers[slot as usize & 1]);
    let base = regions.base(slot);
    write_cells(ebpf, regions.room, base, tables)?;
    let leftovers = Leftovers {
        superblocks: write_superblocks(ebpf, slot, base, tables)?,
        nets: write_nets(ebpf, slot, tables)?,
        ports: write_ports(ebpf, slot, tables)?,
    };
    let policy = Policy {
        generation: regions.installed + 1,
        reserved: 0,
        default: tables.default,
        nameless: tables.nameless,
        other_family: tables.other_family,
        abstract_names: relocate(tables.abstract_names, base),
        classes: tables.classes,
    };
    let bytes: [u8; size_of::<Policy>()] = transmute!(policy);
    let mut policies = array::<[u8; size_of::<Policy>()]>(ebpf, "POLICIES")?;
    policies
        .set(slot, bytes, 0)
        .map_err(map_error("POLICIES"))?;
    Ok(Installed { slot, leftovers })
}

fn remove(ebpf: &mut Ebpf, leftovers: &Leftovers) {
    // What is not there need not be removed.
    if let Ok(mut superblocks) = hash::<SuperblockBytes, [u8; 8]>(ebpf, "SUPERBLOCKS") {
        for key in &leftovers.superblocks {
            let _ = superblocks.remove(key);
        }
    }
    if let Some(mut nets) = ebpf
        .map_mut("NETS")
        .and_then(|map| LpmTrie::<_, NetBytes, u32>::try_from(map).ok())
    {
        for (bits, key) in &leftovers.nets {
            let _ = nets.remove(&Key::new(*bits, *key));
        }
    }
    if let Some(mut ports) = ebpf
        .map_mut("PORTS")
        .and_then(|map| LpmTrie::<_, PortBytes, u32>::try_from(map).ok())
    {
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

fn write_superblocks(
    ebpf: &mut Ebpf,
    policy: u32,
    base: usize,
    tables: &Tables,
) -> Result<Vec<SuperblockBytes>, KernelError> {
    let mut map = hash::<SuperblockBytes, [u8; 8]>(ebpf, "SUPERBLOCKS")?;
    let mut keys = Vec::with_capacity(tables.superblocks.len());
    for &(id, start) in &tables.superblocks {
        let key = match id {
            SuperblockId::ByDev(dev) => SuperblockKey {
                policy,
                by: SuperblockKey::BY_DEVICE,
                id: u64::from(dev.0),
            },
            SuperblockId::ByMagic(magic) => SuperblockKey {
                policy,
                by: SuperblockKey::BY_MAGIC,
                id: magic,
            },
        };
        let key: SuperblockBytes = transmute!(key);
        let value: [u8; 8] = transmute!(relocate(start, base));
        map.insert(key, value, 0)
            .map_err(map_error("SUPERBLOCKS"))?;
        keys.push(key);
    }
    Ok(keys)
}

fn write_nets(
    ebpf: &mut Ebpf,
    policy: u32,
    tables: &Tables,
) -> Result<Vec<(u32, NetBytes)>, KernelError> {
    let map = ebpf.map_mut("NETS").ok_or(KernelError::Absent("NETS"))?;
    let mut map: LpmTrie<_, NetBytes, u32> = LpmTrie::try_from(map).map_err(map_error("NETS"))?;
    let mut keys = Vec::with_capacity(tables.nets.len());
    for &NetEntry {
        address,
        bits,
        class,
    } in &tables.nets
    {
        let bits = NetKey::FIXED_BITS + u32::from(bits);
        let key: NetBytes = transmute!(NetKey {
            policy: policy.to_be_bytes(),
            address
        });
        map.insert(&Key::new(bits, key), class, 0)
            .map_err(map_error("NETS"))?;
        keys.push((bits, key));
    }
    Ok(keys)
}

fn write_ports(
    ebpf: &mut Ebpf,
    policy: u32,
    tables: &Tables,
) -> Result<Vec<(u32, PortBytes)>, KernelError> {
    let map = ebpf.map_mut("PORTS").ok_or(KernelError::Absent("PORTS"))?;
    let mut map: LpmTrie<_, PortBytes, u32> = LpmTrie::try_from(map).map_err(map_error("PORTS"))?;
    let mut keys = Vec::with_capacity(tables.ports.len());
    for &PortEntry {
        class,
        transport,
        port,
        bits,
        verdict,
    } in &tables.ports
    {
        let bits = PortKey::FIXED_BITS + u32::from(bits);
        let key: PortBytes = transmute!(PortKey {
            policy: policy.to_be_bytes(),
            class: class.to_be_bytes(),
            protocol: transport.to_be_bytes(),
            port: port.to_be_bytes(),
        });
        map.insert(&Key::new(bits, key), verdict as u32, 0)
            .map_err(map_error("PORTS"))?;
        keys.push((bits, key));
    }
    Ok(keys)
}

/// The dead state is the same for all policies; every other lies in the policy's place.
fn relocate(start: Start, base: usize) -> Start {
    let base = u32::try_from(base).unwrap_or(u32::MAX);
    let moved = |state: u32| {
        if state == DEAD {
            DEAD
        } else {
            state.saturating_add(base)
        }
    };
    Start {
        anchored: moved(start.anchored),
        floating: moved(start.floating),
    }
}
