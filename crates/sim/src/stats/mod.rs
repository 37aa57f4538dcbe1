// SPDX-License-Identifier: GPL-2.0-only
//! What is counted while a machine runs: per VM, and for the host's own threads. No allocation after
//! the VMs are known.
pub mod on_kind;
pub mod recent;
pub mod unused;

use crate::machine::{Dense, Distance};
use crate::words::{CpuId, Nanos, VmId};
use berth_results::blame::Blame;
use hdrhistogram::Histogram;
use on_kind::OnKind;
use std::collections::BTreeMap;
use unused::Unused;

/// More VMs than this share their group's histograms (which are some tens of KiB each).
const OWN_HISTOGRAMS: usize = 64;

/// Longest time a histogram tells from longer ones: 1 hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Counters of one VM (or of the host's threads).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Time on CPUs, ns.
    pub ran_ns: u64,
    /// Useful work done, ns (costs excluded).
    pub work_ns: u64,
    /// Time in run queues, ns: the part of each stay that lies in the measured window. And stays that ended there.
    pub waited_ns: u64,
    pub waits: u64,
    pub migrations: u64,
    /// Longest stay in a run queue that ended, ns.
    pub longest_ns: u64,
    /// Time in which threads would have run or stood in run queues if their VM had not been frozen, ns: as far as it
    /// lies in the measured window.
    pub frozen_ns: u64,
}

/// Counts of times, logarithmic with 128 steps per power of two (0.8 %): one addition per time. Read as an
/// HDR histogram.
#[derive(Clone, Debug)]
pub struct Times {
    counts: Box<[u64]>,
}

/// Steps per power of two, as a power of two.
const STEPS: u32 = 7;

impl Default for Times {
    fn default() -> Self {
        Times {
            counts: vec![0; Times::bucket(LONGEST) + 1].into(),
        }
    }
}

impl Times {
    #[inline]
    fn bucket(ns: u64) -> usize {
        let shift = (63 - (ns | 1 << STEPS).leading_zeros()) - STEPS;
        ((shift as usize) << STEPS) + (ns >> shift) as usize
    }

    /// Middle of a bucket.
    fn value(bucket: usize) -> u64 {
        let shift = (bucket >> STEPS).saturating_sub(1) as u32;
        let mantissa = (bucket - ((shift as usize) << STEPS)) as u64;
        (mantissa << shift) + ((1u64 << shift) >> 1)
    }

    #[inline]
    pub fn record(&mut self, ns: Nanos) {
        self.counts[Times::bucket(ns.min(LONGEST))] += 1;
    }

    pub fn reset(&mut self) {
        self.counts.fill(0);
    }

    /// Add everything to an HDR histogram made by [`bounds`].
    pub fn add_to(&self, h: &mut Histogram<u64>) {
        for (i, n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            h.saturating_record_n(Times::value(i), *n);
        }
    }
}

/// An empty HDR histogram for times.
pub fn bounds() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds and digits are constants")
}

#[derive(Clone, Debug, Default)]
pub struct Pair {
    pub wakeup: Times,
    pub run_delay: Times,
}

#[derive(Debug, Default)]
pub struct Stats {
    /// Per VM, then one entry for everything else.
    pub vms: Dense<Counters>,
    /// Histogram of each entry of `vms`, and its group (the host's threads: the number after the last).
    pair_of: Vec<u32>,
    group_of: Vec<u32>,
    pub pairs: Vec<Pair>,
    /// Who waited for whom; `None`: not kept.
    pub blame: Option<Box<Blame>>,
    /// Changes of CPU of all threads: to a sibling of the core, inside the last-level cache, to another one of the
    /// package, to another package of the node, to another node.
    pub moves: [u64; 5],
    /// By kind of core; `None`: all are alike.
    pub on_kind: Option<Box<OnKind>>,
    pub unused: Unused,
    /// Waits are on account up to here.
    pub settled_at: Nanos,
}

