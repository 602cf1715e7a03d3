//! The rules of the throwaway places, in Rego; alone they are the built-in policy.

use std::{fmt::Write as _, path::Path};

use super::site::{DENIED_ADDRESS, Site};

/// What holds besides, if no other policy was given: what nothing names is denied where that can be borne.
const DEFAULTS: &str = r#"
defaults := {"exec": "deny", "file": "allow", "connect": "deny"}

rules contains {
	"id": "boundary.installed", "on": "exec", "verdict": "allow",
	"match": ["/{usr,bin,sbin,lib,lib32,lib64,libx32,opt}/**", "/nix/store/**", "/gnu/store/**"],
}

rules contains {
	"id": "boundary.kernel", "on": "file", "access": ["write", "create"], "verdict": "deny", "severity": "high",
	"match": ["/proc/sys/**", "/proc/sysrq-trigger", "/sys/{kernel,module,power,firmware}/**", "/dev/{mem,kmem,port,kmsg}"],
	"reason": "the kernel is the host's",
}

rules contains {
	"id": "boundary.kernel-memory", "on": "file", "access": ["read"], "verdict": "deny", "severity": "high",
	"match": ["/proc/kcore", "/dev/{mem,kmem,port}", "/sys/kernel/{tracing,debug}/**"],
	"reason": "the kernel is the host's",
}
"#;

/// The policy's text: with `alone`, the whole of it; else what is added to another.
pub(super) fn text(site: &Site, alone: bool) -> String {
    let mut rego = "package opensafe.sandbox\n".to_owned();
    if alone {
        rego.push_str(DEFAULTS);
    }
    let mut rule = |id: &str, rest: String| {
        // Writing to a string does not fail.
        let _ = write!(
            rego,
            "\nrules contains {{\"id\": \"boundary.{id}\", {rest}}}\n"
        );
    };
    let root = site.root.display();
    let port = site.denied_port;
    rule(
        "ground",
        format!(r#""on": "file", "match": "{root}/**", "verdict": "allow""#),
    );
    rule(
        "programs",
        format!(r#""on": "exec", "match": "{root}/bin/*", "verdict": "allow""#),
    );
    rule(
        "secret",
        format!(
            r#""on": "file", "match": ["{root}/secret/**", "{root}/movable/*/secret/**"], "verdict": "deny", "reason": "the throwaway secret""#
        ),
    );
    rule(
        "protected",
        format!(
            r#""on": "file", "access": ["write", "create"], "match": "{root}/protected/**", "verdict": "deny", "reason": "the throwaway protected place""#
        ),
    );
    rule(
        "program",
        format!(
            r#""on": "exec", "match": "{root}/bin/closed/**", "verdict": "deny", "reason": "the throwaway program""#
        ),
    );
    rule(
        "peer",
        format!(
            r#""on": "connect", "match": "*", "ports": [{port}], "verdict": "deny", "reason": "the throwaway peer, {DENIED_ADDRESS}""#
        ),
    );
    rule(
        "sockets",
        format!(
            r#""on": "connect", "match": ["unix:{root}/sockets/**", "unix:@{}"], "verdict": "deny", "reason": "the throwaway sockets""#,
            site.abstract_name
        ),
    );
    rule(
        "bind",
        format!(
            r#""on": "bind", "match": "*", "ports": [{}], "verdict": "deny", "reason": "the throwaway port""#,
            site.closed_port
        ),
    );
    rule(
        "open-sockets",
        format!(r#""on": "connect", "match": "unix:{root}/workspace/**", "verdict": "allow""#),
    );
    for (id, on) in [("open-port", "connect"), ("open-port.bind", "bind")] {
        rule(
            id,
            format!(
                r#""on": "{on}", "match": "127.0.0.1", "ports": [{}], "verdict": "allow""#,
                site.own_port
            ),
        );
    }
    rego
}

/// Writes it; whoever is to read it finds it by its path.
pub(super) fn write(site: &Site, alone: bool, to: &Path) -> std::io::Result<()> {
    std::fs::write(to, text(site, alone))
}
