//! Whom a run is for, and on which machine.

use std::{
    env,
    path::{Path, PathBuf},
};

use nix::{sys::utsname::uname, unistd::Uid};

use super::error::{RunError, system};
use crate::{account::Account, run::HostInfo, sink::record::place::Invoker};

/// The account to run as: the one named, else the one behind sudo, else ours.
pub(super) fn account(name: Option<&str>) -> Result<Account, RunError> {
    match name {
        Some(name) => Account::named(name).ok_or_else(|| RunError::NoUser(name.to_owned())),
        None => {
            let owner = Invoker::current().owner;
            let uid = owner.map_or_else(|| Uid::current().as_raw(), |owner| owner.uid);
            Ok(Account::of(uid)
                .unwrap_or_else(|| nobody_in_particular(uid, owner.map(|owner| owner.gid))))
        }
    }
}

/// An id without an account is allowed, as everywhere in Unix.
fn nobody_in_particular(uid: u32, gid: Option<u32>) -> Account {
    Account {
        name: uid.to_string(),
        uid,
        gid: gid.unwrap_or_else(|| nix::unistd::Gid::current().as_raw()),
        home: env::var_os("HOME").map_or_else(|| "/".into(), PathBuf::from),
        shell: "/bin/sh".into(),
    }
}

pub(super) fn host() -> Result<HostInfo, RunError> {
    let names = uname().map_err(|errno| system("ask for the kernel's name", errno.into()))?;
    Ok(HostInfo {
        name: names.nodename().to_string_lossy().into_owned(),
        kernel: names.release().to_string_lossy().into_owned(),
    })
}

pub(super) fn tmp() -> PathBuf {
    let tmp = env::var_os("TMPDIR")
        .map(PathBuf::from)
        .filter(|tmp| tmp.is_absolute());
    real(&tmp.unwrap_or_else(|| "/tmp".into()))
}

/// Rules are about where things are.
pub(super) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Whether processes have the ids here that the kernel's programs know them by (`PROC_PID_INIT_INO` of
/// include/linux/proc_ns.h). Where that cannot be asked, they are taken to have.
pub(super) fn is_hosts_pid_namespace() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    const PROC_PID_INIT_INO: u64 = 0xefff_fffc;
    std::fs::metadata("/proc/self/ns/pid").map_or(true, |own| own.ino() == PROC_PID_INIT_INO)
}
