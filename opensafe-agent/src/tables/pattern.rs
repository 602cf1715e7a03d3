//! Patterns over path bytes, and the nondeterministic automaton that many of them make together.
//!
//! Patterns that say the same thing go into one [`Trie`], so that what they begin with is there once;
//! lowering it interns nodes from the end, so that what they end with is there once too. That is what
//! keeps the deterministic automaton small: after `/**/node_modules/**` and `/**/target/**` have each
//! matched, the same node remains, and there is nothing to tell apart.

use std::collections::{BTreeMap, HashMap};

use opensafe_common::verdict::Word;

/// A set of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    /// Every byte.
    pub(super) const ANY: Self = Self([u64::MAX; 4]);
    /// Every byte that can be in a name.
    pub(super) const NO_SLASH: Self = {
        let mut words = [u64::MAX; 4];
        words[0] &= !(1 << b'/');
        Self(words)
    };

    /// The bytes from `first` to `last`.
    pub(super) fn range(first: u8, last: u8) -> Self {
        let mut words = [0; 4];
        for byte in first..=last {
            words[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        Self(words)
    }

    /// Whether `byte` is in the set.
    pub(super) const fn contains(&self, byte: u8) -> bool {
        self.0[(byte >> 6) as usize] >> (byte & 63) & 1 == 1
    }
}

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Atom {
    /// This byte.
    Byte(u8),
    /// One of these sequences of byte ranges: what a set of characters is in UTF-8.
    Char(Vec<Vec<(u8, u8)>>),
    /// Any number of bytes out of the set.
    Star(ByteSet),
    /// Nothing, or `/` and then any bytes: any number of components.
    Deep,
}

/// Index of a node in its [`Nfa`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u32);

impl NodeId {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a match says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Saying {
    /// For which of the superblock's names; 0 if it has but one, and the word holds as it stands.
    pub(super) name: u32,
    /// The word.
    pub(super) word: Word,
}

/// A state of the nondeterministic automaton. All that can be reached from one says one thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// The pattern has matched.
    Accept(u32),
    /// A byte of the set, then the other node.
    Step(u32, NodeId),
    /// Any number of bytes of the set, then the other node.
    Loop(u32, NodeId),
    /// Any of these.
    Fork(Box<[NodeId]>),
}

/// What is known of a node's language without walking it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    /// Index into [`Nfa::sayings`].
    pub(super) saying: u32,
    /// Matches the empty string.
    pub(super) nullable: bool,
    /// Matches everything, so that what it says stays said.
    pub(super) everything: bool,
}

/// Nodes of all patterns of a policy, each there once.
#[derive(Debug, Default)]
pub(super) struct Nfa {
    pub(super) nodes: Vec<Node>,
    pub(super) facts: Vec<Fact>,
    pub(super) sets: Vec<ByteSet>,
    pub(super) sayings: Vec<Saying>,
    node_ids: HashMap<Node, NodeId>,
    set_ids: HashMap<ByteSet, u32>,
    saying_ids: HashMap<Saying, u32>,
}

/// Index of a vector's next element. Nodes are far fewer than the bytes of the policy's text times
/// the mounts, so that saturating is a formality: memory ends first.
fn next_id<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

impl Nfa {
    fn set(&mut self, set: ByteSet) -> u32 {
        *self.set_ids.entry(set).or_insert_with(|| {
            self.sets.push(set);
            next_id(&self.sets) - 1
        })
    }

    fn saying(&mut self, saying: Saying) -> u32 {
        *self.saying_ids.entry(saying).or_insert_with(|| {
            self.sayings.push(saying);
            next_id(&self.sayings) - 1
        })
    }

