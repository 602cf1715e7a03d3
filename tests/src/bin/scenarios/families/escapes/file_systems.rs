//! File systems that are mounted outside while a run goes on, and those with names longer than others have.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    fcntl::{OFlag, openat},
    mount::{MntFlags, MsFlags, mount, umount, umount2},
    sys::stat::{Mode, fstat},
};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsmount, fsopen,
    move_mount,
};

use crate::{
    harness::{
        Batch, Ground, Outcome, Policy, Problems, Run, allow, attempt, audit, deny, file, skipped,
        this_program, wait_for, write,
    },
    scenarios,
};

scenarios![
    a_file_system_that_takes_another_s_number_does_not_take_its_name,
    a_name_is_read_whole_however_long_it_is,
];

fn a_file_system_that_takes_another_s_number_does_not_take_its_name() -> Result<Outcome> {
    const READER: &str = include_str!("file_systems.py");
    let mut ground = Ground::new()?;
    for name in [
        "ws/own",
        "ws/disk",
        "ws/fresh",
        "secret/tmpfs",
        "secret/disk",
    ] {
        ground.directory(name)?;
        let point = ground.path(name);
        ground.undo(move || {
            let _ = umount2(&point, MntFlags::MNT_DETACH);
        });
    }
    let disk = Disk::new();
    match &disk {
        Ok(disk) => disk.mount(&ground.path("ws/disk"))?,
        Err(error) => println!("  left out: the number of a disk: {error:#}"),
    }
    let policy = Policy::open()
        .rule(deny("secret").below(ground.path("secret")))
        .rule(deny("here").file(ground.path("ws/own/here")))
        .rule(deny("anywhere").file_globs(&["/**/anywhere"]));
    let on_tmpfs = ground.text("secret/tmpfs/token");
    let on_disk = disk.as_ref().map_or("none", |disk| &disk.file);
    let on_disk = ground.text(&format!("secret/disk/{on_disk}"));
    let run = Run::new(&policy)?;
    let record = run.record_path().to_owned();
    let mut running = run.start(&[
        "python3",
        "-c",
        READER,
        &ground.text("ws/own"),
        &ground.text("ws/stop"),
        &ground.text("ws/fresh/token"),
        &on_tmpfs,
        &on_disk,
    ])?;
    let said = running.wait_for_output("gone ")?;
    let number = said.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    let number = number
        .filter(|number| *number != 0)
        .context("a tmpfs of the sandbox's own got no name")?;

    Tmpfs::with_number(number)?.attach(&ground.path("secret/tmpfs"))?;
    if let Ok(disk) = &disk {
        umount(&ground.path("ws/disk"))?;
        disk.mount(&ground.path("secret/disk"))?;
    }
    let mut problems = Problems::default();
    for (path, is_there) in [(&on_tmpfs, true), (&on_disk, disk.is_ok())] {
        problems.check(File::open(path).is_ok() == is_there, || {
            format!("outside, {path} cannot be read")
        });
        // When it has its own name, and is denied by that, `opensafe` has looked at the mounts again.
        let by_its_name = |line: &str| {
            line.contains(&format!("{path:?}")) && line.contains(r#""opensafe.rule.id":"secret""#)
        };
        if is_there {
            wait_for("a denial by its own name", || {
                let record = fs::read_to_string(&record).unwrap_or_default();
                record.lines().any(by_its_name)
            })?;
        }
    }
    // Should somebody read there, it is busy.
    umount2(&ground.path("secret/tmpfs"), MntFlags::MNT_DETACH)?;
    let fresh = Tmpfs::with_number(number)?;
    write(&ground.path("ws/stop"), "")?;
    running.wait_for_output("place ")?;
    fresh.attach(&ground.path("ws/fresh"))?;

    let finished = running.finish()?;
    let text = finished.text();
    for path in [&on_tmpfs, &on_disk] {
        let line = text.lines().find(|line| line.contains(path.as_str()));
        let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
        let &["place", _, read, tries] = words.as_slice() else {
            bail!("nothing is said about {path}: {text} {}", finished.said());
        };
        problems.equal("what was read", (path, read), (path, "0"));
        problems.check(tries != "0", || format!("{path} was never tried"));
    }
    problems.check(text.contains("fresh read"), || {
        format!("a new tmpfs at an open place stays without a name: {text}")
    });
    problems.outcome()
}

/// A tmpfs that is mounted nowhere yet, with a token in it.
struct Tmpfs(OwnedFd);

impl Tmpfs {
    /// One with this device number, which is free or becomes so in a moment: the lowest is given out first.
    fn with_number(number: u64) -> Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(20);
        let start = Instant::now();
        let mut others = Vec::new();
        while start.elapsed() < PATIENCE {
            let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            let flags = FsMountFlags::FSMOUNT_CLOEXEC;
            let made = fsmount(&context, flags, MountAttrFlags::empty())?;
            if fstat(&made)?.st_dev == number {
                let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
                let token = openat(
                    made.as_fd(),
                    "token",
                    flags,
                    Mode::from_bits_truncate(0o644),
                )?;
                File::from(token).write_all(b"content")?;
                return Ok(Self(made));
            }
            others.push(made);
            sleep(Duration::from_millis(20));
        }
        bail!("no tmpfs gets the number {number}")
    }

    fn attach(self, point: &Path) -> Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&self.0, "", rustix::fs::CWD, point, flags)?)
    }
}

