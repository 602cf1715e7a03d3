use opensafe_common::operation::Operation;
use proptest::prelude::*;

use super::kernel::Kernel;
use super::reference::{self, KINDS};
use super::*;
use crate::rules::access;
use crate::tables::{SuperblockId, TableError};

const OPEN: Defaults = Defaults {
    exec: Verdict::Allow,
    file: Verdict::Allow,
    connect: Verdict::Allow,
    bind: Verdict::Allow,
    operations: [Verdict::Allow; Operation::ALL.len()],
};
pub(super) const ROOT: SuperblockId = SuperblockId::ByDev(Dev::new(0, 1));
pub(super) const DATA: SuperblockId = SuperblockId::ByDev(Dev::new(0, 2));
const PROC: SuperblockId = SuperblockId::ByMagic(0x9fa0);
const PIPE: SuperblockId = SuperblockId::ByMagic(0x5049_5045);

fn deny_all(globs: &[&str]) -> RuleSet {
    rules(OPEN, vec![(Verdict::Deny, file(Access::FILE, globs))])
}

fn read(tables: &Tables, id: SuperblockId, path: &str) -> Verdict {
    Kernel::install(tables, 7)
        .path(id, path.as_bytes())
        .verdict(Access::READ)
}

/// Which of `paths` in a superblock may not be read.
fn denied<'a>(
    rules: &RuleSet,
    mounts: Vec<Mount>,
    id: SuperblockId,
    paths: &[&'a str],
) -> Vec<&'a str> {
    let tables = tables(rules, &view(mounts));
    let kernel = Kernel::install(&tables, 7);
    paths
        .iter()
        .filter(|path| kernel.path(id, path.as_bytes()).verdict(Access::READ) == Verdict::Deny)
        .copied()
        .collect()
}

#[test]
fn a_directory_rule_names_the_directory_and_what_is_below() {
    let found = denied(
        &deny_all(&["/a/b/**"]),
        vec![mount(1, "ext4", "/", "/")],
        ROOT,
        &[
            "",
            "/a",
            "/a/b",
            "/a/b/c",
            "/a/b/c/d",
            "/a/bc",
            "/a/b\n/c",
            "/a/b/\n\u{e9}",
        ],
    );
    assert_eq!(found, ["/a/b", "/a/b/c", "/a/b/c/d", "/a/b/\n\u{e9}"]);
}

#[test]
fn a_glob_of_the_root_names_the_root_alone() {
    let found = denied(
        &deny_all(&["/"]),
        vec![mount(1, "ext4", "/", "/")],
        ROOT,
        &["", "/a"],
    );
    assert_eq!(found, [""]);
}

#[test]
fn a_floating_pattern_matches_at_any_depth_also_none() {
    let found = denied(
        &deny_all(&["/**/.env"]),
        vec![mount(1, "ext4", "/", "/")],
        ROOT,
        &[
            "/.env",
            "/a/.env",
            "/a/b/.env",
            "/a.env",
            "/.env/x",
            "/.envx",
            "",
        ],
    );
    assert_eq!(found, ["/.env", "/a/.env", "/a/b/.env"]);
}

#[test]
fn a_glob_is_carried_behind_the_mounted_directory() {
    let found = denied(
        &deny_all(&["/mnt/data/x/*", "/mnt/**/deep", "/other/**"]),
        vec![
            mount(1, "ext4", "/", "/"),
            mount(2, "ext4", "/export", "/mnt/data"),
        ],
        DATA,
        &[
            "/export/x/1",
            "/export/x/1/2",
            "/export/deep",
            "/export/y/deep",
            "/export/other",
        ],
    );
    assert_eq!(found, ["/export/x/1", "/export/deep", "/export/y/deep"]);
}

#[test]
fn a_rule_over_a_mount_point_holds_in_the_mount() {
    let found = denied(
        &deny_all(&["/mnt/**"]),
        vec![
            mount(1, "ext4", "/", "/"),
            mount(2, "ext4", "/", "/mnt/data"),
        ],
        DATA,
        &["", "/x"],
    );
    assert_eq!(found, ["", "/x"]);
}

