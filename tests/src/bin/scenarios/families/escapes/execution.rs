//! Running a program that is denied, and what a program that is allowed is made to do.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use anyhow::{Result, bail};
use serde_json::json;

use crate::{
    harness::{
        Attempt, Batch, Escape, Expected, Ground, Outcome, Policy, Try, allow, attempt, deny, exec,
        file, steps, this_program, way,
    },
    scenarios,
};

scenarios![
    a_denied_program_is_not_run_by_another_name_or_program,
    where_programs_are_denied_no_copy_runs,
    what_an_interpreter_is_given_is_on_record,
    a_denied_program_is_not_mapped_as_code,
    a_program_does_what_its_loader_was_told_in_the_sandbox_only,
];

/// Where `ld.so` is on x86-64.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// What a wrapper ends with whose command may not be run, as POSIX has it for shells and env.
const NOT_RUN: &str = "status 126";

fn script(path: &Path, first: &str) -> Result<()> {
    fs::write(path, format!("{first}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn a_denied_program_is_not_run_by_another_name_or_program() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        let tool = ground.path("bin/tool");
        symlink(&tool, ground.path("ws/a"))?;
        symlink(ground.path("bin"), ground.path("ws/d"))?;
        script(&ground.path("ws/s"), &format!("#!{} -x", tool.display()))?;
        script(&ground.path("ws/ss"), &format!("#!{}", ground.text("ws/s")))?;
        fs::copy("/usr/bin/false", ground.path("ws/harmless"))?;
        ground.directory("ws/m")?;
        Ok(ground)
    };
    let policy = |ground: &Ground| Policy::open().rule(deny("bin").exec(ground.path("bin/tool")));
    let ways = |ground: &Ground| {
        let tool = ground.text("bin/tool");
        let t = |name: &str| ground.text(name);
        let denied = || exec("bin", &tool);
        let runs = |what, path: String| way(what, attempt("command", &[path])).on_record(denied());
        let wrapped = |what, words: &[&str], end| {
            way(what, attempt("command", words))
                .on_record(denied())
                .or_ends(end)
        };
        let by = |what, verb| way(what, attempt(verb, &[&tool])).on_record(denied());
        vec![
            runs("its path", tool.clone()),
            runs("g-28 a symbolic link", t("ws/a")),
            runs("a linked directory", t("ws/d/tool")),
            runs("/proc/self/root", format!("/proc/self/root{tool}")),
            runs("g-29 a script that names it", t("ws/s")),
            runs("a script that names a script that names it", t("ws/ss")),
            by("fexecve", "exec-by-descriptor"),
            by("execveat with AT_EMPTY_PATH", "exec-by-empty-path"),
            way(
                "g-28 a hard link",
                steps(&[&["link", &tool, &t("ws/b")], &["command", &t("ws/b")]]),
            ),
            way(
                "moved",
                steps(&[
                    &["private-bind", &t("bin"), &t("ws/m")],
                    &["command", &t("ws/m/tool")],
                ]),
            )
            .on_record(denied()),
            by(
                "g-36 a path that another thread changes meanwhile",
                "exec-in-a-race",
            ),
            wrapped("g-33 env", &["env", &tool], NOT_RUN),
            wrapped("g-33 nice", &["nice", &tool], NOT_RUN),
            wrapped("g-33 nohup", &["nohup", &tool], NOT_RUN),
            wrapped("g-33 timeout", &["timeout", "9", &tool], NOT_RUN),
            wrapped("g-33 setsid", &["setsid", "--wait", &tool], NOT_RUN),
            wrapped(
                "g-33 xargs",
                &["sh", "-c", &format!("echo | xargs {tool}")],
                NOT_RUN,
            ),
            wrapped(
                "g-33 find",
                &[
                    "sh",
                    "-c",
                    &format!("test -n \"$(find {} -exec {tool} ';' -print)\"", t("ws/s")),
                ],
                "status 1",
            ),
            wrapped("g-33 sh", &["sh", "-c", &tool], NOT_RUN),
            wrapped(
                "g-33 bash, in the background",
                &["bash", "-c", &format!("{tool} & wait $!")],
                NOT_RUN,
            ),
            wrapped(
                "g-33 python",
                &[
                    "python3",
                    "-c",
                    &format!("import os; os.execv('{tool}', ['x'])"),
                ],
                "status 1",
            ),
            way(
                "g-30 the loader, told to run it",
                attempt("command", &[LOADER, &tool]),
            )
            .or_ends("status 127")
            .or_ends("status 126"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("execution.named")
}

fn where_programs_are_denied_no_copy_runs() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        fs::copy(this_program()?, ground.path("bin/probe"))?;
        for (name, mode) in [("copy", 0o755), ("unmarked", 0o644)] {
            fs::copy("/usr/bin/true", ground.path(&format!("ws/{name}")))?;
            fs::set_permissions(
                ground.path(&format!("ws/{name}")),
                fs::Permissions::from_mode(mode),
            )?;
        }
        script(&ground.path("ws/x.sh"), "#!/bin/sh\nexit 0")?;
        let shared = crate::harness::directory_in(Path::new("/dev/shm"))?;
        script(&shared.path().join("x.sh"), "#!/bin/sh\nexit 0")?;
        Ok((ground, shared))
    };
    type Both = (Ground, tempfile::TempDir);
    // The shell and the loader may run: what they are given may not.
    let policy = |(ground, _): &Both| {
        Policy::open()
            .default("exec", "deny")
            .rule(allow("probe").exec(ground.path("bin/probe")))
            .rule(
                allow("shell")
                    .with("on", json!("exec"))
                    .with("match", json!(["/bin/sh", "/usr/bin/dash", LOADER])),
            )
    };
    let ways = |(ground, shared): &Both| {
        let t = |name: &str| ground.text(name);
        let in_memory = shared.path().join("x.sh");
        let denied = |path: &Path| exec("defaults.exec", path);
        let runs = |what, path: &Path| -> Try {
            let runs: Attempt = attempt("command", &[path]);
            way(what, runs).on_record(denied(path))
        };
        vec![
            runs("a program that is not allowed", Path::new("/usr/bin/true")),
            runs("g-27 a copy", &ground.path("ws/copy")),
            way(
                "g-31 from memory (memfd)",
                attempt("exec-from-memory", &["/usr/bin/true"]),
            ),
            way(
                "a script from memory (memfd)",
                attempt("exec-from-memory", &[t("ws/x.sh")]),
            ),
            way(
                "a deleted program",
                attempt("exec-deleted", &[t("ws/copy")]),
            ),
            way(
                "a program that never had a name (O_TMPFILE)",
                attempt("exec-nameless", &["/usr/bin/true", &t("ws")]),
            ),
            runs("g-32 a script in /dev/shm", &in_memory),
            runs("a script in the workspace", &ground.path("ws/x.sh")),
            way(
                "g-30 the loader, told to run a copy that is no program",
                attempt("command", &[LOADER, &t("ws/unmarked")]),
            )
            .or_ends("status 127"),
        ]
    };
    Escape {
        program: &|(ground, _): &Both| Ok(ground.path("bin/probe")),
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("execution.copies")
}

/// The second half of g-32: a script that is no program is a file that the shell reads.
fn what_an_interpreter_is_given_is_on_record() -> Result<Outcome> {
    let shared = crate::harness::directory_in(Path::new("/dev/shm"))?;
    let (open_script, closed_script) = (shared.path().join("x.sh"), shared.path().join("y.sh"));
    for path in [&open_script, &closed_script] {
        script(path, "exit 0")?;
    }
    let policy = Policy::open().rule(deny("scripts").file(&closed_script));
    let mut batch = Batch::new(&policy)?;
    let run = |path: &Path| -> Attempt { attempt("command", &[Path::new("sh"), path]) };
    batch.allowed(
        run(&open_script),
        file("defaults.file", &open_script, "read"),
    );
    batch.check()?;
    let ground = || Ok(());
    let policy = |(): &()| policy.clone();
    let ways = |(): &()| {
        vec![
            way(
                "g-32 a denied script, given to a shell",
                run(&closed_script),
            )
            .on_record(file("scripts", &closed_script, "read"))
            .or_ends("status 2"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("execution.given")
}

fn a_denied_program_is_not_mapped_as_code() -> Result<Outcome> {
    let policy = |ground: &Ground| Policy::open().rule(deny("bin").exec(ground.path("bin/tool")));
    let ways = |ground: &Ground| {
        let tool = ground.text("bin/tool");
        let by = |what, verb| way(what, attempt(verb, &[&tool]));
        vec![
            by("mmap with PROT_EXEC", "map-as-code"),
            by("mmap, then mprotect with PROT_EXEC", "map-then-make-code"),
        ]
    };
    let ground = Ground::new;
    Escape::new(&ground, &policy, &ways).check("execution.mapped")
}

fn a_program_does_what_its_loader_was_told_in_the_sandbox_only() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        // Reads the secret before the program begins, and ends it at once if it can.
        let source = format!(
            "#include <fcntl.h>\n#include <unistd.h>\n\
             __attribute__((constructor)) static void start(void) {{ _exit(open(\"{}\", O_RDONLY) < 0); }}\n",
            ground.text("secret/token")
        );
        fs::write(ground.path("ws/start.c"), source)?;
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([ground.path("ws/start.so"), ground.path("ws/start.c")])
            .status()?;
        if !compiled.success() {
            bail!("cc: {compiled}");
        }
        fs::write(
            ground.path("ws/sitecustomize.py"),
            format!(
                "import os\nos.open('{}', 0)\nos._exit(0)\n",
                ground.text("secret/token")
            ),
        )?;
        Ok(ground)
    };
    let policy = |ground: &Ground| Policy::open().rule(deny("secret").below(ground.path("secret")));
    let ways = |ground: &Ground| {
        let read: Expected = file("secret", ground.path("secret/token"), "read");
        let token = ground.text("secret/token");
        let with = |what, variable: &str, value: &str, command: &[&str], end| {
            let mut words = vec!["env".to_owned(), format!("{variable}={value}")];
            words.extend(command.iter().map(|&word| word.to_owned()));
            way(what, attempt("command", &words))
                .on_record(read.clone())
                .or_ends(end)
        };
        let library = ground.text("ws/start.so");
        vec![
            with(
                "g-35 LD_PRELOAD",
                "LD_PRELOAD",
                &library,
                &["false"],
                "status 1",
            ),
            with(
                "g-35 LD_AUDIT",
                "LD_AUDIT",
                &library,
                &["false"],
                "status 1",
            ),
            with(
                "g-35 PYTHONPATH",
                "PYTHONPATH",
                &ground.text("ws"),
                &["python3", "-c", "exit(3)"],
                "status 3",
            ),
            with(
                "g-35 GIT_SSH_COMMAND",
                "GIT_SSH_COMMAND",
                &format!("cat {token} >&2 && kill $PPID; exit 9"),
                &[
                    "sh",
                    "-c",
                    "git ls-remote ssh://nobody@nowhere/x; test $? = 143",
                ],
                "status 1",
            ),
            way(
                "g-34 an interpreter that is allowed",
                attempt(
                    "command",
                    &["python3", "-c", &format!("open('{token}').read()")],
                ),
            )
            .on_record(read.clone())
            .or_ends("status 1"),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("execution.loader")
}
