//! Rules as plain data: what a policy evaluated to, checked, and nothing about how it is enforced.
//!
//! [`RuleSet`] is pure: it can say for any operation what it decides and which rule did it
//! ([`RuleSet::decide_path`], [`RuleSet::decide_peer`]). The kernel's tables are compiled from it, and
//! a record's rule ids are found with it.

pub mod access;
mod decide;
pub mod glob;
pub mod peer;
pub mod socket;

pub use decide::Decided;

use opensafe_common::operation::Operation;
use opensafe_common::verdict::{Access, Verdict, Word};

use glob::{Component, PathGlob};
use peer::{AbstractGlob, IpPrefix, PortRange, Protocol};
use socket::SocketKind;

/// A rule's name, unique in its policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct RuleId(pub String);

impl std::fmt::Display for RuleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// How much a match matters to a person; no influence on the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Severity {
    Info,
    Low,
    #[default]
    Medium,
    High,
    Critical,
}

impl Severity {
    /// Every severity, rising.
    pub const ALL: [Self; 5] = [
        Self::Info,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::Critical,
    ];

    /// As a policy names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Where in a policy's source a rule seems to come from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Origin {
    /// File, as it was named when the policy was loaded.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The rule by which no run changes what is on record; it holds whatever a policy says.
pub const RECORDS: &str = "opensafe.records";
/// Its reason.
pub const RECORDS_REASON: &str = "a run cannot change what is on record";
/// The rule by which no run changes what enforces; it holds whatever a policy says.
pub const PINS: &str = "opensafe.pins";
/// Its reason.
pub const PINS_REASON: &str = "a run cannot change what confines it";

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name.
    pub id: RuleId,
    /// What it says.
    pub verdict: Verdict,
    /// How much it matters.
    pub severity: Severity,
    /// Why, for the person who reads a record; empty if the policy gives none.
    pub reason: String,
    /// Where it was written, if that could be found.
    pub origin: Option<Origin>,
    /// What it is about.
    pub subject: Subject,
}

/// What a rule is about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Running programs.
    Exec(Vec<PathGlob>),
    /// Files.
    File {
        /// Which.
        globs: Vec<PathGlob>,
        /// Doing what; a subset of [`Access::FILE`].
        access: Access,
    },
    /// Contacting peers.
    Connect {
        /// Whom. Ports and protocol narrow [`Peer::Any`] and [`Peer::Ip`] only.
        peers: Vec<Peer>,
        /// At which ports; empty: any.
        ports: Vec<PortRange>,
        /// By which protocol; `None`: any.
        protocol: Option<Protocol>,
    },
    /// Binding sockets to local addresses.
    Bind {
        /// Which; [`Peer::Any`] and [`Peer::Ip`] only.
        addresses: Vec<Peer>,
        /// Which ports; empty: any.
        ports: Vec<PortRange>,
        /// Of which protocol; `None`: any.
        protocol: Option<Protocol>,
    },
    /// Making sockets.
    Socket(Vec<SocketKind>),
    /// An operation on others, the mounts or the kernel.
    Operation(Operation),
}

/// A peer, or a set of them.
#[derive(Clone, Debug)]
pub enum Peer {
    /// `*`: every IP address; without ports and protocol also every other peer, Unix sockets included.
    Any,
    /// An address or a prefix. An IPv4 prefix holds for its IPv6 embeddings too.
    Ip(IpPrefix),
    /// `unix:/path`: a Unix socket by where it is.
    UnixPath(PathGlob),
    /// `unix:@name`: an abstract Unix socket.
    UnixAbstract(AbstractGlob),
}

/// What holds where no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// For running programs.
    pub exec: Verdict,
    /// For files.
    pub file: Verdict,
    /// For contacting peers.
    pub connect: Verdict,
    /// For binding to local addresses.
    pub bind: Verdict,
    /// For each [`Operation`], by its number.
    pub operations: [Verdict; Operation::ALL.len()],
}

