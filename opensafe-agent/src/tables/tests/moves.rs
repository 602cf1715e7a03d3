//! The numbers for what is denied below a directory: one that is moved from one place to another with the
//! same number stays as open, and as closed, as it was.

use std::path::Path;

use opensafe_common::tables::BELOW_CELL;
use proptest::prelude::*;

use super::kernel::Kernel;
use super::path::{DATA, ROOT, path, policy, some_view};
use super::reference::KINDS;
use super::*;
use crate::policy::{Input, Policy};
use crate::tables::SuperblockId;

fn root() -> Vec<Mount> {
    vec![mount(1, "ext4", "/", "/")]
}

/// Whether a directory may go from one place to the other.
fn may_move(rules: &RuleSet, mounts: Vec<Mount>, id: SuperblockId, from: &str, to: &str) -> bool {
    let tables = tables(rules, &view(mounts));
    let kernel = Kernel::install(&tables, 5);
    let below = |path: &str| kernel.below(id, path.as_bytes()).unwrap();
    below(from) == below(to)
}

fn deny(kinds: Access, globs: &[&str]) -> RuleSet {
    let defaults = Defaults {
        file: Verdict::Allow,
        ..Defaults::default()
    };
    rules(defaults, vec![(Verdict::Deny, file(kinds, globs))])
}

#[test]
fn a_directory_that_leads_to_a_protected_place_stays() {
    let rules = deny(Access::FILE, &["/home/me/.ssh/**"]);
    let stays = |from, to| !may_move(&rules, root(), ROOT, from, to);
    assert!(stays("/home/me", "/home/you"));
    assert!(stays("/home", "/tmp/x"));
    assert!(stays("/home/me/.ssh", "/home/me/ssh"));
    assert!(stays("/tmp/x", "/home"));
    assert!(!stays("/home/me/a", "/home/me/b"));
    assert!(!stays("/home/me/a", "/srv/x/y"));
}

#[test]
fn below_a_floating_rule_only_its_own_names_stay() {
    let rules = deny(Access::CHANGING, &["/w/**/.git/hooks/**"]);
    let stays = |from, to| !may_move(&rules, root(), ROOT, from, to);
    assert!(stays("/w/x", "/w/.git"));
    assert!(stays("/w/a/.git", "/w/a/git"));
    assert!(stays("/w/.git/hooks", "/w/.git/other"));
    assert!(stays("/tmp/x", "/w/x"), "hooks may lie in it");
    assert!(!stays("/w/node_modules/.x-1", "/w/node_modules/x"));
    assert!(!stays("/w/a", "/w/b/c/d"));
    assert!(!stays("/w/.git/objects/x", "/w/.git/objects/y"));
}

#[test]
fn what_is_permitted_below_counts_where_the_default_denies() {
    let allow = |file_default| {
        let defaults = Defaults {
            file: file_default,
            ..Defaults::default()
        };
        rules(
            defaults,
            vec![(Verdict::Allow, file(Access::FILE, &["/w/**"]))],
        )
    };
    assert!(!may_move(&allow(Verdict::Deny), root(), ROOT, "/srv", "/w"));
    assert!(may_move(&allow(Verdict::Allow), root(), ROOT, "/srv", "/w"));
}

#[test]
fn a_directory_above_a_mount_point_stays() {
    let mut mounts = root();
    mounts.push(mount(2, "ext4", "/", "/srv/data/disk"));
    let open = deny(Access::FILE, &["/x"]);
    let stays = |from, to| !may_move(&open, mounts.clone(), ROOT, from, to);
    assert!(stays("/srv/data", "/srv/other"));
    assert!(stays("/srv", "/tmp"));
    assert!(!stays("/srv/a", "/srv/b"));
    assert!(may_move(&open, mounts, DATA, "/a", "/b"));
}

#[test]
fn what_another_automaton_says_may_open_is_told_apart_from_what_nothing_opens() {
    // At both places writing is denied below: at one as a part of what is hidden, which the floating rule
    // opens again, at the other by name, which it does not.
    let mut policy = deny(Access::READING, &["/h/a/**", "/h/b/**"]);
    policy.rules.extend([
        rule(
            1,
            Verdict::Deny,
            file(Access::CHANGING.union(Access::CREATE), &["/h/b/**"]),
        ),
        rule(
            2,
            Verdict::Allow,
            file(Access::CHANGING, &["/h/a/**/log", "/h/b/**/log"]),
        ),
    ]);
    assert!(!may_move(&policy, root(), ROOT, "/h/a/x", "/h/b/x"));
}

