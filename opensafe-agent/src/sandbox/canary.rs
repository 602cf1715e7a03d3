//! A canary: a throw-away sandbox in which a process tries what is denied to it.
//!
//! Only that shows that a host enforces something. A kernel may list BPF among its LSMs and refuse the
//! programs, or take them and never call them.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use opensafe_common::verdict::{Access, Verdict};

use super::{
    cgroup::Cgroup,
    error::{RunError, system},
    stage::{Fate, Plan, Waiting},
    view::{Writable, view},
};
use crate::{
    kernel::{Kernel, Sizes},
    rules::{
        Defaults, Peer, Rule, RuleId, RuleSet, Severity, Subject,
        glob::{PathGlob, escape},
        peer::{IpPrefix, PortRange},
    },
    run::RunId,
    tables::{self, Limits},
};

/// The name of the hidden command that tries.
pub const TRY: &str = "__canary";

/// What became of each attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Reading a denied file failed.
    pub read_denied: bool,
    /// Making a file where that is denied failed.
    pub create_denied: bool,
    /// Running a denied program failed.
    pub exec_denied: bool,
    /// Connecting to a denied port failed.
    pub connect_denied: bool,
    /// A signal to a process outside failed.
    pub signal_denied: bool,
    /// Reading an allowed file worked.
    pub read_passed: bool,
    /// Running an allowed program worked.
    pub exec_passed: bool,
    /// Connecting to an allowed port worked.
    pub connect_passed: bool,
}

impl Outcome {
    const fn bits(self) -> u8 {
        self.read_denied as u8
            | (self.create_denied as u8) << 1
            | (self.exec_denied as u8) << 2
            | (self.connect_denied as u8) << 3
            | (self.signal_denied as u8) << 4
            | (self.read_passed as u8) << 5
            | (self.exec_passed as u8) << 6
            | (self.connect_passed as u8) << 7
    }

    const fn from_bits(bits: i32) -> Self {
        Self {
            read_denied: bits & 1 != 0,
            create_denied: bits & 1 << 1 != 0,
            exec_denied: bits & 1 << 2 != 0,
            connect_denied: bits & 1 << 3 != 0,
            signal_denied: bits & 1 << 4 != 0,
            read_passed: bits & 1 << 5 != 0,
            exec_passed: bits & 1 << 6 != 0,
            connect_passed: bits & 1 << 7 != 0,
        }
    }
}

/// Sends the canary. Gives the kernel's side too, as it was loaded for it.
pub fn send() -> Result<(Kernel, Outcome), RunError> {
    let id = RunId::random().map_err(|error| system("draw a run id", io::Error::other(error)))?;
    let cage = Cage::new(&id).map_err(|source| system("make files for the canary", source))?;
    let rules = cage.rules();
    let sizes = Sizes {
        ring_bytes: 64 * 1024,
        stand_ins: true,
    };
    let mut kernel = Kernel::load(&sizes)?;
    let look = kernel.look()?;
    let view = view(&rules, &Writable(&[])).map_err(|source| system("read the mounts", source))?;
    let tables =
        tables::compile(&rules, &view, Limits::default()).map_err(|source| RunError::Tables {
            policy: "of the canary".to_owned(),
            source,
        })?;
    kernel.install(&tables, look, true)?;
    let mut cgroup = Cgroup::create(&format!("canary-{id}"))?;
    kernel.arm(cgroup.id())?;
    kernel.attach(cgroup.directory())?;
    let program = env::current_exe().map_err(|source| system("find its own program", source))?;
    let plan = Plan {
        program,
        argv: cage.arguments(),
        identity: None,
        directory: "/".into(),
        environment: Vec::new(),
    };
    let waiting = Waiting::start(&plan).map_err(|source| system("start the canary", source))?;
    if let Err(error) = cgroup.add(waiting.pid()) {
        waiting.abandon();
        return Err(error.into());
    }
    let status = match waiting.release(Fate::Opensafes) {
        Ok(mut child) => child
            .wait()
            .map_err(|source| system("wait for the canary", source))?,
        Err(failed) => return Err(system("run the canary", failed.source)),
    };
    cgroup.finish()?;
    Ok((kernel, Outcome::from_bits(status.code().unwrap_or(0))))
}

/// The hidden command: tries each thing and tells by its exit status.
pub fn try_all(arguments: &[OsString]) -> ExitCode {
    let [directory, denied, allowed] = arguments else {
        return ExitCode::SUCCESS; // nothing was denied, nothing passed
    };
    let directory = Path::new(directory);
    let address = |text: &OsStr| {
        text.to_str()
            .and_then(|text| text.parse::<SocketAddr>().ok())
    };
    let (Some(denied), Some(allowed)) = (address(denied), address(allowed)) else {
        return ExitCode::SUCCESS; // nothing was denied, nothing passed
    };
    let outcome = Outcome {
        read_denied: refused(File::open(directory.join(READ))),
        create_denied: refused(File::create(directory.join(CREATE))),
        exec_denied: refused(Command::new(directory.join(EXECUTE)).status()),
        connect_denied: refused(TcpStream::connect(denied)),
        signal_denied: refused(
            nix::sys::signal::kill(nix::unistd::getppid(), None).map_err(io::Error::from),
        ),
        read_passed: File::open(directory.join(ALLOWED)).is_ok(),
        exec_passed: Command::new(directory.join(ALLOWED_EXECUTE))
            .status()
            .is_ok_and(|status| status.success()),
        connect_passed: TcpStream::connect(allowed).is_ok(),
    };
    ExitCode::from(outcome.bits())
}

