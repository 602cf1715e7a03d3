//! What the kinds of access to a file are called: in policies, in records, on a person's screen.

use std::borrow::Cow;

use opensafe_common::verdict::Access;

/// What `access` in a policy may name. `read` and `write` stand for several kinds, the others for one.
pub const IN_POLICIES: [(&str, Access); 9] = named(Access::READING, Access::CHANGING);

/// Each kind by itself, as records have it.
const KINDS: [(&str, Access); 9] = named(Access::READ, Access::WRITE);
/// Mapping as code what may not be run, as records have it.
const RUN: (&str, Access) = ("exec", Access::EXEC);

const fn named(read: Access, write: Access) -> [(&'static str, Access); 9] {
    [
        ("read", read),
        ("write", write),
        ("create", Access::CREATE),
        ("delete", Access::DELETE),
        ("rename", Access::RENAME),
        ("link", Access::LINK),
        ("attributes", Access::ATTRIBUTES),
        ("map_exec", Access::MAP_EXEC),
        ("ioctl", Access::IOCTL),
    ]
}

/// Each kind by itself, and [`RUN`].
fn kinds() -> impl Iterator<Item = (&'static str, Access)> {
    KINDS.into_iter().chain([RUN])
}

/// The words that a policy has for these kinds: a group's where all of it is there.
#[must_use]
pub fn policy_words(access: Access) -> Vec<&'static str> {
    let mut left = access;
    let mut words = Vec::new();
    for (word, kinds) in IN_POLICIES {
        if left.contains(kinds) {
            left = Access(left.0 & !kinds.0);
            words.push(word);
        }
    }
    words
}

/// The kinds by their names, one each.
#[must_use]
pub fn kind_words(access: Access) -> Vec<&'static str> {
    kinds()
        .filter_map(|(word, kind)| access.contains(kind).then_some(word))
        .collect()
}

/// What [`kind_words`] made words of; what is none of them is left out.
#[must_use]
pub fn from_kind_words(words: &[Vec<u8>]) -> Access {
    kinds()
        .filter(|(word, _)| words.iter().any(|other| other == word.as_bytes()))
        .fold(Access::NONE, |access, (_, kind)| access.union(kind))
}

/// One word for what was done to a file, for a person: opening a new file for writing is to create it.
#[must_use]
pub fn one_word(access: Access) -> Cow<'static, str> {
    let opening = Access::READ.union(Access::WRITE);
    let access = if access.contains(Access::CREATE) {
        Access(access.0 & !opening.0)
    } else {
        access
    };
    match kind_words(access)[..] {
        [] => Cow::Borrowed("open"),
        [one] => Cow::Borrowed(one),
        ref several => Cow::Owned(several.join("+")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_its_word_only_where_all_of_it_is_there() {
        assert_eq!(policy_words(Access::FILE), ["read", "write", "create"]);
        let some = Access::READING.union(Access::DELETE).union(Access::LINK);
        assert_eq!(policy_words(some), ["read", "delete", "link"]);
        assert_eq!(policy_words(Access::MAP_EXEC), ["map_exec"]);
    }

    #[test]
    fn every_set_that_a_policy_can_name_comes_back() {
        for chosen in 1..1_u16 << IN_POLICIES.len() {
            let named = |at: usize| chosen >> at & 1 == 1;
            let kinds = (0..IN_POLICIES.len()).filter(|at| named(*at));
            let access = kinds.fold(Access::NONE, |access, at| access.union(IN_POLICIES[at].1));
            let back = policy_words(access)
                .iter()
                .fold(Access::NONE, |back, word| {
                    let (_, kinds) = IN_POLICIES.iter().find(|(known, _)| known == word).unwrap();
                    back.union(*kinds)
                });
            assert_eq!(back, access);
        }
    }

    #[test]
    fn kinds_come_back_from_a_record() {
        for kinds in 0..=u16::MAX {
            let access = Access(kinds & Access::FILE.union(Access::EXEC).0);
            let words: Vec<Vec<u8>> = kind_words(access)
                .iter()
                .map(|word| word.as_bytes().to_vec())
                .collect();
            assert_eq!(from_kind_words(&words), access);
        }
    }

    #[test]
    fn a_person_reads_one_word() {
        let word = |kinds: &[Access]| one_word(kinds.iter().fold(Access::NONE, |a, b| a.union(*b)));
        assert_eq!(word(&[Access::READ]), "read");
        assert_eq!(word(&[Access::READ, Access::WRITE]), "read+write");
        assert_eq!(word(&[Access::CREATE, Access::WRITE]), "create");
        assert_eq!(word(&[Access::CREATE, Access::RENAME]), "create+rename");
        assert_eq!(word(&[Access::DELETE]), "delete");
        assert_eq!(word(&[Access::EXEC]), "exec");
    }
}
