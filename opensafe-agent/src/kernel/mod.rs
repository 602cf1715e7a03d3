//! The kernel side as the agent holds it: the only module that knows aya.
//!
//! [`Kernel::load`] makes the maps and loads the programs; nothing is attached yet.
//! [`Kernel::install`] writes a policy's tables, [`Kernel::arm`] puts a cgroup under it,
//! [`Kernel::attach`] makes it all effective. When the value is dropped, everything is gone from the
//! kernel; [`Kernel::let_go`] does not wait for that. Nothing is pinned where another process could find it.

mod abilities;
mod btf;
mod decode;
mod held;
mod hooks;
#[allow(unsafe_code)] // membarrier(2), for which there is no safe wrapper
mod install;
pub mod knock;
mod messages;
mod programs;
mod reader;
mod terminal;

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    os::{fd::AsFd, unix::fs::MetadataExt as _},
};

use aya::{
    Btf, Ebpf, EbpfError, EbpfLoader,
    maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf},
    programs::Iter,
};
use opensafe_common::{
    counter::Counter,
    layout::Host,
    tables::{CHUNK_CELLS, FIRST_CGROUPS, FirstCgroup, MAX_CGROUPS, Sandbox},
};
use zerocopy::IntoBytes;

pub use abilities::{LSM_LIST, listed};
pub use btf::{BtfError, VMLINUX};
pub use hooks::{Attach, HOOKS, Hook, Purpose};
pub use reader::Events;
pub use terminal::{Terminal, is_master};

use held::Held;
use install::Regions;
use messages::Messages;
use programs::States;

use crate::{
    event::{Generation, Pid},
    tables::Tables,
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
    /// A policy is larger than the room that was made for it.
    #[error("the policy needs {needed} cells in the kernel, and {room} are there")]
    NoRoom {
        /// What it needs.
        needed: usize,
        /// What there is.
        room: usize,
    },
    /// A program could not be attached after it was loaded.
    #[error("cannot attach {hook}: {reason}")]
    Attach {
        /// Which.
        hook: &'static str,
        /// Why.
        reason: String,
    },
    /// The reader's thread could not be started.
    #[error("cannot start the event reader: {0}")]
    Reader(#[from] io::Error),
}

/// What is fixed when the maps are made and the programs loaded.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Cells of the largest policy to be installed.
    pub policy_cells: usize,
    /// Bytes of the ring buffer; a power of two.
    pub ring_bytes: u32,
    /// Whether to load what stands in for the LSM's hooks even where they are there.
    pub stand_ins: bool,
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
    ebpf: Ebpf,
    messages: Option<Messages>,
    states: States,
    regions: Regions,
    rename_lock_known: bool,
    /// When it was loaded, in seconds since 1970.
    started_s: u32,
    held: Option<Held>,
}

impl Kernel {
    /// Makes the maps and loads every program that the kernel takes. Linux ≥ 6.1.
    pub fn load(sizes: &Sizes) -> Result<Self, KernelError> {
        if OBJECT.is_empty() {
            return Err(KernelError::NoObject);
        }
        let vmlinux = btf::Btf::vmlinux()?;
        let rename_lock = rename_lock();
        let kernel = Self::load_with(sizes, &vmlinux, rename_lock)?;
        if rename_lock != 0 && !kernel.has(FORGETTING_HOOK) {
            // A state that nobody forgets when its directory goes would be another's.
            return Self::load_with(sizes, &vmlinux, 0);
        }
        Ok(kernel)
    }