    fn node(&mut self, node: Node) -> NodeId {
        if let Some(&id) = self.node_ids.get(&node) {
            return id;
        }
        let of = |id: &NodeId| self.facts[id.index()];
        let fact = match &node {
            Node::Accept(saying) => Fact {
                saying: *saying,
                nullable: true,
                everything: false,
            },
            Node::Step(_, next) => Fact {
                nullable: false,
                everything: false,
                ..of(next)
            },
            Node::Loop(set, next) => Fact {
                everything: self.sets[*set as usize] == ByteSet::ANY && of(next).nullable,
                ..of(next)
            },
            Node::Fork(nodes) => Fact {
                saying: nodes.first().map_or(0, |first| of(first).saying),
                nullable: nodes.iter().any(|id| of(id).nullable),
                everything: false,
            },
        };
        let id = NodeId(next_id(&self.nodes));
        self.nodes.push(node.clone());
        self.facts.push(fact);
        self.node_ids.insert(node, id);
        id
    }

    fn step(&mut self, first: u8, last: u8, next: NodeId) -> NodeId {
        let set = self.set(ByteSet::range(first, last));
        self.node(Node::Step(set, next))
    }

    fn repeat(&mut self, set: ByteSet, next: NodeId) -> NodeId {
        let set = self.set(set);
        self.node(Node::Loop(set, next))
    }

    /// The literal `prefix`, then the other node.
    pub(super) fn behind(&mut self, prefix: &[u8], next: NodeId) -> NodeId {
        let bytes = prefix.iter().rev();
        bytes.fold(next, |next, &byte| self.step(byte, byte, next))
    }

    /// The nodes that an atom can be passed by on the way to `next`.
    fn atom(&mut self, atom: &Atom, next: NodeId, options: &mut Vec<NodeId>) {
        match atom {
            Atom::Byte(byte) => options.push(self.step(*byte, *byte, next)),
            Atom::Char(sequences) => {
                for sequence in sequences {
                    let first = sequence
                        .iter()
                        .rev()
                        .fold(next, |next, &(a, b)| self.step(a, b, next));
                    options.push(first);
                }
            }
            Atom::Star(set) => options.push(self.repeat(*set, next)),
            Atom::Deep => {
                options.push(next);
                let below = self.repeat(ByteSet::ANY, next);
                options.push(self.step(b'/', b'/', below));
            }
        }
    }
}

/// Patterns that say the same, sharing what they begin with.
#[derive(Debug, Default)]
pub(super) struct Trie {
    /// Children come after their parents.
    nodes: Vec<TrieNode>,
}

#[derive(Debug, Default)]
struct TrieNode {
    ends: bool,
    /// Led to by [`Atom::Deep`].
    deep: bool,
    children: BTreeMap<Atom, usize>,
}

impl Trie {
    /// Adds a pattern.
    pub(super) fn insert(&mut self, atoms: &[Atom]) {
        if self.nodes.is_empty() {
            self.nodes.push(TrieNode::default());
        }
        let mut at = 0;
        for atom in atoms {
            at = if let Some(&child) = self.nodes[at].children.get(atom) {
                child
            } else {
                let child = self.nodes.len();
                self.nodes.push(TrieNode {
                    deep: *atom == Atom::Deep,
                    ..TrieNode::default()
                });
                self.nodes[at].children.insert(atom.clone(), child);
                child
            };
        }
        self.nodes[at].ends = true;
    }

    /// Makes it a part of `nfa`; the node that stands for all its patterns, if there is one.
    pub(super) fn lower(self, nfa: &mut Nfa, saying: Saying) -> Option<NodeId> {
        let saying = nfa.saying(saying);
        let accept = nfa.node(Node::Accept(saying));
        let mut lowered = vec![accept; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let mut options = Vec::new();
            if node.ends {
                options.push(accept);
            }
            // Below a trailing `**` everything matches already.
            if !(node.deep && node.ends) {
                for (atom, child) in &node.children {
                    nfa.atom(atom, lowered[*child], &mut options);
                }
            }
            options.sort_unstable();
            options.dedup();
            lowered[at] = match options[..] {
                [one] => one,
                _ => nfa.node(Node::Fork(options.into())),
            };
        }
        lowered.first().copied()
    }
}
