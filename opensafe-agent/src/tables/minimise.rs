//! The smallest automaton that says the same: memory is what a policy costs, and a host may hold many.
//!
//! Partition refinement over the transitions that do not lead to the dead state, after Valmari and
//! Lehtinen, "Efficient minimization of DFAs with partial transition functions" (STACS 2008): time in
//! the number of those transitions times its logarithm.

use std::collections::HashMap;

use opensafe_common::verdict::Word;

use super::dfa::Dfa;

/// Merges states that nothing can tell apart and classes of bytes that no state tells apart. State 0 stays
/// dead; every state that can say nothing any more becomes it. States are numbered in the order in which
/// they are met.
pub(super) fn minimise(dfa: &Dfa) -> Dfa {
    let live = live(dfa, &dfa.words);
    let block_of = blocks(dfa, &dfa.words, &live);
    let dfa = quotient(dfa, &live, &block_of);
    merge_classes(dfa)
}

/// For each state a number, the same for two states if below a directory at either, whatever the path, the
/// words are the same; 0 if nothing is said there. `words` is what counts of each state's word.
pub(super) fn below(dfa: &Dfa, words: &[Word]) -> Vec<u32> {
    let live = live(dfa, words);
    let block_of = blocks(dfa, words, &live);
    let slash = usize::from(dfa.classes[usize::from(b'/')]);
    let behind = dfa
        .next
        .chunks_exact(dfa.width)
        .map(|row| row[slash] as usize);
    behind
        .map(|state| if live[state] { block_of[state] + 1 } else { 0 })
        .collect()
}

/// States from which something can still be said.
fn live(dfa: &Dfa, words: &[Word]) -> Vec<bool> {
    let states = dfa.words.len();
    let transitions = || {
        let from = (0..states).flat_map(|state| std::iter::repeat_n(state, dfa.width));
        from.zip(dfa.next.iter().map(|to| *to as usize))
            .filter(|(from, to)| from != to)
    };
    let sources = Grouped::new(states, transitions().map(|(from, to)| (to, from)));
    let mut live: Vec<bool> = words.iter().map(|word| *word != Word::default()).collect();
    let mut pending: Vec<usize> = (0..states).filter(|state| live[*state]).collect();
    while let Some(state) = pending.pop() {
        for &from in sources.of(state) {
            if !live[from as usize] {
                live[from as usize] = true;
                pending.push(from as usize);
            }
        }
    }
    live
}

/// State → block, so that states in one block cannot be told apart. Only live states matter.
fn blocks(dfa: &Dfa, words: &[Word], live: &[bool]) -> Vec<u32> {
    let mut from = Vec::new();
    let mut to = Vec::new();
    let mut labels = Vec::new();
    for (state, row) in dfa.next.chunks_exact(dfa.width).enumerate() {
        for (class, &target) in row.iter().enumerate() {
            if live[state] && live[target as usize] {
                from.push(state);
                to.push(target as usize);
                labels.push(class);
            }
        }
    }
    let incoming = Grouped::new(dfa.words.len(), to.iter().copied().zip(0..));
    let mut states = Partition::by_key(words);
    let mut transitions = Partition::by_key(&labels);

    // Splitters: states are told apart by a set of transitions that leaves only some of a block, and
    // transitions by a block of states that only some of a set lead to. Block 0 is what is left over.
    let mut block = 1;
    let mut set = 0;
    while set < transitions.len() {
        for at in transitions.range(set) {
            states.mark(from[transitions.elements[at] as usize]);
        }
        states.split();
        set += 1;
        while block < states.len() {
            for at in states.range(block) {
                for &transition in incoming.of(states.elements[at] as usize) {
                    transitions.mark(transition as usize);
                }
            }
            transitions.split();
            block += 1;
        }
    }
    states.set_of
}

