//! What each hook has of its own: which argument is what.

pub mod capability;
pub mod cgroup_net;
pub mod exec;
pub mod failed;
pub mod file;
pub mod guard;
pub mod life;
pub mod mount;
pub mod names;
pub mod net;
pub mod own;
pub mod route;
pub mod socket;
mod spread;
pub mod terminal;
pub mod unix;