/// The disk of the kernel's modules once more, as a loop device, which is gone when it is dropped.
struct Disk {
    device: String,
    /// A file on it.
    file: String,
}

impl Disk {
    fn new() -> Result<Self> {
        const MODULES: &str = "/usr/lib/modules";
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let source = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (source, point, kind) = (words.next()?, words.next()?, words.next()?);
            (point == MODULES && kind == "ext4").then_some(source)
        });
        let source = source.context("the modules are on no disk of their own")?;
        let release = nix::sys::utsname::uname()?.release().display().to_string();
        let file = format!("{release}/modules.dep");
        ensure!(
            Path::new(MODULES).join(&file).exists(),
            "the modules have no index"
        );
        let _ = Command::new("modprobe").args(["--quiet", "loop"]).status();
        let output = Command::new("losetup")
            .args(["--find", "--show", "--read-only", source])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "no loop device: {said}");
        let device = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Self { device, file })
    }

    fn mount(&self, point: &Path) -> Result<()> {
        let (device, kind) = (Some(self.device.as_str()), Some("ext4"));
        // It is clean, and nothing can be written to it.
        Ok(mount(
            device,
            point,
            kind,
            MsFlags::MS_RDONLY,
            Some("noload"),
        )?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .status();
    }
}

/// A file system in which every name is a file.
struct Names {
    ground: Ground,
}

impl Names {
    /// `None` if the kernel has no FUSE.
    fn new() -> Result<Option<Self>> {
        const SERVER: &str = include_str!("fuse.py");
        let mut ground = Ground::new()?;
        let point = ground.directory("names")?;
        // Where it is a module, there is no device before it is loaded.
        let _ = Command::new("modprobe").args(["--quiet", "fuse"]).status();
        if !Path::new("/dev/fuse").exists() {
            return Ok(None);
        }
        let mut server = Command::new("python3")
            .args(["-c", SERVER, &point])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = server.stdout.take().context("no output")?;
        let server = RefCell::new(server);
        ground.undo(move || {
            let _ = umount2(point.as_str(), MntFlags::MNT_DETACH);
            let _ = server.borrow_mut().kill();
            let _ = server.borrow_mut().wait();
        });
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "mounted\n", "it is not mounted: {line:?}");
        Ok(Some(Self { ground }))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.ground.path("names").join(name)
    }
}

fn a_name_is_read_whole_however_long_it_is() -> Result<Outcome> {
    // Below and above what one, two and three bytes of a length tell apart from others; the last but one is that of 255
    // characters of three bytes.
    const LENGTHS: [usize; 7] = [5, 255, 256, 304, 512, 765, 1000];
    let Some(names) = Names::new()? else {
        return skipped("this kernel has no FUSE");
    };
    let of_length = |length: usize, end: &str| -> PathBuf {
        names.path(&format!("{}{end}", "x".repeat(length - end.len())))
    };
    let policy = Policy::open()
        .rule(deny("keys").file_globs(&["/**/*.key"]))
        .rule(audit("notes").file_globs(&["/**/*.txt"]));
    let mut batch = Batch::new(&policy)?;
    for length in LENGTHS {
        for (end, rule) in [(".key", "keys"), (".txt", "notes")] {
            let path = of_length(length, end);
            ensure!(
                fs::read(&path).is_ok_and(|content| content == b"content"),
                "outside, a name of {length} bytes cannot be read"
            );
            let (tried, expected) = (attempt("read", &[&path]), file(rule, &path, "read"));
            match rule {
                "keys" => batch.denied(tried, expected),
                _ => batch.audited(tried, expected),
            }
        }
    }
    let (_, mut problems) = batch.run()?;

    // Where one name is allowed, a longer one that begins with it is not.
    let policy = Policy::open()
        .default("file", "deny")
        .programs_can_start()
        .rule(allow("program").file(this_program()?))
        .rule(allow("one").file(names.path("ok")));
    let mut batch = Batch::new(&policy)?;
    batch.works(attempt("read", &[names.path("ok")]));
    for more in [1, 256, 512] {
        let path = names.path(&format!("ok{}", "x".repeat(more)));
        batch.denied(
            attempt("read", &[&path]),
            file("defaults.file", &path, "read"),
        );
    }
    problems.add(batch.run()?.1);
    problems.outcome()
}
