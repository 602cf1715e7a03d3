//! From the nondeterministic automaton to a deterministic one, by the subset construction.
//!
//! One table holds the states for every start there is: starts from which the same can follow share
//! states without being told to. Time and memory are bounded by [`Bounds`], whatever the patterns.
//!
//! A regex library's builder would do the same for patterns that know nothing of each other. Ours say
//! one of a few things, and most end in `/**`: once one has matched, whatever says no more than it need
//! not be followed any further (`Builder::absorb`). Without that, a thousand `/**/name/**` are 2^1000
//! states, or a thousand names twice over.

use std::collections::HashMap;

use opensafe_common::tables::ROW_HEAD_CELLS;
use opensafe_common::verdict::Word;

use super::pattern::{Nfa, Node, NodeId, Saying};

/// How far the construction may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Cells of the table: states times (a row's head + classes).
    pub(super) cells: usize,
    /// Nodes looked at, over all states.
    pub(super) work: usize,
}

/// A bound was reached.
#[derive(Debug)]
pub(super) struct Overflow;

/// A deterministic automaton over byte classes. State 0 is dead.
#[derive(Debug)]
pub(super) struct Dfa {
    /// Byte → class.
    pub(super) classes: [u8; 256],
    /// Classes in use, 1 to 256.
    pub(super) width: usize,
    /// State × class → state.
    pub(super) next: Vec<u32>,
    /// State → what it says.
    pub(super) words: Vec<Word>,
    /// The start states, in the order in which their roots were given.
    pub(super) starts: Vec<u32>,
}

/// The automaton in which start `i` matches the patterns `roots[i]`; `judge` makes a word of all that is
/// said at a state.
pub(super) fn determinise(
    nfa: &Nfa,
    roots: &[Vec<NodeId>],
    judge: impl Fn(&[Saying]) -> Word,
    bounds: Bounds,
) -> Result<Dfa, Overflow> {
    let (classes, set_classes, width) = partition(nfa);
    let mut builder = Builder {
        nfa,
        judge,
        bounds,
        width,
        visited: vec![0; nfa.nodes.len()],
        visit: 0,
        work: 0,
        by_kernel: HashMap::new(),
        by_nodes: HashMap::new(),
        states: Vec::new(),
        words: Vec::new(),
    };
    builder.state(&mut Vec::new())?;
    let starts = roots
        .iter()
        .map(|root| builder.state(&mut root.clone()))
        .collect::<Result<Vec<_>, _>>()?;

    let mut next = Vec::new();
    let mut targets = vec![Vec::new(); width];
    let mut at = 0;
    while at < builder.states.len() {
        for &id in &builder.states[at] {
            match nfa.nodes[id.index()] {
                Node::Step(set, to) => {
                    for &class in &set_classes[set as usize] {
                        targets[usize::from(class)].push(to);
                    }
                }
                Node::Loop(set, _) => {
                    for &class in &set_classes[set as usize] {
                        targets[usize::from(class)].push(id);
                    }
                }
                Node::Accept(_) | Node::Fork(_) => {}
            }
        }
        for kernel in &mut targets {
            next.push(builder.state(kernel)?);
            kernel.clear();
        }
        at += 1;
    }
    Ok(Dfa {
        classes,
        width,
        next,
        words: builder.words,
        starts,
    })
}

/// The coarsest classes of bytes that no set of the automaton tells apart, the classes that each set is
/// made of, and how many classes there are.
fn partition(nfa: &Nfa) -> ([u8; 256], Vec<Vec<u8>>, usize) {
    let mut classes = [0_u8; 256];
    let mut width = 1_usize;
    for set in &nfa.sets {
        // Splits each class in two by membership; the half without the class's first byte moves.
        let mut split: HashMap<(u8, bool), u8> = HashMap::new();
        let mut count = 0_u8;
        for byte in 0..=u8::MAX {
            let class = &mut classes[usize::from(byte)];
            *class = *split
                .entry((*class, set.contains(byte)))
                .or_insert_with(|| {
                    let new = count;
                    count = count.wrapping_add(1);
                    new
                });
        }
        width = split.len();
    }
    let set_classes = nfa
        .sets
        .iter()
        .map(|set| {
            let mut of_set: Vec<u8> = (0..=u8::MAX)
                .filter(|byte| set.contains(*byte))
                .map(|byte| classes[usize::from(byte)])
                .collect();
            of_set.sort_unstable();
            of_set.dedup();
            of_set
        })
        .collect();
    (classes, set_classes, width)
}

