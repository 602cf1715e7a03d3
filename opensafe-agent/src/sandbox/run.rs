//! `opensafe run`, step by step.
//!
//! What can fail without anything having been started comes first: the user, the command, the policy.
//! Then the kernel's side is loaded, the cgroup made and armed, and the first process let in. From
//! then on events are put on record until the command has ended; then all that is left is ended, and
//! nothing of the run stays but its record.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::File,
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::Child,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{signal::Signal, utsname::uname},
    unistd::{Pid as NixPid, Uid},
};
use opensafe_common::{
    counter::Counter,
    verdict::{Access, Verdict},
};
use tokio::{sync::mpsc::UnboundedReceiver, time::MissedTickBehavior};

use super::{
    cgroup::{Cgroup, CgroupError},
    command::{self, CommandError},
    signals::{GRACE, Received, Signals},
    stage::{Identity, Plan, Waiting},
    view::{Writable, mountinfo, view},
};
use crate::{
    account::Account,
    enforcement::{Enforcement, Level},
    enrich::{Enriched, Enricher, InForce},
    event::{Losses, Pid, Place, UnixNano, What},
    kernel::{Events, Kernel, KernelError, Sizes},
    policy::{Host, Input, Policy, PolicyError, User},
    rules::{
        Rule, RuleId, RuleSet, Severity, Subject,
        glob::{PathGlob, escape},
    },
    run::{
        CgroupInfo, Cleanup, Ending, HostInfo, Mode, PolicyInfo, RunEnd, RunId, RunStart, Status,
        Trouble, UserInfo,
    },
    sink::{
        Show, Sinks,
        record::{
            Record,
            file::{CreateError, Existing, Owner},
            place::Invoker,
        },
        screen::StandardError,
    },
    tables::{self, Limits, TableError},
    view::{Dev, View},
};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// Policies.
    pub policy: Vec<PathBuf>,
    /// What becomes of denials.
    pub mode: Mode,
    /// Whether a part of the enforcement is good enough.
    pub partial: bool,
    /// The agent's name.
    pub agent: Option<String>,
    /// The directory that it works on.
    pub workspace: Option<PathBuf>,
    /// Whom it runs as.
    pub user: Option<String>,
    /// Where the record goes.
    pub record: Option<PathBuf>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Why nothing ran, or not to its end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RunError {
    #[error("there is no user {0}")]
    NoUser(String),
    #[error("cannot use the workspace {}: {source}", path.display())]
    Workspace { path: PathBuf, source: io::Error },
    #[error("cannot use the current directory: {0}")]
    Directory(io::Error),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Policy(Box<PolicyError>),
    #[error("policy {policy}: {source}")]
    Tables { policy: String, source: TableError },
    #[error(
        "only root can arm a sandbox\n  run it with sudo: the command runs as you all the same"
    )]
    NotRoot,
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("{}", refused(.0))]
    NotEnforced(Box<Refused>),
    #[error(transparent)]
    Record(#[from] CreateError),
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error("interrupted by {0} before the command was started")]
    Interrupted(Signal),
}

/// What a policy needs of a host.
#[derive(Clone, Debug)]
struct Need {
    /// The operation.
    operation: &'static str,
    /// Rules that are not satisfied by letting everything pass.
    rules: usize,
    /// Whether the default is not either.
    default: bool,
}

impl Need {
    const fn is_any(&self) -> bool {
        self.rules > 0 || self.default
    }
}

/// What a policy needs and the host cannot do.
#[derive(Debug)]
pub struct Refused {
    enforcement: Enforcement,
    needs: Vec<Need>,
}

impl Refused {
    /// What is needed and not fully there.
    fn lacking(enforcement: &Enforcement, needs: &[Need]) -> Vec<Need> {
        let levels = enforcement
            .operations()
            .map(|(_, operation)| operation.level);
        needs
            .iter()
            .zip(levels)
            .filter(|(need, level)| need.is_any() && *level != Level::Full)
            .map(|(need, _)| need.clone())
            .collect()
    }
}

impl RunError {
    /// The exit status: a shell's for a command that cannot run, env(1)'s 125 otherwise.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Command(error) => error.exit_status(),
            Self::Interrupted(signal) => u8::try_from(128 + *signal as i32).unwrap_or(125),
            _ => 125,
        }
    }
}

