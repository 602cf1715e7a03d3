//! The agent: evaluates a Rego policy into what the kernel enforces, and puts on record what the
//! kernel saw.
//!
//! ```text
//! control   policy ─evaluate→ rules::RuleSet ─compile→ tables::Tables ─install→ kernel
//! data      kernel ─read→ event::Event ─enrich→ enrich::Enriched ─→ sink
//! ```
//! Each arrow is a function; nothing goes back. `sandbox` holds a run together, `cli` is what a
//! person types. Only `kernel` knows aya, only `policy` knows regorus.
#![deny(unsafe_code)]

pub mod account;
pub mod boundary;
mod bytes;
pub mod cli;
pub mod doctor;
pub mod enforcement;
pub mod enrich;
pub mod event;
pub mod kernel;
pub mod policy;
pub mod response;
pub mod rules;
pub mod run;
pub mod sandbox;
pub mod sink;
pub mod tables;
#[cfg(test)]
mod threat_model;
#[cfg(any(test, feature = "untrusted"))]
#[doc(hidden)]
pub mod untrusted;
pub mod view;
