//! Attempts on files.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink},
    },
    path::Path,
};

use nix::{
    fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2},
    libc,
    mount::{MsFlags, mount},
    pty::openpty,
    sched::{CloneFlags, unshare},
    sys::stat::Mode,
    unistd::{chdir, mkfifo, truncate},
};

use super::{Verb, argument, number};

/// Verbs on files; the first argument is the path.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("read", |a| read(argument(a, 0)?)),
    ("write", |a| {
        OpenOptions::new()
            .write(true)
            .open(argument(a, 0)?)?
            .write_all(b"x")
    }),
    ("read-write", |a| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(argument(a, 0)?)
            .map(drop)
    }),
    ("append", |a| {
        OpenOptions::new()
            .append(true)
            .open(argument(a, 0)?)?
            .write_all(b"x")
    }),
    // Makes a file that must not exist.
    ("create", |a| {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(argument(a, 0)?)
            .map(drop)
    }),
    // The same, until it works, but not for ever.
    ("create-patiently", |a| {
        let path = argument(a, 0)?;
        let make = || {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(path)
                .map(drop)
        };
        let mut result = make();
        for _ in 0..50 {
            if result.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            result = make();
        }
        result
    }),
    // Opens for writing, and makes it if it does not exist.
    ("open-or-create", |a| {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(argument(a, 0)?)
            .map(drop)
    }),
    ("open-and-empty", |a| {
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(argument(a, 0)?)
            .map(drop)
    }),
    // Reads by O_RDONLY | O_TRUNC, which empties all the same.
    ("read-and-empty", |a| {
        let flags = OFlag::O_RDONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
        Ok(nix::fcntl::open(Path::new(argument(a, 0)?), flags, Mode::empty()).map(drop)?)
    }),
    ("truncate", |a| Ok(truncate(Path::new(argument(a, 0)?), 0)?)),
    ("list", |a| fs::read_dir(argument(a, 0)?).map(drop)),
    ("unlink", |a| fs::remove_file(argument(a, 0)?)),
    ("mkdir", |a| fs::create_dir(argument(a, 0)?)),
    ("rmdir", |a| fs::remove_dir(argument(a, 0)?)),
    ("fifo", |a| {
        Ok(mkfifo(
            Path::new(argument(a, 0)?),
            Mode::S_IRUSR | Mode::S_IWUSR,
        )?)
    }),
    ("rename", |a| fs::rename(argument(a, 0)?, argument(a, 1)?)),
    ("exchange", |a| {
        let (one, other) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        let flags = RenameFlags::RENAME_EXCHANGE;
        Ok(renameat2(AT_FDCWD, one, AT_FDCWD, other, flags)?)
    }),
    ("link", |a| fs::hard_link(argument(a, 0)?, argument(a, 1)?)),
    // What it leads to first, then its name.
    ("symlink", |a| symlink(argument(a, 0)?, argument(a, 1)?)),
    ("stat", |a| fs::metadata(argument(a, 0)?).map(drop)),
    ("open-path", |a| {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(argument(a, 0)?)
            .map(drop)
    }),
    // Opens by O_PATH, and that again by its number.
    ("reopen-path", |a| {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(argument(a, 0)?)?;
        read(&OsString::from(format!(
            "/proc/self/fd/{}",
            file.as_raw_fd()
        )))
    }),
    // Opens, deletes, and opens what is deleted by its number.
    ("reopen-deleted", |a| {
        let file = File::open(argument(a, 0)?)?;
        fs::remove_file(argument(a, 0)?)?;
        read(&OsString::from(format!(
            "/proc/self/fd/{}",
            file.as_raw_fd()
        )))
    }),
    // Goes to the first, then by steps to each of the rest but the last, which it reads, all relative.
    ("read-below", |a| {
        let (last, directories) = a.split_last().ok_or_else(|| io::Error::other("no path"))?;
        for directory in directories {
            chdir(Path::new(directory))?;
        }
        let result = read(last);
        chdir("/")?;
        result
    }),
    // Reads a path so often; the last result counts.
    ("read-often", |a| {
        let times: u32 = number(argument(a, 1)?)?;
        let path = Path::new(argument(a, 0)?);
        let mut result = Ok(());
        for _ in 0..times {
            result = File::open(path).map(drop);
        }
        result
    }),
    ("pty", |_| Ok(openpty(None, None).map(drop)?)),
    ("pipe", |_| {
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(b"x")?;
        let again = format!("/proc/self/fd/{}", reader.as_raw_fd());
        File::open(again)?.read_exact(&mut [0])
    }),
    // A new tmpfs in a new mount namespace, a file in it written and read. The process stays there.
    ("private-tmpfs", |a| {
        let point = argument(a, 0)?;
        own_mounts()?;
        mount(
            Some("tmpfs"),
            Path::new(point),
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )?;
        Ok(())
    }),
    // A bind mount of the first directory on the second, in a new mount namespace. The process stays there.
    ("private-bind", |a| {
        own_mounts()?;
        let (from, to) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        Ok(mount(
            Some(from),
            to,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )?)
    }),
    // An overlay of the run's own over the first directory, with its upper layer in the third: a name in it (the second)
    // is changed so that the file is copied up, and the copy is read. The process stays there.
    ("copy-up-and-read", |a| {
        let (lower, name) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        let scratch = Path::new(argument(a, 2)?);
        let place = |name: &str| scratch.join(name);
        for name in ["upper", "work", "merged"] {
            fs::create_dir(place(name))?;
        }
        own_mounts()?;
        let data = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            place("upper").display(),
            place("work").display()
        );
        let (kind, point) = (Some("overlay"), place("merged"));
        mount(kind, &point, kind, MsFlags::empty(), Some(data.as_str()))?;
        fs::set_permissions(point.join(name), fs::Permissions::from_mode(0o640))?;
        read(&place("upper").join(name).into())
    }),
    ("chmod", |a| {
        fs::set_permissions(argument(a, 0)?, fs::Permissions::from_mode(0o640))
    }),
    ("sleep", |a| {
        let milliseconds = number(argument(a, 0)?)?;
        std::thread::sleep(std::time::Duration::from_millis(milliseconds.into()));
        Ok(())
    }),
];

fn read(path: &OsString) -> io::Result<()> {
    // A directory is opened, too, and then cannot be read.
    // /dev/kmsg gives a message whole or not at all.
    match File::open(path)?.read(&mut [0; 8192]) {
        Err(error) if error.raw_os_error() != Some(libc::EISDIR) => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn own_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}
