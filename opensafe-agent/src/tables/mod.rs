//! From rules to what the kernel reads: [`compile`] is pure, and all it makes is [`Tables`].
//!
//! ```text
//! globs ─carry→ patterns per superblock ─pattern→ one NFA ─dfa→ states ─minimise→ cells
//! peers ─nets→ prefixes and classes ─ports→ verdicts per port
//! ```
//! The number of rules makes tables larger and never a look-up slower. A rule that cannot be lowered is an
//! error, never left out.

mod carry;
mod dfa;
mod minimise;
mod nets;
mod paths;
mod pattern;
mod ports;
mod superblocks;
#[cfg(test)]
mod tests;

use opensafe_common::tables::{DEAD, FAMILIES, ROW_HEAD_CELLS, Start};
use opensafe_common::verdict::{Verdict, Word};

use crate::rules::{RuleId, RuleSet};
use crate::view::View;

pub use superblocks::{OWN_TMPFS, SuperblockId, pseudo_type};

/// What the kernel needs for one policy in one view, whichever policy slot and place in the arena it gets.
///
/// `opensafe_common::tables` says what the kernel makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Rows of both automata. Cell 0 is padding, so that a live state is never [`DEAD`]; rows of
    /// [`Tables::stride`] cells follow. States are positions in here until [`Tables::relocate`].
    pub cells: Vec<u32>,
    /// Byte → class, for both automata.
    pub classes: [u8; 256],
    /// Cells in a row: [`ROW_HEAD_CELLS`] and one transition for each class.
    pub stride: usize,
    /// Where to start for each superblock that has a name in the view, or needs none. For every other,
    /// [`Tables::nameless`] holds.
    pub superblocks: Vec<(SuperblockId, Start)>,
    /// Where to start for abstract Unix names.
    pub abstract_names: Start,
    /// What holds for an object at a [`Word::NAMED`] state where no rule speaks.
    pub default: Word,
    /// What holds for every other object where no rule speaks: the strictest that any name could bring.
    pub nameless: Word,
    /// What holds for a peer that is neither an IP address nor a Unix socket; its `UNIX` kind.
    pub other_family: Word,
    /// What holds for each operation, by its bit.
    pub operations: Word,
    /// What holds for making sockets, as `opensafe_common::tables::Policy` has it.
    pub sockets: [u8; FAMILIES],
    /// Address → class; always with an entry of 0 bits.
    pub nets: Vec<NetEntry>,
    /// Class, protocol, port → verdict; for every class and protocol an entry of 0 bits.
    pub ports: Vec<PortEntry>,
    /// How large it came out.
    pub stats: Stats,
}

/// Addresses that share their leading bits, and their class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetEntry {
    /// IPv6, big-endian; IPv4 in its mapped form.
    pub address: [u8; 16],
    /// Leading bits that count, 0 to 128.
    pub bits: u8,
    /// Their class.
    pub class: u32,
}

/// Ports of a class and protocol that share their leading bits, and their verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortEntry {
    /// Class of the address.
    pub class: u32,
    /// `opensafe_common::tables::transport` number, with `BIND` added for binding.
    pub transport: u16,
    /// The port.
    pub port: u16,
    /// Leading bits of the port that count, 0 to 16.
    pub bits: u8,
    /// The verdict.
    pub verdict: Verdict,
}

/// Sizes of [`Tables`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// States before equivalent ones were merged.
    pub built_states: usize,
    /// States, without the dead one.
    pub states: usize,
    /// Classes of bytes.
    pub classes: usize,
    /// Cells (of four bytes).
    pub cells: usize,
    /// Classes of addresses.
    pub address_classes: usize,
}

/// How large tables may become. A policy over a limit is an error that names its costliest rules.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Cells that may be installed.
    pub cells: usize,
    /// Cells while building, before equivalent states are merged; bounds the time too.
    pub building_cells: usize,
}

