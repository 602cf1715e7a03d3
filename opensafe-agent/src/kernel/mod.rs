//! The kernel side as the agent holds it: the only module that knows aya.
//!
//! [`Kernel::load`] makes the maps and loads the programs; nothing is attached yet. [`Kernel::shared`] has those of another
//! run, if there are any. [`Kernel::install`] writes a policy's tables, [`Kernel::arm`] puts a cgroup under it,
//! [`Kernel::attach`] makes it all effective. When the value is dropped, everything of it is gone from the
//! kernel; [`Kernel::let_go`] does not wait for that. If it is killed, all goes on, and whoever comes can take it up
//! ([`kept`]).

mod abilities;
pub mod adopt;
#[allow(unsafe_code)] // bpf(2), for which no crate has a safe wrapper that does this
mod bpf;
pub(crate) mod btf;
mod calls;
pub(crate) mod decode;
mod held;
mod hooks;
mod install;
pub mod kept;
pub mod knock;
mod load;
mod maps;
mod marks;
#[allow(unsafe_code)] // malloc_trim(3), for which there is no safe wrapper
pub mod memory;
mod messages;
mod modify_return;
mod own;
mod preemption;
mod programs;
mod reader;
mod records;
mod seat;
mod share;
mod terminal;

use std::{collections::BTreeSet, io, os::fd::AsFd};

use aya::{EbpfError, maps::MapError};
use opensafe_common::{
    counter::Counter,
    tables::{Sandbox, UNNOTED_LOOK},
};

pub use abilities::{LSM_LIST, listed};
pub use btf::{BtfError, VMLINUX};
pub use calls::{Asked, Call};
pub use held::{LET_GO, OnWait, let_go};
pub use hooks::{Attach, HOOKS, Hook, Purpose};
pub use own::process_began_cs as began_cs;
pub use reader::Events;
pub use share::CGROUP_PARENT;
pub use terminal::{Terminal, is_master};

use held::{Held, Users};
use install::Policies;
use kept::Kept;
use load::{load_some_way, rename_lock};
use maps::{Maps, map_error, ring_buffer};
use messages::Messages;
use programs::{Programs, States};
use seat::Seat;
use share::Sharing;

use crate::{
    enforcement::Way,
    event::{Generation, Pid},
    tables::Tables,
    view::Dev,
};

/// The kernel programs, built by `cargo xtask build`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("OPENSAFE_EBPF_OBJECT"));

/// What can go wrong in the kernel's anteroom.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The binary holds no programs.
    #[error(
        "this binary was built without its kernel programs\n  build it with `cargo xtask build`"
    )]
    NoObject,
    /// No offsets.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The object or its maps were refused.
    #[error("the kernel refused the maps: {0}\n  root and a kernel from 6.1 are needed")]
    Object(Box<EbpfError>),
    /// The object lacks something that this agent expects.
    #[error("the kernel object has no {0}: agent and object were built from different sources")]
    Absent(&'static str),
    /// A map could not be written.
    #[error("cannot write to the kernel's map {map}: {source}")]
    Map {
        /// Which.
        map: &'static str,
        /// Why.
        source: Box<MapError>,
    },
    /// A program could not be attached after it was loaded.
    #[error("cannot attach {hook}: {reason}")]
    Attach {
        /// Which.
        hook: &'static str,
        /// Why.
        reason: String,
    },
    /// Another run has the maps' lock.
    #[error(
        "another run has kept what the runs share locked for {} s\n  see what it does: `opensafe runs`",
        share::PATIENCE.as_secs()
    )]
    Locked,
    /// The maps' lock could not be asked for.
    #[error("cannot lock what the runs share: {0}")]
    Lock(io::Error),
    /// Two runs would write to one record.
    #[error("the record is that of another run, which goes on\n  name another one by --record")]
    AnothersRecord,
    /// Whoever started it does not want to wait for another run any more.
    #[error("gave up waiting for another run to load the kernel programs")]
    GivenUp,
    /// What is to outlive this process could not be kept.
    #[error("cannot keep the run's state beside its programs: {source}")]
    Keep {
        /// Why.
        source: io::Error,
    },
    /// The reader's thread could not be started.
    #[error("cannot start the event reader: {0}")]
    Reader(#[from] io::Error),
}

