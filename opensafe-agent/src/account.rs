//! User accounts.
//!
//! Read from `/etc/passwd` and `/etc/group`, and where those do not know a name, asked of getent(1):
//! the agent is a static binary, into which the C library cannot load the host's name services
//! (getpwnam(3) in static programs is only as good as the libraries that happen to lie on the host).

use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt, path::PathBuf, process::Command};

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

impl Account {
    /// By login name, or by a number as text.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        find(name, |account| account.name == name).or_else(|| Self::of(name.parse().ok()?))
    }

    /// By user id.
    #[must_use]
    pub fn of(uid: u32) -> Option<Self> {
        find(&uid.to_string(), |account| account.uid == uid)
    }

    /// Every group that the account is in, the primary one first.
    #[must_use]
    pub fn groups(&self) -> Vec<u32> {
        let mut groups = vec![self.gid];
        let listed = fs::read("/etc/group").unwrap_or_default();
        for line in lines(&listed) {
            let fields: Vec<&[u8]> = line.split(|&byte| byte == b':').collect();
            if let [_, _, gid, members] = fields[..]
                && members
                    .split(|&byte| byte == b',')
                    .any(|member| member == self.name.as_bytes())
                && let Some(gid) = number(gid)
                && !groups.contains(&gid)
            {
                groups.push(gid);
            }
        }
        groups
    }

    fn from_line(line: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b':').collect();
        let [name, _, uid, gid, _, home, shell] = fields[..] else {
            return None;
        };
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        Some(Self {
            name: String::from_utf8(name.to_vec()).ok()?,
            uid: number(uid)?,
            gid: number(gid)?,
            home: path(home),
            shell: path(shell),
        })
    }
}

fn find(key: &str, wanted: impl Fn(&Account) -> bool) -> Option<Account> {
    let local = fs::read("/etc/passwd").unwrap_or_default();
    let found = lines(&local).filter_map(Account::from_line).find(&wanted);
    found.or_else(|| {
        if key.starts_with('-') {
            return None;
        }
        let asked = Command::new("getent").args(["passwd", key]).output().ok()?;
        lines(&asked.stdout)
            .filter_map(Account::from_line)
            .find(&wanted)
    })
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
}

fn number(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_by_id() {
        let root = Account::named("root").unwrap();
        assert_eq!(root.uid, 0);
        assert_eq!(Account::of(0), Some(root.clone()));
        assert_eq!(root.groups().first(), Some(&0));
    }

    #[test]
    fn a_name_that_nobody_has_is_nobodys() {
        assert_eq!(Account::named("no such user"), None);
        assert_eq!(Account::named("--help"), None);
    }

    #[test]
    fn a_line_of_other_shape_is_no_account() {
        assert_eq!(Account::from_line(b"root:x:0"), None);
        assert_eq!(Account::from_line(b"a:x:minus:0::/:/bin/sh"), None);
    }
}
