//! Path rules in a view: which patterns belong to which superblock, and what a state says.

use std::collections::BTreeMap;

use opensafe_common::verdict::{Access, Verdict, Word};

use crate::rules::glob::{Component, PathGlob, Token};
use crate::rules::{Peer, Rule, RuleId, RuleSet, Subject};
use crate::view::View;

use super::carry;
use super::dfa::{Bounds, Dfa, determinise};
use super::minimise::minimise;
use super::pattern::{Atom, ByteSet, Nfa, NodeId, Saying, Trie};
use super::superblocks::{self, Name, SuperblockId};
use super::{Limits, Stage, TableError};

/// The automata, and everything that is said beside them.
pub(super) struct Paths {
    pub(super) dfa: Dfa,
    pub(super) built_states: usize,
    /// States of the anchored and of the floating automaton.
    pub(super) superblocks: Vec<(SuperblockId, [u32; 2])>,
    pub(super) abstract_names: [u32; 2],
    pub(super) default: Word,
    pub(super) nameless: Word,
    pub(super) other_family: Word,
}

pub(super) fn compile(rules: &RuleSet, view: &View, limits: Limits) -> Result<Paths, TableError> {
    let sayings = Said::new(rules, view);
    let mut nfa = Nfa::default();
    let mut roots: Vec<Vec<NodeId>> = Vec::new();
    let mut ids = Vec::new();
    for (id, names) in superblocks::named(view) {
        ids.push(id);
        let [anchored, floating] = match &names[..] {
            [name] => sayings.one_name(name),
            names => [sayings.many_names(names), Patterns::default()],
        };
        roots.push(anchored.lower(&mut nfa));
        roots.push(floating.lower(&mut nfa));
    }
    for id in superblocks::nameless(view) {
        ids.push(id);
        roots.push(own_objects().lower(&mut nfa));
        roots.push(Vec::new());
    }
    roots.push(sayings.abstract_names().lower(&mut nfa));
    roots.push(Vec::new());

    let too_large = |stage, limit| TableError::TooLarge {
        limit,
        stage,
        costliest: costliest(rules),
    };
    let bounds = Bounds {
        cells: limits.building_cells,
        work: limits.building_cells,
    };
    let built = determinise(&nfa, &roots, |said| sayings.judge(said), bounds)
        .map_err(|_| too_large(Stage::Building, limits.building_cells))?;
    let dfa = minimise(&built);
    if dfa.words.len() * (dfa.width + 2) > limits.cells {
        return Err(too_large(Stage::Installing, limits.cells));
    }
    let mut starts = dfa.starts.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    let superblocks = ids.into_iter().zip(starts.by_ref()).collect();
    Ok(Paths {
        superblocks,
        abstract_names: starts.next().unwrap_or_default(),
        default: sayings.default,
        nameless: sayings.nameless(),
        other_family: sayings
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
        let defaults = rules.defaults;
        let mut said = Self {
            default: Word::of(defaults.file, Access::FILE)
                .merge(Word::of(defaults.exec, Access::EXEC))
                .merge(Word::of(defaults.connect, Access::UNIX)),
            every_peer: Word::default(),
            paths: Vec::new(),
            abstracts: Vec::new(),
        };
        for rule in &rules.rules {
            said.rule(rule, view);
        }
        said
    }

    fn rule(&mut self, rule: &'a Rule, view: &View) {
        match &rule.subject {
            Subject::Exec(globs) => self.globs(Word::of(rule.verdict, Access::EXEC), globs, view),
            Subject::File { globs, access } => {
                self.globs(Word::of(rule.verdict, *access), globs, view);
            }
            Subject::Connect { peers, .. } => {
                let word = Word::of(rule.verdict, Access::UNIX);
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
        let rules = paths.chain(abstracts).fold(Word::default(), Word::merge);
        strictest(rules.merge(self.every_peer.or_else(self.default)))
    }

    /// What holds at and below a mount's root, whatever the path.
    fn named(&self) -> Word {
        Word {
            flags: Word::NAMED,
            ..self.every_peer
        }
    }

    /// Patterns of a superblock with one name, anchored and floating ones apart.
    fn one_name(&self, name: &Name) -> [Patterns; 2] {
        let [mut anchored, mut floating] = [Patterns::default(), Patterns::default()];
        anchored.everything(&name.root, 0, self.named());
        for (word, rest) in self.below(name) {
            let side = if carry::floats(rest) {
                &mut floating
            } else {
                &mut anchored
            };
            side.add(0, word, &carry::path_atoms(&name.root, rest));
        }
        [anchored, floating]
    }

    /// Patterns of a superblock with several names. They have to be weighed against each other where the
    /// state is made, so that all go into one automaton.
    fn many_names(&self, names: &[Name]) -> Patterns {
        let mut patterns = Patterns::default();
        for (number, name) in (1..).zip(names) {
            patterns.everything(&name.root, number, self.named());
            for (word, rest) in self.below(name) {
                patterns.add(number, word, &carry::path_atoms(&name.root, rest));
            }
        }
        patterns
    }

    fn below(&self, name: &Name) -> impl Iterator<Item = (Word, &[Component])> {
        self.paths.iter().flat_map(|(word, alternative)| {
            let rests = carry::below(alternative, &name.point);
            rests.into_iter().map(|rest| (*word, rest))
        })
    }

    fn abstract_names(&self) -> Patterns {
        let mut patterns = Patterns::default();
        patterns.add(0, self.named(), &[Atom::Star(ByteSet::ANY)]);
        for (word, tokens) in &self.abstracts {
            patterns.add(0, *word, &carry::abstract_atoms(tokens));
        }
        patterns
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
            _ => strictest(word).or_else(self.default),
        });
        strictest(words.fold(Word::default(), Word::merge))
    }
}

/// A task's own kernel objects (pipes, sockets, namespaces, its memory as a file): their use is no matter of
/// names, but running one as a program is.
fn own_objects() -> Patterns {
    let mut patterns = Patterns::default();
    patterns.everything(b"", 0, Word::of(Verdict::Allow, Access::FILE));
    patterns
}

/// The same verdicts with one bit for each kind, so that words which mean the same are the same.
const fn strictest(word: Word) -> Word {
    Word {
        audit: word.audit & !word.deny,
        allow: word.allow & !word.deny & !word.audit,
        ..word
    }
}

/// Patterns for one start, put together by what they say.
#[derive(Default)]
struct Patterns(BTreeMap<(u32, [u16; 4]), Trie>);

impl Patterns {
    fn add(&mut self, name: u32, word: Word, atoms: &[Atom]) {
        let key = (name, [word.allow, word.audit, word.deny, word.flags]);
        self.0.entry(key).or_default().insert(atoms);
    }

    /// The directory `root`, and all below it.
    fn everything(&mut self, root: &[u8], name: u32, word: Word) {
        // At a superblock's root this is any string at all, which ends in a single state.
        let mut atoms = carry::root_atoms(root);
        atoms.push(match atoms.is_empty() {
            true => Atom::Star(ByteSet::ANY),
            false => Atom::Deep,
        });
        self.add(name, word, &atoms);
    }

    fn lower(self, nfa: &mut Nfa) -> Vec<NodeId> {
        self.0
            .into_iter()
            .filter_map(|((name, [allow, audit, deny, flags]), trie)| {
                let word = Word {
                    allow,
                    audit,
                    deny,
                    flags,
                };
                trie.lower(nfa, Saying { name, word })
            })
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
    };
    let alternatives = globs.iter().flat_map(|glob| &glob.alternatives);
    alternatives.fold((0, 0), |(wildcards, pieces), alternative| {
        let atoms = carry::path_atoms(b"", alternative);
        let inner = &atoms[..atoms.len().saturating_sub(1)];
        let wild = |atom: &&Atom| matches!(atom, Atom::Star(_) | Atom::Deep);
        (
            wildcards + inner.iter().filter(wild).count(),
            pieces + atoms.len(),
        )
    })
}
