//! What the sandbox works on: files, programs, peers and the policies about them.

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{Plan, order::FILES};

pub(crate) struct Ground {
    folder: PathBuf,
    /// Ports on which somebody listens; the second is closed to the sandbox.
    pub(crate) ports: [u16; 2],
    accepted: Arc<AtomicU64>,
}

/// Closed under every policy.
pub(crate) const NEVER: &str = "never";
/// Open under every policy.
pub(crate) const ALWAYS: &str = "always";
/// A program that may be run, and one that may not.
pub(crate) const RUNS: &str = "runs";
pub(crate) const RUNS_NOT: &str = "runs-not";
/// There once the workers are to end.
pub(crate) const STOP: &str = "stop";

/// The file that policy `which` opens.
pub(crate) fn numbered(folder: &Path, which: usize) -> PathBuf {
    folder.join(format!("open-{which}"))
}

/// Where a worker counts, and where it writes down what is wrong.
pub(crate) fn counts(folder: &Path, worker: usize) -> PathBuf {
    folder.join(format!("counts-{worker}"))
}

pub(crate) fn odd(folder: &Path, worker: usize) -> PathBuf {
    folder.join(format!("odd-{worker}"))
}

impl Ground {
    pub(crate) fn make(plan: &Plan) -> Result<Self> {
        let folder = PathBuf::from("/tmp/soak");
        fs::create_dir(&folder).context("/tmp/soak: is there another soak?")?;
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listeners = [listen()?, listen()?];
        let ports = [&listeners[0], &listeners[1]]
            .map(|listener| listener.local_addr().map_or(0, |address| address.port()));
        let accepted = Arc::new(AtomicU64::new(0));
        for (listener, count) in listeners
            .into_iter()
            .zip([None, Some(Arc::clone(&accepted))])
        {
            // As long as this process.
            thread::spawn(move || {
                for stream in listener.incoming() {
                    if let (Ok(_), Some(count)) = (stream, &count) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let ground = Self {
            folder,
            ports,
            accepted,
        };
        for file in [NEVER, ALWAYS] {
            fs::write(ground.at(file), "x")?;
        }
        for which in 0..FILES {
            fs::write(numbered(&ground.folder, which), "x")?;
            let mut policy = fs::File::create(ground.policy(which))?;
            policy.write_all(ground.rego(which, plan).as_bytes())?;
        }
        let this = std::env::current_exe()?;
        for program in [RUNS, RUNS_NOT] {
            fs::copy(&this, ground.at(program))?;
            fs::set_permissions(ground.at(program), fs::Permissions::from_mode(0o755))?;
        }
        Ok(ground)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Beside what the sandbox can fill.
    pub(crate) fn record(&self) -> PathBuf {
        self.at("record.jsonl")
    }

    pub(crate) fn policy(&self, which: usize) -> PathBuf {
        self.at(&format!("policy-{which}.rego"))
    }

    /// Connections to the closed port.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    fn rego(&self, which: usize, plan: &Plan) -> String {
        let at = |name: &str| self.at(name).display().to_string();
        let number = |which| numbered(&self.folder, which).display().to_string();
        let others: Vec<String> = (0..FILES).filter(|it| *it != which).map(number).collect();
        let rules = [
            json!({"id": "never", "on": "file", "verdict": "deny", "match": [at(NEVER)]}),
            json!({"id": format!("closed.{which}"), "on": "file", "verdict": "deny", "match": others}),
            json!({"id": "runs-not", "on": "exec", "verdict": "deny", "match": [at(RUNS_NOT)]}),
            json!({"id": "peer", "on": "connect", "verdict": "deny", "match": ["127.0.0.1"], "ports": [self.ports[1]]}),
            // What makes a policy long, and two of them differ.
            json!({"id": format!("soak.{which}.{}", plan.seed), "on": "file", "verdict": "audit", "match": ["/srv/soak/**"]}),
        ];
        let defaults = json!({"exec": "allow", "file": "allow", "connect": "allow"});
        format!(
            "package opensafe.sandbox\n\ndefaults := {defaults}\n\nrules := {}\n",
            Value::from(rules.to_vec())
        )
    }
}
