//! Each parser's corpus, and what becomes of it by chance, without libFuzzer.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, TestRunner},
};

use super::*;

/// Changes that are tried of each parser's corpus.
const CHANGED: u32 = 3000;
/// Bytes of what is long.
const LONG: usize = 1 << 16;
/// Enough for what is linear, without optimisation, on a machine that does other things; what is quadratic takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One change.
#[derive(Clone, Debug)]
enum Change {
    /// To another byte.
    Byte(Index, u8),
    /// To a number, as the kernel has it.
    Number(Index, u32),
    /// The end is cut off.
    Cut(Index),
    /// A part is taken out.
    Without(Index, usize),
    /// Bytes are put in.
    With(Index, Vec<u8>),
    /// A part comes again, so many times.
    Again(Index, usize, usize),
    /// From here on it is another of the corpus.
    Other(Index, Index),
}

fn a_change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let number = prop_oneof![
        Just(0),
        Just(1),
        Just(0x7fff_ffff),
        Just(u32::MAX),
        any::<u32>()
    ];
    // What means something in one of the languages there are, and what is no UTF-8.
    let word = prop::sample::select(vec![
        "\0",
        "\n",
        "\\",
        "\\x",
        "\\040",
        "\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "=",
        "/",
        "//",
        "/**",
        "*",
        "-",
        "+",
        " ",
        "\u{1b}[2J",
        "\u{202e}",
        "é",
        "$",
        "'",
        "@",
        "..",
        "--token ",
        "password=",
        "Bearer ",
        "[redacted]",
        "18446744073709551616",
        "-1",
        "1e999",
    ]);
    let bytes = prop_oneof![
        word.prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..6),
    ];
    prop_oneof![
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        2 => (at(), number).prop_map(|(at, number)| Change::Number(at, number)),
        1 => at().prop_map(Change::Cut),
        2 => (at(), 1..20_usize).prop_map(|(at, length)| Change::Without(at, length)),
        4 => (at(), bytes).prop_map(|(at, bytes)| Change::With(at, bytes)),
        1 => (at(), 1..60_usize, 1..40_usize).prop_map(|(at, length, times)| Change::Again(at, length, times)),
        1 => (at(), at()).prop_map(|(at, which)| Change::Other(at, which)),
    ]
}

fn changed(mut bytes: Vec<u8>, change: &Change, corpus: &[Vec<u8>]) -> Vec<u8> {
    let place = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
    match change {
        Change::Byte(at, byte) => {
            let at = at.index(bytes.len().max(1));
            if let Some(there) = bytes.get_mut(at) {
                *there = *byte;
            }
        }
        Change::Number(at, number) => {
            let at = place(at, &bytes);
            for (there, byte) in bytes[at..].iter_mut().zip(number.to_ne_bytes()) {
                *there = byte;
            }
        }
        Change::Cut(at) => bytes.truncate(place(at, &bytes)),
        Change::Without(at, length) => {
            let at = place(at, &bytes);
            bytes.drain(at..(at + length).min(bytes.len()));
        }
        Change::With(at, more) => {
            let at = place(at, &bytes);
            bytes.splice(at..at, more.iter().copied());
        }
        Change::Again(at, length, times) => {
            let at = place(at, &bytes);
            let part = bytes[at..(at + length).min(bytes.len())].repeat(*times);
            bytes.splice(at..at, part);
        }
        Change::Other(at, which) => {
            let other = which.get(corpus);
            let at = place(at, &bytes);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[at.min(other.len())..]);
        }
    }
    bytes
}

pub(super) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(name)
}

/// What is in a parser's corpus, by name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(folder(name)).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{name} has no corpus");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn holds(name: &str) {
    let corpus = corpus(name);
    check(name, b"");
    for bytes in &corpus {
        check(name, bytes);
    }
    let config = Config {
        cases: CHANGED,
        failure_persistence: None,
        max_shrink_iters: 500,
        ..Config::default()
    };
    let changes = prop::collection::vec(a_change(), 1..6);
    TestRunner::new(config)
        .run(&(any::<Index>(), changes), |(which, changes)| {
            let bytes = changes
                .iter()
                .fold(which.get(&corpus).clone(), |bytes, change| {
                    changed(bytes, change, &corpus)
                });
            check(name, &bytes);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// What is long takes no longer than it has to.
fn is_linear(name: &str) {
    for bytes in corpus(name).iter().filter(|bytes| !bytes.is_empty()) {
        let last = &bytes[bytes.len() - 1..];
        for part in [bytes.as_slice(), last] {
            let long = part.repeat(LONG / part.len());
            let start = Instant::now();
            check(name, &long);
            let took = start.elapsed();
            assert!(
                took < PATIENCE,
                "{name}: {took:?} for {:?}…",
                part.escape_ascii().to_string()
            );
        }
    }
}

macro_rules! parsers {
    ($($name:ident)*) => {
        $(mod $name {
            #[test]
            fn does_what_it_has_to_with_whatever_becomes_of_its_corpus() {
                super::holds(stringify!($name));
            }

            #[test]
            fn takes_no_longer_than_its_length_asks_for() {
                super::is_linear(stringify!($name));
            }
        })*

        #[test]
        fn every_parser_is_tried_and_has_a_fuzz_target() {
            let tried = [$(stringify!($name)),*];
            assert_eq!(tried, PARSERS.map(|parser| parser.name));
            for name in tried {
                let target = folder("..").join(format!("fuzz_targets/{name}.rs"));
                let text = fs::read_to_string(&target).unwrap();
                assert!(text.contains(&format!("\"{name}\"")), "{}", target.display());
            }
        }
    };
}

parsers![event btf mountinfo process record text arguments rules glob peer];
