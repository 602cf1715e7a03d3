//! What is kept of a run beside the programs, so that another process can take it up when this one is gone.
//!
//! The programs' links and the maps are pinned in a BPF file system that is mounted below [`PLACES`], one for each set, and a
//! run's state is a map there. So what enforces and what is known about it are there or gone together, need no file that
//! somebody has to clean up, and are out of every sandbox's reach (`is_pins` in the programs).

use std::{
    collections::BTreeSet,
    fs, io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use aya::maps::{Array, Map, MapData, MapError};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY;
use nix::{
    sys::statfs::statfs,
    time::{ClockId, clock_gettime},
};
use rustix::mount::{UnmountFlags, unmount};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Kernel, KernelError, bpf, calls, held::Held, own, share::BPF_FS_MAGIC};

/// A run whose programs and state are there, whether or not anybody attends to it.
#[derive(Clone, Debug)]
pub struct Left {
    /// The run's id.
    pub run: String,
    /// The layout of the maps that it is in.
    pub layout: String,
    /// How far whoever attended to it had come.
    pub progress: Progress,
    /// When that was last noted, since the host was started.
    pub seen: Duration,
    /// The process that attends to it, if it lives.
    pub agent: Option<u32>,
    /// When that process began, in hundredths of a second since the host was started.
    pub agent_began_cs: u32,
    /// Where it is.
    pub(super) place: PathBuf,
    pub(super) sandbox: u32,
    /// Bytes of what it has kept.
    pub(super) len: u64,
    /// What whoever attended to it has noted for whoever comes next.
    pub noted: Vec<u8>,
}

/// How far events have got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events of the kernel's that are done with: on record, or left out for a reason.
    pub events: u64,
    /// Lines about events that the record had then.
    pub lines: u64,
}

/// A run's own.
pub(super) struct Kept {
    run: String,
    pieces: Pieces,
    head: Head,
    noted: Vec<u8>,
}

/// What comes first; the same in every version.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Head {
    format: u32,
    /// Index of the sandbox.
    sandbox: u32,
    /// Who attends to it, and when that process began. Of a call: who calls.
    pub(super) agent: u32,
    pub(super) agent_began_cs: u32,
    /// When it was last there: `CLOCK_BOOTTIME`.
    seen_ns: u64,
    events: u64,
    lines: u64,
    /// Bytes of the state, in the pieces that follow.
    len: u64,
    /// Bytes of a note, which follows here; none by versions that made none.
    noted_len: u64,
}

/// A map's value.
type Piece = [u8; PIECE_BYTES];
/// Such a map.
pub(super) type Pieces = Array<MapData, Piece>;

/// Where file systems are mounted that are to outlive who made them, each at `LAYOUT-NUMBER`.
pub(super) const PLACES: &str = "/run/opensafe";
/// The layout of our maps.
pub const LAYOUT: &str = env!("OPENSAFE_LAYOUT");

const FORMAT: u32 = 1;
const PIECE_BYTES: usize = 4096;
/// Most bytes that a run may keep: a policy's files, and what was asked for.
const MAX_STATE_BYTES: usize = 64 << 20;
/// What a run's map is called, before its id.
const RUN: &str = "run-";
/// The same before it takes the place of the one before.
const NEXT: &str = "next-";

impl Kernel {
    /// Whether the programs stay when this process is killed, or why they do not.
    pub fn outlives(&self) -> Result<(), &str> {
        match &self.held {
            Some(held) if held.place().is_some() => Ok(()),
            _ => Err(self.why_not_kept.as_deref().unwrap_or("it was not tried")),
        }
    }

    /// Why they do not, if that was to be had here.
    #[must_use]
    pub fn why_not_kept(&self) -> Option<&str> {
        self.why_not_kept.as_deref()
    }

    /// Keeps a run's state, and takes back what it has kept before, at one instant.
    ///
    /// # Errors
    /// If the programs do not outlive this process, or there is no memory.
    pub fn keep(&mut self, run: &str, state: &[u8]) -> Result<(), KernelError> {
        let Some(held) = self.held.as_ref().filter(|held| held.place().is_some()) else {
            return Ok(());
        };
        let (progress, noted) = match &self.kept {
            Some(kept) => (kept.progress(), kept.noted.clone()),
            None => Default::default(),
        };
        let kept = Kept::new(held, self.seat.sandbox, run, state, progress, noted);
        self.kept = Some(kept.map_err(|source| KernelError::Keep { source })?);
        Ok(())
    }

