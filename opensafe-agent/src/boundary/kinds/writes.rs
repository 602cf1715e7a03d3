//! Changing what is protected, by whatever changes something.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::{
            fs::{PermissionsExt as _, symlink},
            net::UnixListener,
        },
    },
    path::Path,
    time::SystemTime,
};

use nix::{
    fcntl::OFlag,
    sys::stat::Mode,
    unistd::{Uid, chown, mkfifo, truncate},
};
use rustix::fs::XattrFlags;

use super::{
    super::attempt::{Attempt, Make, command},
    names::received,
};

const fn change(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::place(name, shows, make)
}

pub(super) const ALL: &[Attempt] = &[
    change("writes.open", "writing into a protected file", |site| {
        write(site.protected("config"))
    }),
    change("writes.append", "appending to it", |site| {
        let mut options = OpenOptions::new();
        options
            .append(true)
            .open(site.protected("config"))?
            .write_all(b"x")
    }),
    change("writes.symlink", "writing by a symbolic link", |site| {
        symlink(site.protected("config"), site.open("to-config"))?;
        write(site.open("to-config"))
    }),
    change(
        "writes.reopen",
        "a descriptor for reading, opened again for writing",
        |site| {
            let file = File::open(site.protected("config"))?;
            write(format!("/proc/self/fd/{}", file.as_raw_fd()))
        },
    ),
    change("writes.truncate", "truncating it", |site| {
        Ok(truncate(&site.protected("empty"), 0)?)
    }),
    change(
        "writes.open-truncate",
        "emptying it by O_RDONLY | O_TRUNC",
        |site| {
            let flags = OFlag::O_RDONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
            Ok(nix::fcntl::open(&site.protected("empty"), flags, Mode::empty()).map(drop)?)
        },
    ),
    change("writes.create", "making a file beside it", |site| {
        File::create_new(site.protected("new")).map(drop)
    }),
    change("writes.mkdir", "making a directory beside it", |site| {
        fs::create_dir(site.protected("new-directory"))
    }),
    change(
        "writes.make-link",
        "making a symbolic link beside it",
        |site| symlink("/", site.protected("new-link")),
    ),
    change("writes.fifo", "making a pipe beside it", |site| {
        Ok(mkfifo(&site.protected("new-pipe"), Mode::S_IRUSR)?)
    }),
    change("writes.socket", "making a socket beside it", |site| {
        UnixListener::bind(site.protected("new-socket")).map(drop)
    }),
    change("writes.delete", "deleting one", |site| {
        fs::remove_file(site.protected("delete"))
    }),
    change(
        "writes.replace",
        "replacing one by renaming another",
        |site| {
            fs::write(site.open("replacement"), "x")?;
            fs::rename(site.open("replacement"), site.protected("replace"))
        },
    ),
    change("writes.move-away", "moving its directory away", |site| {
        fs::rename(site.protected("directory"), site.protected("moved"))
    }),
    change(
        "writes.hard-link",
        "giving it one more name, and writing there",
        |site| {
            fs::hard_link(site.protected("config"), site.open("config-link"))?;
            write(site.open("config-link"))
        },
    ),
    change("writes.chmod", "changing its mode", |site| {
        fs::set_permissions(
            site.protected("attributes"),
            fs::Permissions::from_mode(0o600),
        )
    }),
    change("writes.chown", "changing its owner", |site| {
        Ok(chown(
            &site.protected("attributes"),
            Some(Uid::from_raw(1)),
            None,
        )?)
    }),
    change("writes.times", "changing its times", |site| {
        let file = File::open(site.protected("attributes"))?;
        file.set_modified(SystemTime::UNIX_EPOCH)
    }),
    change("writes.xattr", "setting an extended attribute", |site| {
        let path = site.protected("attributes");
        let flags = XattrFlags::empty();
        Ok(rustix::fs::setxattr(
            &path,
            "trusted.opensafe",
            b"x",
            flags,
        )?)
    }),
    Attempt::event(
        "writes.received",
        "into a file that came open from outside",
        &["file"],
        |site| File::from(received(site, "file")?).write_all(b"x"),
    ),
    change("writes.shell", "sh: a line appended", |site| {
        let script = format!("echo x >> '{}'", site.protected("config").display());
        command("sh", &["-c", &script])
    })
    .or_ends(&["status 1", "status 2"]),
];

pub(super) fn write(path: impl AsRef<Path>) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(b"x")
}
