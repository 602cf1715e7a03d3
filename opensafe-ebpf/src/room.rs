//! How much of what sandboxes have in common each has taken.

use opensafe_common::room::Room;

use crate::{atomic::Cell, maps::TAKEN};

/// Takes a place for a sandbox; `false` if it has its share. Two that ask at once may both get the last one: a share is no
/// exact number.
#[inline(always)]
pub fn take(sandbox: u32, room: Room) -> bool {
    take_of(sandbox, room, room.of_one())
}

/// [`take`], where only the host tells how much there is.
#[inline(always)]
pub fn take_of(sandbox: u32, room: Room, share: u32) -> bool {
    let Some(taken) = taken(sandbox, room) else {
        return false;
    };
    if taken.get().cast_signed() >= i64::from(share) {
        return false;
    }
    taken.add(1);
    true
}

/// Gives one back that was taken, or that the agent took without asking. Two that give back at once, or what is left of a run
/// that had this place before, may make it one less than none: that is less than any share.
#[inline(always)]
pub fn give_back(sandbox: u32, room: Room) {
    if let Some(taken) = taken(sandbox, room)
        && taken.get().cast_signed() > 0
    {
        taken.add(1_u64.wrapping_neg());
    }
}

#[inline(always)]
fn taken(sandbox: u32, room: Room) -> Option<Cell> {
    let all = TAKEN.get_ptr_mut(sandbox)?.cast::<u64>();
    // SAFETY: a map's value, which has a word for each kind, aligned; only ever changed atomically while programs run.
    Some(unsafe { Cell::at(all.wrapping_add(room as usize)) })
}
