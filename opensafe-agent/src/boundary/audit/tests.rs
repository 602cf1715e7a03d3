use std::fs;

use super::*;
use crate::rules::Defaults;
use opensafe_common::verdict::Verdict;

fn closed() -> Facts {
    Facts {
        subject: "a test".to_owned(),
        root: "/nowhere".into(),
        user: 1000,
        groups: vec![1000],
        home: "/home/me".into(),
        workspace: Some("/home/me/work".into()),
        environment: vec!["PATH".to_owned(), "HOME".to_owned()],
        capabilities: 0,
        no_new_privileges: true,
        seccomp: true,
        memory_limited: true,
        processes_limited: true,
        cgroup: "/sys/fs/cgroup/x".into(),
        dumps_core: false,
        host_network: true,
        mounts: Vec::new(),
        rules: Some(RuleSet {
            defaults: Defaults {
                exec: Verdict::Deny,
                file: Verdict::Deny,
                connect: Verdict::Deny,
                ..Defaults::default()
            },
            rules: Vec::new(),
            revision: "test@0".to_owned(),
        }),
        observing: false,
    }
}

fn ids(facts: &Facts) -> Vec<&'static str> {
    findings(facts).iter().map(|finding| finding.id).collect()
}

#[test]
fn where_all_is_closed_nothing_above_low_is_found() {
    let findings = findings(&closed());
    assert!(!is_open(&findings), "{findings:?}");
}

#[test]
fn without_a_policy_and_as_root_much_is() {
    let facts = Facts {
        user: 0,
        capabilities: 1 << 21,
        no_new_privileges: false,
        seccomp: false,
        memory_limited: false,
        processes_limited: false,
        dumps_core: true,
        rules: None,
        ..closed()
    };
    let ids = ids(&facts);
    for id in [
        "policy.none",
        "user.root",
        "capabilities",
        "network.host",
        "limits.memory",
        "limits.processes",
        "limits.core",
        "seccomp",
    ] {
        assert!(ids.contains(&id), "{id}: {ids:?}");
    }
}

#[test]
fn variables_are_named_and_their_values_are_not_known() {
    let facts = Facts {
        environment: ["GITHUB_TOKEN", "EDITOR", "DB_PASSWORD"]
            .map(str::to_owned)
            .to_vec(),
        ..closed()
    };
    let found = findings(&facts);
    let found = found
        .iter()
        .find(|found| found.id == "environment.credentials");
    assert_eq!(
        found.unwrap().what,
        "variables that look like credentials: GITHUB_TOKEN, DB_PASSWORD"
    );
}

#[test]
fn a_key_is_found_where_it_is_there_and_rights_and_policy_allow_it() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("home/me/.ssh")).unwrap();
    let mut facts = Facts {
        root: root.path().to_owned(),
        user: nix::unistd::Uid::current().as_raw(),
        rules: None,
        ..closed()
    };
    assert!(ids(&facts).contains(&"secret.readable"));
    facts.rules = closed().rules;
    assert!(!ids(&facts).contains(&"secret.readable"));
    facts.observing = true;
    assert!(ids(&facts).contains(&"secret.readable"));
}

#[test]
fn host_directories_in_a_sandbox_with_mounts_of_its_own_are_found_if_they_can_be_written() {
    let mount = |point: &str, root: &str, writable| Mounted {
        point: point.into(),
        root: root.into(),
        kind: "ext4".to_owned(),
        writable,
    };
    let facts = Facts {
        mounts: vec![
            mount("/home/me/work", "/srv/work", true),
            mount("/host", "/", true),
            mount("/data", "/data", false),
        ],
        rules: None,
        ..closed()
    };
    let found = findings(&facts);
    let found: Vec<_> = found
        .iter()
        .filter(|found| found.id == "mount.writable")
        .collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].severity, Severity::High);
}
