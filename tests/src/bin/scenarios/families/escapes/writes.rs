//! Changing what is denied, in whatever way.

use std::{fs, path::Path};

use anyhow::Result;

use crate::{
    harness::{
        Attempt, Escape, Expected, Ground, Outcome, Policy, Problems, Try, attempt, deny, file,
        steps, way,
    },
    scenarios,
};

scenarios![
    a_protected_file_is_not_written_by_a_detour,
    attributes_of_a_protected_file_are_not_changed,
    attributes_of_a_protected_file_are_not_changed_by_what_may_read_it,
    nothing_is_made_removed_or_replaced_in_a_protected_place,
    a_protected_directory_is_not_emptied_as_an_overlays,
    a_protected_name_is_not_filled_by_way_of_another,
    a_denied_file_in_an_open_tree_is_denied,
];

const FILE_SETATTR: &str = "file_setattr(2), Linux 6.17, and flags in the file system";

fn policy(ground: &Ground) -> Policy {
    Policy::open().rule(
        deny("prot")
            .below(ground.path("prot"))
            .access(&["write", "create"]),
    )
}

/// What is on record about a change of this.
fn changed(ground: &Ground, name: &str) -> Expected {
    file("prot", ground.path(name), "").of_any_kind()
}

fn kept(ground: &Ground, problems: &mut Problems) {
    let content = fs::read_to_string(ground.path("prot/config")).unwrap_or_default();
    problems.equal("the protected file's content", content.as_str(), "content");
}

fn a_protected_file_is_not_written_by_a_detour() -> Result<Outcome> {
    let ways = |ground: &Ground| {
        let config = ground.text("prot/config");
        let by = |what, verb| {
            way(what, attempt(verb, &[&config])).on_record(changed(ground, "prot/config"))
        };
        vec![
            by("write", "write"),
            by("append", "append"),
            by(
                "g-07 a descriptor for reading, opened again for writing",
                "reopen-for-writing",
            ),
            by("g-18 truncate", "truncate"),
            by("g-18 O_RDONLY with O_TRUNC", "read-and-empty"),
            by("open_by_handle_at for writing", "write-by-handle"),
            // Denied as accounting, wherever it would write.
            way(
                "acct: the kernel's accounting writes into it",
                attempt("account", &[&config]),
            ),
            way(
                "a core dump in its directory",
                attempt("dump-core", &[ground.text("prot")]),
            )
            .by_anyone(),
        ]
    };
    let ground = Ground::new;
    Escape {
        after: &kept,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("writes.detour")
}

fn unchanged(ground: &Ground, problems: &mut Problems) {
    use std::os::unix::fs::MetadataExt as _;
    match fs::metadata(ground.path("prot/config")) {
        Ok(found) => problems.check(
            found.mode() & 0o7777 == 0o666 && found.uid() == 0 && found.mtime() > 1,
            || format!("the protected file's attributes are changed: {found:?}"),
        ),
        Err(error) => problems.note(format!("the protected file: {error}")),
    }
}

fn attributes_of_a_protected_file_are_not_changed() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        rustix::fs::setxattr(
            ground.path("prot/config"),
            "user.old",
            b"x",
            rustix::fs::XattrFlags::empty(),
        )?;
        Ok(ground)
    };
    // Of every kind: which are changes of attributes is the policy's word.
    let policy = |ground: &Ground| Policy::open().rule(deny("prot").below(ground.path("prot")));
    let ways = |ground: &Ground| {
        let config = ground.text("prot/config");
        let by = |what, verb| {
            way(what, attempt(verb, &[&config])).on_record(changed(ground, "prot/config"))
        };
        vec![
            by("g-19 chmod", "chmod"),
            by("g-19 chmod to set-user-id", "set-user-id"),
            by(
                "chmod by /proc/self/fd of an O_PATH descriptor",
                "chmod-by-number",
            ),
            by("g-19 utimensat", "times"),
            by("g-19 setxattr", "xattr"),
            by("io_uring: SETXATTR", "ring-xattr"),
            by("removexattr", "remove-xattr"),
            by("setxattr of capabilities", "capability"),
            way(
                "an access control list",
                attempt("command", &["setfacl", "-m", "u:1:rwx", &config]),
            )
            .on_record(changed(ground, "prot/config"))
            .or_ends("status 1"),
            by("file_setattr", "flags-by-name").where_there_is(FILE_SETATTR),
            by("g-19 chown", "chown"),
        ]
    };
    Escape {
        after: &unchanged,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("writes.attributes")
}