    fn load_with(sizes: &Sizes, vmlinux: &btf::Btf, rename_lock: u64) -> Result<Self, KernelError> {
        let offsets = vmlinux.offsets()?;
        let cpus = u32::try_from(aya::util::nr_cpus().map_or(1, |cpus| cpus)).unwrap_or(1);
        let scratch_slots = (cpus * SCRATCH_SLOTS_A_CPU).max(16);
        let host = Host {
            rename_lock,
            scratch_slots,
            setattr_dentry: vmlinux.setattr_dentry(),
        };
        let regions = Regions::for_policies_of(sizes.policy_cells);
        let chunks = u32::try_from(regions.cells().div_ceil(CHUNK_CELLS)).unwrap_or(u32::MAX);
        let btf = Btf::from_sys_fs()
            .map_err(|error| KernelError::Object(Box::new(EbpfError::BtfError(error))))?;
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .verifier_log_level(programs::verifier_log_level())
            .override_global("OFFSETS", offsets.as_bytes(), true)
            .override_global("HOST", host.as_bytes(), true)
            .map_max_entries("EVENTS", sizes.ring_bytes)
            .map_max_entries("ARENA", chunks)
            .map_max_entries("SCRATCH", scratch_slots)
            .load(OBJECT)
            .map_err(|error| KernelError::Object(Box::new(error)))?;
        let stands_in = |hook: &Hook| hook.attach == Attach::Cgroup;
        let mut states = programs::load(&mut ebpf, vmlinux, &btf, |hook| !stands_in(hook));
        // What stands in for the LSM's hooks is loaded where they are missing, or to find out.
        if sizes.stand_ins || listed() == Some(false) || !is_loaded(&states, MAIN_HOOK) {
            states.append(&mut programs::load(&mut ebpf, vmlinux, &btf, stands_in));
        }
        let messages = Messages::of(&mut ebpf);
        Ok(Self {
            ebpf,
            messages,
            states,
            regions,
            rename_lock_known: rename_lock != 0,
            started_s: now_s(),
            // Without it, whoever drops this value waits.
            held: Held::new().ok(),
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

    /// Writes a policy's tables and puts the sandbox under it, at one instant: whoever asks sees the
    /// policy before or this one, never a mixture. On an error the policy before stays.
    pub fn install(&mut self, tables: &Tables, enforce: bool) -> Result<Generation, KernelError> {
        let installed = install::write(&mut self.ebpf, &mut self.regions, tables)?;
        let terminal = Terminal::own();
        let sandbox = Sandbox {
            policy: installed.slot,
            enforce: u32::from(enforce),
            mount_namespace: namespace("mnt"),
            started_s: self.started_s,
            network_namespace: namespace("net"),
            uts_namespace: namespace("uts"),
            terminal_device: terminal.map_or(0, |terminal| terminal.device.0),
            terminal_inode: terminal.map_or(0, |terminal| terminal.inode),
        };
        let bytes: [u8; size_of::<Sandbox>()] = zerocopy::transmute!(sandbox);
        let mut sandboxes: Array<_, [u8; size_of::<Sandbox>()]> =
            array(&mut self.ebpf, "SANDBOXES")?;
        sandboxes
            .set(SANDBOX, bytes, 0)
            .map_err(map_error("SANDBOXES"))?;
        self.regions.use_next(installed);
        Ok(self.regions.generation())
    }

    /// Arms a cgroup by its id (its directory's inode number).
    pub fn arm(&mut self, cgroup: u64) -> Result<(), KernelError> {
        let mut bits: Array<_, u64> = array(&mut self.ebpf, "CGROUP_BITS")?;
        // The bit first: whoever is in the map must not be passed over by the filter. Only this
        // function and the kernel's own atomic OR change these words; arming happens before attach.
        let word = u32::try_from(cgroup >> 6 & 1023).unwrap_or(0);
        let old = bits.get(&word, 0).map_err(map_error("CGROUP_BITS"))?;
        bits.set(word, old | 1 << (cgroup & 63), 0)
            .map_err(map_error("CGROUP_BITS"))?;
        let mut cgroups: HashMap<_, u64, u32> = hash(&mut self.ebpf, "CGROUPS")?;
        cgroups
            .insert(cgroup, SANDBOX, 0)
            .map_err(map_error("CGROUPS"))?;
        let first: [u8; size_of::<FirstCgroup>()] = zerocopy::transmute!(FirstCgroup {
            cgroup,
            sandbox: u64::from(SANDBOX),
        });
        let place = u32::try_from(cgroup % u64::from(FIRST_CGROUPS)).unwrap_or(0);
        let mut places: Array<_, [u8; size_of::<FirstCgroup>()]> = array(&mut self.ebpf, "FIRST")?;
        places.set(place, first, 0).map_err(map_error("FIRST"))
    }

    /// Attaches what was loaded. Where the LSM's hooks are there, the cgroup's are not used.
    pub fn attach(&mut self, cgroup: &impl AsFd) -> Result<(), KernelError> {
        let lsm = self.lsm_in_effect();
        for hook in HOOKS {
            let wanted = match hook.attach {
                Attach::Cgroup => !lsm,
                Attach::Lsm | Attach::RawTracepoint => true,
                Attach::Iterator => false,
            };
            if wanted && self.has(hook.program) {
                programs::attach(&mut self.ebpf, hook, cgroup, self.held.as_mut()).map_err(
                    |reason| KernelError::Attach {
                        hook: hook.target,
                        reason,
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Ends, and leaves it to the kernel to detach the programs: on Linux 6.1 and 6.12 that may take 8 s.
    pub fn let_go(mut self) {
        if let Some(held) = self.held.take() {
            drop(self);
            held.let_go();
        }
    }

    /// Starts reading events. Once.
    pub fn events(&mut self) -> Result<Events, KernelError> {
        let map = self
            .ebpf
            .take_map("EVENTS")
            .ok_or(KernelError::Absent("map EVENTS"))?;
        let ring = RingBuf::try_from(map).map_err(map_error("EVENTS"))?;
        Ok(Events::start(ring)?)
    }

    /// What the programs had to say since the last call: rare trouble, in words.
    pub fn messages(&mut self) -> Vec<String> {
        self.messages
            .as_mut()
            .map(Messages::take)
            .unwrap_or_default()
    }

    /// Reads a counter.
    #[must_use]
    pub fn count(&self, counter: Counter) -> u64 {
        let Some(map) = self.ebpf.map("COUNTERS") else {
            return 0;
        };
        let Ok(counters) = PerCpuArray::<_, [u64; Counter::COUNT]>::try_from(map) else {
            return 0;
        };
        let of_cpu = |counters: &[u64; Counter::COUNT]| counters.get(counter as usize).copied();
        counters
            .get(&0, 0)
            .map_or(0, |cpus| cpus.iter().filter_map(of_cpu).sum())
    }

    /// Tasks that carry a mark, those outside the sandbox's cgroup included.
    #[must_use]
    pub fn marked(&self) -> usize {
        let tasks = self.ebpf.map("TASKS");
        let tasks = tasks.and_then(|map| HashMap::<_, u64, u32>::try_from(map).ok());
        tasks.map_or(0, |tasks| tasks.keys().flatten().count())
    }

    /// Processes with a task that carries a mark, wherever they are. Linux ≥ 5.8.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    pub fn marked_processes(&mut self) -> io::Result<Vec<Pid>> {
        let program = self.ebpf.program_mut("marked_tasks");
        let program = program.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let attached = <&mut Iter>::try_from(program).and_then(|iterator| {
            let link = iterator.attach()?;
            iterator.take_link(link)
        });
        let mut told = Vec::new();
        attached
            .map_err(|error| io::Error::other(programs::describe(&error)))?
            .into_file()
            .map_err(io::Error::other)?
            .read_to_end(&mut told)?;
        let ids = told.chunks_exact(4).filter_map(|id| id.try_into().ok());
        let mut processes: Vec<Pid> = ids.map(|id| Pid(u32::from_ne_bytes(id))).collect();
        processes.sort_unstable();
        processes.dedup();
        Ok(processes)
    }

    /// Whether marks go when their tasks do.
    #[must_use]
    pub fn unmarks(&self) -> bool {
        self.lsm_in_effect() && self.has("task_free")
    }

    /// Whether the LSM's programs will be called. A kernel with BPF LSM built in takes and attaches
    /// them even where `bpf` is not among its active modules, and then never calls them.
    #[must_use]
    pub fn lsm_in_effect(&self) -> bool {
        self.has(MAIN_HOOK) && listed() == Some(true)
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
/// The one sandbox of this kernel object.
const SANDBOX: u32 = 0;
/// Scratch slots for each CPU: a task can be preempted while it holds one.
const SCRATCH_SLOTS_A_CPU: u32 = 4;
const _: () = assert!(MAX_CGROUPS >= 1024);

/// Address of the kernel's `rename_lock`, or 0 where the kernel does not tell. The list has a hundred
/// thousand lines and this is far down, so it is read in pieces and only as far as needed.
fn rename_lock() -> u64 {
    const SYMBOL: &str = " rename_lock";
    let Ok(symbols) = File::open("/proc/kallsyms") else {
        return 0;
    };
    let lines = BufReader::with_capacity(1 << 16, symbols).lines();
    lines
        .map_while(Result::ok)
        .find(|line| line.ends_with(SYMBOL))
        .and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
        .unwrap_or(0)
}

/// Seconds since 1970; 0, before which nothing was changed, if the clock is before that.
fn now_s() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since
        .ok()
        .and_then(|since| u32::try_from(since.as_secs()).ok());
    seconds.unwrap_or(0)
}

/// Our own namespace of a kind, in which the sandbox starts; 0, which none has, if it cannot be asked.
fn namespace(kind: &str) -> u32 {
    let path = format!("/proc/self/ns/{kind}");
    let inode = std::fs::metadata(path).map(|namespace| namespace.ino());
    inode
        .ok()
        .and_then(|inode| u32::try_from(inode).ok())
        .unwrap_or(0)
}

fn map_error(map: &'static str) -> impl Fn(MapError) -> KernelError {
    move |source| KernelError::Map {
        map,
        source: Box::new(source),
    }
}

fn array<'a, V: aya::Pod>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<Array<&'a mut MapData, V>, KernelError> {
    let map = ebpf.map_mut(name).ok_or(KernelError::Absent(name))?;
    Array::try_from(map).map_err(map_error(name))
}

fn hash<'a, K: aya::Pod, V: aya::Pod>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<HashMap<&'a mut MapData, K, V>, KernelError> {
    let map = ebpf.map_mut(name).ok_or(KernelError::Absent(name))?;
    HashMap::try_from(map).map_err(map_error(name))
}
