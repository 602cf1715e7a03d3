//! The operations that are measured, as directly as a program can ask the kernel for them.

use std::{
    ffi::{CStr, CString, OsStr},
    fs::{self, File},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::FileExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    ptr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// Where the operations take place: on tmpfs, six components deep in all.
const DIRECTORY: &str = "/tmp/a1/b22/c333/d4444/e55555";
const DEEP: &CStr = c"/tmp/a1/b22/c333/d4444/e55555/file.txt";
const SHORT: &CStr = c"/tmp/f";
const PROGRAM: &CStr = c"/tmp/nothing";
/// This program, at a place with one name only.
pub(crate) const WORKER: &str = "/tmp/worker";
/// The repository.
const TREE: &str = "/tmp/tree";
/// The project in C.
const PROJECT: &str = "/tmp/project";
/// Bytes of a write.
const BLOCK: usize = 4096;
/// Connections that may wait to be accepted; also the most that one round makes.
const BACKLOG: i32 = 512;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// open(2) and close(2) of a file six components deep.
    OpenClose,
    /// The same of a file two components deep.
    OpenCloseShort,
    /// stat(2) of the deep file.
    Stat,
    /// fork(2), execve(2) of a static program, and waiting for its end.
    ForkExec,
    /// A TCP socket, connect(2) to a listening one on loopback, and close(2).
    Connect,
    /// pwrite(2) of 4 KiB to a file on tmpfs.
    Write,
    /// `git status` in a tree of 10,000 files of which none has changed.
    GitStatus,
    /// `make` of four C files, four at a time.
    Compile,
}

impl Operation {
    /// All, in the order of the table.
    pub(crate) const ALL: [Self; 8] = [
        Self::OpenClose,
        Self::OpenCloseShort,
        Self::Stat,
        Self::ForkExec,
        Self::Connect,
        Self::Write,
        Self::GitStatus,
        Self::Compile,
    ];

    /// Its name in figures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OpenClose => "open_close",
            Self::OpenCloseShort => "open_close_short",
            Self::Stat => "stat",
            Self::ForkExec => "fork_exec",
            Self::Connect => "connect",
            Self::Write => "write_4k",
            Self::GitStatus => "git_status",
            Self::Compile => "compile",
        }
    }

    /// From its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.name() == name)
    }

    /// How often it is done in one round.
    pub(crate) const fn repetitions(self) -> u32 {
        match self {
            Self::ForkExec => 40,
            Self::Connect => 200,
            Self::OpenClose | Self::OpenCloseShort | Self::Stat | Self::Write => 2000,
            Self::GitStatus | Self::Compile => 1,
        }
    }

    /// How often before it is measured.
    pub(crate) const fn warm_up(self) -> u32 {
        match self {
            Self::GitStatus | Self::Compile => 1,
            _ => 3,
        }
    }
}

/// Makes the files that the operations need.
pub(crate) fn prepare() -> Result<()> {
    fs::create_dir_all(DIRECTORY).context(DIRECTORY)?;
    for file in [DEEP, SHORT] {
        let path = Path::new(OsStr::from_bytes(file.to_bytes()));
        fs::write(path, vec![0; BLOCK]).with_context(|| path.display().to_string())?;
    }
    let own = std::env::current_exe().context("this program's own file")?;
    fs::copy(own, WORKER).context(WORKER)?;
    compile(PROGRAM)?;
    make_tree()?;
    make_project()
}

/// A repository of 10,000 files in 100 directories, all committed.
fn make_tree() -> Result<()> {
    for directory in 0..100 {
        let directory = Path::new(TREE).join(format!("directory-{directory}"));
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        for file in 0..100 {
            fs::write(directory.join(format!("file-{file}.txt")), "text\n")?;
        }
    }
    let identity = [
        "-c",
        "user.name=bench",
        "-c",
        "user.email=bench@example.org",
    ];
    for words in [
        &["init", "--quiet"][..],
        &["add", "--all"],
        &["commit", "--quiet", "--message=all"],
    ] {
        succeed(
            Command::new("git")
                .args(["-C", TREE])
                .args(identity)
                .args(words),
        )?;
    }
    Ok(())
}