    /// Notes that this process is there, and how far it has got; with a note for whoever comes next, which is left out if it
    /// has more than some 4,000 bytes.
    pub fn note(&mut self, progress: Progress, note: &[u8]) {
        if let Some(kept) = &mut self.kept {
            note.clone_into(&mut kept.noted);
            // The next one may succeed.
            let _ = kept.note(progress);
        }
    }

    /// Takes back what was kept.
    pub(super) fn forget(&mut self) {
        if let (Some(kept), Some(held)) = (self.kept.take(), &self.held) {
            held.forget(&pin_of(&kept.run));
            calls::forget(held, &kept.run);
        }
    }
}

/// The runs of which something is kept, by any version.
#[must_use]
pub fn left() -> Vec<Left> {
    let mut all = Vec::new();
    for (place, layout) in places() {
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(run) = name.to_str().and_then(|name| name.strip_prefix(RUN)) else {
                continue;
            };
            // One that goes just now is no more.
            if let Ok((head, noted)) = read_first(&entry.path()) {
                all.push(Left::of(run, &layout, &place, &head, noted));
            }
        }
    }
    all
}

impl Left {
    fn of(run: &str, layout: &str, place: &Path, head: &Head, noted: Vec<u8>) -> Self {
        Self {
            run: run.to_owned(),
            layout: layout.to_owned(),
            progress: head.progress(),
            seen: Duration::from_nanos(head.seen_ns),
            agent: head.agent(),
            agent_began_cs: head.agent_began_cs,
            place: place.to_owned(),
            sandbox: head.sandbox,
            len: head.len,
            noted,
        }
    }

    /// The same run as it is now.
    pub(super) fn now(&self, held: &Held) -> Option<Self> {
        let pin = held.pin_path(&pin_of(&self.run));
        let (head, noted) = read_first(Path::new(&pin)).ok()?;
        let Self {
            run, layout, place, ..
        } = self;
        Some(Self::of(run, layout, place, &head, noted))
    }

    /// What it has kept.
    ///
    /// # Errors
    /// If it is gone, or was kept by a version that this one does not know.
    pub fn state(&self) -> io::Result<Vec<u8>> {
        read_back(&self.place.join(pin_of(&self.run))).map(|(_, state)| state)
    }
}

/// What holds a run's state.
pub(super) fn pin_of(run: &str) -> String {
    format!("{RUN}{run}")
}

/// In which places of a set are runs of which something is kept.
pub(super) fn places_in(held: &Held) -> BTreeSet<u32> {
    let entries = fs::read_dir(held.pin_path(".")).into_iter().flatten();
    let runs = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(RUN))
    });
    runs.filter_map(|run| read_head(&run.path()).ok())
        .map(|head| head.sandbox)
        .collect()
}

/// Where a set of programs with our layout is, or was, mounted.
pub(super) fn ours() -> impl Iterator<Item = PathBuf> {
    places()
        .filter(|(_, layout)| layout == LAYOUT)
        .map(|(place, _)| place)
}

/// Every place at which root has mounted a BPF file system, with the layout of what is there.
fn places() -> impl Iterator<Item = (PathBuf, String)> {
    let entries = fs::read_dir(PLACES).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name();
        let (layout, _) = name.to_str()?.rsplit_once('-')?;
        let place = entry.path();
        let is_roots = fs::symlink_metadata(&place).ok()?.uid() == 0;
        let is_bpf = statfs(&place).ok()?.filesystem_type() == BPF_FS_MAGIC;
        (is_roots && is_bpf).then(|| (place, layout.to_owned()))
    })
}

