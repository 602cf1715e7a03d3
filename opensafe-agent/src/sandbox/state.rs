//! What a run keeps beside its programs, so that another process can take it up.

use std::{ffi::OsString, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{RunError, system};
use crate::{
    event::PolicyNumber,
    policy::{Input, KeptPolicy},
    run::UserInfo,
};

/// All that is not known otherwise. JSON; what a later version adds, an earlier one passes over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// Of the opensafe that has started the run.
    pub(super) version: String,
    pub(super) time_unix_nano: u64,
    pub(super) observe: bool,
    pub(super) partial: bool,
    pub(super) respond: bool,
    #[serde(with = "crate::bytes")]
    pub(super) directory: PathBuf,
    pub(super) command: Vec<OsString>,
    pub(super) user: UserInfo,
    /// Where the policy was found.
    pub(super) sources: Vec<OsString>,
    pub(super) record: RecordState,
    /// The cgroup's id.
    pub(super) cgroup: u64,
    /// The first process, and when it began.
    pub(super) first: u32,
    pub(super) first_began_cs: u32,
    /// The sandbox as its policy sees it, and the policy.
    pub(super) input: Input,
    pub(super) policy: KeptPolicy,
    /// Which of the run's policies it is, and the generation from which on it is, or was to be, in force.
    #[serde(default)]
    pub(super) number: PolicyNumber,
    #[serde(default)]
    pub(super) since: u32,
}

/// Where the record is, and whose it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordState {
    #[serde(with = "crate::bytes")]
    pub(super) path: PathBuf,
    #[serde(with = "crate::bytes")]
    pub(super) runs: PathBuf,
    /// User and group.
    pub(super) owner: Option<(u32, u32)>,
}

impl State {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, RunError> {
        serde_json::to_vec(self)
            .map_err(|error| system("write down the run's state", io::Error::other(error)))
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self, RunError> {
        serde_json::from_slice(bytes)
            .map_err(|error| system("read the run's state", io::Error::other(error)))
    }
}