impl From<PolicyError> for RunError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(Box::new(error))
    }
}

/// Runs a command; returns how it ended.
pub fn run(
    request: &Request,
    show: impl FnOnce(&RunStart) -> Show<StandardError>,
) -> Result<RunEnd, RunError> {
    // First of all: from here on no signal ends us between a step and its undoing.
    let signals = Signals::block().map_err(|errno| system("take signals", errno.into()))?;
    let prepared = Prepared::new(request)?;
    let armed = Armed::new(request, prepared)?;
    if let Some(received) = signals.pending().filter(|received| received.asks_to_end()) {
        return Err(RunError::Interrupted(received.signal));
    }
    armed.run(request, signals, show)
}

/// What is known before the kernel is asked for anything.
struct Prepared {
    id: RunId,
    program: PathBuf,
    account: Account,
    agent: String,
    workspace: PathBuf,
    directory: PathBuf,
    host: HostInfo,
    record: RecordPlace,
    needs: Vec<Need>,
    rules: RuleSet,
    view: View,
    tables: tables::Tables,
}

impl Prepared {
    fn new(request: &Request) -> Result<Self, RunError> {
        let account = account(request.user.as_deref())?;
        let directory = env::current_dir().map_err(RunError::Directory)?;
        let workspace = request
            .workspace
            .clone()
            .unwrap_or_else(|| directory.clone());
        let workspace = workspace
            .canonicalize()
            .map_err(|source| RunError::Workspace {
                path: workspace,
                source,
            })?;
        let name = request.command.first().cloned().unwrap_or_default();
        let program = command::find(&name)?;
        let agent = request.agent.clone().unwrap_or_else(|| {
            program
                .file_name()
                .unwrap_or(&name)
                .to_string_lossy()
                .into_owned()
        });
        let host = host()?;
        let policy = Policy::load(&request.policy)?;
        let tmp = tmp();
        let input = Input {
            agent: agent.clone(),
            workspace: workspace.clone(),
            home: real(&account.home),
            tmp: tmp.clone(),
            user: User {
                name: account.name.clone(),
                uid: account.uid,
            },
            runtime: "process".to_owned(),
            labels: BTreeMap::new(),
            command: request
                .command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            host: Host {
                name: host.name.clone(),
                kernel: host.kernel.clone(),
                capabilities: ["exec", "file", "connect"].map(str::to_owned).to_vec(),
            },
        };
        let mut rules = policy.evaluate(&input)?;
        let id =
            RunId::random().map_err(|error| system("draw a run id", io::Error::other(error)))?;
        let record = RecordPlace::new(request, &id, &directory);
        let needs = needs(&rules);
        rules.rules.extend(record.rule());
        rules.rules.sort_by(|a, b| a.id.cmp(&b.id));
        let writable: [&Path; 2] = [&workspace, &tmp];
        let view = view(&rules, &Writable(&writable))
            .map_err(|source| system("read the mounts", source))?;
        let tables = tables::compile(&rules, &view, Limits::default()).map_err(|source| {
            RunError::Tables {
                policy: policy.name().to_owned(),
                source,
            }
        })?;
        Ok(Self {
            id,
            record,
            needs,
            program,
            account,
            agent,
            workspace,
            directory,
            host,
            rules,
            view,
            tables,
        })
    }
}

/// Where a run's record is.
struct RecordPlace {
    path: PathBuf,
    existing: Existing,
    owner: Option<Owner>,
}

impl RecordPlace {
    fn new(request: &Request, id: &RunId, directory: &Path) -> Self {
        let invoker = Invoker::current();
        let (path, existing) = match &request.record {
            Some(path) => (directory.join(path), Existing::Replace),
            None => (invoker.record(id), Existing::Refuse),
        };
        Self {
            path,
            existing,
            owner: invoker.owner,
        }
    }

    /// Whatever the policy says, a run cannot change what is on record about it or others.
    fn rule(&self) -> Option<Rule> {
        let mut places = vec![escape(self.path.as_os_str().as_bytes())];
        if self.existing == Existing::Refuse {
            // The directory of all records.
            let runs = self.path.parent()?;
            places = vec![format!("{}/**", escape(runs.as_os_str().as_bytes()))];
        }
        let globs: Vec<PathGlob> = places
            .iter()
            .filter_map(|glob| PathGlob::parse(glob).ok())
            .collect();
        (!globs.is_empty()).then(|| Rule {
            id: RuleId("opensafe.records".to_owned()),
            verdict: Verdict::Deny,
            severity: Severity::High,
            reason: "a run cannot change what is on record".to_owned(),
            origin: None,
            subject: Subject::File {
                globs,
                access: Access::WRITE.union(Access::CREATE),
            },
        })
    }
}

