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
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use nix::{sys::utsname::uname, unistd::Uid};

use super::{
    cgroup::Cgroup,
    command,
    error::{RunError, system},
    inherited,
    life::Life,
    needs::{Need, check, needs},
    record_place::{RecordPlace, directories_above, where_it_is},
    sight::Sight,
    signals::Signals,
    stage::{Identity, Plan, Waiting},
    view::{Writable, view},
    wait::Wait,
};
use crate::{
    account::Account,
    enforcement::Enforcement,
    enrich::{Enricher, InForce, Process},
    event::{Pid, UnixNano},
    kernel::{Events, Kernel, KernelError, OnWait, Sizes, memory},
    policy::{Host, Input, Policy, User},
    rules::RuleSet,
    run::{CgroupInfo, HostInfo, Mode, PolicyInfo, RunEnd, RunId, RunStart, UserInfo},
    sink::{
        Show, Sinks,
        record::{Record, place::Invoker},
        screen::StandardError,
    },
    tables::{self, Limits},
    view::View,
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

/// Runs a command; returns how it ended. `waits` is called if that takes another run's loading to end first.
pub fn run(
    request: &Request,
    waits: impl FnOnce(),
    show: impl FnOnce(&RunStart) -> Show<StandardError>,
) -> Result<RunEnd, RunError> {
    // First of all: from here on no signal ends us between a step and its undoing.
    let signals = Signals::block().map_err(|errno| system("take signals", errno.into()))?;
    let (prepared, carried) = Prepared::new(request)?;
    let mut wait = Wait::new(&signals, waits);
    let armed = Armed::new(request, prepared, carried, &mut |waited| {
        wait.goes_on(waited)
    });
    if let Some(received) = wait.asked_to_end() {
        return Err(RunError::Interrupted(received.signal));
    }
    armed?.run(request, signals, show)
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
    rules: Arc<RuleSet>,
}

/// The rules as the kernel is to have them, and the mounts that they were carried over to.
struct Carried {
    view: View,
    tables: tables::Tables,
}

impl Prepared {
    fn new(request: &Request) -> Result<(Self, Carried), RunError> {
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
        let id = RunId::random()
            .map_err(|error| system("draw a run id", std::io::Error::other(error)))?;
        let record = RecordPlace::new(request.record.as_deref(), &id, &directory);
        let needs = needs(&rules);
        rules.rules.extend(record.rule());
        rules.rules.sort_by(|a, b| a.id.cmp(&b.id));
        let writable: [&Path; 2] = [&workspace, &tmp];
        let view = view(&rules, &Writable(&writable))
            .map_err(|source| system("read the mounts", source))?;
        let tables = compile(&rules, &view)?;
        let prepared = Self {
            id,
            record,
            needs,
            program,
            account,
            agent,
            workspace,
            directory,
            host,
            rules: Arc::new(rules),
        };
        Ok((prepared, Carried { view, tables }))
    }
}

fn compile(rules: &RuleSet, view: &View) -> Result<tables::Tables, RunError> {
    tables::compile(rules, view, Limits::default()).map_err(|source| RunError::Tables {
        policy: rules.revision.clone(),
        source,
    })
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
    sight: Sight,
}

/// Of all processes this is not to be ended for want of memory: others would go on unconfined
/// (include/uapi/linux/oom.h).
const OOM_SCORE_ADJ_MIN: &str = "-1000";
/// Room for events: some twenty thousand of usual size.
const RING_BYTES: u32 = 8 << 20;

impl Armed {
    fn new(
        request: &Request,
        prepared: Prepared,
        carried: Carried,
        on_wait: OnWait<'_>,
    ) -> Result<Self, RunError> {
        if !Uid::effective().is_root() {
            return Err(RunError::NotRoot);
        }
        if !is_hosts_pid_namespace() {
            return Err(RunError::PidNamespace);
        }
        let sizes = Sizes {
            ring_bytes: RING_BYTES,
            stand_ins: false,
        };
        let mut kernel = Kernel::shared(&sizes, on_wait)?;
        let enforcement = kernel.enforcement();
        check(&enforcement, &prepared.needs, request.partial)?;
        let enforce = request.mode == Mode::Enforce;
        let mut sight = Sight::first(&mut kernel, carried.view)?;
        let mut generation = kernel.install(&carried.tables, sight.look, enforce)?;
        drop(carried.tables);
        let cgroup = Cgroup::create(prepared.id.as_str())?;
        kernel.arm(cgroup.id())?;
        let events = kernel.events()?;
        kernel.attach(cgroup.directory())?;
        // Loading takes seconds, and only from now on is it noted what is mounted.
        if let Some(seen) = sight.again(&mut kernel, Vec::new)? {
            let tables = compile(&prepared.rules, &seen.view)?;
            generation = kernel.install(&tables, seen.look, enforce)?;
            sight = seen;
        }
        // Before it is emptied.
        if let Some((device, inode)) = prepared.record.existing()
            && kernel.is_record(device, inode)
        {
            return Err(KernelError::AnothersRecord.into());
        }
        let record = prepared.record.create(&prepared.id)?;
        let (at, above) = where_it_is(record.file())
            .and_then(|at| Ok((at, directories_above(record.file(), at)?)))
            .map_err(|source| system("find the record's device", source))?;
        kernel.keep_record(at, &above)?;
        let policy = InForce {
            rules: Arc::clone(&prepared.rules),
            view: Arc::new(sight.view.clone()),
        };
        let enricher = Enricher::new(generation, policy);
        memory::give_back();
        Ok(Self {
            prepared,
            enforcement,
            events,
            kernel,
            cgroup,
            record,
            enricher,
            sight,
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
            sight,
            ..
        } = self;
        let enforce = request.mode == Mode::Enforce;
        let inherited = inherited::denied(&prepared.rules, enforce);
        if enforce {
            inherited.iter().for_each(inherited::Denied::close);
        }
        let waiting = Waiting::start(&plan(request, &prepared))
            .map_err(|source| system("start the first process", source))?;
        // The first process is there already and keeps the score that it was given.
        let spared = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ_MIN);
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
        let runtime = match tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
        {
            Ok(runtime) => runtime,
            Err(source) => {
                waiting.abandon();
                return Err(system("start the runtime", source));
            }
        };
        let began = Instant::now();
        let sinks = Sinks::start(start.clone(), record, show(&start));
        let first = first_process(&start, waiting.pid());
        let mut life = Life::new(
            enforce,
            (prepared.rules, sight),
            (kernel, events, enricher),
            sinks,
        );
        if let Err(error) = spared {
            life.notice(&format!(
                "when memory runs out, the kernel may choose opensafe: /proc/self/oom_score_adj: {error}"
            ));
        }
        for denied in inherited {
            life.put_on_record(denied.on_record(first.clone()));
        }
        // Declared after what enforces, so that whatever happens it is dropped before: nothing in the
        // cgroup lives on when the programs go.
        let mut cgroup = cgroup;
        let (attended, failure) = match waiting.release() {
            Ok(child) => (
                life.attend(&runtime, child, signals, &cgroup).map(Some),
                None,
            ),
            Err(mut failed) => {
                let _ = failed.child.wait();
                (Ok(None), Some(failed.into_error(prepared.program)))
            }
        };
        let duration = began.elapsed();
        let cleanup = life.clean_up(&mut cgroup);
        let status = attended.as_ref().ok().copied().flatten();
        let end = life.end(status, duration, cleanup);
        match failure {
            Some(error) => Err(error.into()),
            None => attended.map(|_| end),
        }
    }

    fn start(&self, request: &Request) -> RunStart {
        let Prepared { account, rules, .. } = &self.prepared;
        RunStart {
            id: self.prepared.id.clone(),
            time: UnixNano::now(),
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

/// Whether processes have the ids here that the kernel's programs know them by (`PROC_PID_INIT_INO` of
/// include/linux/proc_ns.h). Where that cannot be asked, they are taken to have.
fn is_hosts_pid_namespace() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    const PROC_PID_INIT_INO: u64 = 0xefff_fffc;
    std::fs::metadata("/proc/self/ns/pid").map_or(true, |own| own.ino() == PROC_PID_INIT_INO)
}

/// The process that will become the command.
fn first_process(start: &RunStart, pid: nix::unistd::Pid) -> Process {
    Process {
        pid: Pid(pid.as_raw().unsigned_abs()),
        parent_pid: start.pid,
        uid: start.user.uid,
        executable: Vec::new(),
        args: start.command.clone(),
        comm: b"opensafe".to_vec(),
        ancestors: Vec::new(),
        container_id: None,
    }
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
