//! `opensafe adopt`: a run is attended to again, after whoever did was killed.
//!
//! Its sandbox was confined all the time. What its processes did meanwhile waits in the ring buffer, as much as had room, and
//! goes on record now; then all is as if the run had been attended to from its beginning.

use std::{
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::unistd::Uid;

use super::{
    cgroup::Cgroup,
    error::{RunError, system},
    evaluated::Evaluated,
    job::{First, Left as LeftProcess},
    life::{Attended, Life, applied},
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
    event::{Generation, Pid, UnixNano},
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
    let policy = Policy::of_kept(state.policy.clone())?;
    let place = RecordPlace::of_kept(state.record.clone());
    let Evaluated {
        rules, responses, ..
    } = Evaluated::of(&policy, &state.input, state.respond, &place)?;
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
    let sight = Sight::first(&mut kernel, || view(&rules, &Writable(&writable)))?;
    let tables = compile(&rules, &sight.view)?;
    let generation = kernel.install(&tables, sight.look, enforce)?;
    drop(tables);
    memory::give_back();
    let in_force = || InForce {
        rules: Arc::clone(&rules),
        view: Arc::new(sight.view.clone()),
        number: state.number,
    };
    // What was decided by a policy before this one is not put down to it.
    let mut enricher = Enricher::new(Generation(state.since), in_force());
    enricher.policy_changed(generation, in_force());
    let start = RunStart {
        id: run.clone(),
        time: UnixNano(state.time_unix_nano),
        mode,
        partial: state.partial,
        policy: PolicyInfo::of(&rules, &state.sources),
        enforcement: kernel.enforcement(),
        agent: state.input.agent.clone(),
        workspace: state.input.workspace.clone(),
        command: state
            .command
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        directory: state.directory.clone(),
        user: state.user.clone(),
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
    let number = written.policy;
    let mut sinks = Sinks::resume(start, record, has_start, show, written.counts, &adopted);
    let first = LeftProcess::new(state.first, state.first_began_cs);
    if state.number > number {
        // Whoever attended to the run was killed while it gave it this policy.
        sinks.applied(&applied(&state, &rules, String::new()));
    }
    let responder = Responder::new(run.clone(), responses, enforce);
    // What has got on record since it was last noted is done with, too.
    let done = left.progress.events + written.lines.saturating_sub(left.progress.lines);
    let attended = Attended::left(Pid(state.first), done);
    let cgroup_id = state.cgroup;
    let mut life = Life::new(
        (run.clone(), state),
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
    let mut cgroup = Cgroup::left(run.as_str(), None).filter(|cgroup| cgroup.id() == cgroup_id);
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