/// What is fixed when the maps are made and the programs loaded.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of the ring buffer; a power of two.
    pub ring_bytes: u32,
    /// Whether to load what stands in for the LSM's hooks even where they are there.
    pub stand_ins: bool,
}

impl Sizes {
    /// A run's: room for some twenty thousand events of usual size.
    pub const RUN: Self = Self {
        ring_bytes: 8 << 20,
        stand_ins: false,
    };
}

/// Numbers a look at the mounts, among all that any agent takes for the same programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Look(u32);

/// What was counted for a sandbox, at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts([u64; Counter::COUNT]);

impl Counts {
    /// By one counter.
    #[must_use]
    pub fn of(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or(0)
    }
}

impl Counts {
    /// Events that were sent by now, or are just being sent. `before` was asked for before this: what is counted in between in
    /// one place and not in the other makes it more, never less.
    #[must_use]
    pub fn sent_at_most(&self, before: &Self) -> u64 {
        let lost = before.of(Counter::LostRingFull) + before.of(Counter::LostNoScratch);
        self.of(Counter::Seen).saturating_sub(lost)
    }
}

/// How a program fared.
#[derive(Clone, Debug)]
pub enum State {
    /// Loaded; attached once [`Kernel::attach`] was called.
    Loaded,
    /// Refused, with the kernel's words.
    Refused(String),
    /// This kernel has no such hook, and none before [`Hook::since`] needs it.
    NotThere,
}

/// The programs and maps.
pub struct Kernel {
    maps: Maps,
    /// The programs as long as they are ours alone; shared ones live by their links.
    programs: Option<Programs>,
    messages: Option<Messages>,
    states: States,
    seat: Seat,
    policies: Policies,
    ring_bytes: u32,
    rename_lock_known: bool,
    /// How the programs of the LSM's hooks are asked; `None` where they are not. Not found out again: the sandbox may have
    /// taken the list of security modules away.
    way: Option<Way>,
    /// When it was loaded, in seconds since 1970.
    started_s: u32,
    sharing: Sharing,
    held: Option<Held>,
    /// What is kept of the run.
    kept: Option<Kept>,
    /// Why nothing is, if that was tried.
    why_not_kept: Option<String>,
}

impl Kernel {
    /// Makes the maps and loads every program that the kernel takes, for one sandbox alone. Linux ≥ 6.1.
    pub fn load(sizes: &Sizes) -> Result<Self, KernelError> {
        // Without a file system to hold the links, whoever drops this value waits.
        Self::load_for(sizes, Held::new(Users::One).ok(), Sharing::No)
    }

    fn load_for(sizes: &Sizes, held: Option<Held>, sharing: Sharing) -> Result<Self, KernelError> {
        if OBJECT.is_empty() {
            return Err(KernelError::NoObject);
        }
        let vmlinux = btf::Btf::vmlinux()?;
        let mut rename_lock = rename_lock();
        let pins = held.as_ref().and_then(|held| held.device().ok());
        let pins_device = pins.map_or(0, |device| device.0);
        let (mut programs, mut states, way) =
            load_some_way(sizes, &vmlinux, rename_lock, pins_device)?;
        if rename_lock != 0 && !is_loaded(&states, FORGETTING_HOOK) {
            // A state that nobody forgets when its directory goes would be another's.
            rename_lock = 0;
            (programs, states, _) = load_some_way(sizes, &vmlinux, rename_lock, pins_device)?;
        }
        let messages = Messages::of(&mut programs.ebpf);
        let mut maps = Maps::of(&mut programs.ebpf)?;
        let seat = Seat::take(&mut maps, BTreeSet::new)?;
        Ok(Self {
            maps,
            programs: Some(programs),
            messages,
            states,
            seat: seat.ok_or(KernelError::Absent("place for the first sandbox"))?,
            policies: Policies::new(),
            ring_bytes: sizes.ring_bytes,
            rename_lock_known: rename_lock != 0,
            way,
            started_s: own::now_s(),
            sharing,
            held,
            kept: None,
            why_not_kept: None,
        })
    }

