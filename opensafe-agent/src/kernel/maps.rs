//! The maps by their names: as they were made, or as another run's are found.

use aya::{
    Ebpf,
    maps::{
        Array, ArrayOfMaps, HashMap, HashOfMaps, Map, MapData, MapError, PerCpuArray, RingBuf,
        lpm_trie::LpmTrie,
    },
};
use aya_obj::generated::bpf_map_type::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_RINGBUF};
use opensafe_common::tables::CHUNK_CELLS;

use super::{KernelError, held::Held};

/// Every map that an agent reads or writes.
pub(super) struct Maps {
    by_name: Vec<(&'static str, Map)>,
    /// Automata of no policy: a map of maps gives none back, but takes another.
    no_automata: Map,
}

/// Their names in the object.
const NAMES: [&str; 20] = [
    "EVENTS",
    "COUNTERS",
    "CGROUPS",
    "CGROUP_FILTER",
    "FIRST",
    "TASKS",
    "SANDBOXES",
    PLACES,
    "POLICIES",
    "ARENAS",
    "SUPERBLOCKS",
    "NETS",
    "PORTS",
    "OWN_TERMINALS",
    "OWN_TMPFS",
    "RECORDS",
    "RECORD_DIRECTORIES",
    "LOOKS",
    "MADE",
    "TAKEN",
];

/// Who has which place; the last one to be pinned, so whoever finds it finds all.
pub(super) const PLACES: &str = "PLACES";

impl Maps {
    /// Those of a loaded object.
    pub(super) fn of(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let mut take = |name| {
            let map = ebpf.take_map(name).ok_or(KernelError::Absent(name))?;
            Ok((name, map))
        };
        Ok(Self {
            by_name: NAMES
                .into_iter()
                .map(&mut take)
                .collect::<Result<_, KernelError>>()?,
            no_automata: no_automata().map_err(map_error(NO_AUTOMATA))?,
        })
    }

    /// Those that another run has pinned.
    pub(super) fn pinned(held: &Held) -> Result<Self, MapError> {
        let open = |name| Ok((name, Map::from_map_data(held.map(name)?)?));
        Ok(Self {
            by_name: NAMES
                .into_iter()
                .map(open)
                .collect::<Result<_, MapError>>()?,
            no_automata: Map::from_map_data(held.map(NO_AUTOMATA)?)?,
        })
    }

    /// Lets other runs find them.
    pub(super) fn pin(&self, held: &Held) -> Result<(), aya::pin::PinError> {
        let last = |name: &&str| *name == PLACES;
        held.hold_map(&self.no_automata, NO_AUTOMATA)?;
        let (last, rest): (Vec<_>, Vec<_>) = self.by_name.iter().partition(|(name, _)| last(name));
        rest.into_iter()
            .chain(last)
            .try_for_each(|(name, map)| held.hold_map(map, name))
    }

    pub(super) fn array<V: aya::Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<Array<&mut MapData, V>, KernelError> {
        Array::try_from(self.get_mut(name)?).map_err(map_error(name))
    }

    pub(super) fn hash<K: aya::Pod, V: aya::Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<HashMap<&mut MapData, K, V>, KernelError> {
        HashMap::try_from(self.get_mut(name)?).map_err(map_error(name))
    }

    pub(super) fn trie<K: aya::Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<LpmTrie<&mut MapData, K, u32>, KernelError> {
        LpmTrie::try_from(self.get_mut(name)?).map_err(map_error(name))
    }

    pub(super) fn counters<V: aya::Pod>(&self) -> Option<PerCpuArray<&MapData, V>> {
        PerCpuArray::try_from(self.get("COUNTERS")?).ok()
    }

    pub(super) fn counters_mut<V: aya::Pod>(
        &mut self,
    ) -> Result<PerCpuArray<&mut MapData, V>, KernelError> {
        PerCpuArray::try_from(self.get_mut("COUNTERS")?).map_err(map_error("COUNTERS"))
    }

    pub(super) fn arenas<V: aya::Pod>(
        &mut self,
    ) -> Result<ArrayOfMaps<&mut MapData, Array<MapData, V>>, KernelError> {
        ArrayOfMaps::try_from(self.get_mut("ARENAS")?).map_err(map_error("ARENAS"))
    }

    /// Takes a policy's automata out.
    pub(super) fn remove_arena(&mut self, policy: u32) -> Result<(), KernelError> {
        let found = self.by_name.iter_mut().find(|(name, _)| *name == "ARENAS");
        let (_, arenas) = found.ok_or(KernelError::Absent("ARENAS"))?;
        let Map::Array(none) = &self.no_automata else {
            return Err(KernelError::Absent(NO_AUTOMATA));
        };
        ArrayOfMaps::<_, MapData>::try_from(arenas)
            .and_then(|mut arenas| arenas.set(policy, none, 0))
            .map_err(map_error("ARENAS"))
    }

    pub(super) fn events(
        &mut self,
    ) -> Result<HashOfMaps<&mut MapData, u32, RingBuf<MapData>>, KernelError> {
        HashOfMaps::try_from(self.get_mut("EVENTS")?).map_err(map_error("EVENTS"))
    }

    fn get(&self, name: &str) -> Option<&Map> {
        let found = self.by_name.iter().find(|(found, _)| *found == name);
        found.map(|(_, map)| map)
    }

    fn get_mut(&mut self, name: &'static str) -> Result<&mut Map, KernelError> {
        let found = self.by_name.iter_mut().find(|(found, _)| *found == name);
        found.map(|(_, map)| map).ok_or(KernelError::Absent(name))
    }
}

/// An arena of one chunk, which has nothing in it.
fn no_automata() -> Result<Map, MapError> {
    // include/uapi/linux/bpf.h
    const BPF_F_INNER_MAP: u32 = 1 << 12;
    const KEY_BYTES: u32 = 4;
    #[expect(clippy::cast_possible_truncation, reason = "a chunk has 16 KiB")]
    const CHUNK_BYTES: u32 = (CHUNK_CELLS * size_of::<u32>()) as u32;
    let arena = aya_obj::Map::new_from_params(
        BPF_MAP_TYPE_ARRAY as u32,
        KEY_BYTES,
        CHUNK_BYTES,
        1,
        BPF_F_INNER_MAP,
    );
    MapData::create(arena, NO_AUTOMATA, None).and_then(Map::from_map_data)
}

/// Its name where it is pinned.
const NO_AUTOMATA: &str = "NO_AUTOMATA";

/// A ring buffer of that many bytes; a power of two, and of pages at least one.
pub(super) fn ring_buffer(bytes: u32) -> Result<RingBuf<MapData>, KernelError> {
    // aya makes every kind of map by itself but this one. A ring buffer has neither keys nor values.
    let ring = aya_obj::Map::new_from_params(BPF_MAP_TYPE_RINGBUF as u32, 0, 0, bytes, 0);
    MapData::create(ring, "events", None)
        .and_then(|ring| RingBuf::try_from(Map::RingBuf(ring)))
        .map_err(map_error("EVENTS"))
}

pub(super) fn map_error(map: &'static str) -> impl Fn(MapError) -> KernelError {
    move |source| KernelError::Map {
        map,
        source: Box::new(source),
    }
}
