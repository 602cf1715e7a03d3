//! What names a run.

use std::{fmt, str::FromStr};

use serde::Serialize;

/// Crockford's base 32: digits and lower-case letters without `i`, `l`, `o` and `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Names a run: 40 random bits as eight characters that are easy to read out and to type.
///
/// Two of 10,000 runs share an id with a probability of 1 in 20,000; where a record of that name
/// exists already, it is not overwritten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RunId(String);

/// Why a text is no run id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no run id: it takes eight of the characters 0-9 and a-z without i, l, o, u")]
pub struct RunIdError(String);

impl RunId {
    /// Characters in an id.
    pub const LENGTH: usize = 8;

    /// A new one.
    ///
    /// # Errors
    /// If the kernel has no random numbers to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; Self::LENGTH];
        getrandom::fill(&mut bytes)?;
        Ok(Self(
            bytes
                .iter()
                .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
                .collect(),
        ))
    }

    /// Its characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `typed` as ids have it: in lower case, with the digit for a letter that looks like it. `None`
    /// if a character of it is in no id.
    #[must_use]
    pub fn normalise(typed: &str) -> Option<String> {
        typed
            .chars()
            .map(|c| match c.to_ascii_lowercase() {
                'o' => Some('0'),
                'i' | 'l' => Some('1'),
                c => u8::try_from(c)
                    .is_ok_and(|byte| ALPHABET.contains(&byte))
                    .then_some(c),
            })
            .collect()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(typed: &str) -> Result<Self, RunIdError> {
        Self::normalise(typed)
            .filter(|id| id.len() == Self::LENGTH)
            .map(Self)
            .ok_or_else(|| RunIdError(typed.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_id_reads_back_as_itself() {
        for _ in 0..100 {
            let id = RunId::random().unwrap();
            assert_eq!(id.as_str().parse::<RunId>().unwrap(), id);
        }
    }

    #[test]
    fn an_id_typed_with_look_alikes_is_understood() {
        assert_eq!("7F3KOILZ".parse::<RunId>().unwrap().as_str(), "7f3k011z");
    }

    #[test]
    fn other_lengths_and_characters_are_no_ids() {
        for text in ["", "7f3k2", "7f3k2aaaa", "7f3k2aau", "7f3k2aa/", "7f3k2aaé"] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }
}
