//! From a glob's text to its alternatives: characters → items → a tree of braces → components.

use super::{Component, Token};

/// Longest glob, in bytes: no path that the kernel takes is longer (`PATH_MAX` of linux/limits.h).
pub const MAX_BYTES: usize = 4096;
/// Most alternatives that a glob's braces may multiply out to.
pub const MAX_ALTERNATIVES: usize = 1024;
/// Deepest nesting of braces.
pub const MAX_NESTING: usize = 32;

/// Why a glob is none. Positions count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum GlobError {
    #[error("is empty")]
    Empty,
    #[error("is over {MAX_BYTES} bytes long, and no path is")]
    TooLong,
    #[error("holds a NUL (character {at}), which no path can")]
    Nul { at: usize },
    #[error("must be absolute: it starts with \"~\", which is not expanded; use input.home")]
    Tilde,
    #[error("must be absolute: {} does not start with \"/\"", Start(*.at))]
    Relative { at: usize },
    #[error("has an empty component: \"//\" at character {at}")]
    EmptyComponent { at: usize },
    #[error(
        "ends in \"/\" (character {at}): write \"/**\" for a directory and all below it, or leave it out"
    )]
    TrailingSlash { at: usize },
    #[error("has a {name:?} component (character {at}), which no file's real location has")]
    DotComponent { name: &'static str, at: usize },
    #[error(
        "has a \"**\" (character {at}) that is not a whole component: write \"/**/\", or \"*\""
    )]
    PartialAnyDepth { at: usize },
    #[error("has a \"[\" (character {at}) that is never closed; a literal one is \"\\[\"")]
    UnclosedClass { at: usize },
    #[error("has a range {from}-{to} (character {at}) that is the wrong way round")]
    ReversedRange { from: char, to: char, at: usize },
    #[error("has a \"/\" in a class (character {at}): a class stands for one character of a name")]
    SlashInClass { at: usize },
    #[error("has a \"{{\" (character {at}) that is never closed; a literal one is \"\\{{\"")]
    UnclosedBrace { at: usize },
    #[error("has a \"}}\" (character {at}) that nothing opened; a literal one is \"\\}}\"")]
    UnopenedBrace { at: usize },
    #[error("nests braces deeper than {MAX_NESTING} (character {at})")]
    TooDeep { at: usize },
    #[error("ends in a \"\\\" that escapes nothing")]
    TrailingEscape,
    #[error("has braces that multiply out to more than {MAX_ALTERNATIVES} alternatives")]
    TooManyAlternatives,
}

/// Where a glob, or one of its alternatives, starts.
struct Start(usize);

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            1 => f.write_str("it"),
            at => write!(f, "the alternative at character {at}"),
        }
    }
}

/// The alternatives of a path glob.
pub(super) fn parse_path(source: &str) -> Result<Vec<Vec<Component>>, GlobError> {
    check(source)?;
    if let Some(at) = source.chars().position(|c| c == '\0') {
        return Err(GlobError::Nul { at: at + 1 });
    }
    if source.starts_with('~') {
        return Err(GlobError::Tilde);
    }
    let items = lex(source, true)?;
    expand(&items)?
        .iter()
        .map(|alternative| components(alternative))
        .collect()
}

/// The alternatives of a glob over names that are no paths: `/` is a byte like any other.
pub(in crate::rules) fn parse_name(source: &str) -> Result<Vec<Vec<Token>>, GlobError> {
    check(source)?;
    let items = lex(source, false)?;
    Ok(expand(&items)?
        .iter()
        .map(|alternative| tokens(alternative))
        .collect())
}

fn check(source: &str) -> Result<(), GlobError> {
    if source.is_empty() {
        return Err(GlobError::Empty);
    }
    if source.len() > MAX_BYTES {
        return Err(GlobError::TooLong);
    }
    Ok(())
}