#[test]
fn a_superblock_with_two_names_takes_the_strictest() {
    let mut policy = deny_all(&["/b/secret"]);
    policy
        .rules
        .push(rule(1, Verdict::Allow, file(Access::FILE, &["/a/**"])));
    let mounts = vec![mount(2, "ext4", "/", "/a"), mount(2, "ext4", "/", "/b")];
    let found = denied(&policy, mounts.clone(), DATA, &["/secret", "/x"]);
    assert_eq!(found, ["/secret"]);
    // Under /b nothing speaks about it, so the default is that name's verdict.
    policy.defaults.file = Verdict::Deny;
    let found = denied(&policy, mounts, DATA, &["/secret", "/x"]);
    assert_eq!(found, ["/secret", "/x"]);
}

#[test]
fn a_second_name_counts_only_where_it_reaches() {
    let policy = rules(
        Defaults::default(),
        vec![(Verdict::Allow, file(Access::FILE, &["/work/**"]))],
    );
    let mounts = vec![
        mount(2, "ext4", "/home/u/work", "/work"),
        mount(2, "ext4", "/etc/hosts", "/etc/hosts"),
    ];
    let tables = tables(&policy, &view(mounts));
    assert_eq!(read(&tables, DATA, "/home/u/work/x"), Verdict::Allow);
    assert_eq!(read(&tables, DATA, "/etc/hosts"), Verdict::Deny);
    assert_eq!(read(&tables, DATA, "/home/u"), Verdict::Deny);
}

#[test]
fn mounts_of_directories_that_lie_apart_cost_no_more_than_their_names() {
    let sources: Vec<String> = (0..50).map(|i| format!("/**/name-{i}/**")).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let states = |count: usize| {
        let mounts = (0..count)
            .map(|i| {
                mount(
                    2,
                    "ext4",
                    &format!("/volumes/{i:03}"),
                    &format!("/data/{i:03}"),
                )
            })
            .collect();
        tables(&deny_all(&sources), &view(mounts)).stats.states
    };
    assert!(states(200) < states(2) + 200);
}

#[test]
fn a_hidden_mount_is_no_name() {
    let mounts = vec![
        mount(1, "ext4", "/", "/"),
        mount(2, "ext4", "/", "/mnt"),
        mount(3, "tmpfs", "/", "/mnt"),
    ];
    let tables = tables(&deny_all(&["/mnt/x"]), &view(mounts));
    assert!(!tables.superblocks.iter().any(|(id, _)| *id == DATA));
}

#[test]
fn a_bind_of_a_part_onto_itself_adds_no_name() {
    let plain = vec![mount(1, "ext4", "/", "/")];
    let mut bound = plain.clone();
    bound.push(mount(1, "ext4", "/usr", "/usr"));
    let policy = deny_all(&["/usr/lib/**", "/**/.env"]);
    let [plain, bound] = [plain, bound].map(|mounts| tables(&policy, &view(mounts)));
    assert_eq!(plain.superblocks, bound.superblocks);
    assert_eq!(plain.stats, bound.stats);
}

#[test]
fn outside_of_what_is_mounted_an_object_is_nameless() {
    let policy = rules(
        OPEN,
        vec![
            (Verdict::Deny, file(Access::WRITE, &["/x"])),
            (Verdict::Audit, exec(&["/y"])),
        ],
    );
    let tables = tables(&policy, &view(vec![mount(2, "ext4", "/sub", "/mnt")]));
    let kernel = Kernel::install(&tables, 0);
    for word in [kernel.path(DATA, b"/other"), kernel.path(ROOT, b"/x")] {
        assert_eq!(word.verdict(Access::WRITE), Verdict::Deny);
        assert_eq!(word.verdict(Access::READ), Verdict::Allow);
        assert_eq!(word.verdict(Access::EXEC), Verdict::Audit);
    }
    let inside = kernel.path(DATA, b"/sub/other");
    assert_eq!(inside.verdict(Access::WRITE), Verdict::Allow);
}

#[test]
fn a_pseudo_file_system_is_named_by_type_mounted_or_not() {
    let policy = deny_all(&["/proc/kcore", "/p/kcore"]);
    let customary = tables(&policy, &view(vec![]));
    assert_eq!(read(&customary, PROC, "/kcore"), Verdict::Deny);
    assert_eq!(read(&customary, PROC, "/cpuinfo"), Verdict::Allow);
    let elsewhere = tables(
        &deny_all(&["/p/kcore"]),
        &view(vec![mount(9, "proc", "/", "/p")]),
    );
    assert_eq!(read(&elsewhere, PROC, "/kcore"), Verdict::Deny);
    assert!(
        !elsewhere
            .superblocks
            .iter()
            .any(|(id, _)| matches!(id, SuperblockId::ByDev(_)))
    );
}