impl Default for Limits {
    /// 4 MiB installed; some 200 MB and a few seconds while building.
    fn default() -> Self {
        Self {
            cells: 1 << 20,
            building_cells: 1 << 23,
        }
    }
}

/// Why there are no tables.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The automata are over a limit.
    #[error(
        "the rules' paths need more than {limit} cells {}\n\
         the costliest are {}; wildcards before the end of a path cost most: begin it with a \
         directory, or put several into one rule",
        .stage.explain(), names(.costliest)
    )]
    TooLarge {
        /// The limit.
        limit: usize,
        /// Which limit it is.
        stage: Stage,
        /// Rules with most such wildcards, the worst first.
        costliest: Vec<RuleId>,
    },
}

/// When a limit was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// While the automata were built.
    Building,
    /// When they were done.
    Installing,
}

impl Stage {
    const fn explain(self) -> &'static str {
        match self {
            Self::Building => "while they are compiled",
            Self::Installing => "in the kernel",
        }
    }
}

fn names(rules: &[RuleId]) -> String {
    let quoted: Vec<String> = rules.iter().map(|id| format!("\"{}\"", id.0)).collect();
    quoted.join(", ")
}

/// Compiles a sandbox's rules for its view. Deterministic: equal rules in an equal view give equal tables.
///
/// # Errors
/// If the tables would be over one of the limits.
pub fn compile(rules: &RuleSet, view: &View, limits: Limits) -> Result<Tables, TableError> {
    let paths::Paths {
        dfa,
        below,
        built_states,
        superblocks,
        abstract_names,
        default,
        nameless,
        other_family,
    } = paths::compile(rules, view, limits)?;
    let (nets, ports) = nets::compile(rules);

    let stride = ROW_HEAD_CELLS + dfa.width;
    // State 0 is dead and has no row; the others' rows begin behind the padding.
    let position = |state: u32| match state {
        0 => DEAD,
        live => u32::try_from(1 + (live as usize - 1) * stride).unwrap_or(DEAD),
    };
    let mut cells = vec![0];
    let rows = dfa.next.chunks_exact(dfa.width);
    for ((word, below), row) in dfa.words.iter().zip(below).zip(rows).skip(1) {
        cells.extend(word.to_cells());
        cells.push(below);
        cells.extend(row.iter().map(|state| position(*state)));
    }
    let start = |[anchored, floating]: [u32; 2]| Start {
        anchored: position(anchored),
        floating: position(floating),
    };
    Ok(Tables {
        stats: Stats {
            built_states,
            states: dfa.words.len() - 1,
            classes: dfa.width,
            cells: cells.len(),
            address_classes: ports.last().map_or(0, |entry| entry.class as usize + 1),
        },
        cells,
        classes: dfa.classes,
        stride,
        superblocks: superblocks
            .into_iter()
            .map(|(id, states)| (id, start(states)))
            .collect(),
        abstract_names: start(abstract_names),
        default,
        nameless,
        other_family,
        operations: rules.operations(),
        sockets: rules.sockets(),
        nets,
        ports,
    })
}

impl Tables {
    /// The cells as they have to be at `base`, the arena's index for `cells[0]`: every transition that does
    /// not lead to [`DEAD`] is moved, verdicts are not.
    #[must_use]
    pub fn relocate(&self, base: u32) -> Vec<u32> {
        let mut cells = self.cells.clone();
        for row in cells[1..].chunks_exact_mut(self.stride) {
            for transition in &mut row[ROW_HEAD_CELLS..] {
                *transition = moved(*transition, base);
            }
        }
        cells
    }

    /// A start as it has to be for cells at `base`.
    #[must_use]
    pub const fn relocate_start(start: Start, base: u32) -> Start {
        Start {
            anchored: moved(start.anchored, base),
            floating: moved(start.floating, base),
        }
    }
}

const fn moved(state: u32, base: u32) -> u32 {
    if state == DEAD { DEAD } else { state + base }
}
