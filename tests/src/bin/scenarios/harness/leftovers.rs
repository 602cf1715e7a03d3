//! What a run may leave behind: nothing.

use std::{collections::BTreeSet, fs, path::Path, thread::sleep, time::Duration};

use anyhow::Result;
use nix::{errno::Errno, libc};

use super::wait_for;

/// Kernel objects, cgroups and processes that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leftovers {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
    cgroups: BTreeSet<String>,
    processes: BTreeSet<String>,
}

impl Leftovers {
    /// Those there are now.
    pub(crate) fn now() -> Result<Self> {
        // Commands of enum bpf_cmd (include/uapi/linux/bpf.h).
        const PROG_GET_NEXT_ID: u32 = 11;
        const MAP_GET_NEXT_ID: u32 = 12;
        const LINK_GET_NEXT_ID: u32 = 31;
        Ok(Self {
            programs: ids(PROG_GET_NEXT_ID)?,
            maps: ids(MAP_GET_NEXT_ID)?,
            links: ids(LINK_GET_NEXT_ID)?,
            cgroups: cgroups(),
            processes: processes(),
        })
    }

    /// Those there are once the kernel has freed what earlier runs had: it goes on with that after they have ended.
    pub(crate) fn settled() -> Result<Self> {
        // The longest pause between two links that are detached is a tenth of that.
        const QUIET: Duration = Duration::from_secs(1);
        let mut last = Self::now()?;
        loop {
            sleep(QUIET);
            let now = Self::now()?;
            if now.links == last.links && now.programs == last.programs && now.maps == last.maps {
                return Ok(now);
            }
            last = now;
        }
    }

    /// Waits until there is nothing that was not there before. The kernel frees objects a little after their last user
    /// is gone.
    pub(crate) fn gone_since(before: &Self) -> Result<()> {
        let mut last = Ok(None);
        let waited = wait_for("nothing to be left", || {
            last = Self::now().map(|now| now.beyond(before));
            matches!(last, Ok(None))
        });
        match (waited, last?) {
            (Err(_), Some(left)) => anyhow::bail!("left behind: {left}"),
            _ => Ok(()),
        }
    }

    /// How many programs there are.
    pub(crate) fn programs(&self) -> usize {
        self.programs.len()
    }

    /// How many maps.
    pub(crate) fn maps(&self) -> usize {
        self.maps.len()
    }

    /// How many links.
    pub(crate) fn links(&self) -> usize {
        self.links.len()
    }

    /// Cgroups that were not there before, what is below others first.
    pub(crate) fn cgroups_since(&self, before: &Self) -> Vec<String> {
        let mut new: Vec<_> = self.cgroups.difference(&before.cgroups).cloned().collect();
        new.reverse();
        new
    }

    fn beyond(&self, before: &Self) -> Option<String> {
        let mut left = Vec::new();
        let numbers = [
            ("programs", &self.programs, &before.programs),
            ("maps", &self.maps, &before.maps),
            ("links", &self.links, &before.links),
        ];
        for (what, now, then) in numbers {
            let new: Vec<_> = now.difference(then).collect();
            if !new.is_empty() {
                left.push(format!("{what} {new:?}"));
            }
        }
        let names = [
            ("cgroups", &self.cgroups, &before.cgroups),
            ("processes", &self.processes, &before.processes),
        ];
        for (what, now, then) in names {
            let new: Vec<_> = now.difference(then).collect();
            if !new.is_empty() {
                left.push(format!("{what} {new:?}"));
            }
        }
        (!left.is_empty()).then(|| left.join(", "))
    }
}

/// Every id that the kernel counts up to with one of its `*_GET_NEXT_ID` commands.
fn ids(command: u32) -> Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    let mut id = 0;
    loop {
        match next_id(command, id) {
            Ok(next) => id = next,
            Err(Errno::ENOENT) => return Ok(ids),
            Err(errno) => return Err(errno.into()),
        }
        ids.insert(id);
    }
}

#[allow(unsafe_code, reason = "bpf(2) has no safe wrapper")]
fn next_id(command: u32, after: u32) -> Result<u32, Errno> {
    // `start_id`, `next_id`, `open_flags` of union bpf_attr.
    let mut attributes = [after, 0, 0];
    // SAFETY: the kernel reads and writes the given number of bytes of `attributes`, which is as long, and keeps no
    // reference to it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
        )
    };
    Errno::result(result).map(|_| attributes[1])
}

fn cgroups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut todo = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.insert(entry.path().display().to_string());
                todo.push(entry.path());
            }
        }
    }
    found
}

/// Processes of userspace, with what they run.
fn processes() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        if let Ok(program) = fs::read_link(entry.path().join("exe")) {
            found.insert(format!("{name} {}", program.display()));
        }
    }
    found
}