/// Everything in place for the first process.
struct Armed {
    prepared: Prepared,
    enforcement: Enforcement,
    // Dropped in this order: what is attached goes before the cgroup that it watches is removed.
    events: Events,
    kernel: Kernel,
    cgroup: Cgroup,
    record: Record,
    enricher: Enricher,
}

/// Room for events: some twenty thousand of usual size.
const RING_BYTES: u32 = 8 << 20;

impl Armed {
    fn new(request: &Request, prepared: Prepared) -> Result<Self, RunError> {
        if !Uid::effective().is_root() {
            return Err(RunError::NotRoot);
        }
        let sizes = Sizes {
            policy_cells: prepared.tables.cells.len(),
            ring_bytes: RING_BYTES,
        };
        let mut kernel = Kernel::load(&sizes)?;
        let enforcement = kernel.enforcement();
        check(&enforcement, &prepared.needs, request.partial)?;
        let generation = kernel.install(&prepared.tables, request.mode == Mode::Enforce)?;
        let cgroup = Cgroup::create(prepared.id.as_str())?;
        kernel.arm(cgroup.id())?;
        let events = kernel.events()?;
        kernel.attach(&cgroup.open()?)?;
        let RecordPlace {
            path,
            existing,
            owner,
        } = &prepared.record;
        let record = Record::create(prepared.id.clone(), path, *existing, *owner)?;
        let policy = InForce {
            rules: Arc::new(prepared.rules.clone()),
            view: Arc::new(prepared.view.clone()),
        };
        let enricher = Enricher::new(generation, policy);
        Ok(Self {
            prepared,
            enforcement,
            events,
            kernel,
            cgroup,
            record,
            enricher,
        })
    }

    fn run(
        self,
        request: &Request,
        signals: Signals,
        show: impl FnOnce(&RunStart) -> Show<StandardError>,
    ) -> Result<RunEnd, RunError> {
        let start = self.start(request);
        let Self {
            prepared,
            events,
            kernel,
            cgroup,
            record,
            enricher,
            ..
        } = self;
        let waiting = Waiting::start(&plan(request, &prepared))
            .map_err(|source| system("start the first process", source))?;
        if let Err(error) = cgroup.add(waiting.pid()) {
            waiting.abandon();
            return Err(error.into());
        }
        let signals = match signals.listen() {
            Ok(signals) => signals,
            Err(source) => {
                waiting.abandon();
                return Err(system("take signals", source));
            }
        };
        let began = Instant::now();
        let sinks = Sinks::start(start.clone(), record, show(&start));
        let mut life = Life {
            enforce: request.mode == Mode::Enforce,
            rules: prepared.rules,
            view: prepared.view,
            mounts: File::open("/proc/self/mountinfo").ok(),
            events,
            kernel,
            enricher,
            sinks,
            ready: Vec::new(),
        };
        let (status, failure) = match waiting.release() {
            Ok(child) => (life.attend(child, signals, &cgroup)?, None),
            Err(mut failed) => {
                let _ = failed.child.wait();
                (None, Some(failed.into_error(prepared.program)))
            }
        };
        let duration = began.elapsed();
        let cleanup = match cgroup.finish() {
            Ok(killed) => Cleanup {
                killed,
                cgroup_left: None,
            },
            Err(error) => Cleanup {
                killed: 0,
                cgroup_left: Some(error.to_string()),
            },
        };
        let end = life.end(status, duration, cleanup);
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(end),
        }
    }

    fn start(&self, request: &Request) -> RunStart {
        let Prepared { account, rules, .. } = &self.prepared;
        RunStart {
            id: self.prepared.id.clone(),
            time: now(),
            mode: request.mode,
            partial: request.partial,
            policy: PolicyInfo {
                revision: rules.revision.clone(),
                sources: request.policy.clone(),
                rules: rules.rules.len(),
                defaults: rules.defaults,
            },
            enforcement: self.enforcement.clone(),
            agent: self.prepared.agent.clone(),
            workspace: self.prepared.workspace.clone(),
            command: request
                .command
                .iter()
                .map(|word| word.as_bytes().to_vec())
                .collect(),
            directory: self.prepared.directory.clone(),
            user: UserInfo {
                name: account.name.clone(),
                uid: account.uid,
                gid: account.gid,
                home: account.home.clone(),
            },
            host: self.prepared.host.clone(),
            cgroup: CgroupInfo {
                path: self.cgroup.path().to_owned(),
                id: self.cgroup.id(),
            },
            pid: Pid(std::process::id()),
        }
    }
}

