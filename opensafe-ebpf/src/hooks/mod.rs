//! What each hook has of its own: which argument is what.

pub mod cgroup_net;
pub mod exec;
pub mod file;
pub mod life;
pub mod net;
