//! What asks for one of root's rights and passes no hook of its own; and terminals of others.

use std::process::Command;

use anyhow::Result;

use crate::{
    harness::{Attempt, Escape, Ground, Outcome, Policy, Problems, Run, Try, attempt, way},
    scenarios,
};

scenarios![
    what_root_may_do_by_right_alone_is_not_done,
    the_network_outside_stays_as_it_is,
    no_terminal_of_others_is_opened,
    what_a_sandbox_has_made_for_itself_is_its_own,
];

fn none(what: &'static str, verb: &str) -> Try {
    way(what, attempt::<&str>(verb, &[]))
}

fn what_root_may_do_by_right_alone_is_not_done() -> Result<Outcome> {
    let ground = || {
        let mut ground = Ground::new()?;
        ground.directory("mount")?;
        let mount = ground.path("mount");
        nix::mount::mount(
            Some("tmpfs"),
            &mount,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )?;
        ground.undo(move || {
            let _ = nix::mount::umount2(&mount, nix::mount::MntFlags::MNT_DETACH);
        });
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        vec![
            none("adjtimex: the clock", "set-clock-by-nothing"),
            none("reboot: what Ctrl-Alt-Del does", "set-restart"),
            none("acct: no more accounting", "stop-accounting")
                .where_there_is("CONFIG_BSD_PROCESS_ACCT"),
            none("sethostname", "set-host-name"),
            none(
                "sethostname, as a 32-bit program calls it",
                "set-host-name-as-32-bit",
            )
            .where_there_is("CONFIG_IA32_EMULATION"),
            none("vhangup", "hang-up"),
            way(
                "mount_setattr of a mount that others share",
                attempt("set-mount-attributes", &[ground.text("mount")]),
            ),
            way(
                "open_tree_attr of one",
                attempt("open-with-attributes", &[ground.text("mount")]),
            )
            .where_there_is("open_tree_attr(2), Linux 6.15"),
        ]
    };
    Escape::new(&ground, &|_| Policy::open(), &ways).check("rights.root")
}

fn the_network_outside_stays_as_it_is() -> Result<Outcome> {
    const DEVICE: &str = "escape0";
    const NETWORK: &str = "escape-network";
    let ip = |arguments: &[&str]| {
        let _ = Command::new("ip").args(arguments).status();
    };
    let ground = || {
        let mut ground = Ground::new()?;
        ip(&["netns", "add", NETWORK]);
        ground.undo(move || {
            ip(&["netns", "delete", NETWORK]);
            ip(&["link", "delete", DEVICE]);
        });
        Ok(ground)
    };
    let ways = |_: &Ground| {
        vec![
            way(
                "a device, made from a network of its own",
                attempt(
                    "command",
                    &[
                        "unshare", "--net", "ip", "link", "add", DEVICE, "netns", "1", "type",
                        "dummy",
                    ],
                ),
            )
            .or_ends("status 2")
            .or_ends("status 255")
            .where_there_is("the module dummy"),
            way(
                "another's network, entered",
                attempt("command", &["ip", "-n", NETWORK, "link", "set", "lo", "up"]),
            )
            .or_ends("status 1")
            .or_ends("status 255"),
            none("a message to the kernel", "set-up-loopback"),
            none(
                "a message by a socket that was kept, from a network of its own",
                "set-up-loopback-from-own-network",
            ),
            none("an ioctl", "set-device-flags"),
            none(
                "an ioctl on a socket that was kept, from a network of its own",
                "set-device-flags-from-own-network",
            ),
        ]
    };
    Escape::new(&ground, &|_| Policy::open(), &ways).check("rights.network")
}

fn no_terminal_of_others_is_opened() -> Result<Outcome> {
    let ground = || Ok(nix::pty::openpty(None, None)?);
    let ways = |pair: &nix::pty::OpenptyResult| -> Vec<Try> {
        let name = nix::unistd::ttyname(&pair.slave).unwrap_or_default();
        let open = |how: &str| -> Attempt { attempt(how, &[&name]) };
        vec![
            way("to read what is typed", open("open-terminal")),
            way("to write on its screen", open("append")),
            way("the console", attempt("open-terminal", &["/dev/console"])),
        ]
    };
    Escape::new(&ground, &|_| Policy::open(), &ways).check("rights.terminals")
}

/// Namespaces and terminals of its own, and the terminal that the run was started on.
fn what_a_sandbox_has_made_for_itself_is_its_own() -> Result<Outcome> {
    const WORK: &str = r#"set -eu
unshare --net ip link set lo up
unshare --net ip address add 192.0.2.1/32 dev lo
unshare --uts hostname inside
ip address show lo >/dev/null
date >/dev/null
python3 -c '
import os, pty
there, here = pty.openpty()
os.close(os.open(os.ttyname(here), os.O_RDWR | os.O_NOCTTY))
pty.spawn(["sh", "-c", "exec true <$(tty)"])
'
script -qec 'exec true <"$(tty)"' /dev/null
setsid --wait sh -c 'exec true <"$0"' "$(tty)"
"#;
    let script = "exec script -qec \"$(printf '%q ' \"$@\")\" /dev/null";
    let on_a_terminal = ["bash", "-c", script, "bash"].map(str::to_owned).to_vec();
    let finished = Run::new(&Policy::open())?
        .wrapped(&on_a_terminal)
        .run(&["sh", "-c", WORK])?;
    let mut problems = Problems::default();
    problems.equal("exit status", finished.code(), 0);
    problems.no_denial_but(finished.sound()?, None);
    problems.outcome()
}
