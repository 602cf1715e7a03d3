//! Who is asking: whether the running task is in a sandbox, and in which.
//!
//! A task is sandboxed if its cgroup is armed or it carries a mark. Both are asked each time: the
//! mark survives a move to another cgroup, the cgroup covers who is moved or cloned into it. Where they name two
//! sandboxes, the mark holds: nobody gets into a laxer one by way of its cgroup.

use opensafe_common::{
    counter::Counter,
    room::Room,
    tables::{CGROUP_SLOTS, FIRST_CGROUPS, Policy, Sandbox},
};

use crate::{
    atomic::Cell,
    kernel::{Task, current_process_began_cs, current_task_and_cgroup},
    known::{self, process},
    maps::{
        BPF_NOEXIST, CGROUP_FILTER, CGROUPS, EEXIST, FIRST, POLICIES, SANDBOXES, TASK_FILTER,
        TASK_SLOTS, TASKS, count,
    },
    room,
};

/// Index of a sandbox.
#[derive(Clone, Copy)]
pub struct SandboxId(pub u32);

/// A sandboxed task with the policy that holds for it right now.
#[derive(Clone, Copy)]
pub struct Actor {
    /// Its sandbox.
    pub sandbox: u32,
    /// Id of its cgroup.
    pub cgroup: u64,
    /// Index of its policy.
    pub policy_index: u32,
    /// Whether denials are enforced.
    pub enforce: bool,
    /// Its policy.
    pub policy: &'static Policy,
}

impl Actor {
    /// The running task; `None` outside every sandbox.
    #[inline(always)]
    pub fn current() -> Option<Self> {
        let (task, cgroup) = current_task_and_cgroup();
        Self::of(sandbox_of(task, cgroup, armed)?, cgroup)
    }

    /// [`Actor::current`], for a hook that is called all the time.
    #[inline(always)]
    pub fn current_of_busy_hook() -> Option<Self> {
        let (task, cgroup) = known::current_task_and_cgroup();
        Self::of(sandbox_of(task, cgroup, armed_first)?, cgroup)
    }

    /// The running task in `sandbox`. What a sandbox names and the tables lack cannot be (the agent installs
    /// in that order); it then counts as outside only because there is nothing left to ask.
    #[inline(always)]
    pub fn of(sandbox: SandboxId, cgroup: u64) -> Option<Self> {
        let Sandbox {
            policy, enforce, ..
        } = *SANDBOXES.get(sandbox.0)?;
        Some(Self {
            sandbox: sandbox.0,
            cgroup,
            policy_index: policy,
            enforce: enforce == 1,
            policy: POLICIES.get(policy)?,
        })
    }
}

impl Actor {
    /// Sandbox, policy and mode as one number, for functions that take numbers only.
    #[inline(always)]
    pub fn pack(&self) -> u64 {
        u64::from(self.policy_index) | u64::from(self.sandbox) << 32 | u64::from(self.enforce) << 63
    }

    /// What [`Actor::pack`] gave.
    #[inline(always)]
    pub fn unpack(packed: u64, cgroup: u64) -> Option<Self> {
        let policy_index = packed as u32;
        Some(Self {
            sandbox: (packed >> 32) as u32 & 0x7fff_ffff,
            cgroup,
            policy_index,
            enforce: packed >> 63 == 1,
            policy: POLICIES.get(policy_index)?,
        })
    }
}

/// The sandbox of the running task, whatever its policy.
#[inline(always)]
pub fn current_sandbox() -> Option<SandboxId> {
    let (task, cgroup) = current_task_and_cgroup();
    sandbox_of(task, cgroup, armed)
        .filter(|sandbox| !is_agent(*sandbox, process(), current_process_began_cs))
}

