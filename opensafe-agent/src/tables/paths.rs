//! Path rules in a view: which patterns belong to which superblock, and what a state says.

use std::collections::{BTreeMap, HashMap};

use opensafe_common::tables::ROW_HEAD_CELLS;
use opensafe_common::verdict::{Access, Verdict, Word};

use crate::rules::glob::{Component, PathGlob, Token, rests_below};
use crate::rules::{Peer, Rule, RuleId, RuleSet, Subject};
use crate::view::View;

use super::carry;
use super::dfa::{Bounds, Dfa, determinise};
use super::minimise::{self, minimise};
use super::pattern::{Atom, ByteSet, Nfa, NodeId, Saying, Trie};
use super::superblocks::{self, Name, SuperblockId};
use super::{Limits, Stage, TableError};

/// The automata, and everything that is said beside them.
pub(super) struct Paths {
    pub(super) dfa: Dfa,
    /// For each state, a number for what is denied below a directory there.
    pub(super) below: Vec<u32>,
    pub(super) built_states: usize,
    /// States of the anchored and of the floating automaton.
    pub(super) superblocks: Vec<(SuperblockId, [u32; 2])>,
    pub(super) abstract_names: [u32; 2],
    pub(super) default: Word,
    pub(super) nameless: Word,
    pub(super) other_family: Word,
}

pub(super) fn compile(rules: &RuleSet, view: &View, limits: Limits) -> Result<Paths, TableError> {
    let said = Said::new(rules, view);
    let mut lowering = Lowering::new(&said);
    let mut roots: Vec<Vec<NodeId>> = Vec::new();
    let mut ids = Vec::new();
    for (id, names) in superblocks::named(view) {
        ids.push(id);
        roots.extend(match &names[..] {
            [name] => lowering.one_name(name),
            names => [lowering.many_names(names), Vec::new()],
        });
    }
    for id in superblocks::nameless(view) {
        ids.push(id);
        roots.extend([lowering.own_object(), Vec::new()]);
    }
    roots.extend([lowering.abstract_names(), Vec::new()]);

    let too_large = |stage, limit| TableError::TooLarge {
        limit,
        stage,
        costliest: costliest(rules),
    };
    let bounds = Bounds {
        cells: limits.building_cells,
        work: limits.building_cells,
    };
    let built = determinise(&lowering.nfa, &roots, |saying| said.judge(saying), bounds)
        .map_err(|_| too_large(Stage::Building, limits.building_cells))?;
    let dfa = minimise(&built);
    if dfa.words.len() * (dfa.width + ROW_HEAD_CELLS) > limits.cells {
        return Err(too_large(Stage::Installing, limits.cells));
    }
    let mut starts = dfa.starts.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    let superblocks = ids.into_iter().zip(starts.by_ref()).collect();
    let below = minimise::below(&dfa, &said.denied(&dfa.words));
    Ok(Paths {
        superblocks,
        below,
        abstract_names: starts.next().unwrap_or_default(),
        default: said.default,
        nameless: said.nameless(),
        other_family: said
            .every_peer
            .or_else(Word::of(rules.defaults.connect, Access::UNIX)),
        built_states: built.words.len() - 1,
        dfa,
    })
}

/// What rules say about names, in the sandbox's view.
struct Said<'a> {
    default: Word,
    /// What `*` says of every peer.
    every_peer: Word,
    paths: Vec<(Word, Vec<Component>)>,
    abstracts: Vec<(Word, &'a [Token])>,
}

impl<'a> Said<'a> {
    fn new(rules: &'a RuleSet, view: &View) -> Self {
        let mut said = Self {
            default: rules.defaults.word(),
            every_peer: Word::default(),
            paths: Vec::new(),
            abstracts: Vec::new(),
        };
        let hiding = rules.hiding();
        for rule in &rules.rules {
            said.rule(rule, rule.word(rule.says_within(&hiding)), view);
        }
        said.mount_points(view);
        said
    }

    /// Marks mount points, so that no directory above one can be moved: what is mounted would come to lie
    /// under another name.
    fn mount_points(&mut self, view: &View) {
        let word = Word {
            flags: Word::MOUNT_POINT,
            ..Word::NONE
        };
        for mount in view.mounts.iter().filter(|mount| mount.point != b"/") {
            self.paths.push((word, carry::of_path(&mount.point)));
        }
    }

