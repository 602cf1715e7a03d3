//! Reading a file that is denied, by whatever leads there.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::Result;

use crate::{
    harness::{
        Attempt, Escape, Expected, Ground, Outcome, Policy, Try, allow, attempt, deny, exec, file,
        steps, way,
    },
    scenarios,
};

scenarios![
    a_secret_is_not_read_by_another_spelling,
    a_secret_is_not_read_by_a_descriptor_a_ring_or_a_handle,
    a_secret_is_not_read_after_a_link_or_a_move,
    a_secret_is_not_read_by_another_mount_or_root,
    a_secret_is_not_read_by_what_a_process_outside_has_open,
    a_secret_is_not_read_by_what_was_open_before,
    a_secret_is_not_read_from_its_device,
    a_deep_or_long_path_is_denied_whole,
    a_file_system_that_no_rule_names_is_denied,
    a_denied_message_queue_is_not_opened_by_flags_that_say_nothing,
];

/// Nobody listens there: for helpers that give no connection away.
const NO_PEER: &str = "127.0.0.1:1";

fn policy(ground: &Ground) -> Policy {
    Policy::open().rule(deny("secret").below(ground.path("secret")))
}

/// What is on record about reading the secret.
fn read_secret(ground: &Ground) -> Expected {
    file("secret", ground.path("secret/token"), "read")
}

fn reads(ground: &Ground, what: &'static str, path: impl AsRef<Path>) -> Try {
    way(what, attempt("read", &[path.as_ref()])).on_record(read_secret(ground))
}

fn a_secret_is_not_read_by_another_spelling() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        symlink(ground.path("secret/token"), ground.path("ws/link"))?;
        symlink("../secret/token", ground.path("ws/relative-link"))?;
        symlink(ground.path("ws/link"), ground.path("ws/link-to-link"))?;
        symlink(ground.path("secret"), ground.path("ws/d"))?;
        symlink("/proc/self/root", ground.path("ws/root"))?;
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let top = ground.text("");
        let top = top.trim_end_matches('/');
        let token = ground.text("secret/token");
        let secret = ground.text("secret");
        let reads = |what, path: String| reads(ground, what, path);
        let then = |what, attempt: Attempt| way(what, attempt).on_record(read_secret(ground));
        vec![
            reads("its name", token.clone()),
            reads("g-01 a symbolic link to it", format!("{top}/ws/link")),
            reads(
                "g-01 a relative symbolic link",
                format!("{top}/ws/relative-link"),
            ),
            reads("g-01 a link to a link", format!("{top}/ws/link-to-link")),
            reads("g-02 a linked directory", format!("{top}/ws/d/token")),
            reads(
                "g-02 a linked directory and ..",
                format!("{top}/ws/d/../secret/token"),
            ),
            reads(
                "g-03 .. in the name",
                format!("{top}/ws/../../{}/secret/token", name_of(ground)),
            ),
            reads(
                "g-03 . and // in the name",
                format!("{top}/.//secret/./token"),
            ),
            then(
                "g-04 a relative name in its directory",
                steps(&[&["chdir", &secret], &["read", "token"]]),
            ),
            then(
                "g-04 the same by fchdir of an O_PATH descriptor",
                steps(&[&["chdir-by-descriptor", &secret], &["read", "token"]]),
            ),
            then(
                "g-04 a relative name from beside it",
                steps(&[&["chdir", &ground.text("ws")], &["read", "../secret/token"]]),
            ),
            reads("g-06 /proc/self/root", format!("/proc/self/root{token}")),
            reads(
                "g-06 /proc/thread-self/root",
                format!("/proc/thread-self/root{token}"),
            ),
            // Looking into a process outside is denied before any file is reached.
            way(
                "g-06 /proc/1/root",
                attempt("read", &[format!("/proc/1/root{token}")]),
            ),
            reads(
                "g-06 a link to /proc/self/root",
                format!("{top}/ws/root{token}"),
            ),
            then(
                "g-06 /proc/self/cwd",
                steps(&[&["chdir", &secret], &["read", "/proc/self/cwd/token"]]),
            ),
            then(
                "g-17 openat with an O_PATH descriptor",
                attempt("read-at", &[&secret, "token"]),
            ),
            then(
                "g-17 openat2 with RESOLVE_IN_ROOT",
                attempt("read-in-root", &[&secret, "/../token"]),
            ),
            then(
                "a thread of its own",
                attempt("as", &["thread", "read", &token]),
            ),
            then(
                "g-47 a daemon in its own session",
                attempt("as", &["daemon", "read", &token]),
            )
            .by_anyone(),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("names.spelling")
}

