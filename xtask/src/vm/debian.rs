//! This machine's Debian mirror, and packages of suites that it does not itself use.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

use super::KEYRING;
use crate::run::quietly;

/// The mirror that this machine's apt uses, or Debian's own.
pub(super) fn mirror() -> String {
    let targets =
        quietly(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI) $(LABEL)"]));
    pick(&targets.unwrap_or_default())
        .unwrap_or("http://deb.debian.org/debian/")
        .to_owned()
}

/// Debian's archive among `URI label` lines; before the first `apt-get update` there are no labels.
fn pick(targets: &str) -> Option<&str> {
    let by_label = || {
        targets
            .lines()
            .find_map(|line| line.strip_suffix(" Debian"))
    };
    let by_path = || {
        targets
            .lines()
            .map(|line| line.split(' ').next().unwrap_or(line))
            .find(|uri| uri.ends_with("/debian/"))
    };
    by_label().or_else(by_path)
}

/// How this machine's apt reaches its mirror: proxies, and whether dates are checked.
pub(super) fn download_options() -> Vec<String> {
    const KEPT: &[&str] = &[
        "Acquire::http",
        "Acquire::https",
        "Acquire::Check-",
        "Acquire::Retries",
        "Acquire::proxy",
    ];
    let dump = quietly(Command::new("apt-config").args(["dump", "Acquire"])).unwrap_or_default();
    let kept = dump.lines().filter(|line| {
        KEPT.iter().any(|start| line.starts_with(start)) && !line.ends_with("\"\";")
    });
    kept.map(|line| line.trim_end_matches(';').to_owned())
        .collect()
}

/// apt for one suite, with lists and cache of its own: nothing on the machine changes.
pub(super) struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Fetches the suite's lists into `folder`.
    pub(super) fn of(suite: &str, folder: &Path) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).with_context(|| folder.display().to_string())?;
        }
        let sources = folder.join("sources.list");
        let line = format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror());
        fs::write(&sources, line).with_context(|| sources.display().to_string())?;
        let options = [
            format!("Dir::Etc::sourcelist={}", sources.display()),
            "Dir::Etc::sourceparts=/dev/null".into(),
            format!("Dir::State::Lists={}", folder.join("lists").display()),
            format!("Dir::Cache={}", folder.join("cache").display()),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "APT::Sandbox::User=root".into(),
            "APT::Architecture=amd64".into(),
        ];
        let apt = Self {
            options: options.into(),
        };
        quietly(apt.command("apt-get").arg("update"))?;
        Ok(apt)
    }

    /// Names of packages that match a regular expression.
    pub(super) fn names(&self, pattern: &str) -> Result<Vec<String>> {
        let found = quietly(
            self.command("apt-cache")
                .args(["search", "--names-only", pattern]),
        )?;
        Ok(found
            .lines()
            .filter_map(|line| line.split(' ').next())
            .map(str::to_owned)
            .collect())
    }

    /// What a package depends on.
    pub(super) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let found = quietly(self.command("apt-cache").args(["depends", package]))?;
        Ok(found
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .map(str::to_owned)
            .collect())
    }

    /// Downloads packages into `folder`.
    pub(super) fn download(&self, packages: &[String], folder: &Path) -> Result<()> {
        quietly(
            self.command("apt-get")
                .current_dir(folder)
                .arg("download")
                .args(packages),
        )
        .map(drop)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::pick;

    #[test]
    fn the_mirror_is_debians_archive_and_not_its_security_updates() {
        let targets =
            "http://mirror/debian-security/ Debian-Security\nhttp://mirror/debian/ Debian\n";
        assert_eq!(pick(targets), Some("http://mirror/debian/"));
        assert_eq!(
            pick("https://else/apt \nhttp://mirror/debian/ \n"),
            Some("http://mirror/debian/")
        );
        assert_eq!(pick(""), None);
    }
}
