//! Other ways to a file than by its name.

use std::{
    ffi::{CString, OsString},
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    mem::size_of,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _, net::UnixListener},
    },
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2},
    libc,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{
        fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags},
        prctl::set_dumpable,
        socket::{
            AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect,
            recvmsg, socket,
        },
        stat::{Mode, SFlag, makedev, mknod, stat},
    },
    unistd::{Gid, Uid, chdir, chroot, fchdir, linkat, pivot_root, setgid, setgroups, setuid},
};
use rustix::{
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
        fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
    },
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use super::{Verb, argument, files::own_mounts, number};

/// Verbs that lead to files; most change the process, and are followed by one that reads.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("chdir", |a| Ok(chdir(Path::new(argument(a, 0)?))?)),
    ("chdir-by-descriptor", |a| {
        Ok(fchdir(place(argument(a, 0)?)?.as_fd())?)
    }),
    // A directory, and a name in it.
    ("read-at", |a| {
        let directory = place(argument(a, 0)?)?;
        read_at(directory.as_fd(), Path::new(argument(a, 1)?))
    }),
    ("read-in-root", |a| {
        let directory = place(argument(a, 0)?)?;
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT);
        read_all(openat2(&directory, Path::new(argument(a, 1)?), how)?)
    }),
    // What is linked, and the new name.
    ("link-by-descriptor", |a| {
        let (file, new) = (place(argument(a, 0)?)?, Path::new(argument(a, 1)?));
        Ok(linkat(&file, "", AT_FDCWD, new, AtFlags::AT_EMPTY_PATH)?)
    }),
    ("link-by-number", |a| {
        let (file, new) = (place(argument(a, 0)?)?, Path::new(argument(a, 1)?));
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(
            AT_FDCWD,
            name.as_str(),
            AT_FDCWD,
            new,
            AtFlags::AT_SYMLINK_FOLLOW,
        )?)
    }),
    // A file without a name in the directory, which then gets this one.
    ("name-the-nameless", |a| {
        let (directory, new) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = nix::fcntl::open(directory, flags, Mode::S_IRUSR)?;
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = AtFlags::AT_SYMLINK_FOLLOW;
        Ok(linkat(AT_FDCWD, name.as_str(), AT_FDCWD, new, flags)?)
    }),
    // A copy of the mounts at a directory, nowhere attached, and a name in there.
    ("read-detached", |a| {
        let tree = detached(argument(a, 0)?)?;
        read_at(tree.as_fd(), Path::new(argument(a, 1)?))
    }),
    // The same, attached at the second directory.
    ("attach-detached", |a| {
        own_mounts()?;
        let tree = detached(argument(a, 0)?)?;
        let to = Path::new(argument(a, 1)?);
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&tree, "", rustix::fs::CWD, to, flags)?)
    }),
    // As the guest's user from here on.
    ("become-user", |_| {
        setgroups(&[])?;
        setgid(Gid::from_raw(1000))?;
        Ok(setuid(Uid::from_raw(1000))?)
    }),
    // Root of a user namespace of its own, with its own mounts.
    ("become-root-inside", |_| {
        let (user, group) = (Uid::current(), Gid::current());
        // Else what it has in /proc is root's, as it was root.
        set_dumpable(true)?;
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))
    }),
    // A bind mount in the mount namespace that there is.
    ("bind", |a| {
        let (from, to) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        Ok(mount(Some(from), to, None::<&str>, flags, None::<&str>)?)
    }),
    // A mount in the mount namespace that there is, made nowhere and then moved.
    ("attach-shared", |a| {
        let tree = detached(argument(a, 0)?)?;
        let to = Path::new(argument(a, 1)?);
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&tree, "", rustix::fs::CWD, to, flags)?)
    }),
    ("unmount", |a| {
        Ok(nix::mount::umount(Path::new(argument(a, 0)?))?)
    }),
    ("tmpfs", |a| {
        let point = Path::new(argument(a, 0)?);
        let (kind, flags) = (Some("tmpfs"), MsFlags::empty());
        Ok(mount(kind, point, kind, flags, None::<&str>)?)
    }),
    // The directory becomes the root.
    ("pivot", |a| {
        let new = Path::new(argument(a, 0)?);
        own_mounts()?;
        mount(Some(new), new, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        chdir(new)?;
        pivot_root(".", ".")?;
        Ok(chdir("/")?)
    }),
    ("chroot", |a| {
        chroot(Path::new(argument(a, 0)?))?;
        Ok(chdir("/")?)
    }),
    // An overlay over the first directory, made in the second.
    ("overlay", |a| {
        let scratch = Path::new(argument(a, 1)?);
        for name in ["upper", "work", "merged"] {
            fs::create_dir(scratch.join(name))?;
        }
        let data = format!(
            "lowerdir={},upperdir={},workdir={}",
            Path::new(argument(a, 0)?).display(),
            scratch.join("upper").display(),
            scratch.join("work").display()
        );
        let (kind, flags) = (Some("overlay"), MsFlags::empty());
        let point = scratch.join("merged");
        Ok(mount(kind, &point, kind, flags, Some(data.as_str()))?)
    }),
    // An overlay whose layers are in the second directory, and whose work directory is below the first: `work` in there
    // is emptied.
    ("empty-by-overlay", |a| {
        let (victim, scratch) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        own_mounts()?;
        let data = format!(
            "lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={}",
            victim.display(),
            scratch = scratch.display(),
        );
        let (kind, flags) = (Some("overlay"), MsFlags::empty());
        let _ = mount(
            kind,
            &scratch.join("merged"),
            kind,
            flags,
            Some(data.as_str()),
        );
        emptied(victim)
    }),
    ("empty-by-detached-overlay", |a| {
        let (victim, scratch) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        let text = |path: &Path| path.display().to_string();
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&context, "lowerdir", text(&scratch.join("lower")).as_str())?;
        fsconfig_set_string(&context, "upperdir", text(&scratch.join("upper")).as_str())?;
        fsconfig_set_string(&context, "workdir", text(victim).as_str())?;
        let _ = fsconfig_create(&context);
        emptied(victim)
    }),
    // An overlay over the first directory, by fsopen(2), nowhere attached; a name in it is read.
    ("read-in-detached-overlay", |a| {
        own_mounts()?;
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        // An overlay without an upper layer takes two.
        let scratch = Path::new(argument(a, 1)?);
        let lower = format!(
            "{}:{}",
            Path::new(argument(a, 0)?).display(),
            scratch.display()
        );
        fsconfig_set_string(&context, "lowerdir", lower.as_str())?;
        fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let merged = fsmount(&context, flags, MountAttrFlags::empty())?;
        read_at(merged.as_fd(), Path::new(argument(a, 2)?))
    }),
    // The device that a file is on, mounted once more.
    ("mount-device-of", |a| {
        let (file, point) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        own_mounts()?;
        let device = stat(file)?.st_dev;
        let (major, minor) = (libc::major(device), libc::minor(device));
        let name = fs::read_link(format!("/sys/dev/block/{major}:{minor}"))?;
        let name = name.file_name().ok_or(io::ErrorKind::NotFound)?;
        let device = Path::new("/dev").join(name);
        let flags = MsFlags::empty();
        Ok(mount(
            Some(&device),
            point,
            Some("ext4"),
            flags,
            None::<&str>,
        )?)
    }),
    // A node for the device that a file is on.
    ("make-device-of", |a| {
        let (file, node) = (Path::new(argument(a, 0)?), Path::new(argument(a, 1)?));
        let device = stat(file)?.st_dev;
        let device = makedev(libc::major(device).into(), libc::minor(device).into());
        Ok(mknod(node, SFlag::S_IFBLK, Mode::S_IRUSR, device)?)
    }),
    ("read-by-handle", |a| {
        read_all(by_handle(argument(a, 0)?, libc::O_RDONLY)?)
    }),
    ("write-by-handle", |a| {
        File::from(by_handle(argument(a, 0)?, libc::O_WRONLY)?).write_all(b"x")
    }),
    // By the descriptor that a watcher is given when somebody else opens the file.
    ("read-watched", |a| {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_NONBLOCK;
        let group = Fanotify::init(flags, EventFFlags::O_RDONLY)?;
        let path = Path::new(argument(a, 0)?);
        let flags = MarkFlags::FAN_MARK_ADD;
        group.mark(flags, MaskFlags::FAN_OPEN, AT_FDCWD, Some(path))?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            match group.read_events() {
                Ok(events) => {
                    for event in events {
                        if let Some(file) = event.fd() {
                            return read_all(file.try_clone_to_owned()?);
                        }
                    }
                }
                Err(nix::errno::Errno::EAGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::Error::other("nobody opened it"))
    }),
    // To be asked whenever somebody opens the file. Nobody is: the group is gone at once.
    ("decide-on-opens", |a| {
        let classes = [
            InitFlags::FAN_CLASS_CONTENT,
            InitFlags::FAN_CLASS_PRE_CONTENT,
        ];
        let class = classes[usize::from(argument(a, 1)? == "early")];
        let group = Fanotify::init(class | InitFlags::FAN_NONBLOCK, EventFFlags::O_RDONLY)?;
        let (path, flags) = (Path::new(argument(a, 0)?), MarkFlags::FAN_MARK_ADD);
        Ok(group.mark(flags, MaskFlags::FAN_OPEN_PERM, AT_FDCWD, Some(path))?)
    }),
    ("freeze", |a| freeze(Path::new(argument(a, 0)?))),
    // A message queue by its name, with these flags.
    ("open-queue", |a| {
        open_queue(argument(a, 0)?, number(argument(a, 1)?)?).map(drop)
    }),
    // What is open already.
    ("read-open", |a| {
        File::from(open_already(argument(a, 0)?)?).read_exact(&mut [0])
    }),
    ("write-open", |a| {
        File::from(open_already(argument(a, 0)?)?).write_all(b"x")
    }),
    // What a process outside sends by this socket, asked for by a word.
    ("read-received", |a| {
        File::from(received(argument(a, 0)?, argument(a, 1)?)?).read_exact(&mut [0])
    }),
    ("write-received", |a| {
        File::from(received(argument(a, 0)?, argument(a, 1)?)?).write_all(b"x")
    }),
    // What a process outside has open: its id, and the number there.
    ("read-stolen", |a| {
        let process = i32::try_from(number(argument(a, 0)?)?).ok();
        let process = process
            .and_then(Pid::from_raw)
            .ok_or(io::ErrorKind::NotFound)?;
        let process = pidfd_open(process, PidfdFlags::empty())?;
        let there = i32::try_from(number(argument(a, 1)?)?).map_err(io::Error::other)?;
        let stolen = pidfd_getfd(&process, there, PidfdGetfdFlags::empty())?;
        File::from(stolen).read_exact(&mut [0])
    }),
    ("reopen-for-writing", |a| {
        let file = File::open(argument(a, 0)?)?;
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", file.as_raw_fd()))?
            .write_all(b"x")
    }),
    ("bind-socket", |a| {
        UnixListener::bind(argument(a, 0)?).map(drop)
    }),
    // Has the kernel write into it whenever a process ends.
    ("account", |a| {
        nix::unistd::acct::enable(Path::new(argument(a, 0)?))?;
        Ok(nix::unistd::acct::disable()?)
    }),
    // Has the kernel write the memory of a process that crashes there.
    ("dump-core", |a| {
        let directory = Path::new(argument(a, 0)?);
        let before = fs::read_dir(directory)?.count();
        std::process::Command::new("sh")
            .args(["-c", "ulimit -c unlimited; kill -SEGV $$"])
            .current_dir(directory)
            .status()?;
        if fs::read_dir(directory)?.count() > before {
            Ok(())
        } else {
            Err(nix::errno::Errno::EACCES.into())
        }
    }),
    // Succeeds if the program does.
    ("command", |a| {
        use std::os::unix::process::ExitStatusExt as _;
        let (program, arguments) = a.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let status = std::process::Command::new(program)
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(io::stderr())
            .status()?;
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(io::Error::other(format!("status {code}"))),
            (_, signal) => Err(io::Error::other(format!("signal {signal:?}"))),
        }
    }),
];