impl Default for Defaults {
    /// What a policy gets that says nothing: programs run, all else that could reach beyond the sandbox is
    /// denied. A user namespace gives no right outside of it, and other sandboxes are made of them.
    fn default() -> Self {
        let mut operations = [Verdict::Deny; Operation::ALL.len()];
        operations[Operation::Namespace as usize] = Verdict::Allow;
        Self {
            exec: Verdict::Allow,
            file: Verdict::Deny,
            connect: Verdict::Deny,
            bind: Verdict::Allow,
            operations,
        }
    }
}

impl Defaults {
    /// The default for an operation.
    #[must_use]
    pub const fn operation(&self, operation: Operation) -> Verdict {
        self.operations[operation as usize]
    }

    /// Every default with the name that policies have for it.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, Verdict)> {
        let objects = [
            ("exec", self.exec),
            ("file", self.file),
            ("connect", self.connect),
            ("bind", self.bind),
        ];
        let others = Operation::ALL.map(|operation| (operation.name(), self.operation(operation)));
        objects.into_iter().chain(others)
    }

    /// The defaults for what has a path or a peer, for every kind of access.
    #[must_use]
    pub const fn word(&self) -> Word {
        Word::of(self.exec, Access::EXEC)
            .merge(Word::of(self.file, Access::BY_DEFAULT))
            .merge(Word::of(self.connect, Access::UNIX))
    }
}

/// What a sandbox may do: everything that a policy says about it.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// What holds where no rule matches.
    pub defaults: Defaults,
    /// The rules, sorted by id.
    pub rules: Vec<Rule>,
    /// Names the policy's exact sources: `NAME@HASH`, the hash over its Rego files' paths and contents.
    pub revision: String,
}

impl Rule {
    /// What it says of what it is about, for objects with a path; nothing for rules on other operations.
    /// `said_within` is whether it is about something inside what another rule hides ([`RuleSet::hiding`]).
    #[must_use]
    pub fn word(&self, said_within: bool) -> Word {
        match &self.subject {
            Subject::Exec(_) => Word::of(self.verdict, Access::EXEC),
            Subject::File { access, .. } => {
                let mut word = Word::of(self.verdict, *access);
                if self.hides() {
                    word.flags |= Word::HIDDEN;
                }
                if said_within {
                    word.flags |= Word::SAID;
                }
                word
            }
            Subject::Connect { .. } => Word::of(self.verdict, Access::UNIX),
            Subject::Bind { .. } | Subject::Socket(_) | Subject::Operation(_) => Word::NONE,
        }
    }

    /// Whether it hides directories: it denies to read all of them, leaves open what may be changed, and is
    /// about nothing else.
    #[must_use]
    pub fn hides(&self) -> bool {
        let Subject::File { globs, access } = &self.subject else {
            return false;
        };
        let mut alternatives = globs.iter().flat_map(|glob| &glob.alternatives);
        self.verdict == Verdict::Deny
            && access.contains(Access::READ)
            && *access != Access::FILE
            && alternatives.all(|alternative| alternative.last() == Some(&Component::AnyDepth))
    }

    /// Whether it permits changes by name, inside what one of `hiding` hides.
    #[must_use]
    pub fn says_within(&self, hiding: &[&Self]) -> bool {
        let Subject::File { globs, access } = &self.subject else {
            return false;
        };
        let changes = Access::CHANGING.union(Access::CREATE);
        if self.verdict == Verdict::Deny || *access == Access::FILE || access.0 & changes.0 == 0 {
            return false;
        }
        let hidden = |path: &[u8]| {
            hiding.iter().any(|rule| match &rule.subject {
                Subject::File { globs, .. } => globs.iter().any(|glob| glob.matches(path)),
                _ => false,
            })
        };
        let prefixes = globs.iter().flat_map(PathGlob::literal_prefixes);
        prefixes.fold((true, false), |(all, _), path| (all && hidden(&path), true)) == (true, true)
    }
}

impl RuleSet {
    /// The rules that hide something.
    #[must_use]
    pub fn hiding(&self) -> Vec<&Rule> {
        self.rules.iter().filter(|rule| rule.hides()).collect()
    }
}
