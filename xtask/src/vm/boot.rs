//! Starts qemu on a guest, carries its output here, and says how it ended.
//!
//! Each of the guest's streams is a virtio port: exact bytes, no terminal in between, kernel messages apart. qemu gets
//! the pipes of this program as its standard output and input (it writes to both), so no path or socket is needed.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{Guest, Outcome, Show, image, kernel::Kernel, kvm};
use crate::{
    repo::{self, say},
    run::{find, quietly},
    setup,
};

const INIT: &[u8] = include_bytes!("../../guest/init");
/// The exit status of what took too long, as in timeout(1).
const TOO_LONG: u8 = 124;
/// The exit status of what wrote where nobody reads: 128 + SIGPIPE.
const UNREAD: u8 = 141;
/// How often a guest is started at most, if it ends in the panic which emulation brings about now and then.
const BOOTS: u32 = 4;

/// Runs a guest to its end.
pub(super) fn run(guest: &Guest, kernel: &Kernel, root: &Path) -> Result<Outcome> {
    let run = Run::new()?;
    let disks = run.disks(guest, kernel, root)?;
    let kvm = !guest.icount && kvm::answers(kernel)?;
    let mut boots = 1;
    loop {
        let mut stdout = Vec::new();
        let end = run.boot(guest, kernel, &disks, kvm, &mut stdout)?;
        let console = run.keep_console(&match boots {
            1 => guest.name.clone(),
            again => format!("{}-{again}", guest.name),
        })?;
        let status = match end {
            End::Exited(status) => status,
            End::TooLong => {
                let seconds = guest.timeout.as_secs();
                say(format_args!("{}: stopped after {seconds} s", guest.kernel));
                TOO_LONG
            }
            End::Panicked if boots < BOOTS => {
                say(format_args!(
                    "{}: a panic that emulation brings about (int3 in {}); booting again",
                    guest.name,
                    console.display()
                ));
                boots += 1;
                continue;
            }
            End::Panicked | End::Vanished => bail!(before_its_command(&console)),
        };
        run.bring_back(&guest.out)?;
        return Ok(Outcome {
            status,
            stdout,
            console,
        });
    }
}

/// What is said of a guest that ended before its command did.
fn before_its_command(console: &Path) -> String {
    let last = tail(console);
    if last.trim().is_empty() {
        return "the guest ended before its command did, and said nothing: was qemu ended, or its disks removed?"
            .to_owned();
    }
    format!(
        "the guest ended before its command did; {} has all, and ends:\n{last}",
        console.display()
    )
}

/// How a boot ended.
enum End {
    /// The command's exit status.
    Exited(u8),
    /// By the panic that emulation brings about, where it can start again.
    Panicked,
    /// In any other way before the command ended.
    Vanished,
    TooLong,
}

/// A disk, known in the guest by its serial.
struct Disk {
    serial: String,
    image: PathBuf,
    writable: bool,
}

