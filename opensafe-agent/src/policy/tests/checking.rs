//! What a policy evaluates to, and what is wrong with it.

use super::*;

#[test]
fn the_documented_form_is_understood() {
    let set = evaluate(
        r#"
defaults := {"exec": "allow", "file": "deny", "connect": "audit"}

rules contains {
	"id": "secrets.ssh",
	"on": "file",
	"match": sprintf("%s/.ssh/**", [input.home]),
	"access": ["read", "write"],
	"verdict": "deny",
	"severity": "high",
	"reason": "SSH keys stay\n  outside the sandbox",
}

rules contains {"id": "net.private", "on": "connect", "match": ["10.0.0.0/8", "fd00::/8"],
	"ports": [443, "8000-8099"], "protocol": "tcp", "verdict": "deny"}
rules contains {"id": "docker", "on": "connect",
	"match": ["unix:/run/docker.sock", "unix:@/containerd-*"], "verdict": "deny"}
rules contains {"id": "sudo", "on": "exec", "match": {"/usr/bin/sudo"}, "verdict": "audit"}
"#,
    )
    .unwrap();
    assert_eq!(
        set.defaults,
        Defaults {
            exec: Verdict::Allow,
            file: Verdict::Deny,
            connect: Verdict::Audit,
            ..Defaults::default()
        }
    );
    let ids: Vec<_> = set.rules.iter().map(|rule| rule.id.0.as_str()).collect();
    assert_eq!(ids, ["docker", "net.private", "secrets.ssh", "sudo"]);
    let ssh = &set.rules[2];
    assert_eq!(ssh.severity, Severity::High);
    assert_eq!(ssh.reason, "SSH keys stay outside the sandbox");
    let origin = ssh.origin.as_ref().unwrap();
    assert!(origin.file.ends_with("/a.rego"));
    assert_eq!(origin.line, 7);
    let Subject::File { globs, access } = &ssh.subject else {
        panic!("{ssh:?}");
    };
    assert_eq!(globs[0].source, "/home/me/.ssh/**");
    assert_eq!(*access, Access::READING.union(Access::CHANGING));
    let Subject::Connect {
        peers,
        ports,
        protocol,
    } = &set.rules[1].subject
    else {
        panic!("no connect rule");
    };
    assert_eq!((peers.len(), ports.len()), (2, 2));
    assert!(protocol.is_some());
    assert!(matches!(
        &set.rules[0].subject,
        Subject::Connect { peers, .. } if matches!(peers[..], [Peer::UnixPath(_), Peer::UnixAbstract(_)])
    ));
}