/// Whether an overlay's `work` has come to be, or to be empty, below a directory; else what was asked was refused.
fn emptied(victim: &Path) -> io::Result<()> {
    match fs::read_dir(victim.join("work"))?.next() {
        None => Ok(()),
        Some(_) => Err(Errno::EACCES.into()),
    }
}

fn place(path: &OsString) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
}

fn read_at(directory: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    read_all(openat(directory, name, flags, Mode::empty())?)
}

/// At least a byte has to come.
fn read_all(file: OwnedFd) -> io::Result<()> {
    File::from(file).read_exact(&mut [0])
}

fn detached(directory: &OsString) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(open_tree(rustix::fs::CWD, Path::new(directory), flags)?)
}

/// MAX_HANDLE_SZ (include/linux/exportfs.h).
const HANDLE_BYTES: usize = 128;

#[repr(C)]
struct Handle {
    length: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES],
}

#[allow(unsafe_code, reason = "file handles have no safe wrapper")]
fn by_handle(path: &OsString, flags: i32) -> io::Result<OwnedFd> {
    let name = CString::new(path.as_bytes())?;
    let root = File::open("/")?;
    let mut handle = Handle {
        length: u32::try_from(HANDLE_BYTES).map_err(io::Error::other)?,
        kind: 0,
        bytes: [0; HANDLE_BYTES],
    };
    const { assert!(size_of::<Handle>() == 8 + HANDLE_BYTES) };
    let mut mount_id = 0;
    let pointer = (&raw mut handle).cast::<libc::file_handle>();
    // SAFETY: `Handle` is a `file_handle` with room for as many bytes as its length says; the name ends with a NUL;
    // nothing is kept.
    let result = unsafe {
        libc::name_to_handle_at(libc::AT_FDCWD, name.as_ptr(), pointer, &raw mut mount_id, 0)
    };
    nix::errno::Errno::result(result)?;
    // SAFETY: as above; the kernel only reads the handle.
    let result = unsafe { libc::open_by_handle_at(root.as_raw_fd(), pointer, flags) };
    let descriptor = nix::errno::Errno::result(result)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[allow(unsafe_code, reason = "whoever started us says by number what is open")]
fn open_already(number: &OsString) -> io::Result<OwnedFd> {
    let number = i32::try_from(super::number(number)?).map_err(io::Error::other)?;
    // SAFETY: it is only looked at while it is copied, and a number that is none is an error.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

/// A descriptor that a process outside sends over this socket.
#[allow(unsafe_code, reason = "descriptors are received as numbers")]
pub(super) fn received(path: &OsString, word: &OsString) -> io::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    connect(socket.as_raw_fd(), &UnixAddr::new(Path::new(path))?)?;
    nix::unistd::write(&socket, word.as_bytes())?;
    let mut bytes = [0; 1];
    let mut vectors = [io::IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut vectors, Some(&mut space), flags)?;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = part
            && let Some(descriptor) = descriptors.first()
        {
            // SAFETY: the kernel has just made it for us.
            return Ok(unsafe { OwnedFd::from_raw_fd(*descriptor) });
        }
    }
    // Where a module of the kernel's refuses a descriptor, the message arrives without it (net/core/scm.c).
    Err(nix::errno::Errno::EACCES.into())
}

