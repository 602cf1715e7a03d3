//! Bytes as text, in the two ways that sinks need: [`encode`] for a record, so that the bytes can be
//! got back by [`decode`], and [`printable`] for a person's terminal, so that no name can move its
//! cursor, change its colours or turn its lines around.

use std::{borrow::Cow, fmt::Write as _, path::Path};

/// `bytes` as a record has them: UTF-8 as it is, every other byte as `\xHH`.
///
/// A backslash stays a backslash, except where `xHH` follows it and it would read as such an escape:
/// it is then written `\x5c`. So nearly every name and argument is written as it is, and no two byte
/// strings give the same text. Linear.
#[must_use]
pub fn encode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !(0..bytes.len()).any(|at| escape_at(&bytes[at..]).is_some())
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        for (at, character) in valid.char_indices() {
            if escape_at(&valid.as_bytes()[at..]).is_some() {
                text.push_str(r"\x5c");
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, r"\x{byte:02x}");
        }
    }
    Cow::Owned(text)
}

/// The bytes that [`encode`] made `text` of. Defined for every text: what is no `\xHH` is itself.
#[must_use]
pub fn decode(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&first, after)) = rest.split_first() {
        if let Some(byte) = escape_at(rest) {
            bytes.push(byte);
            rest = &rest[4..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}

/// The byte that `text` escapes at its start.
fn escape_at(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = *text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// `bytes` for a person: everything that a terminal would act on, or that would not be seen, as an
/// escape (`\n`, `\x1b`, `\u{202e}`), and what is not UTF-8 as `\xHH`. Not meant to be read back.
#[must_use]
pub fn printable(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.chars().any(is_hidden)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => text.push_str(r"\n"),
                '\r' => text.push_str(r"\r"),
                '\t' => text.push_str(r"\t"),
                c if is_hidden(c) && c.is_ascii() => {
                    let _ = write!(text, r"\x{:02x}", u32::from(c));
                }
                c if is_hidden(c) => {
                    let _ = write!(text, r"\u{{{:x}}}", u32::from(c));
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, r"\x{byte:02x}");
        }
    }
    Cow::Owned(text)
}

/// Whether a terminal acts on `character`, splits a line at it, or shows nothing for it: control
/// characters, line and paragraph separators, bidirectional controls, invisible format characters.
#[must_use]
pub const fn is_hidden(character: char) -> bool {
    matches!(character,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// [`printable`] for a path, with `~` for the user's home.
#[must_use]
pub fn printable_path<'a>(path: &'a [u8], home: &Path) -> Cow<'a, str> {
    let home = home.as_os_str().as_encoded_bytes();
    match path.strip_prefix(home) {
        Some(rest) if home.len() > 1 && (rest.is_empty() || rest[0] == b'/') => {
            Cow::Owned(format!("~{}", printable(rest)))
        }
        _ => printable(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes among which backslashes, `x` and hex digits are as frequent as they must be to meet.
    fn tricky() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![
                Just(b'\\'),
                Just(b'x'),
                Just(b'5'),
                Just(b'c'),
                Just(0xff),
                Just(0xc3),
                Just(0xa9),
                any::<u8>()
            ],
            0..40,
        )
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in tricky()) {
            prop_assert_eq!(decode(&encode(&bytes)), bytes);
        }

        #[test]
        fn no_two_byte_strings_share_a_text(a in tricky(), b in tricky()) {
            prop_assert_eq!(encode(&a) == encode(&b), a == b);
        }

        #[test]
        fn any_text_can_be_decoded_and_means_one_thing(text in ".{0,40}") {
            let bytes = decode(&text);
            prop_assert_eq!(decode(&encode(&bytes)), bytes);
        }

        #[test]
        fn what_is_printed_moves_no_cursor(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(!printable(&bytes).chars().any(is_hidden));
        }
    }

    #[test]
    fn plain_text_stays_as_it_is_backslashes_included() {
        for text in [
            "",
            "/tmp/é x",
            r"s/\bfoo\n/\\/",
            r"C:\xylophone",
            r"\x",
            r"\x4",
        ] {
            assert_eq!(encode(text.as_bytes()), text);
        }
    }

    #[test]
    fn what_would_read_as_an_escape_is_escaped() {
        assert_eq!(encode(br"\x41"), r"\x5cx41");
        assert_eq!(encode(b"a\xffb"), r"a\xffb");
        assert_eq!(encode(br"\\x41"), r"\\x5cx41");
    }

    #[test]
    fn a_terminal_sees_no_escape_sequences_and_no_turned_text() {
        assert_eq!(printable(b"a\x1b[31mb"), r"a\x1b[31mb");
        assert_eq!(printable("gpj.\u{202e}exe".as_bytes()), r"gpj.\u{202e}exe");
        assert_eq!(printable(b"a\nb\t\xff\xc2\x9b"), r"a\nb\t\xff\u{9b}");
    }

    #[test]
    fn home_is_a_tilde_and_its_namesakes_are_not() {
        let home = Path::new("/home/me");
        assert_eq!(printable_path(b"/home/me/.ssh", home), "~/.ssh");
        assert_eq!(printable_path(b"/home/me", home), "~");
        assert_eq!(printable_path(b"/home/media", home), "/home/media");
        assert_eq!(printable_path(b"/etc", Path::new("/")), "/etc");
        assert_eq!(printable_path(b"/etc", Path::new("")), "/etc");
    }
}
