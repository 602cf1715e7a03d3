//! Where neither BPF LSM nor modify-return programs are asked: what `opensafe run --partial` does there, and says of it.
//!
//! In a guest of its own; see `cargo xtask test`.

use std::{fs::Permissions, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, Result};

use crate::{
    harness::{Leftovers, Outcome, Policy, Problems, Run, ask, deny, directory, opensafe, write},
    scenarios,
};

scenarios![where_no_lsm_hook_is_asked_peers_are_denied_and_failed_opens_are_on_record];

fn where_no_lsm_hook_is_asked_peers_are_denied_and_failed_opens_are_on_record() -> Result<Outcome> {
    // A tool that is not ours does each kind of open, and says what came of it.
    const OPENS: &str = "
import ctypes, os, socket, sys
closed, only_read, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
def told(what, result): print(what, result if result >= 0 else -ctypes.get_errno(), flush=True)
AT_FDCWD = -100
os.chdir(os.path.dirname(closed))
told('openat', libc.syscall(257, AT_FDCWD, closed.encode(), os.O_RDONLY))
told('open', libc.syscall(2, closed.encode(), os.O_RDWR))
told('creat', libc.syscall(85, (os.path.dirname(closed) + '/new').encode(), 0o600))
how = (ctypes.c_uint64 * 3)(os.O_WRONLY, 0, 0)
told('openat2', libc.syscall(437, AT_FDCWD, b'closed', how, 24))
told('readonly', libc.syscall(257, AT_FDCWD, only_read.encode(), os.O_WRONLY))
told('missing', libc.syscall(257, AT_FDCWD, b'/missing', os.O_RDONLY))
told('unmapped', libc.syscall(257, AT_FDCWD, ctypes.c_void_p(8), os.O_RDONLY))
try: socket.create_connection(('127.0.0.1', port)); print('connect 0', flush=True)
except OSError as error: print('connect', -error.errno, flush=True)
";
    let report: serde_json::Value =
        serde_json::from_str(&ask(opensafe().args(["doctor", "--json"]))?.1)?;
    if report["enforcement"]["way"].is_string() {
        return Ok(Outcome::Skipped(
            "hooks are asked here; `cargo xtask test` has a guest where they are not".to_owned(),
        ));
    }
    let before = Leftovers::now()?;
    let mut problems = Problems::default();
    let folder = directory()?;
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let at = |name: &str| folder.path().join(name);
    write(&at("closed"), "x")?;
    std::fs::set_permissions(at("closed"), Permissions::from_mode(0o600))?;
    std::fs::create_dir(at("fixed"))?;
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(at("fixed"))
        .status()?;
    problems.check(mounted.success(), || "no mount".to_owned());
    write(&at("fixed/file"), "x")?;
    std::fs::set_permissions(at("fixed/file"), Permissions::from_mode(0o666))?;
    let remount = |options| {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-o", options]).arg(at("fixed")).status()
    };
    remount("remount,ro")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let policy = Policy::open()
        .rule(deny("peer").connect("127.0.0.1").port(port))
        .rule(deny("file").file(at("closed")));

    // Nothing is half enforced unless that is asked for.
    let refused = Run::new(&policy)?.run(&["true"])?;
    problems.equal("without --partial", refused.code(), 125);
    problems.check(refused.said().contains("--partial"), || {
        refused.said().to_owned()
    });

    let arguments = [at("closed"), at("fixed/file")].map(|path| path.display().to_string());
    let port = port.to_string();
    let command = ["python3", "-c", OPENS, &arguments[0], &arguments[1], &port];
    let finished = Run::new(&policy)?
        .options(&["--partial", "--user", "nobody"])
        .run(&command)?;
    problems.equal("the run's status", finished.code(), 0);
    for line in [
        "openat -13",
        "open -13",
        "creat -13",
        "openat2 -13",
        "readonly -30",
        "missing -2",
        "unmapped -14",
        "connect -1",
    ] {
        problems.check(finished.text().lines().any(|told| told == line), || {
            format!("not {line}: {}", finished.text())
        });
    }
    problems.check(finished.said().contains("not enforced: exec, file"), || {
        finished.said().to_owned()
    });
    let record = finished.sound()?;
    let start = record.events.first().context("no start")?;
    problems.equal(
        "that it is partial",
        start.flag("opensafe.partial"),
        Some(true),
    );
    let failed: Vec<(String, String, String)> = record
        .of("file.failed")
        // What python and its loader look for is on record too.
        .filter(|line| {
            let asked = line.text("opensafe.file.requested");
            asked.starts_with(&*folder.path().to_string_lossy()) || asked == "closed"
        })
        .map(|line| {
            let asked = Path::new(line.text("opensafe.file.requested"));
            (
                asked
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                line.texts("opensafe.file.access").join(" "),
                line.text("error.type").to_owned(),
            )
        })
        .collect();
    let expected = [
        ("closed", "read", "EACCES"),
        ("closed", "read write", "EACCES"),
        ("new", "write create", "EACCES"),
        ("closed", "write", "EACCES"),
        ("file", "write", "EROFS"),
    ];
    let expected = expected
        .map(|(file, access, error)| (file.to_owned(), access.to_owned(), error.to_owned()));
    problems.equal("opens that failed", failed, expected.to_vec());
    let denied: Vec<&str> = record
        .denials()
        .map(|line| line.text("opensafe.rule.id"))
        .collect();
    problems.equal("denials", denied, vec!["peer"]);
    let umount = std::process::Command::new("umount")
        .arg(at("fixed"))
        .status()?;
    problems.check(umount.success(), || "no umount".to_owned());
    Leftovers::gone_since(&before)?;
    problems.outcome()
}