// A look-up is written out in each program, so each of the filters is asked once.
#[inline(always)]
fn sandbox_of(
    task: u64,
    cgroup: u64,
    armed: impl FnOnce(u64) -> Option<SandboxId>,
) -> Option<SandboxId> {
    let marks = marks_like(task).map_or(u64::MAX, Cell::get);
    let by_cgroup = armed(cgroup);
    match by_cgroup {
        // Surely one of the sandbox, or its agent, moved in, with whom a task of it shares a slot: that leaves all the same
        // (`Cgroup::leave` in the agent asks nobody), and to ask here would cost everyone.
        Some(sandbox) if marks == one_mark(sandbox) => return by_cgroup,
        None if marks == 0 => return None,
        _ => {}
    }
    // SAFETY: the value, one aligned u32, is copied out.
    if let Some(&sandbox) = unsafe { TASKS.get(&task) } {
        return Some(SandboxId(sandbox));
    }
    let sandbox =
        by_cgroup.filter(|sandbox| !is_agent(*sandbox, process(), current_process_began_cs))?;
    // Moved or cloned in: from now on it stays there, wherever it is moved.
    let _ = mark(Task(task), sandbox);
    by_cgroup
}

/// Whether a process is the agent of a sandbox. Root inside may have moved it into the cgroup; it is not to be confined there
/// like those that it watches. `began_cs` is only asked of a process with the agent's id, as Linux gives that to another when
/// the agent is gone.
#[inline(always)]
pub fn is_agent(sandbox: SandboxId, process: u32, began_cs: impl FnOnce() -> Option<u32>) -> bool {
    SANDBOXES.get(sandbox.0).is_some_and(|sandbox| {
        sandbox.agent == process && Some(sandbox.agent_began_cs) == began_cs()
    })
}

/// The sandbox that armed a cgroup.
#[inline(always)]
pub fn armed(cgroup: u64) -> Option<SandboxId> {
    if !may_be_armed(cgroup) {
        return None;
    }
    surely_armed(cgroup)
}

/// [`armed`], quicker for a sandbox's first cgroup.
#[inline(always)]
fn armed_first(cgroup: u64) -> Option<SandboxId> {
    if !may_be_armed(cgroup) {
        return None;
    }
    if let Some(first) = FIRST.get(cgroup as u32 & (FIRST_CGROUPS - 1))
        && first.cgroup == cgroup
    {
        return Some(SandboxId(first.sandbox as u32));
    }
    surely_armed(cgroup)
}

#[inline(always)]
fn surely_armed(cgroup: u64) -> Option<SandboxId> {
    // SAFETY: the value, one aligned u32, is copied out.
    unsafe { CGROUPS.get(&cgroup) }.map(|&sandbox| SandboxId(sandbox))
}

/// The sandbox whose mark a task carries.
#[inline(always)]
pub fn marked(task: Task) -> Option<SandboxId> {
    if !may_be_marked(task.0) {
        return None;
    }
    // SAFETY: as in `surely_armed`.
    unsafe { TASKS.get(&task.0) }.map(|&sandbox| SandboxId(sandbox))
}

/// Whether a task is in that sandbox, by its mark or its cgroup.
#[inline(always)]
pub fn is_in(task: Task, sandbox: u32) -> bool {
    // Whatever else is known of it.
    let began_cs = || task.process_began_cs();
    if is_agent(SandboxId(sandbox), task.process().unwrap_or(0), began_cs) {
        return false;
    }
    if let Some(found) = marked(task) {
        return found.0 == sandbox;
    }
    let cgroup = task
        .cgroups()
        .and_then(|set| set.default_cgroup())
        .and_then(|cgroup| cgroup.id());
    matches!(cgroup.and_then(armed), Some(found) if found.0 == sandbox)
}

