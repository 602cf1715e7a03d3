//! Where files are, whatever they are called, and wherever they are reached from.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Write as _,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, fs::symlink},
    },
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result};
use nix::{
    fcntl::{OFlag, open, openat},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::{Mode, mkdirat},
};

use crate::{
    harness::{
        Attempt, Batch, Outcome, Policy, Problems, Run, allow, attempt, deny, directory,
        directory_in, file, held, write,
    },
    scenarios,
};

scenarios![
    a_file_is_decided_by_where_it_is_whatever_name_leads_there,
    a_file_with_an_unusual_name_is_on_record_by_its_bytes,
    a_path_of_4000_bytes_is_decided_whole_and_a_longer_one_is_nameless,
    a_file_system_in_memory_and_a_deleted_file_are_decided_by_their_paths,
    an_overlay_is_decided_by_its_own_names_and_copies_up_without_a_denial,
    a_new_mount_opens_no_hole_and_a_new_tmpfs_has_its_name,
    a_file_that_exists_is_opened_where_only_creating_is_denied,
    pipes_terminals_and_standard_streams_work_where_files_are_denied,
    a_thousand_rules_are_each_in_force,
];

fn on(verb: &str, path: &Path) -> Attempt {
    attempt(verb, &[path])
}

/// A mount that is gone when it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(
        source: &Path,
        point: &Path,
        kind: Option<&str>,
        flags: MsFlags,
        data: Option<&str>,
    ) -> Result<Self> {
        fs::create_dir_all(point)?;
        mount(Some(source), point, kind, flags, data)
            .with_context(|| format!("mount {}", point.display()))?;
        Ok(Self(point.to_owned()))
    }

    fn bind(source: &Path, point: &Path) -> Result<Self> {
        Self::new(source, point, None, MsFlags::MS_BIND, None)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn a_file_is_decided_by_where_it_is_whatever_name_leads_there() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["closed", "open", "bound", "by-alias", "jail"] {
        fs::create_dir(path(name))?;
    }
    write(&path("closed/file"), "x")?;
    write(&path("closed/held"), "x")?;
    write(&path("open/file"), "x")?;
    write(&path("by-alias/file"), "x")?;
    symlink(path("closed/file"), path("open/link"))?;
    symlink(path("closed"), path("open/directory-link"))?;
    symlink(path("open/file"), path("open/fine-link"))?;
    // A rule whose own name is a link.
    symlink(path("linked-to"), path("rule-link"))?;
    write(&path("linked-to"), "x")?;
    // A rule on one of two names denies both.
    let _bound = Mounted::bind(&path("closed"), &path("bound"))?;
    let _alias = Mounted::bind(&path("by-alias"), &path("alias"))?;
    let policy = Policy::open()
        .rule(deny("closed").below(path("closed")))
        .rule(deny("alias").below(path("alias")))
        .rule(deny("link").file(path("rule-link")))
        .rule(allow("open").below(path("open")));
    let closed = path("closed/file");
    let mut batch = Batch::new(&policy)?;
    let is_closed = || file("closed", &closed, "read");
    batch.denied(on("read", &closed), is_closed());
    let text = |path: &Path| path.display().to_string();
    let names = [
        text(&path("open/link")),
        text(&path("open/directory-link/file")),
        format!("{}/open/../closed/file", text(folder.path())),
        format!("{}/./closed/./file", text(folder.path())),
        format!("//{}//closed//file", text(folder.path())),
        format!("/proc/self/root{}", text(&closed)),
        format!("/proc/thread-self/root{}", text(&closed)),
        format!("/proc/self/cwd/../../..{}", text(&closed)),
    ];
    for name in &names {
        batch.denied(
            attempt("read", &[name]),
            is_closed().text("opensafe.file.requested", name.as_bytes()),
        );
    }
    batch.denied(
        attempt(
            "read-below",
            &[path("open").as_os_str(), OsStr::new("../closed/file")],
        ),
        is_closed().text("opensafe.file.requested", b"../closed/file"),
    );
    // A mount has two names; whichever of them is on record, the rule is right.
    batch.fails(on("read", &path("bound/file")), "EACCES");
    batch.fails(on("read", &path("alias/file")), "EACCES");
    batch.fails(on("read", &path("by-alias/file")), "EACCES");
    batch.denied(
        on("read", &path("rule-link")),
        file("link", path("linked-to"), "read"),
    );
    batch.allowed(
        on("read", &path("open/fine-link")),
        file("open", path("open/file"), "read"),
    );
    batch.denied(
        attempt("link", &[&closed, &path("open/hard")]),
        file("closed", &closed, "write"),
    );
    let (finished, mut problems) = batch.run()?;
    let by = |rule: &str| {
        finished
            .record
            .denials()
            .filter(|line| line.text("opensafe.rule.id") == rule)
            .count()
    };
    problems.equal("denials by the rule on one of two names", by("alias"), 2);
    problems.equal(
        "denials by the rule on the directory",
        by("closed"),
        names.len() + 4,
    );
    problems.outcome()
}

