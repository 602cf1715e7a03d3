//! Types that the kernel programs and the agent share.
//!
//! Everything here is plain data with a fixed layout: ids, verdicts, map keys and values, and what a
//! record in the ring buffer looks like. `zerocopy`'s derives reject padding and implicit layout at
//! compile time, so both sides read the same bytes.
//!
//! Reading order: [`verdict`] (what may be decided), [`tables`] (what the kernel reads to decide),
//! [`operation`] (what else may be decided), [`guarded`] and [`ioctl`] (what is told apart by itself), [`event`] (what it says about it),
//! [`room`] (what sandboxes share), [`layout`] (where the kernel keeps its fields), [`counter`].
#![no_std]
#![forbid(unsafe_code)]

pub mod counter;
pub mod event;
pub mod guarded;
pub mod ioctl;
pub mod layout;
pub mod operation;
pub mod places;
pub mod room;
pub mod socket;
pub mod tables;
pub mod verdict;
