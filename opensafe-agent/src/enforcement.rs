//! What this host can enforce, operation by operation, and what it lacks for the rest.
//!
//! [`Level`]s are combined by one rule, so that nothing in between is ever called full or none.

use serde::Serialize;

/// How much of something is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All of it.
    Full,
    /// Some of it.
    Partial,
    /// Nothing.
    None,
}

impl Level {
    /// The level of two things together: theirs if they agree, partial if they do not. Associative,
    /// commutative and idempotent, so the order in which levels are combined does not matter.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Full, Self::Full) => Self::Full,
            (Self::None, Self::None) => Self::None,
            _ => Self::Partial,
        }
    }

    /// `full`, `partial` or `none`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::None => "none",
        }
    }

    /// `yes`, `partly` or `no`, for a sentence.
    #[must_use]
    pub const fn answer(self) -> &'static str {
        match self {
            Self::Full => "yes",
            Self::Partial => "partly",
            Self::None => "no",
        }
    }
}

/// How it comes that the kernel asks the programs of the LSM's hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// They are the hooks' own: BPF is among the active security modules.
    Lsm,
    /// They run before the functions that call the hooks, and may answer in their place (`BPF_MODIFY_RETURN`).
    ModifyReturn,
}

impl Way {
    /// `lsm` or `modify_return`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lsm => "lsm",
            Self::ModifyReturn => "modify_return",
        }
    }

    /// The mechanism, as people know it.
    #[must_use]
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::Lsm => "BPF LSM",
            Self::ModifyReturn => "BPF modify-return",
        }
    }
}

/// Something that enforcement needs and the host does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What: `BPF LSM`.
    pub what: String,
    /// How that shows: `BPF_PROG_LOAD is refused (EPERM)`.
    pub why: String,
    /// What would bring it: `boot a kernel with bpf in its LSM list`.
    pub fix: String,
}

/// How one kind of operation is enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// How much of it.
    pub level: Level,
    /// By which mechanism: `BPF LSM`, `BPF modify-return`, `cgroup hooks`; empty at [`Level::None`].
    pub by: String,
    /// What is missing for [`Level::Full`].
    pub missing: Vec<Missing>,
}

impl Operation {
    /// Fully enforced by `mechanism`.
    #[must_use]
    pub fn full(mechanism: impl Into<String>) -> Self {
        Self {
            level: Level::Full,
            by: mechanism.into(),
            missing: Vec::new(),
        }
    }

    /// Enforced by `mechanism`, but for what `missing` would bring.
    #[must_use]
    pub fn partial(mechanism: impl Into<String>, missing: Vec<Missing>) -> Self {
        Self {
            level: Level::Partial,
            by: mechanism.into(),
            missing,
        }
    }

    /// Not enforced, for want of `missing`.
    #[must_use]
    pub const fn none(missing: Vec<Missing>) -> Self {
        Self {
            level: Level::None,
            by: String::new(),
            missing,
        }
    }
}

/// How each kind of operation is enforced on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Enforcement {
    /// How it comes that the programs of the LSM's hooks are asked; `None` where they are not.
    pub way: Option<Way>,
    /// Running programs.
    pub exec: Operation,
    /// Opening files.
    pub file: Operation,
    /// Contacting peers.
    pub connect: Operation,
    /// What is done to others, the mounts and the kernel.
    pub operation: Operation,
}

impl Enforcement {
    /// Every operation with its name in policies and records.
    #[must_use]
    pub const fn operations(&self) -> [(&'static str, &Operation); 4] {
        [
            ("exec", &self.exec),
            ("file", &self.file),
            ("connect", &self.connect),
            ("operation", &self.operation),
        ]
    }

    /// The level of all operations together.
    #[must_use]
    pub const fn overall(&self) -> Level {
        self.exec
            .level
            .and(self.file.level)
            .and(self.connect.level)
            .and(self.operation.level)
    }

    /// Everything that is missing, each thing once, in the operations' order.
    #[must_use]
    pub fn missing(&self) -> Vec<&Missing> {
        let mut all: Vec<&Missing> = Vec::new();
        for missing in self.operations().iter().flat_map(|(_, of)| &of.missing) {
            if !all.contains(&missing) {
                all.push(missing);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Level; 3] = [Level::Full, Level::Partial, Level::None];

    #[test]
    fn only_full_with_full_is_full_and_only_none_with_none_is_none() {
        for a in ALL {
            for b in ALL {
                let expected = if a == b { a } else { Level::Partial };
                assert_eq!(a.and(b), expected, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn the_order_of_combining_does_not_matter() {
        for a in ALL {
            for b in ALL {
                for c in ALL {
                    assert_eq!(a.and(b).and(c), a.and(b.and(c)));
                    assert_eq!(a.and(b), b.and(a));
                }
            }
        }
    }

    #[test]
    fn what_two_operations_lack_is_listed_once() {
        let lsm = Missing {
            what: "BPF LSM".into(),
            why: "loading is refused (EPERM)".into(),
            fix: "boot with lsm=…,bpf".into(),
        };
        let host = Enforcement {
            way: None,
            exec: Operation::none(vec![lsm.clone()]),
            file: Operation::none(vec![lsm.clone()]),
            connect: Operation::full("cgroup hooks"),
            operation: Operation::none(vec![lsm.clone()]),
        };
        assert_eq!(host.overall(), Level::Partial);
        assert_eq!(host.missing(), [&lsm]);
    }
}
