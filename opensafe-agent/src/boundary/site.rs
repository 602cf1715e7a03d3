//! Where attempts are made: a throwaway directory, listeners on loopback, processes outside. Made anew for
//! the attempts outside the sandbox and for those inside, and gone when it is dropped.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{PermissionsExt as _, symlink},
            net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    fcntl::OFlag,
    mount::{MntFlags, MsFlags, mount, umount2},
    pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt},
    unistd::{Gid, Uid, chown},
};
use serde::{Deserialize, Serialize};

use super::{
    kinds::{own_mounts, tmpfs},
    leftovers::{self, Claim, cgroup_outside},
    namespaces::{Namespace, Namespaces, Process},
    outside::{Helper, Outside},
};
use crate::{
    run::RunId,
    sandbox::{canary::programs_may_run_in, cgroup::Cgroup},
    sink::record::place::Invoker,
};

/// An address of this host's loopback network that is denied to the sandbox, on the denied ports.
pub(super) const DENIED_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 83, 83, 9);

/// How many long names, one in the other, are more than a path may have (PATH_MAX, 4,096 bytes).
pub(super) const LONG_NAMES: usize = 20;
/// Bytes of each.
const LONG_NAME: usize = 220;

/// What an attempt knows about where it is made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Site {
    /// The throwaway directory.
    pub(super) root: PathBuf,
    /// `opensafe boundary` itself.
    pub(super) supervisor: Process,
    /// The namespaces of those outside.
    pub(super) namespaces: Namespaces,
    /// The record of the run.
    pub(super) record: PathBuf,
    /// A process outside that holds something.
    pub(super) helper: Outside,
    /// Processes outside that an attempt may end.
    pub(super) victims: Vec<Outside>,
    /// A port on which TCP and UDP is listened to, and whose peers are denied.
    pub(super) denied_port: u16,
    /// A port that may not be bound.
    pub(super) closed_port: u16,
    /// A port for a server of the sandbox's own.
    pub(super) own_port: u16,
    /// An abstract Unix socket that is denied.
    pub(super) abstract_name: String,
    /// A cgroup outside.
    pub(super) cgroup: Option<PathBuf>,
    /// A terminal outside at which nobody sits.
    pub(super) terminal: Option<PathBuf>,
    /// A directory on which something is mounted in another namespace alone.
    pub(super) mounted_elsewhere: Option<PathBuf>,
    /// Whether to say on standard error how far it is.
    pub(super) progress: bool,
}

impl Site {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// What is secret.
    pub(super) fn secret(&self) -> PathBuf {
        self.path("secret/token")
    }

    /// A place in the workspace, where everything is open.
    pub(super) fn open(&self, name: &str) -> PathBuf {
        self.path("workspace").join(name)
    }

    /// A protected file.
    pub(super) fn protected(&self, name: &str) -> PathBuf {
        self.path("protected").join(name)
    }

    /// A program that is denied.
    pub(super) fn closed_program(&self) -> PathBuf {
        self.path("bin/closed/program")
    }

    /// `opensafe` itself, which may run.
    pub(super) fn program(&self) -> PathBuf {
        self.path("bin/opensafe")
    }

    /// One more directory with a secret in it: for an attempt that moves it away.
    pub(super) fn movable(&self, name: &str) -> PathBuf {
        self.path("movable").join(name)
    }

    pub(super) fn victim(&self, number: usize) -> io::Result<&Outside> {
        Ok(self.victims.get(number).ok_or(io::ErrorKind::NotFound)?)
    }

    pub(super) fn cgroup(&self) -> io::Result<&Path> {
        Ok(self.cgroup.as_deref().ok_or(io::ErrorKind::NotFound)?)
    }

    pub(super) fn terminal(&self) -> io::Result<&Path> {
        Ok(self.terminal.as_deref().ok_or(io::ErrorKind::NotFound)?)
    }

    pub(super) fn mounted_elsewhere(&self) -> io::Result<&Path> {
        let point = self.mounted_elsewhere.as_deref();
        Ok(point.ok_or(io::ErrorKind::NotFound)?)
    }

