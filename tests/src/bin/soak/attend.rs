//! Whoever attends to the run: it is killed again and again, and taken over from by other files of the same program.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    Plan,
    ground::{Ground, STOP},
    swap::{Swaps, swap},
};

/// What was done, and found meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) run: String,
    pub(crate) swaps: Swaps,
    pub(crate) kills: u64,
    pub(crate) takeovers: u64,
    /// From the start of the program to when it reads events.
    pub(crate) taken_up: Vec<Duration>,
    /// Of who attends, some time after it began to.
    pub(crate) samples: Vec<Sample>,
    /// Of the kernel, at the same times.
    pub(crate) kernel: Vec<KernelSample>,
    /// What went wrong with those who attend.
    pub(crate) failures: Vec<String>,
    /// How the last of them ended.
    pub(crate) status: Option<i32>,
    pub(crate) lasted: Duration,
}

/// What a process has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) resident_kib: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

/// What the kernel has because of us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelSample {
    /// Memory of its own that is in use.
    pub(crate) kib: u64,
    pub(crate) maps: u64,
    pub(crate) programs: u64,
}

/// How often another takes the run over; the first time after half of that.
const TAKE_OVER_EVERY: Duration = Duration::from_secs(60);
/// When after somebody has begun to attend it is looked what that takes.
const SAMPLE_AFTER: Duration = Duration::from_secs(8);
/// For how long nobody attends at most; and which part of the time between two kills.
const UNATTENDED_MS: u64 = 2500;
const UNATTENDED_PART: u32 = 4;
/// How long one that is taken over from may take to end, or a run.
const PATIENCE: Duration = Duration::from_secs(200);
const LOOK: Duration = Duration::from_millis(20);

