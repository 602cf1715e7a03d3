//! A sandbox's place in the maps: its index.
//!
//! Several runs can share the maps, so places are given out under the lock that goes with them.

use std::collections::BTreeSet;

use opensafe_common::{
    counter::Counter,
    guarded::sandbox_of_note,
    places::Places,
    room::Taken,
    tables::{FIRST_CGROUPS, FirstCgroup, LATEST_LOOK, POLICIES_A_SANDBOX, RecordKey},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    KernelError,
    maps::{Maps, PLACES, map_error},
    records,
};

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// Index of the sandbox.
    pub(super) sandbox: u32,
    /// The cgroup that was armed; 0, which none has, before.
    cgroup: u64,
    /// The record that is kept.
    pub(super) record: Option<RecordKey>,
}

/// Whether others have places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    None,
    /// Some have, be it that they are gone and have left who is confined.
    Some,
}

impl Seat {
    /// Takes a place; `None` if there is none. The caller holds the maps' lock. `kept` tells in which places are runs that can
    /// be taken up.
    pub(super) fn take(
        maps: &mut Maps,
        kept: impl Fn() -> BTreeSet<u32>,
    ) -> Result<Option<Self>, KernelError> {
        let mut places = read(maps)?;
        records::forget_those_of_the_dead(maps, &mut places, kept);
        let free = (0..)
            .zip(&mut places.owners)
            .find(|(_, owner)| **owner == 0);
        let Some((sandbox, owner)) = free else {
            write(maps, &places)?;
            return Ok(None);
        };
        *owner = std::process::id();
        let seat = Self::at(sandbox);
        seat.reset_counters(maps)?;
        write(maps, &places)?;
        Ok(Some(seat))
    }

    /// Takes the place of an agent that is gone. The caller holds the maps' lock, and knows that it is.
    pub(super) fn take_over(
        maps: &mut Maps,
        sandbox: u32,
        cgroup: u64,
    ) -> Result<Self, KernelError> {
        let mut places = read(maps)?;
        let owner = places.owners.get_mut(sandbox as usize);
        *owner.ok_or(KernelError::Absent("place of that number"))? = std::process::id();
        write(maps, &places)?;
        Ok(Self {
            cgroup,
            record: records::of(maps, sandbox),
            ..Self::at(sandbox)
        })
    }

    const fn at(sandbox: u32) -> Self {
        Self {
            sandbox,
            cgroup: 0,
            record: None,
        }
    }

    /// Index of one of its policies: the one in force, or the next one.
    pub(super) const fn policy(self, which: u32) -> u32 {
        self.sandbox * POLICIES_A_SANDBOX + which % POLICIES_A_SANDBOX
    }

    /// Arms a cgroup by its id (its directory's inode number). Nobody may be in it yet.
    pub(super) fn arm(&mut self, maps: &mut Maps, cgroup: u64) -> Result<(), KernelError> {
        self.cgroup = cgroup;
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
        if self.cgroup != 0
            && let Ok(mut first) = maps.array::<FirstBytes>("FIRST")
        {
            let place = place_of(self.cgroup);
            let there = first
                .get(&place, 0)
                .map(|bytes| zerocopy::transmute!(bytes));
            if there.is_ok_and(|there: FirstCgroup| there.cgroup == self.cgroup) {
                let _ = first.set(place, FirstBytes::default(), 0);
            }
        }
        // A cgroup that is removed is taken out by the programs, and those below it before it. So the map, which grows with the
        // runs, is gone through only if this one is left.
        let is_left = maps
            .hash::<u64, u32>("CGROUPS")
            .is_ok_and(|cgroups| cgroups.get(&self.cgroup, 0).is_ok());
        if is_left {
            forget::<u64, _>(maps, "CGROUPS", |sandbox: &u32| *sandbox == self.sandbox);
        }
        forget::<u64, _>(maps, "OWN_TMPFS", |sandbox: &u32| *sandbox == self.sandbox);
        forget::<u64, _>(maps, "OWN_TERMINALS", |note: &u64| {
            sandbox_of_note(*note) == self.sandbox
        });
        records::forget_record(maps, self);
        if let Ok(mut events) = maps.events() {
            let _ = events.remove(&self.sandbox);
        }
    }

