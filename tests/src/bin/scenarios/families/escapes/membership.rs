//! Leaving the sandbox, and doing through others, through mounts or through the kernel what is denied inside.

use std::{fs, os::fd::OwnedFd, process::Command};

use anyhow::Result;

use crate::{
    harness::{
        Attempt, Batch, Escape, Expected, Ground, Outcome, Policy, Problems, Try, attempt, deny,
        file, steps, this_program, wait_for, way,
    },
    scenarios,
};

scenarios![
    leaving_the_cgroup_in_any_way_leaves_no_rule_behind,
    who_may_be_born_in_another_cgroup_keeps_its_policy,
    a_process_outside_is_neither_read_nor_changed_nor_signalled,
    who_watches_is_neither_stopped_nor_killed,
    nothing_is_typed_into_the_terminal_outside,
    the_terminal_outside_stays_fit_for_who_uses_it_next,
    what_is_done_to_a_terminal_of_its_own_is_its_own_affair,
    no_terminal_is_taken_from_a_session_outside,
    nobody_outside_is_made_to_wait,
    mounts_of_the_processes_outside_stay_as_they_are,
    the_kernel_is_not_asked_to_do_it,
    a_run_in_a_run_allows_nothing_more,
    the_ways_of_root_are_closed_by_the_policy_that_ships,
];

const NO_PEER: &str = "127.0.0.1:1";

fn policy(ground: &Ground) -> Policy {
    Policy::open().rule(deny("secret").below(ground.path("secret")))
}

fn read_secret(ground: &Ground) -> Expected {
    file("secret", ground.path("secret/token"), "read")
}

/// clone3(2) with CLONE_INTO_CGROUP (include/uapi/linux/sched.h) and SIGCHLD: the child becomes the command; its exit
/// status is ours.
const BORN_ELSEWHERE: &str = r"
import ctypes, os, struct, sys
cgroup = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
arguments = struct.pack('11Q', 0x200000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, cgroup)
child = ctypes.CDLL(None, use_errno=True).syscall(435, arguments, len(arguments))
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
if child < 0:
    sys.exit(9)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