#[test]
fn a_tmpfs_of_the_sandboxs_own_lies_where_temporary_files_do() {
    let policy = deny_all(&["/tmp/secret", "/etc/secret", "/**/.env"]);
    let tables = tables(&policy, &view(vec![mount(1, "ext4", "/", "/")]));
    let own = SuperblockId::OwnTmpfs;
    assert_eq!(read(&tables, own, "/secret"), Verdict::Deny);
    assert_eq!(read(&tables, own, "/etc/secret"), Verdict::Allow);
    assert_eq!(read(&tables, own, "/newroot/.env"), Verdict::Deny);
}

#[test]
fn own_pipes_and_memory_files_may_be_used_but_not_run_unasked() {
    let policy = rules(Defaults::default(), vec![(Verdict::Deny, exec(&["/x"]))]);
    let mut view = view(vec![mount(1, "ext4", "/", "/")]);
    view.memfd_dev = Some(Dev::new(0, 77));
    let tables = tables(&policy, &view);
    let kernel = Kernel::install(&tables, 0);
    for id in [PIPE, SuperblockId::ByTmpfsDev(Dev::new(0, 77))] {
        let word = kernel.path(id, b"/memfd:x (deleted)");
        assert_eq!(word.verdict(Access::FILE), Verdict::Allow);
        assert_eq!(word.verdict(Access::EXEC), Verdict::Deny);
    }
}

#[test]
fn a_link_in_a_rule_counts_with_every_name_on_the_way() {
    let mut view = view(vec![mount(1, "ext4", "/", "/")]);
    for (from, to) in [("/bin", "/usr/bin"), ("/bin/sh", "/usr/bin/dash")] {
        view.links.insert(from.into(), to.into());
    }
    let tables = tables(&deny_all(&["/bin/sh", "/bin/x*"]), &view);
    for path in ["/bin/sh", "/usr/bin/sh", "/usr/bin/dash", "/usr/bin/xyz"] {
        assert_eq!(read(&tables, ROOT, path), Verdict::Deny, "{path}");
    }
    assert_eq!(read(&tables, ROOT, "/usr/bin/bash"), Verdict::Allow);
}

#[test]
fn links_in_a_circle_come_to_an_end() {
    let mut view = view(vec![mount(1, "ext4", "/", "/")]);
    for (from, to) in [("/a", "/b"), ("/b", "/a/a"), ("/a/a", "/a/a/a")] {
        view.links.insert(from.into(), to.into());
    }
    let tables = tables(&deny_all(&["/a/x"]), &view);
    assert_eq!(read(&tables, ROOT, "/b/x"), Verdict::Deny);
}

#[test]
fn a_question_mark_takes_a_character_or_a_byte_of_none() {
    let tables = tables(
        &deny_all(&["/a?b", "/c[!a-é]d"]),
        &view(vec![mount(1, "ext4", "/", "/")]),
    );
    let kernel = Kernel::install(&tables, 0);
    let denied = |path: &[u8]| kernel.path(ROOT, path).verdict(Access::READ) == Verdict::Deny;
    for path in [
        &b"/axb"[..],
        "/aéb".as_bytes(),
        "/a😀b".as_bytes(),
        b"/a\xffb",
        b"/c\xe9d",
    ] {
        assert!(denied(path), "{path:?}");
    }
    for path in [
        &b"/ab"[..],
        b"/axxb",
        b"/a/b",
        b"/c/d",
        b"/ckd",
        "/cèd".as_bytes(),
        b"/a\xff\xffb",
    ] {
        assert!(!denied(path), "{path:?}");
    }
}

