//! What a sandbox sees of the mounts, and since when that is known.

use std::{fs::File, io, os::fd::AsFd as _, path::Path};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{
    error::{RunError, system},
    view::mountinfo,
};
use crate::{
    kernel::{Kernel, KernelError, Look},
    view::{Mount, View},
};

/// The mounts of this process's namespace.
const OWN: &str = "/proc/self/mountinfo";

pub(super) struct Sight {
    pub(super) view: View,
    /// The look that it comes from.
    pub(super) look: Look,
    /// Tells of changes since it was opened.
    changes: Option<File>,
}

impl Sight {
    /// Of what was seen before the kernel's side was there.
    pub(super) fn first(kernel: &mut Kernel, view: View) -> Result<Self, KernelError> {
        Ok(Self {
            look: kernel.look()?,
            view,
            changes: None,
        })
    }

    /// Looks again, and has besides what the sandbox has mounted in namespaces of its own, which `met` finds. `None` if nothing
    /// has changed.
    pub(super) fn again(
        &mut self,
        kernel: &mut Kernel,
        met: impl FnOnce() -> Vec<Mount>,
    ) -> Result<Option<Self>, RunError> {
        // The file is opened anew: a change is told once for each open file.
        let changes = File::open(OWN).ok();
        let look = kernel.look()?;
        let view = self
            .now(kernel, met)
            .map_err(|source| system("read the mounts", source))?;
        // One that took another's place and number looks the same.
        let mut seen = view.mounts.iter().chain(&view.elsewhere);
        if view == self.view && !seen.any(|mount| kernel.is_made_since(self.look, mount.dev)) {
            self.changes = changes;
            return Ok(None);
        }
        Ok(Some(Self {
            view,
            look,
            changes,
        }))
    }

    /// Whether something was mounted or unmounted since it was last looked (proc_pid_mountinfo(5)).
    pub(super) fn has_changed(&self) -> bool {
        let Some(changes) = &self.changes else {
            return false;
        };
        let mut fds = [PollFd::new(changes.as_fd(), PollFlags::POLLPRI)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|_| {
            fds[0]
                .revents()
                .is_some_and(|events| events.contains(PollFlags::POLLPRI))
        })
    }

    /// What is seen now, and of other namespaces what is still there.
    fn now(&self, kernel: &mut Kernel, met: impl FnOnce() -> Vec<Mount>) -> io::Result<View> {
        let lines = mountinfo(Path::new(OWN))?;
        let mut view = View {
            mounts: lines.into_iter().map(|line| line.mount).collect(),
            ..self.view.clone()
        };
        let look = self.look;
        view.elsewhere
            .retain(|mount| !kernel.is_made_since(look, mount.dev));
        view.elsewhere.extend(met());
        Ok(view)
    }
}
