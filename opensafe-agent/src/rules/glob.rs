//! Path globs: `*` and `?` within one component, `**` for any number of components, `[…]`, `{a,b}`.

/// A checked, absolute path glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGlob {
    /// As the policy has it.
    pub source: String,
    /// What it stands for once braces are multiplied out: a path matches if one alternative does.
    pub alternatives: Vec<Vec<Component>>,
}

/// One component of a path glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component {
    /// `**`: any number of components, also none.
    AnyDepth,
    /// A name.
    Name(Vec<Token>),
}

/// A piece of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// These bytes.
    Literal(Vec<u8>),
    /// `*`: any bytes but `/`.
    Star,
    /// `?`: one character, or one byte that belongs to none.
    AnyChar,
    /// `[…]`: one character in (or, negated, not in) the ranges.
    Class {
        /// Starts with `!` or `^`.
        negated: bool,
        /// Inclusive.
        ranges: Vec<(char, char)>,
    },
}