#[test]
fn every_peer_rule_speaks_of_unix_sockets_by_any_name() {
    let policy = rules(
        Defaults::default(),
        vec![
            (Verdict::Allow, connect(vec![Peer::Any])),
            (
                Verdict::Deny,
                connect(vec![
                    abstract_name("x/*"),
                    Peer::UnixPath(glob("/run/d.sock")),
                ]),
            ),
        ],
    );
    let tables = tables(&policy, &view(vec![mount(1, "ext4", "/", "/")]));
    let kernel = Kernel::install(&tables, 0);
    let unix = |word: Word| word.verdict(Access::UNIX);
    assert_eq!(unix(kernel.path(ROOT, b"/run/d.sock")), Verdict::Deny);
    assert_eq!(unix(kernel.path(ROOT, b"/run/e.sock")), Verdict::Allow);
    assert_eq!(unix(kernel.abstract_name(b"x/y/z")), Verdict::Deny);
    assert_eq!(unix(kernel.abstract_name(b"y")), Verdict::Allow);
    assert_eq!(unix(tables.other_family), Verdict::Allow);
    assert_eq!(unix(tables.nameless), Verdict::Deny);
}

#[test]
fn tables_over_a_limit_are_an_error_that_names_the_costliest_rules() {
    let mut policy = deny_all(&["/a/b"]);
    policy.rules.push(rule(
        1,
        Verdict::Deny,
        file(Access::READ, &["/**/a*b*/**/c*d*/**/e"]),
    ));
    let limits = Limits {
        cells: 20,
        ..Limits::default()
    };
    let TableError::TooLarge { costliest, .. } =
        compile(&policy, &view(vec![mount(1, "ext4", "/", "/")]), limits).unwrap_err();
    assert_eq!(costliest[0], RuleId("rule.0001".into()));
}

#[test]
fn patterns_that_would_explode_end_at_the_limit() {
    // Each pattern asks for another byte at a distance from the end: 2^30 states.
    let sources: Vec<String> = ('a'..='z')
        .map(|c| format!("/*{c}{}", "?".repeat(30)))
        .collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let error = compile(
        &deny_all(&sources),
        &view(vec![mount(1, "ext4", "/", "/")]),
        Limits {
            building_cells: 1 << 18,
            ..Limits::default()
        },
    )
    .unwrap_err();
    insta::assert_snapshot!(error, @r#"
    the rules' paths need more than 262144 cells while they are compiled
    the costliest are "rule.0000"; wildcards before the end of a path cost most: begin it with a directory, or put several into one rule
    "#);
}

// Random policies, views and paths over names so few that they meet.

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Allow),
        Just(Verdict::Audit),
        Just(Verdict::Deny)
    ]
}

fn component() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "ab", "é"]),
        2 => prop::sample::select(vec!["*", "a*", "*b", "?", "??", "[!a-é]", "[b-é]", "{a,b*}", "a*b"]),
        2 => Just("**"),
    ]
}

fn source() -> impl Strategy<Value = String> {
    prop::collection::vec(component(), 0..5).prop_map(|components| {
        let mut source: String = components.iter().flat_map(|c| ["/", c]).collect();
        if source.is_empty() {
            source.push('/');
        }
        source
    })
}

/// What a policy can name: groups, single kinds, everything.
fn access() -> impl Strategy<Value = Access> {
    let named = prop::collection::vec(prop::sample::select(&access::IN_POLICIES[..]), 1..3);
    prop_oneof![
        4 => named.prop_map(|named| {
            let kinds = named.iter().map(|(_, kinds)| *kinds);
            kinds.fold(Access::NONE, Access::union)
        }),
        1 => Just(Access::FILE),
    ]
}

fn subject() -> impl Strategy<Value = Subject> {
    let sources = || prop::collection::vec(source(), 1..3);
    let globs = |sources: Vec<String>| sources.iter().map(|s| glob(s)).collect::<Vec<_>>();
    prop_oneof![
        (access(), sources()).prop_map(move |(access, sources)| Subject::File {
            globs: globs(sources),
            access,
        }),
        sources().prop_map(move |sources| Subject::Exec(globs(sources))),
        source().prop_map(|source| connect(vec![Peer::UnixPath(glob(&source))])),
        Just(connect(vec![Peer::Any])),
    ]
}

pub(super) fn policy() -> impl Strategy<Value = RuleSet> {
    let defaults = (verdict(), verdict(), verdict()).prop_map(|(exec, file, connect)| Defaults {
        exec,
        file,
        connect,
        ..Defaults::default()
    });
    let all = prop::collection::vec((verdict(), subject()), 0..7);
    let hidden = prop::collection::vec(hidden(), 0..3);
    (defaults, all, hidden).prop_map(|(defaults, mut all, hidden)| {
        all.extend(hidden.into_iter().flatten());
        rules(defaults, all)
    })
}

