//! Records that are read, and what is written into them.

use std::path::Path;

use crate::{
    cli::shown,
    sink::{
        record::read::Lines,
        redact::{REDACTED, redact_args},
        text::{decode, encode, is_hidden, printable},
    },
};

/// Reading a record comes to its end, with a result for each line, and what is shown of it moves no cursor.
pub(super) fn record(bytes: &[u8]) {
    let Ok(mut lines) = Lines::new(Path::new("r.jsonl"), bytes) else {
        return;
    };
    assert!(lines.start().is_some());
    let mut count = 0;
    for line in lines.by_ref() {
        count += 1;
        if let Ok(line) = line {
            assert!(!line.raw().contains(&b'\n') && line.raw().len() <= bytes.len());
        }
    }
    let ends = bytes.iter().filter(|&&byte| byte == b'\n').count();
    assert!(count <= ends + 1);
    for width in [None, Some(60)] {
        let text = plain(&shown(bytes, width));
        let hidden = |c: char| is_hidden(c) && c != '\n';
        assert!(!text.chars().any(hidden), "{text:?}");
    }
}

/// A text without what colours it.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        match rest.strip_prefix('m') {
            Some(rest) => plain.push_str(rest),
            None => plain.push_str(&format!("\x1b[{part}")),
        }
    }
    plain
}

/// Bytes come back from their text, no two from the same; and what is printed moves no cursor.
pub(super) fn text(bytes: &[u8]) {
    let text = encode(bytes);
    assert_eq!(decode(&text), bytes);
    assert!(text.len() <= 4 * bytes.len());
    if let Ok(plain) = std::str::from_utf8(bytes) {
        let meant = decode(plain);
        assert_eq!(decode(&encode(&meant)), meant);
    }
    assert!(!printable(bytes).chars().any(is_hidden));
}

/// Arguments stay as many as they are; of what is hidden once nothing is hidden again.
pub(super) fn arguments(bytes: &[u8]) {
    let args: Vec<Vec<u8>> = bytes.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    let once = redact_args(&args);
    assert_eq!(once.len(), args.len());
    for (before, after) in args.iter().zip(&once) {
        assert!(after.len() <= (before.len() + 1) * REDACTED.len());
    }
    assert_eq!(redact_args(&once), once, "twice");
}
