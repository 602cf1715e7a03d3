//! `opensafe adopt`: a run is attended to again, after whoever did was killed, or is taken over from whoever does.
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
    call::{Answer, CallError, Request, call},
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
        adopt::AdoptError,
        kept::{self, LAYOUT, Left},
        memory,
    },
    policy::Policy,
    run::{Adopted, CgroupInfo, Cleanup, Finished, Mode, PolicyInfo, RunId, RunStart},
    sink::{Show, Sinks, record::written::Written, screen::StandardError},
};

/// Takes up a run and attends to it until its command has ended; returns how it ended. With `take_over`, whoever attends to it is
/// asked to hand it over.
///
/// # Errors
/// If there is no such run, somebody attends to it, or a newer version does or did, or one with other programs.
pub fn adopt(
    run: &RunId,
    take_over: bool,
    show: impl FnOnce(&RunStart) -> Show<StandardError>,
) -> Result<Finished, RunError> {
    let signals = Signals::block().map_err(|errno| system("take signals", errno.into()))?;
    if !Uid::effective().is_root() {
        return Err(RunError::NotRoot);
    }
    if !is_hosts_pid_namespace() {
        return Err(RunError::PidNamespace);
    }
    let mut tries = TRIES;
    let (mut kernel, left, from) = loop {
        let left = left(run)?;
        let state = state_of(&left)?;
        left.has_our_programs()?;
        is_no_downgrade(run, &state.version)?;
        let from = left.agent.filter(|_| take_over);
        if from.is_some() {
            ask_to_hand_over(run, &left)?;
        }
        match Kernel::adopt(&left, state.cgroup, &Sizes::RUN) {
            Ok((kernel, left)) => break (kernel, left, from),
            // Somebody else was quicker, and is to be asked.
            Err(AdoptError::Attended { .. }) if take_over && tries > 0 => tries -= 1,
            Err(error) => return Err(error.into()),
        }
    };
    // Again: it may have got another policy meanwhile.
    let mut state = state_of(&left)?;
    if state.version != VERSION {
        state.version = VERSION.to_owned();
        kernel.keep(run.as_str(), &state.to_bytes()?)?;
    }
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
    let (record, written, lost_record) =
        match place.reopen(run, serde_json::from_slice(&left.noted).ok()) {
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
        from: from.map(Pid),
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
    let mut sinks = Sinks::resume(start, record, has_start, show, &written, &adopted);
    let first = LeftProcess::new(state.first, state.first_began_cs);
    if state.number > number {
        // Whoever attended to the run was killed while it gave it this policy.
        sinks.applied(&applied(&state, &rules, String::new()));
    }
    let responder = Responder::new(run.clone(), responses, enforce);
    // What has got on record since it was last noted is done with, too.
    let done = left.progress.events + written.lines.saturating_sub(left.progress.lines);
    let attended = Attended::left(Pid(state.first), done, &written.losses);
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
    let cgroup = Cgroup::left(run.as_str(), None).filter(|cgroup| cgroup.id() == cgroup_id);
    let lasted = || lasted + since.elapsed();
    match cgroup {
        Some(cgroup) => {
            life.see_it_through(&runtime, (First::Left(first), signals), cgroup, lasted)
        }
        // All is gone, and was before it was taken up.
        None => {
            let end = life.end(None, lasted(), Cleanup::default());
            Ok(Finished::Ended(Box::new(end)))
        }
    }
}

fn left(run: &RunId) -> Result<Left, RunError> {
    let mut left = kept::left().into_iter();
    let left = left.find(|left| left.run == run.as_str());
    left.ok_or_else(|| RunError::NotKept(run.clone()))
}

fn state_of(left: &Left) -> Result<State, RunError> {
    let state = left.state();
    State::of_bytes(&state.map_err(|source| system("read the run's state", source))?)
}

/// What a newer version has written down may mean what this one does not know.
fn is_no_downgrade(run: &RunId, theirs: &str) -> Result<(), RunError> {
    let version = |text: &str| semver::Version::parse(text).ok();
    match (version(theirs), version(VERSION)) {
        (Some(their), Some(ours)) if their <= ours => Ok(()),
        _ => Err(RunError::Downgrade {
            run: run.clone(),
            theirs: theirs.to_owned(),
        }),
    }
}

fn ask_to_hand_over(run: &RunId, left: &Left) -> Result<(), RunError> {
    match call(run, left, &Request::HandOver) {
        // Whoever was killed attends to it no longer, either.
        Ok(Answer::HandedOver) | Err(CallError::Killed(_)) => Ok(()),
        Ok(Answer::Refused(why)) => Err(RunError::NotHandedOver {
            run: run.clone(),
            why,
        }),
        Ok(Answer::Applied(_)) => Err(RunError::NotHandedOver {
            run: run.clone(),
            why: "it was taken for another call".to_owned(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// How often whoever is quicker than this process is asked to hand the run over.
const TRIES: u32 = 3;

/// Of this opensafe.
const VERSION: &str = env!("CARGO_PKG_VERSION");

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_version_has_left_is_refused_and_what_an_older_one_has_is_not() {
        let run: RunId = "7f3k2aaa".parse().unwrap();
        let ours = semver::Version::parse(VERSION).unwrap();
        let with = |minor, patch| semver::Version::new(ours.major, minor, patch).to_string();
        assert!(is_no_downgrade(&run, VERSION).is_ok());
        assert!(is_no_downgrade(&run, "0.0.1").is_ok());
        for theirs in [
            with(ours.minor, ours.patch + 1),
            with(ours.minor + 1, 0),
            "99.0.0".to_owned(),
            String::new(),
            "of tomorrow".to_owned(),
        ] {
            let error = is_no_downgrade(&run, &theirs).unwrap_err().to_string();
            assert!(
                error.contains("7f3k2aaa") && error.contains(VERSION),
                "{error}"
            );
        }
    }
}