impl Stats {
    /// `groups[vm]` is the VM's group number.
    pub fn new(groups: &[u32], cpus: u32) -> Self {
        let n = groups.len();
        let nr_groups = groups.iter().max().map_or(0, |m| m + 1);
        let mut pair_of: Vec<u32> = if n <= OWN_HISTOGRAMS {
            (0..n as u32).collect()
        } else {
            groups.to_vec()
        };
        let own = if n <= OWN_HISTOGRAMS {
            n as u32
        } else {
            nr_groups
        };
        pair_of.push(own);
        let group_of = groups.iter().copied().chain([nr_groups]).collect();
        Stats {
            vms: vec![Counters::default(); n + 1].into(),
            pair_of,
            group_of,
            pairs: vec![Pair::default(); own as usize + 1],
            blame: Some(Blame::new(groups, cpus))
                .filter(|b| !b.is_off())
                .map(Box::new),
            moves: [0; 5],
            on_kind: None,
            unused: Unused::new(cpus),
            settled_at: 0,
        }
    }

    /// Of a guest with so many CPUs: one entry, no histograms.
    pub fn small(cpus: u32) -> Self {
        Stats {
            vms: vec![Counters::default()].into(),
            pair_of: Vec::new(),
            group_of: vec![0],
            pairs: Vec::new(),
            blame: None,
            moves: [0; 5],
            on_kind: None,
            unused: Unused::new(cpus),
            settled_at: 0,
        }
    }

    /// Entry of a VM's threads, or of the host's own.
    pub fn index(&self, vm: Option<VmId>) -> u32 {
        let host = self.vms.len().saturating_sub(1) as u32;
        vm.filter(|v| *v < host).unwrap_or(host)
    }

    /// Has this VM histograms of its own?
    pub fn own_histograms(&self) -> bool {
        self.vms.len() <= OWN_HISTOGRAMS + 1
    }

    /// Index of the histograms of an entry.
    pub fn pair_index(&self, entry: u32) -> u32 {
        self.pair_of[entry as usize]
    }

    /// Group of an entry.
    pub fn group_of(&self, entry: u32) -> u32 {
        self.group_of[entry as usize]
    }

    /// An entry had this CPU for the last `ns`.
    #[inline]
    pub fn ran(&mut self, entry: u32, cpu: CpuId, now: Nanos, ns: Nanos) {
        self.vms[entry as usize].ran_ns += ns;
        if let Some(on_kind) = &mut self.on_kind {
            on_kind.ran(entry, cpu, now, ns);
        }
    }

    #[inline]
    pub fn worked(&mut self, entry: u32, ns: Nanos) {
        self.vms[entry as usize].work_ns += ns;
    }

    #[inline]
    pub fn migrated(&mut self, entry: u32, distance: Distance) {
        self.vms[entry as usize].migrations += 1;
        let far = match distance {
            Distance::Same | Distance::Core => 0,
            Distance::Llc => 1,
            Distance::Package => 2,
            Distance::Node => 3,
            Distance::Far => 4,
        };
        self.moves[far] += 1;
    }

    /// Changes of CPU by distance, per second of `span_s`, and the part of them that went to another package.
    pub fn moves(&self, span_s: f64, out: &mut BTreeMap<String, f64>) {
        let [core, llc, package, node, far] = self.moves;
        let named = [
            ("same_core", core),
            ("same_llc", llc),
            ("other_llc", package),
            ("same_package", llc + package),
            ("other_package", node + far),
            ("other_node", far),
        ];
        for (name, n) in named {
            out.insert(format!("host.moves.{name}"), n as f64 / span_s);
        }
        let all: u64 = self.moves.iter().sum();
        if all > 0 {
            let share = (node + far) as f64 / all as f64;
            out.insert("host.moves.other_package_share".into(), share);
        }
    }

