//! The host's keyboard and screen, where a sandbox is started on them.

use std::path::Path;

use anyhow::Result;

use crate::{
    harness::{
        Batch, Escape, Expected, Ground, Outcome, Policy, Problems, Run, attempt, skipped, way,
    },
    scenarios,
};

scenarios![
    a_console_stays_fit_for_who_uses_it_next,
    what_a_console_is_asked_it_answers,
];

/// A virtual console that nobody uses.
const CONSOLE: &str = "/dev/tty8";

/// A command with the console as its controlling terminal and standard input; what it prints goes elsewhere.
const ON_A_CONSOLE: &str = r"
import fcntl, os, sys, termios
if os.fork() == 0:
    os.setsid()
    console = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(console, termios.TIOCSCTTY, 1)
    os.dup2(console, 0)
    os.execvp(sys.argv[2], sys.argv[2:])
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
";

fn on_a_console() -> Vec<String> {
    let words = ["python3", "-c", ON_A_CONSOLE, CONSOLE];
    words.map(str::to_owned).to_vec()
}

/// Commands that change a console, each with the one that asks for how it is, and how it takes what that has answered
/// (include/uapi/linux/kd.h, vt.h).
const CHANGES: &[(&str, &str, &str, &str)] = &[
    ("PIO_CMAP", "0x4b70", "0x4b71", "same"),
    ("KDSETLED", "0x4b31", "0x4b32", "byte"),
    ("KDSETMODE", "0x4b3b", "0x4b3a", "number"),
    ("KDSKBMODE", "0x4b44", "0x4b45", "number"),
    ("KDSKBMETA", "0x4b62", "0x4b63", "number"),
    ("KDSKBLED", "0x4b64", "0x4b65", "byte"),
    ("KIOCSOUND", "0x4b33", "0x4b2f", "nothing"),
    ("VT_SETMODE", "0x5601", "0x5602", "same"),
    ("VT_ACTIVATE", "0x5603", "0x5606", "number"),
    ("VT_RESIZE", "0x5413", "0x5609", "same"),
    ("TIOCSWINSZ", "0x5413", "0x5414", "same"),
    ("VT_UNLOCKSWITCH", "0x5603", "0x560c", "nothing"),
];

fn a_console_stays_fit_for_who_uses_it_next() -> Result<Outcome> {
    if !Path::new(CONSOLE).exists() {
        return skipped("there is no virtual console");
    }
    let policy = |_: &Ground| Policy::open();
    let run = |_: &Ground, run: Run| run.wrapped(&on_a_console());
    let ways = |_: &Ground| {
        // By its own name as by the one that every terminal has.
        let places = ["/dev/tty", CONSOLE];
        let all = places
            .into_iter()
            .flat_map(|place| CHANGES.iter().map(move |how| (place, how)));
        all.map(|(place, (name, ask, change, how))| {
            way(name, attempt("tell-console", &[place, ask, change, how]))
                .on_record(Expected::operation("terminal", name))
        })
        .collect()
    };
    Escape {
        run: &run,
        outside: &|_| on_a_console(),
        ..Escape::new(&Ground::new, &policy, &ways)
    }
    .check("consoles.after")
}

fn what_a_console_is_asked_it_answers() -> Result<Outcome> {
    if !Path::new(CONSOLE).exists() {
        return skipped("there is no virtual console");
    }
    let mut batch = Batch::new(&Policy::open())?.wrapped(&on_a_console());
    for (_, ask, ..) in CHANGES {
        batch.works(attempt("tell-console", &["/dev/tty", ask]));
    }
    let (finished, mut problems): (_, Problems) = batch.run()?;
    problems.no_denial_but(&finished.record, None);
    problems.outcome()
}
