// SPDX-License-Identifier: GPL-2.0-only
//! Freezing by turns: when in each period a VM runs.
//!
//! VMs on the same CPUs have their turns one after the other round the period, the first after the last: so many run at
//! any time as the sum of their fractions says, rounded up or down. Were they thawed together, they would compete as if
//! nobody was frozen, and leave their CPUs idle afterwards.
use crate::cpuset::CpuSet;
use std::collections::BTreeMap;

/// Freezing repeats after so long, ns.
pub const PERIOD_NS: u64 = 100_000_000;

/// When a VM is not frozen: from `from_ns` of each period on, below it, for `ns`, which may lead into the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub from_ns: u64,
    pub ns: u64,
}

impl Turn {
    /// Does the VM run at this time of the clock by which periods begin at its multiples of the period?
    pub fn runs(&self, at_ns: u64) -> bool {
        self.since(at_ns) < self.ns
    }

    /// When the VM is frozen or thawed next, after this time.
    pub fn next(&self, at_ns: u64) -> u64 {
        let since = self.since(at_ns);
        let until = if since < self.ns { self.ns } else { PERIOD_NS };
        at_ns + until - since
    }

    /// Time since the VM was thawed last.
    fn since(&self, at_ns: u64) -> u64 {
        (at_ns % PERIOD_NS + PERIOD_NS - self.from_ns) % PERIOD_NS
    }
}

/// The turns of VMs, each with its CPUs (none: all of the host) and the part of the time in which it runs (none: it is
/// never frozen, and has no turn).
pub fn turns<'a>(
    vms: impl IntoIterator<Item = (Option<&'a CpuSet>, Option<f64>)>,
) -> Vec<Option<Turn>> {
    let mut last = BTreeMap::new();
    let turn = |(cpus, fraction): (Option<&'a CpuSet>, Option<f64>)| {
        let ns = ((fraction? * PERIOD_NS as f64).round() as u64).clamp(1, PERIOD_NS);
        let next = last.entry(cpus).or_insert(0);
        let from_ns = *next;
        *next = (from_ns + ns) % PERIOD_NS;
        Some(Turn { from_ns, ns })
    };
    vms.into_iter().map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn turns_follow_each_other_on_the_same_cpus() {
        let (zero, one) = (CpuSet::of([0]), CpuSet::of([1]));
        let (zero, one) = (zero.as_ref(), one.as_ref());
        let turns = turns([
            (zero, Some(0.6)),
            (one, Some(0.25)),
            (zero, None),
            (zero, Some(0.7)),
            (one, Some(0.25)),
            (zero, Some(0.2)),
        ]);
        let of = |from: u64, ms: u64| {
            let (from_ns, ns) = (from * MS, ms * MS);
            Some(Turn { from_ns, ns })
        };
        assert_eq!(
            turns,
            [
                of(0, 60),
                of(0, 25),
                None,
                of(60, 70),
                of(25, 25),
                of(30, 20)
            ]
        );
        // 1.5 of the time on CPU 0: one or two run.
        for ms in 0..300 {
            let run = |i: usize| turns[i].is_some_and(|t| t.runs(ms * MS));
            let n = [0, 3, 5].into_iter().filter(|i| run(*i)).count();
            assert!((1..=2).contains(&n), "{ms} ms: {n}");
        }
    }

    #[test]
    fn a_turn_begins_and_ends() {
        // Over the end of the period.
        let turn = Turn {
            from_ns: 60 * MS,
            ns: 70 * MS,
        };
        let runs: Vec<u64> = (0..10)
            .map(|i| i * 10)
            .filter(|ms| turn.runs(ms * MS))
            .collect();
        assert_eq!(runs, [0, 10, 20, 60, 70, 80, 90]);
        let next: Vec<u64> = [0, 29, 30, 59, 60, 100, 130, 200]
            .map(|ms| turn.next(ms * MS) / MS)
            .to_vec();
        assert_eq!(next, [30, 30, 60, 60, 130, 130, 160, 230]);
        let whole = Turn {
            from_ns: 0,
            ns: PERIOD_NS,
        };
        assert!(whole.runs(99 * MS) && whole.runs(100 * MS));
    }
}
