//! `opensafe adopt`: a run is attended to again, after whoever did was killed.
//!
//! Its sandbox was confined all the time. What its processes did meanwhile waits in the ring buffer, as much as had room, and
//! goes on record now; then all is as if the run had been attended to from its beginning.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::unistd::Uid;

use super::{
    cgroup::Cgroup,
    error::{RunError, system},
    job::{First, Left as LeftProcess},
    life::{Attended, Life},
    origin::{host, is_hosts_pid_namespace},
    record_place::RecordPlace,
    respond::Responder,
    run::{OOM_SCORE_ADJ_MIN, compile},
    sight::Sight,
    signals::Signals,
    state::State,
    view::{Writable, view},
};
use crate::{
    enrich::{Enricher, InForce},
    event::{Pid, UnixNano},
    kernel::{
        Kernel, Sizes,
        kept::{self, LAYOUT, Left},
        memory,
    },
    policy::Policy,
    run::{Adopted, CgroupInfo, Mode, PolicyInfo, RunEnd, RunId, RunStart},
    sink::{Show, Sinks, record::written::Written, screen::StandardError},
};

/// Takes up a run and attends to it until its command has ended; returns how it ended.
///
/// # Errors
/// If there is no such run, somebody attends to it, or it was started by another version.
pub fn adopt(
    run: &RunId,
    show: impl FnOnce(&RunStart) -> Show<StandardError>,
) -> Result<RunEnd, RunError> {
    let signals = Signals::block().map_err(|errno| system("take signals", errno.into()))?;
    if !Uid::effective().is_root() {
        return Err(RunError::NotRoot);
    }
    if !is_hosts_pid_namespace() {
        return Err(RunError::PidNamespace);
    }
    let left = kept::left();
    let Some(left) = left.into_iter().find(|left| left.run == run.as_str()) else {
        return Err(RunError::NotKept(run.clone()));
    };
    let state = State::of_bytes(
        &left
            .state()
            .map_err(|source| system("read the run's state", source))?,
    )?;
    let mut kernel = Kernel::adopt(&left, state.cgroup, &Sizes::RUN)?;
    // Who is killed now leaves all as it was found.
    let spared = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ_MIN);
    let mode = if state.observe {
        Mode::Observe
    } else {
        Mode::Enforce
    };
    let enforce = mode == Mode::Enforce;
    let policy = Policy::of_kept(state.policy)?;
    let mut rules = policy.evaluate(&state.input)?;
    let mut responses = policy.responses(&state.input, &rules)?;
    responses.retain(|_| state.respond);
    let place = RecordPlace::of_kept(state.record);
    rules.rules.extend(place.rule());
    rules.rules.sort_by(|a, b| a.id.cmp(&b.id));
    let rules = Arc::new(rules);
    // A run is not left because its record is gone: it goes on in another.
    let (record, written, lost_record) = match place.reopen(run) {
        Ok((record, written)) => (record, written, None),
        Err(error) => {
            let another = RecordPlace::new(None, run, Path::new("/"));
            let record = another.create(run)?;
            let sentence = format!("{error}; the run goes on in another record");
            (record, Written::default(), Some(sentence))
        }
    };
    let writable = [state.input.workspace.as_path(), state.input.tmp.as_path()];
    let before = kernel.generation();
    let sight = Sight::first(&mut kernel, || view(&rules, &Writable(&writable)))?;
    let tables = compile(&rules, &sight.view)?;
    let generation = kernel.install(&tables, sight.look, enforce)?;
    drop(tables);
    memory::give_back();
    let in_force = || InForce {
        rules: Arc::clone(&rules),
        view: Arc::new(sight.view.clone()),
    };
    let mut enricher = Enricher::new(before, in_force());
    enricher.policy_changed(generation, in_force());
    let start = RunStart {
        id: run.clone(),
        time: UnixNano(state.time_unix_nano),
        mode,
        partial: state.partial,
        policy: PolicyInfo {
            revision: rules.revision.clone(),
            sources: state.sources.into_iter().map(PathBuf::from).collect(),
            rules: rules.rules.len(),
            defaults: rules.defaults,
        },
        enforcement: kernel.enforcement(),
        agent: state.input.agent,
        workspace: state.input.workspace,
        command: state
            .command
            .into_iter()
            .map(std::os::unix::ffi::OsStringExt::into_vec)
            .collect(),
        directory: state.directory,
        user: state.user,
        host: host()?,
        cgroup: CgroupInfo {
            path: super::cgroup::mount_point()?
                .join(crate::kernel::CGROUP_PARENT)
                .join(run.as_str()),
            id: state.cgroup,
        },
        pid: Pid(std::process::id()),
        outlives: kernel.outlives().is_ok(),
    };
    let adopted = Adopted {
        time: UnixNano::now(),
        pid: start.pid,
        unattended: kept::since_boot().saturating_sub(left.seen),
        lost: kernel
            .lost_for_room()
            .saturating_sub(written.losses.ring_full),
    };
    let events = kernel.unread_events()?;
    let signals = signals
        .listen()
        .map_err(|source| system("take signals", source))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| system("start the runtime", source))?;
    let lasted = Duration::from_nanos(adopted.time.0.saturating_sub(start.time.0));
    let since = Instant::now();
    let show = show(&start);
    let has_start = lost_record.is_none();
    let sinks = Sinks::resume(start, record, has_start, show, written.counts, &adopted);
    let first = LeftProcess::new(state.first, state.first_began_cs);
    let responder = Responder::new(run.clone(), responses.into(), enforce);
    // What has got on record since it was last noted is done with, too.
    let done = left.progress.events + written.lines.saturating_sub(left.progress.lines);
    let attended = Attended::left(Pid(state.first), done);
    let mut life = Life::new(
        enforce,
        (rules, sight),
        (kernel, events, enricher),
        (sinks, responder),
        attended,
    );
    if let Err(error) = spared {
        life.notice(&format!(
            "when memory runs out, the kernel may choose opensafe: /proc/self/oom_score_adj: {error}"
        ));
    }
    if let Some(sentence) = lost_record {
        life.notice(&sentence);
    }
    // What enforces is dropped after it, and nothing lives on in it then.
    let mut cgroup = Cgroup::left(run.as_str(), None).filter(|cgroup| cgroup.id() == state.cgroup);
    let attended = match &cgroup {
        Some(cgroup) => life.attend(&runtime, First::Left(first), signals, cgroup),
        // All is gone, and was before it was taken up.
        None => Ok(None),
    };
    let cleanup = match &mut cgroup {
        Some(cgroup) => life.clean_up(cgroup),
        None => crate::run::Cleanup::default(),
    };
    let status = attended.as_ref().ok().copied().flatten();
    let end = life.end(status, lasted + since.elapsed(), cleanup);
    attended.map(|_| end)
}

/// Has each run that nobody attends to be taken up by a process of its own, which goes on when this one ends. What cannot be
/// stays as it is.
pub(super) fn adopt_all() {
    for left in kept::left() {
        if is_ours_to_adopt(&left) {
            // It says what is wrong in nobody's hearing; `opensafe runs` shows that the run is still unattended.
            let _ = Command::new("/proc/self/exe")
                .args(["adopt", "--quiet", &left.run])
                .current_dir("/")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
        }
    }
}

fn is_ours_to_adopt(left: &Left) -> bool {
    left.agent.is_none() && left.layout == LAYOUT
}
