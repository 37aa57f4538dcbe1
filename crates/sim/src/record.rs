// SPDX-License-Identifier: GPL-2.0-only
//! What a run keeps beside its metrics: who waited for whom, the worst waits, distributions, values over time.
use crate::scx::identity::VmSpec;
use crate::scx::kernel::Handle;
use crate::stats::recent;
use crate::stats::{Times, bounds};
use berth_results::detail::{Distribution, HOST, Strip, Wait, WorstWait};
use berth_scenario::model::Scenario;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Values over time per measured window.
pub const PARTS: u64 = 40;

/// The accounts of waiting, settled: rows that are not zero.
pub fn waits(k: Handle, scenario: &Scenario, vms: &[VmSpec]) -> Vec<Wait> {
    let vms: Vec<&str> = vms.iter().map(|v| v.name.as_str()).collect();
    let groups: Vec<&str> = scenario.vms.iter().map(|g| g.name.as_str()).collect();
    let blame = k.stats.blame.as_ref();
    let frozen: Vec<u64> = k.stats.vms.iter().map(|c| c.frozen_ns).collect();
    blame.map_or(Vec::new(), |b| b.waits(&vms, &groups, &frozen))
}

fn group_name(scenario: &Scenario, group: u32) -> String {
    let group = scenario.vms.get(group as usize);
    group.map_or(HOST.into(), |g| g.name.clone())
}

/// The worst wait of each group.
pub fn worst(k: Handle, scenario: &Scenario) -> Vec<WorstWait> {
    let of = |w: &recent::Worst| {
        let s = &w.strip;
        let strip = Strip {
            from_ns: s.from,
            to_ns: s.to,
            cpus: s.cpus.clone().collect(),
            threads: s
                .threads
                .iter()
                .map(|(name, group)| (name.clone(), group_name(scenario, *group)))
                .collect(),
            ran: s.ran.clone(),
        };
        WorstWait {
            group: group_name(scenario, w.group),
            thread: w.name.clone(),
            cpu: w.cpu,
            from_ns: w.from,
            to_ns: w.to,
            unfinished: w.unfinished,
            behind: strip.behind(w.cpu, w.from, w.to),
            strip: Some(strip),
        }
    };
    k.recent.worst().map(of).collect()
}

/// A histogram in the steps of the results.
pub fn distribution(h: &Histogram<u64>) -> Distribution {
    Distribution::of(
        h.iter_recorded()
            .map(|v| (v.value_iterated_to(), v.count_at_value())),
    )
}

/// Distributions of waiting, by group of VMs.
pub fn times(
    k: Handle,
    scenario: &Scenario,
    vms: &[VmSpec],
    out: &mut BTreeMap<String, Distribution>,
) {
    for (g, group) in scenario.vms.iter().enumerate() {
        let mut pairs: Vec<u32> = (0..vms.len() as u32)
            .filter(|v| vms[*v as usize].group == g as u32)
            .map(|v| k.stats.pair_index(v))
            .collect();
        pairs.dedup();
        let mut put = |quantity: &str, of: &dyn Fn(u32) -> Times| {
            let mut h = bounds();
            pairs.iter().for_each(|p| of(*p).add_to(&mut h));
            if !h.is_empty() {
                out.insert(format!("{}.{quantity}", group.name), distribution(&h));
            }
        };
        put("wakeup", &|p| k.stats.pairs[p as usize].wakeup.clone());
        put("run_delay", &|p| {
            k.stats.pairs[p as usize].run_delay.clone()
        });
    }
}

/// Values over the measured window: what changed between one look and the next.
#[derive(Debug, Default)]
pub struct Series {
    /// By group: time on CPUs and in queues, so far.
    last: Vec<(u64, u64)>,
    last_at: u64,
    out: BTreeMap<String, Vec<f64>>,
}

impl Series {
    /// Look; everything is settled.
    pub fn look(&mut self, k: Handle, scenario: &Scenario, vms: &[VmSpec]) {
        let mut sums = vec![(0, 0); scenario.vms.len()];
        for (v, vm) in vms.iter().enumerate() {
            let (c, sum) = (&k.stats.vms[v], &mut sums[vm.group as usize]);
            *sum = (sum.0 + c.ran_ns, sum.1 + c.waited_ns);
        }
        self.last.resize(sums.len(), (0, 0));
        let span = (k.now - self.last_at).max(1) as f64;
        for (g, group) in scenario.vms.iter().enumerate() {
            let ran = (sums[g].0 - self.last[g].0) as f64;
            let waited = (sums[g].1 - self.last[g].1) as f64;
            let share = if waited > 0.0 {
                waited / (ran + waited)
            } else {
                0.0
            };
            for (name, value) in [("cpu", ran / span), ("run_delay.share", share)] {
                let list = self.out.entry(format!("{}.{name}", group.name));
                // Four digits are more than a picture shows.
                list.or_default().push((value * 1e4).round() / 1e4);
            }
        }
        self.last = sums;
        self.last_at = k.now;
    }

    /// From here on: everything is settled and reset.
    pub fn begin(&mut self, now: u64) {
        *self = Series {
            last_at: now,
            ..Series::default()
        };
    }

    pub fn finish(self) -> BTreeMap<String, Vec<f64>> {
        self.out
    }
}
