//! What root may do by right alone; each is done in such a way that nobody notices.

use std::{
    ffi::{CString, OsString},
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
};

use nix::{
    errno::Errno,
    libc,
    sched::{CloneFlags, unshare},
    unistd::{gethostname, sethostname, setsid},
};

use super::{Verb, argument};

/// Verbs for root.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("set-clock-by-nothing", |_| adjust_clock()),
    // Ctrl-Alt-Del sends a signal to init.
    ("set-restart", |_| set_restart()),
    ("stop-accounting", |_| Ok(nix::unistd::acct::disable()?)),
    ("set-host-name", |_| Ok(sethostname(gethostname()?)?)),
    ("set-host-name-as-32-bit", |_| set_host_name_as_32_bit()),
    // The terminal of a session that has none.
    ("hang-up", |_| {
        setsid()?;
        hang_up()
    }),
    // As it is, where mounts are.
    ("set-mount-attributes", |a| {
        set_mount_attributes(a, libc::SYS_mount_setattr)
    }),
    ("open-with-attributes", |a| {
        // arch/x86/entry/syscalls/syscall_64.tbl, and as elsewhere since
        const OPEN_TREE_ATTR: libc::c_long = 467;
        set_mount_attributes(a, OPEN_TREE_ATTR)
    }),
    ("set-up-loopback", |_| set_up_loopback(&routes()?)),
    ("set-up-loopback-from-own-network", |_| {
        let outside = routes()?;
        unshare(CloneFlags::CLONE_NEWNET)?;
        set_up_loopback(&outside)
    }),
    ("set-device-flags", |_| set_device_flags(&datagrams()?)),
    ("set-device-flags-from-own-network", |_| {
        let outside = datagrams()?;
        unshare(CloneFlags::CLONE_NEWNET)?;
        set_device_flags(&outside)
    }),
];

fn done(result: libc::c_long) -> io::Result<()> {
    Ok(Errno::result(result).map(drop)?)
}

#[allow(unsafe_code, reason = "reboot(2) has no wrapper for this")]
fn set_restart() -> io::Result<()> {
    // SAFETY: a number.
    done(unsafe { libc::reboot(libc::RB_DISABLE_CAD) }.into())
}

#[allow(unsafe_code, reason = "vhangup(2) has no wrapper")]
fn hang_up() -> io::Result<()> {
    // SAFETY: no arguments.
    done(unsafe { libc::vhangup() }.into())
}

#[allow(unsafe_code, reason = "adjtimex(2) has no safe wrapper")]
fn adjust_clock() -> io::Result<()> {
    // SAFETY: all zeroes are a value of it.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    clock.modes = libc::ADJ_SETOFFSET;
    // SAFETY: a whole structure, read and written by the kernel.
    done(unsafe { libc::adjtimex(&raw mut clock) }.into())
}

/// sethostname(2) as a 32-bit program calls it, of no name at all: who may is asked first.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "there is no wrapper for it")]
fn set_host_name_as_32_bit() -> io::Result<()> {
    let result: i32;
    // SAFETY: arch/x86/entry/entry_64_compat.S: the number is in eax, arguments in ebx and ecx, all else stays as it is. A
    // length of -1 is refused before anything is read.
    unsafe {
        std::arch::asm!(
            "push rbx", "xor ebx, ebx", "int 0x80", "pop rbx",
            inlateout("eax") 74 => result, in("ecx") -1,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    match -result {
        libc::EINVAL => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn set_host_name_as_32_bit() -> io::Result<()> {
    Err(Errno::ENOSYS.into())
}

/// mount_setattr(2) of nothing, or another call with its arguments.
#[allow(unsafe_code, reason = "there are no wrappers")]
fn set_mount_attributes(arguments: &[OsString], number: libc::c_long) -> io::Result<()> {
    let path = CString::new(argument(arguments, 0)?.as_bytes())?;
    // include/uapi/linux/mount.h, `struct mount_attr`
    let attributes: [u64; 4] = [0, 0, 0, 0];
    // SAFETY: a text with its NUL, and a structure of the size that is said.
    done(unsafe {
        libc::syscall(
            number,
            libc::AT_FDCWD,
            path.as_ptr(),
            0,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    })
}

fn routes() -> io::Result<OwnedFd> {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)
}

fn datagrams() -> io::Result<OwnedFd> {
    socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

#[allow(
    unsafe_code,
    reason = "netlink sockets by protocol have no safe wrapper"
)]
fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers.
    let made = Errno::result(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Tells a network to have its loopback up, where it is or where that is nobody's business, and asks what came of it
/// (rtnetlink(7)).
#[allow(unsafe_code, reason = "send(2) of a message")]
fn set_up_loopback(socket: &OwnedFd) -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes()); // length
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    message.extend([0; 8]); // number, port
    message.extend([0; 4]); // family, kind
    message.extend(1_i32.to_ne_bytes()); // the loopback is the first
    message.extend(IFF_UP.to_ne_bytes()); // flags
    message.extend(IFF_UP.to_ne_bytes()); // which of them change
    let mut answer = [0_u8; 128];
    // SAFETY: buffers of the lengths that are said.
    unsafe {
        let sent = libc::send(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
        );
        Errno::result(sent)?;
        let got = libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            0,
        );
        Errno::result(got)?;
    }
    // `struct nlmsgerr` after the header.
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The loopback's flags as they are, by the older way (netdevice(7)).
#[allow(unsafe_code, reason = "ioctl(2) has no safe wrapper for it")]
fn set_device_flags(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: all zeroes are a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: a whole structure, which the kernel fills with what is set again.
    unsafe {
        for command in [libc::SIOCGIFFLAGS, libc::SIOCSIFFLAGS] {
            done(libc::ioctl(socket.as_raw_fd(), command, &raw mut request).into())?;
        }
    }
    Ok(())
}
