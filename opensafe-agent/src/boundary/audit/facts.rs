//! What is set: of a process, its cgroup and its mounts. Read without changing anything.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{ffi::OsStringExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use nix::unistd::Uid;

use super::Of;
use crate::{
    account::Account,
    rules::RuleSet,
    sandbox::{
        cgroup::{CgroupError, below_root, mount_point},
        view::{Mountinfo, mountinfo},
    },
};

/// Why it cannot be found out.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum FactsError {
    #[error("there is no process in the cgroup {}", path.display())]
    Empty { path: PathBuf },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

fn unread(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> FactsError {
    let path = path.into();
    move |source| FactsError::Read { path, source }
}

/// Whom a sandbox that does not run yet would run as, and on what.
#[derive(Clone, Debug)]
pub struct Who {
    /// As whom.
    pub account: Account,
    /// The directory that it works on.
    pub workspace: Option<PathBuf>,
    /// Whether the policy is only watched.
    pub observing: bool,
}

/// A capability, by its number in include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(pub u8);

/// A mount that the sandbox has and the host has not, at this point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub point: PathBuf,
    /// Of what: the directory in the file system.
    pub root: PathBuf,
    /// The file system's type.
    pub kind: String,
    /// Whether it can be written to.
    pub writable: bool,
}

/// All that is known.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What is audited, for a person.
    pub subject: String,
    /// Where its root is in our view.
    pub root: PathBuf,
    /// As whom it runs.
    pub user: u32,
    /// And its groups.
    pub groups: Vec<u32>,
    /// The user's home, in its view.
    pub home: PathBuf,
    /// What it works on, in its view.
    pub workspace: Option<PathBuf>,
    /// Names of environment variables; never their values.
    pub environment: Vec<String>,
    /// Effective capabilities, a bit each.
    pub capabilities: u64,
    /// Whether programs can give it no more rights than it has.
    pub no_new_privileges: bool,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Whether memory is limited, by its cgroup or one above.
    pub memory_limited: bool,
    /// Whether the number of processes is.
    pub processes_limited: bool,
    /// Where such limits are to be set.
    pub cgroup: PathBuf,
    /// Whether core dumps may be written.
    pub dumps_core: bool,
    /// Whether it is in the host's network namespace.
    pub host_network: bool,
    /// Mounts of its own; none if it has the host's.
    pub mounts: Vec<Mounted>,
    /// The rules that hold; none if no policy is known.
    pub rules: Option<RuleSet>,
    /// Whether they are only watched.
    pub observing: bool,
}

pub(super) fn read(of: &Of, rules: Option<RuleSet>, who: Who) -> Result<Facts, FactsError> {
    match of {
        Of::Here => here(rules, who),
        Of::Process(process) => {
            let subject = format!("process {process}");
            running(*process, subject, rules, who)
        }
        Of::Cgroup(path) => {
            let subject = format!("cgroup {}", path.display());
            let first = first_in(path).map_err(unread(path))?;
            let first = first.ok_or_else(|| FactsError::Empty { path: path.clone() })?;
            running(first, subject, rules, who)
        }
    }
}

/// The first process in a cgroup or one below.
fn first_in(cgroup: &Path) -> io::Result<Option<i32>> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs"))?;
    if let Some(process) = text.lines().find_map(|line| line.parse().ok()) {
        return Ok(Some(process));
    }
    for entry in fs::read_dir(cgroup)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(Some(process)) = first_in(&entry.path())
        {
            return Ok(Some(process));
        }
    }
    Ok(None)
}

/// What `opensafe run` would give: the caller's environment and limits, the user's rights, a new cgroup.
fn here(rules: Option<RuleSet>, who: Who) -> Result<Facts, FactsError> {
    let status = Status::read(Path::new("/proc/self"))?;
    let parent = mount_point()?.join("opensafe");
    let same = who.account.uid == Uid::effective().as_raw();
    Ok(Facts {
        subject: "what opensafe run would give here".to_owned(),
        root: "/".into(),
        user: who.account.uid,
        groups: who.account.groups(),
        home: who.account.home,
        workspace: who.workspace,
        environment: std::env::vars_os()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect(),
        // Whoever becomes another user than root leaves them behind.
        capabilities: if same { status.capabilities } else { 0 },
        no_new_privileges: status.no_new_privileges,
        seccomp: status.seccomp,
        memory_limited: is_limited(&parent, "memory.max"),
        processes_limited: is_limited(&parent, "pids.max"),
        cgroup: parent,
        dumps_core: dumps_core(Path::new("/proc/self"))?,
        host_network: same_namespace(Path::new("/proc/self"), "net"),
        mounts: Vec::new(),
        observing: who.observing,
        rules,
    })
}

fn running(
    process: i32,
    subject: String,
    rules: Option<RuleSet>,
    who: Who,
) -> Result<Facts, FactsError> {
    let proc = PathBuf::from(format!("/proc/{process}"));
    let status = Status::read(&proc)?;
    let path = proc.join("environ");
    let environment = fs::read(&path).map_err(unread(path))?;
    let names = environment
        .split(|byte| *byte == 0)
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split(|byte| *byte == b'=').next().unwrap_or_default());
    let path = proc.join("cgroup");
    let cgroups = fs::read(&path).map_err(unread(path))?;
    let cgroup = mount_point()?.join(below_root(&cgroups).unwrap_or(Path::new("")));
    let home = Account::of(status.user).map_or(who.account.home, |account| account.home);
    Ok(Facts {
        subject,
        root: proc.join("root"),
        user: status.user,
        groups: status.groups,
        home,
        workspace: who.workspace,
        environment: names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect(),
        capabilities: status.capabilities,
        no_new_privileges: status.no_new_privileges,
        seccomp: status.seccomp,
        memory_limited: is_limited(&cgroup, "memory.max"),
        processes_limited: is_limited(&cgroup, "pids.max"),
        cgroup,
        dumps_core: dumps_core(&proc)?,
        host_network: same_namespace(&proc, "net"),
        mounts: if same_namespace(&proc, "mnt") {
            Vec::new()
        } else {
            mounts(&proc.join("mountinfo"))?
        },
        observing: who.observing,
        rules,
    })
}

