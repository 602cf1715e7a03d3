//! What is decided: kinds of access, verdicts, and the word that holds a verdict for every kind.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a rule or a policy's default says. Ordered by strictness: the greater one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// Goes ahead.
    Allow = 0,
    /// Goes ahead, and is always on record.
    Audit = 1,
    /// Fails with `EACCES`, and is always on record.
    Deny = 2,
}

impl Verdict {
    /// The verdict of a byte that came from the other side; `None` for a byte that is none.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Allow),
            1 => Some(Self::Audit),
            2 => Some(Self::Deny),
            _ => None,
        }
    }
}

/// A set of kinds of access to an object that has a path (one bit a kind).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Access(pub u16);

impl Access {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Reading a file, listing a directory.
    pub const READ: Self = Self(1);
    /// Changing what is in a file that exists.
    pub const WRITE: Self = Self(1 << 1);
    /// Giving a name to what had none there.
    pub const CREATE: Self = Self(1 << 2);
    /// Running a program, or having it run as another's interpreter.
    pub const EXEC: Self = Self(1 << 3);
    /// Connecting or sending to a Unix socket, by its path or its abstract name.
    pub const UNIX: Self = Self(1 << 4);
    /// Taking a name away: a file's, or an empty directory's.
    pub const DELETE: Self = Self(1 << 5);
    /// Taking a name away by giving another.
    pub const RENAME: Self = Self(1 << 6);
    /// Giving a file one more name.
    pub const LINK: Self = Self(1 << 7);
    /// Changing mode, owner, times, access lists or extended attributes.
    pub const ATTRIBUTES: Self = Self(1 << 8);
    /// Mapping a file's content as code.
    pub const MAP_EXEC: Self = Self(1 << 9);
    /// Commands to a device.
    pub const IOCTL: Self = Self(1 << 10);
    /// What `read` in a policy stands for: taking in a file's content, as data or as code, and asking
    /// a device that may be read.
    pub const READING: Self = Self(Self::READ.0 | Self::MAP_EXEC.0 | Self::IOCTL.0);
    /// What `write` in a policy stands for: every change to what exists.
    pub const CHANGING: Self =
        Self(Self::WRITE.0 | Self::DELETE.0 | Self::RENAME.0 | Self::LINK.0 | Self::ATTRIBUTES.0);
    /// Whether any of it changes something.
    #[inline(always)]
    #[must_use]
    pub const fn changes(self) -> bool {
        self.0 & (Self::CHANGING.0 | Self::CREATE.0) != 0
    }

    /// Every kind that a `file` rule without `access` is about.
    pub const FILE: Self = Self(Self::READING.0 | Self::CHANGING.0 | Self::CREATE.0);
    /// Those about which the default for files speaks: code is mapped, and devices are asked, by who was let
    /// open the file, unless a rule forbids it.
    pub const BY_DEFAULT: Self = Self(Self::FILE.0 & !(Self::MAP_EXEC.0 | Self::IOCTL.0));
    /// Every kind there is.
    pub const ALL: Self = Self(Self::FILE.0 | Self::EXEC.0 | Self::UNIX.0);

    /// Whether no kind is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every kind of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// For every kind of access, the verdicts that some rule gives. Two words merge by OR.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Word {
    /// Kinds that a rule allows.
    pub allow: u16,
    /// Kinds that a rule audits.
    pub audit: u16,
    /// Kinds that a rule denies.
    pub deny: u16,
    /// [`Word::NAMED`] and the others.
    pub flags: u16,
}

impl Word {
    /// The object has a name in the sandbox's view; without it no rule could speak about it.
    pub const NAMED: u16 = 1;
    /// Something is mounted there in the sandbox's view.
    pub const MOUNT_POINT: u16 = 1 << 1;
    /// A rule denies to read a whole directory and says nothing of changes: what is hidden may not be changed
    /// either (it would else be a place to hide things in).
    pub const HIDDEN: u16 = 1 << 2;
    /// A rule inside the hidden place says what may be changed there.
    pub const SAID: u16 = 1 << 3;

    /// Says nothing.
    pub const NONE: Self = Self {
        allow: 0,
        audit: 0,
        deny: 0,
        flags: 0,
    };

