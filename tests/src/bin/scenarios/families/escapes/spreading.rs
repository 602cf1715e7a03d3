//! What is done in namespaces of a sandbox's own and shows in others; and packets and names that lead outside by a way of
//! their own.

use std::{
    cell::RefCell,
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::{
    harness::{
        Attempt, Escape, Expected, Ground, Outcome, Policy, Problems, Run, Try, allow, attempt,
        deny, wait_for, way,
    },
    scenarios,
};

scenarios![
    no_mount_outside_is_changed_from_a_namespace_of_its_own,
    what_is_mounted_on_in_any_namespace_stays_where_it_is,
    no_packet_takes_a_device_of_the_sandbox_s_choice,
    a_denied_abstract_name_is_not_taken,
    the_first_process_is_not_controlled_by_opensafe,
];

const SCRIPT: &str = include_str!("spreading.py");

fn by_script(what: &'static str, name: &str, place: impl Into<String>) -> Try {
    let place = place.into();
    way(what, tried(name, &place)).or_ends("status 13")
}

fn tried(name: &str, place: &str) -> Attempt {
    attempt("command", &["python3", "-c", SCRIPT, name, place])
}

const MOUNTS: [(&str, &str); 9] = [
    ("a tree with shared mounts in it is unmounted", "detach"),
    (
        "a tree around one is, its own root made private",
        "detach-around",
    ),
    ("a directory is bound onto a shared mount", "bind"),
    ("a file system is mounted on one", "tmpfs"),
    ("one is unmounted", "unmount"),
    ("a mount beneath another, made private", "beneath"),
    (
        "a directory goes on which something is mounted outside",
        "remove-directory",
    ),
    (
        "a file goes on which something is mounted outside",
        "remove-file",
    ),
    ("a directory takes the name of one", "rename-over"),
];

/// A shared mount for each of [`MOUNTS`], with a mount on it, a file that is bound over, and a directory, each below a mount
/// of its own that is private.
fn mounts() -> Result<Ground> {
    let mut ground = Ground::new()?;
    for (_, name) in MOUNTS {
        let around = ground.path(name);
        let place = around.join("shared");
        let tmpfs = |at: &std::path::Path| {
            std::fs::create_dir_all(at)?;
            mount(Some("x"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
            anyhow::Ok(())
        };
        tmpfs(&around)?;
        tmpfs(&place)?;
        mount(
            None::<&str>,
            &place,
            None::<&str>,
            MsFlags::MS_SHARED,
            None::<&str>,
        )?;
        tmpfs(&place.join("sub"))?;
        std::fs::create_dir(place.join("directory"))?;
        for file in ["file", "other"] {
            std::fs::write(place.join(file), file)?;
        }
        let bind = MsFlags::MS_BIND;
        mount(
            Some(&place.join("other")),
            &place.join("file"),
            None::<&str>,
            bind,
            None::<&str>,
        )?;
        ground.undo(move || {
            let _ = umount2(&around, MntFlags::MNT_DETACH);
        });
    }
    Ok(ground)
}

fn no_mount_outside_is_changed_from_a_namespace_of_its_own() -> Result<Outcome> {
    let ways = |ground: &Ground| {
        let place = |name: &str| format!("{}/shared", ground.text(name));
        let mut ways: Vec<Try> = MOUNTS
            .iter()
            .map(|(what, name)| {
                let way = by_script(what, name, place(name));
                if *name == "beneath" {
                    way.where_there_is("MOVE_MOUNT_BENEATH, Linux 6.5")
                } else {
                    way
                }
            })
            .collect();
        let elsewhere = place("bind");
        ways.extend([
            by_script(
                "debugfs for everyone, with other options",
                "debugfs",
                &elsewhere,
            ),
            by_script("tracefs", "tracefs", &elsewhere),
            by_script("cgroup2", "cgroup2", &elsewhere),
            by_script(
                "a controller, by cgroup's first version",
                "cgroup-controller",
                &elsewhere,
            )
            .where_there_is("a controller that cgroup2 does not use"),
            by_script(
                "a hierarchy of cgroup's first version",
                "cgroup-named",
                &elsewhere,
            ),
            by_script("the same by fsconfig(2)", "cgroup-by-parameter", &elsewhere),
            by_script(
                "debugfs, by fsconfig(2)",
                "debugfs-by-parameter",
                &elsewhere,
            ),
            by_script(
                "binfmt_misc of a user namespace's own",
                "binfmt",
                &elsewhere,
            )
            .where_there_is("binfmt_misc in user namespaces, Linux 6.7"),
            by_script("the label of the host's file system", "label", &elsewhere)
                .where_there_is("a file system with a label"),
            by_script("its free blocks", "trim", &elsewhere)
                .where_there_is("a device that discards blocks"),
        ]);
        ways
    };
    let controllers = || fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
    let before = controllers()?;
    // Those that were taken outside come back when the kernel finds the time.
    let ground = || {
        wait_for("the controllers of cgroup2", || {
            controllers().is_ok_and(|now| now == before)
        })?;
        mounts()
    };
    let after = |ground: &Ground, problems: &mut Problems| {
        problems.equal(
            "the controllers of cgroup2",
            controllers().unwrap_or_default(),
            before.clone(),
        );
        for (what, name) in MOUNTS {
            let place = ground.path(name).join("shared");
            let read = std::fs::read_to_string(place.join("file"));
            problems.check(read.is_ok_and(|text| text == "other"), || {
                format!("{what}: the bound file outside is another")
            });
            problems.check(
                place.join("sub").is_dir() && place.join("directory").is_dir(),
                || format!("{what}: a directory outside is gone"),
            );
        }
    };
    let mut escape = Escape::new(&ground, &|_| Policy::open(), &ways);
    escape.after = &after;
    escape.check("spreading.mounts")
}

/// A process with mounts of its own, which the namespace that runs start in does not have.
struct Elsewhere {
    ground: Ground,
    process: u32,
}

/// What it mounts on, and what is put beside.
const MOUNTED_ON: [&str; 5] = ["directory", "file", "replaced", "moved", "exchanged"];

impl Elsewhere {
    fn new() -> Result<Self> {
        let mut ground = Ground::new()?;
        ground.file("ws/file")?;
        for name in [
            "directory",
            "replaced",
            "moved",
            "exchanged",
            "one",
            "other",
        ] {
            ground.directory(&format!("ws/{name}"))?;
        }
        const SCRIPT: &str = "cd \"$0\" && mount --bind /etc/hostname file \
            && for at in directory replaced moved exchanged; do mount -t tmpfs x $at || exit; done \
            && echo mounted && exec sleep infinity";
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT])
            .arg(ground.path("ws"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let (process, stdout) = (child.id(), child.stdout.take().context("no output")?);
        let child = RefCell::new(child);
        ground.undo(move || {
            let _ = child.borrow_mut().kill();
            let _ = child.borrow_mut().wait();
        });
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "mounted\n", "it could not mount: {line:?}");
        Ok(Self { ground, process })
    }
}

fn what_is_mounted_on_in_any_namespace_stays_where_it_is() -> Result<Outcome> {
    let ways = |elsewhere: &Elsewhere| {
        let t = |name: &str| elsewhere.ground.text(&format!("ws/{name}"));
        let on =
            |what, attempt| way(what, attempt).on_record(Expected::operation("mount", "umount"));
        vec![
            on(
                "a directory is removed",
                attempt("rmdir", &[t("directory")]),
            ),
            on("a file is removed", attempt("unlink", &[t("file")])),
            on(
                "a directory takes the name of one",
                attempt("rename", &[t("one"), t("replaced")]),
            ),
            on(
                "one takes another name",
                attempt("rename", &[t("moved"), t("elsewhere")]),
            ),
            on(
                "one changes places with another",
                attempt("exchange", &[t("exchanged"), t("other")]),
            ),
        ]
    };
    let after = |elsewhere: &Elsewhere, problems: &mut Problems| {
        let mounts = format!("/proc/{}/mountinfo", elsewhere.process);
        let mounts = fs::read_to_string(mounts).unwrap_or_default();
        for name in MOUNTED_ON {
            let point = format!(" {} ", elsewhere.ground.text(&format!("ws/{name}")));
            problems.check(mounts.contains(&point), || {
                format!("what was mounted on {name} outside is gone")
            });
        }
    };
    let mut escape = Escape::new(&Elsewhere::new, &|_| Policy::open(), &ways);
    escape.after = &after;
    escape.check("spreading.elsewhere")
}

fn no_packet_takes_a_device_of_the_sandbox_s_choice() -> Result<Outcome> {
    const DEVICE: &str = "escape1";
    let ip = |arguments: &[&str]| {
        let _ = Command::new("ip")
            .args(arguments)
            .stderr(std::process::Stdio::null())
            .status();
    };
    let ground = || {
        let mut ground = Ground::new()?;
        ip(&["link", "add", DEVICE, "type", "dummy"]);
        ip(&["link", "set", DEVICE, "up"]);
        ground.undo(move || ip(&["link", "delete", DEVICE]));
        Ok(ground)
    };
    // Loopback addresses are what every agent may contact.
    let policy = |_: &Ground| {
        Policy::open()
            .default("connect", "deny")
            .rule(allow("loopback").connect("127.0.0.0/8"))
            .rule(allow("loopback-6").connect("::1"))
    };
    let ways = |_: &Ground| {
        vec![
            by_script("SO_BINDTODEVICE", "device-by-name", ""),
            by_script("SO_BINDTOIFINDEX", "device-by-number", ""),
            by_script("IP_UNICAST_IF", "device-for-sends", ""),
            by_script("IPV6_UNICAST_IF", "device-for-sends-6", ""),
            by_script("IPV6_PKTINFO as an option", "device-kept", ""),
            by_script("SO_DONTROUTE", "past-routes", ""),
            by_script("IP_PKTINFO with a packet", "device-with-packet", DEVICE)
                .where_there_is("the module dummy"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("spreading.devices")
}

fn a_denied_abstract_name_is_not_taken() -> Result<Outcome> {
    const NAME: &str = "escape-spreading";
    let policy = |_: &Ground| Policy::open().rule(deny("theirs").connect(format!("unix:@{NAME}*")));
    let ways = |_: &Ground| vec![by_script("bind(2)", "abstract-name", format!("{NAME}-1"))];
    Escape::new(&Ground::new, &policy, &ways).check("spreading.names")
}

fn the_first_process_is_not_controlled_by_opensafe() -> Result<Outcome> {
    // PTRACE_TRACEME; a child of its own may be controlled.
    const TRACED: &str = r"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    os._exit(libc.ptrace(0, 0, 0, 0) != 0)
print('child', os.waitpid(child, 0)[1])
print('self', libc.ptrace(0, 0, 0, 0))
";
    let finished = Run::new(&Policy::open())?.run(&["python3", "-c", TRACED])?;
    let mut problems = Problems::default();
    problems.equal(
        "what it said",
        finished.text().as_str(),
        "child 0\nself -1\n",
    );
    problems.equal("the status", finished.code(), 0);
    let denials: Vec<_> = finished
        .sound()?
        .denials()
        .map(|line| line.text("opensafe.rule.id"))
        .collect();
    problems.equal("the denials", denials, vec!["defaults.ptrace"]);
    problems.outcome()
}