fn attributes_of_a_protected_file_are_not_changed_by_what_may_read_it() -> Result<Outcome> {
    let policy = |ground: &Ground| {
        Policy::open().rule(
            deny("prot")
                .below(ground.path("prot"))
                .access(&["write", "create"]),
        )
    };
    let ways = |ground: &Ground| {
        let config = ground.text("prot/config");
        let by = |what, verb| {
            way(what, attempt(verb, &[&config])).on_record(changed(ground, "prot/config"))
        };
        vec![
            by("fchmod by a descriptor for reading", "chmod-by-descriptor"),
            by(
                "futimens by a descriptor for reading",
                "times-by-descriptor",
            ),
            by("ioctl: flags by a descriptor for reading", "flags"),
            by("file_setattr", "flags-by-name").where_there_is(FILE_SETATTR),
            by("fchown by a descriptor for reading", "chown-by-descriptor"),
        ]
    };
    let ground = Ground::new;
    Escape {
        after: &unchanged,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("writes.attributes-by-descriptor")
}

fn a_protected_directory_is_not_emptied_as_an_overlays() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        for name in [
            "prot/work",
            "ws/over",
            "ws/over/lower",
            "ws/over/upper",
            "ws/over/merged",
        ] {
            ground.directory(name)?;
        }
        ground.file("prot/work/kept")?;
        Ok(ground)
    };
    let ways = |ground: &Ground| {
        let places = [ground.text("prot"), ground.text("ws/over")];
        vec![
            way("mount", attempt("empty-by-overlay", &places)),
            way("fsopen", attempt("empty-by-detached-overlay", &places)),
        ]
    };
    let after = |ground: &Ground, problems: &mut Problems| {
        problems.check(ground.path("prot/work/kept").exists(), || {
            "what was in the directory is gone".into()
        });
    };
    Escape {
        after: &after,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("writes.work-directory")
}

fn nothing_is_made_removed_or_replaced_in_a_protected_place() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        for name in ["one", "two", "three", "four", "five"] {
            ground.file(&format!("prot/{name}"))?;
            ground.file(&format!("ws/{name}"))?;
        }
        ground.directory("prot/empty")?;
        ground.directory("hidden")?;
        Ok(ground)
    };
    let policy = |ground: &Ground| policy(ground).rule(deny("hidden").below(ground.path("hidden")));
    let ways = |ground: &Ground| {
        let t = |name: &str| ground.text(name);
        let on = |what, verb: &str, name: &str| {
            way(what, attempt(verb, &[t(name)])).on_record(changed(ground, name))
        };
        let onto = |what, verb: &str, from: &str, name: &str| {
            way(what, attempt(verb, &[t(from), t(name)])).on_record(changed(ground, name))
        };
        vec![
            on("create", "create", "prot/new"),
            on("mkdir", "mkdir", "prot/made"),
            on("io_uring: MKDIRAT", "ring-mkdir", "prot/made-by-ring"),
            on("mknod of a pipe", "fifo", "prot/pipe"),
            on("bind of a Unix socket", "bind-socket", "prot/socket"),
            // Denied as a device, wherever it is.
            way(
                "a node for a disk",
                attempt(
                    "make-device-of",
                    &[ground.text("prot/config"), ground.text("prot/disk")],
                ),
            ),
            onto("symlink", "symlink", "ws/one", "prot/symlink"),
            onto("link", "link", "ws/one", "prot/link"),
            onto(
                "linkat of a file without a name",
                "name-the-nameless",
                "ws",
                "prot/named",
            ),
            on("unlink", "unlink", "prot/one"),
            on("io_uring: UNLINKAT", "ring-unlink", "prot/two"),
            on("rmdir", "rmdir", "prot/empty"),
            onto(
                "g-11 rename of a prepared file over it",
                "rename",
                "ws/three",
                "prot/three",
            ),
            onto(
                "g-11 RENAME_EXCHANGE with a prepared file",
                "exchange",
                "ws/four",
                "prot/four",
            ),
            way(
                "rename out",
                attempt("rename", &[t("prot/five"), t("ws/out")]),
            )
            .on_record(changed(ground, "prot/five")),
            way(
                "g-12 unlinked and made again",
                steps(&[
                    &["unlink", &t("prot/config")],
                    &["create", &t("prot/config")],
                ]),
            )
            .on_record(changed(ground, "prot/config")),
            way(
                "g-20 a file in a directory that is hidden, made and read back",
                steps(&[&["create", &t("hidden/new")], &["read", &t("hidden/new")]]),
            )
            .on_record(file("hidden", ground.path("hidden/new"), "").of_any_kind()),
        ]
    };
    Escape {
        after: &kept,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("writes.names")
}

