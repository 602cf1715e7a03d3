//! Ordinary work of a coding agent, which the policy for it is not in the way of.
//!
//! Ids such as `g-05` are those of the list of ordinary work that these began with.

use std::{fs, os::unix::fs::chown, path::Path};

use anyhow::Result;

use crate::{
    harness::{Outcome, Problems, Run, directory},
    scenarios,
};

scenarios![
    repositories_and_files_are_worked_on_without_a_denial,
    packages_are_made_and_installed_without_a_denial,
    programs_are_built_run_and_served_without_a_denial,
];

/// What is done, as a shell has it; each in a directory of its own in the workspace.
type Work = (&'static str, &'static str);

const FILES: &[Work] = &[
    (
        "g-01 git commit",
        "git init -q . && echo a >a && mkdir d && echo b >d/b && git add -A && git commit -qm one \
         && echo c >>a && git commit -qam two && git checkout -qb side && git log --oneline | wc -l && git gc -q \
         && git clone -q . ../clone",
    ),
    (
        "g-05 atomic saving",
        "echo old >f && echo new >f.tmp && sync f.tmp && mv f.tmp f && cp f f~ && : >.f.swp && rm .f.swp \
         && python3 -c \"import os,tempfile; d=tempfile.NamedTemporaryFile('w',dir='.',delete=False); d.write('x'); d.flush(); \
         os.fsync(d.fileno()); os.chmod(d.name, 0o644); os.replace(d.name,'f'); os.fsync(os.open('.',os.O_RDONLY))\"",
    ),
    (
        "g-06 a store's hard links",
        "mkdir -p store node_modules/.store && for n in 1 2 3; do echo $n >store/$n && ln store/$n node_modules/.store/$n; done \
         && cp --reflink=auto store/1 copy && ln -s ../store node_modules/linked && cat node_modules/linked/2",
    ),
    (
        "g-11 names and locales",
        "python3 -c \"import getpass,locale,pwd,grp,time,socket; getpass.getuser(); locale.setlocale(locale.LC_ALL,''); \
         time.tzset(); pwd.getpwuid(1000); grp.getgrgid(1000); socket.getaddrinfo('localhost',80)\" && id && getent hosts localhost",
    ),
    (
        "g-12 devices and terminals",
        "echo x >/dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c && (echo x >/dev/full; true) \
         && python3 -c \"import os,pty; os.close(os.openpty()[0]); pty.spawn(['true'])\" && script -qec true /dev/null && (cat </dev/tty; true)",
    ),
    (
        "bubblewrap, in which agents run their tools",
        "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind \"$PWD\" \"$PWD\" --unshare-pid --unshare-net --new-session --die-with-parent \
         sh -c 'echo a >/tmp/a && mkdir /tmp/d && echo b >b && cat /tmp/a b && ls /dev/shm && git --version' \
         && bwrap --bind / / --tmpfs /var/tmp true",
    ),
    (
        "g-10 any dynamic program",
        "ls -l / >/dev/null && git --version && ldd /bin/ls && stat . && find /usr/share/misc | wc -l",
    ),
];

const PACKAGES: &[Work] = &[
    (
        "g-02 a virtual environment",
        "python3 -m venv --without-pip .venv && .venv/bin/python -c 'print(1)'",
    ),
    (
        "g-03 a package installed into it",
        "cd ../g-02 && mkdir -p w/thing-1.dist-info w/thing && echo 'x = 7' >w/thing/__init__.py && cd w \
         && printf 'Metadata-Version: 2.1\\nName: thing\\nVersion: 1\\n' >thing-1.dist-info/METADATA \
         && printf 'Wheel-Version: 1.0\\nGenerator: hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n' >thing-1.dist-info/WHEEL \
         && printf 'thing/__init__.py,,\\nthing-1.dist-info/METADATA,,\\nthing-1.dist-info/WHEEL,,\\nthing-1.dist-info/RECORD,,\\n' >thing-1.dist-info/RECORD \
         && python3 -c \"import shutil; shutil.make_archive('../t','zip','.')\" && cd .. && mv t.zip thing-1-py3-none-any.whl \
         && PYTHONPATH=$(echo /usr/share/python-wheels/pip-*.whl) .venv/bin/python -m pip install -q --no-compile --no-index ./thing-1-py3-none-any.whl && .venv/bin/python -c 'import thing; assert thing.x == 7'",
    ),
    (
        "g-04 what a package manager for JavaScript does",
        "mkdir -p ~/.npm/_cacache/tmp node_modules/.bin && for n in $(seq 12); do echo $n >~/.npm/_cacache/tmp/$n \
         && ln ~/.npm/_cacache/tmp/$n ~/.npm/_cacache/c$n && rm ~/.npm/_cacache/tmp/$n && mkdir node_modules/p$n \
         && cp ~/.npm/_cacache/c$n node_modules/p$n/index.js && chmod 755 node_modules/p$n/index.js \
         && ln -s ../p$n/index.js node_modules/.bin/p$n; done && /bin/sh -c 'echo postinstall' && mv node_modules n && mv n node_modules",
    ),
];