/// A place that may not be read, and a rule that says what may be changed in it, and perhaps elsewhere.
fn hidden() -> impl Strategy<Value = [(Verdict, Subject); 2]> {
    let directory = || prop::sample::select(vec!["/a", "/b", "/ab", "/a/b", "/**/b"]);
    let changes = prop::sample::select(vec![
        Access::WRITE,
        Access::CREATE,
        Access::DELETE,
        Access::CHANGING,
        Access::FILE,
    ]);
    (directory(), source(), directory(), changes, verdict()).prop_map(
        |(place, within, other, changes, verdict)| {
            let within = if within == "/" { "" } else { within.as_str() };
            let hides = file(Access::READING, &[&format!("{place}/**")]);
            let globs = [format!("{place}{within}"), format!("{other}{within}")];
            let says = file(changes, &globs.each_ref().map(String::as_str));
            [(Verdict::Deny, hides), (verdict, says)]
        },
    )
}

pub(super) fn path() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![
        &b"a"[..],
        b"b",
        b"ab",
        b"aab",
        b"c",
        "é".as_bytes(),
        b"\xff",
        b"a\n",
    ]);
    prop::collection::vec(name, 0..6).prop_map(|names| {
        names
            .into_iter()
            .flat_map(|name| [b"/", name].concat())
            .collect()
    })
}

/// Of devices 0:1 to 0:3.
const FS_TYPES: [&str; 3] = ["ext4", "overlay", "proc"];

pub(super) fn some_view() -> impl Strategy<Value = View> {
    let directory = || {
        prop_oneof![
            2 => Just("/"),
            3 => prop::sample::select(vec!["/a", "/b", "/a/b", "/a/a", "/ab"]),
        ]
    };
    let mount = (1_u32..4, directory(), directory())
        .prop_map(|(minor, root, point)| mount(minor, FS_TYPES[minor as usize - 1], root, point));
    prop::collection::vec(mount, 0..7).prop_map(view)
}

proptest! {
    #[test]
    fn every_path_gets_the_verdict_that_its_names_have(
        policy in policy(),
        view in some_view(),
        paths in prop::collection::vec(path(), 1..24),
    ) {
        let tables = tables(&policy, &view);
        let kernel = Kernel::install(&tables, 11);
        for path in &paths {
            for (id, fs_type) in [ROOT, DATA, PROC].into_iter().zip(FS_TYPES) {
                if !reference::visible(&view).any(|mount| mount.fs_type == fs_type) {
                    // Its objects have no name, or, by type, the customary one.
                    continue;
                }
                let word = kernel.path(id, path);
                for kind in KINDS {
                    let of_this = |mount: &Mount| mount.fs_type == fs_type;
                    let expected = reference::decide(&policy, &view, of_this, path, kind);
                    prop_assert_eq!(
                        word.verdict(kind),
                        expected,
                        "{:?} of {} in {:?}",
                        kind,
                        String::from_utf8_lossy(path),
                        id
                    );
                }
            }
        }
    }

    #[test]
    fn an_abstract_name_gets_the_verdict_of_the_rules_that_name_it(
        sources in prop::collection::vec((verdict(), "[ab*?/é]{1,5}|[a-b]|[!/]"), 0..5),
        default in verdict(),
        names in prop::collection::vec("[ab/é\u{0}]{0,6}", 1..24),
    ) {
        let all = sources
            .iter()
            .map(|(verdict, source)| (*verdict, connect(vec![abstract_name(source)])))
            .collect();
        let policy = rules(Defaults { connect: default, ..OPEN }, all);
        let tables = tables(&policy, &View::default());
        let kernel = Kernel::install(&tables, 0);
        for name in &names {
            let word = kernel.abstract_name(name.as_bytes());
            let expected = policy.decide_abstract(name.as_bytes()).verdict;
            prop_assert_eq!(word.verdict(Access::UNIX), expected);
        }
    }

    #[test]
    fn equal_rules_in_an_equal_view_give_equal_tables(policy in policy(), view in some_view()) {
        prop_assert_eq!(tables(&policy, &view), tables(&policy.clone(), &view.clone()));
    }
}
