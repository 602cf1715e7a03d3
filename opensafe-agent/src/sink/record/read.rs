//! Reads a record back, one line at a time: memory for one, and for none that is longer than [`LONGEST_LINE`].

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::sink::text::decode;

/// Why a record, or a line of it, cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ReadError {
    #[error("cannot read the record {}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{} is no record: {why}", path.display())]
    NotARecord { path: PathBuf, why: String },
    #[error("record {}, line {number}: {cause}", path.display())]
    Line {
        path: PathBuf,
        number: u64,
        cause: serde_json::Error,
    },
    #[error("record {}, line {number}: is over {LONGEST_LINE} bytes long", path.display())]
    TooLong { path: PathBuf, number: u64 },
}

/// Bytes of a line at most. The longest there may be has a command's arguments, in which 6 bytes may stand for one, and of
/// which Linux takes 6 MiB (`bprm_stack_limits` in fs/exec.c).
pub const LONGEST_LINE: usize = 64 << 20;

/// A line of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    fields: Map<String, Value>,
    raw: Vec<u8>,
}

impl Line {
    /// The line itself, without its newline.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// `opensafe.event`; empty if there is none.
    #[must_use]
    pub fn event(&self) -> &str {
        self.text("opensafe.event").unwrap_or_default()
    }

    /// `time_unix_nano`; 0 if there is none.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.number("time_unix_nano").unwrap_or_default()
    }

    /// A field's text, as it is written.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    /// The bytes that a field's text stands for.
    #[must_use]
    pub fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        self.text(key).map(decode)
    }

    /// The bytes that a field's texts stand for.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<Vec<u8>> {
        let texts = self.fields.get(key).and_then(Value::as_array);
        texts
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(decode)
            .collect()
    }

    /// A field's number.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        self.fields.get(key)?.as_u64()
    }

    /// A field's number that may be negative.
    #[must_use]
    pub fn integer(&self, key: &str) -> Option<i64> {
        self.fields.get(key)?.as_i64()
    }

    /// A field's truth; false if it has none.
    #[must_use]
    pub fn is(&self, key: &str) -> bool {
        self.fields.get(key).and_then(Value::as_bool) == Some(true)
    }

    /// Whether it is an operation that was denied, or would have been.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        self.text("opensafe.verdict") == Some("deny")
    }
}

/// The lines of a record, its first one included.
///
/// A last line that was cut off (the run goes on, or came to a sudden end) is left out, see
/// [`Lines::cut_off`]. A line in the middle that is no JSON, or none that may be so long, is an error, after which the next
/// may be asked for.
#[derive(Debug)]
pub struct Lines<R = BufReader<File>> {
    path: PathBuf,
    reader: R,
    number: u64,
    first: Option<Line>,
    cut_off: bool,
}

/// Opens the record at `path` and reads its first line.
///
/// # Errors
/// If it cannot be read or is no record.
pub fn read(path: &Path) -> Result<Lines, ReadError> {
    let file = File::open(path).map_err(|cause| ReadError::Io {
        path: path.to_owned(),
        cause,
    })?;
    Lines::new(path, BufReader::with_capacity(64 << 10, file))
}

impl Lines {
    /// Goes on after the first `bytes`, which end with a line.
    ///
    /// # Errors
    /// If that is not possible in this file.
    pub fn skip_to(&mut self, bytes: u64) -> io::Result<()> {
        self.first = None;
        self.reader.seek(SeekFrom::Start(bytes)).map(drop)
    }
}

impl<R: BufRead> Lines<R> {
    /// Reads the first line from `reader`, which messages call `path`.
    ///
    /// # Errors
    /// If it cannot be read or is no record's.
    pub fn new(path: &Path, reader: R) -> Result<Self, ReadError> {
        let mut lines = Self {
            path: path.to_owned(),
            reader,
            number: 0,
            first: None,
            cut_off: false,
        };
        let why = match lines.next() {
            Some(Ok(line)) if line.event() == "run.start" => {
                lines.first = Some(line);
                return Ok(lines);
            }
            Some(Err(ReadError::Io { path, cause })) => {
                return Err(ReadError::Io { path, cause });
            }
            Some(Ok(_)) => "its first line has no `opensafe.event` of `run.start`",
            Some(Err(_)) => "its first line is no JSON object",
            None if lines.cut_off => "its first line is no JSON object, or is cut off",
            None => "it is empty",
        };
        Err(ReadError::NotARecord {
            path: path.to_owned(),
            why: why.to_owned(),
        })
    }

    /// The first line: the run.
    #[must_use]
    pub fn start(&self) -> Option<&Line> {
        self.first.as_ref()
    }