    /// A stay in the run queue is over; `woken`: it began with a wake-up from sleep. `true`: it is the longest of
    /// its VM so far.
    #[inline]
    pub fn waited(&mut self, entry: u32, since: Nanos, now: Nanos, woken: bool) -> bool {
        let ns = now - since;
        let c = &mut self.vms[entry as usize];
        c.waited_ns += now - since.max(self.settled_at);
        c.waits += 1;
        let longest = ns > c.longest_ns;
        c.longest_ns = c.longest_ns.max(ns);
        let Some(pair) = self.pair_of.get(entry as usize) else {
            return longest;
        };
        let pair = &mut self.pairs[*pair as usize];
        let bucket = Times::bucket(ns.min(LONGEST));
        pair.run_delay.counts[bucket] += 1;
        if woken {
            pair.wakeup.counts[bucket] += 1;
        }
        longest
    }

    /// A stay in the run queue goes on; what lies before now is on account.
    pub fn still_waits(&mut self, entry: u32, since: Nanos, now: Nanos) {
        self.vms[entry as usize].waited_ns += now - since.max(self.settled_at);
    }

    /// A thread has been stopped by the freezer since then; what lies before now is on account.
    pub fn frozen(&mut self, entry: u32, since: Nanos, now: Nanos) {
        self.vms[entry as usize].frozen_ns += now - since.max(self.settled_at);
    }

    /// Does what threads waited equal what they waited for? The sums of the first class where not: waited, attributed.
    /// Only right after everything was settled.
    pub fn unexplained(&self) -> Option<(usize, u64, u64)> {
        let blame = self.blame.as_deref()?;
        let mut waited = vec![0u64; blame.classes()];
        for (entry, c) in self.vms.iter().enumerate() {
            waited[blame.class_of(entry as u32)] += c.waited_ns;
        }
        (0..waited.len())
            .map(|w| {
                let causes = (0..blame.causes()).map(|c| blame.between(w, c));
                (w, waited[w], causes.fold(0, u64::wrapping_add))
            })
            .find(|(_, waited, explained)| waited != explained)
    }

    /// Forget everything so far (the warm-up is over, and everything is settled).
    pub fn reset(&mut self) {
        if let Some(blame) = &mut self.blame {
            blame.reset();
        }
        if let Some(on_kind) = &mut self.on_kind {
            on_kind.reset();
        }
        self.moves = [0; 5];
        self.vms.fill(Counters::default());
        for p in &mut self.pairs {
            p.wakeup.reset();
            p.run_delay.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for ns in (0..2000).chain((1..400).map(|i| i * 9_000_000_000)) {
            let b = Times::bucket(ns);
            assert!(b >= last, "{ns}");
            last = b;
            let error = Times::value(b).abs_diff(ns);
            assert!(error * 128 <= ns.max(127), "{ns}: {}", Times::value(b));
        }
        let mut t = Times::default();
        t.record(u64::MAX);
        t.record(500);
        let mut h = bounds();
        t.add_to(&mut h);
        assert_eq!(h.len(), 2);
        assert!(h.min().abs_diff(500) <= 4);
    }

    #[test]
    fn moves_by_distance() {
        let mut stats = Stats::new(&[0], 2);
        for distance in [
            Distance::Core,
            Distance::Llc,
            Distance::Package,
            Distance::Node,
        ] {
            stats.migrated(0, distance);
        }
        let mut out = BTreeMap::new();
        stats.moves(2.0, &mut out);
        assert_eq!(out["host.moves.same_core"], 0.5);
        assert_eq!(out["host.moves.same_package"], 1.0);
        assert_eq!(out["host.moves.other_package_share"], 0.25);
        assert_eq!(stats.vms[0].migrations, 4);
        stats.reset();
        out.clear();
        stats.moves(2.0, &mut out);
        assert_eq!(out["host.moves.other_package"], 0.0);
        assert!(!out.contains_key("host.moves.other_package_share"));
    }
}