/// A run while its command lives.
struct Life {
    enforce: bool,
    rules: RuleSet,
    view: View,
    mounts: Option<File>,
    events: Events,
    kernel: Kernel,
    enricher: Enricher,
    sinks: Sinks<File, StandardError>,
    ready: Vec<Enriched>,
}

/// How often sinks write, losses are noted and the mount table is looked at.
const TICK: Duration = Duration::from_millis(100);

impl Life {
    /// Puts events on record until the command has ended.
    fn attend(
        &mut self,
        mut child: Child,
        mut signals: UnboundedReceiver<Received>,
        cgroup: &Cgroup,
    ) -> Result<Option<Status>, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|source| system("start the runtime", source))?;
        runtime.block_on(async {
            let mut tick = tokio::time::interval(TICK);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut kill_at: Option<Instant> = None;
            loop {
                tokio::select! {
                    biased;
                    received = signals.recv() => {
                        if let Some(received) = received {
                            pass_on(received, &child, cgroup, &mut kill_at);
                        }
                    }
                    _ = tick.tick() => self.tick(),
                    () = self.events.changed() => self.drain(),
                }
                if kill_at.is_some_and(|at| Instant::now() >= at) {
                    let _ = cgroup.kill();
                }
                match child.try_wait() {
                    Ok(None) => {}
                    Ok(Some(status)) => return Ok(Some(Status::from_wait(status.into_raw()))),
                    Err(source) => return Err(system("wait for the command", source)),
                }
            }
        })
    }

    fn tick(&mut self) {
        self.drain();
        let mut ready = std::mem::take(&mut self.ready);
        self.enricher.tick(Instant::now(), &mut ready);
        self.write(ready);
        let losses = self.losses();
        self.sinks.loss(now(), &losses);
        self.sinks.tick();
        if self.mounts_changed() {
            self.look_at_mounts();
        }
    }

    fn drain(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        while let Some(event) = self.events.take() {
            if let What::UnknownSuperblock { place } = &event.what {
                let (pid, place) = (event.task.pid, place.clone());
                self.meet(pid, &place);
            }
            self.enricher.take(event, &mut ready);
            if ready.len() > 1024 {
                ready = self.write(ready);
            }
        }
        self.ready = self.write(ready);
    }

    fn write(&mut self, mut ready: Vec<Enriched>) -> Vec<Enriched> {
        for event in ready.drain(..) {
            self.sinks.write(&event);
        }
        ready
    }

    /// Whether something was mounted or unmounted since the last call (proc_pid_mountinfo(5)).
    fn mounts_changed(&self) -> bool {
        let Some(mounts) = &self.mounts else {
            return false;
        };
        let mut fds = [PollFd::new(mounts.as_fd(), PollFlags::POLLPRI)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|_| {
            fds[0]
                .revents()
                .is_some_and(|events| events.contains(PollFlags::POLLPRI))
        })
    }

    fn look_at_mounts(&mut self) {
        // The file is opened anew: a change is told once for each open file.
        self.mounts = File::open("/proc/self/mountinfo").ok();
        let Ok(lines) = mountinfo(Path::new("/proc/self/mountinfo")) else {
            return;
        };
        let view = View {
            mounts: lines.into_iter().map(|line| line.mount).collect(),
            ..self.view.clone()
        };
        self.use_view(view);
    }

    /// A sandboxed process met a superblock that the tables do not know: one that it mounted in a
    /// namespace of its own. A fresh tmpfs gets the name that it has there; what shows other files
    /// (an overlay, a disk) stays nameless, or rules could be walked around by mounting.
    fn meet(&mut self, pid: Pid, place: &Place) {
        const OWN_CONTENT: [&str; 2] = ["tmpfs", "ramfs"];
        if self.view.mounts.iter().any(|mount| mount.dev == place.dev) {
            return;
        }
        let Ok(lines) = mountinfo(Path::new(&format!("/proc/{}/mountinfo", pid.0))) else {
            return;
        };
        let is_new = |dev: Dev| dev == place.dev;
        let met: Vec<_> = lines
            .into_iter()
            .map(|line| line.mount)
            .filter(|mount| is_new(mount.dev) && OWN_CONTENT.contains(&mount.fs_type.as_str()))
            .collect();
        if met.is_empty() {
            return;
        }
        let mut view = self.view.clone();
        view.mounts.splice(0..0, met);
        self.use_view(view);
    }

    /// Compiles the rules for another view and switches to it. If that fails the view before stays:
    /// what is new has no name then, and the verdict for the nameless.
    fn use_view(&mut self, view: View) {
        if view == self.view {
            return;
        }
        let Ok(tables) = tables::compile(&self.rules, &view, Limits::default()) else {
            return;
        };
        let Ok(generation) = self.kernel.install(&tables, self.enforce) else {
            return;
        };
        let policy = InForce {
            rules: Arc::new(self.rules.clone()),
            view: Arc::new(view.clone()),
        };
        self.enricher.policy_changed(generation, policy);
        self.view = view;
    }

    fn losses(&self) -> Losses {
        let (queue_full, malformed) = self.events.lost();
        let sent = self.kernel.count(Counter::Sent);
        Losses {
            seen: self.kernel.count(Counter::Seen),
            sent: sent.saturating_sub(queue_full + malformed),
            ring_full: self.kernel.count(Counter::LostRingFull),
            no_scratch: self.kernel.count(Counter::LostNoScratch),
            queue_full,
            malformed,
            record_failed: 0,
        }
    }

    /// Everything is gone from the cgroup: puts the rest on record, and the end.
    fn end(mut self, status: Option<Status>, duration: Duration, cleanup: Cleanup) -> RunEnd {
        self.events.finish();
        self.drain();
        let mut ready = std::mem::take(&mut self.ready);
        self.enricher.finish(&mut ready);
        self.write(ready);
        let losses = self.losses();
        let trouble = Trouble {
            no_path: self.kernel.count(Counter::UndecidedNoPath),
            no_scratch: self.kernel.count(Counter::UndecidedNoScratch),
            forks_refused: self.kernel.count(Counter::ForksRefused),
            cgroups_unarmed: self.kernel.count(Counter::CgroupsUnarmed),
            marks_failed: self.kernel.count(Counter::MarksFailed),
        };
        self.sinks.end(Ending {
            time: now(),
            duration,
            status,
            losses,
            trouble,
            cleanup,
        })
    }
}

