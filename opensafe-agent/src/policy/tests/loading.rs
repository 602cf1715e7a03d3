//! Files, packages, evaluation, unit tests.

use super::*;

#[test]
fn both_ways_to_ask_for_the_keywords_are_accepted() {
    for import in [
        "import rego.v1",
        "import future.keywords",
        "import future.keywords.contains\nimport future.keywords.if",
    ] {
        let rules = r#"rules contains {"id": "a", "on": "exec", "match": "/a", "verdict": "deny"} if input.agent == "coder""#;
        let set = evaluate(&format!("{import}\n{rules}")).unwrap();
        assert_eq!(set.rules.len(), 1);
    }
}

#[test]
fn rego_that_does_not_parse_is_shown_with_a_caret() {
    assert_eq!(
        error_of(&[
            (
                "a.rego",
                "package opensafe.sandbox\n\nrules contains {\n\t\"id\": \"a,\n}\n"
            ),
            ("b.rego", "package opensafe.sandbox\n\nrules contains }\n"),
            ("c.rego", "package opensafe.sandbox\n"),
        ]),
        "policy DIR: a.rego:4:11: invalid character in string\n\
         \x20 4 | \t\"id\": \"a,\n\
         \x20   | \t         ^\n\
         policy DIR: b.rego:3:16: expecting expression\n\
         \x20 3 | rules contains }\n\
         \x20   |                ^"
    );
}

#[test]
fn two_values_for_one_name_are_a_conflict_with_both_places() {
    let (a, b) = (
        directory(&[(
            "p.rego",
            &sandbox("defaults := {\"file\": \"deny\"}\nrules := []"),
        )]),
        directory(&[("p.rego", &sandbox("\ndefaults := {\"file\": \"allow\"}"))]),
    );
    let policy = Policy::load(&[a.path().to_owned(), b.path().to_owned()]).unwrap();
    let error = policy.evaluate(&input()).unwrap_err().to_string();
    let (a, b) = (a.path().display(), b.path().display());
    assert!(
        error.starts_with(&format!(
            "policy {a} + {b}: {b}/p.rego:4:1: gives a second value to what {a}/p.rego:3:1 defines\n"
        )),
        "{error}"
    );
}

#[test]
fn two_directories_make_one_policy() {
    let (a, b) = (
        directory(&[(
            "p.rego",
            &sandbox(
                "rules contains {\"id\": \"a\", \"on\": \"exec\", \"match\": \"/a\", \"verdict\": \"deny\"}",
            ),
        )]),
        directory(&[(
            "p.rego",
            &sandbox(
                "rules contains {\"id\": \"b\", \"on\": \"exec\", \"match\": \"/b\", \"verdict\": \"deny\"}",
            ),
        )]),
    );
    let policy = Policy::load(&[a.path().to_owned(), b.path().to_owned()]).unwrap();
    assert_eq!(policy.evaluate(&input()).unwrap().rules.len(), 2);
    assert_eq!(policy.files().count(), 2);
}

#[test]
fn a_package_of_several_files_can_be_imported_whole() {
    let directory = directory(&[
        ("a.rego", "package team.lib\n\nfirst := [\"/first\"]\n"),
        (
            "b.rego",
            "package team.lib\n\nsecond := array.concat(first, later)\nlater := [\"/later\"]\n",
        ),
        (
            "c.rego",
            &sandbox(
                "import data.team.lib\nrules := [{\"id\": \"a\", \"on\": \"exec\", \"match\": lib.second, \"verdict\": \"deny\"}]",
            ),
        ),
    ]);
    let set = load(&directory).unwrap().evaluate(&input()).unwrap();
    assert_eq!(
        set.decide_path(b"/later", Access::EXEC).verdict,
        Verdict::Deny
    );
    assert_eq!(
        set.decide_path(b"/first", Access::EXEC).verdict,
        Verdict::Deny
    );
}

#[test]
fn an_import_means_the_same_in_all_files_of_a_package() {
    let lib = ("lib.rego", "package lib\n\na := 1\n");
    let error = error_of(&[
        lib,
        ("x.rego", "package other.lib\n\na := 1\n"),
        ("a.rego", &sandbox("import data.lib\nx := lib.a")),
        ("b.rego", &sandbox("import data.other.lib\ny := lib.a")),
    ]);
    assert!(
        error.contains("b.rego:3:1: imports another lib than DIR/a.rego of the same package")
            || error.contains("b.rego:3:1: imports another lib than a.rego of the same package"),
        "{error}"
    );
    let error = error_of(&[
        lib,
        ("a.rego", &sandbox("import data.lib\nx := lib.a")),
        ("b.rego", &sandbox("lib := 5")),
    ]);
    assert!(error.contains("b.rego:3:1: defines lib, which"), "{error}");
}

#[test]
fn an_error_is_in_the_file_where_it_was_written() {
    let error = error_of(&[
        ("a.rego", &sandbox("import data.x\n\na := 1\nrules := []\n")),
        ("b.rego", &sandbox("import data.y\n\n\nrules := [1 / 0]\n")),
        ("c.rego", &sandbox("c := 1")),
    ]);
    assert!(error.starts_with("policy DIR: b.rego:6:"), "{error}");
}

#[test]
fn a_directory_without_a_policy_is_an_error() {
    assert_eq!(
        error_of(&[("readme.md", "x")]),
        "policy DIR: there is no policy in it: no .rego file"
    );
    assert!(error_of(&[("a_test.rego", "package x")]).contains("no .rego file but tests"));
    assert_eq!(
        error_of(&[
            ("a.rego", "package team.x\na := 1"),
            ("b.rego", "package y\n")
        ]),
        "policy DIR: has no package opensafe.sandbox; it has team.x, y"
    );
    assert!(matches!(Policy::load(&[]), Err(PolicyError::NoSources)));
    let missing = Policy::load(&["./no/such".into()]).unwrap_err().to_string();
    assert_eq!(missing, "policy ./no/such: no such file or directory");
    let file = directory(&[("a.txt", "")]);
    assert!(matches!(
        Policy::load(&[file.path().join("a.txt")]),
        Err(PolicyError::NotRego { .. })
    ));
}