    /// From the file that [`Made`] left in the workspace.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut site: Self = serde_json::from_slice(&fs::read(path)?)?;
        if !site.namespaces.has_this_process(Namespace::Processes) {
            site.supervisor.hide();
            let others = site.victims.iter_mut().chain([&mut site.helper]);
            others.for_each(|other| other.process.hide());
        }
        Ok(site)
    }
}

/// A site that exists.
pub(super) struct Made {
    pub(super) site: Site,
    /// The test's own, of which the names of what it makes are.
    pub(super) id: RunId,
    /// Where [`Site::read`] finds it.
    pub(super) file: PathBuf,
    // Gone in this order.
    _helpers: Vec<Helper>,
    _listeners: Listeners,
    _cgroup: Option<Cgroup>,
    _keyboard: Option<PtyMaster>,
    _mounts: Option<fs::File>,
    _directory: Directory,
    _claim: Claim,
}

#[allow(dead_code, reason = "they listen as long as they are there")]
struct Listeners {
    tcp: Vec<TcpListener>,
    udp: UdpSocket,
    unix: Vec<UnixListener>,
    datagrams: UnixDatagram,
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        for point in [
            "workspace/mounted",
            "workspace/elsewhere",
            "protected/point",
        ] {
            // An attempt may have left something there.
            while umount2(&self.0.join(point), MntFlags::MNT_DETACH).is_ok() {}
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Files that anyone may read and write, each with its directories.
const FILES: [&str; 14] = [
    "secret/token",
    "movable/file/secret/token",
    "movable/directory/secret/token",
    "movable/exchange/secret/token",
    "movable/exchange/other/token",
    "protected/config",
    "protected/delete",
    "protected/replace",
    "protected/empty",
    "protected/attributes",
    "protected/directory/file",
    "protected/point/file",
    "workspace/file",
    "workspace/other",
];

/// How many processes an attempt may end.
const VICTIMS: usize = 3;

impl Made {
    /// Makes one; `program` is this program.
    pub(super) fn new(program: &Path, progress: bool) -> io::Result<Self> {
        let id = RunId::random().map_err(io::Error::other)?;
        let root = programs_may_run_in()?.join(leftovers::directory(&id));
        fs::create_dir(&root)?;
        let directory = Directory(root.clone());
        let claim = Claim::of(&root)?;
        let mut site = Site {
            root,
            supervisor: Process::own(),
            namespaces: Namespaces::own(),
            abstract_name: format!("opensafe-boundary-{id}"),
            progress,
            ..Site::default()
        };
        site.fill(program)?;
        let listeners = site.listen()?;
        let cgroup = Cgroup::create(&cgroup_outside(&id)).ok();
        site.cgroup = cgroup.as_ref().map(|cgroup| cgroup.path().to_owned());
        let (keyboard, terminal) = terminal().unzip();
        let mounts = mount_elsewhere(&site.open("mounted-elsewhere")).ok();
        site.terminal = terminal;
        site.mounted_elsewhere = mounts.as_ref().map(|_| site.open("mounted-elsewhere"));
        let mut helpers = Vec::new();
        for number in 0..=VICTIMS {
            let socket = site.open(&format!("helper-{number}"));
            let peer = (DENIED_ADDRESS, site.denied_port);
            let helper = Helper::start(&site.program(), &site.secret(), &socket, peer)?;
            match number {
                0 => site.helper = helper.outside.clone(),
                _ => site.victims.push(helper.outside.clone()),
            }
            helpers.push(helper);
        }
        let file = site.open("site.json");
        fs::write(&file, serde_json::to_vec(&site)?)?;
        Ok(Self {
            site,
            file,
            _helpers: helpers,
            _listeners: listeners,
            _cgroup: cgroup,
            _keyboard: keyboard,
            _mounts: mounts,
            _directory: directory,
            _claim: claim,
            id,
        })
    }
}

impl Site {
    fn fill(&mut self, program: &Path) -> io::Result<()> {
        for name in FILES {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            fs::write(&path, "content")?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        }
        fs::create_dir_all(self.path("bin/closed"))?;
        for name in [
            "point",
            "overlay",
            "elsewhere",
            "mounted",
            "mounted-elsewhere",
        ] {
            fs::create_dir(self.open(name))?;
        }
        // For who would unmount it. Without it, that is not tried.
        let (kind, point) = (Some("tmpfs"), self.open("mounted"));
        let _ = mount(kind, &point, kind, MsFlags::empty(), None::<&str>);
        for copy in [self.program(), self.closed_program(), self.open("copy")] {
            fs::copy(program, &copy)?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        }
        if let Some(dynamic) = dynamic_program() {
            fs::copy(dynamic, self.path("bin/closed/dynamic"))?;
        }
        for (script, interpreter) in [
            ("script-of-closed", self.closed_program()),
            ("script", self.program()),
        ] {
            let script = self.open(script);
            let line = format!("#!{} {}\n", interpreter.display(), super::ATTEMPT);
            fs::write(&script, line)?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        }
        symlink(self.secret(), self.open("link"))?;
        symlink(self.path("secret"), self.open("linked-directory"))?;
        symlink(self.closed_program(), self.open("linked-program"))?;
        self.dig()?;
        // The record is written with the rights of whoever is behind sudo.
        let records = self.path("record");
        fs::create_dir(&records)?;
        if let Some(owner) = Invoker::current().owner {
            let (user, group) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            chown(&records, Some(user), Some(group))?;
        }
        self.record = records.join("record.jsonl");
        // Where git is, the sandbox's work is to commit; it begins with what is there.
        let repository = self.open("repository");
        let _ = Command::new("git")
            .args(["init", "--quiet"])
            .arg(&repository)
            .output();
        Ok(())
    }

    /// A file so deep in the secret that no path can name it.
    fn dig(&self) -> io::Result<()> {
        use nix::{
            fcntl::openat,
            sys::stat::{Mode, mkdirat},
        };
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut at = std::os::fd::OwnedFd::from(fs::File::open(self.path("secret"))?);
        let name = long_name();
        for _ in 0..LONG_NAMES {
            mkdirat(&at, name.as_str(), Mode::S_IRWXU)?;
            at = openat(&at, name.as_str(), flags, Mode::empty())?;
        }
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = openat(&at, "token", flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        nix::unistd::write(&file, b"content")?;
        Ok(())
    }

    fn listen(&mut self) -> io::Result<Listeners> {
        let denied = TcpListener::bind((DENIED_ADDRESS, 0))?;
        self.denied_port = denied.local_addr()?.port();
        let mut tcp = vec![denied];
        // The other spellings of this host, where they are to be had.
        for address in ["127.0.0.1", "::1"] {
            tcp.extend(TcpListener::bind((address, self.denied_port)));
        }
        for port in [&mut self.closed_port, &mut self.own_port] {
            // Free a moment ago, and likely to stay so.
            *port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
                .local_addr()?
                .port();
        }
        fs::create_dir(self.path("sockets"))?;
        let name = UnixAddress::from_abstract_name(&self.abstract_name)?;
        Ok(Listeners {
            tcp,
            udp: UdpSocket::bind((DENIED_ADDRESS, self.denied_port))?,
            unix: vec![
                UnixListener::bind(self.path("sockets/stream"))?,
                UnixListener::bind_addr(&name)?,
            ],
            datagrams: UnixDatagram::bind(self.path("sockets/datagram"))?,
        })
    }
}

/// A pseudoterminal that anyone may open, and its other end.
fn terminal() -> Option<(PtyMaster, PathBuf)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let keyboard = posix_openpt(flags).ok()?;
    grantpt(&keyboard).ok()?;
    unlockpt(&keyboard).ok()?;
    let terminal = PathBuf::from(ptsname_r(&keyboard).ok()?);
    fs::set_permissions(&terminal, fs::Permissions::from_mode(0o666)).ok()?;
    Some((keyboard, terminal))
}

/// Mounts something in a namespace that is there as long as what is returned is.
fn mount_elsewhere(point: &Path) -> io::Result<fs::File> {
    let point = point.to_owned();
    let made = std::thread::spawn(move || {
        own_mounts()?;
        tmpfs(&point)?;
        fs::File::open("/proc/thread-self/ns/mnt")
    });
    let panicked = |_| io::Error::other("the thread panicked");
    made.join().map_err(panicked)?
}

/// One of the names that together exceed what a path may have.
pub(super) fn long_name() -> String {
    "n".repeat(LONG_NAME)
}

/// A program of the host's that its loader runs.
fn dynamic_program() -> Option<&'static Path> {
    ["/usr/bin/true", "/bin/true"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.exists())
}
