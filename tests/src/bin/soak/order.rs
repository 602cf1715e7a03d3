//! What can be found open when files are tried one after the other while, at most once, the next one takes the place of the only
//! one that is open.

/// Files of which exactly one is open at a time, one after the other and then from the first again.
pub(crate) const FILES: usize = 4;

/// In which order they are tried: each once, and the first of them again.
pub(crate) type Order = [usize; FILES + 1];

/// Upwards from one, or downwards.
pub(crate) fn from(first: usize, downwards: bool) -> Order {
    std::array::from_fn(|step| {
        let step = step % FILES;
        let step = if downwards { FILES - step } else { step };
        (first + step) % FILES
    })
}

/// Whether this is how it can be: at each try either the policy before decided or the next one, and once that did, it always did.
pub(crate) fn is_possible(order: Order, open: [bool; FILES + 1]) -> bool {
    (0..FILES).any(|before| {
        // The next one decides from this try on; after the last: not yet.
        (0..=order.len()).any(|switch| {
            let tries = order.iter().zip(open).enumerate();
            tries.into_iter().all(|(step, (file, is_open))| {
                let in_force = if step < switch {
                    before
                } else {
                    (before + 1) % FILES
                };
                (*file == in_force) == is_open
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_tried_and_the_first_one_again() {
        assert_eq!(from(2, false), [2, 3, 0, 1, 2]);
        assert_eq!(from(1, true), [1, 0, 3, 2, 1]);
    }

    #[test]
    fn one_policy_or_two_that_follow_each_other_are_possible_and_nothing_else() {
        let up = from(0, false);
        let tried = |open: [u8; FILES + 1]| open.map(|open| open == 1);
        for possible in [
            [1, 0, 0, 0, 1],
            [0, 1, 0, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 0, 0, 1, 1],
            [1, 1, 0, 0, 0],
        ] {
            assert!(is_possible(up, tried(possible)), "{possible:?}");
        }
        for impossible in [
            // Neither.
            [0, 0, 0, 0, 0],
            // Two at once, or one that comes back.
            [0, 1, 0, 1, 0],
            [1, 0, 1, 0, 0],
            [1, 1, 0, 0, 1],
            [1, 1, 1, 1, 1],
            // Two switches.
            [0, 1, 1, 1, 0],
        ] {
            assert!(!is_possible(up, tried(impossible)), "{impossible:?}");
        }
        // Downwards one may slip through between two tries, and no two are met.
        let down = from(3, true);
        assert!(is_possible(down, [false; FILES + 1]));
        assert!(!is_possible(down, tried([0, 1, 1, 0, 0])));
    }
}
