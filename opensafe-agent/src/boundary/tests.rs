use std::collections::BTreeSet;

use super::*;

#[test]
fn every_attempt_has_a_name_of_its_own_that_begins_with_its_kind() {
    let mut names = BTreeSet::new();
    for (of, attempt) in kinds::all() {
        assert!(names.insert(attempt.name), "{} twice", attempt.name);
        let (kind, rest) = attempt.name.split_once('.').unwrap();
        assert_eq!(kind, of.as_str(), "{}", attempt.name);
        assert!(!rest.is_empty() && !attempt.shows.is_empty());
    }
    for work in honest::ALL {
        assert!(names.insert(work.name), "{} twice", work.name);
    }
}

#[test]
fn every_kind_has_attempts_and_there_are_many() {
    for kind in Kind::ALL {
        assert!(!list(&[kind]).is_empty(), "{kind}");
    }
    assert!(list(&[]).len() >= 100, "{}", list(&[]).len());
}
