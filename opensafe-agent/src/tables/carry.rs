//! Carrying a glob over: from the name that a rule uses to the bytes that the kernel reads.
//!
//! A rule says `/mnt/data/**/*.key`; `/mnt` is a mount of a superblock's directory `/export`. What the
//! mount point leaves of the glob, `/data/**/*.key`, is what the kernel has to look for in that
//! superblock below `/export`.

use std::collections::BTreeMap;

use regex_syntax::utf8::Utf8Sequences;

use crate::rules::glob::{Component, Token, components};

use super::pattern::{Atom, ByteSet};

/// Names that one glob may have through links. A chain is as long as the kernel's own limit of 40 at
/// most; more come only from links that go in circles.
const MAX_NAMES: usize = 64;

/// The alternative, and what else it is called when links in its leading part are followed. Every
/// leading part that is a link counts, not only the longest: `/bin/sh` is a link at `/usr/bin/sh`,
/// and whoever may not write the one may not replace the other.
pub(super) fn through_links(
    alternative: &[Component],
    links: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Vec<Vec<Component>> {
    let mut names = vec![alternative.to_vec()];
    let mut at = 0;
    while at < names.len() {
        let name = names[at].clone();
        let mut prefix = Vec::new();
        for (depth, component) in name.iter().enumerate() {
            let Some(literal) = component.literal() else {
                break;
            };
            prefix.push(b'/');
            prefix.extend_from_slice(literal);
            if let Some(target) = links.get(&prefix) {
                let renamed: Vec<Component> = of_path(target)
                    .into_iter()
                    .chain(name[depth + 1..].iter().cloned())
                    .collect();
                if names.len() < MAX_NAMES && !names.contains(&renamed) {
                    names.push(renamed);
                }
            }
        }
        at += 1;
    }
    names
}

/// The pattern for what a glob's components name.
pub(super) fn path_atoms(components: &[Component]) -> Vec<Atom> {
    let mut atoms = Vec::new();
    for component in components {
        match component {
            Component::AnyDepth => atoms.push(Atom::Deep),
            Component::Name(tokens) => {
                atoms.push(Atom::Byte(b'/'));
                atoms.extend(name_atoms(tokens));
            }
        }
    }
    atoms
}

/// Whether the pattern can begin anywhere below some directory, so that it belongs to the automaton of
/// its kind: a `**` at the end only says "and everything below".
pub(super) fn floats(rest: &[Component]) -> bool {
    let inner = rest
        .iter()
        .rposition(|component| *component != Component::AnyDepth)
        .unwrap_or(0);
    rest[..inner].contains(&Component::AnyDepth)
}

/// The pattern of an abstract socket's name.
pub(super) fn abstract_atoms(tokens: &[Token]) -> Vec<Atom> {
    atoms(tokens, ByteSet::ANY)
}

/// The alternative that names `path` and nothing else.
pub(super) fn of_path(path: &[u8]) -> Vec<Component> {
    components(path)
        .map(|name| Component::Name(vec![Token::Literal(name.to_vec())]))
        .collect()
}

fn name_atoms(tokens: &[Token]) -> Vec<Atom> {
    atoms(tokens, ByteSet::NO_SLASH)
}

fn atoms(tokens: &[Token], any: ByteSet) -> Vec<Atom> {
    let slash = any.contains(b'/');
    let mut atoms = Vec::new();
    for token in tokens {
        match token {
            Token::Literal(bytes) => atoms.extend(bytes.iter().copied().map(Atom::Byte)),
            Token::Star if atoms.last() == Some(&Atom::Star(any)) => {}
            Token::Star => atoms.push(Atom::Star(any)),
            Token::AnyChar => atoms.push(chars(&[], true, slash)),
            Token::Class { negated, ranges } => atoms.push(chars(ranges, *negated, slash)),
        }
    }
    atoms
}

/// One character in, or not in, the ranges; if not in, a byte over 0x7f counts as one too.
fn chars(ranges: &[(char, char)], negated: bool, slash: bool) -> Atom {
    // Characters by number, so that the surrogates' gap needs no care: nothing in it has a sequence.
    let mut inside: Vec<(u32, u32)> = ranges
        .iter()
        .map(|&(first, last)| (u32::from(first), u32::from(last)))
        .filter(|(first, last)| first <= last)
        .collect();
    if negated {
        inside = complement(inside);
    }
    if !slash {
        let slash = u32::from('/');
        let mut outside = complement(inside);
        outside.push((slash, slash));
        inside = complement(outside);
    }
    let mut sequences: Vec<Vec<(u8, u8)>> = Vec::new();
    for (first, last) in inside {
        // A surrogate is no character: round inwards.
        let first = (first..=last).find_map(char::from_u32);
        let last = (0..=last).rev().find_map(char::from_u32);
        if let (Some(first), Some(last)) = (first, last) {
            sequences.extend(Utf8Sequences::new(first, last).map(|sequence| {
                sequence
                    .as_slice()
                    .iter()
                    .map(|range| (range.start, range.end))
                    .collect()
            }));
        }
    }
    if negated {
        sequences.push(vec![(0x80, 0xff)]);
    }
    Atom::Char(sequences)
}

/// The numbers of characters that are in none of the ranges, ascending.
fn complement(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut free = 0;
    let mut outside = Vec::new();
    for (first, last) in ranges {
        if first > free {
            outside.push((free, first - 1));
        }
        free = free.max(last + 1);
    }
    if free <= u32::from(char::MAX) {
        outside.push((free, u32::from(char::MAX)));
    }
    outside
}