    /// How each program fared.
    pub fn states(&self) -> impl Iterator<Item = (&'static Hook, &State)> {
        HOOKS
            .iter()
            .filter_map(|hook| Some((hook, self.states.get(hook.program)?)))
    }

    /// Whether a program was loaded.
    #[must_use]
    pub fn has(&self, program: &str) -> bool {
        is_loaded(&self.states, program)
    }

    /// Whether this kernel has no such hook, and needs none.
    #[must_use]
    pub fn lacks(&self, program: &str) -> bool {
        matches!(self.states.get(program), Some(State::NotThere))
    }

    /// To be called before the mounts are looked at for tables that are to be installed. A superblock that is made after that is
    /// not taken for the one that had its device number then.
    pub fn look(&mut self) -> Result<Look, KernelError> {
        let _lock = self.lock()?;
        seat::next_look(&mut self.maps).map(Look)
    }

    /// Whether a superblock with this device number was, or may have been, made after that look.
    pub fn is_made_since(&mut self, look: Look, device: Dev) -> bool {
        let unnoted = self.maps.array::<u64>("LOOKS").ok();
        let unnoted = unnoted.and_then(|looks| looks.get(&UNNOTED_LOOK, 0).ok());
        let made = self.maps.hash::<u32, u64>("MADE").ok();
        let made = made.and_then(|made| made.get(&device.0, 0).ok());
        made.max(unnoted)
            .is_some_and(|made| made >= u64::from(look.0))
    }

    /// Writes a policy's tables and puts the sandbox under it, at one instant: whoever asks sees the
    /// policy before or this one, never a mixture. On an error the policy before stays. `look` is the one that the tables
    /// come from; each is good for one policy.
    pub fn install(
        &mut self,
        tables: &Tables,
        look: Look,
        enforce: bool,
    ) -> Result<Generation, KernelError> {
        let installed = install::write(
            &mut self.maps,
            self.seat,
            &mut self.policies,
            look.0,
            tables,
        )?;
        let sandbox = own::sandbox(installed.slot, enforce, self.started_s);
        let bytes: [u8; size_of::<Sandbox>()] = zerocopy::transmute!(sandbox);
        let mut sandboxes = self.maps.array::<[u8; size_of::<Sandbox>()]>("SANDBOXES")?;
        sandboxes
            .set(self.seat.sandbox, bytes, 0)
            .map_err(map_error("SANDBOXES"))?;
        self.policies.use_next(installed);
        Ok(self.policies.generation())
    }

    /// Arms a cgroup by its id (its directory's inode number). Nobody may be in it yet.
    pub fn arm(&mut self, cgroup: u64) -> Result<(), KernelError> {
        self.seat.arm(&mut self.maps, cgroup)
    }

    /// Attaches what was loaded; what is shared is attached already. Where the LSM's hooks are there, the cgroup's are not
    /// used.
    pub fn attach(&mut self, cgroup: &impl AsFd) -> Result<(), KernelError> {
        let asked = self.way.is_some();
        let Some(programs) = &mut self.programs else {
            return Ok(());
        };
        for hook in HOOKS {
            let wanted = match hook.attach {
                Attach::Cgroup | Attach::SystemCall => !asked,
                Attach::Lsm => asked,
                Attach::RawTracepoint => true,
                // Without anyone to hold its link it is attached when it is asked.
                Attach::Iterator => self.held.is_some(),
            };
            if wanted && is_loaded(&self.states, hook.program) {
                programs
                    .attach(hook, cgroup, self.held.as_ref())
                    .map_err(|reason| KernelError::Attach {
                        hook: hook.target,
                        reason,
                    })?;
            }
        }
        self.open_to_others();
        Ok(())
    }

