//! What has to hold after a soak.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    Plan,
    attend::{Done, KernelSample, Sample},
    counts::{Count, Counts},
    ground::{Ground, counts, numbered},
    order::FILES,
    work::oddities,
};

/// What was found.
pub(crate) struct Told {
    /// Each claim, and what is against it.
    pub(crate) claims: Vec<(&'static str, Option<String>)>,
    pub(crate) figures: Value,
}

/// The causes of loss.
const CAUSES: [&str; 6] = [
    "ring_full",
    "no_scratch",
    "queue_full",
    "malformed",
    "agent_killed",
    "record_failed",
];

pub(crate) fn check(plan: &Plan, ground: &Ground, done: &Done) -> Result<Told> {
    let mut all = Counts::default();
    for worker in 0..plan.workers {
        let counted = Counts::read(&counts(ground.folder(), worker));
        all.add(counted.with_context(|| format!("worker {worker} counted nothing"))?);
    }
    let odd = oddities(ground.folder(), plan.workers);
    let record = OnRecord::read(ground)?;
    let denied: u64 = [
        Count::OpensDenied,
        Count::ExecsDenied,
        Count::ConnectsDenied,
    ]
    .iter()
    .map(|count| all.of(*count))
    .sum();
    let lost: u64 = CAUSES.iter().map(|cause| record.loss(cause)).sum();
    let first = |texts: &[String]| {
        texts
            .iter()
            .take(20)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    };
    let claim = |holds: bool, why: String| (!holds).then_some(why);
    let minutes = plan.lasts.as_secs() / 60;
    let left = left(&done.run);
    let times = done.kills + done.takeovers;
    let claims = vec![
        (
            "nothing_that_is_denied_was_let_through",
            claim(
                all.of(Count::LetThrough) == 0 && ground.accepted() == 0 && denied > 0,
                format!(
                    "{} of {denied}, and {} connections; {}",
                    all.of(Count::LetThrough),
                    ground.accepted(),
                    first(&odd)
                ),
            ),
        ),
        (
            "nothing_that_is_allowed_was_refused",
            claim(
                all.of(Count::Refused) == 0
                    && all.of(Count::ExecsAllowed) > 0
                    && all.of(Count::ConnectsAllowed) > 0,
                format!("{}: {}", all.of(Count::Refused), first(&odd)),
            ),
        ),
        (
            "every_decision_was_made_by_one_policy",
            claim(
                all.of(Count::Mixed) == 0
                    && all.of(Count::RoundsJudged) > all.of(Count::RoundsSlow),
                format!(
                    "{} of {} rounds were mixed, {} were too slow to be judged: {}",
                    all.of(Count::Mixed),
                    all.of(Count::RoundsJudged),
                    all.of(Count::RoundsSlow),
                    first(&odd)
                ),
            ),
        ),
        (
            "each_decision_on_record_is_by_the_policy_that_it_names",
            claim(
                record.wrong.is_empty() && record.named > 0,
                first(&record.wrong),
            ),
        ),
        (
            "what_is_sent_and_what_is_lost_is_what_is_seen",
            claim(
                record.loss("seen") == record.loss("sent") + lost && record.loss("seen") > 0,
                format!(
                    "seen {}, sent {}, lost {lost}",
                    record.loss("seen"),
                    record.loss("sent")
                ),
            ),
        ),
        (
            "each_denial_is_on_record_or_counted_as_lost",
            claim(
                record.denials <= denied && denied <= record.denials + lost,
                format!(
                    "{denied} denials, {} on record, {lost} lost",
                    record.denials
                ),
            ),
        ),
        (
            "memory_and_descriptors_stay_flat",
            flat(&done.samples, &done.kernel),
        ),
        (
            "whoever_attends_came_and_went_as_it_should",
            claim(
                done.failures.is_empty()
                    && done.swaps.failures.is_empty()
                    && done.status == Some(0),
                format!(
                    "status {:?}: {}\n{}",
                    done.status,
                    first(&done.failures),
                    first(&done.swaps.failures)
                ),
            ),
        ),
        (
            "policies_were_swapped_and_whoever_attends_was_killed_and_taken_over_from",
            claim(
                done.kills >= minutes * 2
                    && done.takeovers >= minutes
                    && done.swaps.took.len() as u64 >= minutes * 10
                    && (record.adopted == times
                        || plan.kill_every < OFTEN
                            && (times * 9 / 10..times).contains(&record.adopted)),
                format!(
                    "{} swaps, {} kills, {} takeovers, {} times taken up",
                    done.swaps.took.len(),
                    done.kills,
                    done.takeovers,
                    record.adopted
                ),
            ),
        ),
        ("nothing_is_left", claim(left.is_empty(), left.join(", "))),
    ];
    let swaps = Quantiles::of(&done.swaps.took);
    let range = |of: fn(&Sample) -> u64| {
        let all = done.samples.iter().map(of);
        json!([all.clone().min(), all.max()])
    };
    let causes: BTreeMap<&str, u64> = CAUSES
        .iter()
        .map(|cause| (*cause, record.loss(cause)))
        .collect();
    let figures = json!({
        "lasted_s": done.lasted.as_secs(),
        "workers": plan.workers,
        "denied": denied,
        "denials_on_record": record.denials,
        "decisions": all.of(Count::Decisions),
        "rounds_judged": all.of(Count::RoundsJudged),
        "rounds_slow": all.of(Count::RoundsSlow),
        "execs": all.of(Count::ExecsAllowed) + all.of(Count::ExecsDenied),
        "connects": all.of(Count::ConnectsAllowed) + all.of(Count::ConnectsDenied),
        "let_through": all.of(Count::LetThrough),
        "mixed": all.of(Count::Mixed),
        "seen": record.loss("seen"),
        "sent": record.loss("sent"),
        "lost": causes,
        "kills": done.kills,
        "takeovers": done.takeovers,
        "taken_up_ms": Quantiles::of(&done.taken_up).json(),
        "swaps": done.swaps.took.len(),
        "swaps_unattended": done.swaps.unattended,
        "swap_ms": swaps.json(),
        "agent_resident_kib": range(|sample| sample.resident_kib),
        "agent_descriptors": range(|sample| sample.descriptors),
        "agent_threads": range(|sample| sample.threads),
        "kernel_kib": done.kernel.iter().map(|sample| sample.kib).collect::<Vec<_>>(),
        "kernel_maps": done.kernel.iter().map(|sample| sample.maps).collect::<Vec<_>>(),
        "kernel_programs": done.kernel.iter().map(|sample| sample.programs).collect::<Vec<_>>(),
    });
    Ok(Told { claims, figures })
}

impl Told {
    /// For people.
    pub(crate) fn table(&self) -> String {
        let figures = self.figures.as_object().into_iter().flatten();
        let lines = figures.map(|(name, value)| format!("{name:<20} {value}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Who is killed as often as this may just have begun to attend, and have not put that on record.
const OFTEN: Duration = Duration::from_secs(10);

/// What a process that attends has may differ by so much from one to the next.
const DESCRIPTORS_MAY_DIFFER: u64 = 4;
const RESIDENT_MAY_DIFFER_KIB: u64 = 12 << 10;
/// And what the kernel has, from the first minute to the last: its caches fill.
const KERNEL_MAY_DIFFER_KIB: u64 = 48 << 10;

fn flat(samples: &[Sample], kernel: &[KernelSample]) -> Option<String> {
    let spread = |of: fn(&Sample) -> u64| {
        let all = samples.iter().map(of);
        all.clone().max().unwrap_or(0) - all.min().unwrap_or(0)
    };
    let (Some(first), Some(last)) = (kernel.first(), kernel.last()) else {
        return Some("nobody attended for long enough to be looked at".to_owned());
    };
    let is_flat = spread(|sample| sample.descriptors) <= DESCRIPTORS_MAY_DIFFER
        && spread(|sample| sample.threads) <= DESCRIPTORS_MAY_DIFFER
        && spread(|sample| sample.resident_kib) <= RESIDENT_MAY_DIFFER_KIB
        && last.kib <= first.kib + KERNEL_MAY_DIFFER_KIB
        && last.maps <= first.maps + DESCRIPTORS_MAY_DIFFER
        && last.programs <= first.programs;
    (!is_flat).then(|| format!("{samples:?}\n{kernel:?}"))
}

/// What the record says.
#[derive(Default)]
struct OnRecord {
    /// Denials of ours.
    denials: u64,
    /// Those that name their policy.
    named: u64,
    wrong: Vec<String>,
    adopted: u64,
    end: Option<Value>,
}

impl OnRecord {
    fn read(ground: &Ground) -> Result<Self> {
        let mut all = Self::default();
        let path = ground.record();
        let record = File::open(&path).with_context(|| path.display().to_string())?;
        // The policy of each number: by the rules that its decisions name.
        let mut policies: BTreeMap<u64, usize> = BTreeMap::new();
        for line in BufReader::new(record).lines() {
            let Ok(line) = serde_json::from_str::<Value>(&line?) else {
                continue; // cut off by a kill
            };
            match line["opensafe.event"].as_str() {
                Some("run.adopted") => all.adopted += 1,
                Some("run.end") => all.end = Some(line),
                _ => all.decision(ground, &line, &mut policies),
            }
        }
        Ok(all)
    }

    fn decision(&mut self, ground: &Ground, line: &Value, policies: &mut BTreeMap<u64, usize>) {
        if line["opensafe.verdict"] != "deny" {
            return;
        }
        self.denials += 1;
        let path = line["file.path"].as_str().unwrap_or_default();
        let file =
            (0..FILES).find(|which| numbered(ground.folder(), *which).to_str() == Some(path));
        let number = match &line["opensafe.policy.number"] {
            Value::Null if line.get("opensafe.policy.number").is_some() => return, // known no more
            Value::Null => 0,
            number => number.as_u64().unwrap_or(u64::MAX),
        };
        let Some(file) = file else { return };
        let rule = line["opensafe.rule.id"].as_str().unwrap_or_default();
        let which = rule
            .strip_prefix("closed.")
            .and_then(|which| which.parse().ok());
        let Some(which) = which else {
            return self
                .wrong
                .push(format!("denied by no policy of ours: {line}"));
        };
        self.named += 1;
        let first = *policies.entry(number).or_insert(which);
        if first != which || which == file {
            self.wrong.push(format!(
                "policy {number} is {first} and denied file {file} by {which}: {line}"
            ));
        }
    }

    fn loss(&self, what: &str) -> u64 {
        let end = self.end.as_ref();
        let loss = end.and_then(|end| end[&format!("opensafe.loss.{what}")].as_u64());
        loss.unwrap_or(0)
    }
}

/// What should have gone with the run.
fn left(run: &str) -> Vec<String> {
    let below = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let pins = below("/run/opensafe");
    let pins = pins
        .iter()
        .flat_map(|place| below(&place.to_string_lossy()));
    let all = pins.chain(below("/sys/fs/cgroup/opensafe"));
    all.map(|path| path.display().to_string())
        .filter(|path| path.contains(run))
        .collect()
}

/// How long something took.
struct Quantiles(Vec<Duration>);

impl Quantiles {
    fn of(all: &[Duration]) -> Self {
        let mut all = all.to_vec();
        all.sort_unstable();
        Self(all)
    }

    fn at(&self, percent: usize) -> Option<u64> {
        let at = (self.0.len() * percent / 100).min(self.0.len().checked_sub(1)?);
        let took = self.0.get(at)?.as_millis();
        u64::try_from(took).ok()
    }

    fn json(&self) -> Value {
        json!({"median": self.at(50), "p99": self.at(99), "most": self.at(100)})
    }
}
