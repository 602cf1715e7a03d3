//! Writes a policy's tables into the kernel's maps.
//!
//! A sandbox has room for two policies. One is in force, the other is written; then the sandbox is
//! switched to it by one store. What a switch leaves behind is overwritten by the next policy, after
//! every program that could still read it has ended.

use aya::maps::{Array, MapData, lpm_trie::Key};
use opensafe_common::tables::{
    CHUNK_CELLS, DEAD, DEAD_CELLS, NO_POLICY, NetKey, POLICIES_A_SANDBOX, Policy, PortKey, Sandbox,
    SuperblockKey,
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

/// The policies of a sandbox: one in force, and one to be written.
pub(super) struct Policies {
    /// How many policies were installed.
    installed: u32,
    /// What each has in the maps that all share, to be removed before its place is used again.
    leftovers: [Leftovers; POLICIES_A_SANDBOX as usize],
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

impl Policies {
    /// Nothing is installed yet.
    pub(super) fn new() -> Self {
        Self {
            installed: 0,
            leftovers: Default::default(),
        }
    }

    /// Those of a sandbox that another process has installed.
    pub(super) fn in_force(maps: &mut Maps, seat: Seat) -> Result<Self, KernelError> {
        let sandboxes = maps.array::<[u8; size_of::<Sandbox>()]>("SANDBOXES")?;
        let sandbox = sandboxes.get(&seat.sandbox, 0);
        let sandbox: Sandbox = transmute!(sandbox.map_err(map_error("SANDBOXES"))?);
        let policies = maps.array::<[u8; size_of::<Policy>()]>("POLICIES")?;
        let policy = policies.get(&sandbox.policy, 0);
        let policy: Policy = transmute!(policy.map_err(map_error("POLICIES"))?);
        let mut leftovers: [Leftovers; POLICIES_A_SANDBOX as usize] = Default::default();
        for (which, leftovers) in (0..).zip(&mut leftovers) {
            *leftovers = Leftovers::found(maps, seat.policy(which))?;
        }
        Ok(Self {
            installed: policy.generation,
            leftovers,
        })
    }

    /// Generation of the policy in force.
    pub(super) fn generation(&self) -> Generation {
        Generation(self.installed)
    }

    /// Notes that the policy just written is in force.
    pub(super) fn use_next(&mut self, installed: Installed) {
        self.leftovers[self.next() as usize] = installed.leftovers;
        self.installed += 1;
    }

    /// Removes what is left of all policies. Nobody may be in the sandbox any more.
    pub(super) fn clear(&mut self, maps: &mut Maps, seat: Seat) {
        wait_for_programs(maps);
        for (which, leftovers) in (0..).zip(&mut self.leftovers) {
            remove(maps, &std::mem::take(leftovers));
            // What cannot be taken out goes with the maps.
            let _ = maps.remove_arena(seat.policy(which));
        }
    }

    fn next(&self) -> u32 {
        self.installed % POLICIES_A_SANDBOX
    }
}

/// The chunk of each arena where its tables begin. In front of it is the dead state.
const FIRST_CHUNK: u32 = 1;
/// Its first cell.
#[expect(clippy::cast_possible_truncation, reason = "a chunk has 4,096 cells")]
const FIRST_CELL: u32 = FIRST_CHUNK * CHUNK_CELLS as u32;
const _: () = assert!(DEAD == 0 && DEAD_CELLS <= FIRST_CELL as usize);

/// Writes everything of a policy but the switch to it. `epoch` is the policy's own among all in these maps: the number of the
/// look at the mounts that its tables come from.
pub(super) fn write(
    maps: &mut Maps,
    seat: Seat,
    policies: &mut Policies,
    epoch: u32,
    tables: &Tables,
) -> Result<Installed, KernelError> {
    let next = policies.next();
    wait_for_programs(maps);
    remove(
        maps,
        &std::mem::take(&mut policies.leftovers[next as usize]),
    );
    let slot = seat.policy(next);
    let policy = Policy {
        generation: policies.installed + 1,
        epoch,
        default: tables.default,
        nameless: tables.nameless,
        other_family: tables.other_family,
        operations: tables.operations,
        sockets: tables.sockets,
        abstract_names: Tables::relocate_start(tables.abstract_names, FIRST_CELL),
        classes: tables.classes,
    };
    let keys = Leftovers::of(slot, tables);
    let written = write_all(maps, slot, policy, tables, &keys);
    if written.is_err() {
        remove(maps, &keys);
    }
    written.map(|()| Installed {
        slot,
        leftovers: keys,
    })
}

fn write_all(
    maps: &mut Maps,
    slot: u32,
    policy: Policy,
    tables: &Tables,
    keys: &Leftovers,
) -> Result<(), KernelError> {
    let arena = arena(&tables.relocate(FIRST_CELL))?;
    maps.arenas()?
        .set(slot, &arena, 0)
        .map_err(map_error("ARENAS"))?;
    write_keys(maps, tables, keys)?;
    let bytes: [u8; size_of::<Policy>()] = transmute!(policy);
    let mut policies = maps.array::<[u8; size_of::<Policy>()]>("POLICIES")?;
    policies.set(slot, bytes, 0).map_err(map_error("POLICIES"))
}

/// Returns once every program that was running has ended, so that none still reads the tables of the
/// policy before the one in force.
///
/// Whoever changes a map of maps is kept for an RCU grace period (`maybe_wait_bpf_programs` of kernel/bpf/syscall.c), and LSM
/// programs run inside RCU's read side. membarrier(2) would be shorter, and waits for nothing where one processor is online
/// (kernel/sched/membarrier.c), although programs are preempted there like anywhere.
fn wait_for_programs(maps: &mut Maps) {
    if maps.remove_arena(NO_POLICY).is_err() {
        // Longer than most programs run.
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

/// The cells' map, of a chunk in front of them and as many as they need.
fn arena(cells: &[u32]) -> Result<Array<MapData, [u8; CHUNK_BYTES]>, KernelError> {
    // include/uapi/linux/bpf.h
    const BPF_F_INNER_MAP: u32 = 1 << 12;
    let chunks = u32::try_from(cells.len().div_ceil(CHUNK_CELLS)).unwrap_or(u32::MAX);
    let mut arena = Array::create(FIRST_CHUNK.saturating_add(chunks), BPF_F_INNER_MAP)
        .map_err(map_error("ARENAS"))?;
    for (chunk, index) in cells.chunks(CHUNK_CELLS).zip(FIRST_CHUNK..) {
        let mut whole = [0u32; CHUNK_CELLS];
        whole[..chunk.len()].copy_from_slice(chunk);
        let bytes: [u8; CHUNK_BYTES] = transmute!(whole);
        arena.set(index, bytes, 0).map_err(map_error("ARENAS"))?;
    }
    Ok(arena)
}

fn write_keys(maps: &mut Maps, tables: &Tables, keys: &Leftovers) -> Result<(), KernelError> {
    let mut superblocks = maps.hash::<SuperblockBytes, [u8; 8]>("SUPERBLOCKS")?;
    for (key, (_, start)) in keys.superblocks.iter().zip(&tables.superblocks) {
        let value: [u8; 8] = transmute!(Tables::relocate_start(*start, FIRST_CELL));
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
    /// The keys of a policy that are there.
    fn found(maps: &mut Maps, policy: u32) -> Result<Self, KernelError> {
        let superblocks = maps.hash::<SuperblockBytes, [u8; 8]>("SUPERBLOCKS")?;
        let of = |key: &SuperblockBytes| {
            let key: SuperblockKey = transmute!(*key);
            key.policy == policy
        };
        let superblocks = superblocks.keys().flatten().filter(of).collect();
        let begins = policy.to_be_bytes();
        let nets = maps.trie::<NetBytes>("NETS")?;
        let nets = nets.keys().flatten();
        let nets = nets
            .filter(|key| key.data().starts_with(&begins))
            .map(|key| (key.prefix_len(), key.data()))
            .collect();
        let ports = maps.trie::<PortBytes>("PORTS")?;
        let ports = ports.keys().flatten();
        let ports = ports
            .filter(|key| key.data().starts_with(&begins))
            .map(|key| (key.prefix_len(), key.data()))
            .collect();
        Ok(Self {
            superblocks,
            nets,
            ports,
        })
    }

    /// The keys of a policy's tables, in the tables' order.
    fn of(policy: u32, tables: &Tables) -> Self {
        let superblock = |id| {
            let (by, id) = match id {
                SuperblockId::ByDev(dev) => (SuperblockKey::BY_DEVICE, u64::from(dev.0)),
                SuperblockId::ByTmpfsDev(dev) => (SuperblockKey::BY_TMPFS_DEVICE, u64::from(dev.0)),
                SuperblockId::OwnTmpfs => (SuperblockKey::BY_OWN_TMPFS, 0),
                SuperblockId::ByOwnTmpfsDev(dev) => (SuperblockKey::BY_OWN_TMPFS, u64::from(dev.0)),
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
