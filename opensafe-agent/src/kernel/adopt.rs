//! A run is taken up whose agent is gone: its place, its policy in force, its events that nobody has read.

use opensafe_common::{counter::Counter, tables::Sandbox};

use super::{
    Kernel, KernelError, Sizes,
    held::{Held, Lock},
    install::Policies,
    kept::{Kept, LAYOUT, Left},
    maps::{Maps, map_error},
    own,
    seat::Seat,
    share::{PATIENCE, go_on},
};
use crate::event::Generation;

/// Why a run is not taken up.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// By this version.
    #[error(
        "run {run} was started by an opensafe whose kernel programs are others ({theirs}; those of this one are {LAYOUT})\n  it stays confined; take it up with the version that has started it"
    )]
    OtherLayout {
        /// The run.
        run: String,
        /// What names the other's.
        theirs: String,
    },
    /// Somebody attends to it.
    #[error(
        "run {run} is attended to, by process {process}\n  see what it does: `opensafe events {run}`; take it over: `opensafe adopt --take-over {run}`"
    )]
    Attended {
        /// The run.
        run: String,
        /// Who.
        process: u32,
    },
    /// It has gone meanwhile.
    #[error("run {0} has just ended")]
    Gone(String),
    /// The kernel's side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

type SandboxBytes = [u8; size_of::<Sandbox>()];

impl Kernel {
    /// The policy in force.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.policies.generation()
    }

    /// Events for which there was no room in the ring buffer, so far.
    #[must_use]
    pub fn lost_for_room(&self) -> u64 {
        self.counts().of(Counter::LostRingFull)
    }

    /// Takes up a run; gives what is kept of it, which nobody else changes then. Nothing that is enforced changes. `cgroup` is
    /// the id of the sandbox's cgroup.
    ///
    /// # Errors
    /// If somebody else attends to it, or it has other programs.
    pub fn adopt(left: &Left, cgroup: u64, sizes: &Sizes) -> Result<(Self, Left), AdoptError> {
        let run = || left.run.clone();
        left.has_our_programs()?;
        let held = Held::mounted_at(left.place.clone()).map_err(KernelError::Lock)?;
        // Of all who want to, one does.
        let lock: Lock = match held.lock(PATIENCE, &mut go_on) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Err(KernelError::Locked.into()),
            Err(error) => return Err(KernelError::Lock(error).into()),
        };
        let Some(now) = left.now(&held) else {
            return Err(AdoptError::Gone(run()));
        };
        // Whoever attended to it may have handed it over.
        if let Some(process) = now.agent
            && process != std::process::id()
        {
            return Err(AdoptError::Attended {
                run: run(),
                process,
            });
        }
        let mut maps = Maps::pinned(&held).map_err(map_error("PLACES"))?;
        let seat = Seat::take_over(&mut maps, now.sandbox, cgroup)?;
        let policies = Policies::in_force(&mut maps, seat)?;
        let kept = Kept::take_over(&held, &now);
        let kept = kept.map_err(|source| KernelError::Keep { source })?;
        announce(&mut maps, seat)?;
        drop(lock);
        let mut kernel = Self::of_held(sizes, held, maps, seat);
        kernel.policies = policies;
        kernel.kept = Some(kept);
        Ok((kernel, now))
    }
}

impl Left {
    /// Whether this version can work with what the run has in the kernel.
    ///
    /// # Errors
    /// If its programs are others.
    pub fn has_our_programs(&self) -> Result<(), AdoptError> {
        if self.layout == LAYOUT {
            return Ok(());
        }
        Err(AdoptError::OtherLayout {
            run: self.run.clone(),
            theirs: self.layout.clone(),
        })
    }
}

/// Has the programs know who attends to the sandbox now. All else stays as it was for who is in there.
fn announce(maps: &mut Maps, seat: Seat) -> Result<(), KernelError> {
    let mut sandboxes = maps.array::<SandboxBytes>("SANDBOXES")?;
    let bytes = sandboxes
        .get(&seat.sandbox, 0)
        .map_err(map_error("SANDBOXES"))?;
    let mut sandbox: Sandbox = zerocopy::transmute!(bytes);
    sandbox.agent = std::process::id();
    sandbox.agent_began_cs = own::began_cs();
    let bytes: SandboxBytes = zerocopy::transmute!(sandbox);
    sandboxes
        .set(seat.sandbox, bytes, 0)
        .map_err(map_error("SANDBOXES"))
}
