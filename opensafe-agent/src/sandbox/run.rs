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

use nix::unistd::Uid;

use super::{
    adopt::adopt_all,
    cgroup::Cgroup,
    children::Children,
    command,
    error::{RunError, system},
    evaluated::Evaluated,
    inherited,
    job::First,
    life::{Attended, Life},
    needs::{Need, check},
    origin::{account, host, is_hosts_pid_namespace, real, tmp},
    record_place::{RecordPlace, directories_above, where_it_is},
    respond::Responder,
    sight::Sight,
    signals::Signals,
    stage::{Fate, Identity, Plan, Waiting},
    state::State,
    view::{Writable, view},
    wait::Wait,
};
use crate::{
    account::Account,
    enforcement::Enforcement,
    enrich::{Enricher, InForce, Process},
    event::{Pid, PolicyNumber, UnixNano},
    kernel::{Events, Kernel, KernelError, OnWait, Sizes, began_cs, memory},
    policy::{Host, Input, KeptPolicy, Policy, User},
    response::Response,
    rules::RuleSet,
    run::{CgroupInfo, Finished, HostInfo, Mode, PolicyInfo, RunId, RunStart, UserInfo},
    sink::{Show, Sinks, record::Record, screen::StandardError},
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
    /// Whether to do what the policy wants done about events.
    pub respond: bool,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Runs a command; returns how it ended, or that another process attends to it. `waits` is called if that takes another run's loading to end first.
pub fn run(
    request: &Request,
    waits: impl FnOnce(),
    show: impl FnOnce(&RunStart) -> Show<StandardError>,
) -> Result<Finished, RunError> {
    // First of all: from here on no signal ends us between a step and its undoing.
    let signals = Signals::block().map_err(|errno| system("take signals", errno.into()))?;
    let prepared = Prepared::new(request)?;
    let mut wait = Wait::new(&signals, waits);
    let armed = Armed::new(request, prepared, &mut |waited| wait.goes_on(waited));
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
    input: Input,
    policy: KeptPolicy,
    record: RecordPlace,
    needs: Vec<Need>,
    rules: Arc<RuleSet>,
    responses: Arc<[Response]>,
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
        let id = RunId::random()
            .map_err(|error| system("draw a run id", std::io::Error::other(error)))?;
        let record = RecordPlace::new(request.record.as_deref(), &id, &directory);
        let Evaluated {
            rules,
            responses,
            needs,
        } = Evaluated::of(&policy, &input, request.respond, &record)?;
        Ok(Self {
            id,
            input,
            policy: policy.kept(),
            record,
            needs,
            program,
            account,
            agent,
            workspace,
            directory,
            host,
            rules,
            responses,
        })
    }

    /// What a sandbox will see of the mounts.
    fn view(&self) -> std::io::Result<View> {
        let writable: [&Path; 2] = [&self.workspace, &self.input.tmp];
        view(&self.rules, &Writable(&writable))
    }
}