struct Builder<'a, Judge> {
    nfa: &'a Nfa,
    judge: Judge,
    bounds: Bounds,
    width: usize,
    /// Per node, the number of the last closure that met it.
    visited: Vec<u32>,
    visit: u32,
    work: usize,
    /// Sets as a transition makes them; spares most closures.
    by_kernel: HashMap<Box<[NodeId]>, u32>,
    /// Closed sets.
    by_nodes: HashMap<Box<[NodeId]>, u32>,
    states: Vec<Box<[NodeId]>>,
    words: Vec<Word>,
}

impl<Judge: Fn(&[Saying]) -> Word> Builder<'_, Judge> {
    /// The state that stands for the nodes in `kernel` and all that they lead to without a byte.
    fn state(&mut self, kernel: &mut Vec<NodeId>) -> Result<u32, Overflow> {
        kernel.sort_unstable();
        kernel.dedup();
        if let Some(&state) = self.by_kernel.get(&kernel[..]) {
            return Ok(state);
        }
        let nodes = self.closure(kernel);
        self.work += kernel.len() + nodes.len();
        let state = if let Some(&state) = self.by_nodes.get(&nodes[..]) {
            state
        } else {
            let state = u32::try_from(self.states.len()).map_err(|_| Overflow)?;
            let nodes: Box<[NodeId]> = nodes.into();
            self.words.push((self.judge)(&self.sayings(&nodes)));
            self.states.push(nodes.clone());
            self.by_nodes.insert(nodes, state);
            state
        };
        self.by_kernel.insert(kernel[..].into(), state);
        let cells = self
            .states
            .len()
            .saturating_mul(self.width + ROW_HEAD_CELLS);
        if cells > self.bounds.cells || self.work > self.bounds.work {
            return Err(Overflow);
        }
        Ok(state)
    }

    fn closure(&mut self, kernel: &[NodeId]) -> Vec<NodeId> {
        self.visit += 1;
        let mut pending = kernel.to_vec();
        let mut nodes = Vec::new();
        while let Some(id) = pending.pop() {
            let seen = &mut self.visited[id.index()];
            if *seen == self.visit {
                continue;
            }
            *seen = self.visit;
            match &self.nfa.nodes[id.index()] {
                Node::Fork(options) => {
                    pending.extend_from_slice(options);
                    continue;
                }
                Node::Loop(_, next) => pending.push(*next),
                Node::Step(..) | Node::Accept(_) => {}
            }
            nodes.push(id);
        }
        nodes.sort_unstable();
        self.absorb(&mut nodes);
        nodes
    }

    /// Drops what can add nothing: nodes whose saying is outdone by what will be said whatever follows.
    fn absorb(&self, nodes: &mut Vec<NodeId>) {
        let fact = |id: &NodeId| self.nfa.facts[id.index()];
        let saying = |id: &NodeId| self.nfa.sayings[fact(id).saying as usize];
        let mut forever: Vec<NodeId> = nodes
            .iter()
            .filter(|id| fact(id).everything)
            .copied()
            .collect();
        if forever.is_empty() {
            return;
        }
        // The strictest first, so that they outdo the others.
        forever.sort_by_key(|id| {
            let word = saying(id).word;
            (
                std::cmp::Reverse((word.deny, word.audit, word.allow, word.flags)),
                *id,
            )
        });
        let mut kept: Vec<NodeId> = Vec::new();
        let mut said: Vec<Saying> = Vec::new();
        let outdone = |said: &[Saying], by: Saying| {
            said.iter()
                .find(|other| other.name == by.name)
                .is_some_and(|other| outdoes(other.word, by.word))
        };
        for id in forever {
            let new = saying(&id);
            if outdone(&said, new) {
                continue;
            }
            kept.push(id);
            match said.iter_mut().find(|other| other.name == new.name) {
                Some(other) => other.word = other.word.merge(new.word),
                None => said.push(new),
            }
        }
        nodes.retain(|id| kept.contains(id) || !outdone(&said, saying(id)));
    }

    fn sayings(&self, nodes: &[NodeId]) -> Vec<Saying> {
        let mut ids: Vec<u32> = nodes
            .iter()
            .filter(|id| {
                matches!(self.nfa.nodes[id.index()], Node::Accept(_))
                    || self.nfa.facts[id.index()].everything
            })
            .map(|id| self.nfa.facts[id.index()].saying)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter()
            .map(|id| self.nfa.sayings[id as usize])
            .collect()
    }
}

/// Whether adding `word` to `standing` would change no verdict.
const fn outdoes(standing: Word, word: Word) -> bool {
    let deny = standing.deny;
    let audit = deny | standing.audit;
    let allow = audit | standing.allow;
    word.deny & !deny == 0
        && word.audit & !audit == 0
        && word.allow & !allow == 0
        && word.flags & !standing.flags == 0
}
