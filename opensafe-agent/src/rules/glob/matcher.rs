//! Matching a path or a name, without backtracking: nothing here takes longer than the product of the
//! two lengths.

use super::{Component, Token};

/// Whether the components match all of the names.
pub(super) fn path(components: &[Component], names: &[&[u8]]) -> bool {
    let (mut component, mut at) = (0, 0);
    // Where to go on if what follows the last `**` turns out not to match: one name further on. An
    // earlier `**` need not be tried again, since the last one can take whatever that one could.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let matched = match components.get(component) {
            Some(Component::AnyDepth) => {
                component += 1;
                if component == components.len() {
                    return true;
                }
                retry = Some((component, at));
                true
            }
            Some(Component::Name(tokens)) => match names.get(at) {
                Some(bytes) if name(tokens, bytes) => {
                    component += 1;
                    at += 1;
                    true
                }
                _ => false,
            },
            None if at == names.len() => return true,
            None => false,
        };
        if !matched {
            match &mut retry {
                Some((after, from)) if *from < names.len() => {
                    *from += 1;
                    (component, at) = (*after, *from);
                }
                _ => return false,
            }
        }
    }
}

/// Whether the tokens match all of the bytes.
pub(super) fn name(tokens: &[Token], bytes: &[u8]) -> bool {
    match tokens {
        [] => return bytes.is_empty(),
        [Token::Literal(literal)] => return literal == bytes,
        [Token::Star] => return true,
        [Token::Literal(literal), ..] if !bytes.starts_with(literal) => return false,
        [.., Token::Literal(literal)] if !bytes.ends_with(literal) => return false,
        _ => {}
    }
    // Every position that the tokens so far can have led to.
    let mut reached = vec![false; bytes.len() + 1];
    reached[0] = true;
    for token in tokens {
        let mut next = vec![false; bytes.len() + 1];
        for at in (0..=bytes.len()).filter(|&at| reached[at]) {
            match token {
                Token::Literal(literal) => {
                    if bytes[at..].starts_with(literal) {
                        next[at + literal.len()] = true;
                    }
                }
                Token::Star => {
                    next[at..].fill(true);
                    break;
                }
                Token::AnyChar => one(&bytes[at..], &mut next[at..], true, |_| true),
                Token::Class { negated, ranges } => {
                    one(&bytes[at..], &mut next[at..], *negated, |c| {
                        ranges.iter().any(|&(from, to)| from <= c && c <= to) != *negated
                    });
                }
            }
        }
        reached = next;
    }
    reached[bytes.len()]
}

/// Marks the ends of what one token can take: a character that it wants, or a byte over 0x7f.
fn one(bytes: &[u8], next: &mut [bool], byte: bool, wanted: impl Fn(char) -> bool) {
    if let Some(c) = first_char(bytes)
        && wanted(c)
    {
        next[c.len_utf8()] = true;
    }
    if byte && bytes.first().is_some_and(|&b| b > 0x7f) {
        next[1] = true;
    }
}

fn first_char(bytes: &[u8]) -> Option<char> {
    bytes[..bytes.len().min(4)]
        .utf8_chunks()
        .next()?
        .valid()
        .chars()
        .next()
}