#[test]
fn rules_may_be_an_array() {
    let set = evaluate(r#"rules := [{"id": "a", "on": "exec", "match": "/a", "verdict": "deny"}]"#);
    let set = set.unwrap();
    assert_eq!(set.rules.len(), 1);
    assert_eq!(set.rules[0].severity, Severity::Medium);
    assert_eq!(set.defaults, Defaults::default());
}

#[test]
fn absent_access_is_every_kind() {
    let set = evaluate(r#"rules := [{"id": "a", "on": "file", "match": "/a", "verdict": "deny"}]"#);
    assert!(matches!(
        set.unwrap().rules[0].subject,
        Subject::File { access, .. } if access == Access::FILE
    ));
}

#[test]
fn a_rule_that_makes_no_sense_is_named_with_its_line() {
    assert_eq!(
        error(
            r#"rules contains {"id": "net.private", "on": "connect", "match": "10.0.0.0/33", "verdict": "deny"}"#
        ),
        "policy DIR: rule \"net.private\" (a.rego:3): match \"10.0.0.0/33\": prefix length is over 32"
    );
}

#[test]
fn every_wrong_key_says_what_there_is() {
    let file = r#""on": "file", "match": "/a", "verdict": "deny""#;
    let connect = r#""on": "connect", "match": "10.0.0.1", "verdict": "deny""#;
    assert_eq!(
        rule_error(&format!(r#"{file}, "acces": ["read"]"#)),
        "has an unknown key \"acces\"; did you mean \"access\"?"
    );
    assert!(rule_error(&format!(r#"{file}, "zzz": 1"#)).contains("there are id, on, match"));
    assert_eq!(
        rule_error(r#""on": "file", "match": "/a", "verdict": "block""#),
        "verdict \"block\": there are allow, audit, deny"
    );
    assert_eq!(
        rule_error(&format!(r#"{file}, "severity": "extreme""#)),
        "severity \"extreme\": there are info, low, medium, high, critical"
    );
    assert_eq!(
        rule_error(r#""on": "open", "match": "/a", "verdict": "deny""#),
        "on \"open\": there are exec, file, connect, bind, socket, mount, ptrace, signal, namespace, bpf, \
         module, keyring, terminal, kernel, cgroup, device, network"
    );
    assert_eq!(
        rule_error(&format!(r#"{file}, "access": ["read", "append"]"#)),
        "access \"append\": there are read, write, create, delete, rename, link, attributes, map_exec, ioctl"
    );
    assert!(rule_error(&format!(r#"{file}, "access": ["exec"]"#)).contains(r#""on": "exec""#));
    assert_eq!(
        rule_error(&format!(r#"{connect}, "protocol": "TCP""#)),
        "protocol \"TCP\": there are tcp, udp, sctp, icmp"
    );
}

#[test]
fn a_word_that_is_nearly_one_is_answered_with_it() {
    assert_eq!(
        rule_error(r#""on": "ptrce", "verdict": "deny""#),
        "on \"ptrce\": did you mean \"ptrace\"?"
    );
    assert_eq!(
        rule_error(
            r#""on": "file", "match": "/a", "verdict": "deny", "access": ["mapexec", "delet"]"#
        )
        .lines()
        .next()
        .unwrap(),
        "access \"mapexec\": did you mean \"map_exec\"?"
    );
    assert_eq!(
        rule_error(r#""on": "mount", "verdict": "dny""#),
        "verdict \"dny\": did you mean \"deny\"?"
    );
    assert!(
        error(
            r#"rules := []
defaults := {"signals": "deny"}"#
        )
        .contains("defaults: has an unknown key \"signals\"; did you mean \"signal\"?")
    );
    assert!(
        error(
            r#"rules := []
defaults := {"socket": "deny"}"#
        )
        .contains(
            "defaults: has an unknown key \"socket\"; there are exec, file, connect, bind, mount"
        )
    );
}

#[test]
fn an_operation_takes_no_object() {
    let operations = Operation::ALL.map(|operation| {
        let name = operation.name();
        format!(
            r#"rules contains {{"id": "{name}", "on": "{name}", "verdict": "audit"}}
rules contains {{"id": "{name}.all", "on": "{name}", "match": "*", "verdict": "deny"}}
"#
        )
    });
    let set = evaluate(&operations.concat()).unwrap();
    for operation in Operation::ALL {
        let decided = set.decide_operation(operation);
        assert_eq!(decided.verdict, Verdict::Deny, "{operation:?}");
        let of_this =
            |rule: &&Rule| matches!(rule.subject, Subject::Operation(about) if about == operation);
        assert_eq!(set.rules.iter().filter(of_this).count(), 2);
    }
    assert_eq!(
        rule_error(r#""on": "signal", "match": "SIGKILL", "verdict": "deny""#),
        "match \"SIGKILL\": a rule on signal is about every one: leave it out, or \"*\""
    );
    assert_eq!(
        rule_error(r#""on": "ptrace", "access": ["read"], "verdict": "deny""#),
        "has \"access\", which only rules on file have; it is on ptrace"
    );
    assert_eq!(
        rule_error(r#""on": "socket", "match": "packet", "protocol": "tcp", "verdict": "deny""#),
        "has \"protocol\", which only rules on connect and bind have; it is on socket"
    );
}

#[test]
fn each_kind_of_access_can_be_named() {
    let access = |names: &str| {
        let set = evaluate(&format!(
            r#"rules := [{{"id": "a", "on": "file", "match": "/a", "access": [{names}], "verdict": "deny"}}]"#
        ));
        match set.unwrap().rules[0].subject {
            Subject::File { access, .. } => access,
            _ => Access::NONE,
        }
    };
    for (name, kinds) in access::IN_POLICIES {
        assert_eq!(access(&format!("{name:?}")), kinds, "{name}");
    }
    assert_eq!(access(r#""read", "write", "create""#), Access::FILE);
    assert_eq!(access(r#""delete", "delete""#), Access::DELETE);
}

#[test]
fn sockets_are_named_by_family_and_type() {
    let set = evaluate(
        r#"rules contains {"id": "raw", "on": "socket", "match": ["packet", "*:raw", "38:seqpacket"], "verdict": "audit"}"#,
    )
    .unwrap();
    let Subject::Socket(kinds) = &set.rules[0].subject else {
        panic!("no socket rule");
    };
    let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    assert_eq!(kinds, ["packet", "*:raw", "alg:seqpacket"]);
    assert!(
        rule_error(r#""on": "socket", "match": "packets", "verdict": "deny""#).starts_with(
            "match \"packets\": has an unknown family \"packets\"; there are *, unix, inet"
        )
    );
    assert_eq!(
        rule_error(r#""on": "socket", "match": "inet:tcp", "verdict": "deny""#),
        "match \"inet:tcp\": has an unknown type \"tcp\"; there are stream, dgram, raw, seqpacket"
    );
    assert_eq!(
        rule_error(r#""on": "socket", "verdict": "deny""#),
        "has no \"match\""
    );
}

#[test]
fn binding_is_to_addresses() {
    let set = evaluate(
        r#"defaults := {"bind": "deny"}
rules contains {"id": "local", "on": "bind", "match": ["127.0.0.0/8", "::1"], "ports": ["8000-8099"],
	"protocol": "tcp", "verdict": "allow"}
rules contains {"id": "all", "on": "bind", "match": "*", "protocol": "udp", "verdict": "audit"}"#,
    )
    .unwrap();
    assert_eq!(set.defaults.bind, Verdict::Deny);
    let Subject::Bind {
        addresses, ports, ..
    } = &set.rules[1].subject
    else {
        panic!("no bind rule");
    };
    assert_eq!((addresses.len(), ports.len()), (2, 1));
    assert_eq!(
        rule_error(r#""on": "bind", "match": "unix:/run/x", "verdict": "deny""#),
        "match \"unix:/run/x\": is a Unix socket: its place is a file, whose creation a rule on file is about"
    );
    assert!(
        rule_error(
            r#""on": "bind", "match": "*", "protocol": "icmp", "ports": [1], "verdict": "deny""#
        )
        .contains("icmp has not")
    );
}

#[test]
fn every_default_can_be_set() {
    for (name, default) in Defaults::default().all() {
        for (word, verdict) in [
            ("allow", Verdict::Allow),
            ("audit", Verdict::Audit),
            ("deny", Verdict::Deny),
        ] {
            let set = evaluate(&format!(
                "rules := []\ndefaults := {{\"{name}\": \"{word}\"}}"
            ))
            .unwrap();
            for ((other, now), (_, before)) in set.defaults.all().zip(Defaults::default().all()) {
                let expected = if other == name { verdict } else { before };
                assert_eq!(now, expected, "{other} with {name} {word}");
            }
        }
        let expected = match name {
            "exec" | "bind" | "namespace" => Verdict::Allow,
            _ => Verdict::Deny,
        };
        assert_eq!(default, expected, "{name}");
    }
}

#[test]
fn every_word_of_a_policy_is_in_the_reference() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policy.md");
    let reference = fs::read_to_string(path).unwrap();
    let defaults = Defaults::default();
    let operations = defaults.all().map(|(name, _)| name);
    let kinds = access::IN_POLICIES.iter().map(|(name, _)| *name);
    for word in operations.chain(kinds).chain(["socket"]) {
        assert!(reference.contains(&format!("`{word}`")), "{word}");
    }
    let family = rule_error(r#""on": "socket", "match": "x", "verdict": "deny""#);
    let families = family.split_once("there are *, ").unwrap().1;
    for word in families.split_once(", and numbers").unwrap().0.split(", ") {
        assert!(reference.contains(&format!("`{word}`")), "{word}");
    }
}

#[test]
fn what_is_missing_is_said() {
    assert_eq!(
        rule_error(r#""on": "file", "match": "/a""#),
        "has no \"verdict\"; there are allow, audit, deny"
    );
    assert_eq!(
        rule_error(r#""match": "/a", "verdict": "deny""#),
        "has no \"on\"; there are exec, file, connect, bind, socket, mount, ptrace, signal, namespace, \
         bpf, module, keyring, terminal, kernel, cgroup, device, network"
    );
    assert_eq!(
        rule_error(r#""on": "file", "verdict": "deny""#),
        "has no \"match\""
    );
    assert_eq!(
        error(r#"rules := [{"on": "exec", "match": "/a", "verdict": "deny"}]"#),
        r#"policy DIR: rule {"match":"/a","on":"exec","verdict":"deny"}: has no "id""#
    );
}

#[test]
fn wrong_types_are_said() {
    assert_eq!(
        rule_error(r#""on": "file", "match": 5, "verdict": "deny""#),
        "match 5: is a number, not a string"
    );
    assert_eq!(
        rule_error(r#""on": "file", "match": ["/a", null], "verdict": "deny""#),
        "match null: is null, not a string"
    );
    let file = r#""on": "file", "match": "/a", "verdict": "deny""#;
    assert_eq!(
        rule_error(&format!(r#"{file}, "reason": ["x"]"#)),
        "reason [\"x\"]: is an array, not a string"
    );
    assert_eq!(
        rule_error(&format!(r#"{file}, "access": "read""#)),
        "access \"read\": is a string, not an array"
    );
    assert_eq!(
        rule_error(&format!(r#"{file}, "severity": 3"#)),
        "severity 3: is a number, not a string"
    );
    assert!(error("rules := [7]").contains("rule 7: is a number, not an object"));
    assert!(error(r#"rules := {"a": 1}"#).contains("rules: is an object, not a set or an array"));
    assert!(error(r#"rules := "x""#).contains("rules: is a string"));
    assert!(
        error(r#"rules := [{"id": 7, "on": "exec", "match": "/a", "verdict": "deny"}]"#)
            .contains("id 7: is a number, not a string")
    );
}

#[test]
fn what_belongs_to_another_operation_is_refused() {
    assert_eq!(
        rule_error(r#""on": "exec", "match": "/a", "verdict": "deny", "access": ["read"]"#),
        "has \"access\", which only rules on file have; it is on exec"
    );
    assert_eq!(
        rule_error(r#""on": "file", "match": "/a", "verdict": "deny", "ports": [1]"#),
        "has \"ports\", which only rules on connect and bind have; it is on file"
    );
    assert!(
        rule_error(
            r#""on": "connect", "match": ["unix:/a", "10.0.0.1"], "verdict": "deny", "ports": [1]"#
        )
        .contains("a Unix socket")
    );
    assert!(
        rule_error(r#""on": "connect", "match": "unix:@a", "verdict": "deny", "protocol": "tcp""#)
            .contains("a Unix socket")
    );
    assert!(
        rule_error(
            r#""on": "connect", "match": "*", "verdict": "deny", "protocol": "icmp", "ports": [1]"#
        )
        .contains("icmp")
    );
}

#[test]
fn empty_lists_are_refused() {
    assert!(
        rule_error(r#""on": "file", "match": [], "verdict": "deny""#)
            .contains("\"match\" is empty")
    );
    assert!(
        rule_error(r#""on": "file", "match": "/a", "access": [], "verdict": "deny""#)
            .contains("\"access\" is empty")
    );
    assert!(
        rule_error(r#""on": "connect", "match": "*", "ports": [], "verdict": "deny""#)
            .contains("\"ports\" is empty")
    );
}

#[test]
fn globs_and_ports_say_what_is_wrong_with_them() {
    assert_eq!(
        rule_error(r#""on": "file", "match": "a/b", "verdict": "deny""#),
        "match \"a/b\": must be absolute: it does not start with \"/\""
    );
    assert!(
        rule_error(r#""on": "exec", "match": "/a[", "verdict": "deny""#).contains("never closed")
    );
    let connect = r#""on": "connect", "match": "*", "verdict": "deny""#;
    assert_eq!(
        rule_error(&format!(r#"{connect}, "ports": [70000]"#)),
        "ports 70000: port 70000 is out of range: 1 to 65535"
    );
    assert!(rule_error(&format!(r#"{connect}, "ports": [4.5]"#)).contains("is no port"));
    assert!(rule_error(&format!(r#"{connect}, "ports": [-1]"#)).contains("is no port"));
    assert!(rule_error(&format!(r#"{connect}, "ports": ["9-1"]"#)).contains("wrong way round"));
}

#[test]
fn all_that_is_wrong_is_listed() {
    let error = error(
        r#"rules contains {"id": "a", "on": "file", "match": ["x", "/y", "z"], "verdict": "no"}
rules contains {"id": "b", "on": "exec", "match": "/b"}
defaults := {"file": "maybe", "net": "deny"}"#,
    );
    assert_eq!(error.lines().count(), 6, "{error}");
    assert!(error.lines().all(|line| line.starts_with("policy DIR: ")));
    assert!(error.contains("defaults: has an unknown key \"net\""));
    assert!(error.contains("defaults: file \"maybe\": there are allow, audit, deny"));
}

#[test]
fn two_rules_with_one_id_are_both_shown() {
    assert_eq!(
        error_of(&[
            (
                "a.rego",
                &sandbox(
                    r#"rules contains {"id": "x", "on": "exec", "match": "/a", "verdict": "deny"}"#
                )
            ),
            (
                "b/c.rego",
                &sandbox(
                    "\nrules contains {\"id\": \"x\", \"on\": \"exec\", \"match\": \"/b\", \"verdict\": \"deny\"}"
                )
            ),
        ]),
        "policy DIR: rule \"x\" (a.rego:3, b/c.rego:4): 2 different rules have this id"
    );
}

#[test]
fn undefined_rules_are_an_error() {
    assert!(error("defaults := {}").contains("data.opensafe.sandbox.rules is undefined"));
    assert!(error("rules := [] if input.agent == \"other\"").contains("is undefined"));
}

#[test]
fn a_policy_of_defaults_alone_is_allowed() {
    let set = evaluate("rules := []\ndefaults := {\"file\": \"allow\"}").unwrap();
    assert_eq!(set.defaults.file, Verdict::Allow);
    assert_eq!(set.defaults.exec, Verdict::Allow);
    assert_eq!(set.defaults.connect, Verdict::Deny);
    assert!(error("rules := []").contains("says nothing"));
}

#[test]
fn a_rule_that_is_undefined_by_mistake_is_an_error() {
    assert_eq!(
        error(
            "rules contains {\"id\": \"a\", \"on\": \"exec\", \"match\": sprintf(\"%s/x\", [data.nope]), \"verdict\": \"deny\"}"
        ),
        "policy DIR: rule \"a\" (a.rego:3): is undefined, though it has no condition: something that it refers to has no value"
    );
    assert_eq!(
        error("rules := [sprintf(\"%s\", [input.hoem])]"),
        "policy DIR: a.rego:3:26: input.hoem: there is no such input; did you mean \"home\"?\n\
         \x20 3 | rules := [sprintf(\"%s\", [input.hoem])]\n\
         \x20   |                          ^"
    );
    assert!(error("rules := [x | x := input.user.nme]").contains("did you mean \"name\"?"));
    assert!(error("import input.sandbox as s\nrules := [s.home]").contains("input.sandbox"));
}

#[test]
fn a_condition_may_leave_a_rule_out() {
    let set = evaluate(
        "rules contains {\"id\": \"a\", \"on\": \"exec\", \"match\": \"/a\", \"verdict\": \"deny\"} if input.agent == \"other\"\n\
         rules contains {\"id\": \"b\", \"on\": \"exec\", \"match\": \"/b\", \"verdict\": \"deny\"} if input.labels.team == \"x\"\n\
         defaults := {}",
    );
    assert!(set.unwrap().rules.is_empty());
}

#[test]
fn paths_in_input_are_globs_that_name_them() {
    let directory = directory(&[(
        "a.rego",
        &sandbox(
            "rules := [{\"id\": \"a\", \"on\": \"file\", \"match\": [sprintf(\"%s/**\", [input.workspace]), sprintf(\"%s/.ssh\", [input.home])], \"verdict\": \"allow\"}]",
        ),
    )]);
    let policy = load(&directory).unwrap();
    let allows = |workspace: &str, path: &str| {
        let input = Input {
            workspace: workspace.into(),
            home: "/".into(),
            tmp: "/tmp/".into(),
            ..Input::default()
        };
        let set = policy.evaluate(&input).unwrap();
        set.decide_path(path.as_bytes(), Access::READ).verdict == Verdict::Allow
    };
    assert!(allows("/w/[a]{b,c}*", "/w/[a]{b,c}*/x"));
    assert!(!allows("/w/[a]{b,c}*", "/w/abx/x"));
    assert!(allows("/", "/any/thing"));
    assert!(allows("/w//x/./y/", "/w/x/y"));
    assert!(allows("/w", "/.ssh"));
    let relative = Input {
        workspace: "w".into(),
        ..input()
    };
    let error = policy.evaluate(&relative).unwrap_err().to_string();
    assert!(
        error.ends_with("input.workspace \"w\": is not absolute"),
        "{error}"
    );
}

#[test]
fn a_thousand_rules_have_their_origins() {
    let rules: Vec<_> = (0..1000)
        .map(|n| format!("rules contains {{\"id\": \"r.{n}\", \"on\": \"file\", \"match\": sprintf(\"%s/x{n}/**\", [input.home]), \"verdict\": \"deny\"}}"))
        .collect();
    let set = evaluate(&rules.join("\n")).unwrap();
    assert_eq!(set.rules.len(), 1000);
    for rule in &set.rules {
        let n: u32 = rule.id.0.trim_start_matches("r.").parse().unwrap();
        assert_eq!(rule.origin.as_ref().unwrap().line, n + 3);
    }
}

#[test]
fn a_rule_on_an_operation_may_say_so_in_each_form_of_a_match() {
    for every in [r#""*""#, r#"["*"]"#, r#"{"*"}"#] {
        let rule = format!(
            r#"rules contains {{"id": "r", "on": "signal", "match": {every}, "verdict": "deny"}}"#
        );
        assert_eq!(evaluate(&rule).unwrap().rules.len(), 1, "{every}");
    }
    for other in [r#""/x""#, "[]", r#"["*", "x"]"#, "7"] {
        let problem = rule_error(&format!(
            r#""on": "signal", "match": {other}, "verdict": "deny""#
        ));
        assert!(problem.contains("every one"), "{problem}");
    }
}

#[test]
fn an_error_does_not_repeat_the_whole_of_what_is_long() {
    let long = "x".repeat(10_000);
    for keys in [
        format!(r#""on": "{long}", "verdict": "deny""#),
        format!(r#""on": "exec", "match": "/a", "verdict": "deny", "{long}": 1"#),
        format!(r#""on": "exec", "match": "{long}", "verdict": "deny""#),
    ] {
        let problem = rule_error(&keys);
        assert!(problem.len() < 1000, "{}", problem.len());
    }
    let problem = error(&format!(
        r#"rules contains {{"id": "{long}", "verdict": "no"}}"#
    ));
    assert!(problem.len() < 2000, "{}", problem.len());
}
