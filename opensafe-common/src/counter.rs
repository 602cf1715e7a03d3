//! What the kernel counts. Sent + lost = seen, per run.

/// Index of a counter in what each CPU counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// Events that were to be sent.
    Seen = 0,
    /// Events that are in the ring buffer.
    Sent = 1,
    /// Events for which the ring buffer had no room.
    LostRingFull = 2,
    /// Events for which no scratch memory was free.
    LostNoScratch = 3,
    /// Decisions made without a path because no scratch memory was free: the nameless verdict held.
    UndecidedNoScratch = 4,
    /// Decisions made without a path because it could not be walked: the nameless verdict held.
    UndecidedNoPath = 5,
    /// Forks refused because the child could not be marked.
    ForksRefused = 6,
    /// New cgroups below an armed one that could not be armed.
    CgroupsUnarmed = 7,
    /// Directory states found in the cache.
    CacheHits = 8,
    /// Directory states that had to be walked for.
    CacheMisses = 9,
    /// Tasks in an armed cgroup that could not be marked.
    MarksFailed = 10,
    /// File systems that the sandbox could not make, tmpfs and terminals of its own that were not noted as such: it has its share
    /// of the room for them.
    NoRoom = 11,
}

impl Counter {
    /// Number of counters.
    pub const COUNT: usize = 12;
}