/// An item of the glob's text, and the character at which it starts.
#[derive(Clone, Debug)]
struct Item {
    lex: Lex,
    at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Lex {
    Char(char),
    Separator,
    Star,
    DoubleStar,
    AnyChar,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    Open,
    Comma,
    Close,
}

fn lex(source: &str, path: bool) -> Result<Vec<Item>, GlobError> {
    let chars: Vec<char> = source.chars().collect();
    let mut items = Vec::with_capacity(chars.len());
    let mut next = 0;
    let mut open = Vec::new();
    while let Some(&c) = chars.get(next) {
        let at = next + 1;
        next += 1;
        let lex = match c {
            '/' if path => Lex::Separator,
            '*' if path && chars.get(next) == Some(&'*') => {
                next += 1;
                Lex::DoubleStar
            }
            '*' => Lex::Star,
            '?' => Lex::AnyChar,
            '[' => {
                let (class, after) = class(&chars, next, path)?;
                next = after;
                class
            }
            '{' => {
                if open.len() == MAX_NESTING {
                    return Err(GlobError::TooDeep { at });
                }
                open.push(at);
                Lex::Open
            }
            ',' if !open.is_empty() => Lex::Comma,
            '}' => {
                open.pop().ok_or(GlobError::UnopenedBrace { at })?;
                Lex::Close
            }
            '\\' => {
                let &escaped = chars.get(next).ok_or(GlobError::TrailingEscape)?;
                next += 1;
                if path && escaped == '/' {
                    Lex::Separator
                } else {
                    Lex::Char(escaped)
                }
            }
            literal => Lex::Char(literal),
        };
        items.push(Item { lex, at });
    }
    match open.pop() {
        Some(at) => Err(GlobError::UnclosedBrace { at }),
        None => Ok(items),
    }
}

/// The class whose `[` is just before `next`, and the index after its `]`.
fn class(chars: &[char], mut next: usize, path: bool) -> Result<(Lex, usize), GlobError> {
    let opened = next;
    let unclosed = || GlobError::UnclosedClass { at: opened };
    let negated = matches!(chars.get(next), Some('!' | '^'));
    if negated {
        next += 1;
    }
    let first = next;
    let mut ranges = Vec::new();
    loop {
        let start = next;
        // A `]` at the very start is a literal one, as in a shell.
        if chars.get(next) == Some(&']') && next != first {
            break;
        }
        let from = class_char(chars, &mut next).ok_or_else(unclosed)?;
        let ends_range =
            chars.get(next) == Some(&'-') && chars.get(next + 1).is_some_and(|&after| after != ']');
        let to = if ends_range {
            next += 1;
            class_char(chars, &mut next).ok_or_else(unclosed)?
        } else {
            from
        };
        let at = start + 1;
        if from > to {
            return Err(GlobError::ReversedRange { from, to, at });
        }
        if path && (from == '/' || to == '/') {
            return Err(GlobError::SlashInClass { at });
        }
        if path && !negated && from < '/' && '/' < to {
            ranges.extend([(from, '.'), ('0', to)]);
        } else {
            ranges.push((from, to));
        }
    }
    if path && negated {
        ranges.push(('/', '/'));
    }
    Ok((Lex::Class { negated, ranges }, next + 1))
}

fn class_char(chars: &[char], next: &mut usize) -> Option<char> {
    let mut c = *chars.get(*next)?;
    *next += 1;
    if c == '\\' {
        c = *chars.get(*next)?;
        *next += 1;
    }
    Some(c)
}

/// A piece of a glob with its braces understood.
enum Node<'a> {
    Item(&'a Item),
    Choice(Vec<Vec<Node<'a>>>),
}

/// Multiplies the braces out. `items` has them balanced, and nested no deeper than [`MAX_NESTING`].
fn expand(items: &[Item]) -> Result<Vec<Vec<&Item>>, GlobError> {
    let mut rest = items.iter();
    let mut branches = sequence(&mut rest);
    let nodes = branches.pop().unwrap_or_default();
    if count(&nodes) > MAX_ALTERNATIVES {
        return Err(GlobError::TooManyAlternatives);
    }
    Ok(multiply(&nodes))
}

/// The branches up to the closing brace, or up to the end.
fn sequence<'a>(rest: &mut std::slice::Iter<'a, Item>) -> Vec<Vec<Node<'a>>> {
    let mut branches = vec![Vec::new()];
    while let Some(item) = rest.next() {
        let node = match item.lex {
            Lex::Close => break,
            Lex::Comma => {
                branches.push(Vec::new());
                continue;
            }
            Lex::Open => Node::Choice(sequence(rest)),
            _ => Node::Item(item),
        };
        if let Some(branch) = branches.last_mut() {
            branch.push(node);
        }
    }
    branches
}

