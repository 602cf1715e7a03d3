//! A sandbox's place in the maps: its index, and its part of the arena.
//!
//! Several runs can share the maps, so places are given out under the lock that goes with them.

use opensafe_common::{
    counter::Counter,
    guarded::sandbox_of_note,
    places::{Place, Places},
    tables::{FIRST_CGROUPS, FirstCgroup, POLICIES_A_SANDBOX},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    KernelError,
    install::{DEAD_CHUNKS, Region},
    maps::{Maps, PLACES, map_error},
};

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// Index of the sandbox.
    pub(super) sandbox: u32,
    first_chunk: u32,
    chunks: u32,
}

impl Seat {
    /// Takes a place with so many chunks of the arena; `None` if there is none. The caller holds the maps' lock.
    pub(super) fn take(maps: &mut Maps, chunks: u32) -> Result<Option<Self>, KernelError> {
        let arena = maps.array::<[u8; CHUNK_BYTES]>("ARENA")?.len();
        let mut places = read(maps)?;
        let Some(seat) = find(&places.places, arena, chunks) else {
            return Ok(None);
        };
        places.places[seat.sandbox as usize] = Place {
            owner: std::process::id(),
            first_chunk: seat.first_chunk,
            chunks,
            reserved: 0,
        };
        seat.reset_counters(maps)?;
        write(maps, &places)?;
        Ok(Some(seat))
    }

    /// Where the policy in one of its regions goes.
    pub(super) fn region(self, region: usize) -> Region {
        let region = u32::try_from(region).unwrap_or(0) % POLICIES_A_SANDBOX;
        let chunks = self.chunks / POLICIES_A_SANDBOX;
        Region {
            policy: self.sandbox * POLICIES_A_SANDBOX + region,
            first_chunk: self.first_chunk + region * chunks,
            chunks,
        }
    }

    /// Arms a cgroup by its id (its directory's inode number). Nobody may be in it yet.
    pub(super) fn arm(self, maps: &mut Maps, cgroup: u64) -> Result<(), KernelError> {
        // The filter first: whoever is in the map must not be passed over by it.
        let mut filter = maps.array::<u64>("CGROUP_FILTER")?;
        let slot = u32::try_from(cgroup % u64::from(filter.len())).unwrap_or(0);
        filter.set(slot, 1, 0).map_err(map_error("CGROUP_FILTER"))?;
        maps.hash::<u64, u32>("CGROUPS")?
            .insert(cgroup, self.sandbox, 0)
            .map_err(map_error("CGROUPS"))?;
        let mut first = maps.array::<FirstBytes>("FIRST")?;
        let place = place_of(cgroup);
        let taken = first.get(&place, 0).map_err(map_error("FIRST"))?;
        if taken == FirstBytes::default() {
            let ours: FirstBytes = zerocopy::transmute!(FirstCgroup {
                cgroup,
                sandbox: u64::from(self.sandbox),
            });
            first.set(place, ours, 0).map_err(map_error("FIRST"))?;
        }
        Ok(())
    }

    /// Takes back what names this sandbox. Nobody may be in it any more.
    pub(super) fn disarm(self, maps: &mut Maps) {
        // What cannot be found or removed now goes with the maps.
        let Ok(cgroups) = maps.hash::<u64, u32>("CGROUPS") else {
            return;
        };
        let ours: Vec<u64> = cgroups
            .iter()
            .flatten()
            .filter(|(_, sandbox)| *sandbox == self.sandbox)
            .map(|(cgroup, _)| cgroup)
            .collect();
        if let Ok(mut first) = maps.array::<FirstBytes>("FIRST") {
            for cgroup in &ours {
                let place = place_of(*cgroup);
                let there = first
                    .get(&place, 0)
                    .map(|bytes| zerocopy::transmute!(bytes));
                if there.is_ok_and(|there: FirstCgroup| there.cgroup == *cgroup) {
                    let _ = first.set(place, FirstBytes::default(), 0);
                }
            }
        }
        if let Ok(mut cgroups) = maps.hash::<u64, u32>("CGROUPS") {
            for cgroup in &ours {
                let _ = cgroups.remove(cgroup);
            }
        }
        forget(maps, "OWN_TMPFS", |sandbox: &u32| *sandbox == self.sandbox);
        forget(maps, "OWN_TERMINALS", |note: &u64| {
            sandbox_of_note(*note) == self.sandbox
        });
        if let Ok(mut events) = maps.events() {
            let _ = events.remove(&self.sandbox);
        }
    }

    /// Gives the place back. The caller holds the maps' lock.
    pub(super) fn leave(self, maps: &mut Maps) -> Result<(), KernelError> {
        let mut places = read(maps)?;
        places.places[self.sandbox as usize] = Place::default();
        write(maps, &places)
    }

    /// How many tasks carry this sandbox's mark.
    pub(super) fn marks(self, maps: &mut Maps) -> usize {
        let Ok(tasks) = maps.hash::<u64, u32>("TASKS") else {
            return 0;
        };
        let marks = tasks.iter().flatten();
        marks
            .filter(|(_, sandbox)| *sandbox == self.sandbox)
            .count()
    }