fn a_file_with_an_unusual_name_is_on_record_by_its_bytes() -> Result<Outcome> {
    let folder = directory()?;
    let names: [&[u8]; 14] = [
        b"with space",
        b"new\nline",
        b"\xff\xfe not UTF-8 \x80",
        b"\"quoted\" 'twice' `thrice`",
        b"back\\slash \\x41 \\n",
        b"escape \x1b[31mred\x1b[0m \x07 \x9b1m",
        b"tab\tand carriage\rreturn",
        b"{\"opensafe.event\":\"run.end\"}",
        "übergroß 中文 🦀".as_bytes(),
        "turned \u{202e}round\u{2028}lines\u{85}".as_bytes(),
        b"trailing ",
        b"-leading",
        b"$(reboot) *?[a]{b,c}",
        b"\x01\x02\x7f",
    ];
    let mut policy = Policy::open();
    for (directory, rule) in [("closed", deny("closed")), ("open", allow("open"))] {
        let directory = folder.path().join(directory);
        fs::create_dir(&directory)?;
        policy = policy.rule(rule.below(&directory));
        for name in names {
            write(&directory.join(OsStr::from_bytes(name)), "x")?;
        }
    }
    let mut batch = Batch::new(&policy)?;
    for name in names {
        let name = OsStr::from_bytes(name);
        let (closed, open) = (
            folder.path().join("closed").join(name),
            folder.path().join("open").join(name),
        );
        batch.denied(on("read", &closed), file("closed", &closed, "read"));
        batch.allowed(on("read", &open), file("open", &open, "read"));
    }
    let (finished, mut problems) = batch.run()?;
    let requested_too = finished.record.denials().all(|line| {
        line.get("opensafe.file.requested").is_none()
            || line.bytes("opensafe.file.requested") == line.bytes("file.path")
    });
    problems.check(requested_too, || {
        "what was asked for is not on record by its bytes".into()
    });
    for text in [&finished.raw_record, &finished.stderr] {
        let bad = text
            .iter()
            .find(|byte| (**byte < b' ' && **byte != b'\n') || **byte == 0x7f);
        problems.check(bad.is_none(), || {
            format!("byte {bad:?} would reach a terminal")
        });
    }
    problems.outcome()
}

