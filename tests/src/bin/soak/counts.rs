//! What workers count, in a file each, so that it can be read whatever becomes of them.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Count {
    /// Opens that were denied, as they were to be.
    OpensDenied,
    /// Opens that were let through, as they were to be.
    OpensAllowed,
    ExecsDenied,
    ExecsAllowed,
    ConnectsDenied,
    ConnectsAllowed,
    /// Opens that each found out which policy decides.
    Decisions,
    /// Rounds of those that were quick enough to be judged, and those that were not.
    RoundsJudged,
    RoundsSlow,
    /// What was to be denied and was not.
    LetThrough,
    /// What was to be allowed and was not.
    Refused,
    /// Rounds that no order of policies explains.
    Mixed,
}

pub(crate) const COUNTS: usize = Count::Mixed as usize + 1;

/// A worker's counts.
#[derive(Debug)]
pub(crate) struct Counter {
    file: File,
    pub(crate) counts: Counts,
}

/// So many of each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts([u64; COUNTS]);

impl Counter {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).write(true).open(path)?;
        Ok(Self {
            file,
            counts: Counts::default(),
        })
    }

    pub(crate) fn add(&mut self, what: Count, count: u64) {
        self.counts.0[what as usize] += count;
    }

    /// Puts it where others can see it.
    pub(crate) fn show(&self) -> io::Result<()> {
        let bytes: Vec<u8> = self
            .counts
            .0
            .iter()
            .flat_map(|count| count.to_ne_bytes())
            .collect();
        self.file.write_all_at(&bytes, 0)
    }
}

impl Counts {
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut bytes = [0; COUNTS * 8];
        File::open(path)?.read_exact_at(&mut bytes, 0)?;
        let mut counts = Self::default();
        for (count, bytes) in counts.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *count = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(counts)
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (count, other) in self.0.iter_mut().zip(other.0) {
            *count += other;
        }
    }

    pub(crate) const fn of(&self, what: Count) -> u64 {
        self.0[what as usize]
    }
}