/// The folder of one guest's run, deleted at its end.
pub(super) struct Run {
    folder: PathBuf,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Run {
    pub(super) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let runs = repo::vm().join("runs");
        // What was killed could not clean up.
        for entry in fs::read_dir(&runs).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name
                .to_string_lossy()
                .split('-')
                .next()
                .map(|process| Path::new("/proc").join(process));
            if process.is_some_and(|process| !process.exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = runs.join(format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { folder })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the images that are this run's own.
    fn disks(&self, guest: &Guest, kernel: &Kernel, root: &Path) -> Result<Vec<Disk>> {
        let read_only = |serial: &str, image: PathBuf| Disk {
            serial: serial.into(),
            image,
            writable: false,
        };
        let mut disks = vec![
            Disk {
                serial: "root".into(),
                image: root.into(),
                writable: true,
            },
            read_only("modules", kernel.modules.clone()),
        ];
        let payload = self.file("payload");
        fs::create_dir_all(payload.join("bin"))?;
        for (name, file) in &guest.programs {
            fs::copy(file, payload.join("bin").join(name))
                .with_context(|| file.display().to_string())?;
        }
        let policies = repo::root().join("policies");
        if policies.exists() {
            quietly(
                Command::new("cp")
                    .arg("-r")
                    .arg(policies)
                    .arg(payload.join("policies")),
            )?;
        }
        let busybox = setup::busybox().context("a static busybox is missing")?;
        fs::copy(&busybox, payload.join("busybox"))
            .with_context(|| busybox.display().to_string())?;
        fs::write(payload.join("init"), INIT)?;
        fs::write(
            payload.join("command"),
            guest
                .command
                .iter()
                .flat_map(|word| [word, "\0"])
                .collect::<String>(),
        )?;
        if !guest.ports.is_empty() {
            fs::write(payload.join("network"), "")?;
        }
        let mut shares = String::new();
        for (number, share) in guest.share.iter().enumerate() {
            let share = share
                .canonicalize()
                .with_context(|| share.display().to_string())?;
            let name = share
                .file_name()
                .with_context(|| format!("{} has no name", share.display()))?;
            let serial = format!("share{number}");
            let image = self.file(&serial);
            image::ext4(&share, &image)?;
            shares += &format!("{serial} {}\n", name.to_string_lossy());
            disks.push(read_only(&serial, image));
        }
        fs::write(payload.join("shares"), shares)?;
        let image = self.file("payload.img");
        image::ext4(&payload, &image)?;
        disks.push(read_only("payload", image));
        Ok(disks)
    }

    fn boot(
        &self,
        guest: &Guest,
        kernel: &Kernel,
        disks: &[Disk],
        kvm: bool,
        kept: &mut Vec<u8>,
    ) -> Result<End> {
        let (from_out, to_out) = io::pipe()?;
        let (from_err, to_err) = io::pipe()?;
        let mut qemu = self.qemu(guest, kernel, disks, kvm)?;
        qemu.stdin(to_err)
            .stdout(to_out)
            .stderr(File::create(self.file("qemu"))?);
        let child = qemu.spawn().context("qemu-system-x86_64")?;
        // It holds the pipes' other ends, which qemu alone should.
        drop(qemu);
        let unread = AtomicBool::new(false);
        let carried = |carried: Result<Vec<u8>>| {
            carried
                .inspect_err(|_| unread.store(true, Ordering::Relaxed))
                .unwrap_or_default()
        };
        let stopped = thread::scope(|scope| {
            let out = scope.spawn(|| carried(carry(from_out, &mut io::stdout(), &guest.show)));
            let err = scope.spawn(|| carried(carry(from_err, &mut io::stderr(), &guest.show)));
            let stopped = wait(child, guest.timeout, &unread);
            *kept = out.join().unwrap_or_default();
            let _ = err.join();
            stopped
        })?;
        let status = fs::read_to_string(self.file("status")).unwrap_or_default();
        if let Some(status) = status.lines().find_map(|line| line.strip_prefix("exit ")) {
            return Ok(End::Exited(
                status
                    .trim()
                    .parse()
                    .with_context(|| format!("exit status {status}"))?,
            ));
        }
        match stopped {
            Some(Stopped::TooLong) => return Ok(End::TooLong),
            Some(Stopped::Unread) => return Ok(End::Exited(UNREAD)),
            None => {}
        }
        let said = fs::read_to_string(self.file("qemu")).unwrap_or_default();
        if !said.is_empty() {
            bail!("qemu: {}", said.trim());
        }
        let console = fs::read(self.file("console")).unwrap_or_default();
        let known = !kvm && stale_breakpoint(&String::from_utf8_lossy(&console));
        Ok(if known && (status.is_empty() || guest.repeatable) {
            End::Panicked
        } else {
            End::Vanished
        })
    }

    fn qemu(&self, guest: &Guest, kernel: &Kernel, disks: &[Disk], kvm: bool) -> Result<Command> {
        let cpus = guest.cpus.unwrap_or(if guest.icount { 1 } else { 2 });
        // Emulated string instructions go byte by byte; the kernel has loops for processors without fast ones.
        const EMULATED: &str = "max,-erms,-fsrm";
        let (cpu, accel) = match (kvm, guest.icount) {
            (_, true) => (EMULATED, "tcg,thread=single"),
            (true, _) => ("host", "kvm"),
            (false, _) => (EMULATED, "tcg,thread=multi"),
        };
        let mut qemu = bare_qemu(kernel, &guest.cmdline, &self.file("console"));
        qemu.env("TMPDIR", &self.folder);
        qemu.args([
            "-cpu",
            cpu,
            "-accel",
            accel,
            "-smp",
            &cpus.to_string(),
            "-m",
            &guest.memory.to_string(),
        ]);
        if guest.icount {
            qemu.args(["-icount", "shift=0,sleep=off"]);
        }
        for (
            number,
            Disk {
                serial,
                image,
                writable,
            },
        ) in disks.iter().enumerate()
        {
            // The writable one forgets at the end what was written to it.
            let way = if *writable {
                "snapshot=on,cache=unsafe"
            } else {
                "read-only=on"
            };
            let image = quoted(image);
            qemu.args([
                "-drive",
                &format!("if=none,id=disk{number},format=raw,{way},file={image}"),
            ]);
            qemu.args([
                "-device",
                &format!("virtio-blk-pci,drive=disk{number},serial={serial}"),
            ]);
        }
        qemu.args(["-device", "virtio-serial-pci"]);
        let ports = [
            ("out", "/dev/fd/1".into()),
            ("err", "/dev/fd/0".into()),
            ("status", quoted(&self.file("status"))),
            ("results", quoted(&self.file("results"))),
        ];
        for (name, path) in ports {
            qemu.args(["-chardev", &format!("file,id={name},path={path}")]);
            qemu.args([
                "-device",
                &format!("virtserialport,chardev={name},name={name}"),
            ]);
        }
        if guest.ports.is_empty() {
            qemu.args(["-nic", "none"]);
        } else {
            let here = std::env::current_exe()?;
            let forward = |port| {
                format!(
                    ",guestfwd=tcp:10.0.2.100:{port}-cmd:{} relay {port}",
                    quoted(&here)
                )
            };
            let forwards: String = guest.ports.iter().map(forward).collect();
            qemu.args([
                "-nic",
                &format!("user,model=virtio-net-pci,restrict=on{forwards}"),
            ]);
        }
        Ok(qemu)
    }

    /// Unpacks what the command left in /out.
    fn bring_back(&self, out: &Path) -> Result<()> {
        let results = self.file("results");
        if fs::metadata(&results).map_or(0, |meta| meta.len()) == 0 {
            return Ok(());
        }
        fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        quietly(
            Command::new("tar")
                .args(["--no-same-owner", "--no-overwrite-dir", "-xf"])
                .arg(results)
                .arg("-C")
                .arg(out),
        )
        .map(drop)
    }

    /// Puts what the kernel said where it outlives the run.
    fn keep_console(&self, name: &str) -> Result<PathBuf> {
        let name = name.replace('/', "_");
        let kept = repo::target()
            .join("vm/console")
            .join(format!("{name}.log"));
        repo::write_if_changed(&kept, &fs::read(self.file("console")).unwrap_or_default())?;
        Ok(kept)
    }
}

/// qemu with a kernel and nothing else, which dies with this program.
pub(super) fn bare_qemu(kernel: &Kernel, cmdline: &str, console: &Path) -> Command {
    let mut qemu = Command::new(find("setpriv").unwrap_or_else(|| "setpriv".into()));
    qemu.args([
        "--pdeathsig",
        "KILL",
        "qemu-system-x86_64",
        "-no-user-config",
        "-nodefaults",
        "-no-reboot",
    ]);
    qemu.args(["-display", "none"]);
    qemu.arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&kernel.initramfs);
    qemu.args([
        "-append",
        &format!("console=ttyS0 quiet panic=-1 {cmdline}"),
    ]);
    qemu.args([
        "-chardev",
        &format!("file,id=console,path={}", quoted(console)),
        "-serial",
        "chardev:console",
    ]);
    qemu
}

/// A path as a value in qemu's comma-separated options.
fn quoted(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// Why qemu was stopped.
pub(super) enum Stopped {
    TooLong,
    /// Nobody reads its output any more.
    Unread,
}

/// Waits for qemu's end, and stops it if there is a reason to.
pub(super) fn wait(
    mut child: Child,
    at_most: Duration,
    unread: &AtomicBool,
) -> Result<Option<Stopped>> {
    let deadline = Instant::now() + at_most;
    while child.try_wait()?.is_none() {
        let reason = if unread.load(Ordering::Relaxed) {
            Stopped::Unread
        } else if Instant::now() > deadline {
            Stopped::TooLong
        } else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        child.kill()?;
        child.wait()?;
        return Ok(Some(reason));
    }
    Ok(None)
}

/// Brings a guest's stream here; gives back what was not shown as it is.
fn carry(mut from: impl Read, to: &mut impl Write, show: &Show) -> Result<Vec<u8>> {
    let mut kept = Vec::new();
    match show {
        Show::AsItIs => copy_unbuffered(&mut from, to)?,
        Show::Nothing => drop(from.read_to_end(&mut kept)?),
        Show::Lines(word) => {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line)? > 0 {
                kept.extend_from_slice(&line);
                let end = if line.ends_with(b"\n") { "" } else { "\n" };
                // One write for a line, so that two guests' lines do not mix.
                let shown = [format!("{word:>4} | ").as_bytes(), &line, end.as_bytes()].concat();
                to.write_all(&shown)?;
                to.flush()?;
                line.clear();
            }
        }
    }
    Ok(kept)
}

/// Copies, and lets the reader have each part at once.
pub(super) fn copy_unbuffered(from: &mut impl Read, to: &mut impl Write) -> Result<()> {
    let mut buffer = [0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(buffer.get(..count).unwrap_or_default())?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a kernel panicked over a breakpoint of its own. It puts one wherever it changes code that other processors may
/// be running, and takes it away afterwards; with a thread for each processor, qemu may run into it too late: about one
/// boot in twenty ends so.
fn stale_breakpoint(console: &str) -> bool {
    console.contains("Kernel panic") && console.contains("int3: 0000")
}

/// What the first programs said, then the end of what the kernel did.
fn tail(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let (start, end) = lines.split_at(lines.len().saturating_sub(20));
    let ours = start.iter().filter(|line| line.contains("opensafe:"));
    ours.chain(end).copied().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Show, carry, stale_breakpoint};

    #[test]
    fn lines_are_prefixed_and_kept() {
        let mut shown = Vec::new();
        let kept = carry(&b"one\ntwo"[..], &mut shown, &Show::Lines("6.1".into())).unwrap();
        assert_eq!(shown, b" 6.1 | one\n 6.1 | two\n");
        assert_eq!(kept, b"one\ntwo");
    }

    #[test]
    fn bytes_pass_as_they_are() {
        let mut shown = Vec::new();
        carry(&b"\xff\0\r\n\n"[..], &mut shown, &Show::AsItIs).unwrap();
        assert_eq!(shown, b"\xff\0\r\n\n");
    }

    #[test]
    fn only_the_known_panic_is_known() {
        assert!(stale_breakpoint(
            "Oops: int3: 0000 [#1]\nRIP: sched_clock_cpu+0x9\nKernel panic - not syncing: Fatal"
        ));
        assert!(!stale_breakpoint(
            "Kernel panic - not syncing: VFS: Unable to mount root fs"
        ));
    }
}
