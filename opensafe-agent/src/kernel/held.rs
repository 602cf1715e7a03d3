//! Who holds what is attached: a BPF file system of this process's own, mounted nowhere.
//!
//! So there are two ways to let go: with nothing left when it is done, and without waiting for that. Closing a tracing
//! link's descriptor waits until no task can be inside its trampoline any more: on Linux 6.1 and 6.12 with
//! `CONFIG_PREEMPTION` at least 0.1 s for each (`ftrace_shutdown` in kernel/trace/ftrace.c waits for a grace period of RCU
//! tasks, and `rcu_tasks_kthread` in kernel/rcu/tasks.h pauses between two), 8 s for all the hooks. The last reference to
//! a pinned link goes with its inode, and the kernel then detaches in a worker of its own (`bpf_link_put` in
//! kernel/bpf/syscall.c), for which nobody waits. As nothing else refers to the file system, it goes with its
//! descriptor, however this process ends.
//!
//! Before Linux 6.5 the worker does so only for who may not sleep, and whoever closes the file system waits after all.
//! There, another process is the last to have it.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    process::{Command, Stdio},
};

use aya::{
    pin::PinError,
    programs::links::{FdLink, PinnedLink},
};
use procfs::sys::kernel::Version;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The file system. Dropped, it takes every link back and waits until all are detached; [`Held::let_go`] does not wait.
pub(super) struct Held {
    mount: Option<OwnedFd>,
    names: Vec<&'static str>,
}

impl Held {
    /// Makes the file system. Linux ≥ 5.2; `CAP_SYS_ADMIN` in the first user namespace.
    pub(super) fn new() -> io::Result<Self> {
        let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let none = MountAttrFlags::empty();
        Ok(Self {
            mount: Some(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, none)?),
            names: Vec::new(),
        })
    }

    /// Holds a link, under a name that no other has.
    ///
    /// # Errors
    /// If it cannot be pinned; the link is gone then.
    pub(super) fn hold(&mut self, link: FdLink, name: &'static str) -> Result<(), PinError> {
        if let Some(mount) = &self.mount {
            link.pin(path(mount, name))?;
            self.names.push(name);
        }
        Ok(())
    }

    /// Has the kernel detach everything, and does not wait for it.
    pub(super) fn let_go(mut self) {
        let Some(mount) = self.mount.take() else {
            return;
        };
        let waits = !self.names.is_empty()
            && Version::current().is_ok_and(|kernel| kernel < Version::new(6, 5, 0));
        if let (true, Ok(mount)) = (waits, mount.try_clone()) {
            // Any program that ends by itself will do, and nobody waits for it. Where none can be started, this process
            // waits.
            let _ = Command::new("/proc/self/exe")
                .arg("--version")
                .stdin(mount)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mount) = self.mount.take() else {
            return;
        };
        let links = self.names.iter();
        let links: Vec<_> = links
            .map(|name| PinnedLink::from_pin(path(&mount, name)))
            .collect();
        // Whoever has a link last waits for it: that is not to be the kernel's worker.
        drop(mount);
        drop(links);
    }
}

// BPF_OBJ_PIN takes a directory's descriptor only since Linux 6.5; a path to it has always been good.
fn path(mount: &OwnedFd, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", mount.as_raw_fd())
}
