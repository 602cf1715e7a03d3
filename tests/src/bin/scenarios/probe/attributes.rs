//! Attempts to change what a file says about itself, without opening it for writing.

use std::{
    ffi::{CString, OsString},
    fs::{File, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::{
            ffi::OsStrExt as _,
            fs::{OpenOptionsExt as _, PermissionsExt as _},
        },
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::AT_FDCWD,
    libc,
    sys::{
        stat::{UtimensatFlags, futimens, utimensat},
        time::TimeSpec,
    },
    unistd::{Gid, Uid, chown, fchown},
};
use rustix::fs::{IFlags, XattrFlags, ioctl_getflags, ioctl_setflags, removexattr, setxattr};

use super::{Verb, argument};

/// VFS_CAP_REVISION_2 with CAP_NET_RAW permitted and effective (include/uapi/linux/capability.h).
const CAPABILITY: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Verbs on attributes; the argument is the path.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("chmod-by-descriptor", |a| {
        File::open(argument(a, 0)?)?.set_permissions(Permissions::from_mode(0o604))
    }),
    // By the number of a descriptor that nothing was asked for.
    ("chmod-by-number", |a| {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(argument(a, 0)?)?;
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::set_permissions(name, Permissions::from_mode(0o604))
    }),
    ("set-user-id", |a| {
        std::fs::set_permissions(argument(a, 0)?, Permissions::from_mode(0o4755))
    }),
    ("chown", |a| {
        let (user, group) = (Uid::from_raw(1000), Gid::from_raw(1000));
        Ok(chown(path(a)?, Some(user), Some(group))?)
    }),
    ("chown-by-descriptor", |a| {
        let (user, group) = (Uid::from_raw(1000), Gid::from_raw(1000));
        Ok(fchown(File::open(path(a)?)?, Some(user), Some(group))?)
    }),
    ("times", |a| {
        let then = TimeSpec::new(1, 0);
        let flags = UtimensatFlags::FollowSymlink;
        Ok(utimensat(AT_FDCWD, path(a)?, &then, &then, flags)?)
    }),
    ("times-by-descriptor", |a| {
        let then = TimeSpec::new(1, 0);
        Ok(futimens(File::open(path(a)?)?, &then, &then)?)
    }),
    ("xattr", |a| {
        Ok(setxattr(path(a)?, "user.mark", b"x", XattrFlags::empty())?)
    }),
    // One that is there.
    ("remove-xattr", |a| Ok(removexattr(path(a)?, "user.old")?)),
    ("capability", |a| {
        let name = "security.capability";
        Ok(setxattr(path(a)?, name, &CAPABILITY, XattrFlags::empty())?)
    }),
    ("flags", |a| {
        // Beside those that are set: to take a file's extents away is for ext4 to refuse, by where on the disk it lies
        // (`ext4_ind_migrate` of fs/ext4/migrate.c).
        let file = File::open(path(a)?)?;
        let flags = ioctl_getflags(&file)?;
        Ok(ioctl_setflags(&file, flags | IFlags::NODUMP)?)
    }),
    ("flags-by-name", |a| flags_by_name(path(a)?)),
];

fn path(arguments: &[OsString]) -> io::Result<&Path> {
    argument(arguments, 0).map(Path::new)
}

/// file_setattr(2), Linux 6.17: sets FS_XFLAG_NODUMP beside what is set.
#[allow(
    unsafe_code,
    reason = "file_getattr(2) and file_setattr(2) have no wrapper"
)]
fn flags_by_name(path: &Path) -> io::Result<()> {
    // Their numbers are the same on every architecture.
    const FILE_GETATTR: libc::c_long = 468;
    const FILE_SETATTR: libc::c_long = 469;
    // include/uapi/linux/fs.h
    const NODUMP: u64 = 0x80;
    let name = CString::new(path.as_os_str().as_bytes())?;
    // struct file_attr: the flags, and 16 bytes of which nothing is changed.
    let mut attributes = [0_u64; 3];
    let call = |number, attributes: &mut [u64; 3]| {
        // SAFETY: the name ends with a NUL; the kernel reads or writes as many bytes of `attributes` as it is told.
        let result = unsafe {
            let (at, length) = (attributes.as_mut_ptr(), size_of_val(attributes));
            libc::syscall(number, libc::AT_FDCWD, name.as_ptr(), at, length, 0)
        };
        Errno::result(result)
    };
    call(FILE_GETATTR, &mut attributes)?;
    attributes[0] |= NODUMP;
    call(FILE_SETATTR, &mut attributes)?;
    Ok(())
}