fn refused<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// A directory in which root may make files and run them; hardened hosts forbid the latter in /tmp.
pub(crate) fn programs_may_run_in() -> io::Result<PathBuf> {
    use nix::sys::statvfs::{FsFlags, statvfs};
    let temporary = env::temp_dir();
    let candidates = [
        temporary.as_path(),
        Path::new("/run"),
        Path::new("/var/lib"),
        Path::new("/root"),
    ];
    let runs = |directory: &&Path| {
        statvfs(*directory).is_ok_and(|file_system| {
            !file_system
                .flags()
                .intersects(FsFlags::ST_NOEXEC | FsFlags::ST_RDONLY)
        })
    };
    candidates
        .into_iter()
        .find(runs)
        .unwrap_or(&temporary)
        .canonicalize()
}

const READ: &str = "denied-read";
const CREATE: &str = "denied-create";
const EXECUTE: &str = "denied-execute";
const ALLOWED: &str = "allowed-read";
const ALLOWED_EXECUTE: &str = "allowed-execute";

/// The files and ports that the canary tries. Removed when dropped.
struct Cage {
    directory: PathBuf,
    denied: TcpListener,
    allowed: TcpListener,
}

impl Cage {
    fn new(id: &RunId) -> io::Result<Self> {
        let directory = programs_may_run_in()?.join(format!("opensafe-canary-{id}"));
        fs::create_dir(&directory)?;
        let cage = Self {
            directory,
            denied: TcpListener::bind("127.0.0.1:0")?,
            allowed: TcpListener::bind("127.0.0.1:0")?,
        };
        for name in [READ, ALLOWED, EXECUTE, ALLOWED_EXECUTE] {
            let path = cage.directory.join(name);
            fs::write(&path, "#!/bin/sh\nexit 0\n")?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        }
        Ok(cage)
    }

    fn arguments(&self) -> Vec<OsString> {
        let address = |of: &TcpListener| {
            of.local_addr()
                .map_or_else(|_| OsString::new(), |at| at.to_string().into())
        };
        vec![
            "opensafe".into(),
            TRY.into(),
            self.directory.clone().into_os_string(),
            address(&self.denied),
            address(&self.allowed),
        ]
    }

    fn rules(&self) -> RuleSet {
        let glob = |name: &str| {
            PathGlob::parse(&escape(self.directory.join(name).as_os_str().as_bytes()))
                .into_iter()
                .collect()
        };
        let file = |name, access| Subject::File {
            globs: glob(name),
            access,
        };
        let connect = || {
            let address = self.denied.local_addr().ok()?;
            let port = address.port();
            Some(Subject::Connect {
                peers: vec![Peer::Ip(IpPrefix {
                    address: address.ip(),
                    length: 32,
                })],
                ports: vec![PortRange {
                    first: port,
                    last: port,
                }],
                protocol: None,
            })
        };
        let subjects = [
            ("canary.create", Some(file(CREATE, Access::CREATE))),
            ("canary.execute", Some(Subject::Exec(glob(EXECUTE)))),
            ("canary.read", Some(file(READ, Access::READ))),
            ("canary.connect", connect()),
        ];
        let mut rules: BTreeMap<&str, Rule> = BTreeMap::new();
        for (id, subject) in subjects {
            let Some(subject) = subject else { continue };
            rules.insert(
                id,
                Rule {
                    id: RuleId(id.to_owned()),
                    verdict: Verdict::Deny,
                    severity: Severity::Info,
                    reason: String::new(),
                    origin: None,
                    subject,
                },
            );
        }
        RuleSet {
            defaults: Defaults {
                exec: Verdict::Allow,
                file: Verdict::Allow,
                connect: Verdict::Allow,
                ..Defaults::default()
            },
            rules: rules.into_values().collect(),
            revision: "canary".to_owned(),
        }
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_survives_an_exit_status() {
        for bits in 0..=u8::MAX {
            assert_eq!(Outcome::from_bits(i32::from(bits)).bits(), bits);
        }
    }

    #[test]
    fn the_canarys_rules_deny_what_it_tries_and_nothing_else() {
        let cage = Cage::new(&RunId::random().unwrap()).unwrap();
        let rules = cage.rules();
        let at = |name: &str| cage.directory.join(name).as_os_str().as_bytes().to_vec();
        assert_eq!(
            rules.decide_path(&at(READ), Access::READ).verdict,
            Verdict::Deny
        );
        assert_eq!(
            rules.decide_path(&at(EXECUTE), Access::EXEC).verdict,
            Verdict::Deny
        );
        assert_eq!(
            rules.decide_path(&at(CREATE), Access::CREATE).verdict,
            Verdict::Deny
        );
        assert_eq!(
            rules.decide_path(&at(ALLOWED), Access::READ).verdict,
            Verdict::Allow
        );
    }
}