/// Acts on a signal; see [`super::signals`].
fn pass_on(received: Received, child: &Child, cgroup: &Cgroup, kill_at: &mut Option<Instant>) {
    if matches!(received.signal, Signal::SIGCHLD | Signal::SIGWINCH) || !received.by_process {
        return;
    }
    if received.asks_to_end() {
        if kill_at.is_some() {
            let _ = cgroup.kill();
            return;
        }
        *kill_at = Some(Instant::now() + GRACE);
    }
    if let Ok(pid) = i32::try_from(child.id()) {
        // It may just have ended.
        let _ = nix::sys::signal::kill(NixPid::from_raw(pid), received.signal);
    }
}

/// Refuses to pretend: a policy that needs what the host lacks is an error, unless a part is enough.
fn check(enforcement: &Enforcement, needs: &[Need], partial: bool) -> Result<(), RunError> {
    let needs = Refused::lacking(enforcement, needs);
    if needs.is_empty() || partial {
        return Ok(());
    }
    Err(RunError::NotEnforced(Box::new(Refused {
        enforcement: enforcement.clone(),
        needs,
    })))
}

/// What a rule set needs, in the order of [`Enforcement::operations`].
fn needs(rules: &RuleSet) -> Vec<Need> {
    let strict = |verdict| verdict != Verdict::Allow;
    let need = |operation, default, is: fn(&Subject) -> bool| Need {
        operation,
        rules: rules
            .rules
            .iter()
            .filter(|rule| strict(rule.verdict) && is(&rule.subject))
            .count(),
        default: strict(default),
    };
    let defaults = rules.defaults;
    vec![
        need("exec", defaults.exec, |of| matches!(of, Subject::Exec(_))),
        need("file", defaults.file, |of| {
            matches!(of, Subject::File { .. })
        }),
        need("connect", defaults.connect, |of| {
            matches!(of, Subject::Connect { .. })
        }),
    ]
}

