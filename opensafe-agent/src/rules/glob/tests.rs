use proptest::prelude::*;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use super::*;

fn glob(source: &str) -> PathGlob {
    PathGlob::parse(source).unwrap()
}

#[track_caller]
fn matches(source: &str, paths: &[&str]) {
    for path in paths {
        assert!(glob(source).matches(path.as_bytes()), "{source} {path}");
    }
}

#[track_caller]
fn misses(source: &str, paths: &[&str]) {
    for path in paths {
        assert!(!glob(source).matches(path.as_bytes()), "{source} {path}");
    }
}

#[track_caller]
fn error(source: &str) -> String {
    PathGlob::parse(source).unwrap_err().to_string()
}

#[test]
fn a_literal_names_one_file() {
    matches("/etc/shadow", &["/etc/shadow"]);
    misses(
        "/etc/shadow",
        &[
            "/etc/shadow-",
            "/etc",
            "/etc/shadow/a",
            "etc/shadow",
            "/x/etc/shadow",
        ],
    );
}

#[test]
fn a_star_stays_in_its_component() {
    matches("/a/*.env", &["/a/.env", "/a/x.env"]);
    misses("/a/*.env", &["/a/b/x.env", "/a/env", "/.env"]);
    matches("/a/*", &["/a/b", "/a/.hidden"]);
    misses("/a/*", &["/a", "/a/b/c"]);
}

#[test]
fn a_star_needs_a_component_to_be_there() {
    misses("/a/*/c", &["/a/c", "/a//c"]);
    misses("/*", &["/"]);
}

#[test]
fn any_depth_is_any_number_of_components() {
    matches("/a/**/z", &["/a/z", "/a/b/z", "/a/b/c/z", "/a/z/z"]);
    misses("/a/**/z", &["/a", "/z", "/a/z/y", "/b/a/z"]);
    matches("/**/.env", &["/.env", "/a/.env", "/a/b/.env"]);
    misses("/**/.env", &["/a/.env/b", "/a/x.env"]);
    matches("/**/a/**/b", &["/a/b", "/x/a/y/b", "/a/a/b/b"]);
    misses("/**/a/**/b", &["/b/a", "/a", "/b"]);
}

#[test]
fn what_ends_in_any_depth_names_the_directory_too() {
    matches(
        "/home/me/.ssh/**",
        &["/home/me/.ssh", "/home/me/.ssh/id", "/home/me/.ssh/a/b"],
    );
    misses("/home/me/.ssh/**", &["/home/me/.sshx", "/home/me"]);
    matches("/**", &["/", "/a", "/a/b"]);
}

#[test]
fn the_root_can_be_named() {
    matches("/", &["/"]);
    misses("/", &["/a", ""]);
}

#[test]
fn a_question_mark_is_one_character_or_one_stray_byte() {
    matches("/a?", &["/ab", "/aé", "/a€", "/a🦀"]);
    misses("/a?", &["/a", "/abc", "/a/"]);
    assert!(glob("/a?").matches(b"/a\xff"));
    assert!(glob("/a?c").matches(b"/a\x80c"));
    assert!(!glob("/a?").matches(b"/a\xff\xff"));
}

