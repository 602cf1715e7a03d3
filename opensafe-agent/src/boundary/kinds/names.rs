//! Reading what is denied, by whatever leads there.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{fs::OpenOptionsExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{AT_FDCWD, OFlag, RenameFlags, openat, renameat2},
    sys::{
        fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags},
        stat::Mode,
    },
    unistd::chdir,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::super::{
    attempt::{Attempt, Expects, Make, command},
    inside::as_daemon,
    site::{LONG_NAMES, Site, long_name},
};

const fn secret(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::place(name, shows, make)
}

pub(super) const ALL: &[Attempt] = &[
    secret("names.plain", "a secret by its name", |site| {
        read(site.secret())
    }),
    secret("names.symlink", "by a symbolic link", |site| {
        read(site.open("link"))
    }),
    secret("names.linked-directory", "by a linked directory", |site| {
        read(site.open("linked-directory/token"))
    }),
    secret("names.dots", "by .. in its name", |site| {
        read(site.open("../secret/../secret/token"))
    }),
    secret("names.relative", "from inside its directory", |site| {
        chdir(&site.path("secret"))?;
        read("token")
    }),
    secret("names.proc-root", "by /proc/self/root", |site| {
        read(format!("/proc/self/root{}", site.secret().display()))
    }),
    secret("names.proc-cwd", "by /proc/self/cwd", |site| {
        chdir(&site.path("secret"))?;
        read("/proc/self/cwd/token")
    }),
    secret(
        "names.o-path",
        "by an O_PATH descriptor, opened again",
        |site| {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .custom_flags(OFlag::O_PATH.bits())
                .open(site.secret())?;
            read(format!("/proc/self/fd/{}", file.as_raw_fd()))
        },
    ),
    secret(
        "names.openat",
        "by its directory's O_PATH descriptor",
        |site| {
            let mut options = OpenOptions::new();
            let directory = options
                .read(true)
                .custom_flags(OFlag::O_PATH.bits())
                .open(site.path("secret"))?;
            let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            read_all(openat(&directory, "token", flags, Mode::empty())?)
        },
    ),
    secret("names.list", "listing its directory", |site| {
        fs::read_dir(site.path("secret")).map(drop)
    }),
    secret(
        "names.hard-link",
        "by a hard link in the workspace",
        |site| {
            fs::hard_link(site.secret(), site.open("hard-link"))?;
            read(site.open("hard-link"))
        },
    ),
    secret("names.move-file", "after moving it away", |site| {
        let moved = site.movable("file/moved");
        fs::rename(site.movable("file/secret/token"), &moved)?;
        read(moved)
    }),
    secret(
        "names.move-directory",
        "after moving its directory away",
        |site| {
            let moved = site.movable("directory/moved");
            fs::rename(site.movable("directory/secret"), &moved)?;
            read(moved.join("token"))
        },
    ),
    secret(
        "names.exchange",
        "after exchanging it (RENAME_EXCHANGE)",
        |site| {
            let (one, other) = (
                site.movable("exchange/secret/token"),
                site.movable("exchange/other/token"),
            );
            let flags = RenameFlags::RENAME_EXCHANGE;
            renameat2(AT_FDCWD, &one, AT_FDCWD, &other, flags)?;
            read(other)
        },
    ),
    Attempt::any("names.long-path", "at a path of over 4,096 bytes", |site| {
        chdir(&site.path("secret"))?;
        let name = long_name();
        for _ in 0..LONG_NAMES {
            chdir(name.as_str())?;
        }
        read("token")
    }),
    secret("names.thread", "by a thread", |site| {
        let secret = site.secret();
        let thread = std::thread::spawn(move || read(secret));
        thread
            .join()
            .map_err(|_| io::Error::other("the thread panicked"))?
    }),
    secret("names.daemon", "by a daemon in its own session", |site| {
        as_daemon(site, "names.plain")
    }),
    secret(
        "names.watched",
        "by fanotify, when another opens it",
        |site| watched(&site.secret()),
    ),
    Attempt::event(
        "names.received",
        "open, from a process outside (SCM_RIGHTS)",
        &["file"],
        |site| read_all(received(site, "file")?),
    ),
    Attempt::event(
        "names.proc-fd",
        "by /proc/PID/fd of a process outside",
        &["ptrace", "file"],
        |site| {
            let there = &site.helper;
            let descriptors = there.process.directory.join("fd");
            read(descriptors.join(there.descriptor.to_string()))
        },
    ),
    Attempt::event(
        "names.proc-pid-root",
        "by /proc/PID/root of a process outside",
        &["ptrace", "file"],
        |site| {
            let there = site.helper.process.directory.display();
            read(format!("{there}/root{}", site.secret().display()))
        },
    ),
    secret("names.shell", "by cat, in a shell", |site| {
        let script = format!("cat '{}'", site.secret().display());
        command("sh", &["-c", &script])
    })
    .or_ends(&["status 1"]),
    secret("names.python", "by python3", |site| {
        command(
            "python3",
            &["-c", &format!("open({:?}).read()", site.secret())],
        )
    })
    .or_ends(&["status 1"]),
    Attempt {
        expects: Expects::Any,
        ..secret("names.disk", "by the disk that it is on", disk)
    },
];

/// At least a byte has to come.
pub(super) fn read(path: impl AsRef<Path>) -> io::Result<()> {
    File::open(path)?.read_exact(&mut [0])
}

pub(super) fn read_all(file: OwnedFd) -> io::Result<()> {
    File::from(file).read_exact(&mut [0])
}

/// A descriptor that the process outside sends, asked for by a word.
pub(super) fn received(site: &Site, word: &str) -> io::Result<OwnedFd> {
    let mut socket = UnixStream::connect(&site.helper.socket)?;
    socket.write_all(word.as_bytes())?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut content = [io::IoSliceMut::new(&mut byte)];
    recvmsg(&socket, &mut content, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(descriptor) = descriptors.next()
        {
            return Ok(descriptor);
        }
    }
    // Where the kernel is told to refuse a descriptor, the message arrives without it (net/core/scm.c).
    Err(nix::errno::Errno::EACCES.into())
}

/// By the descriptor that a watcher is given when somebody else opens the file.
fn watched(path: &Path) -> io::Result<()> {
    let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_NONBLOCK;
    let group = Fanotify::init(flags, EventFFlags::O_RDONLY)?;
    let (add, open) = (MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN);
    group.mark(add, open, AT_FDCWD, Some(path))?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        match group.read_events() {
            Ok(events) => {
                if let Some(file) = events
                    .iter()
                    .find_map(nix::sys::fanotify::FanotifyEvent::fd)
                {
                    return read_all(file.try_clone_to_owned()?);
                }
            }
            Err(nix::errno::Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(io::Error::other("nobody opened it"))
}

/// Reads the first bytes of the disk.
fn disk(site: &Site) -> io::Result<()> {
    let number = nix::sys::stat::stat(&site.root)?.st_dev;
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let name = fs::read_link(format!("/sys/dev/block/{major}:{minor}"))
        .map_err(|_| io::Error::other("it is on no disk"))?;
    let name = name.file_name().ok_or(io::ErrorKind::NotFound)?.to_owned();
    read(PathBuf::from("/dev").join(name))
}
