// SPDX-License-Identifier: GPL-2.0-only
//! What is counted while a machine runs: per VM, and for the host's own threads. No allocation after
//! the VMs are known.
use crate::workload::api::{Nanos, VmId};
use hdrhistogram::Histogram;

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
    /// Time in run queues, ns, and stays there.
    pub waited_ns: u64,
    pub waits: u64,
    pub migrations: u64,
}

#[derive(Clone, Debug)]
pub struct Pair {
    pub wakeup: Histogram<u64>,
    pub run_delay: Histogram<u64>,
}

impl Default for Pair {
    fn default() -> Self {
        let h =
            || Histogram::new_with_bounds(1, LONGEST, 2).expect("bounds and digits are constants");
        Pair {
            wakeup: h(),
            run_delay: h(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Stats {
    /// Per VM, then one entry for everything else.
    pub vms: Vec<Counters>,
    /// Histogram of each entry of `vms`.
    pair_of: Vec<u32>,
    pub pairs: Vec<Pair>,
}

impl Stats {
    /// `groups[vm]` is the VM's group number.
    pub fn new(groups: &[u32]) -> Self {
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
        Stats {
            vms: vec![Counters::default(); n + 1],
            pair_of,
            pairs: vec![Pair::default(); own as usize + 1],
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

    #[inline]
    pub fn ran(&mut self, entry: u32, ns: Nanos) {
        self.vms[entry as usize].ran_ns += ns;
    }

    #[inline]
    pub fn worked(&mut self, entry: u32, ns: Nanos) {
        self.vms[entry as usize].work_ns += ns;
    }

    #[inline]
    pub fn migrated(&mut self, entry: u32) {
        self.vms[entry as usize].migrations += 1;
    }

    /// A stay in the run queue is over; `woken`: it began with a wake-up from sleep.
    #[inline]
    pub fn waited(&mut self, entry: u32, ns: Nanos, woken: bool) {
        let c = &mut self.vms[entry as usize];
        c.waited_ns += ns;
        c.waits += 1;
        let pair = &mut self.pairs[self.pair_of[entry as usize] as usize];
        pair.run_delay.saturating_record(ns);
        if woken {
            pair.wakeup.saturating_record(ns);
        }
    }

    /// Forget everything so far (the warm-up is over).
    pub fn reset(&mut self) {
        self.vms.fill(Counters::default());
        for p in &mut self.pairs {
            p.wakeup.reset();
            p.run_delay.reset();
        }
    }
}