#[test]
fn ordinary_moves_of_directories_pass_under_the_policies_that_ship() {
    let moves = [
        // npm, pnpm, yarn
        (
            "/home/me/work/node_modules/.x-Ab1",
            "/home/me/work/node_modules/x",
        ),
        (
            "/home/me/work/node_modules/.pnpm/a_tmp_1",
            "/home/me/work/node_modules/.pnpm/a",
        ),
        (
            "/home/me/.npm/_cacache/tmp/a",
            "/home/me/.npm/_cacache/content-v2/a",
        ),
        // cargo, rustc
        (
            "/home/me/work/target/debug/incremental/x/s-1-working",
            "/home/me/work/target/debug/incremental/x/s-1-2",
        ),
        (
            "/home/me/.cargo/registry/src/.tmp1",
            "/home/me/.cargo/registry/src/x-1.0",
        ),
        // pip: puts what it replaces aside
        (
            "/home/me/work/.venv/lib/python3.12/site-packages/x",
            "/home/me/work/.venv/lib/python3.12/site-packages/~x",
        ),
        // mv, cp, tar, cmake
        ("/home/me/work/src/a", "/home/me/work/src/b"),
        ("/home/me/work/build.tmp", "/home/me/work/build"),
        ("/tmp/a", "/tmp/b/c"),
        ("/tmp/a", "/var/tmp/a"),
    ];
    let input = Input {
        agent: "codex".into(),
        workspace: "/home/me/work".into(),
        home: "/home/me".into(),
        tmp: "/tmp".into(),
        ..Input::default()
    };
    for name in ["default", "coding-agent"] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../policies")
            .join(name);
        let policy = Policy::load(&[directory]).unwrap();
        let rules = policy.evaluate(&input).unwrap();
        let tables = tables(&rules, &view(root()));
        let kernel = Kernel::install(&tables, 0);
        for (from, to) in moves {
            let below = |path: &str| kernel.below(ROOT, path.as_bytes());
            assert_eq!(below(from), below(to), "{name}: {from} {to}");
        }
        let stays = |from: &str, to: &str| {
            kernel.below(ROOT, from.as_bytes()) != kernel.below(ROOT, to.as_bytes())
        };
        for (from, to) in [
            ("/home/me", "/home/me2"),
            ("/home/me/.ssh", "/home/me/ssh"),
            ("/home/me/.config", "/home/me/work/c"),
        ] {
            assert!(stays(from, to), "{name}: {from} {to}");
        }
    }
}

proptest! {
    #[test]
    fn places_with_the_same_numbers_deny_the_same_below(
        policy in policy(),
        view in some_view(),
        directories in prop::collection::vec(path(), 2..12),
        suffixes in prop::collection::vec(path(), 1..12),
    ) {
        let tables = tables(&policy, &view);
        let kernel = Kernel::install(&tables, 3);
        // Nothing is ever moved from one superblock to another.
        for (id, _) in &tables.superblocks {
            for (at, from) in directories.iter().enumerate() {
                for to in &directories[..at] {
                    if kernel.below(*id, from) != kernel.below(*id, to) {
                        continue;
                    }
                    for suffix in suffixes.iter().filter(|suffix| !suffix.is_empty()) {
                        let [one, two] =
                            [from, to].map(|path| kernel.path(*id, &[path.as_slice(), suffix].concat()));
                        let denied = |word: Word, kind| word.verdict(kind) == Verdict::Deny;
                        for kind in KINDS {
                            prop_assert_eq!(
                                denied(one, kind),
                                denied(two, kind),
                                "{:?} of {} below {} and {} in {:?}",
                                kind,
                                String::from_utf8_lossy(suffix),
                                String::from_utf8_lossy(from),
                                String::from_utf8_lossy(to),
                                id
                            );
                        }
                        prop_assert_eq!(one.flags & Word::MOUNT_POINT, two.flags & Word::MOUNT_POINT);
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_are_no_states(policy in policy(), view in some_view()) {
        // They stay what they are wherever the tables are installed.
        let tables = tables(&policy, &view);
        let cells = tables.relocate(1000);
        for (before, after) in tables.cells[1..].chunks_exact(tables.stride).zip(cells[1..].chunks_exact(tables.stride)) {
            prop_assert_eq!(before[BELOW_CELL as usize], after[BELOW_CELL as usize]);
        }
    }
}
