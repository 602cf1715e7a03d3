//! Attempts by io_uring, which makes system calls without making them.

use std::{
    ffi::CString,
    io,
    mem::zeroed,
    net::SocketAddr,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
};

use io_uring::{
    IoUring, opcode,
    squeue::{Entry, Flags},
    types::{DestinationSlot, Fd, Fixed, OpenHow},
};
use nix::{
    libc,
    sys::prctl::set_keepcaps,
    sys::socket::{AddressFamily, SockFlag, SockType, SockaddrLike as _, SockaddrStorage, socket},
};

use super::{Verb, argument};

/// Verbs by io_uring.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("ring-read", |a| {
        let path = CString::new(argument(a, 0)?.as_bytes())?;
        let entry = opcode::OpenAt::new(Fd(libc::AT_FDCWD), path.as_ptr()).flags(libc::O_RDONLY);
        let descriptor = submit(&entry.build())?;
        close(descriptor);
        Ok(())
    }),
    // With credentials that the process had before: the same rights, in another object, so that the kernel acts with
    // others than the task's own. The second has a thread of the kernel's do it.
    ("ring-read-as-before", |a| read_as_before(a, Flags::empty())),
    ("ring-read-as-before-by-thread", |a| {
        read_as_before(a, Flags::ASYNC)
    }),
    ("ring-tcp", |a| {
        let address: SocketAddr = argument(a, 0)?
            .to_string_lossy()
            .parse()
            .map_err(io::Error::other)?;
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        let address = SockaddrStorage::from(address);
        let entry = opcode::Connect::new(Fd(socket.as_raw_fd()), address.as_ptr(), address.len());
        submit(&entry.build()).map(drop)
    }),
    ("ring-udp-send", |a| {
        let address: SocketAddr = argument(a, 0)?
            .to_string_lossy()
            .parse()
            .map_err(io::Error::other)?;
        let socket = std::net::UdpSocket::bind(match address {
            SocketAddr::V4(_) => "0.0.0.0:0",
            SocketAddr::V6(_) => "[::]:0",
        })?;
        let address = SockaddrStorage::from(address);
        let mut vector = libc::iovec {
            iov_base: c"x".as_ptr().cast_mut().cast(),
            iov_len: 1,
        };
        let mut message = message();
        message.msg_name = address.as_ptr().cast_mut().cast();
        message.msg_namelen = address.len();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        let entry = opcode::SendMsg::new(Fd(socket.as_raw_fd()), &raw const message);
        submit(&entry.build()).map(drop)
    }),
    ("ring-open2-and-read", |a| {
        let path = CString::new(argument(a, 0)?.as_bytes())?;
        let how = OpenHow::new().flags(libc::O_RDONLY as u64);
        let entry = opcode::OpenAt2::new(Fd(libc::AT_FDCWD), path.as_ptr(), &raw const how);
        let mut ring = IoUring::new(1)?;
        let descriptor = submit_to(&mut ring, &entry.build())?;
        let mut byte = [0];
        let read = opcode::Read::new(Fd(descriptor), byte.as_mut_ptr(), 1).build();
        let count = submit_to(&mut ring, &read)?;
        close(descriptor);
        if count == 1 {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }),
    // Into the ring's own table, where it has no number.
    ("ring-open-fixed-and-read", |a| {
        let path = CString::new(argument(a, 0)?.as_bytes())?;
        let mut ring = IoUring::new(1)?;
        ring.submitter().register_files_sparse(1)?;
        let slot =
            DestinationSlot::try_from_slot_target(0).map_err(|_| io::ErrorKind::InvalidInput)?;
        let entry = opcode::OpenAt::new(Fd(libc::AT_FDCWD), path.as_ptr())
            .flags(libc::O_RDONLY)
            .file_index(Some(slot));
        submit_to(&mut ring, &entry.build())?;
        let mut byte = [0];
        let read = opcode::Read::new(Fixed(0), byte.as_mut_ptr(), 1).build();
        let count = submit_to(&mut ring, &read)?;
        if count == 1 {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }),
    ("ring-rename", |a| {
        let from = CString::new(argument(a, 0)?.as_bytes())?;
        let to = CString::new(argument(a, 1)?.as_bytes())?;
        let here = Fd(libc::AT_FDCWD);
        submit(&opcode::RenameAt::new(here, from.as_ptr(), here, to.as_ptr()).build()).map(drop)
    }),
    ("ring-mkdir", |a| {
        let path = CString::new(argument(a, 0)?.as_bytes())?;
        submit(
            &opcode::MkDirAt::new(Fd(libc::AT_FDCWD), path.as_ptr())
                .mode(0o755)
                .build(),
        )
        .map(drop)
    }),
    ("ring-xattr", |a| {
        let path = CString::new(argument(a, 0)?.as_bytes())?;
        let (name, value) = (c"user.ring", b"x");
        let entry = opcode::SetXattr::new(name.as_ptr(), value.as_ptr().cast(), path.as_ptr(), 1);
        submit(&entry.build()).map(drop)
    }),
    ("ring-udp-send-zero-copy", |a| {
        let address: SocketAddr = argument(a, 0)?
            .to_string_lossy()
            .parse()
            .map_err(io::Error::other)?;
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        let address = SockaddrStorage::from(address);
        let length = u16::try_from(address.len()).map_err(io::Error::other)?;
        let entry = opcode::SendZc::new(Fd(socket.as_raw_fd()), c"x".as_ptr().cast(), 1)
            .dest_addr(address.as_ptr())
            .dest_addr_len(length.into());
        submit(&entry.build()).map(drop)
    }),
    ("ring-unlink", |a| {
        let path = CString::new(argument(a, 0)?.as_bytes())?;
        submit(&opcode::UnlinkAt::new(Fd(libc::AT_FDCWD), path.as_ptr()).build()).map(drop)
    }),
];

fn read_as_before(arguments: &[std::ffi::OsString], flags: Flags) -> io::Result<()> {
    let path = CString::new(argument(arguments, 0)?.as_bytes())?;
    let mut ring = IoUring::new(1)?;
    let before = ring.submitter().register_personality()?;
    set_keepcaps(true)?;
    let entry = opcode::OpenAt::new(Fd(libc::AT_FDCWD), path.as_ptr()).flags(libc::O_RDONLY);
    let entry = entry.build().personality(before).flags(flags);
    close(submit_to(&mut ring, &entry)?);
    Ok(())
}

#[allow(unsafe_code, reason = "the C structure has private padding")]
fn message() -> libc::msghdr {
    // SAFETY: a structure of integers and pointers, for which zeros are a value.
    unsafe { zeroed() }
}

fn submit(entry: &Entry) -> io::Result<i32> {
    submit_to(&mut IoUring::new(1)?, entry)
}

#[allow(unsafe_code, reason = "only the caller knows what an entry points to")]
fn submit_to(ring: &mut IoUring, entry: &Entry) -> io::Result<i32> {
    // SAFETY: what the entries above point to lives in their functions, which wait here for the end of the operation.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let result = ring
        .completion()
        .next()
        .map_or(-libc::EIO, |done| done.result());
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(result)
    }
}

#[allow(unsafe_code, reason = "the kernel returned a number")]
fn close(descriptor: i32) {
    // SAFETY: the kernel has just made it for us, and nobody else knows it.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
}