fn name_of(ground: &Ground) -> String {
    let top = ground.path("");
    let top = top.components().next_back();
    top.map_or_else(String::new, |name| {
        name.as_os_str().to_string_lossy().into_owned()
    })
}

fn a_secret_is_not_read_by_a_descriptor_a_ring_or_a_handle() -> Result<Outcome> {
    let ground = || {
        let mut ground = Ground::new()?;
        // Somebody has to open it, for who watches.
        ground.helper("secret/token", NO_PEER)?;
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let token = ground.text("secret/token");
        let by = |what, verb| way(what, attempt(verb, &[&token])).on_record(read_secret(ground));
        vec![
            by("g-08 O_PATH, opened again by its number", "reopen-path"),
            by("g-22 io_uring: OPENAT", "ring-read"),
            by("g-22 io_uring: OPENAT2, then READ", "ring-open2-and-read"),
            by(
                "io_uring: OPENAT into the ring's own table",
                "ring-open-fixed-and-read",
            ),
            by("io_uring: with another personality", "ring-read-as-before"),
            by(
                "io_uring: by a thread of the kernel's",
                "ring-read-as-before-by-thread",
            )
            .by_anyone(),
            by("open_by_handle_at", "read-by-handle"),
            by(
                "fanotify: the descriptor that comes with an event",
                "read-watched",
            ),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("names.descriptor")
}

fn a_secret_is_not_read_after_a_link_or_a_move() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        // Each attempt has its own: those outside would take it away from the next.
        for place in ["a", "b", "c", "d", "e", "f"] {
            ground.directory(&format!("{place}/over/secret"))?;
            ground.file(&format!("{place}/over/secret/token"))?;
            ground.directory(&format!("{place}/other/secret"))?;
            ground.file(&format!("{place}/other/token"))?;
            ground.file(&format!("{place}/other/secret/token"))?;
        }
        Ok(ground)
    };
    let policy = |ground: &Ground| {
        let over = ["a", "b", "c", "d", "e", "f"]
            .map(|place| format!("{}/{place}/over/secret/**", ground.text("")));
        let over: Vec<String> = over.iter().map(|glob| glob.replace("//", "/")).collect();
        let over: Vec<&str> = over.iter().map(String::as_str).collect();
        policy(ground).rule(deny("over").file_globs(&over))
    };
    let ways = |ground: &Ground| {
        let token = ground.text("secret/token");
        let t = |name: &str| ground.text(name);
        let two = |what, verb: &str, from: &str, to: &str, read: &str| {
            way(what, steps(&[&[verb, from, to], &["read", read]]))
        };
        let of_secret = |attempt: Try| {
            attempt.on_record(file("secret", ground.path("secret/token"), "").of_any_kind())
        };
        let of_over = |attempt: Try, place: &str| {
            let over = |name: &str| {
                let path = ground.path(&format!("{place}/over{name}"));
                file("over", path, "").of_any_kind()
            };
            attempt
                .on_record(over("/secret/token"))
                .on_record(over("/secret"))
                .on_record(over(""))
        };
        vec![
            of_secret(two("g-05 link", "link", &token, &t("ws/l1"), &t("ws/l1"))),
            of_secret(two(
                "link by an O_PATH descriptor",
                "link-by-descriptor",
                &token,
                &t("ws/l2"),
                &t("ws/l2"),
            )),
            of_secret(two(
                "link by /proc/self/fd",
                "link-by-number",
                &token,
                &t("ws/l3"),
                &t("ws/l3"),
            )),
            of_over(
                two(
                    "rename of the file",
                    "rename",
                    &t("a/over/secret/token"),
                    &t("a/moved"),
                    &t("a/moved"),
                ),
                "a",
            ),
            of_over(
                two(
                    "io_uring: RENAMEAT",
                    "ring-rename",
                    &t("f/over/secret/token"),
                    &t("f/moved"),
                    &t("f/moved"),
                ),
                "f",
            ),
            of_over(
                two(
                    "rename of its directory",
                    "rename",
                    &t("b/over/secret"),
                    &t("b/moved"),
                    &t("b/moved/token"),
                ),
                "b",
            ),
            of_over(
                two(
                    "rename of the directory above",
                    "rename",
                    &t("c/over"),
                    &t("c/moved"),
                    &t("c/moved/secret/token"),
                ),
                "c",
            ),
            of_over(
                two(
                    "RENAME_EXCHANGE of the file",
                    "exchange",
                    &t("d/over/secret/token"),
                    &t("d/other/token"),
                    &t("d/other/token"),
                ),
                "d",
            ),
            of_over(
                two(
                    "RENAME_EXCHANGE of the directory above",
                    "exchange",
                    &t("e/over"),
                    &t("e/other"),
                    &t("e/other/secret/token"),
                ),
                "e",
            ),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("names.moved")
}

fn a_secret_is_not_read_by_another_mount_or_root() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        for point in ["m1", "m2", "m3", "m4", "m5", "o1", "o2"] {
            ground.directory(&format!("ws/{point}"))?;
        }
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let secret = ground.text("secret");
        let token = ground.text("secret/token");
        let t = |name: &str| ground.text(name);
        // Refused at the mount, or at the read.
        let mounted = |what, attempt: Attempt| way(what, attempt);
        vec![
            mounted(
                "g-09 a bind mount of its directory",
                steps(&[
                    &["private-bind", &secret, &t("ws/m1")],
                    &["read", &t("ws/m1/token")],
                ]),
            ),
            mounted(
                "a bind mount of the file",
                steps(&[
                    &["private-bind", &token, &t("prot/config")],
                    &["read", &t("prot/config")],
                ]),
            ),
            mounted(
                "a bind mount of the whole tree",
                steps(&[
                    &["private-bind", "/", &t("ws/m2")],
                    &["read", &format!("{}{token}", t("ws/m2"))],
                ]),
            ),
            mounted(
                "open_tree: a mount that is nowhere attached",
                attempt("read-detached", &[&secret, "token"]),
            ),
            mounted(
                "open_tree and move_mount",
                steps(&[
                    &["attach-detached", &secret, &t("ws/m3")],
                    &["read", &t("ws/m3/token")],
                ]),
            ),
            mounted(
                "pivot_root",
                steps(&[&["pivot", &secret], &["read", "/token"]]),
            ),
            mounted(
                "chroot",
                steps(&[&["chroot", &secret], &["read", "/token"]]),
            ),
            mounted(
                "an overlay over its directory",
                steps(&[
                    &["private-tmpfs", &t("ws/o1")][..],
                    &["overlay", &secret, &t("ws/o1")],
                    &["read", &t("ws/o1/merged/token")],
                ]),
            ),
            mounted(
                "an overlay that is nowhere attached (fsopen)",
                attempt("read-in-detached-overlay", &[&secret, &t("ws"), "token"]),
            ),
            mounted(
                "g-09 g-49 a bind mount by root of a user namespace",
                steps(&[
                    &["become-user"][..],
                    &["become-root-inside"],
                    &["bind", &secret, &t("ws/m4")],
                    &["read", &t("ws/m4/token")],
                ]),
            ),
            way(
                "g-49 root of a user namespace",
                steps(&[
                    &["become-user"][..],
                    &["become-root-inside"],
                    &["read", &token],
                ]),
            ),
            mounted(
                "an overlay by root of a user namespace",
                steps(&[
                    &["become-user"][..],
                    &["become-root-inside"],
                    &["tmpfs", &t("ws/o2")],
                    &["overlay", &secret, &t("ws/o2")],
                    &["read", &t("ws/o2/merged/token")],
                ]),
            ),
            mounted(
                "its device, mounted once more",
                steps(&[
                    &["mount-device-of", &token, &t("ws/m5")][..],
                    &["read", &format!("{}{token}", t("ws/m5"))],
                ]),
            ),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("names.mounts")
}

fn a_secret_is_not_read_by_what_a_process_outside_has_open() -> Result<Outcome> {
    let ground = || {
        let mut ground = Ground::new()?;
        ground.helper("secret/token", NO_PEER)?;
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let helper = ground.outside(0);
        let token = ground.text("secret/token");
        let there = format!("/proc/{}", helper.process);
        vec![
            way(
                "its root",
                attempt("read", &[format!("{there}/root{token}")]),
            ),
            way(
                "its open file, by /proc",
                attempt("read", &[format!("{there}/fd/{}", helper.descriptor)]),
            ),
            // The message comes, without the descriptor (MSG_CTRUNC).
            way(
                "g-24 the descriptor that it sends (SCM_RIGHTS)",
                attempt("read-received", &[&helper.socket, "file"]),
            )
            .or_ends("ENOBUFS"),
            way(
                "pidfd_getfd of its descriptor",
                attempt("read-stolen", &[&helper.process, &helper.descriptor]),
            ),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("names.outside")
}

fn a_secret_is_not_read_by_what_was_open_before() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        fs::create_dir(ground.path("gone"))?;
        ground.file("gone/token")?;
        Ok(ground)
    };
    let policy = |ground: &Ground| policy(ground).rule(deny("gone").below(ground.path("gone")));
    // The shell opens them, deletes one, and becomes what is to run.
    let wrapper = |ground: &Ground| -> Vec<String> {
        let script = format!(
            "exec 7<{token} 8<>{token} 9<{gone}; rm {gone}; exec \"$@\"",
            token = ground.text("secret/token"),
            gone = ground.text("gone/token"),
        );
        ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    };
    let token = |ground: &Ground, access| file("secret", ground.path("secret/token"), access);
    // It is not there any more when the command begins; the line is about the first process.
    let closed = |what, attempt: Attempt, expected| {
        way(what, attempt)
            .or_ends("EBADF")
            .or_ends("ENOENT")
            .by_anyone()
            .on_record(expected)
    };
    let ways = |ground: &Ground| {
        vec![
            closed(
                "g-23 an inherited descriptor",
                attempt("read-open", &["7"]),
                token(ground, "read"),
            ),
            closed(
                "an inherited descriptor, written",
                attempt("write-open", &["8"]),
                token(ground, "write"),
            ),
            closed(
                "an inherited descriptor of a deleted file",
                attempt("read-open", &["9"]),
                file("gone", ground.path("gone/token"), "read"),
            ),
            closed(
                "an inherited descriptor, opened again",
                attempt("read", &["/proc/self/fd/7"]),
                token(ground, "read"),
            ),
            closed(
                "an inherited descriptor of a deleted file, opened again",
                attempt("read", &["/proc/self/fd/9"]),
                file("gone", ground.path("gone/token"), "read"),
            ),
        ]
    };
    let run = |ground: &Ground, run: crate::harness::Run| run.wrapped(&wrapper(ground));
    Escape {
        run: &run,
        outside: &wrapper,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("names.inherited")
}

fn a_secret_is_not_read_from_its_device() -> Result<Outcome> {
    let ways = |ground: &Ground| {
        let token = ground.text("secret/token");
        let node = ground.text("ws/disk");
        vec![
            way(
                "g-26 a node for the disk, made and read",
                steps(&[&["make-device-of", &token, &node], &["read", &node]]),
            ),
            way("the disk by its name", attempt("read", &["/dev/vda"])),
        ]
    };
    let ground = Ground::new;
    Escape::new(&ground, &policy, &ways).check("names.device")
}

fn a_deep_or_long_path_is_denied_whole() -> Result<Outcome> {
    // One letter each, and 200.
    let deep = format!("secret/{}", ["d"; 25].join("/"));
    let long = format!("long/{}", ["n".repeat(200).as_str(); 18].join("/"));
    let ground = || {
        let ground = Ground::new()?;
        ground.directory(&deep)?;
        ground.file(&format!("{deep}/file"))?;
        fs::copy("/usr/bin/true", ground.path(&format!("{deep}/tool")))?;
        ground.directory(&long)?;
        ground.file(&format!("{long}/forbidden"))?;
        ground.directory("long/n/n")?;
        Ok(ground)
    };
    let policy = |ground: &Ground| {
        let globs = [format!("{}**/forbidden", ground.text("long/"))];
        let globs: Vec<&str> = globs.iter().map(String::as_str).collect();
        policy(ground)
            .rule(deny("deep").with("on", "exec".into()).with(
                "match",
                vec![format!("{}/**", ground.text("secret"))].into(),
            ))
            .rule(deny("forbidden").file_globs(&globs))
    };
    let ways = |ground: &Ground| {
        let file_there = ground.path(&format!("{deep}/file"));
        let tool = ground.path(&format!("{deep}/tool"));
        let forbidden = ground.path(&format!("{long}/forbidden"));
        let mut relative: Vec<&str> = vec!["read-below"];
        let top = ground.text("long");
        relative.push(&top);
        let name = "n".repeat(200);
        relative.extend([name.as_str(); 18]);
        relative.push("forbidden");
        vec![
            way(
                "g-15 a file 25 directories deep",
                attempt("read", &[&file_there]),
            )
            .on_record(file("secret", &file_there, "read")),
            way(
                "g-15 a program 25 directories deep",
                attempt("exec", &[&tool]),
            )
            .on_record(exec("deep", &tool)),
            way("g-16 a name of 3,700 bytes", attempt("read", &[&forbidden])).on_record(file(
                "forbidden",
                &forbidden,
                "read",
            )),
            way("g-16 the same by relative steps", steps(&[&relative])).on_record(file(
                "forbidden",
                &forbidden,
                "read",
            )),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("names.deep")
}

fn a_file_system_that_no_rule_names_is_denied() -> Result<Outcome> {
    let policy = |_: &Ground| {
        Policy::open()
            .default("file", "deny")
            .rule(allow("system").file_globs(&[
                "/usr/**",
                "/lib*/**",
                "/etc/**",
                "/var/tmp/**",
                "/proc/**",
            ]))
    };
    let ways = |_: &Ground| {
        let read = |what, path: &str| {
            way(what, attempt("read", &[path])).on_record(file("defaults.file", path, "read"))
        };
        vec![
            read(
                "g-25 a file of tracefs",
                "/sys/kernel/tracing/printk_formats",
            ),
            read("g-25 a file of debugfs", "/sys/kernel/debug/sleep_time")
                .where_there_is("CONFIG_PM_SLEEP_DEBUG"),
            read("a file of securityfs", "/sys/kernel/security/lsm"),
            read("a file of sysfs", "/sys/kernel/uevent_seqnum"),
            read("a file of bpf's own", "/sys/fs/bpf"),
            read("g-26 the memory", "/dev/mem").where_there_is("CONFIG_DEVMEM"),
            read("the kernel's messages", "/dev/kmsg"),
        ]
    };
    let ground = Ground::new;
    Escape::new(&ground, &policy, &ways).check("names.type")
}

fn a_denied_message_queue_is_not_opened_by_flags_that_say_nothing() -> Result<Outcome> {
    const QUEUES: &str = "/dev/mqueue";
    const NAME: &str = "opensafe-escape";
    let queue = Path::new(QUEUES).join(NAME);
    let ground = || {
        let mut ground = Ground::new()?;
        fs::create_dir_all(QUEUES)?;
        let (kind, flags) = (Some("mqueue"), nix::mount::MsFlags::empty());
        // A kernel without queues: whoever tries to open one finds that out.
        if nix::mount::mount(kind, QUEUES, kind, flags, None::<&str>).is_ok() {
            ground.undo(|| {
                let _ = nix::mount::umount(QUEUES);
            });
            fs::File::create(&queue)?;
            let queue = queue.clone();
            ground.undo(move || {
                let _ = fs::remove_file(&queue);
            });
        }
        Ok(ground)
    };
    let policy = |_: &Ground| Policy::open().rule(deny("queues").below(QUEUES));
    let ways = |_: &Ground| {
        let by = |what, flags: &str| {
            way(what, attempt("open-queue", &[NAME, flags]))
                .where_there_is("CONFIG_POSIX_MQUEUE")
                .on_record(file("queues", &queue, "").of_any_kind())
        };
        vec![
            by("mq_open: O_RDONLY", "0"),
            by("mq_open: O_WRONLY", "1"),
            by("mq_open: O_RDONLY and 0x20", "32"),
            by("mq_open: O_WRONLY and 0x20", "33"),
            by("mq_open: O_RDWR and 0x20", "34"),
            way("its name", attempt("read", &[&queue]))
                .where_there_is("CONFIG_POSIX_MQUEUE")
                .on_record(file("queues", &queue, "read")),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("names.queue")
}