    /// Whether the last line was cut off. Known once the lines are at their end.
    #[must_use]
    pub const fn cut_off(&self) -> bool {
        self.cut_off
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Line, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let mut raw = Vec::new();
        loop {
            raw.clear();
            let failed = |cause| ReadError::Io {
                path: self.path.clone(),
                cause,
            };
            let mut start = (&mut self.reader).take(LONGEST_LINE as u64);
            match start.read_until(b'\n', &mut raw) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(cause) => return Some(Err(failed(cause))),
            }
            self.number += 1;
            if raw.len() == LONGEST_LINE && raw.last() != Some(&b'\n') {
                if let Err(cause) = self.reader.skip_until(b'\n') {
                    return Some(Err(failed(cause)));
                }
                return Some(Err(ReadError::TooLong {
                    path: self.path.clone(),
                    number: self.number,
                }));
            }
            let whole = raw.last() == Some(&b'\n');
            if whole {
                raw.pop();
            }
            if raw.is_empty() {
                continue;
            }
            return match serde_json::from_slice(&raw) {
                Ok(fields) => Some(Ok(Line { fields, raw })),
                Err(_) if !whole => {
                    self.cut_off = true;
                    None
                }
                Err(cause) => Some(Err(ReadError::Line {
                    path: self.path.clone(),
                    number: self.number,
                    cause,
                })),
            };
        }
    }
}

/// When the run of the record at `path` began; 0 if that cannot be found out.
pub(super) fn begun(path: &Path) -> u64 {
    read(path).map_or(0, |lines| lines.start().map_or(0, Line::time))
}

/// Bytes from the end of a record within which its last line begins.
const LAST_LINE: u64 = 64 << 10;

/// The last line of the record at `path`, without reading those before it; `None` if it is not whole.
///
/// # Errors
/// If the file cannot be read.
pub fn last(path: &Path) -> Result<Option<Line>, ReadError> {
    let failed = |cause| ReadError::Io {
        path: path.to_owned(),
        cause,
    };
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_LINE)))
        .map_err(failed)?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).map_err(failed)?;
    if tail.pop() != Some(b'\n') {
        return Ok(None);
    }
    let from = tail.iter().rposition(|byte| *byte == b'\n');
    let raw = tail.split_off(from.map_or(0, |newline| newline + 1));
    Ok(serde_json::from_slice(&raw)
        .ok()
        .map(|fields| Line { fields, raw }))
}

/// Whether a file that begins with `start` is a record, as far as its beginning tells.
pub(super) fn is_start(start: &[u8]) -> bool {
    let has = |what: &[u8]| start.windows(what.len()).any(|window| window == what);
    start.starts_with(b"{") && has(b"\"opensafe.event\"") && has(b"\"run.start\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = r#"{"time_unix_nano":1,"opensafe.event":"run.start"}"#;

    fn lines(text: &str) -> Result<Lines<&[u8]>, ReadError> {
        Lines::new(Path::new("r.jsonl"), text.as_bytes())
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_said() {
        let text = format!("{START}\n{{\"opensafe.event\":\"exec\"}}\n{{\"time_");
        let mut lines = lines(&text).unwrap();
        let events: Vec<_> = lines
            .by_ref()
            .map(|line| line.unwrap().event().to_owned())
            .collect();
        assert_eq!(events, ["run.start", "exec"]);
        assert!(lines.cut_off());
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error_with_its_number_and_reading_goes_on() {
        let text = format!("{START}\n{{\"half\n{{\"opensafe.event\":\"exit\"}}\n");
        let all: Vec<_> = lines(&text).unwrap().collect();
        assert_eq!(all.len(), 3);
        let error = all[1].as_ref().unwrap_err().to_string();
        assert!(error.starts_with("record r.jsonl, line 2: "), "{error}");
        assert_eq!(all[2].as_ref().unwrap().event(), "exit");
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_the_longest_and_reading_goes_on() {
        let endless = io::repeat(b'x').take(3 * LONGEST_LINE as u64 / 2);
        let text = START.as_bytes().chain(&b"\n"[..]).chain(endless);
        let text = text.chain(&b"\n{\"opensafe.event\":\"exit\"}\n"[..]);
        let mut lines = Lines::new(Path::new("r.jsonl"), BufReader::new(text)).unwrap();
        assert_eq!(lines.next().unwrap().unwrap().event(), "run.start");
        let error = lines.next().unwrap().unwrap_err();
        assert!(
            matches!(error, ReadError::TooLong { number: 2, .. }),
            "{error}"
        );
        assert_eq!(lines.next().unwrap().unwrap().event(), "exit");
        assert!(lines.next().is_none());
    }

    #[test]
    fn what_is_no_record_is_said_to_be_none_and_why() {
        for (text, why) in [
            ("", "it is empty"),
            ("fn main() {}\n", "its first line is no JSON object"),
            ("[1]\n", "its first line is no JSON object"),
            (
                "{\"a\":1}\n",
                "its first line has no `opensafe.event` of `run.start`",
            ),
            ("{\"a\":", "its first line is no JSON object, or is cut off"),
        ] {
            let error = lines(text).unwrap_err().to_string();
            assert_eq!(error, format!("r.jsonl is no record: {why}"));
        }
    }
}
