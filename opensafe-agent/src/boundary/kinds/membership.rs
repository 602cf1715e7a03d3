//! Leaving the sandbox.

use std::{ffi::OsStr, fs, io, path::PathBuf};

use super::{
    super::{
        ATTEMPT,
        attempt::{Attempt, Make, command},
    },
    names::read,
};
use crate::sandbox::cgroup::mount_point;

const fn cgroup(name: &'static str, shows: &'static str, make: Make) -> Attempt {
    Attempt::event(name, shows, &["cgroup", "file"], make)
}

pub(super) const ALL: &[Attempt] = &[
    cgroup("membership.other-cgroup", "into a cgroup outside", |site| {
        fs::write(site.cgroup()?.join("cgroup.procs"), "0")
    }),
    cgroup("membership.threads", "by its cgroup.threads", |site| {
        let inside = site.cgroup()?.join("cgroup.threads");
        fs::OpenOptions::new().write(true).open(inside).map(drop)
    }),
    cgroup("membership.root-cgroup", "into the root cgroup", |_| {
        fs::write(root()?.join("cgroup.procs"), "0")
    }),
    cgroup(
        "membership.new-cgroup",
        "into a new cgroup outside",
        |site| {
            fs::create_dir(site.cgroup()?.join("new"))?;
            fs::remove_dir(site.cgroup()?.join("new"))
        },
    ),
    cgroup(
        "membership.born-elsewhere",
        "a child in a cgroup outside (CLONE_INTO_CGROUP)",
        |site| {
            // clone3(2), and SIGCHLD at its end (include/uapi/linux/sched.h).
            let script = "import ctypes, os, struct, sys\n\
                          cgroup = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)\n\
                          arguments = struct.pack('11Q', 1 << 33, 0, 0, 0, 17, 0, 0, 0, 0, 0, cgroup)\n\
                          libc = ctypes.CDLL(None, use_errno=True)\n\
                          child = libc.syscall(435, arguments, len(arguments))\n\
                          if child == 0: os._exit(0)\n\
                          if child > 0: os.waitpid(child, 0)\n\
                          else: os._exit(13 if ctypes.get_errno() in (1, 13) else 2)";
            let other = site.cgroup()?.as_os_str();
            command("python3", &[OsStr::new("-c"), OsStr::new(script), other])
        },
    )
    .or_ends(&["status 13"]),
    cgroup("membership.freeze", "freezing a cgroup outside", |site| {
        fs::write(site.cgroup()?.join("cgroup.freeze"), "0")
    }),
    cgroup(
        "membership.kill",
        "killing all in a cgroup outside",
        |site| fs::write(site.cgroup()?.join("cgroup.kill"), "1"),
    ),
    Attempt::any(
        "membership.own-cgroup",
        "a secret, from a cgroup of its own",
        |site| {
            let text = fs::read_to_string("/proc/self/cgroup")?;
            let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
            let own = root()?.join(own.ok_or(io::ErrorKind::NotFound)?);
            // Outside, no cgroup that has processes takes others below it but the root.
            let made = own.join("opensafe-boundary-own");
            fs::create_dir(&made)?;
            let moved = fs::write(made.join("cgroup.procs"), "0");
            let result = moved.and_then(|()| read(site.secret()));
            let _ = fs::write(own.join("cgroup.procs"), "0");
            let _ = fs::remove_dir(made);
            result
        },
    ),
    Attempt::place(
        "membership.session",
        "a secret, from a session of its own",
        |site| {
            nix::unistd::setsid()?;
            read(site.secret())
        },
    ),
    Attempt::place(
        "membership.background",
        "by a process left in the background",
        |site| {
            let script = format!(
                "(setsid '{}' {ATTEMPT}; cat '{}') & wait $!",
                site.program().display(),
                site.secret().display()
            );
            command("sh", &["-c", &script])
        },
    )
    .or_ends(&["status 1"]),
];

fn root() -> io::Result<PathBuf> {
    mount_point().map_err(io::Error::other)
}
