//! The look-ups as the kernel makes them, over an arena and maps in which another policy may lie before.

use opensafe_common::tables::{BELOW_CELL, DEAD, DEAD_CELLS, ROW_HEAD_CELLS, Start};
use opensafe_common::verdict::{Verdict, Word};

use crate::tables::{SuperblockId, Tables};

/// One policy installed behind `before` cells of others.
pub(super) struct Kernel<'a> {
    arena: Vec<u32>,
    base: u32,
    tables: &'a Tables,
}

impl<'a> Kernel<'a> {
    pub(super) fn install(tables: &'a Tables, before: usize) -> Self {
        let mut arena = vec![0; DEAD_CELLS];
        arena.extend(std::iter::repeat_n(u32::MAX, before));
        let base = u32::try_from(arena.len()).unwrap();
        arena.extend(tables.relocate(base));
        Self {
            arena,
            base,
            tables,
        }
    }

    /// What holds for the object at `path` in a superblock.
    pub(super) fn path(&self, id: SuperblockId, path: &[u8]) -> Word {
        let entry = self
            .tables
            .superblocks
            .iter()
            .find(|(other, _)| *other == id);
        match entry {
            Some((_, start)) => self.walk(*start, path),
            None => Word::NONE.or_else(self.tables.nameless),
        }
    }

    pub(super) fn abstract_name(&self, name: &[u8]) -> Word {
        self.walk(self.tables.abstract_names, name)
    }

    /// The numbers, in both automata, for what is denied below the directory at `path` in a superblock
    /// that has a name.
    pub(super) fn below(&self, id: SuperblockId, path: &[u8]) -> Option<[u32; 2]> {
        let mut entries = self.tables.superblocks.iter();
        let (_, start) = entries.find(|(other, _)| *other == id)?;
        let cell = |state: u32| self.arena[(state + BELOW_CELL) as usize];
        Some(self.states(*start, path).map(cell))
    }

    fn states(&self, start: Start, bytes: &[u8]) -> [u32; 2] {
        let start = Tables::relocate_start(start, self.base);
        [start.anchored, start.floating].map(|start| {
            bytes.iter().fold(start, |state, byte| {
                let class = self.tables.classes[usize::from(*byte)];
                let next = self.arena[state as usize + ROW_HEAD_CELLS + usize::from(class)];
                assert!(next == DEAD || next >= self.base);
                next
            })
        })
    }

    fn walk(&self, start: Start, bytes: &[u8]) -> Word {
        let words = self.states(start, bytes).map(|state| {
            let row = &self.arena[state as usize..];
            Word::from_cells(row[0], row[1])
        });
        let word = words[0].merge(words[1]).settled();
        let fallback = if word.flags & Word::NAMED == 0 {
            self.tables.nameless
        } else {
            self.tables.default
        };
        word.or_else(fallback)
    }

    pub(super) fn peer(&self, address: u128, transport: u16, port: u16) -> Verdict {
        let net = self
            .tables
            .nets
            .iter()
            .filter(|net| {
                let differs = u128::from_be_bytes(net.address) ^ address;
                differs.leading_zeros() >= u32::from(net.bits)
            })
            .max_by_key(|net| net.bits)
            .unwrap();
        self.tables
            .ports
            .iter()
            .filter(|entry| entry.class == net.class && entry.transport == transport)
            .filter(|entry| (entry.port ^ port).leading_zeros() >= u32::from(entry.bits))
            .max_by_key(|entry| entry.bits)
            .unwrap()
            .verdict
    }
}