/// Indices as they are stored; tables are bounded far below what they could count.
fn narrow(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Lists of indices, one list a group, in one allocation.
struct Grouped {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Grouped {
    fn new(groups: usize, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> Self {
        let mut starts = vec![0_u32; groups + 1];
        for (group, _) in pairs.clone() {
            starts[group + 1] += 1;
        }
        for group in 0..groups {
            starts[group + 1] += starts[group];
        }
        let mut items = vec![0; starts[groups] as usize];
        let mut free = starts.clone();
        for (group, item) in pairs {
            items[free[group] as usize] = narrow(item);
            free[group] += 1;
        }
        Self { starts, items }
    }

    fn of(&self, group: usize) -> &[u32] {
        &self.items[self.starts[group] as usize..self.starts[group + 1] as usize]
    }
}

/// A partition that can be refined: mark elements, then split each set into marked and other ones.
struct Partition {
    /// All elements, those of a set side by side, marked ones first.
    elements: Vec<u32>,
    /// Element → place in `elements`.
    place: Vec<u32>,
    /// Element → set.
    set_of: Vec<u32>,
    /// Set → where it begins, where it ends, how many are marked.
    sets: Vec<(u32, u32, u32)>,
    touched: Vec<u32>,
}

impl Partition {
    fn by_key<K: std::hash::Hash + Eq>(keys: &[K]) -> Self {
        let mut ids = HashMap::new();
        let set_of: Vec<u32> = keys
            .iter()
            .map(|key| {
                let fresh = narrow(ids.len());
                *ids.entry(key).or_insert(fresh)
            })
            .collect();
        let grouped = Grouped::new(
            ids.len(),
            set_of.iter().map(|set| *set as usize).zip(0..keys.len()),
        );
        let mut place = vec![0; keys.len()];
        for (at, element) in grouped.items.iter().enumerate() {
            place[*element as usize] = narrow(at);
        }
        let sets = grouped.starts.windows(2).map(|w| (w[0], w[1], 0)).collect();
        Self {
            elements: grouped.items,
            place,
            set_of,
            sets,
            touched: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.sets.len()
    }

    fn range(&self, set: usize) -> std::ops::Range<usize> {
        self.sets[set].0 as usize..self.sets[set].1 as usize
    }

    fn mark(&mut self, element: usize) {
        let set = self.set_of[element];
        let (begin, _, marked) = &mut self.sets[set as usize];
        let (at, to) = (self.place[element], *begin + *marked);
        if at < to {
            return;
        }
        if *marked == 0 {
            self.touched.push(set);
        }
        *marked += 1;
        let other = self.elements[to as usize];
        self.elements.swap(at as usize, to as usize);
        self.place[element] = to;
        self.place[other as usize] = at;
    }

    fn split(&mut self) {
        while let Some(set) = self.touched.pop() {
            let fresh = narrow(self.sets.len());
            let (begin, end, marked) = &mut self.sets[set as usize];
            let middle = *begin + *marked;
            *marked = 0;
            if middle == *end {
                continue;
            }
            // The smaller part becomes the new set: that is where the logarithm comes from.
            let new = if middle - *begin <= *end - middle {
                let new = (*begin, middle, 0);
                *begin = middle;
                new
            } else {
                let new = (middle, *end, 0);
                *end = middle;
                new
            };
            for at in new.0..new.1 {
                self.set_of[self.elements[at as usize] as usize] = fresh;
            }
            self.sets.push(new);
        }
    }
}

/// The automaton of blocks.
fn quotient(dfa: &Dfa, live: &[bool], block_of: &[u32]) -> Dfa {
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    // Each new state's representative among the old.
    let mut chosen = vec![0_usize];
    let mut number = |state: u32, chosen: &mut Vec<usize>| {
        let state = state as usize;
        if !live[state] {
            return 0;
        }
        *numbers.entry(block_of[state]).or_insert_with(|| {
            chosen.push(state);
            narrow(chosen.len() - 1)
        })
    };
    let starts = dfa
        .starts
        .iter()
        .map(|start| number(*start, &mut chosen))
        .collect();
    let mut next = vec![0; dfa.width];
    let mut words = vec![Word::default()];
    let mut at = 1;
    while at < chosen.len() {
        let state = chosen[at];
        words.push(dfa.words[state]);
        for class in 0..dfa.width {
            next.push(number(dfa.next[state * dfa.width + class], &mut chosen));
        }
        at += 1;
    }
    Dfa {
        classes: dfa.classes,
        width: dfa.width,
        next,
        words,
        starts,
    }
}

/// Merges classes with equal columns.
fn merge_classes(dfa: Dfa) -> Dfa {
    let column = |class: usize| -> Vec<u32> {
        dfa.next
            .iter()
            .skip(class)
            .step_by(dfa.width)
            .copied()
            .collect()
    };
    let mut columns: HashMap<Vec<u32>, u8> = HashMap::new();
    let mut kept = Vec::new();
    let class_of: Vec<u8> = (0..dfa.width)
        .map(|class| {
            *columns.entry(column(class)).or_insert_with(|| {
                kept.push(class);
                u8::try_from(kept.len() - 1).unwrap_or(u8::MAX)
            })
        })
        .collect();
    let next = dfa
        .next
        .chunks_exact(dfa.width)
        .flat_map(|row| kept.iter().map(|class| row[*class]))
        .collect();
    Dfa {
        classes: dfa.classes.map(|class| class_of[usize::from(class)]),
        width: kept.len(),
        next,
        ..dfa
    }
}