#[test]
fn classes_take_one_of_their_characters() {
    matches("/[a-c]", &["/a", "/c"]);
    misses("/[a-c]", &["/d", "/-", "/ab"]);
    matches("/[!a-c]", &["/d", "/é"]);
    matches("/[^a-c]", &["/d"]);
    misses("/[!a-c]", &["/a", "/de"]);
    assert!(glob("/[!a]").matches(b"/\xff"));
    assert!(!glob("/[a-\u{10ffff}]").matches(b"/\xff"));
    matches("/[]a]", &["/]", "/a"]);
    matches("/[a-]", &["/-", "/a"]);
    matches(r"/[\]\\]", &["/]", r"/\"]);
    matches("/[é-ü]", &["/ö"]);
    matches("/[*?{,}]", &["/*", "/?", "/{", "/,", "/}"]);
}

#[test]
fn a_class_never_takes_a_slash() {
    misses("/a[+-9]b", &["/a/b"]);
    matches("/a[+-9]b", &["/a+b", "/a.b", "/a0b", "/a9b"]);
    misses("/a[!b]c", &["/a/c"]);
    assert!(error("/a[/]b").contains("\"/\" in a class (character 4)"));
}

#[test]
fn braces_multiply_out() {
    matches("/{a,b}/{c,d}", &["/a/c", "/a/d", "/b/c", "/b/d"]);
    matches(
        "/a{,.bak,{1,2}.old}",
        &["/a", "/a.bak", "/a1.old", "/a2.old"],
    );
    matches("/{usr/,}bin/ls", &["/usr/bin/ls", "/bin/ls"]);
    matches("/a{,/**}", &["/a", "/a/b/c"]);
    matches("{/a,/b}/c", &["/a/c", "/b/c"]);
    misses("/{a,b}", &["/{a,b}", "/a,b", "/"]);
    matches(r"/\{a\,b\}", &["/{a,b}"]);
    matches("/a,b", &["/a,b"]);
    matches("/a]", &["/a]"]);
}

#[test]
fn escapes_take_the_meaning_away() {
    matches(r"/\*", &["/*"]);
    misses(r"/\*", &["/a", r"/\*"]);
    matches(r"/\[id\].ts", &["/[id].ts"]);
    matches(r"/a\ b", &["/a b"]);
}

#[test]
fn names_with_odd_characters_match() {
    matches("/a b\nc", &["/a b\nc"]);
    assert!(glob("/*").matches(b"/\xff\xfe\n\x01"));
    assert!(glob("/**/x").matches(b"/\xff/x"));
    misses("/é", &["/e\u{301}"]);
}

#[test]
fn adjacent_any_depths_are_one() {
    assert_eq!(
        glob("/a/**/**/**/b").alternatives,
        glob("/a/**/b").alternatives
    );
}

#[test]
fn literal_prefixes_are_whole_components() {
    let prefix = |source: &str| String::from_utf8(glob(source).literal_prefix()).unwrap();
    assert_eq!(prefix("/a/b"), "/a/b");
    assert_eq!(prefix("/a/b/**"), "/a/b");
    assert_eq!(prefix("/a/b*/c"), "/a");
    assert_eq!(prefix("/**/c"), "/");
    assert_eq!(prefix("/"), "/");
    assert_eq!(prefix("/a/{b,c}/d"), "/a");
    assert_eq!(prefix(r"/a/\[b\]/*"), "/a/[b]");
    assert_eq!(
        glob("/{bin,usr/{bin,lib}}/x*").literal_prefixes(),
        [&b"/bin"[..], b"/usr/bin", b"/usr/lib"]
    );
}

#[test]
fn an_error_says_what_and_where() {
    assert_eq!(error(""), "is empty");
    assert_eq!(
        error("a/b"),
        "must be absolute: it does not start with \"/\""
    );
    assert_eq!(
        error("{/a,b}/c"),
        "must be absolute: the alternative at character 5 does not start with \"/\""
    );
    assert!(error("~/.ssh").contains("input.home"));
    assert_eq!(
        error("/a//b"),
        "has an empty component: \"//\" at character 3"
    );
    assert!(error("/a/").starts_with("ends in \"/\" (character 3): write \"/**\""));
    assert!(error("/a/{,b}").starts_with("ends in \"/\" (character 3)"));
    assert!(error("/a/../b").starts_with("has a \"..\" component (character 4)"));
    assert!(error("/a/./b").starts_with("has a \".\" component (character 4)"));
    assert!(error("/a/.{.,x}").contains("\"..\" component"));
    assert!(error("/a**").contains("\"**\" (character 3)"));
    assert!(error("/a/***").contains("\"**\" (character 4)"));
    assert!(error("/{*,a}*").contains("\"**\" (character 3)"));
    assert!(error("/a[b").contains("\"[\" (character 3) that is never closed"));
    assert!(error("/[]").contains("never closed"));
    assert!(error("/[a-").contains("never closed"));
    assert!(error(r"/[a\").contains("never closed"));
    assert!(error("/[z-a]").contains("z-a (character 3)"));
    assert!(error("/a{b,{c}").contains("\"{\" (character 3) that is never closed"));
    assert!(error("/a}").contains("\"}\" (character 3)"));
    assert!(error("/a\\").contains("escapes nothing"));
    assert!(error("/a\0").contains("NUL (character 3)"));
    assert!(error(&format!("/{}", "a".repeat(4096))).contains("over 4096 bytes"));
    assert!(error(&format!("/{}", "{".repeat(40))).contains("deeper than 32"));
    assert!(error(&format!("/{}", "{a,b}".repeat(11))).contains("more than 1024"));
    assert!(error(&format!("/{}", "{a,b,c,d}".repeat(400))).contains("more than 1024"));
    assert_eq!(
        glob(&format!("/{}", "{a,b}".repeat(10))).alternatives.len(),
        1024
    );
}

#[test]
fn an_escaped_name_names_itself_alone() {
    for name in ["/a*b", "/[x]", "/{a,b}", r"/a\b", "/plain"] {
        let escaped = glob(&escape(name.as_bytes()));
        assert!(escaped.matches(name.as_bytes()), "{name}");
        assert_eq!(escaped.literal_prefix(), name.as_bytes());
    }
    assert!(glob(&escape(b"/a\xffb")).matches(b"/a\xffb"));
}

#[test]
fn matching_is_not_exponential() {
    let long = format!("/{}b", "*a".repeat(100));
    assert!(!glob(&long).matches(format!("/{}", "a".repeat(250)).as_bytes()));
    let deep = format!("{}/b", "/**/a".repeat(100));
    assert!(!glob(&deep).matches("/a".repeat(2000).as_bytes()));
}

/// A glob as a regular expression over the path's bytes, made from its text alone. The root directory
/// is the empty string. Knows only globs without `{,…}` at a component's start.
fn regex(glob: &str) -> Regex {
    let mut pattern = String::from(r"\A(?:");
    let mut rest = glob;
    while let Some(c) = rest.chars().next() {
        let next = &rest[c.len_utf8()..];
        if let Some(after) = rest.strip_prefix("/**") {
            pattern.push_str("(?:/[^/]+)*");
            rest = after;
            continue;
        }
        match c {
            '*' => pattern.push_str("[^/]*"),
            '?' => pattern.push_str(r"(?:(?u:[^/])|[\x80-\xff])"),
            '{' => pattern.push_str("(?:"),
            '}' => pattern.push(')'),
            ',' => pattern.push('|'),
            '[' => {
                let (class, after) = next.split_once(']').unwrap();
                match class.strip_prefix(['!', '^']) {
                    Some(class) => {
                        pattern.push_str(&format!(r"(?:(?u:[^/{class}])|[\x80-\xff])"));
                    }
                    None => pattern.push_str(&format!("(?u:[{class}&&[^/]])")),
                }
                rest = after;
                continue;
            }
            literal => {
                for byte in literal.to_string().bytes() {
                    pattern.push_str(&format!(r"\x{byte:02x}"));
                }
            }
        }
        rest = next;
    }
    pattern.push_str(r")\z");
    Regex::builder()
        .syntax(
            syntax::Config::new()
                .utf8(false)
                .unicode(false)
                .dot_matches_new_line(true),
        )
        .build(&pattern)
        .unwrap()
}

fn a_name() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "a",
        "a",
        "b",
        "b",
        ".",
        "é",
        "-",
        "*",
        "*",
        "?",
        "?",
        "[ab]",
        "[!a]",
        "[^é]",
        "[+-é]",
        "{a,b}",
        "{a,{b,é}}",
        "{a/b,?}",
        "{a,b/**/b,*}",
    ]);
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

fn a_glob() -> impl Strategy<Value = String> {
    let component = prop_oneof![3 => a_name(), 1 => Just("**".to_owned())];
    prop::collection::vec(component, 1..5).prop_map(|names| format!("/{}", names.join("/")))
}

fn a_path() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(b"aaabb.-\xc3\xa9\xff".to_vec());
    let name = prop::collection::vec(byte, 1..5);
    prop::collection::vec(name, 0..6).prop_map(|names| {
        let path = names
            .iter()
            .flat_map(|name| [b"/".as_slice(), name].concat());
        path.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_makes_the_parser_panic(source in r"[/a*?\[\]{},!^\\.\-é\x00]{0,30}", path in a_path()) {
        if let Ok(glob) = PathGlob::parse(&source) {
            let _ = glob.matches(&path);
            let _ = glob.literal_prefix();
        }
        if let Ok(tokens) = parse_name(&source) {
            let _ = tokens.iter().any(|tokens| tokens_match(tokens, &path));
        }
    }

    #[test]
    fn matching_agrees_with_a_regular_expression(source in a_glob(), path in a_path()) {
        let parsed = PathGlob::parse(&source);
        prop_assume!(parsed.is_ok());
        let named: &[u8] = if path.is_empty() { b"/" } else { &path };
        prop_assert_eq!(parsed.unwrap().matches(named), regex(&source).is_match(&path));
    }

    #[test]
    fn a_path_that_matches_lies_under_the_literal_prefix(source in a_glob(), path in a_path()) {
        let parsed = PathGlob::parse(&source);
        prop_assume!(parsed.is_ok() && !path.is_empty());
        let parsed = parsed.unwrap();
        if parsed.matches(&path) {
            let prefix = parsed.literal_prefix();
            prop_assert!(prefix == b"/" || path.starts_with(&prefix));
        }
    }

    #[test]
    fn an_escaped_path_matches_itself(path in a_path()) {
        prop_assume!(!path.is_empty());
        if let Ok(glob) = PathGlob::parse(&escape(&path)) {
            prop_assert!(glob.matches(&path));
        }
    }
}