fn a_protected_name_is_not_filled_by_way_of_another() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        for name in ["ws/.git/hooks", "ws/a/.git/hooks", "ws/b/.git/hooks"] {
            ground.directory(name)?;
        }
        for name in ["c", "d", "e", "f", "other/hooks"] {
            ground.directory(&format!("ws/{name}"))?;
        }
        ground.file("ws/other/hooks/pre-commit")?;
        Ok(ground)
    };
    let policy = |ground: &Ground| {
        let hooks = format!("{}/**/.git/hooks/**", ground.text("ws"));
        Policy::open()
            .rule(
                deny("hooks")
                    .file_globs(&[&hooks])
                    .access(&["write", "create"]),
            )
            .rule(
                deny("githooks")
                    .below(ground.path("ws/.githooks"))
                    .access(&["write", "create"]),
            )
    };
    let hook = |ground: &Ground, place: &str| {
        file("hooks", ground.path(&format!("ws/{place}.git/hooks")), "").of_any_kind()
    };
    let ways = |ground: &Ground| {
        let t = |name: &str| ground.text(&format!("ws/{name}"));
        vec![
            way(
                "g-14 a hook in a repository below",
                steps(&[
                    &["mkdir", &t("c/.git")],
                    &["mkdir", &t("c/.git/hooks")],
                    &["create", &t("c/.git/hooks/pre-commit")],
                ]),
            )
            .on_record(hook(ground, "c/")),
            way(
                "g-13 a place that is not there yet",
                steps(&[
                    &["mkdir", &t(".githooks")],
                    &["create", &t(".githooks/pre-commit")],
                ]),
            )
            .on_record(file("githooks", ground.path("ws/.githooks"), "").of_any_kind()),
            // Where nothing is on record about the hook itself, it is the directory that was not moved.
            way(
                "g-10 the directory above moved away, filled, moved back",
                steps(&[
                    &["rename", &t("a/.git"), &t("a/moved")][..],
                    &["create", &t("a/moved/hooks/pre-commit")],
                    &["rename", &t("a/moved"), &t("a/.git")],
                ]),
            ),
            way(
                "g-10 the directory moved away, filled, moved back",
                steps(&[
                    &["rename", &t("b/.git/hooks"), &t("b/moved")][..],
                    &["create", &t("b/moved/pre-commit")],
                    &["rename", &t("b/moved"), &t("b/.git/hooks")],
                ]),
            )
            .on_record(hook(ground, "b/")),
            way(
                "a directory filled elsewhere and moved into its place",
                steps(&[
                    &["mkdir", &t("d/git")][..],
                    &["mkdir", &t("d/git/hooks")],
                    &["create", &t("d/git/hooks/pre-commit")],
                    &["rename", &t("d/git"), &t("d/.git")],
                ]),
            ),
            way(
                "a directory filled elsewhere, with its name by a symbolic link",
                attempt("symlink", &[t("other"), t("e/.git")]),
            ),
            way(
                "a directory filled elsewhere, exchanged",
                steps(&[
                    &["mkdir", &t("f/.git")][..],
                    &["mkdir", &t("f/git")],
                    &["mkdir", &t("f/git/hooks")],
                    &["create", &t("f/git/hooks/pre-commit")],
                    &["exchange", &t("f/git"), &t("f/.git")],
                ]),
            ),
        ]
    };
    let after = |ground: &Ground, problems: &mut Problems| {
        for place in ["", "a/", "b/", "c/", "d/", "e/", "f/"] {
            let hook = ground.path(&format!("ws/{place}.git/hooks/pre-commit"));
            problems.check(!hook.exists(), || format!("there is {}", hook.display()));
        }
    };
    Escape {
        after: &after,
        ..Escape::new(&ground, &policy, &ways)
    }
    .check("writes.filled")
}

fn a_denied_file_in_an_open_tree_is_denied() -> Result<Outcome> {
    let ground = || {
        let ground = Ground::new()?;
        ground.file("ws/.env")?;
        ground.directory("ws/sub")?;
        Ok(ground)
    };
    let policy = |ground: &Ground| {
        Policy::open()
            .default("file", "deny")
            .rule(crate::harness::allow("ws").below(ground.path("ws")))
            .rule(deny("env").file(ground.path("ws/.env")))
    };
    let ways = |ground: &Ground| {
        let read = |what, path: &Path| -> Try {
            let reads: Attempt = attempt("read", &[path]);
            way(what, reads).on_record(file("env", ground.path("ws/.env"), "read"))
        };
        vec![
            read("g-21 its name", &ground.path("ws/.env")),
            read(
                "g-21 by a directory beside it",
                &ground.path("ws/sub/../.env"),
            ),
        ]
    };
    Escape::new(&ground, &policy, &ways).check("writes.specific")
}