/// A small project in C.
fn make_project() -> Result<()> {
    const PARTS: u32 = 4;
    let project = Path::new(PROJECT);
    fs::create_dir_all(project).context(PROJECT)?;
    let objects: Vec<String> = (0..PARTS).map(|part| format!("part{part}.o")).collect();
    let rules = format!("CFLAGS = -O1\nall: {}\n", objects.join(" "));
    fs::write(project.join("Makefile"), rules)?;
    for part in 0..PARTS {
        let source = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
             int part{part}(const char *text) {{ return printf(\"%zu\\n\", strlen(text) + {part}); }}\n"
        );
        fs::write(project.join(format!("part{part}.c")), source)?;
    }
    Ok(())
}

/// Runs a program that has nothing to say.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// Compiles a static program that does nothing, with what is in the guest for that.
fn compile(program: &CStr) -> Result<()> {
    let mut compiler = Command::new("gcc")
        .args(["-O2", "-static", "-x", "c", "-", "-o"])
        .arg(OsStr::from_bytes(program.to_bytes()))
        .stdin(Stdio::piped())
        .spawn()
        .context("gcc")?;
    if let Some(mut source) = compiler.stdin.take() {
        source.write_all(b"int main(void) { return 0; }\n")?;
    }
    let status = compiler.wait()?;
    if !status.success() {
        bail!("gcc: {status}");
    }
    Ok(())
}

/// What operations took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Processor time of the process that did them, and of its children that have ended.
    pub(crate) own: Duration,
    /// From the first to the last, with whatever else ran meanwhile.
    pub(crate) whole: Duration,
}

/// Processor time of this process, and of its children that were waited for.
pub(crate) fn processor_time() -> io::Result<Duration> {
    let mut own = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: all zeroes is a value of this structure of integers.
    let mut children: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answers.
    unsafe {
        check(libc::clock_gettime(
            libc::CLOCK_PROCESS_CPUTIME_ID,
            &raw mut own,
        ))?;
        check(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut children))?;
    }
    let duration = |seconds: i64, nanos: i64| {
        let (seconds, nanos) = (u64::try_from(seconds), u32::try_from(nanos));
        Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
    };
    Ok(duration(own.tv_sec, own.tv_nsec)
        + duration(children.ru_utime.tv_sec, children.ru_utime.tv_usec * 1000)
        + duration(children.ru_stime.tv_sec, children.ru_stime.tv_usec * 1000))
}

/// What a process needs to do them.
pub(crate) struct Bench {
    file: File,
    listener: TcpListener,
    address: libc::sockaddr_in,
    name: CString,
}

impl Bench {
    pub(crate) fn new() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
        // SAFETY: the listener's own descriptor; listening again only changes its backlog.
        check(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) }).context("listen")?;
        listener.set_nonblocking(true)?;
        let SocketAddr::V4(bound) = listener.local_addr()? else {
            bail!("an IPv4 listener")
        };
        Ok(Self {
            file: File::options()
                .write(true)
                .open("/tmp/f")
                .context("/tmp/f")?,
            listener,
            address: libc::sockaddr_in {
                sin_family: libc::sa_family_t::try_from(libc::AF_INET)?,
                sin_port: bound.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(bound.ip().octets()),
                },
                sin_zero: [0; 8],
            },
            name: c"nothing".into(),
        })
    }

    /// Does an operation so often.
    pub(crate) fn run(&self, operation: Operation, times: u32) -> Result<Spent> {
        let before = processor_time()?;
        let begin = Instant::now();
        for _ in 0..times {
            match operation {
                Operation::OpenClose => open_close(DEEP)?,
                Operation::OpenCloseShort => open_close(SHORT)?,
                Operation::Stat => stat(DEEP)?,
                Operation::ForkExec => self.fork_exec()?,
                Operation::Connect => self.connect()?,
                Operation::Write => self.file.write_all_at(&[0x5a; BLOCK], 0)?,
                Operation::GitStatus => succeed(Command::new("git").args(["-C", TREE, "status"]))?,
                Operation::Compile => {
                    let words = [
                        "--directory",
                        PROJECT,
                        "--always-make",
                        "--jobs=4",
                        "--silent",
                    ];
                    succeed(Command::new("make").args(words))?;
                }
            }
        }
        let whole = begin.elapsed();
        let own = processor_time()?.saturating_sub(before);
        // What was connected is taken from the queue, so that the next round finds it empty.
        while self.listener.accept().is_ok() {}
        Ok(Spent { own, whole })
    }

    fn fork_exec(&self) -> io::Result<()> {
        let argv = [self.name.as_ptr(), ptr::null()];
        let environment = [ptr::null()];
        // SAFETY: this process has one thread. Everything that the child uses was made before, and it
        // calls nothing but execve(2) and _exit(2).
        let child = check(unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::execve(PROGRAM.as_ptr(), argv.as_ptr(), environment.as_ptr());
                libc::_exit(126);
            }
            child
        })?;
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        check(unsafe { libc::waitpid(child, &raw mut status, 0) })?;
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "the program ended with {status:#x}"
            )))
        }
    }

    fn connect(&self) -> io::Result<()> {
        // SAFETY: no pointers.
        let socket = check(unsafe {
            libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
        })?;
        // SAFETY: a new descriptor that nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // Closed with a reset, so that no port stays taken for the next minute.
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        // SAFETY: both structures are of the sizes given and outlive the calls.
        unsafe {
            check(libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                length::<libc::linger>(),
            ))?;
            check(libc::connect(
                socket.as_raw_fd(),
                (&raw const self.address).cast(),
                length::<libc::sockaddr_in>(),
            ))?;
        }
        Ok(())
    }
}

/// A structure's size, as socket calls take it.
#[allow(clippy::cast_possible_truncation, reason = "structures of some bytes")]
const fn length<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

fn open_close(path: &CStr) -> io::Result<()> {
    // SAFETY: a terminated string; the descriptor is closed here and nowhere else.
    unsafe {
        let file = check(libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC))?;
        check(libc::close(file)).map(drop)
    }
}

fn stat(path: &CStr) -> io::Result<()> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a terminated string, and room for the answer.
    check(unsafe { libc::stat(path.as_ptr(), found.as_mut_ptr()) }).map(drop)
}

fn check(returned: i32) -> io::Result<i32> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}
