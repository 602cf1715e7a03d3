//! Ports: a verdict for each of 65,536, as the fewest prefixes.

use opensafe_common::verdict::Verdict;

/// Ports that share their leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PortPrefix {
    pub(super) port: u16,
    pub(super) bits: u8,
}

/// For every port a verdict: where each run of equal ones begins. The first begins at 0, neighbours differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Runs(Vec<(u16, Verdict)>);

impl Runs {
    /// What holds when each of `ranges` (inclusive) has a verdict, the strictest counts, and `default` holds
    /// for ports in none of them.
    pub(super) fn new(ranges: &[(u16, u16, Verdict)], default: Verdict) -> Self {
        let mut begins: Vec<u16> = std::iter::once(0)
            .chain(ranges.iter().map(|(first, _, _)| *first))
            .chain(ranges.iter().filter_map(|(_, last, _)| last.checked_add(1)))
            .collect();
        begins.sort_unstable();
        begins.dedup();
        let mut runs: Vec<(u16, Verdict)> = Vec::new();
        for begin in begins {
            let verdict = ranges
                .iter()
                .filter(|(first, last, _)| (*first..=*last).contains(&begin))
                .map(|(_, _, verdict)| *verdict)
                .max()
                .unwrap_or(default);
            if runs.last().is_none_or(|(_, before)| *before != verdict) {
                runs.push((begin, verdict));
            }
        }
        Self(runs)
    }

    /// The fewest prefixes of which the longest match has the verdict of every port (the ORTC construction:
    /// Draves, King, Venkatachary, Zill, "Constructing optimal IP routing tables", 1999).
    pub(super) fn prefixes(&self) -> Vec<(PortPrefix, Verdict)> {
        let mut prefixes = Vec::new();
        self.tree(0, 0).emit(0, 0, None, &mut prefixes);
        prefixes.sort_unstable();
        prefixes
    }

    fn tree(&self, port: u16, bits: u8) -> Tree {
        let last = port | u16::MAX.checked_shr(bits.into()).unwrap_or(0);
        let run = self.0.partition_point(|(begin, _)| *begin <= port) - 1;
        if self.0.get(run + 1).is_none_or(|(begin, _)| *begin > last) {
            return Tree {
                choices: 1 << self.0[run].1 as u8,
                halves: None,
            };
        }
        let halves = [port, port | 1 << (15 - bits)].map(|port| self.tree(port, bits + 1));
        let common = halves[0].choices & halves[1].choices;
        let choices = if common == 0 {
            halves[0].choices | halves[1].choices
        } else {
            common
        };
        Tree {
            choices,
            halves: Some(Box::new(halves)),
        }
    }
}

/// A prefix that is cut in halves until its ports agree.
struct Tree {
    /// Verdicts that its entry may have at no extra cost, a bit each.
    choices: u8,
    halves: Option<Box<[Tree; 2]>>,
}

impl Tree {
    fn emit(
        &self,
        port: u16,
        bits: u8,
        above: Option<Verdict>,
        prefixes: &mut Vec<(PortPrefix, Verdict)>,
    ) {
        let may_be = |verdict: Verdict| self.choices >> verdict as u8 & 1 == 1;
        let verdict = match above {
            Some(above) if may_be(above) => above,
            _ => {
                // The strictest that costs nothing: a look-up gone wrong then fails closed.
                let choice = [Verdict::Deny, Verdict::Audit]
                    .into_iter()
                    .find(|verdict| may_be(*verdict))
                    .unwrap_or(Verdict::Allow);
                prefixes.push((PortPrefix { port, bits }, choice));
                choice
            }
        };
        if let Some(halves) = &self.halves {
            halves[0].emit(port, bits + 1, Some(verdict), prefixes);
            halves[1].emit(port | 1 << (15 - bits), bits + 1, Some(verdict), prefixes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(prefixes: &[(PortPrefix, Verdict)], port: u16) -> Option<Verdict> {
        prefixes
            .iter()
            .filter(|(prefix, _)| {
                let mask = !u16::MAX.checked_shr(prefix.bits.into()).unwrap_or(0);
                port & mask == prefix.port
            })
            .max_by_key(|(prefix, _)| prefix.bits)
            .map(|(_, verdict)| *verdict)
    }

    #[test]
    fn one_open_port_costs_two_entries() {
        let runs = Runs::new(&[(443, 443, Verdict::Allow)], Verdict::Deny);
        assert_eq!(
            runs.prefixes(),
            [
                (PortPrefix { port: 0, bits: 0 }, Verdict::Deny),
                (
                    PortPrefix {
                        port: 443,
                        bits: 16
                    },
                    Verdict::Allow
                ),
            ]
        );
    }

    #[test]
    fn a_rule_for_every_port_costs_one_entry() {
        let runs = Runs::new(&[(0, u16::MAX, Verdict::Audit)], Verdict::Deny);
        assert_eq!(
            runs.prefixes(),
            [(PortPrefix { port: 0, bits: 0 }, Verdict::Audit)]
        );
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Allow),
            Just(Verdict::Audit),
            Just(Verdict::Deny)
        ]
    }

    proptest! {
        #[test]
        fn the_longest_prefix_has_the_strictest_verdict_of_the_ranges(
            ranges in prop::collection::vec((any::<u16>(), any::<u16>(), verdict()), 0..6),
            default in verdict(),
            extra in any::<u16>(),
        ) {
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|(a, b, verdict)| (a.min(b), a.max(b), verdict))
                .collect();
            let prefixes = Runs::new(&ranges, default).prefixes();
            let edges = ranges.iter().flat_map(|(first, last, _)| {
                [*first, *last, first.saturating_sub(1), last.saturating_add(1)]
            });
            for port in edges.chain([0, u16::MAX, extra]) {
                let expected = ranges
                    .iter()
                    .filter(|(first, last, _)| *first <= port && port <= *last)
                    .map(|(_, _, verdict)| *verdict)
                    .max()
                    .unwrap_or(default);
                prop_assert_eq!(lookup(&prefixes, port), Some(expected));
            }
        }
    }
}