/// Runs the soak from its beginning to its end.
pub(crate) fn go(plan: &Plan, ground: &Ground) -> Result<Done> {
    let mut attending = start(plan, ground)?;
    let mut output = BufReader::new(attending.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    if line != "ready\n" {
        bail!("the run did not start: {line:?}");
    }
    let run = run_of(&ground.record())?;
    let stop = AtomicBool::new(false);
    let mut done = Done {
        run: run.clone(),
        ..Done::default()
    };
    let began = Instant::now();
    thread::scope(|scope| {
        let swapping = scope.spawn(|| swap(&run, ground, &stop));
        let mut keeper = Keeper {
            run: &run,
            ground,
            attending,
            since: began,
            attends: true,
            before: VecDeque::new(),
            sampled: false,
            plan,
        };
        let (mut kill_at, mut take_over_at) =
            (began + plan.kill_every, began + TAKE_OVER_EVERY / 2);
        while began.elapsed() < plan.lasts {
            let now = Instant::now();
            keeper.look(&mut done);
            // Only once it attends: before, it may be another that does.
            if keeper.attends && now >= kill_at {
                keeper.kill(&mut done);
                kill_at = now + plan.kill_every;
            } else if keeper.attends && now >= take_over_at {
                take_over_at += TAKE_OVER_EVERY;
                keeper.take_over(&mut done);
            }
            sleep(LOOK);
        }
        stop.store(true, Ordering::Relaxed);
        done.swaps = swapping.join().unwrap_or_default();
        if let Err(error) = fs::write(ground.at(STOP), "") {
            done.failures.push(error.to_string());
        }
        keeper.end(&mut done);
    });
    done.lasted = began.elapsed();
    Ok(done)
}

fn start(plan: &Plan, ground: &Ground) -> Result<Child> {
    let numbers = [
        plan.workers as u64,
        u64::try_from(plan.pace.as_millis())?,
        u64::from(ground.ports[0]),
        u64::from(ground.ports[1]),
    ];
    Ok(Command::new("opensafe")
        .args(["run", "--quiet", "--policy"])
        .arg(ground.policy(0))
        .arg("--record")
        .arg(ground.record())
        .arg("--")
        .arg(std::env::current_exe()?)
        .arg("inside")
        .arg(ground.folder())
        .args(numbers.map(|number| number.to_string()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?)
}

fn run_of(record: &Path) -> Result<String> {
    let mut line = String::new();
    BufReader::new(fs::File::open(record)?).read_line(&mut line)?;
    let start: serde_json::Value = serde_json::from_str(&line)?;
    let run = start["opensafe.run.id"].as_str().context("no run's id")?;
    Ok(run.to_owned())
}

struct Keeper<'a> {
    run: &'a str,
    ground: &'a Ground,
    attending: Child,
    /// Since when it was started or, if it does, attends.
    since: Instant,
    attends: bool,
    /// Those that were taken over from, and are to end.
    before: VecDeque<(Child, Instant)>,
    sampled: bool,
    plan: &'a Plan,
}

impl Keeper<'_> {
    /// Looks how those are who attend, and did.
    fn look(&mut self, done: &mut Done) {
        if let Ok(Some(status)) = self.attending.try_wait() {
            let said = said_by(&mut self.attending);
            done.failures
                .push(format!("whoever attended ended with {status}: {said}"));
            self.adopt(&["adopt"], &"opensafe".into(), done);
        }
        if !self.attends && reads_events(self.attending.id()) {
            self.attends = true;
            done.taken_up.push(self.since.elapsed());
            self.since = Instant::now();
        }
        if self.attends && !self.sampled && self.since.elapsed() > self.sample_after() {
            self.sampled = true;
            done.samples.extend(Sample::of(self.attending.id()));
            done.kernel.push(KernelSample::now());
        }
        self.before
            .retain_mut(|(child, since)| match child.try_wait() {
                Ok(Some(status)) => {
                    if !status.success() {
                        let said = said_by(child);
                        done.failures.push(format!(
                            "who was taken over from ended with {status}: {said}"
                        ));
                    }
                    false
                }
                _ if since.elapsed() > PATIENCE => {
                    done.failures
                        .push("who was taken over from does not end".to_owned());
                    let _ = child.kill();
                    let _ = child.wait();
                    false
                }
                _ => true,
            });
    }

    fn sample_after(&self) -> Duration {
        SAMPLE_AFTER.min(self.plan.kill_every / 2)
    }

    fn kill(&mut self, done: &mut Done) {
        done.kills += 1;
        if let Err(error) = self.attending.kill() {
            done.failures.push(format!("kill: {error}"));
        }
        let _ = self.attending.wait();
        // Differs from time to time, and is the same for the same seed.
        let most = self.plan.kill_every / UNATTENDED_PART;
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        let mixed = (self.plan.seed.wrapping_add(done.kills)).wrapping_mul(0x9e37_79b9);
        let unattended = mixed % most.clamp(1, UNATTENDED_MS);
        sleep(Duration::from_millis(unattended));
        self.adopt(&["adopt"], &"opensafe".into(), done);
    }

    /// By another file than the one before, as a new version is.
    fn take_over(&mut self, done: &mut Done) {
        done.takeovers += 1;
        let version = self.ground.at(&format!("opensafe-{}", done.takeovers));
        let copied = which("opensafe").and_then(|from| Ok(fs::copy(from, &version)?));
        if let Err(error) = copied {
            return done.failures.push(format!("no new version: {error}"));
        }
        self.adopt(&["adopt", "--take-over"], &version, done);
    }

    fn adopt(&mut self, words: &[&str], program: &PathBuf, done: &mut Done) {
        let again = Command::new(program)
            .args(words)
            .args(["--quiet", self.run])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        match again {
            Ok(again) => {
                let mut before = std::mem::replace(&mut self.attending, again);
                // One that was killed is gone.
                if matches!(before.try_wait(), Ok(None)) {
                    self.before.push_back((before, Instant::now()));
                }
                self.since = Instant::now();
                (self.attends, self.sampled) = (false, false);
            }
            Err(error) => done.failures.push(format!("{words:?}: {error}")),
        }
    }

    /// The workers were told to end: waits until the run has.
    fn end(&mut self, done: &mut Done) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.attending.try_wait() {
                Ok(Some(status)) => {
                    done.status = status.code();
                    if !status.success() {
                        let said = said_by(&mut self.attending);
                        done.failures
                            .push(format!("the last one ended with {status}: {said}"));
                    }
                    break;
                }
                Ok(None) if Instant::now() < deadline => sleep(LOOK),
                _ => {
                    done.failures.push("the run does not end".to_owned());
                    let _ = self.attending.kill();
                    break;
                }
            }
        }
        while !self.before.is_empty() && Instant::now() < deadline {
            let (mut child, since) = match self.before.pop_front() {
                Some(it) => it,
                None => break,
            };
            if matches!(child.try_wait(), Ok(None)) {
                self.before.push_back((child, since));
                sleep(LOOK);
            }
        }
    }
}

/// Whether a process has got so far as to have a thread for events.
fn reads_events(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let mut names = tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name == "events\n")
}

fn which(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).map(|folder| folder.join(program));
    all.find(|file| file.is_file())
        .with_context(|| format!("no {program}"))
}

/// What a process that has ended has written to standard error.
fn said_by(child: &mut Child) -> String {
    let mut said = String::new();
    if let Some(mut error) = child.stderr.take() {
        // What cannot be read is not there.
        let _ = error.read_to_string(&mut said);
    }
    said
}

impl Sample {
    fn of(process: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        Some(Self {
            resident_kib: field(&status, "VmRSS:"),
            descriptors: fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64,
            threads: field(&status, "Threads:"),
        })
    }
}

impl KernelSample {
    fn now() -> Self {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        // What is the file system's goes back as soon as it is wanted.
        let own = [
            "SUnreclaim:",
            "KernelStack:",
            "PageTables:",
            "Percpu:",
            "VmallocUsed:",
        ];
        Self {
            kib: own.iter().map(|name| field(&memory, name)).sum(),
            maps: aya::maps::loaded_maps().flatten().count() as u64,
            programs: aya::programs::loaded_programs().flatten().count() as u64,
        }
    }
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