fn leaving_the_cgroup_in_any_way_leaves_no_rule_behind() -> Result<Outcome> {
    let ground = || {
        let mut ground = Ground::new()?;
        let other = "/sys/fs/cgroup/escape-outside";
        fs::create_dir_all(other)?;
        ground.undo(move || {
            let _ = fs::remove_dir(format!("{other}/made"));
            let _ = fs::remove_dir(other);
        });
        ground.directory("ws/cg")?;
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let token = ground.text("secret/token");
        let moved = |what, to: &str| -> Try {
            let both: Attempt = steps(&[&["move-to-cgroup", to], &["read", &token]]);
            way(what, both)
        };
        let own = ground.text("ws/cg");
        vec![
            moved("g-48 into the root cgroup", "/sys/fs/cgroup"),
            moved("g-48 into a cgroup beside it", "/sys/fs/cgroup/escape-outside"),
            way(
                "g-48 into the parent",
                steps(&[&["move-to-parent-cgroup"][..], &["read", &token]]),
            ),
            way(
                "g-48 by a mount of its own of the cgroups",
                steps(&[
                    &["private-bind", "/sys/fs/cgroup", &own][..],
                    &["move-to-cgroup", &own],
                    &["read", &token],
                ]),
            ),
            way(
                "a child born outside (CLONE_INTO_CGROUP)",
                attempt(
                    "command",
                    &["python3", "-c", BORN_ELSEWHERE, "/sys/fs/cgroup/escape-outside", "/usr/bin/cat", &token],
                ),
            )
            .or_ends("status 9")
            .on_record(Expected::operation("cgroup", "CLONE_INTO_CGROUP")),
            way(
                "a child that reads nothing, born in the root cgroup",
                attempt(
                    "command",
                    &["python3", "-c", BORN_ELSEWHERE, "/sys/fs/cgroup", "/usr/bin/true"],
                ),
            )
            .or_ends("status 9")
            .on_record(Expected::operation("cgroup", "CLONE_INTO_CGROUP")),
            way(
                "a child of one who left",
                steps(&[
                    &["move-to-cgroup", "/sys/fs/cgroup/escape-outside"],
                    &["command", "cat", &token][..],
                ]),
            )
            .or_ends("status 1"),
            way("g-47 a daemon in its own session", attempt("as", &["daemon", "read", &token]))
                .by_anyone()
                .on_record(read_secret(ground)),
            way("a cgroup of its own", attempt("command", &[
                "sh", "-c",
                &format!(
                    "d=/sys/fs/cgroup$(sed s/0::// /proc/self/cgroup)/own-$$; mkdir $d && echo 0 >$d/cgroup.procs && cat {token}"
                ),
            ]))
            .or_ends("status 1")
            .or_ends("status 2"),
            way(
                "a control file of a cgroup outside",
                attempt("write-file", &["/sys/fs/cgroup/escape-outside/cgroup.freeze", "0"]),
            ),
            way("a cgroup in one outside", attempt("mkdir", &["/sys/fs/cgroup/escape-outside/made"])),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("membership.cgroup")
}

fn who_may_be_born_in_another_cgroup_keeps_its_policy() -> Result<Outcome> {
    let ground = Ground::new()?;
    let policy = policy(&ground).default("cgroup", "allow");
    let born = |command: &[&str]| {
        let words = ["python3", "-c", BORN_ELSEWHERE, "/sys/fs/cgroup"];
        attempt("command", &[&words, command].concat())
    };
    let mut batch = Batch::new(&policy)?;
    // It says where it is, or fails.
    batch.works(born(&["/usr/bin/grep", "-qx", "0::/", "/proc/self/cgroup"]));
    let token = ground.text("secret/token");
    batch.fails(born(&["/usr/bin/cat", &token]), "status 1");
    let (finished, mut problems) = batch.run()?;
    let expected = read_secret(&ground);
    let mut denials = finished.record.denials();
    problems.check(denials.any(|line| expected.is_shown_by(line)), || {
        format!("not on record: {expected}")
    });
    problems.outcome()
}

fn a_process_outside_is_neither_read_nor_changed_nor_signalled() -> Result<Outcome> {
    /// Those that an attempt may stop or end, beside one for all the others.
    const HELPERS: usize = 5;
    let ground = || {
        let mut ground = Ground::new()?;
        for _ in 0..HELPERS {
            ground.helper("secret/token", NO_PEER)?;
        }
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let (one, address) = (&ground.outside(0).process, &ground.outside(0).address);
        let on = |what, verb| way(what, attempt(verb, &[one]));
        let at = |what, verb| way(what, attempt(verb, &[one, address]));
        let signal = |what, verb, to: usize, name: &str| {
            way(what, attempt(verb, &[&ground.outside(to).process, name]))
        };
        vec![
            at("g-50 process_vm_readv", "vm-read"),
            at("g-50 process_vm_writev", "vm-write"),
            at("g-50 /proc/PID/mem, read", "mem-read"),
            at("g-50 /proc/PID/mem, written", "mem-write"),
            way(
                "pidfd_getfd",
                attempt("read-stolen", &[one, &ground.outside(0).descriptor]),
            ),
            way(
                "its environment",
                attempt("read", &[format!("/proc/{one}/environ")]),
            ),
            on("prlimit", "limit"),
            on("sched_setaffinity", "affinity"),
            on("setpriority", "priority"),
            on("sched_setscheduler", "schedule"),
            on("ioprio_set", "io-priority"),
            on("move_pages", "move-memory").where_there_is("CONFIG_NUMA"),
            on("perf_event_open", "perf"),
            on("g-50 PTRACE_ATTACH", "ptrace-attach"),
            on("g-50 PTRACE_SEIZE", "ptrace-seize"),
            signal("kill: SIGSTOP", "signal", 1, "SIGSTOP"),
            signal("kill: SIGKILL", "signal", 2, "SIGKILL"),
            signal(
                "pidfd_send_signal: SIGTERM",
                "signal-by-descriptor",
                3,
                "SIGTERM",
            ),
            signal(
                "F_SETOWN: SIGSTOP by the kernel",
                "signal-by-owner",
                4,
                "SIGSTOP",
            ),
        ]
    };
    let after = |ground: &Ground, problems: &mut Problems| {
        for number in 0..HELPERS {
            problems.check(ground.outside(number).is_well(), || {
                format!("process {number} outside was stopped or ended")
            });
        }
    };
    Escape {
        after: &after,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("membership.processes")
}

fn who_watches_is_neither_stopped_nor_killed() -> Result<Outcome> {
    let ground = Ground::new;
    // Outside there is nobody who watches: there, it is a shell of that name.
    let outside = |_: &Ground| -> Vec<String> {
        let name =
            "exec -a opensafe bash -c 'printf opensafe >/proc/self/comm; \"$@\"; true' bash \"$@\"";
        ["bash", "-c", name, "bash"].map(str::to_owned).to_vec()
    };
    let ways = |_: &Ground| {
        let on = |what, verb: &str| way(what, attempt(verb, &["supervisor"]));
        let signal = |what, verb: &str, name: &str| way(what, attempt(verb, &["supervisor", name]));
        vec![
            on("ptrace: PTRACE_ATTACH", "ptrace-attach"),
            on("prlimit", "limit"),
            signal(
                "kill: SIGWINCH, which it would live with",
                "signal",
                "SIGWINCH",
            ),
            signal(
                "pidfd_send_signal: SIGCONT",
                "signal-by-descriptor",
                "SIGCONT",
            ),
        ]
    };
    Escape {
        outside: &outside,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("membership.supervisor")
}

fn nothing_is_typed_into_the_terminal_outside() -> Result<Outcome> {
    // On a terminal of its own, which is the one that the run is started on.
    let on_a_terminal = |_: &Ground| -> Vec<String> {
        let script = "exec script -qec \"$(printf '%q ' \"$@\")\" /dev/null";
        ["bash", "-c", script, "bash"].map(str::to_owned).to_vec()
    };
    let run = |ground: &Ground, run: crate::harness::Run| run.wrapped(&on_a_terminal(ground));
    let ways = |_: &Ground| vec![way("TIOCSTI", attempt::<&str>("type-into-terminal", &[]))];
    let ground = Ground::new;
    Escape {
        run: &run,
        outside: &on_a_terminal,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("membership.terminal")
}

/// A command on a terminal of its own as standard input, which may be hung up: what it prints goes elsewhere.
const ON_A_TERMINAL: &str = r"
import fcntl, os, pty, signal, sys, termios
keyboard, terminal = pty.openpty()
if os.fork() == 0:
    os.close(keyboard)
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    os.dup2(terminal, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execvp(sys.argv[1], sys.argv[1:])
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
";

/// Commands that leave a terminal unfit. The last takes it from all who have it.
const UNFIT: [(&str, &str); 4] = [
    ("another line discipline (TIOCSETD)", "set-discipline"),
    ("settings that stay (TIOCSLCKTRMIOS)", "lock-settings"),
    ("nobody else may open it (TIOCEXCL)", "have-it-alone"),
    ("hung up (TIOCVHANGUP)", "hang-up-by-ioctl"),
];

fn the_terminal_outside_stays_fit_for_who_uses_it_next() -> Result<Outcome> {
    let on_a_terminal = |_: &Ground| ["python3", "-c", ON_A_TERMINAL].map(str::to_owned).to_vec();
    let run = |ground: &Ground, run: crate::harness::Run| run.wrapped(&on_a_terminal(ground));
    let ways = |_: &Ground| {
        UNFIT
            .iter()
            .map(|(what, verb)| {
                let (_, name) = what.split_once('(').unwrap_or_default();
                let name = name.trim_end_matches(')');
                way(what, attempt(verb, &["/dev/tty"]))
                    .on_record(Expected::operation("terminal", name))
            })
            .collect()
    };
    let ground = Ground::new;
    Escape {
        run: &run,
        outside: &on_a_terminal,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("membership.terminal-after")
}

fn what_is_done_to_a_terminal_of_its_own_is_its_own_affair() -> Result<Outcome> {
    let mut batch = Batch::new(&Policy::open())?;
    for (_, verb) in UNFIT {
        batch.works(attempt(verb, &["new"]));
    }
    let (finished, mut problems) = batch.run()?;
    problems.no_denial_but(&finished.record, None);
    problems.outcome()
}

/// Somebody who works at a terminal of their own.
struct Session {
    ground: Ground,
    terminal: String,
    process: u32,
    _keyboard: OwnedFd,
}

impl Session {
    fn new() -> Result<Self> {
        let mut ground = Ground::new()?;
        let pair = nix::pty::openpty(None, None)?;
        let terminal = nix::unistd::ttyname(&pair.slave)?.display().to_string();
        let child = Command::new("setsid")
            .args(["--ctty", "sleep", "1000"])
            .stdin(pair.slave)
            .spawn()?;
        let process = child.id();
        let child = std::cell::RefCell::new(child);
        ground.undo(move || {
            let _ = child.borrow_mut().kill();
            let _ = child.borrow_mut().wait();
        });
        let session = Self {
            ground,
            terminal,
            process,
            _keyboard: pair.master,
        };
        wait_for("a session at its terminal", || session.has_its_terminal())?;
        Ok(session)
    }

    /// Whether the terminal is its (proc(5): the fifth field after the name).
    fn has_its_terminal(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        let terminal = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(4));
        terminal.is_some_and(|number| number != "0")
    }
}

fn no_terminal_is_taken_from_a_session_outside() -> Result<Outcome> {
    let policy = |session: &Session| policy(&session.ground);
    let ways = |session: &Session| {
        vec![way(
            "TIOCSCTTY of another session's terminal",
            attempt("take-terminal", &[&session.terminal]),
        )]
    };
    let after = |session: &Session, problems: &mut Problems| {
        problems.check(session.has_its_terminal(), || {
            "the session outside has no terminal any more".into()
        });
    };
    Escape {
        after: &after,
        ..Escape::new(&Session::new, &policy, &ways)
    }
    .check("membership.session")
}

fn nobody_outside_is_made_to_wait() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        ground.file("ws/open")?;
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let open = ground.text("ws/open");
        const PERMISSION: &str = "CONFIG_FANOTIFY_ACCESS_PERMISSIONS";
        vec![
            way(
                "fanotify: FAN_OPEN_PERM",
                attempt("decide-on-opens", &[&open, "late"]),
            )
            .where_there_is(PERMISSION),
            way(
                "fanotify: FAN_OPEN_PERM, before there is content",
                attempt("decide-on-opens", &[&open, "early"]),
            )
            .where_there_is(PERMISSION),
            // Of the modules, as it is mounted read-only.
            way(
                "FIFREEZE of a file system",
                attempt("freeze", &["/usr/lib/modules"]),
            )
            .where_there_is("a read-only file system that can be frozen"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("membership.waiting")
}

fn mounts_of_the_processes_outside_stay_as_they_are() -> Result<Outcome> {
    let ground = || {
        let mut ground = Ground::new()?;
        for name in ["ws/fake", "ws/fake-too", "prot/m1", "prot/m2", "prot/m3"] {
            ground.directory(name)?;
        }
        ground.file("ws/other")?;
        // What was put there is taken away again.
        for name in ["prot/config", "prot/m1", "prot/m2", "prot/m3"] {
            let path = ground.path(name);
            ground.undo(move || {
                let _ = nix::mount::umount2(&path, nix::mount::MntFlags::MNT_DETACH);
            });
        }
        nix::mount::mount(
            Some("tmpfs"),
            &ground.path("prot/m3"),
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )?;
        Ok(ground)
    };
    let policy = |ground: &Ground| {
        policy(ground).rule(
            deny("prot")
                .below(ground.path("prot"))
                .access(&["write", "create"]),
        )
    };
    let ways = |ground: &Ground| {
        let t = |name: &str| ground.text(name);
        vec![
            way(
                "a bind mount over a protected file",
                attempt("bind", &[t("ws/other"), t("prot/config")]),
            ),
            way(
                "g-49 a tmpfs over a protected directory",
                attempt("tmpfs", &[t("prot/m1")]),
            ),
            way(
                "move_mount over a protected directory",
                attempt("attach-shared", &[t("ws/fake"), t("prot/m2")]),
            ),
            way("umount", attempt("unmount", &[t("prot/m3")])),
        ]
    };
    let after = |ground: &Ground, problems: &mut Problems| {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for (name, there) in [
            ("prot/config", false),
            ("prot/m1", false),
            ("prot/m2", false),
            ("prot/m3", true),
        ] {
            let path = format!(" {} ", ground.text(name));
            problems.check(mounts.contains(&path) == there, || {
                format!("the mounts at {name} are not what they were")
            });
        }
    };
    Escape {
        after: &after,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("membership.mounts")
}

fn the_kernel_is_not_asked_to_do_it() -> Result<Outcome> {
    const KEY: &str = "opensafe-escape";
    let ground = || {
        let mut ground = Ground::new()?;
        // Programs, maps and links of a sandbox's own, for those outside; inside there are those of the run.
        let other = crate::harness::Run::new(&Policy::open())?.start(&[
            "/share/bin/opensafe-scenarios",
            "probe",
            "sleeping",
        ]);
        let mut other = other?;
        other.wait_for_output("sleeping ")?;
        let process = std::cell::RefCell::new(Some(other));
        ground.undo(move || {
            if let Some(mut other) = process.borrow_mut().take() {
                let id = i32::try_from(other.child.id()).unwrap_or_default();
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(id),
                    nix::sys::signal::Signal::SIGTERM,
                );
                let _ = other.child.wait();
            }
        });
        let _ = Command::new("modprobe").args(["-r", "dummy"]).status();
        crate::harness::add_key(KEY)?;
        Ok(ground)
    };
    let ways = |_: &Ground| {
        let none = |what, verb| way(what, attempt::<&str>(verb, &[]));
        vec![
            none("bpf: a descriptor of a program", "bpf-program"),
            none("bpf: a descriptor of a map", "bpf-map"),
            none("bpf: a descriptor of a link", "bpf-link"),
            way(
                "a kernel module",
                attempt("command", &["modprobe", "dummy"]),
            )
            .or_ends("status 1")
            .where_there_is("the module dummy"),
            // A keyring that may not be searched has nothing in it (security/keys/process_keys.c).
            way("a key of the user's, read", attempt("read-key", &[KEY]))
                .or_ends("ENOKEY")
                .where_there_is("CONFIG_KEYS"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("membership.kernel")
}

fn a_run_in_a_run_allows_nothing_more() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        Policy::open().write(&ground.path("ws/open.rego"))?;
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let opensafe = std::env::var("OPENSAFE").unwrap_or_else(|_| "opensafe".into());
        vec![
            way(
                "a run with a policy that denies nothing",
                attempt(
                    "command",
                    &[
                        &opensafe,
                        "run",
                        "--policy",
                        &ground.text("ws/open.rego"),
                        "--record",
                        &ground.text("ws/record.jsonl"),
                        "--",
                        "cat",
                        &ground.text("secret/token"),
                    ],
                ),
            )
            .by_anyone()
            .or_ends("status 1")
            .or_ends("status 125")
            .or_ends("status 126"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("membership.nested")
}

fn the_ways_of_root_are_closed_by_the_policy_that_ships() -> Result<Outcome> {
    let ground = || {
        let mut ground = Ground::new()?;
        let kept: Vec<(String, String)> = ["core_pattern", "modprobe"]
            .map(|name| format!("/proc/sys/kernel/{name}"))
            .into_iter()
            .map(|path| Ok((fs::read_to_string(&path)?, path)))
            .map(|kept: Result<_>| kept.map(|(content, path)| (path, content)))
            .collect::<Result<_>>()?;
        ground.undo(move || {
            for (path, content) in &kept {
                let _ = fs::write(path, content.trim());
            }
        });
        ground.directory("ws/own")?;
        Ok(ground)
    };
    let policy = |_: &Ground| Policy::open();
    let run = |ground: &Ground, _: crate::harness::Run| {
        let folder = crate::harness::directory();
        let run = folder.and_then(|folder| {
            crate::harness::Run::with_policy_file(folder, std::path::Path::new("default"))
        });
        // There is a directory to work in, or there is nothing to test.
        #[allow(clippy::expect_used, reason = "a test")]
        let run = run.expect("a directory");
        run.options(&["--workspace", &ground.text("ws/own")])
    };
    let ways = |ground: &Ground| {
        let program = this_program().unwrap_or_default().display().to_string();
        let own = ground.text("ws/own/disk");
        let writes =
            |what, path: &str, content: &str| way(what, attempt("write-file", &[path, content]));
        vec![
            writes(
                "core_pattern",
                "/proc/sys/kernel/core_pattern",
                &format!("|{program}"),
            ),
            writes(
                "the path of modprobe",
                "/proc/sys/kernel/modprobe",
                &program,
            ),
            writes("SysRq", "/proc/sysrq-trigger", "h"),
            writes("the helper of uevents", "/sys/kernel/uevent_helper", "")
                .where_there_is("CONFIG_UEVENT_HELPER"),
            writes(
                "a probe by tracefs",
                "/sys/kernel/tracing/kprobe_events",
                "p:escape do_exit",
            )
            .where_there_is("CONFIG_KPROBE_EVENTS"),
            way(
                "g-48 the root cgroup",
                attempt("move-to-cgroup", &["/sys/fs/cgroup"]),
            ),
            way("g-26 the disk", attempt("read", &["/dev/vda"])),
            way(
                "g-26 a node for the disk",
                steps(&[&["make-device-of", "/etc/shadow", &own], &["read", &own]]),
            ),
            way("g-26 the memory", attempt("read", &["/dev/mem"])).where_there_is("CONFIG_DEVMEM"),
            way("g-26 the kernel's memory", attempt("read", &["/dev/kmem"]))
                .where_there_is("CONFIG_DEVKMEM"),
            way(
                "g-25 a file of tracefs",
                attempt("write-file", &["/sys/kernel/tracing/trace_marker", "x"]),
            ),
            way(
                "g-49 the password file, as root of a user namespace",
                steps(&[&["become-root-inside"][..], &["read", "/etc/shadow"]]),
            ),
            way("the password file", attempt("read", &["/etc/shadow"])),
            way("another process's memory", attempt("mem-read", &["1", "0"]))
                .where_there_is("something at address 0"),
        ]
    };
    Escape {
        run: &run,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("membership.root")
}
