//! Places that are hidden, and directories above what is denied.

use super::*;

const CHANGES: Access = Access::CHANGING.union(Access::CREATE);

#[test]
fn what_may_not_be_read_may_not_be_changed_either() {
    let mut set = rules(vec![file("hide", Verdict::Deny, "/h/**", Access::READING)]);
    set.defaults.file = Verdict::Allow;
    let by_rule = (Verdict::Deny, Some("hide"));
    for kind in [Access::READ, Access::WRITE, Access::CREATE, Access::RENAME] {
        assert_eq!(said(&set.decide_path(b"/h/x", kind)), by_rule, "{kind:?}");
    }
    let outside = set.decide_path(b"/x", CHANGES);
    assert_eq!(said(&outside), (Verdict::Allow, None));
    // A rule that allows everything around the place does not open it.
    set.rules
        .push(file("open", Verdict::Allow, "/**", Access::FILE));
    assert_eq!(said(&set.decide_path(b"/h/x", Access::WRITE)), by_rule);
    // Nor does one that says what, but begins outside.
    set.rules.push(file("wide", Verdict::Allow, "/**", CHANGES));
    assert_eq!(said(&set.decide_path(b"/h/x", Access::WRITE)), by_rule);
}

#[test]
fn a_rule_within_a_hidden_place_says_what_may_be_changed_there() {
    let drop_box = file("box", Verdict::Allow, "/h/in/*", Access::CREATE);
    let mut set = rules(vec![
        drop_box,
        file("hide", Verdict::Deny, "/h/**", Access::READING),
    ]);
    let decided = |set: &RuleSet, path: &[u8], kind| {
        let (verdict, rule) = said(&set.decide_path(path, kind));
        (verdict, rule.map(str::to_owned))
    };
    let by = |verdict, rule: &str| (verdict, Some(rule.to_owned()));
    assert_eq!(
        decided(&set, b"/h/in/x", Access::CREATE),
        by(Verdict::Allow, "box")
    );
    assert_eq!(
        decided(&set, b"/h/in/x", Access::READ),
        by(Verdict::Deny, "hide")
    );
    // What it says nothing of is the default's, as where nothing is hidden.
    assert_eq!(
        decided(&set, b"/h/in/x", Access::WRITE),
        (Verdict::Deny, None)
    );
    set.defaults.file = Verdict::Allow;
    assert_eq!(
        decided(&set, b"/h/in/x", Access::WRITE),
        (Verdict::Allow, None)
    );
    assert_eq!(
        decided(&set, b"/h/x", Access::WRITE),
        by(Verdict::Deny, "hide")
    );
    // A denial of changes by name beats it.
    set.rules
        .push(file("no", Verdict::Deny, "/h/in/a", Access::CREATE));
    assert_eq!(
        decided(&set, b"/h/in/a", Access::CREATE),
        by(Verdict::Deny, "no")
    );
}

#[test]
fn a_rule_says_within_only_if_all_of_it_lies_within() {
    let hide = [
        file("a", Verdict::Deny, "/a/**", Access::READING),
        file("b", Verdict::Deny, "/b/**", Access::READ),
    ];
    let says = |verdict, globs: &[&str], access| {
        let globs = globs.iter().map(|glob| PathGlob::parse(glob).unwrap());
        let globs = globs.collect();
        rule("r", verdict, Subject::File { globs, access })
            .says_within(&hide.iter().collect::<Vec<_>>())
    };
    let allow = Verdict::Allow;
    assert!(says(allow, &["/a/x", "/b/**"], Access::WRITE));
    assert!(says(Verdict::Audit, &["/a/{x,y}/*"], Access::DELETE));
    assert!(says(allow, &["/a/x/*.log"], CHANGES));
    assert!(!says(allow, &["/a/x", "/c"], Access::WRITE));
    assert!(!says(allow, &["/*/x"], Access::WRITE));
    assert!(!says(allow, &["/a/x"], Access::READING));
    assert!(!says(allow, &["/a/x"], Access::FILE));
    assert!(!says(Verdict::Deny, &["/a/x"], Access::WRITE));
}

#[test]
fn a_rule_over_two_hidden_places_holds_in_each() {
    let globs = ["/a/x", "/b/x"].map(|glob| PathGlob::parse(glob).unwrap());
    let set = rules(vec![
        file("a", Verdict::Deny, "/a/**", Access::READING),
        file("b", Verdict::Deny, "/b/**", Access::READING),
        rule(
            "both",
            Verdict::Allow,
            Subject::File {
                globs: globs.to_vec(),
                access: Access::WRITE,
            },
        ),
    ]);
    for path in [&b"/a/x"[..], b"/b/x"] {
        let decided = set.decide_path(path, Access::WRITE);
        assert_eq!(said(&decided), (Verdict::Allow, Some("both")));
    }
}

#[test]
fn the_rule_for_which_a_directory_stays_is_the_gravest_that_denies_below_it() {
    let mut ssh = file("ssh", Verdict::Deny, "/home/me/.ssh/**", Access::FILE);
    ssh.severity = Severity::High;
    let set = rules(vec![
        exec("sudo", Verdict::Deny, "/usr/bin/sudo"),
        file("env", Verdict::Deny, "/home/**/.env", Access::FILE),
        file("home", Verdict::Allow, "/home/me/**", Access::FILE),
        ssh,
        connect("sock", Verdict::Deny, "unix:/run/x", None, None),
    ]);
    let below = |path: &str| {
        set.denies_below(path.as_bytes())
            .map(|rule| rule.id.0.as_str())
    };
    assert_eq!(below("/"), Some("ssh"));
    assert_eq!(below("/home/me"), Some("ssh"));
    assert_eq!(below("/home/me/.ssh"), Some("ssh"));
    assert_eq!(below("/home/me/.ssh/keys"), Some("ssh"));
    assert_eq!(below("/home/me/work"), Some("env"));
    assert_eq!(below("/usr"), Some("sudo"));
    assert_eq!(below("/usr/bin/sudo"), None);
    assert_eq!(below("/run"), None);
    assert_eq!(below("/etc"), None);
}