/// What `/proc/PID/status` says.
struct Status {
    user: u32,
    groups: Vec<u32>,
    capabilities: u64,
    no_new_privileges: bool,
    seccomp: bool,
}

impl Status {
    fn read(proc: &Path) -> Result<Self, FactsError> {
        let path = proc.join("status");
        let text = fs::read(&path).map_err(unread(path))?;
        // It begins with the process's name, which is any bytes.
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim()
        };
        let ids = |name: &str| -> Vec<u32> {
            field(name)
                .split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect()
        };
        // Real, effective, saved, file system.
        let effective = |name: &str| ids(name).get(1).copied();
        let mut groups = ids("Groups:");
        groups.extend(effective("Gid:"));
        Self {
            user: effective("Uid:").unwrap_or_default(),
            groups,
            capabilities: u64::from_str_radix(field("CapEff:"), 16).unwrap_or_default(),
            no_new_privileges: field("NoNewPrivs:") == "1",
            seccomp: field("Seccomp:") != "0",
        }
    }
}

/// Whether a cgroup, or one above it, has a limit there.
fn is_limited(cgroup: &Path, file: &str) -> bool {
    cgroup
        .ancestors()
        .take_while(|above| *above != Path::new("/sys/fs"))
        .filter_map(|above| fs::read_to_string(above.join(file)).ok())
        .any(|limit| limit.trim() != "max")
}

fn dumps_core(proc: &Path) -> Result<bool, FactsError> {
    let path = proc.join("limits");
    let text = fs::read_to_string(&path).map_err(unread(path))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    Ok(soft != Some("0"))
}

/// Whether it has this namespace in common with the first process, or, where that may not be known, with us.
fn same_namespace(proc: &Path, name: &str) -> bool {
    let of = |proc: &Path| fs::metadata(proc.join("ns").join(name)).map(|of| of.ino());
    let ours = of(Path::new("/proc/1")).or_else(|_| of(Path::new("/proc/self")));
    match (of(proc), ours) {
        (Ok(its), Ok(ours)) => its == ours,
        _ => true,
    }
}

/// What is mounted there, but for what the kernel makes up.
fn mounts(path: &Path) -> Result<Vec<Mounted>, FactsError> {
    let lines = mountinfo(path).map_err(unread(path))?;
    Ok(lines.into_iter().filter_map(mounted).collect())
}

fn mounted(line: Mountinfo) -> Option<Mounted> {
    const MADE_UP: [&str; 12] = [
        "proc",
        "sysfs",
        "cgroup2",
        "cgroup",
        "devpts",
        "mqueue",
        "tmpfs",
        "devtmpfs",
        "securityfs",
        "bpf",
        "tracefs",
        "debugfs",
    ];
    let point = line.point();
    (!MADE_UP.contains(&line.mount.fs_type.as_str())).then(|| Mounted {
        point,
        root: PathBuf::from(OsString::from_vec(line.mount.root)),
        kind: line.mount.fs_type,
        writable: line.writable,
    })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use super::*;

    fn found_in(lines: &[u8]) -> Vec<Mounted> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), lines).unwrap();
        mounts(file.path()).unwrap()
    }

    #[test]
    fn what_the_kernel_says_about_a_process_is_read_as_it_is() {
        let text = "Name:\tsh\nUid:\t0\t1000\t0\t0\nGid:\t0\t100\t0\t0\nGroups:\t27 998 \n\
                    CapEff:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        let status = Status::parse(text);
        assert_eq!((status.user, status.groups), (1000, vec![27, 998, 100]));
        assert_eq!(status.capabilities, 0xa804_25fb);
        assert!(status.no_new_privileges && status.seccomp);
    }

    #[test]
    fn mounts_are_read_with_blanks_in_their_names() {
        let found = found_in(
            b"36 35 98:0 /a\\040b /c\\040d rw,noatime master:1 - ext4 /dev/sda1 rw\n\
              1 2 0:3 / /proc rw - proc proc rw\n",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].point, Path::new("/c d"));
        assert_eq!(found[0].root, Path::new("/a b"));
        assert!(found[0].writable);
    }

    #[test]
    fn a_mount_whose_name_is_not_utf8_hides_none_that_come_after_it() {
        let found = found_in(
            b"36 35 98:0 / /a\xff ro - ext4 /dev/\xfe rw\n\
              37 35 98:0 / /host rw - ext4 /dev/sda1 rw\n",
        );
        let points: Vec<_> = found.iter().map(|mount| mount.point.as_path()).collect();
        assert_eq!(
            points,
            [Path::new(OsStr::from_bytes(b"/a\xff")), Path::new("/host")]
        );
        assert!(!found[0].writable && found[1].writable);
    }

    #[test]
    fn a_process_whose_name_is_not_utf8_is_examined_as_any_other() {
        let status = Status::parse(&String::from_utf8_lossy(
            b"Name:\t\xff\nUid:\t0\t1000\t0\t0\n",
        ));
        assert_eq!(status.user, 1000);
    }
}
