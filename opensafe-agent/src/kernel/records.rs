//! Records of runs that go on, and the directories above them: what the programs let no sandbox change or move.

use std::{collections::BTreeSet, path::Path};

use opensafe_common::{
    places::Places,
    tables::{RecordKey, RecordsBelow},
};

use super::{
    Kernel, KernelError,
    maps::{Maps, map_error},
    seat::{self, Seat, forget},
};
use crate::view::Dev;

const RECORDS: &str = "RECORDS";
const DIRECTORIES: &str = "RECORD_DIRECTORIES";

type KeyBytes = [u8; size_of::<RecordKey>()];
type BelowBytes = [u8; size_of::<RecordsBelow>()];

impl Kernel {
    /// Keeps every sandbox from changing a file, the record of this one, and from moving the directories `above` it. As long as
    /// this value is there, the file has to be open, so that its inode's number is no other's; a directory's may be given out
    /// again once somebody outside has removed it, and then another one is not moved. On btrfs, files and directories of other
    /// subvolumes with the same number are kept too.
    ///
    /// # Errors
    /// If it is the record of another run that goes on.
    pub fn keep_record(
        &mut self,
        (device, inode): (Dev, u64),
        above: &[(Dev, u64)],
    ) -> Result<(), KernelError> {
        let _lock = self.lock()?;
        if !keep(&mut self.maps, &mut self.seat, record(device, inode))? {
            return Err(KernelError::AnothersRecord);
        }
        for (device, inode) in above {
            keep_directory(&mut self.maps, self.seat, record(*device, *inode))?;
        }
        Ok(())
    }

    /// Whether a file is the record of a run that goes on.
    pub fn is_record(&mut self, device: Dev, inode: u64) -> bool {
        let records = self.maps.hash::<KeyBytes, u32>(RECORDS);
        records.is_ok_and(|records| records.get(&key(record(device, inode)), 0).is_ok())
    }
}

fn record(device: Dev, inode: u64) -> RecordKey {
    RecordKey {
        inode,
        device: u64::from(device.0),
    }
}

fn key(record: RecordKey) -> KeyBytes {
    zerocopy::transmute!(record)
}

/// Notes where a sandbox's record is. Whether it is no other's. That of a run which nobody attends to is closed: who has just
/// created a file with its number has another file, and it is gone. The caller holds the maps' lock.
fn keep(maps: &mut Maps, seat: &mut Seat, record: RecordKey) -> Result<bool, KernelError> {
    // include/uapi/linux/bpf.h
    const BPF_NOEXIST: u64 = 1;
    let mut records = maps.hash::<KeyBytes, u32>(RECORDS)?;
    match records.insert(key(record), seat.sandbox, BPF_NOEXIST) {
        Ok(()) => {
            seat.record = Some(record);
            Ok(true)
        }
        Err(error) => {
            let Ok(other) = records.get(&key(record), 0) else {
                return Err(map_error(RECORDS)(error));
            };
            if !seat::is_unattended(maps, other)? {
                return Ok(false);
            }
            let mut records = maps.hash::<KeyBytes, u32>(RECORDS)?;
            records
                .insert(key(record), seat.sandbox, 0)
                .map_err(map_error(RECORDS))?;
            seat.record = Some(record);
            Ok(true)
        }
    }
}

/// Notes a directory above it, which other runs may have theirs below, too. The caller holds the maps' lock.
fn keep_directory(maps: &mut Maps, seat: Seat, record: RecordKey) -> Result<(), KernelError> {
    let key = key(record);
    let mut directories = maps.hash::<KeyBytes, BelowBytes>(DIRECTORIES)?;
    let below = directories.get(&key, 0).unwrap_or([0; _]);
    let mut below: RecordsBelow = zerocopy::transmute!(below);
    below.add(seat.sandbox);
    let below: BelowBytes = zerocopy::transmute!(below);
    directories
        .insert(key, below, 0)
        .map_err(map_error(DIRECTORIES))
}

/// The record of a sandbox.
pub(super) fn of(maps: &mut Maps, sandbox: u32) -> Option<RecordKey> {
    let records = maps.hash::<KeyBytes, u32>(RECORDS).ok()?;
    records
        .iter()
        .flatten()
        .find(|(_, of)| *of == sandbox)
        .map(|(key, _)| zerocopy::transmute!(key))
}

/// Forgets the record of a sandbox that ends.
pub(super) fn forget_record(maps: &mut Maps, seat: Seat) {
    if let (Some(record), Ok(mut records)) = (seat.record, maps.hash::<KeyBytes, u32>(RECORDS)) {
        let _ = records.remove(&key(record));
    }
}

/// Forgets the directories above it. The caller holds the maps' lock.
pub(super) fn forget_directories(maps: &mut Maps, seat: Seat) {
    retain_directories(maps, |sandbox| sandbox != seat.sandbox);
}

/// What runs that were killed have left: their records are closed, and the numbers of their inodes may be other files' by now.
/// Those of which something is `kept` can be taken up, and stay as they are.
/// The caller holds the maps' lock, and writes the places.
pub(super) fn forget_those_of_the_dead(
    maps: &mut Maps,
    places: &mut Places,
    kept: impl Fn() -> BTreeSet<u32>,
) {
    if !places.owners.iter().any(|owner| is_dead(*owner)) {
        return;
    }
    let kept = kept();
    let mut dead = BTreeSet::new();
    for (sandbox, owner) in (0..).zip(&mut places.owners) {
        if is_dead(*owner) && !kept.contains(&sandbox) {
            *owner = Places::LEFT;
            dead.insert(sandbox);
        }
    }
    // The maps grow with the runs, and are gone through only if they have to be.
    if !dead.is_empty() {
        forget::<KeyBytes, _>(maps, RECORDS, |sandbox: &u32| dead.contains(sandbox));
        retain_directories(maps, |sandbox| !dead.contains(&sandbox));
        // Nobody reads what its programs would go on to send.
        if let Ok(mut events) = maps.events() {
            for sandbox in &dead {
                let _ = events.remove(sandbox);
            }
        }
    }
}

/// Whether a place's owner is a process that is gone.
pub(super) fn is_dead(owner: u32) -> bool {
    !matches!(owner, 0 | Places::LEFT) && !Path::new(&format!("/proc/{owner}")).exists()
}

/// Only those of sandboxes of which `stays` is true.
fn retain_directories(maps: &mut Maps, stays: impl Fn(u32) -> bool) {
    let Ok(mut directories) = maps.hash::<KeyBytes, BelowBytes>(DIRECTORIES) else {
        return;
    };
    let all: Vec<(KeyBytes, BelowBytes)> = directories.iter().flatten().collect();
    for (key, bytes) in all {
        let before: RecordsBelow = zerocopy::transmute!(bytes);
        let mut below = before;
        below.retain(&stays);
        // What cannot be written or removed keeps a directory where it is for longer.
        if below.is_empty() {
            let _ = directories.remove(&key);
        } else if below != before {
            let bytes: BelowBytes = zerocopy::transmute!(below);
            let _ = directories.insert(key, bytes, 0);
        }
    }
}