fn count(nodes: &[Node<'_>]) -> usize {
    nodes.iter().fold(1, |product: usize, node| match node {
        Node::Item(_) => product,
        Node::Choice(branches) => {
            let sum = branches
                .iter()
                .fold(0, |sum: usize, branch| sum.saturating_add(count(branch)));
            product.saturating_mul(sum)
        }
    })
}

fn multiply<'a>(nodes: &[Node<'a>]) -> Vec<Vec<&'a Item>> {
    let mut products = vec![Vec::new()];
    for node in nodes {
        match node {
            Node::Item(item) => products.iter_mut().for_each(|product| product.push(*item)),
            Node::Choice(branches) => {
                let endings: Vec<_> = branches.iter().flat_map(|b| multiply(b)).collect();
                products = products
                    .iter()
                    .flat_map(|product| {
                        endings
                            .iter()
                            .map(move |ending| [product.as_slice(), ending].concat())
                    })
                    .collect();
            }
        }
    }
    products
}

fn components(items: &[&Item]) -> Result<Vec<Component>, GlobError> {
    match items {
        [] => return Err(GlobError::Empty),
        [first, ..] if first.lex != Lex::Separator => {
            return Err(GlobError::Relative { at: first.at });
        }
        // The root directory itself.
        [_] => return Ok(Vec::new()),
        _ => {}
    }
    let mut components = Vec::new();
    let mut start = 0;
    while let Some(separator) = items.get(start) {
        let rest = &items[start + 1..];
        let length = rest
            .iter()
            .position(|item| item.lex == Lex::Separator)
            .unwrap_or(rest.len());
        let name = &rest[..length];
        start += 1 + length;
        let component = match name {
            [] if start == items.len() => {
                return Err(GlobError::TrailingSlash { at: separator.at });
            }
            [] => return Err(GlobError::EmptyComponent { at: separator.at }),
            [item] if item.lex == Lex::DoubleStar => Component::AnyDepth,
            _ => self::name(name)?,
        };
        if component != Component::AnyDepth || components.last() != Some(&Component::AnyDepth) {
            components.push(component);
        }
    }
    Ok(components)
}

fn name(items: &[&Item]) -> Result<Component, GlobError> {
    let stars = |item: &&&Item| matches!(item.lex, Lex::DoubleStar);
    if let Some(item) = items.iter().find(stars) {
        return Err(GlobError::PartialAnyDepth { at: item.at });
    }
    // Braces can put two `*` side by side: still no `**`.
    if let Some(pair) = items
        .windows(2)
        .find(|pair| pair[0].lex == Lex::Star && pair[1].lex == Lex::Star)
    {
        return Err(GlobError::PartialAnyDepth { at: pair[0].at });
    }
    let tokens = tokens(items);
    for name in [".", ".."] {
        if tokens == [Token::Literal(name.as_bytes().to_vec())] {
            let at = items.first().map_or(1, |item| item.at);
            return Err(GlobError::DotComponent { name, at });
        }
    }
    Ok(Component::Name(tokens))
}

fn tokens(items: &[&Item]) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for item in items {
        let token = match &item.lex {
            Lex::Star | Lex::DoubleStar => Token::Star,
            Lex::AnyChar => Token::AnyChar,
            Lex::Class { negated, ranges } => Token::Class {
                negated: *negated,
                ranges: ranges.clone(),
            },
            Lex::Char(c) => {
                push_literal(&mut tokens, *c);
                continue;
            }
            // A path's name holds no separator, and braces are gone.
            Lex::Separator | Lex::Open | Lex::Comma | Lex::Close => continue,
        };
        if token != Token::Star || tokens.last() != Some(&Token::Star) {
            tokens.push(token);
        }
    }
    tokens
}

fn push_literal(tokens: &mut Vec<Token>, c: char) {
    let mut buffer = [0; 4];
    let bytes = c.encode_utf8(&mut buffer).as_bytes();
    if let Some(Token::Literal(literal)) = tokens.last_mut() {
        literal.extend_from_slice(bytes);
    } else {
        tokens.push(Token::Literal(bytes.to_vec()));
    }
}