/// Freezes a file system by a directory of it, and thaws it. Only one that is mounted read-only, where nobody waits.
#[allow(unsafe_code, reason = "ioctl(2) has no safe wrapper for these")]
fn freeze(directory: &Path) -> io::Result<()> {
    // include/uapi/linux/fs.h
    const FIFREEZE: libc::c_ulong = 0xc004_5877;
    const FITHAW: libc::c_ulong = 0xc004_5878;
    let directory = File::open(directory)?;
    let flags = nix::sys::statvfs::fstatvfs(&directory)?.flags();
    if !flags.contains(nix::sys::statvfs::FsFlags::ST_RDONLY) {
        return Err(io::Error::other("it can be written to"));
    }
    for command in [FIFREEZE, FITHAW] {
        // SAFETY: these commands take no argument.
        nix::errno::Errno::result(unsafe { libc::ioctl(directory.as_raw_fd(), command, 0) })?;
    }
    Ok(())
}

/// mq_open(3) without its library's look at the flags.
#[allow(unsafe_code, reason = "mq_open(2) has no safe wrapper")]
fn open_queue(name: &OsString, flags: u32) -> io::Result<OwnedFd> {
    let name = CString::new(name.as_bytes())?;
    // SAFETY: the name ends with a NUL; without O_CREAT, the other arguments are not looked at.
    let result = unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, 0, 0) };
    let descriptor = nix::errno::Errno::result(result)?;
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