    fn reset_counters(self, maps: &mut Maps) -> Result<(), KernelError> {
        let mut counters = maps.counters_mut::<[u64; Counter::COUNT]>()?;
        let cpus = aya::util::nr_cpus().map_or(1, |cpus| cpus);
        let zeroes = aya::maps::PerCpuValues::try_from(vec![[0; Counter::COUNT]; cpus])
            .map_err(KernelError::Reader)?;
        counters
            .set(self.sandbox, zeroes, 0)
            .map_err(map_error("COUNTERS"))
    }
}

/// The number of the next policy among all in these maps. The caller holds their lock.
pub(super) fn next_epoch(maps: &mut Maps) -> Result<u32, KernelError> {
    let mut places = read(maps)?;
    places.epochs = places.epochs.wrapping_add(1);
    write(maps, &places)?;
    Ok(places.epochs)
}

type PlacesBytes = [u8; size_of::<Places>()];
type FirstBytes = [u8; size_of::<FirstCgroup>()];

/// The first free place, with the first part of an arena of so many chunks that is wide enough.
fn find(places: &[Place], arena: u32, chunks: u32) -> Option<Seat> {
    let free = places.iter().position(|place| place.owner == 0)?;
    let mut taken: Vec<&Place> = places.iter().filter(|place| place.owner != 0).collect();
    taken.sort_by_key(|place| place.first_chunk);
    let mut first_chunk = DEAD_CHUNKS;
    for place in taken {
        if place.first_chunk.saturating_sub(first_chunk) >= chunks {
            break;
        }
        first_chunk = first_chunk.max(place.first_chunk.saturating_add(place.chunks));
    }
    let fits = arena.saturating_sub(first_chunk) >= chunks;
    fits.then_some(Seat {
        sandbox: u32::try_from(free).ok()?,
        first_chunk,
        chunks,
    })
}

fn place_of(cgroup: u64) -> u32 {
    u32::try_from(cgroup % u64::from(FIRST_CGROUPS)).unwrap_or(0)
}

/// Removes the entries of a map whose value is `ours`.
fn forget<V: aya::Pod>(maps: &mut Maps, name: &'static str, ours: impl Fn(&V) -> bool) {
    let Ok(mut map) = maps.hash::<u64, V>(name) else {
        return;
    };
    let keys: Vec<u64> = map
        .iter()
        .flatten()
        .filter(|(_, value)| ours(value))
        .map(|(key, _)| key)
        .collect();
    for key in keys {
        let _ = map.remove(&key);
    }
}

fn read(maps: &mut Maps) -> Result<Box<Places>, KernelError> {
    let bytes: PlacesBytes = maps
        .array::<PlacesBytes>(PLACES)?
        .get(&0, 0)
        .map_err(map_error(PLACES))?;
    Places::read_from_bytes(&bytes)
        .map(Box::new)
        .map_err(|_| KernelError::Absent("readable map PLACES"))
}

fn write(maps: &mut Maps, places: &Places) -> Result<(), KernelError> {
    let bytes = PlacesBytes::try_from(places.as_bytes())
        .map_err(|_| KernelError::Absent("writable map PLACES"))?;
    maps.array::<PlacesBytes>(PLACES)?
        .set(0, bytes, 0)
        .map_err(map_error(PLACES))
}

/// Bytes in one chunk of the arena.
const CHUNK_BYTES: usize = opensafe_common::tables::CHUNK_CELLS * size_of::<u32>();

#[cfg(test)]
mod tests {
    use super::*;

    fn place(first_chunk: u32, chunks: u32) -> Place {
        Place {
            owner: 1,
            first_chunk,
            chunks,
            reserved: 0,
        }
    }

    #[test]
    fn places_do_not_overlap_and_holes_are_used_again() {
        let free = Place::default();
        let first = find(&[free; 4], 10, 3).unwrap();
        assert_eq!((first.sandbox, first.first_chunk), (0, DEAD_CHUNKS));
        let second = find(&[place(1, 3), free, free], 10, 3).unwrap();
        assert_eq!((second.sandbox, second.first_chunk), (1, 4));
        let between = find(&[place(7, 3), free, place(1, 3)], 10, 3).unwrap();
        assert_eq!((between.sandbox, between.first_chunk), (1, 4));
        let in_front = find(&[free, place(4, 3)], 10, 3).unwrap();
        assert_eq!((in_front.sandbox, in_front.first_chunk), (0, 1));
    }

    #[test]
    fn what_does_not_fit_gets_no_place() {
        let free = Place::default();
        assert_eq!(find(&[place(1, 3), free], 6, 3), None);
        assert_eq!(find(&[place(1, 2), place(5, 2), free], 7, 3), None);
        assert_eq!(find(&[place(1, 3)], 100, 3), None);
        assert_eq!(find(&[free], 3, 3), None);
    }

    #[test]
    fn a_sandbox_s_regions_lie_side_by_side_in_its_place() {
        let seat = Seat {
            sandbox: 3,
            first_chunk: 11,
            chunks: 4,
        };
        let (one, two) = (seat.region(0), seat.region(1));
        assert_eq!((one.policy, one.first_chunk, one.chunks), (6, 11, 2));
        assert_eq!((two.policy, two.first_chunk, two.chunks), (7, 13, 2));
        assert_eq!(opensafe_common::tables::sandbox_of_policy(two.policy), 3);
    }
}