    /// Gives the place back; who is left then. The caller holds the maps' lock.
    pub(super) fn leave(self, maps: &mut Maps) -> Result<Others, KernelError> {
        records::forget_directories(maps, self);
        let mut places = read(maps)?;
        if let Some(owner) = places.owners.get_mut(self.sandbox as usize) {
            *owner = 0;
        }
        write(maps, &places)?;
        let is_free = |owner: &u32| *owner == 0;
        // One that was killed while it started has a place that nobody will give back. Marks are asked for only then: those of
        // who has just ended are there for a while.
        let is_gone =
            |owner: &u32| is_free(owner) || *owner == Places::LEFT || records::is_dead(*owner);
        let owners = &places.owners;
        let is_nobody =
            owners.iter().all(is_free) || owners.iter().all(is_gone) && !is_anyone_marked(maps);
        match is_nobody {
            true => Ok(Others::None),
            false => Ok(Others::Some),
        }
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
            .map_err(|error| map_error("COUNTERS")(error.into()))?;
        counters
            .set(self.sandbox, zeroes, 0)
            .map_err(map_error("COUNTERS"))?;
        maps.array::<Taken>("TAKEN")?
            .set(self.sandbox, Taken::default(), 0)
            .map_err(map_error("TAKEN"))
    }
}

/// The next number for a look at the mounts, and the policy that comes from it, among all in these maps. The programs note it
/// with each superblock that is made from now on. The caller holds the maps' lock.
pub(super) fn next_look(maps: &mut Maps) -> Result<u32, KernelError> {
    let mut places = read(maps)?;
    places.looks = places.looks.wrapping_add(1);
    write(maps, &places)?;
    maps.array::<u64>("LOOKS")?
        .set(LATEST_LOOK, u64::from(places.looks), 0)
        .map_err(map_error("LOOKS"))?;
    Ok(places.looks)
}

/// Whether any task carries a mark, of whatever sandbox.
fn is_anyone_marked(maps: &mut Maps) -> bool {
    // What cannot be asked is taken for yes.
    maps.hash::<u64, u32>("TASKS")
        .map_or(true, |tasks| tasks.keys().next().is_some())
}

type PlacesBytes = [u8; size_of::<Places>()];
type FirstBytes = [u8; size_of::<FirstCgroup>()];

fn place_of(cgroup: u64) -> u32 {
    u32::try_from(cgroup % u64::from(FIRST_CGROUPS)).unwrap_or(0)
}

/// Removes the entries of a map whose value is `ours`.
pub(super) fn forget<K: aya::Pod, V: aya::Pod>(
    maps: &mut Maps,
    name: &'static str,
    ours: impl Fn(&V) -> bool,
) {
    let Ok(mut map) = maps.hash::<K, V>(name) else {
        return;
    };
    let keys: Vec<K> = map
        .iter()
        .flatten()
        .filter(|(_, value)| ours(value))
        .map(|(key, _)| key)
        .collect();
    for key in keys {
        let _ = map.remove(&key);
    }
}

/// Whether whoever attended to the run in a place is gone.
pub(super) fn is_unattended(maps: &mut Maps, sandbox: u32) -> Result<bool, KernelError> {
    let owner = read(maps)?.owners.get(sandbox as usize).copied();
    Ok(owner.is_some_and(records::is_dead))
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

#[cfg(test)]
mod tests {
    use opensafe_common::tables::sandbox_of_policy;

    use super::*;

    #[test]
    fn a_policy_tells_its_sandbox() {
        for sandbox in [0, 3, 1023] {
            let seat = Seat::at(sandbox);
            assert_ne!(seat.policy(0), seat.policy(1));
            for which in 0..4 {
                assert_eq!(sandbox_of_policy(seat.policy(which)), sandbox);
            }
        }
    }
}
