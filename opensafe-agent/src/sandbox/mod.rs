//! The life of a sandbox: its cgroup, its view, its first process, and what is left to do at the end.
//!
//! [`run::run`] is `opensafe run`; the other modules are its steps: [`command`] what runs, [`cgroup`]
//! where, [`view`] what it sees, [`stage`] how its first process comes to life inside, [`signals`] who
//! may interrupt it, [`children`] how it is known to have ended,
//! [`respond`] what is done about what it does. [`adopt`] is `opensafe adopt`, [`apply`] is `opensafe policy apply`; [`call`] is
//! how they ask whoever attends to a run.

pub mod adopt;
pub mod alert;
pub mod apply;
pub mod call;
pub mod canary;
pub mod cgroup;
mod children;
pub mod command;
pub mod control;
pub mod error;
mod evaluated;
mod freezer;
pub(crate) mod inherited;
mod job;
mod life;
pub mod needs;
mod origin;
mod record_place;
mod respond;
pub mod run;
mod sight;
pub mod signals;
pub mod stage;
mod state;
pub mod view;
mod wait;
