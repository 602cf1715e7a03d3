//! What a sandbox sees of the mounts, and since when that is known.

use std::{fs::File, future::pending, io, os::fd::AsFd as _, path::Path};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    error::{RunError, system},
    view::mountinfo,
};
use crate::{
    kernel::{Kernel, Look},
    view::{Mount, View},
};

/// The mounts of this process's namespace.
const OWN: &str = "/proc/self/mountinfo";

pub(super) struct Sight {
    pub(super) view: View,
    /// The look that it comes from.
    pub(super) look: Look,
    changes: Option<Changes>,
    /// Whether there was one, and nobody has asked since.
    told: bool,
}

/// Tells of changes since it was opened.
enum Changes {
    /// Whenever it is asked.
    Asked(File),
    /// By itself.
    Watched(AsyncFd<File>),
}

/// From when on what is mounted is noted, and what tells of it: to be had before it is looked.
pub(super) struct Lookout {
    look: Look,
    changes: Option<Changes>,
}

impl Lookout {
    pub(super) fn new(kernel: &mut Kernel) -> Result<Self, RunError> {
        // A change is told once for each open file, so it is opened before it is looked.
        let changes = File::open(OWN).ok().map(Changes::Asked);
        let look = kernel.look()?;
        Ok(Self { look, changes })
    }

    /// Its number.
    pub(super) const fn look(&self) -> Look {
        self.look
    }

    /// What was seen from there.
    pub(super) fn saw(self, view: View) -> Sight {
        Sight {
            view,
            look: self.look,
            changes: self.changes,
            told: false,
        }
    }
}

impl Sight {
    /// What `view` sees. The programs are attached: what is mounted from here on is noted.
    pub(super) fn first(
        kernel: &mut Kernel,
        view: impl FnOnce() -> io::Result<View>,
    ) -> Result<Self, RunError> {
        let lookout = Lookout::new(kernel)?;
        let view = view().map_err(|source| system("read the mounts", source))?;
        Ok(lookout.saw(view))
    }

    /// Looks again, and has besides what the sandbox has mounted in namespaces of its own, which `met` finds. `None` if nothing
    /// has changed.
    pub(super) fn again(
        &mut self,
        kernel: &mut Kernel,
        met: impl FnOnce() -> Vec<Mount>,
    ) -> Result<Option<(Lookout, View)>, RunError> {
        let lookout = Lookout::new(kernel)?;
        let view = self
            .now(kernel, met)
            .map_err(|source| system("read the mounts", source))?;
        // One that took another's place and number looks the same.
        let mut seen = view.mounts.iter().chain(&view.elsewhere);
        if view == self.view && !seen.any(|mount| kernel.is_made_since(self.look, mount.dev)) {
            self.changes = lookout.changes;
            self.told = false;
            return Ok(None);
        }
        Ok(Some((lookout, view)))
    }

    /// Of what is mounted in namespaces of the sandbox's own, what is still there.
    pub(super) fn elsewhere(&self, kernel: &mut Kernel) -> Vec<Mount> {
        let mounts = self.view.elsewhere.iter();
        mounts
            .filter(|mount| !kernel.is_made_since(self.look, mount.dev))
            .cloned()
            .collect()
    }

    /// Waits until something is mounted or unmounted, where that is told; else there is no end to it, and it has to be
    /// asked. To be called where a runtime is that does input and output.
    pub(super) async fn changed(&mut self) {
        self.changes = match self.changes.take() {
            Some(Changes::Asked(file)) => Some(watch(file)),
            watched => watched,
        };
        let Some(Changes::Watched(file)) = &self.changes else {
            return pending().await;
        };
        match file.ready(Interest::PRIORITY).await {
            Ok(mut told) => {
                told.clear_ready();
                self.told = true;
            }
            Err(_) => pending().await,
        }
    }

    /// Whether something was mounted or unmounted since it was last looked, or asked (proc_pid_mountinfo(5)).
    pub(super) fn has_changed(&mut self) -> bool {
        match &self.changes {
            Some(Changes::Asked(file)) => is_told(file),
            Some(Changes::Watched(_)) => std::mem::take(&mut self.told),
            None => false,
        }
    }

    /// What is seen now, and of other namespaces what is still there.
    fn now(&self, kernel: &mut Kernel, met: impl FnOnce() -> Vec<Mount>) -> io::Result<View> {
        let lines = mountinfo(Path::new(OWN))?;
        let mut view = View {
            mounts: lines.into_iter().map(|line| line.mount).collect(),
            ..self.view.clone()
        };
        view.elsewhere = self.elsewhere(kernel);
        view.elsewhere.extend(met());
        Ok(view)
    }
}

/// The kernel tells each change once for every open file, whoever waits or asks (`mounts_poll` in fs/namespace.c).
#[expect(
    deprecated,
    reason = "a file owns its descriptor for as long as it lives, which is all that the new one asks to be promised"
)]
fn watch(file: File) -> Changes {
    let copy = file.try_clone();
    match copy.and_then(|copy| AsyncFd::with_interest(copy, Interest::PRIORITY)) {
        Ok(watched) => Changes::Watched(watched),
        Err(_) => Changes::Asked(file),
    }
}

fn is_told(file: &File) -> bool {
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|_| {
        fds[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLPRI))
    })
}