/// The error in words: what cannot be enforced and why, what the policy needs, what to do.
fn refused(Refused { enforcement, needs }: &Refused) -> String {
    let lacking: Vec<&str> = needs.iter().map(|need| need.operation).collect();
    let why = enforcement
        .missing()
        .first()
        .map(|missing| format!(": {}: {}", missing.what, missing.why))
        .unwrap_or_default();
    let needs: Vec<String> = needs
        .iter()
        .map(|need| {
            let rules = if need.rules == 1 { "rule" } else { "rules" };
            let default = if need.default {
                ", and its default"
            } else {
                ""
            };
            format!("{} ({} {rules}{default})", need.operation, need.rules)
        })
        .collect();
    let rest: Vec<String> = enforcement
        .operations()
        .iter()
        .filter(|(_, operation)| operation.level != Level::None)
        .map(|(name, operation)| {
            format!("{name} ({}, by {})", operation.level.as_str(), operation.by)
        })
        .collect();
    let rest = if rest.is_empty() {
        "nothing".to_owned()
    } else {
        rest.join(", ")
    };
    format!(
        "cannot enforce {} rules fully on this host{why}\n  \
         the policy needs: {}\n  \
         run `opensafe doctor` for what this host can do, or add --partial to enforce what it can: {rest}",
        lacking.join(", "),
        needs.join("; "),
    )
}

fn plan(request: &Request, prepared: &Prepared) -> Plan {
    let account = &prepared.account;
    let same = account.uid == Uid::effective().as_raw();
    let identity = (!same).then(|| Identity {
        uid: account.uid,
        gid: account.gid,
        groups: account.groups(),
    });
    let mut environment = vec![("OPENSAFE_RUN_ID".to_owned(), prepared.id.as_str().into())];
    if !same {
        environment.extend([
            ("HOME".to_owned(), account.home.clone().into_os_string()),
            ("USER".to_owned(), account.name.clone().into()),
            ("LOGNAME".to_owned(), account.name.clone().into()),
            ("SHELL".to_owned(), account.shell.clone().into_os_string()),
        ]);
    }
    Plan {
        program: prepared.program.clone(),
        argv: request.command.clone(),
        identity,
        directory: prepared.directory.clone(),
        environment,
    }
}

/// The account to run as: the one named, else the one behind sudo, else ours.
fn account(name: Option<&str>) -> Result<Account, RunError> {
    match name {
        Some(name) => Account::named(name).ok_or_else(|| RunError::NoUser(name.to_owned())),
        None => {
            let owner = Invoker::current().owner;
            let uid = owner.map_or_else(|| Uid::current().as_raw(), |owner| owner.uid);
            Ok(Account::of(uid)
                .unwrap_or_else(|| nobody_in_particular(uid, owner.map(|owner| owner.gid))))
        }
    }
}

/// An id without an account is allowed, as everywhere in Unix.
fn nobody_in_particular(uid: u32, gid: Option<u32>) -> Account {
    Account {
        name: uid.to_string(),
        uid,
        gid: gid.unwrap_or_else(|| nix::unistd::Gid::current().as_raw()),
        home: env::var_os("HOME").map_or_else(|| "/".into(), PathBuf::from),
        shell: "/bin/sh".into(),
    }
}

fn host() -> Result<HostInfo, RunError> {
    let names = uname().map_err(|errno| system("ask for the kernel's name", errno.into()))?;
    Ok(HostInfo {
        name: names.nodename().to_string_lossy().into_owned(),
        kernel: names.release().to_string_lossy().into_owned(),
    })
}

fn tmp() -> PathBuf {
    let tmp = env::var_os("TMPDIR")
        .map(PathBuf::from)
        .filter(|tmp| tmp.is_absolute());
    real(&tmp.unwrap_or_else(|| "/tmp".into()))
}

/// Rules are about where things are.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn now() -> UnixNano {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixNano(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn system(what: &'static str, source: io::Error) -> RunError {
    RunError::System { what, source }
}
