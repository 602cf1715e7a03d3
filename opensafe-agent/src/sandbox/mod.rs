//! The life of a sandbox: its cgroup, its view, its first process, and what is left to do at the end.
//!
//! [`run::run`] is `opensafe run`; the other modules are its steps: [`command`] what runs, [`cgroup`]
//! where, [`view`] what it sees, [`stage`] how its first process comes to life inside, [`signals`] who
//! may interrupt it, [`children`] how it is known to have ended.

pub mod canary;
pub mod cgroup;
mod children;
pub mod command;
pub mod error;
mod inherited;
mod life;
pub mod needs;
mod record_place;
pub mod run;
mod sight;
pub mod signals;
pub mod stage;
pub mod view;
mod wait;
