//! Policies of any number of rules, with the kinds mixed and the measured paths among them.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// Rules without which the worker could not do its work.
const NEEDED: &str = r#"package opensafe.sandbox

defaults := {"exec": "deny", "file": "deny", "connect": "deny"}

rules contains {"id": "bench.programs", "on": "exec", "match": ["/tmp/*", "/usr/**"], "verdict": "allow", "severity": "info"}
rules contains {"id": "bench.read", "on": "file", "match": "/**", "access": ["read"], "verdict": "allow", "severity": "info"}
rules contains {"id": "bench.write", "on": "file", "match": ["/tmp/**", "/dev/null"], "verdict": "allow", "severity": "info"}
rules contains {"id": "bench.loopback", "on": "connect", "match": "127.0.0.0/8", "verdict": "allow", "severity": "info"}
"#;

/// How many rules are in [`NEEDED`].
pub(crate) const NEEDED_RULES: usize = 4;

/// Writes a policy of `rules` rules; where it is.
pub(crate) fn write(rules: usize) -> Result<PathBuf> {
    let folder = Path::new("/tmp").join(format!("policy-{rules}"));
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let file = folder.join("main.rego");
    fs::write(&file, text(rules)).with_context(|| file.display().to_string())?;
    Ok(folder)
}

/// Denials in the directories of the measured file and elsewhere, patterns that float, programs, and networks.
fn text(rules: usize) -> String {
    let mut text = NEEDED.to_owned();
    for i in 0..rules.saturating_sub(NEEDED_RULES) {
        let (on, pattern) = match i % 6 {
            0 => ("file", format!("/tmp/a1/b22/c333/d4444/private-{i}/**")),
            1 => ("file", format!("/srv/team-{i}/secrets/*.key")),
            2 => ("file", format!("/home/user-{i}/.config/app-{i}/**")),
            3 => ("file", format!("/**/secret-{i}.pem")),
            4 => ("exec", format!("/opt/tool-{i}/bin/*")),
            _ => ("connect", format!("10.{}.{}.0/24", i / 256, i % 256)),
        };
        let _ = writeln!(
            text,
            r#"rules contains {{"id": "filler.{i}", "on": "{on}", "match": "{pattern}", "verdict": "deny", "severity": "high", "reason": "one of many"}}"#
        );
    }
    text
}