const PROGRAMS: &[Work] = &[
    (
        "g-07 built and run, as cargo does",
        "mkdir -p target/debug/build target/debug/deps && echo 'int main(void){return 0;}' >m.c \
         && cc -o target/debug/build/build-script-build m.c && target/debug/build/build-script-build \
         && cc -o target/debug/deps/x m.c && ln target/debug/deps/x target/debug/x && target/debug/x \
         && mkdir -p ~/.cargo/registry && flock ~/.cargo/.package-cache true",
    ),
    (
        "g-08 make with many short children",
        "python3 -c \"print('all:',*['t%d'%i for i in range(60)]); [print('t%d:\\n\\t@echo %d >t%d'%(i,i,i)) for i in range(60)]\" >Makefile \
         && make -sj8 && test $(cat t* | wc -l) = 60",
    ),
    (
        "g-09 a server and its client on loopback",
        "echo hello >index.html && (python3 -m http.server --bind 127.0.0.1 8765 >/dev/null 2>&1 & echo $! >pid) \
         && for n in $(seq 40); do curl -sf http://localhost:8765/ && break; sleep 0.25; done | grep hello; s=$?; kill $(cat pid); exit $s",
    ),
];

fn works(all: &[Work]) -> Result<Outcome> {
    let folder = directory()?;
    let workspace = folder.path().join("work");
    fs::create_dir(&workspace)?;
    chown(&workspace, Some(1000), Some(1000))?;
    let mut script = String::from(
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n",
    );
    for (number, (name, work)) in all.iter().enumerate() {
        let directory = name.split(' ').next().unwrap_or_default();
        script.push_str(&format!(
            "mkdir -p {directory}; (cd {directory}; {work}) >out-{number} 2>&1 </dev/null; s=$?; echo \"{number} $s\"; \
             if test $s != 0; then tail -n 5 out-{number}; fi\n"
        ));
    }
    let path = folder.path().join("work.sh");
    fs::write(&path, script)?;
    let run = Run::with_policy_file(directory()?, Path::new("coding-agent"))?.options(&[
        "--user",
        "agent",
        "--agent",
        "codex",
        "--workspace",
        &workspace.display().to_string(),
    ]);
    let script = format!("cd {} && . {}", workspace.display(), path.display());
    let finished = run.run(&["bash", "-c", &script])?;
    let record = finished.sound()?;
    let mut problems = Problems::default();
    let said = finished.text();
    for (number, (name, _)) in all.iter().enumerate() {
        let good = said.lines().any(|line| line == format!("{number} 0"));
        problems.check(good, || {
            format!("{name}: does not work: {said} {}", finished.said())
        });
    }
    for denied in record.denials() {
        problems.note(format!("denied all the same: {denied}"));
    }
    problems.outcome()
}

fn repositories_and_files_are_worked_on_without_a_denial() -> Result<Outcome> {
    works(FILES)
}

fn packages_are_made_and_installed_without_a_denial() -> Result<Outcome> {
    works(PACKAGES)
}

fn programs_are_built_run_and_served_without_a_denial() -> Result<Outcome> {
    works(PROGRAMS)
}