    /// Of each word, what matters to who may do what there: what it denies, and where the default denies,
    /// what it permits. What is hidden stays as it is, as the other automaton may have more to say of it.
    fn denied(&self, words: &[Word]) -> Vec<Word> {
        let denied = |word: &Word| {
            let word = strictest(*word);
            Word {
                allow: (word.allow | word.audit) & self.default.deny,
                audit: 0,
                ..word
            }
        };
        words.iter().map(denied).collect()
    }

    fn rule(&mut self, rule: &'a Rule, word: Word, view: &View) {
        match &rule.subject {
            Subject::Exec(globs) | Subject::File { globs, .. } => self.globs(word, globs, view),
            Subject::Connect { peers, .. } => {
                if rule.subject.is_about_everyone() {
                    self.every_peer = self.every_peer.merge(word);
                }
                for peer in peers {
                    match peer {
                        Peer::Any | Peer::Ip(_) => {}
                        Peer::UnixPath(glob) => self.globs(word, std::slice::from_ref(glob), view),
                        Peer::UnixAbstract(glob) => {
                            let names = glob.alternatives.iter().map(|tokens| (word, &tokens[..]));
                            self.abstracts.extend(names);
                        }
                    }
                }
            }
            Subject::Bind { .. } | Subject::Socket(_) | Subject::Operation(_) => {}
        }
    }

    fn globs(&mut self, word: Word, globs: &[PathGlob], view: &View) {
        for alternative in globs.iter().flat_map(|glob| &glob.alternatives) {
            let names = carry::through_links(alternative, &view.links);
            self.paths
                .extend(names.into_iter().map(|name| (word, name)));
        }
    }

    /// The strictest verdict that a name could bring, for each kind of access. The default is among them,
    /// but for peers if a rule speaks about every one.
    fn nameless(&self) -> Word {
        let paths = self.paths.iter().map(|(word, _)| *word);
        let abstracts = self.abstracts.iter().map(|(word, _)| *word);
        let rules = paths.chain(abstracts).map(Word::settled);
        let rules = rules.fold(Word::default(), Word::merge);
        let word = strictest(rules.merge(self.every_peer.or_else(self.default)));
        Word { flags: 0, ..word }
    }

    /// What holds at and below a mount's root, whatever the path.
    fn named(&self) -> Word {
        Word {
            flags: Word::NAMED,
            ..self.every_peer
        }
    }

    /// The word of a state. With one name it is what the rules say; with several, what each name's rules and
    /// the default come to, and the strictest of that.
    fn judge(&self, said: &[Saying]) -> Word {
        let mut names: BTreeMap<u32, Word> = BTreeMap::new();
        for saying in said {
            let word = names.entry(saying.name).or_default();
            *word = word.merge(saying.word);
        }
        let words = names.into_iter().map(|(name, word)| match name {
            0 => word,
            _ => Word {
                flags: word.flags & !(Word::HIDDEN | Word::SAID),
                ..strictest(word.settled()).or_else(self.default)
            },
        });
        strictest(words.fold(Word::default(), Word::merge))
    }
}

/// The same verdicts with one bit for each kind, so that words which mean the same are the same.
const fn strictest(word: Word) -> Word {
    Word {
        audit: word.audit & !word.deny,
        allow: word.allow & !word.deny & !word.audit,
        ..word
    }
}

/// What a mount point leaves of the rules: for each that says something below it, its index in
/// [`Said::paths`] and the first component that is left.
type Rests = Vec<(usize, usize)>;

/// Makes patterns part of one nondeterministic automaton.
struct Lowering<'a> {
    said: &'a Said<'a>,
    nfa: Nfa,
    /// Nodes below a mount point, the anchored and the floating ones. Most mount points leave the same.
    below: HashMap<(u32, Rests), [Vec<NodeId>; 2]>,
}

impl<'a> Lowering<'a> {
    fn new(said: &'a Said<'a>) -> Self {
        Self {
            said,
            nfa: Nfa::default(),
            below: HashMap::new(),
        }
    }

    /// A superblock with one name: anchored and floating patterns apart.
    fn one_name(&mut self, name: &Name) -> [Vec<NodeId>; 2] {
        self.below(0, &name.point)
            .map(|nodes| self.behind(&name.root, nodes))
    }

