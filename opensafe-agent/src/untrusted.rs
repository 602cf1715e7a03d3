//! The parsers that bytes of others reach, each with what holds for any bytes, as a function that panics where it does not.
//!
//! The tests here give each what is in its corpus in `fuzz/corpus`, and thousands of changes to that; the targets in `fuzz`
//! go on from there with libFuzzer. None of it is in what is shipped: the module takes the feature `untrusted`.
#![allow(clippy::panic, clippy::expect_used)]

mod host;
mod kernel;
mod policies;
mod records;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;

pub use kernel::decoded;

/// A parser, and what holds for it.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// The name of its corpus and its fuzz target.
    pub name: &'static str,
    /// Panics if it does not do with these bytes what it has to.
    pub holds_for: fn(&[u8]),
}

/// All of them.
pub const PARSERS: [Parser; 10] = [
    // From the kernel.
    parser("event", kernel::event),
    parser("btf", kernel::btf),
    // From /proc and the like, where names and arguments are what processes want them to be.
    parser("mountinfo", host::mountinfo),
    parser("process", host::process),
    // From records and what goes into them.
    parser("record", records::record),
    parser("text", records::text),
    parser("arguments", records::arguments),
    // From policies.
    parser("rules", policies::rules),
    parser("glob", policies::glob),
    parser("peer", policies::peer),
];

/// What holds for the parser of that name.
///
/// # Panics
/// If there is none, or it does not do with `bytes` what it has to.
pub fn check(name: &str, bytes: &[u8]) {
    let parser = PARSERS.iter().find(|parser| parser.name == name);
    (parser.expect("a parser's name").holds_for)(bytes);
}

const fn parser(name: &'static str, holds_for: fn(&[u8])) -> Parser {
    Parser { name, holds_for }
}
