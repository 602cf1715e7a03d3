//! A place to try escapes from: what is to be protected, what is open, and a process outside.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::{directory, this_program, write};

/// A directory with `ws`, where everything is open, `secret/token`, `prot/config` and `bin/tool`.
pub(crate) struct Ground {
    folder: tempfile::TempDir,
    /// Undone when it goes, last things first.
    undo: Vec<Box<dyn Fn()>>,
    helpers: Vec<Helper>,
}

/// A process outside.
pub(crate) struct Helper {
    child: Child,
    /// Its id.
    pub(crate) process: String,
    /// The number by which it has a file open.
    pub(crate) descriptor: String,
    /// Where it keeps a text.
    pub(crate) address: String,
    /// Where it listens.
    pub(crate) socket: String,
}

impl Ground {
    /// Makes one.
    pub(crate) fn new() -> Result<Self> {
        let folder = directory()?;
        let ground = Self {
            folder,
            undo: Vec::new(),
            helpers: Vec::new(),
        };
        for name in ["ws", "secret", "prot", "bin"] {
            ground.directory(name)?;
        }
        ground.file("secret/token")?;
        ground.file("prot/config")?;
        fs::copy("/usr/bin/true", ground.path("bin/tool"))?;
        Ok(ground)
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Makes a directory, and those above it, that anyone may write to.
    pub(crate) fn directory(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
        Ok(self.text(name))
    }

    /// Makes a file that anyone may read and write.
    pub(crate) fn file(&self, name: &str) -> Result<String> {
        write(&self.path(name), "content")?;
        Ok(self.text(name))
    }

    /// Has something done when it goes.
    pub(crate) fn undo(&mut self, action: impl Fn() + 'static) {
        self.undo.push(Box::new(action));
    }

    /// Starts a process outside that has a file of it open, and a connection to a peer to give away.
    pub(crate) fn helper(&mut self, file: &str, peer: &str) -> Result<()> {
        let socket = self.path(&format!("ws/helper-{}", self.helpers.len()));
        self.helpers
            .push(Helper::start(&self.path(file), &socket, peer)?);
        Ok(())
    }

    /// One of them.
    pub(crate) fn outside(&self, number: usize) -> &Helper {
        &self.helpers[number]
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.helpers.clear();
        for action in self.undo.iter().rev() {
            action();
        }
    }
}

impl Helper {
    fn start(file: &Path, socket: &Path, peer: &str) -> Result<Self> {
        let mut child = Command::new(this_program()?)
            .args(["probe", "outside"])
            .args([file, socket])
            .arg(peer)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let &["outside", process, descriptor, address] = words.as_slice() else {
            anyhow::bail!("the process outside says {line:?}");
        };
        Ok(Self {
            process: process.to_owned(),
            descriptor: descriptor.to_owned(),
            address: address.to_owned(),
            socket: socket.display().to_string(),
            child,
        })
    }

    /// Whether it is still there, and running.
    pub(crate) fn is_well(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest.starts_with(['S', 'R']));
        state == Some(true)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts a key into the user's keyring, for who is to read it.
#[allow(unsafe_code, reason = "add_key(2) has no wrapper")]
pub(crate) fn add_key(name: &str) -> Result<()> {
    // KEY_SPEC_USER_KEYRING (include/uapi/linux/keyctl.h)
    const USER_KEYRING: i32 = -4;
    let name = std::ffi::CString::new(name)?;
    // SAFETY: texts that end with a NUL, and a content of the length that is said.
    let result = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_add_key,
            c"user".as_ptr(),
            name.as_ptr(),
            c"content".as_ptr(),
            7,
            USER_KEYRING,
        )
    };
    match nix::errno::Errno::result(result) {
        // A kernel without keys: whoever tries to read one finds that out.
        Ok(_) | Err(nix::errno::Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
