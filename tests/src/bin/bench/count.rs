//! Rounds with and without OpenSafe, alternating inside one boot.
//!
//! A cycle has four blocks: nothing attached; the empty program attached; OpenSafe attached with 16 rules, then with
//! 1,000, each with a worker outside and one inside taking turns. The workers outside and inside run the same program
//! in cgroups of the same parent, so that nothing but the sandbox differs.

use std::{collections::BTreeMap, env, fs, path::Path, process::Command, thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use aya::{Btf, Ebpf, EbpfLoader, programs::Lsm};
use serde_json::{Map, Value, json};

use crate::{
    operation::{self, Operation, WORKER},
    policy,
    sandbox::{self, Memory, Programs},
    time,
    worker::{Cost, Worker},
};

/// The cgroup below which sandboxes are made.
const CGROUPS: &str = "/sys/fs/cgroup/opensafe";
/// The kernel programs' object, which holds the empty program; beside this program in the guest.
const OBJECT: &str = "opensafe.o";
/// Rules in the two policies.
const RULES: [usize; 2] = [16, 1000];
/// Blocks of each kind.
const CYCLES: usize = 3;

/// All rounds' results, by where they were made and the operation.
#[derive(Default)]
struct Rounds {
    values: BTreeMap<(String, &'static str), Vec<f64>>,
}

impl Rounds {
    fn add(&mut self, place: &str, operation: Operation, cost: Cost) {
        for (place, value) in [
            (place.to_owned(), cost.own),
            (format!("{place}_whole"), cost.whole),
        ] {
            self.values
                .entry((place, operation.name()))
                .or_default()
                .push(value);
        }
    }

    fn median(&self, place: &str, operation: Operation) -> Option<f64> {
        let mut values = self
            .values
            .get(&(place.to_owned(), operation.name()))?
            .clone();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// Highest over lowest, less one.
    fn spread(&self, place: &str, operation: Operation) -> Option<f64> {
        let values = self.values.get(&(place.to_owned(), operation.name()))?;
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        Some(high / low - 1.0)
    }
}

/// Measures; the figures as JSON.
pub(crate) fn figures() -> Result<Value> {
    let operations = wanted()?;
    let cycles = match env::var("BENCH_CYCLES") {
        Ok(number) => number.parse()?,
        Err(_) => CYCLES,
    };
    operation::prepare()?;
    let policies: Vec<_> = RULES
        .iter()
        .map(|&rules| Ok((rules, policy::write(rules)?)))
        .collect::<Result<_>>()?;
    let mut empty = EmptyProgram::load()?;
    let mut outside = outside_worker()?;
    let mut rounds = Rounds::default();
    let mut memory = BTreeMap::new();
    let programs = Programs::now();

    for cycle in 0..cycles {
        eprintln!("cycle {} of {cycles}", cycle + 1);
        block(&mut rounds, "none", &mut outside, &operations)?;
        let attached = empty.attach()?;
        block(&mut rounds, "empty", &mut outside, &operations)?;
        empty.detach(attached)?;
        for (rules, policy) in &policies {
            let taken = sandboxed_block(&mut rounds, *rules, policy, &mut outside, &operations)?;
            memory.insert(rules.to_string(), taken);
            programs.wait();
        }
    }
    outside.end()?;
    Ok(report(
        &rounds,
        &memory,
        &time::processor_times()?,
        &operations,
    ))
}

/// The operations that `BENCH_ONLY` names, or all.
fn wanted() -> Result<Vec<Operation>> {
    match env::var("BENCH_ONLY") {
        Ok(names) => names
            .split(',')
            .map(|name| Operation::named(name).with_context(|| format!("no operation {name:?}")))
            .collect(),
        Err(_) => Ok(Operation::ALL.to_vec()),
    }
}

fn own_worker() -> Command {
    let mut command = Command::new(WORKER);
    command.arg("worker");
    command
}

fn outside_worker() -> Result<Worker> {
    let worker = Worker::start(own_worker())?;
    let cgroup = Path::new(CGROUPS).join("bench-outside");
    fs::create_dir_all(&cgroup).with_context(|| cgroup.display().to_string())?;
    fs::write(cgroup.join("cgroup.procs"), worker.pid().to_string()).context("move a worker")?;
    Ok(worker)
}

fn block(
    rounds: &mut Rounds,
    place: &str,
    worker: &mut Worker,
    operations: &[Operation],
) -> Result<()> {
    for &operation in operations {
        settle();
        rounds.add(place, operation, worker.round(operation)?);
    }
    Ok(())
}

/// Lets what came before (freed programs, closed connections, records to be written) come to rest.
fn settle() {
    thread::sleep(Duration::from_millis(500));
}

fn sandboxed_block(
    rounds: &mut Rounds,
    rules: usize,
    policy: &Path,
    outside: &mut Worker,
    operations: &[Operation],
) -> Result<Memory> {
    let mut command = sandbox::opensafe(policy);
    let own = own_worker();
    command.arg(own.get_program()).args(own.get_args());
    let mut inside = Worker::start(command)?;
    let agent = inside.pid();
    // The first round tells that it is there.
    inside.round(Operation::Stat)?;
    let begun = Memory::of(agent)?;
    for &operation in operations {
        settle();
        rounds.add("outside", operation, outside.round(operation)?);
        settle();
        rounds.add(
            &format!("sandboxed_{rules}"),
            operation,
            inside.round(operation)?,
        );
    }
    let ended = Memory::of(agent)?;
    inside.end()?;
    Ok(Memory {
        resident: begun.resident,
        peak: ended.peak,
    })
}

fn report(
    rounds: &Rounds,
    memory: &BTreeMap<String, Memory>,
    startup: &Value,
    operations: &[Operation],
) -> Value {
    let mut figures = Map::new();
    for &operation in operations {
        let mut of_operation = Map::new();
        for (place, _) in rounds
            .values
            .keys()
            .filter(|(_, name)| *name == operation.name())
        {
            let value = json!({
                "median": rounds.median(place, operation),
                "spread": rounds.spread(place, operation),
            });
            of_operation.insert(place.clone(), value);
        }
        figures.insert(operation.name().to_owned(), Value::Object(of_operation));
    }
    let memory: Map<_, _> = memory
        .iter()
        .map(|(rules, memory)| {
            (
                rules.clone(),
                json!({"resident": memory.resident, "peak": memory.peak}),
            )
        })
        .collect();
    json!({"operations": figures, "memory": memory, "startup": startup})
}

/// The program that does nothing, on the hook of opening files.
struct EmptyProgram {
    ebpf: Ebpf,
}

impl EmptyProgram {
    fn load() -> Result<Self> {
        let btf = Btf::from_sys_fs()?;
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .load_file(env::current_exe()?.with_file_name(OBJECT))
            .context(OBJECT)?;
        let mut this = {
            program(&mut ebpf)?.load("file_open", &btf)?;
            Self { ebpf }
        };
        this.program()?;
        Ok(this)
    }

    fn program(&mut self) -> Result<&mut Lsm> {
        program(&mut self.ebpf)
    }

    fn attach(&mut self) -> Result<aya::programs::lsm::LsmLinkId> {
        Ok(self.program()?.attach()?)
    }

    fn detach(&mut self, link: aya::programs::lsm::LsmLinkId) -> Result<()> {
        Ok(self.program()?.detach(link)?)
    }
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Lsm> {
    match ebpf.program_mut("empty_file_open") {
        Some(program) => Ok(program.try_into()?),
        None => bail!("{OBJECT} has no empty program"),
    }
}