/// Makes a file below directories whose path need not fit a system call; returns the components.
fn deep_file(top: &Path, components: &[String], name: &str) -> Result<()> {
    let mut directory: OwnedFd = open(top, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    for component in components {
        let component = component.as_str();
        match mkdirat(&directory, component, Mode::S_IRWXU) {
            Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        directory = openat(&directory, component, flags, Mode::empty())?;
    }
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(&directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    Ok(())
}

fn a_path_of_4000_bytes_is_decided_whole_and_a_longer_one_is_nameless() -> Result<Outcome> {
    const LENGTH: usize = 4000;
    let folder = directory()?;
    // Directories of 200 bytes each, then a file whose name fills it up.
    let prefix = folder.path().as_os_str().len();
    let components = vec!["d".repeat(200); (LENGTH - prefix - 2) / 201];
    let used = prefix + components.len() * 201 + 1;
    let (left, right) = (
        "f".repeat(LENGTH - used),
        format!("{}g", "f".repeat(LENGTH - used - 1)),
    );
    deep_file(folder.path(), &components, &left)?;
    deep_file(folder.path(), &components, &right)?;
    let directory = folder.path().join(components.join("/"));
    let (closed, open_path) = (directory.join(&left), directory.join(&right));
    anyhow::ensure!(
        closed.as_os_str().len() == LENGTH,
        "{} bytes",
        closed.as_os_str().len()
    );
    let longer = vec!["e".repeat(200); 24];
    deep_file(folder.path(), &longer, "file")?;

    let policy = Policy::open().rule(deny("long").file(&closed));
    let steps = |more: &str| {
        let mut steps: Vec<OsString> = vec![folder.path().into()];
        steps.extend(longer.iter().map(OsString::from));
        steps.push(more.into());
        steps
    };
    let mut batch = Batch::new(&policy)?;
    batch.denied(on("read", &closed), file("long", &closed, "read"));
    batch.denied(on("write", &closed), file("long", &closed, "write"));
    batch.allowed(
        on("read", &open_path),
        file("defaults.file", &open_path, "read"),
    );
    // Whether a rule is about it cannot be told, and one denies.
    batch.fails(attempt("read-below", &steps("file")), "EACCES");
    let (finished, mut problems) = batch.run()?;
    let nameless: Vec<_> = finished
        .record
        .denials()
        .filter(|line| line.text("opensafe.rule.id") != "long")
        .collect();
    problems.check(
        matches!(&*nameless, [one] if one.text("opensafe.reason").contains("name")),
        || format!("on record about the path that is too long: {nameless:?}"),
    );

    // Where nothing denies files, nothing is in its way.
    let mut batch = Batch::new(&Policy::open())?;
    batch.works(attempt("read-below", &steps("file")));
    let (_, more) = batch.run()?;
    problems.add(more);
    problems.outcome()
}

fn a_file_system_in_memory_and_a_deleted_file_are_decided_by_their_paths() -> Result<Outcome> {
    let folder = directory_in(Path::new("/dev/shm"))?;
    let path = |name: &str| folder.path().join(name);
    for name in ["closed", "open"] {
        fs::create_dir(path(name))?;
        for file in ["file", "deleted"] {
            write(&path(name).join(file), "x")?;
        }
    }
    let deleted = fs::File::open(path("closed/deleted"))?;
    fs::remove_file(path("closed/deleted"))?;
    let policy = Policy::open()
        .rule(deny("closed").below(path("closed")))
        .rule(allow("open").below(path("open")));
    let mut batch = Batch::new(&policy)?.stdin(Stdio::from(deleted));
    let is_closed = |name: &str| file("closed", path("closed").join(name), "read");
    batch.denied(on("read", &path("closed/file")), is_closed("file"));
    batch.allowed(
        on("read", &path("open/file")),
        file("open", path("open/file"), "read"),
    );
    // Standard input is the deleted file. What is open already stays readable; opening it again is an open.
    batch.denied(attempt("read", &["/dev/stdin"]), is_closed("deleted"));
    batch.denied(attempt("read", &["/proc/self/fd/0"]), is_closed("deleted"));
    batch.allowed(
        on("reopen-deleted", &path("open/deleted")),
        file("open", path("open/deleted"), "read"),
    );
    batch.check()?;
    held()
}

fn an_overlay_is_decided_by_its_own_names_and_copies_up_without_a_denial() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["lower", "lower/sub", "upper", "work", "merged"] {
        fs::create_dir(path(name))?;
    }
    for name in [
        "lower/read",
        "lower/write",
        "lower/cut",
        "lower/secret",
        "lower/gone",
        "lower/sub/deep",
    ] {
        write(&path(name), "content")?;
    }
    let text = |name: &str| path(name).display().to_string();
    let data = format!(
        "lowerdir={},upperdir={},workdir={}",
        text("lower"),
        text("upper"),
        text("work")
    );
    let kind = Some("overlay");
    let mounted = Mounted::new(
        Path::new("overlay"),
        &path("merged"),
        kind,
        MsFlags::empty(),
        Some(&data),
    );
    let _mounted = match mounted {
        Ok(mounted) => mounted,
        Err(error) => return crate::harness::skipped(format!("{error:#}")),
    };
    let policy = Policy::open()
        .default("file", "deny")
        .rule(allow("merged").below(path("merged")))
        .rule(deny("secret").file(path("merged/secret")));
    let merged = |name: &str| path("merged").join(name);
    let mut batch = Batch::new(&policy)?;
    batch.allowed(
        on("read", &merged("read")),
        file("merged", merged("read"), "read"),
    );
    batch.allowed(
        on("append", &merged("write")),
        file("merged", merged("write"), "write"),
    );
    batch.allowed(
        on("write", &merged("sub/deep")),
        file("merged", merged("sub/deep"), "write"),
    );
    batch.works(on("truncate", &merged("cut")));
    batch.allowed(
        on("create", &merged("new")),
        file("merged", merged("new"), "create"),
    );
    batch.works(on("mkdir", &merged("directory")));
    batch.works(attempt(
        "rename",
        &[merged("new"), merged("directory/renamed")],
    ));
    batch.works(on("unlink", &merged("gone")));
    batch.works(on("list", &merged("sub")));
    for (verb, access) in [("read", "read"), ("write", "write"), ("unlink", "delete")] {
        batch.denied(
            on(verb, &merged("secret")),
            file("secret", merged("secret"), access),
        );
    }
    // The layers are places of their own.
    batch.denied(
        on("read", &path("lower/read")),
        file("defaults.file", path("lower/read"), "read"),
    );
    batch.denied(
        on("list", &path("upper")),
        file("defaults.file", path("upper"), "read"),
    );
    let (finished, mut problems) = batch.run()?;
    let denied: Vec<_> = finished
        .record
        .denials()
        .filter(|line| Path::new(line.text("file.path")).starts_with(folder.path()))
        .map(|line| {
            format!(
                "{} {}",
                line.text("file.path"),
                line.texts("opensafe.file.access").join("+")
            )
        })
        .collect();
    problems.check(denied.len() == 5, || {
        format!("there should be 5 denials: {denied:?}")
    });
    problems.equal(
        "what was copied up",
        fs::read_to_string(path("upper/write"))
            .unwrap_or_default()
            .as_str(),
        "contentx",
    );
    problems.check(!path("upper/secret").exists(), || {
        "the denied file was copied up".into()
    });
    problems.outcome()
}

fn a_new_mount_opens_no_hole_and_a_new_tmpfs_has_its_name() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["closed", "open", "open/alias", "tmp", "scratch"] {
        fs::create_dir(path(name))?;
    }
    write(&path("closed/file"), "x")?;
    let policy = Policy::open()
        .default("file", "deny")
        .rule(allow("scratch").below(path("scratch")))
        .rule(allow("open").below(path("open")))
        .rule(allow("tmp").below(path("tmp")))
        .rule(deny("tmp.secret").below(path("tmp/secret")));
    let workspace = folder.path().display().to_string();
    let mut batch = Batch::new(&policy)?.options(&["--workspace", &workspace]);
    batch.works(attempt(
        "private-bind",
        &[path("closed"), path("open/alias")],
    ));
    batch.denied(
        on("read", &path("open/alias/file")),
        file("defaults.file", path("closed/file"), "read"),
    );
    // Nor does an overlay of the run's own, whose layers the kernel reads.
    batch.fails(
        attempt(
            "copy-up-and-read",
            &[
                path("closed").as_os_str(),
                OsStr::new("file"),
                path("scratch").as_os_str(),
            ],
        ),
        "EACCES",
    );
    batch.works(on("private-tmpfs", &path("tmp")));
    let (made, first) = (path("tmp/made"), path("tmp/first"));
    // Until opensafe has met it, it has no name.
    batch.works(on("create-patiently", &first));
    batch.allowed(on("create", &made), file("tmp", &made, "create"));
    batch.allowed(on("read", &made), file("tmp", &made, "read"));
    let secret = path("tmp/secret");
    batch.denied(on("create", &secret), file("tmp.secret", &secret, "create"));
    let (_, mut problems) = batch.run()?;
    let copy = fs::read(path("scratch/upper/file")).unwrap_or_default();
    problems.check(copy.is_empty(), || {
        "a denied file was copied into an open place".into()
    });
    problems.outcome()
}

fn a_file_that_exists_is_opened_where_only_creating_is_denied() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["cold", "warm"] {
        write(&path(name), "x")?;
    }
    let policy = Policy::open().rule(deny("no.new").below(folder.path()).access(&["create"]));
    let mut batch = Batch::new(&policy)?.shape("waiting").stdin(Stdio::piped());
    batch.allowed(
        on("open-or-create", &path("cold")),
        file("defaults.file", path("cold"), "write"),
    );
    batch.works(on("open-or-create", &path("warm")));
    batch.works(on("open-or-create", &path("warm")));
    batch.denied(
        on("open-or-create", &path("new")),
        file("no.new", path("new"), "create"),
    );
    batch.denied(
        on("create", &path("newer")),
        file("no.new", path("newer"), "create"),
    );
    // Denied or not, to make what exists fails as ever.
    batch.fails(on("create", &path("warm")), "EEXIST");
    let (mut running, pending) = batch.start()?;
    running.wait_for_output("waiting ")?;
    // Names and inodes that the kernel keeps: gone, so that it has to ask the file system.
    nix::unistd::sync();
    fs::write("/proc/sys/vm/drop_caches", "2")?;
    let mut stdin = running.child.stdin.take().context("no standard input")?;
    stdin.write_all(b"go\n")?;
    drop(stdin);
    let finished = running.finish()?;
    let mut problems = Problems::default();
    pending.compare(&finished, &mut problems)?;
    let denied: Vec<_> = finished
        .record
        .denials()
        .map(|line| line.bytes("file.path"))
        .collect();
    let should = ["new", "newer"].map(|name| path(name).as_os_str().as_bytes().to_vec());
    problems.equal("denials on record", denied, should.to_vec());
    for name in ["new", "newer"] {
        problems.check(!path(name).exists(), || format!("{name} was made"));
    }
    problems.outcome()
}