    /// Ends, and leaves it to the kernel to detach the programs: on Linux 6.1 and 6.12 that may take 8 s.
    pub fn let_go(mut self) {
        self.leave();
        if let Some(held) = self.held.take() {
            drop(self);
            held.let_go();
        }
    }

    /// Starts reading events. Once.
    pub fn events(&mut self) -> Result<Events, KernelError> {
        let ring = ring_buffer(self.ring_bytes)?;
        self.maps
            .events()?
            .insert(self.seat.sandbox, &ring, 0)
            .map_err(map_error("EVENTS"))?;
        Ok(Events::start(ring)?)
    }

    /// Goes on reading the events of a run that was taken up, with those that nobody has read. Once.
    pub fn unread_events(&mut self) -> Result<Events, KernelError> {
        let sandbox = self.seat.sandbox;
        let ring = self.maps.events()?.get(&sandbox, 0);
        match ring {
            Ok(ring) => Ok(Events::start(ring)?),
            Err(_) => self.events(),
        }
    }

    /// What the programs had to say about this sandbox since the last call: rare trouble, in words.
    pub fn messages(&mut self) -> Vec<String> {
        let sandbox = self.seat.sandbox;
        let about = |said: String| {
            let (about, words) = said.split_once(' ')?;
            (about.parse() == Ok(sandbox)).then(|| words.to_owned())
        };
        self.messages
            .as_mut()
            .map(Messages::take)
            .unwrap_or_default()
            .into_iter()
            .filter_map(about)
            .collect()
    }

    /// Reads the counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let counters = self.maps.counters::<[u64; Counter::COUNT]>();
        let by_cpu = counters.and_then(|counters| counters.get(&self.seat.sandbox, 0).ok());
        for cpu in by_cpu.iter().flat_map(|cpus| cpus.iter()) {
            for (sum, count) in counts.0.iter_mut().zip(cpu) {
                *sum += count;
            }
        }
        counts
    }

    /// Tasks that carry this sandbox's mark, those outside its cgroup included.
    #[must_use]
    pub fn marked(&mut self) -> usize {
        match self.marks() {
            Ok(tasks) => tasks.len(),
            // Slower, and dead tasks that are not freed yet are among them.
            Err(_) => self.seat.marks(&mut self.maps),
        }
    }

    /// Processes with a task that carries this sandbox's mark, wherever they are. Linux ≥ 5.8.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    pub fn marked_processes(&mut self) -> io::Result<Vec<Pid>> {
        let mut processes = self.marks()?;
        processes.sort_unstable();
        processes.dedup();
        Ok(processes)
    }

    fn marks(&mut self) -> io::Result<Vec<Pid>> {
        marks::of(
            self.seat.sandbox,
            self.held.as_ref(),
            self.programs.as_mut(),
        )
    }

    /// Whether marks go when their tasks do.
    #[must_use]
    pub fn unmarks(&self) -> bool {
        self.way.is_some() && self.has("task_free")
    }

    /// How the programs of the LSM's hooks are asked; `None` where they are not.
    #[must_use]
    pub const fn way(&self) -> Option<Way> {
        self.way
    }

    /// Whether directory states can be cached on this host.
    #[must_use]
    pub fn caches_directories(&self) -> bool {
        self.rename_lock_known
    }
}

fn is_loaded(states: &States, program: &str) -> bool {
    matches!(states.get(program), Some(State::Loaded))
}

/// Without this one there is no use in the LSM's others.
const MAIN_HOOK: &str = "file_open";
/// Without this one, states of directories cannot be kept.
const FORGETTING_HOOK: &str = "inode_free_security";