    /// A superblock with several names. What they bring has to be weighed against each other where a state
    /// gets its word, so that all goes into one automaton.
    fn many_names(&mut self, names: &[Name]) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for (at, name) in names.iter().enumerate() {
            // Names of directories that lie apart never meet, so they may share a number, and with it
            // states. In their order a directory comes after those around it.
            let around = names[..at].iter().filter(|other| other.covers(name));
            let number = around.fold(1, |number: u32, _| number + 1);
            let below = self.below(number, &name.point);
            nodes.extend(self.behind(&name.root, below.concat()));
        }
        nodes
    }

    fn below(&mut self, number: u32, point: &[u8]) -> [Vec<NodeId>; 2] {
        let rests: Rests = (0..)
            .zip(&self.said.paths)
            .flat_map(|(at, (_, path))| {
                rests_below(path, point)
                    .into_iter()
                    .map(move |first| (at, first))
            })
            .collect();
        let key = (number, rests);
        if let Some(nodes) = self.below.get(&key) {
            return nodes.clone();
        }
        let [mut anchored, mut floating] = [Patterns::default(), Patterns::default()];
        anchored.add(self.said.named(), &[Atom::Deep]);
        for &(at, first) in &key.1 {
            let (word, path) = &self.said.paths[at];
            let rest = &path[first..];
            let side = if carry::floats(rest) {
                &mut floating
            } else {
                &mut anchored
            };
            side.add(*word, &carry::path_atoms(rest));
        }
        let nodes = [anchored, floating].map(|patterns| patterns.lower(number, &mut self.nfa));
        self.below.insert(key, nodes.clone());
        nodes
    }

    /// The same below the superblock's directory `root`.
    fn behind(&mut self, root: &[u8], nodes: Vec<NodeId>) -> Vec<NodeId> {
        nodes
            .into_iter()
            .map(|node| self.nfa.behind(root, node))
            .collect()
    }

    fn abstract_names(&mut self) -> Vec<NodeId> {
        let mut patterns = Patterns::default();
        patterns.add(self.said.named(), &[Atom::Star(ByteSet::ANY)]);
        for (word, tokens) in &self.said.abstracts {
            patterns.add(*word, &carry::abstract_atoms(tokens));
        }
        patterns.lower(0, &mut self.nfa)
    }

    /// One of a task's own kernel objects (pipes, sockets, namespaces, its memory as a file): their use is
    /// no matter of names, but running one as a program is.
    fn own_object(&mut self) -> Vec<NodeId> {
        let mut patterns = Patterns::default();
        let word = Word::of(Verdict::Allow, Access::FILE);
        patterns.add(word, &[Atom::Star(ByteSet::ANY)]);
        patterns.lower(0, &mut self.nfa)
    }
}

/// Patterns put together by what they say.
#[derive(Default)]
struct Patterns(BTreeMap<[u16; 4], (Word, Trie)>);

impl Patterns {
    fn add(&mut self, word: Word, atoms: &[Atom]) {
        let key = [word.allow, word.audit, word.deny, word.flags];
        let (_, trie) = self.0.entry(key).or_insert((word, Trie::default()));
        trie.insert(atoms);
    }

    fn lower(self, name: u32, nfa: &mut Nfa) -> Vec<NodeId> {
        self.0
            .into_values()
            .filter_map(|(word, trie)| trie.lower(nfa, Saying { name, word }))
            .collect()
    }
}

/// The rules that cost most: those with most wildcards before the end of a pattern, then the longest.
fn costliest(rules: &RuleSet) -> Vec<RuleId> {
    let mut costs: Vec<((usize, usize), &RuleId)> = rules
        .rules
        .iter()
        .map(|rule| (cost(rule), &rule.id))
        .filter(|(cost, _)| *cost > (0, 0))
        .collect();
    costs.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
    costs
        .into_iter()
        .take(3)
        .map(|(_, id)| id.clone())
        .collect()
}

/// Wildcards, and pieces in all, of what a rule's globs stand for.
fn cost(rule: &Rule) -> (usize, usize) {
    let globs: Vec<&PathGlob> = match &rule.subject {
        Subject::Exec(globs) | Subject::File { globs, .. } => globs.iter().collect(),
        Subject::Connect { peers, .. } => peers
            .iter()
            .filter_map(|peer| match peer {
                Peer::UnixPath(glob) => Some(glob),
                Peer::Any | Peer::Ip(_) | Peer::UnixAbstract(_) => None,
            })
            .collect(),
        Subject::Bind { .. } | Subject::Socket(_) | Subject::Operation(_) => Vec::new(),
    };
    let alternatives = globs.iter().flat_map(|glob| &glob.alternatives);
    alternatives.fold((0, 0), |(wildcards, pieces), alternative| {
        let atoms = carry::path_atoms(alternative);
        let inner = &atoms[..atoms.len().saturating_sub(1)];
        let wild = |atom: &&Atom| matches!(atom, Atom::Star(_) | Atom::Deep);
        (
            wildcards + inner.iter().filter(wild).count(),
            pieces + atoms.len(),
        )
    })
}
