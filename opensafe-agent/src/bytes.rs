//! Paths in what is kept for another process of ours: bytes, of which not all are UTF-8.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    OsStr::serialize(path.as_os_str(), serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    OsString::deserialize(deserializer).map(PathBuf::from)
}