fn pipes_terminals_and_standard_streams_work_where_files_are_denied() -> Result<Outcome> {
    let folder = directory()?;
    let script = r#"
set -e
cat <(echo substituted)
echo piped | cat /dev/stdin
echo by-number | cat /dev/fd/0
exec 5< <(echo opened-again); cat /proc/self/fd/5
echo out >/dev/stdout
echo err >/dev/stderr
coproc cat; echo through >&"${COPROC[1]}"; read -r -u "${COPROC[0]}" line; echo "$line"
cat <<<here-string
python3 -I -c 'import os, pty; r = pty.spawn(["echo", "in-a-terminal"]); os._exit(r)'
head -c 4 /dev/zero | wc -c
echo nothing >/dev/null
"#;
    let policy = Policy::open()
        .default("file", "deny")
        .programs_can_start()
        .rule(allow("tmp").file_globs(&["/tmp/**"]));
    // A pipe, as a terminal's user has it: a file of ours would be a file.
    let finished = Run::new(&policy)?.piped().run(&["bash", "-c", script])?;
    let record = finished.sound()?;
    let mut problems = Problems::default();
    let mut output = finished.text().replace('\r', "");
    output = output.split_whitespace().collect::<Vec<_>>().join(" ");
    problems.equal(
        "the output",
        output.as_str(),
        "substituted piped by-number opened-again out through here-string in-a-terminal 4",
    );
    problems.equal("the exit status", finished.code(), 0);
    let denied: Vec<_> = record.denials().map(ToString::to_string).collect();
    problems.check(denied.is_empty(), || {
        format!("denied all the same: {denied:?}")
    });
    drop(folder);
    problems.outcome()
}