#[test]
fn a_bare_name_is_looked_up() {
    let installed = directory(&[
        ("team/a.rego", &sandbox("rules := []\ndefaults := {}")),
        ("single.rego", &sandbox("rules := []\ndefaults := {}")),
    ]);
    let search = [PathBuf::from("/nonexistent"), installed.path().to_owned()];
    for name in ["team", "single"] {
        let sources = Sources::find(&[name.into()], &search).unwrap();
        assert!(sources.revision.starts_with(&format!("{name}@")));
        assert_eq!(sources.shown, name);
    }
    let error = Sources::find(&["absent".into()], &search)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("policy absent: no such policy"),
        "{error}"
    );
    assert!(error.contains("looked in /nonexistent, "));
}

#[test]
fn other_packages_may_have_other_inputs() {
    let directory = directory(&[
        ("a.rego", &sandbox("rules := []\ndefaults := {}")),
        (
            "tool.rego",
            "package opensafe.tool\n\nallow if input.tool == \"bash\"\n",
        ),
    ]);
    load(&directory).unwrap().evaluate(&input()).unwrap();
}

#[test]
fn nothing_reaches_outside_the_policy() {
    for call in [
        "http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1\"})",
        "opa.runtime()",
        "net.lookup_ip_addr(\"localhost\")",
        "time.now_ns()",
    ] {
        assert!(
            error(&format!("rules := [{call}]")).contains("could not find function"),
            "{call}"
        );
    }
}

#[test]
fn an_error_of_a_built_in_is_an_error() {
    assert!(error("rules := [concat(\"\", [1])]").contains("a.rego:3:22: `concat` expects string"));
    assert!(error("rules := [1 / 0]").contains("divide by zero"));
}

#[test]
fn an_evaluation_that_takes_too_long_ends() {
    let error = error(
        "n := numbers.range(1, 2000)\nrules := [x | some a in n; some b in n; some c in n; x := a * b * c; x < 0]",
    );
    assert!(error.contains("time limit"), "{error}");
}

#[test]
fn data_lies_below_its_directory() {
    let directory = directory(&[
        (
            "a.rego",
            &sandbox(
                "rules := [r | some p in data.team.paths; r := {\"id\": p, \"on\": \"exec\", \"match\": p, \"verdict\": data.verdict}]",
            ),
        ),
        ("team/data.json", r#"{"paths": ["/a", "/b"]}"#),
        ("data.yaml", "verdict: deny\n"),
    ]);
    let set = load(&directory).unwrap().evaluate(&input()).unwrap();
    assert_eq!(set.rules.len(), 2);
    assert!(
        error_of(&[("a.rego", &sandbox("rules := []")), ("data.json", "{"),])
            .contains("DIR: data.json: ")
    );
}

#[test]
fn a_revision_changes_with_the_files_alone() {
    let revision = |files: &[(&str, &str)]| {
        let directory = directory(files);
        let policy = load(&directory).unwrap();
        let (name, hash) = policy.revision().split_once('@').unwrap();
        assert_eq!(name, policy.name());
        assert!(hash.len() >= 7 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
        hash.to_owned()
    };
    let body = sandbox("rules := []");
    let one = revision(&[("a.rego", &body)]);
    assert_eq!(
        one,
        revision(&[
            ("a.rego", &body),
            ("a_test.rego", "package t"),
            (".git/x.rego", "}")
        ])
    );
    assert_ne!(one, revision(&[("b.rego", &body)]));
    assert_ne!(one, revision(&[("a.rego", &format!("{body}\n"))]));
    assert_ne!(one, revision(&[("a.rego", &body), ("data.json", "{}")]));
}

#[test]
fn unit_tests_run_as_opa_runs_them() {
    let directory = directory(&[
        (
            "a.rego",
            &sandbox(
                "rules contains {\"id\": \"a\", \"on\": \"exec\", \"match\": sprintf(\"%s/x\", [input.home]), \"verdict\": \"deny\"}",
            ),
        ),
        (
            "a_test.rego",
            r#"package opensafe.sandbox_test

import data.opensafe.sandbox

test_match if {
	some rule in sandbox.rules with input as {"home": "/h"}
	rule.match == "/h/x"
}

test_home if { count(sandbox.rules) == 1 with input.home as "/y" }

test_untrue if { print("seen", 1); 1 == 2 }

test_value := 5

test_error if { 1 / 0 == 1 }

todo_test_later if { false }

helper if { true }
"#,
        ),
    ]);
    let results = test::run_tests(&[directory.path().to_owned()]).unwrap();
    let seen: Vec<_> = results
        .iter()
        .map(|r| {
            let name = r.name.strip_prefix("data.opensafe.sandbox_test.").unwrap();
            (name, r.passed, r.skipped, r.error.is_some(), r.origin.line)
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("test_match", true, false, false, 5),
            ("test_home", true, false, false, 10),
            ("test_untrue", false, false, false, 12),
            ("test_value", false, false, true, 14),
            ("test_error", false, false, true, 16),
            ("todo_test_later", false, true, false, 18),
        ]
    );
    assert_eq!(results[2].output.len(), 1);
    assert!(
        results[4]
            .error
            .as_ref()
            .unwrap()
            .contains("divide by zero")
    );
}