pub(super) fn compile(rules: &RuleSet, view: &View) -> Result<tables::Tables, RunError> {
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
pub(super) const OOM_SCORE_ADJ_MIN: &str = "-1000";

impl Armed {
    fn new(request: &Request, prepared: Prepared, on_wait: OnWait<'_>) -> Result<Self, RunError> {
        if !Uid::effective().is_root() {
            return Err(RunError::NotRoot);
        }
        if !is_hosts_pid_namespace() {
            return Err(RunError::PidNamespace);
        }
        let mut kernel = Kernel::shared(&Sizes::RUN, on_wait)?;
        let enforcement = kernel.enforcement();
        check(&enforcement, &prepared.needs, request.partial)?;
        let enforce = request.mode == Mode::Enforce;
        let cgroup = Cgroup::create(prepared.id.as_str())?;
        let events = kernel.events()?;
        kernel.attach(cgroup.directory())?;
        // Nobody is in the cgroup, and nothing is armed. Looked at now: loading takes seconds, what is loaded is kept in a file
        // system that is mounted for it, and only from here on is it noted what is mounted.
        let sight = Sight::first(&mut kernel, || prepared.view())?;
        let tables = compile(&prepared.rules, &sight.view)?;
        let generation = kernel.install(&tables, sight.look, enforce)?;
        drop(tables);
        kernel.arm(cgroup.id())?;
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
            number: PolicyNumber::FIRST,
        };
        let enricher = Enricher::new(generation, policy);
        memory::give_back();
        adopt_all();
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
    ) -> Result<Finished, RunError> {
        let start = self.start(request);
        let Self {
            prepared,
            events,
            mut kernel,
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
        let state = state(request, &prepared, &start, waiting.pid());
        let kept = state.to_bytes();
        let kept = kept.and_then(|bytes| Ok(kernel.keep(start.id.as_str(), &bytes)?));
        if let Err(error) = kept {
            waiting.abandon();
            return Err(error);
        }
        let signals = match signals.listen() {
            Ok(signals) => signals,
            Err(source) => {
                waiting.abandon();
                return Err(system("take signals", source));
            }
        };
        let runtime = match tokio::runtime::Builder::new_current_thread()
            .enable_all()
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
        let responder = Responder::new(start.id.clone(), prepared.responses, enforce);
        let not_kept = kernel.why_not_kept().map(|why| {
            format!("if opensafe is killed, the command is, too, and what it has started is not confined: {why}")
        });
        let fate = match kernel.outlives() {
            Ok(()) => Fate::ItsOwn,
            Err(_) => Fate::Opensafes,
        };
        let mut life = Life::new(
            (start.id, state),
            (prepared.rules, sight),
            (kernel, events, enricher),
            (sinks, responder),
            Attended::default(),
        );
        if let Err(error) = spared {
            life.notice(&format!(
                "when memory runs out, the kernel may choose opensafe: /proc/self/oom_score_adj: {error}"
            ));
        }
        if let Some(sentence) = not_kept {
            life.notice(&sentence);
        }
        for denied in inherited {
            life.put_on_record(denied.on_record(first.clone()));
        }
        let lasted = || began.elapsed();
        match waiting.release(fate) {
            Ok(child) => {
                let first = First::Ours(Children::of(child));
                life.see_it_through(&runtime, (first, signals), cgroup, lasted)
            }
            Err(mut failed) => {
                let _ = failed.child.wait();
                life.close(None, lasted(), cgroup);
                Err(failed.into_error(prepared.program).into())
            }
        }
    }

    fn start(&self, request: &Request) -> RunStart {
        let Prepared { account, rules, .. } = &self.prepared;
        RunStart {
            id: self.prepared.id.clone(),
            time: UnixNano::now(),
            mode: request.mode,
            partial: request.partial,
            policy: PolicyInfo::of(rules, request.policy.clone()),
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
            outlives: self.kernel.outlives().is_ok(),
        }
    }
}

/// What it takes to take up the run, should this process be killed, and to give it another policy.
fn state(
    request: &Request,
    prepared: &Prepared,
    start: &RunStart,
    first: nix::unistd::Pid,
) -> State {
    State {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time_unix_nano: start.time.0,
        observe: request.mode == Mode::Observe,
        partial: request.partial,
        respond: request.respond,
        directory: prepared.directory.clone(),
        command: request.command.clone(),
        user: start.user.clone(),
        sources: request
            .policy
            .iter()
            .map(|path| path.clone().into())
            .collect(),
        record: prepared.record.kept(),
        cgroup: start.cgroup.id,
        first: first.as_raw().unsigned_abs(),
        first_began_cs: began_cs(first.as_raw().unsigned_abs()).unwrap_or(0),
        input: prepared.input.clone(),
        policy: prepared.policy.clone(),
        number: PolicyNumber::FIRST,
        since: 0,
    }
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