/// Mounts a set at a place of its own.
pub(super) fn mount(held: &mut Held) -> io::Result<()> {
    // More sets than one are for more sandboxes than there is room for in one.
    const MOST: u32 = 64;
    use std::os::unix::fs::DirBuilderExt as _;
    let mut directory = fs::DirBuilder::new();
    directory.mode(0o700);
    if !Path::new(PLACES).is_dir() {
        directory.create(PLACES)?;
    }
    let above = fs::symlink_metadata(PLACES)?;
    if !(above.is_dir() && above.uid() == 0 && above.mode() & 0o022 == 0) {
        return Err(io::Error::other(format!(
            "{PLACES} is not a directory that root alone may change"
        )));
    }
    for number in 1..=MOST {
        let place = Path::new(PLACES).join(format!("{LAYOUT}-{number}"));
        match directory.create(&place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if statfs(&place)?.filesystem_type() == BPF_FS_MAGIC => {
                // One whose last run was in another mount namespace could not be unmounted there.
                let there = Held::mounted_at(place.clone())?;
                if there.is_closed() && unmount(&place, UnmountFlags::DETACH).is_ok() {
                    return held.mount_at(&place);
                }
            }
            Ok(()) | Err(_) => return held.mount_at(&place),
        }
    }
    Err(io::Error::other(format!(
        "{MOST} of them are in {PLACES} already"
    )))
}

/// Writes something into a map of its own, and pins that at a path where nothing is yet.
pub(super) fn write_down(pin: &Path, head: &Head, bytes: &[u8]) -> io::Result<Pieces> {
    const KEY_BYTES: u32 = 4;
    if bytes.len() > MAX_STATE_BYTES {
        return Err(io::Error::other(format!(
            "it has {} bytes, and {MAX_STATE_BYTES} are the most",
            bytes.len()
        )));
    }
    let chunks = bytes.chunks(PIECE_BYTES);
    let count = 1 + u32::try_from(chunks.len()).unwrap_or(u32::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "a page")]
    let map = aya_obj::Map::new_from_params(
        BPF_MAP_TYPE_ARRAY as u32,
        KEY_BYTES,
        PIECE_BYTES as u32,
        count,
        0,
    );
    let map = MapData::create(map, "run", None).map_err(io::Error::other)?;
    let another = map.fd().as_fd().try_clone_to_owned()?;
    let pieces = Map::from_map_data(map).and_then(Pieces::try_from);
    let mut pieces = pieces.map_err(io::Error::other)?;
    let head = Head {
        len: bytes.len() as u64,
        ..*head
    };
    pieces
        .set(0, head.to_piece(&[]), 0)
        .map_err(io::Error::other)?;
    for (index, bytes) in (1..).zip(chunks) {
        let mut piece = [0; PIECE_BYTES];
        piece[..bytes.len()].copy_from_slice(bytes);
        pieces.set(index, piece, 0).map_err(io::Error::other)?;
    }
    // Whole before anybody can find it.
    bpf::pin(&another, pin)?;
    Ok(pieces)
}

/// What comes first of what was written down there.
pub(super) fn read_head(pin: &Path) -> io::Result<Head> {
    read_first(pin).map(|(head, _)| head)
}

/// The same with the note that follows it.
fn read_first(pin: &Path) -> io::Result<(Head, Vec<u8>)> {
    open(pin).and_then(|pieces| head(&pieces))
}

/// What was written down there.
pub(super) fn read_back(pin: &Path) -> io::Result<(Head, Vec<u8>)> {
    let pieces = open(pin)?;
    let (head, _) = head(&pieces)?;
    let len = usize::try_from(head.len).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(len);
    for index in 1..pieces.len() {
        let piece = pieces.get(&index, 0).map_err(io::Error::other)?;
        bytes.extend_from_slice(&piece[..(len - bytes.len()).min(PIECE_BYTES)]);
    }
    Ok((head, bytes))
}

fn open(pin: &Path) -> io::Result<Pieces> {
    let map = MapData::from_pin(pin).and_then(Map::from_map_data);
    map.and_then(Pieces::try_from).map_err(io::Error::other)
}

