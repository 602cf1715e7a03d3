//! `cargo xtask bench`: what OpenSafe costs.
//!
//! Two guests a kernel, one after the other. The first counts instructions: one nanosecond of its time is one
//! instruction, so figures agree from run to run, whatever else the machine does. The second has the machine's own
//! clock, for whole runs. What happens inside them is in `tests/src/bin/bench`.

use std::{collections::BTreeMap, fs, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    build,
    cli::BenchArgs,
    repo::{self, say},
    vm::{self, Guest},
};

/// Without it every page handed out is cleared first, which makes all else look cheap.
const CMDLINE: &str = "init_on_alloc=0";

/// What the figures are written into, between two marks.
const REPORT: &str = "docs/performance.md";
const BEGIN: &str = "<!-- figures: cargo xtask bench -->\n";
const END: &str = "<!-- end of figures -->\n";

pub(crate) fn command(args: &BenchArgs) -> Result<ExitCode> {
    let built = build::everything()?;
    let all: Vec<String> = vm::kernels().map(str::to_owned).collect();
    let names = if args.kernel.is_empty() {
        &all
    } else {
        &args.kernel
    };
    let mut kernels = Vec::new();
    for name in names {
        say(format_args!("{name}: counting instructions"));
        let count: Counted = serde_json::from_value(guest(name, &built, "count")?)?;
        say(format_args!("{name}: timing whole runs"));
        let time: Startup = serde_json::from_value(guest(name, &built, "time")?)?;
        kernels.push(Figures {
            kernel: name.clone(),
            count,
            time,
        });
    }
    let table = table(&kernels);
    print!("{table}");
    if let Some(file) = &args.json {
        let by_kernel: Map<_, _> = kernels
            .iter()
            .map(|figures| (figures.kernel.clone(), figures.json()))
            .collect();
        let text = serde_json::to_string_pretty(&json!({ "kernels": by_kernel }))? + "\n";
        fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    if *names == all {
        refresh(&table)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts the table into [`REPORT`].
fn refresh(table: &str) -> Result<()> {
    let file = repo::root().join(REPORT);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        bail!("{REPORT}: the marks around the figures are gone")
    };
    repo::write_if_changed(
        &file,
        format!("{before}{BEGIN}\n{table}\n{END}{after}").as_bytes(),
    )?;
    say(format_args!("{REPORT} has the figures"));
    Ok(())
}

/// Runs one mode of the bench program in a guest; the figures that it left.
fn guest(kernel: &str, built: &build::Built, mode: &str) -> Result<Value> {
    let count = mode == "count";
    let mut guest = Guest {
        icount: count,
        cmdline: if count {
            CMDLINE.to_owned()
        } else {
            String::new()
        },
        out: repo::target().join("vm/bench").join(kernel).join(mode),
        ..Guest::new(kernel, built, &["/share/bin/opensafe-bench", mode])
    };
    guest
        .programs
        .push(("opensafe.o".to_owned(), build::object()));
    let file = guest.out.join("figures.json");
    let _ = fs::remove_file(&file);
    let status = guest.run()?.status;
    if status != 0 {
        bail!("{kernel}: the benchmark ended with {status}");
    }
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

/// What the guest that counts found.
#[derive(Deserialize)]
struct Counted {
    /// By operation, then by where it was done: `none`, `empty`, `outside`, `sandboxed_16`, `sandboxed_1000`; and
    /// each with `_whole`, which has what else ran on the processor meanwhile.
    operations: BTreeMap<String, BTreeMap<String, Rounds>>,
    /// By number of rules.
    memory: BTreeMap<String, Memory>,
    /// Millions of instructions.
    startup: Startup,
}

/// Instructions for one operation.
#[derive(Clone, Copy, Deserialize)]
struct Rounds {
    median: f64,
    /// Highest over lowest, less one.
    spread: f64,
}

/// The agent's memory in bytes.
#[derive(Deserialize)]
struct Memory {
    resident: u64,
    peak: u64,
}

/// What whole runs took: `true` by itself, and under `opensafe run` by number of rules, and `16_beside` another run.
#[derive(Deserialize)]
struct Startup {
    r#true: f64,
    run: BTreeMap<String, f64>,
}

impl Startup {
    fn run(&self, rules: &str) -> f64 {
        self.run.get(rules).copied().unwrap_or(f64::NAN)
    }

    /// What a policy of 1,000 rules takes more than one of four.
    fn thousand_rules(&self) -> f64 {
        self.run("1000") - self.run("4")
    }
}

/// One kernel's.
struct Figures {
    kernel: String,
    count: Counted,
    time: Startup,
}

/// The operations with their titles in the table.
const OPERATIONS: [(&str, &str); 8] = [
    ("open_close", "open + close, path of six components"),
    ("open_close_short", "open + close, `/tmp/f`"),
    ("stat", "stat"),
    ("fork_exec", "fork + exec of a static program"),
    ("connect", "TCP connect to loopback + close"),
    ("write_4k", "write of 4 KiB"),
    ("git_status", "`git status`, 10,000 files"),
    ("compile", "`make -j4` of C files"),
];

impl Figures {
    fn median(&self, operation: &str, place: &str) -> f64 {
        let rounds = self
            .count
            .operations
            .get(operation)
            .and_then(|places| places.get(place));
        rounds.map_or(f64::NAN, |rounds| rounds.median)
    }

    fn ratio(&self, operation: &str, place: &str, to: &str) -> f64 {
        self.median(operation, place) / self.median(operation, to)
    }

    /// The largest of an operation's spreads, by its own processor time.
    fn spread(&self, operation: &str) -> f64 {
        let places = self.count.operations.get(operation);
        let own = places
            .into_iter()
            .flatten()
            .filter(|(place, _)| !place.ends_with("_whole"));
        own.map(|(_, rounds)| rounds.spread).fold(0.0, f64::max)
    }

    fn json(&self) -> Value {
        let mut all = Map::new();
        for (operation, _) in OPERATIONS {
            let to_none = |place| rounded(self.ratio(operation, place, "none"));
            let whole = |place: &str| {
                rounded(self.ratio(operation, &format!("{place}_whole"), "none_whole"))
            };
            all.insert(
                operation.to_owned(),
                json!({
                    "none_instructions": self.median(operation, "none").round(),
                    "empty": to_none("empty"),
                    "outside": to_none("outside"),
                    "outside_vs_empty": rounded(self.ratio(operation, "outside", "empty")),
                    "sandboxed_16": to_none("sandboxed_16"),
                    "sandboxed_1000": to_none("sandboxed_1000"),
                    "with_agent_16": whole("sandboxed_16"),
                    "with_agent_1000": whole("sandboxed_1000"),
                    "spread": rounded(self.spread(operation)),
                }),
            );
        }
        let (clock, counted) = (&self.time, &self.count.startup);
        all.insert(
            "startup".to_owned(),
            json!({
                "true_ms": rounded(clock.r#true),
                "run_true_ms": rounded(clock.run("16")),
                "run_true_vs_true": rounded(clock.run("16") / clock.r#true),
                "run_true_beside_ms": rounded(clock.run("16_beside")),
                "run_true_beside_minstructions": rounded(counted.run("16_beside")),
                "rules_1000_ms": rounded(clock.thousand_rules()),
                "rules_1000_vs_true": rounded(clock.thousand_rules() / clock.r#true),
                "true_minstructions": rounded(counted.r#true),
                "run_true_minstructions": rounded(counted.run("16")),
                "rules_1000_minstructions": rounded(counted.thousand_rules()),
            }),
        );
        let memory = |of: fn(&Memory) -> u64| self.count.memory.values().map(of).max().unwrap_or(0);
        all.insert(
            "rss_bytes".to_owned(),
            json!(memory(|memory| memory.resident)),
        );
        all.insert(
            "rss_peak_bytes".to_owned(),
            json!(memory(|memory| memory.peak)),
        );
        Value::Object(all)
    }
}

/// To what is worth comparing.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// For people, in Markdown.
fn table(kernels: &[Figures]) -> String {
    let mut rows = vec![
        "| operation | kernel | alone | empty program | outside | outside / empty | 16 rules | 1,000 rules | with the agent's work |".to_owned(),
        "|---|---|--:|--:|--:|--:|--:|--:|--:|".to_owned(),
    ];
    for (operation, title) in OPERATIONS {
        for figures in kernels {
            let ratio = |place| figures.ratio(operation, place, "none");
            rows.push(format!(
                "| {title} | {} | {:.0} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {:.2} |",
                figures.kernel,
                figures.median(operation, "none"),
                ratio("empty"),
                ratio("outside"),
                figures.ratio(operation, "outside", "empty"),
                ratio("sandboxed_16"),
                ratio("sandboxed_1000"),
                figures.ratio(operation, "sandboxed_1000_whole", "none_whole"),
            ));
        }
    }
    rows.push(String::new());
    rows.push("| whole runs | kernel | by the guest's clock | instructions |".to_owned());
    rows.push("|---|---|--:|--:|".to_owned());
    for figures in kernels {
        let (kernel, clock, counted) = (&figures.kernel, &figures.time, &figures.count.startup);
        rows.push(format!(
            "| `true` | {kernel} | {:.1} ms | {:.1} M |",
            clock.r#true, counted.r#true
        ));
        rows.push(format!(
            "| `opensafe run -- true`, 16 rules | {kernel} | {:.0} ms ({:.0} times `true`) | {:.0} M |",
            clock.run("16"),
            clock.run("16") / clock.r#true,
            counted.run("16"),
        ));
        rows.push(format!(
            "| the same beside another run | {kernel} | {:.0} ms ({:.0} times `true`) | {:.0} M |",
            clock.run("16_beside"),
            clock.run("16_beside") / clock.r#true,
            counted.run("16_beside"),
        ));
        rows.push(format!(
            "| 1,000 rules instead of 4, from Rego to the kernel's maps | {kernel} | {:.0} ms ({:.0} times `true`) | {:.0} M |",
            clock.thousand_rules(),
            clock.thousand_rules() / clock.r#true,
            counted.thousand_rules(),
        ));
    }
    rows.push(String::new());
    rows.push(
        "| agent's memory | kernel | resident when the command starts | at most |".to_owned(),
    );
    rows.push("|---|---|--:|--:|".to_owned());
    for figures in kernels {
        for (rules, memory) in &figures.count.memory {
            let mib = |bytes: u64| bytes >> 20;
            rows.push(format!(
                "| {rules} rules | {} | {} MiB | {} MiB |",
                figures.kernel,
                mib(memory.resident),
                mib(memory.peak)
            ));
        }
    }
    rows.join("\n") + "\n"
}