fn a_thousand_rules_are_each_in_force() -> Result<Outcome> {
    let folder = directory()?;
    let path = |name: &str| folder.path().join(name);
    let mut policy = Policy::open();
    let mut attempts = Vec::new();
    for number in 0..1000 {
        let id = format!("rule.{number:03}");
        policy = policy.rule(match number % 5 {
            0 => deny(&id).below(path(&format!("dir-{number}"))),
            1 => {
                deny(&id).file_globs(&[&format!("{}/**/file-{number}.*", folder.path().display())])
            }
            2 => deny(&id).exec(path(&format!("program-{number}"))),
            3 => deny(&id).connect(format!("10.{}.{}.0/24", number / 250, number % 250)),
            _ => deny(&id).connect("127.0.0.1").port(20_000 + number),
        });
        if number % 100 < 5 || number > 994 {
            attempts.push((number, id));
        }
    }
    let mut batch = Batch::new(&policy)?;
    for (number, id) in attempts {
        match number % 5 {
            0 => {
                let (inside, beside) = (
                    path(&format!("dir-{number}")),
                    path(&format!("dir-{number}x")),
                );
                for directory in [&inside, &beside] {
                    fs::create_dir(directory)?;
                    write(&directory.join("file"), "x")?;
                }
                batch.denied(
                    on("read", &inside.join("file")),
                    file(&id, inside.join("file"), "read"),
                );
                let beside = beside.join("file");
                batch.allowed(on("read", &beside), file("defaults.file", &beside, "read"));
            }
            1 => {
                let deep = path(&format!("some/where/{number}"));
                fs::create_dir_all(&deep)?;
                let (inside, beside) = (
                    deep.join(format!("file-{number}.txt")),
                    deep.join(format!("file-{number}")),
                );
                for file in [&inside, &beside] {
                    write(file, "x")?;
                }
                batch.denied(on("read", &inside), file(&id, &inside, "read"));
                batch.allowed(on("read", &beside), file("defaults.file", &beside, "read"));
            }
            2 => {
                let program = path(&format!("program-{number}"));
                fs::copy("/bin/true", &program)?;
                batch.denied(on("exec", &program), crate::harness::exec(&id, &program));
            }
            3 => {
                let address = format!("10.{}.{}.7", number / 250, number % 250);
                batch.denied(
                    attempt("udp-connect", &[format!("{address}:53")]),
                    crate::harness::connect(&id, "udp", &address),
                );
            }
            _ => {
                let port = 20_000 + number;
                batch.denied(
                    attempt("tcp", &[format!("127.0.0.1:{port}")]),
                    crate::harness::connect(&id, "tcp", "127.0.0.1").port(port),
                );
                // Nobody listens there, and nothing denies it.
                batch.fails(
                    attempt("tcp", &[format!("127.0.0.1:{}", port + 5000)]),
                    "ECONNREFUSED",
                );
            }
        }
    }
    let finished = batch.check()?;
    let rules = finished.record.start()?.number("opensafe.policy.rules");
    anyhow::ensure!(rules >= 1000, "{rules} rules are on record");
    held()
}
