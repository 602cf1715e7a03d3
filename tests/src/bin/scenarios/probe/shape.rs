//! How the process that makes the attempts comes to be.

use std::{
    ffi::{CString, OsString},
    fs,
    io::{self, BufRead as _, Read as _, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    thread::sleep,
    time::Duration,
};

use nix::{
    sys::prctl::set_name,
    unistd::{getpid, getppid, setsid},
};

use super::{
    Verb, attempt_all, outside,
    programs::{probe, replaced},
};

/// Takes a shape, and makes the attempts in it.
///
/// - `plain`: this process
/// - `deep:N`: N levels of children below it
/// - `thread`: a thread
/// - `daemon`: a process that is nobody's child any more, in a session of its own
/// - `cgroup`: this process, in a cgroup that it made below its own
/// - `waiting`: this process, after a line was printed and one was read
/// - `apart`: a process for each attempt, called `try-N`, whose id is said beside its result
pub(super) fn take(shape: &str, attempts: &[OsString]) -> io::Result<()> {
    match shape.split_once(':').unwrap_or((shape, "")) {
        ("plain", _) => attempt_all(attempts),
        ("deep", levels) => match levels.parse().map_err(io::Error::other)? {
            0 => attempt_all(attempts),
            levels => child(&format!("deep:{}", levels - 1_u32), attempts),
        },
        ("thread", _) => {
            let attempts = attempts.to_vec();
            let thread = std::thread::spawn(move || attempt_all(&attempts));
            thread
                .join()
                .map_err(|_| io::Error::other("the thread panicked"))?
        }
        ("daemon", _) => {
            // The parent of the daemon ends at once; its output does when the daemon does.
            let middle = probe()?
                .arg("daemon-parent")
                .args(attempts)
                .stdout(Stdio::piped())
                .spawn()?;
            let output = middle.wait_with_output()?;
            io::stdout().write_all(&output.stdout)
        }
        ("daemon-parent", _) => probe()?
            .arg(format!("daemon-child:{}", getpid()))
            .args(attempts)
            .spawn()
            .map(drop),
        ("daemon-child", parent) => {
            setsid()?;
            while getppid().to_string() == parent {
                sleep(Duration::from_millis(5));
            }
            attempt_all(attempts)
        }
        ("cgroup", _) => {
            let cgroup = own_cgroup()?.join(format!("made-by-{}", getpid()));
            fs::create_dir(&cgroup)?;
            fs::write(cgroup.join("cgroup.procs"), "0")?;
            child("plain", attempts)
        }
        ("waiting", _) => {
            println!("waiting {}", getpid());
            io::stdin().lock().read_line(&mut String::new())?;
            attempt_all(attempts)
        }
        // Lives until it is killed; what it leaves running does, too.
        ("sleeping", _) => {
            println!("sleeping {}", getpid());
            loop {
                sleep(Duration::from_secs(3600));
            }
        }
        // Sends back what it reads, on standard output and, turned round, on standard error.
        ("echo", _) => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            io::stdout().write_all(&bytes)?;
            bytes.reverse();
            io::stderr().write_all(&bytes)
        }
        ("replaced", _) => replaced(attempts),
        ("apart", _) => apart(attempts),
        ("named", name) => {
            set_name(&CString::new(name)?)?;
            attempt_all(attempts)
        }
        ("outside", _) => match attempts {
            [file, socket, peer] => {
                outside::live(Path::new(file), Path::new(socket), &peer.to_string_lossy())
            }
            _ => Err(io::Error::other("outside FILE SOCKET PEER")),
        },
        _ => Err(io::Error::other(format!("no shape {shape}"))),
    }
}

/// An attempt in a process of another shape: `as SHAPE VERB ARGUMENT...`.
pub(super) const VERBS: &[(&str, Verb)] = &[
    ("all", |a| {
        // Several, each after a comma, until one fails.
        for words in a.split(|word| word == ",").skip(1) {
            let (verb, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
            super::attempt(&verb.to_string_lossy(), arguments)?;
        }
        Ok(())
    }),
    ("as", |a| {
        let (shape, attempt) = a
            .split_first()
            .ok_or_else(|| io::Error::other("no shape"))?;
        let mut child = probe()?;
        child
            .arg(shape)
            .arg("+")
            .args(attempt)
            .stdin(Stdio::piped());
        let output = child.output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match said.trim() {
            "0 ok" => Ok(()),
            "0 EACCES" => Err(nix::errno::Errno::EACCES.into()),
            other => Err(io::Error::other(other.to_owned())),
        }
    }),
];

fn apart(attempts: &[OsString]) -> io::Result<()> {
    /// An attempt takes no longer.
    const PATIENCE: Duration = Duration::from_secs(300);
    for (number, words) in attempts.split(|word| word == "+").skip(1).enumerate() {
        let mut child = probe()?
            .arg(format!("named:try-{number}"))
            .arg("+")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        println!("{number} pid {}", child.id());
        let (sender, receiver) = std::sync::mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // Who inherited the pipe may keep it open for longer than we want to wait.
            std::thread::spawn(move || {
                let mut line = String::new();
                let _ = io::BufReader::new(stdout).read_line(&mut line);
                let _ = sender.send(line);
            });
        }
        let said = receiver.recv_timeout(PATIENCE).unwrap_or_default();
        println!(
            "{number} {}",
            said.trim().strip_prefix("0 ").unwrap_or("no end")
        );
        sleep(Duration::from_millis(10));
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(())
}

fn child(shape: &str, attempts: &[OsString]) -> io::Result<()> {
    let status = probe()?.arg(shape).args(attempts).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(status.to_string()))
    }
}

fn own_cgroup() -> io::Result<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let path = text
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .ok_or_else(|| io::Error::other("no cgroup v2"))?;
    Ok(PathBuf::from("/sys/fs/cgroup").join(path))
}