/// What comes first, if what it says can be, and the note.
fn head(pieces: &Pieces) -> io::Result<(Head, Vec<u8>)> {
    let first = pieces.get(&0, 0).map_err(io::Error::other)?;
    let room = u64::from(pieces.len().saturating_sub(1)) * PIECE_BYTES as u64;
    match Head::read_from_prefix(&first) {
        Ok((head, rest)) if head.format == FORMAT && head.len <= room => {
            let noted = usize::try_from(head.noted_len).ok();
            let noted = noted.and_then(|len| rest.get(..len)).unwrap_or_default();
            Ok((head, noted.to_vec()))
        }
        _ => Err(io::Error::other(
            "written by a version that this one does not know",
        )),
    }
}

impl Kept {
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    fn new(
        held: &Held,
        sandbox: u32,
        run: &str,
        state: &[u8],
        progress: Progress,
        noted: Vec<u8>,
    ) -> io::Result<Self> {
        let mut head = Head::ours(sandbox, state.len() as u64);
        head.note(progress);
        let next = held.pin_path(&format!("{NEXT}{run}"));
        let pieces = write_down(Path::new(&next), &head, state)?;
        let mut kept = Self {
            run: run.to_owned(),
            pieces,
            head,
            noted,
        };
        kept.note(progress).map_err(io::Error::other)?;
        fs::rename(next, held.pin_path(&pin_of(run)))?;
        Ok(kept)
    }

    /// That of a run which is taken up. The caller holds the maps' lock.
    pub(super) fn take_over(held: &Held, left: &Left) -> io::Result<Self> {
        let mut kept = Self {
            run: left.run.clone(),
            pieces: open(Path::new(&held.pin_path(&pin_of(&left.run))))?,
            head: Head::ours(left.sandbox, left.len),
            noted: left.noted.clone(),
        };
        kept.note(left.progress).map_err(io::Error::other)?;
        Ok(kept)
    }

    fn progress(&self) -> Progress {
        self.head.progress()
    }

    /// Notes that whoever wrote `to` attends to the run from now on.
    pub(super) fn give(&mut self, to: &Head) -> Result<(), MapError> {
        let head = Head {
            agent: to.agent,
            agent_began_cs: to.agent_began_cs,
            ..self.head
        };
        self.pieces.set(0, head.to_piece(&self.noted), 0)
    }

    fn note(&mut self, progress: Progress) -> Result<(), MapError> {
        self.head.note(progress);
        self.pieces.set(0, self.head.to_piece(&self.noted), 0)
    }
}

impl Head {
    /// Of what this process writes: of a run, that it attends to it.
    pub(super) fn ours(sandbox: u32, len: u64) -> Self {
        Self {
            format: FORMAT,
            sandbox,
            agent: std::process::id(),
            agent_began_cs: own::began_cs(),
            len,
            ..Self::default()
        }
    }

    /// Of what this process writes now.
    pub(super) fn now(sandbox: u32) -> Self {
        let mut head = Self::ours(sandbox, 0);
        head.note(Progress::default());
        head
    }

    fn note(&mut self, progress: Progress) {
        self.seen_ns = u64::try_from(since_boot().as_nanos()).unwrap_or(u64::MAX);
        self.events = progress.events;
        self.lines = progress.lines;
    }

    fn to_piece(self, note: &[u8]) -> Piece {
        let mut piece = [0; PIECE_BYTES];
        let (head, rest) = piece.split_at_mut(size_of::<Self>());
        let fits = rest.get_mut(..note.len());
        let noted_len = fits.as_ref().map_or(0, |room| room.len() as u64);
        if let Some(room) = fits {
            room.copy_from_slice(note);
        }
        head.copy_from_slice(Self { noted_len, ..self }.as_bytes());
        piece
    }

    /// When it was written, since the host was started.
    pub(super) const fn seen_ns(&self) -> u64 {
        self.seen_ns
    }

    const fn progress(&self) -> Progress {
        Progress {
            events: self.events,
            lines: self.lines,
        }
    }

    /// That process, if it lives.
    pub(super) fn agent(&self) -> Option<u32> {
        (own::process_began_cs(self.agent) == Some(self.agent_began_cs)).then_some(self.agent)
    }
}

/// Since the host was started, by `CLOCK_BOOTTIME`.
#[must_use]
pub fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}