/// Marks a task.
#[inline(always)]
pub fn mark(task: Task, sandbox: SandboxId) -> Result<(), ()> {
    // The filter first: whoever finds the mark must not be turned away by the filter.
    let Some(marks) = marks_like(task.0) else {
        return Err(());
    };
    if !room::take(sandbox.0, Room::Marks) {
        // Who has a mark already needs no room.
        // SAFETY: only whether it is there matters.
        if unsafe { TASKS.get(&task.0) }.is_some() {
            return Ok(());
        }
        count(sandbox.0, Counter::MarksFailed);
        return Err(());
    }
    marks.add(one_mark(sandbox));
    // A second mark must not count twice.
    match TASKS.insert(&task.0, &sandbox.0, BPF_NOEXIST) {
        Ok(()) => Ok(()),
        Err(failed) => {
            marks.add(one_mark(sandbox).wrapping_neg());
            room::give_back(sandbox.0, Room::Marks);
            if failed == -EEXIST {
                return Ok(());
            }
            count(sandbox.0, Counter::MarksFailed);
            Err(())
        }
    }
}

/// Removes a task's mark, if it has one.
#[inline(always)]
pub fn unmark(task: Task) {
    let Some(sandbox) = marked(task) else {
        return;
    };
    if TASKS.remove(&task.0).is_ok()
        && let Some(marks) = marks_like(task.0)
    {
        marks.add(one_mark(sandbox).wrapping_neg());
        room::give_back(sandbox.0, Room::Marks);
    }
}

/// What a mark adds to its slot of the filter: with one mark there, the slot tells its sandbox.
#[inline(always)]
fn one_mark(sandbox: SandboxId) -> u64 {
    u64::from(sandbox.0) << 32 | 1
}

/// Arms a cgroup.
#[inline(always)]
pub fn arm(cgroup: u64, sandbox: SandboxId) -> Result<(), ()> {
    let Some(slot) = CGROUP_FILTER.get_ptr_mut(cgroup_slot(cgroup)) else {
        return Err(());
    };
    if !room::take(sandbox.0, Room::Cgroups) {
        return Err(());
    }
    // SAFETY: a map value, aligned. It is never anything but 0 or 1.
    unsafe { slot.write_volatile(1) };
    CGROUPS.insert(&cgroup, &sandbox.0, 0).map_err(|_| {
        room::give_back(sandbox.0, Room::Cgroups);
    })
}

/// Disarms a cgroup that is gone. Its slot of the filter stays: another id may share it.
#[inline(always)]
pub fn disarm(cgroup: u64) {
    if let Some(sandbox) = armed(cgroup)
        && CGROUPS.remove(&cgroup).is_ok()
    {
        room::give_back(sandbox.0, Room::Cgroups);
    }
}

#[inline(always)]
fn may_be_armed(cgroup: u64) -> bool {
    CGROUP_FILTER
        .get(cgroup_slot(cgroup))
        .is_none_or(|&slot| slot != 0)
}

#[inline(always)]
fn cgroup_slot(cgroup: u64) -> u32 {
    cgroup as u32 & (CGROUP_SLOTS - 1)
}

#[inline(always)]
fn may_be_marked(task: u64) -> bool {
    marks_like(task).is_none_or(|marks| marks.get() != 0)
}

/// The marked tasks that share a task's slot of the filter; see [`one_mark`].
#[inline(always)]
fn marks_like(task: u64) -> Option<Cell> {
    let slot = TASK_FILTER.get_ptr_mut(filter_index(task))?;
    // SAFETY: a map value, aligned; only ever changed atomically.
    Some(unsafe { Cell::at(slot) })
}

/// Task structures are aligned to 64 bytes, so the bits above say most.
#[inline(always)]
fn filter_index(task: u64) -> u32 {
    low_bits(task) >> 6 & (TASK_SLOTS - 1)
}

/// The low half of an address as a number. To the verifier `task` may still be a pointer, on which
/// it allows no shift; what a 32-bit move takes of it is a number.
#[inline(always)]
fn low_bits(task: u64) -> u32 {
    let low: u64;
    // SAFETY: one move between registers.
    unsafe { core::arch::asm!("w0 = w1", lateout("r0") low, in("r1") task) };
    low as u32
}
