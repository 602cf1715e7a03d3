//! Path globs: `*` and `?` within one component, `**` for any number of components, `[…]`, `{a,b}`.
//!
//! A glob names where a file is, so it is absolute and matches from the first byte to the last.
//! `\` takes a special character's meaning away. A glob that ends in `/**` names the directory too,
//! because `**` also stands for no component at all.
//!
//! Names are bytes. `*` takes any bytes but `/`; `?` and `[…]` take one UTF-8 character, and `?` and
//! `[!…]` also a single byte over 0x7f, so that a name which is no UTF-8 can be matched. Hidden files
//! are files like any other: `*` takes their dot.
//!
//! [`PathGlob::matches`] is the reference that the kernel's automata are tested against. Matching costs
//! at most the product of the glob's and the path's length.

mod matcher;
mod parse;

use std::collections::BTreeSet;

pub(super) use parse::parse_name;
pub use parse::{GlobError, MAX_ALTERNATIVES, MAX_BYTES, MAX_NESTING};

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
    /// `**`: any number of components, also none. Never next to another one.
    AnyDepth,
    /// A name.
    Name(Vec<Token>),
}

/// A piece of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// These bytes. Never empty, never next to another literal.
    Literal(Vec<u8>),
    /// `*`: any bytes but `/`.
    Star,
    /// `?`: one character, or one byte over 0x7f.
    AnyChar,
    /// `[…]`: one character in (or, negated, not in) the ranges; negated, also one byte over 0x7f.
    /// In a path glob it never takes `/`, whatever the ranges: a range across it has been split, and
    /// a negated class lists it.
    Class {
        /// Starts with `!` or `^`.
        negated: bool,
        /// Inclusive.
        ranges: Vec<(char, char)>,
    },
}

impl PathGlob {
    /// Checks a glob and multiplies its braces out.
    ///
    /// # Errors
    /// Says what is wrong, and at which character (from 1) where that helps.
    pub fn parse(source: &str) -> Result<Self, GlobError> {
        Ok(Self {
            source: source.to_owned(),
            alternatives: parse::parse_path(source)?,
        })
    }

    /// Whether it names `path`, which has neither `.` nor `..` in it; the root is `/`. What is not absolute
    /// or has an empty component is no path, and never matches.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let Some(rest) = path.strip_prefix(b"/") else {
            return false;
        };
        let names: Vec<&[u8]> = if rest.is_empty() {
            Vec::new()
        } else {
            rest.split(|&byte| byte == b'/').collect()
        };
        if names.iter().any(|name| name.is_empty()) {
            return false;
        }
        self.alternatives
            .iter()
            .any(|alternative| matcher::path(alternative, &names))
    }

    /// Whether it names something below the directory `path`, there or not there.
    #[must_use]
    pub fn may_match_below(&self, path: &[u8]) -> bool {
        self.alternatives.iter().any(|alternative| {
            let rests = rests_below(alternative, path);
            rests.iter().any(|first| *first < alternative.len())
        })
    }

    /// For each alternative, the longest leading part that is literal, in whole components: the whole
    /// path where nothing else follows, `/` where the first component is no literal. Sorted, each once.
    #[must_use]
    pub fn literal_prefixes(&self) -> Vec<Vec<u8>> {
        let mut prefixes: Vec<_> = self
            .alternatives
            .iter()
            .map(|alternative| {
                let names = alternative.iter().map_while(Component::literal);
                join(names)
            })
            .collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes
    }

    /// The longest leading part, in whole components, that every path it names has in common because
    /// it is literal.
    #[must_use]
    pub fn literal_prefix(&self) -> Vec<u8> {
        let mut prefixes = self.literal_prefixes().into_iter();
        let first = prefixes.next().unwrap_or_else(|| b"/".to_vec());
        prefixes.fold(first, |common, prefix| {
            let names = components(&common).zip(components(&prefix));
            join(names.map_while(|(a, b)| (a == b).then_some(a)))
        })
    }
}

impl std::fmt::Display for PathGlob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source)
    }
}

impl Component {
    /// The name, if it is nothing but literal.
    #[must_use]
    pub fn literal(&self) -> Option<&[u8]> {
        match self {
            Self::Name(tokens) => match tokens.as_slice() {
                [Token::Literal(bytes)] => Some(bytes),
                _ => None,
            },
            Self::AnyDepth => None,
        }
    }
}

/// Whether `tokens` match the whole of `bytes`; `*` takes any byte here.
#[must_use]
pub fn tokens_match(tokens: &[Token], bytes: &[u8]) -> bool {
    matcher::name(tokens, bytes)
}

/// The glob that names exactly the path or name in `literal`, and nothing else where it is UTF-8; a
/// byte that is not becomes `?`.
#[must_use]
pub fn escape(literal: &[u8]) -> String {
    let mut glob = String::with_capacity(literal.len());
    for chunk in literal.utf8_chunks() {
        for c in chunk.valid().chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | ',' | '\\') {
                glob.push('\\');
            }
            glob.push(c);
        }
        glob.extend(chunk.invalid().iter().map(|_| '?'));
    }
    glob
}

/// What is left of the alternative below `directory`, as the index of the first component that is:
/// nothing if it names nothing there, several if a `**` may stop at several places. What one of them
/// covers already is left out.
#[must_use]
pub fn rests_below(alternative: &[Component], directory: &[u8]) -> Vec<usize> {
    let mut places = BTreeSet::from([0]);
    for name in components(directory) {
        let mut reached = BTreeSet::new();
        for mut place in places {
            // `**` takes the name and stays, or takes none and leaves it to what follows.
            while let Some(Component::AnyDepth) = alternative.get(place) {
                reached.insert(place);
                place += 1;
            }
            if let Some(Component::Name(tokens)) = alternative.get(place)
                && tokens_match(tokens, name)
            {
                reached.insert(place + 1);
            }
        }
        places = reached;
    }
    places.into_iter().collect()
}

/// The names in a path, without what lies between them.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
}

fn join<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut path = Vec::new();
    for name in names {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

#[cfg(test)]
mod tests;