    /// From the two cells at the head of an automaton's row.
    #[inline(always)]
    #[must_use]
    pub const fn from_cells(first: u32, second: u32) -> Self {
        Self {
            allow: (first & 0xffff) as u16,
            audit: (first >> 16) as u16,
            deny: (second & 0xffff) as u16,
            flags: (second >> 16) as u16,
        }
    }

    /// The two cells at the head of an automaton's row.
    #[must_use]
    pub const fn to_cells(self) -> [u32; 2] {
        [
            self.allow as u32 | (self.audit as u32) << 16,
            self.deny as u32 | (self.flags as u32) << 16,
        ]
    }

    /// Whether it says anything about one of the kinds in `access`.
    #[inline(always)]
    #[must_use]
    pub const fn speaks_about(self, access: Access) -> bool {
        (self.allow | self.audit | self.deny) & access.0 != 0
    }

    /// The word in which one verdict holds for each kind in `access`.
    #[must_use]
    pub const fn of(verdict: Verdict, access: Access) -> Self {
        let (mut allow, mut audit, mut deny) = (0, 0, 0);
        match verdict {
            Verdict::Allow => allow = access.0,
            Verdict::Audit => audit = access.0,
            Verdict::Deny => deny = access.0,
        }
        Self {
            allow,
            audit,
            deny,
            flags: 0,
        }
    }

    /// What either says.
    #[inline(always)]
    #[must_use]
    pub const fn merge(self, other: Self) -> Self {
        Self {
            allow: self.allow | other.allow,
            audit: self.audit | other.audit,
            deny: self.deny | other.deny,
            flags: self.flags | other.flags,
        }
    }

    /// This word with what [`Word::HIDDEN`] means for it.
    #[inline(always)]
    #[must_use]
    pub const fn settled(self) -> Self {
        if self.flags & (Self::HIDDEN | Self::SAID) == Self::HIDDEN {
            Self {
                deny: self.deny | Access::CHANGING.0 | Access::CREATE.0,
                ..self
            }
        } else {
            self
        }
    }

    /// This word, and for kinds about which it says nothing, `fallback`.
    #[inline(always)]
    #[must_use]
    pub const fn or_else(self, fallback: Self) -> Self {
        let silent = !(self.allow | self.audit | self.deny);
        Self {
            allow: self.allow | fallback.allow & silent,
            audit: self.audit | fallback.audit & silent,
            deny: self.deny | fallback.deny & silent,
            flags: self.flags,
        }
    }

    /// The strictest verdict over the kinds in `access`; `Allow` for kinds nobody speaks about, so
    /// a caller that must not fail open fills them with [`Word::or_else`] first.
    #[inline(always)]
    #[must_use]
    pub const fn verdict(self, access: Access) -> Verdict {
        if self.deny & access.0 != 0 {
            Verdict::Deny
        } else if self.audit & access.0 != 0 {
            Verdict::Audit
        } else {
            Verdict::Allow
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_of_one_kind_denies_an_access_of_two() {
        let word =
            Word::of(Verdict::Allow, Access::READ).merge(Word::of(Verdict::Deny, Access::WRITE));
        assert_eq!(word.verdict(Access::READ), Verdict::Allow);
        assert_eq!(
            word.verdict(Access::READ.union(Access::WRITE)),
            Verdict::Deny
        );
    }

    #[test]
    fn the_default_holds_only_where_no_rule_speaks() {
        let word =
            Word::of(Verdict::Allow, Access::READ).or_else(Word::of(Verdict::Deny, Access::ALL));
        assert_eq!(word.verdict(Access::READ), Verdict::Allow);
        assert_eq!(word.verdict(Access::WRITE), Verdict::Deny);
    }

    #[test]
    fn deny_beats_audit_beats_allow() {
        let all = [Verdict::Allow, Verdict::Audit, Verdict::Deny];
        for a in all {
            for b in all {
                let merged = Word::of(a, Access::EXEC).merge(Word::of(b, Access::EXEC));
                assert_eq!(merged.verdict(Access::EXEC), a.max(b));
            }
        }
    }
}
