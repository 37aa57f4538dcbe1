// SPDX-License-Identifier: GPL-2.0-only
//! On which kind of core each VM ran, and for how long on a slower one while it could have had one of the fastest: one
//! of these was idle, or ran a VM of class batch.
use crate::machine::Topology;
use crate::words::{CpuId, Nanos};
use berth_scenario::model::{Class, CoreKind};
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct OnKind {
    names: Vec<String>,
    /// Kind of each CPU.
    of_cpu: Vec<u32>,
    fastest: u32,
    /// Entries of VMs of class batch.
    batch: Vec<bool>,
    /// Time on CPUs, ns: by entry, then kind.
    ran_ns: Vec<u64>,
    /// Time on slower CPUs while one of the fastest was free, ns: by entry.
    missed_ns: Vec<u64>,
    /// CPUs of the fastest kind that are free, and how many.
    free: Vec<bool>,
    nr_free: u32,
    /// A clock that goes on while any is: its time at `at`, and when a CPU's run was last accounted.
    clock: Nanos,
    at: Nanos,
    accounted: Vec<Nanos>,
}

impl OnKind {
    /// None where all cores are of one kind. `classes` of the VMs, in their order.
    pub fn new(kinds: &[CoreKind], topo: &Topology, classes: &[Class]) -> Option<Box<OnKind>> {
        let kind_of = |core: u32| kinds.iter().position(|k| k.cores.contains(&core));
        let cpus = 0..topo.nr_cpus();
        let of_cpu: Option<Vec<u32>> = cpus
            .map(|cpu| kind_of(topo.core_of(cpu)).map(|k| k as u32))
            .collect();
        let (of_cpu, n) = (of_cpu?, topo.nr_cpus() as usize);
        let fastest = (0..kinds.len()).max_by_key(|k| (kinds[*k].speed_ppm, usize::MAX - k))?;
        if kinds.len() < 2 {
            return None;
        }
        let free: Vec<bool> = of_cpu.iter().map(|k| *k == fastest as u32).collect();
        Some(Box::new(OnKind {
            names: (1..).zip(kinds).map(|(i, k)| name(k, i)).collect(),
            nr_free: free.iter().filter(|f| **f).count() as u32,
            of_cpu,
            fastest: fastest as u32,
            batch: classes.iter().map(|c| *c == Class::Batch).collect(),
            ran_ns: vec![0; (classes.len() + 1) * kinds.len()],
            missed_ns: vec![0; classes.len() + 1],
            free,
            clock: 0,
            at: 0,
            accounted: vec![0; n],
        }))
    }

    fn is_batch(&self, entry: u32) -> bool {
        self.batch.get(entry as usize).is_some_and(|b| *b)
    }

    fn advance(&mut self, now: Nanos) {
        if self.nr_free > 0 {
            self.clock += now - self.at;
        }
        self.at = now;
    }

    /// An entry had this CPU for the last `ns`.
    pub fn ran(&mut self, entry: u32, cpu: CpuId, now: Nanos, ns: Nanos) {
        self.advance(now);
        let (kind, cpu) = (self.of_cpu[cpu as usize], cpu as usize);
        self.ran_ns[entry as usize * self.names.len() + kind as usize] += ns;
        if kind != self.fastest {
            self.missed_ns[entry as usize] += (self.clock - self.accounted[cpu]).min(ns);
        }
        self.accounted[cpu] = self.clock;
    }

    /// From now on an entry has this CPU, or nobody.
    pub fn starts(&mut self, entry: Option<u32>, cpu: CpuId, now: Nanos) {
        self.advance(now);
        let at = cpu as usize;
        self.accounted[at] = self.clock;
        if self.of_cpu[at] != self.fastest {
            return;
        }
        let free = entry.is_none_or(|e| self.is_batch(e));
        self.nr_free = self.nr_free + u32::from(free) - u32::from(self.free[at]);
        self.free[at] = free;
    }

    /// Forget the times so far; everything is settled.
    pub fn reset(&mut self) {
        self.ran_ns.fill(0);
        self.missed_ns.fill(0);
    }

    /// Shares of the run time of these entries together: `NAME.on_kind.KIND`, `NAME.missed_fast` (not of class batch).
    /// CPUs of the fastest kind that they used in a window of `span_ns`: `NAME.fast`.
    pub fn metrics(
        &self,
        name: &str,
        entries: &[u32],
        span_ns: f64,
        out: &mut BTreeMap<String, f64>,
    ) {
        let kinds = self.names.len();
        let on = |kind: usize| {
            let of = entries.iter().map(|e| *e as usize * kinds + kind);
            of.map(|at| self.ran_ns[at]).sum::<u64>()
        };
        out.insert(
            format!("{name}.fast"),
            on(self.fastest as usize) as f64 / span_ns,
        );
        let ran: u64 = (0..kinds).map(on).sum();
        if ran == 0 {
            return;
        }
        for (kind, of) in self.names.iter().enumerate() {
            let share = on(kind) as f64 / ran as f64;
            out.insert(format!("{name}.on_kind.{of}"), share);
        }
        if entries.iter().all(|e| self.is_batch(*e)) {
            return;
        }
        let missed: u64 = entries.iter().map(|e| self.missed_ns[*e as usize]).sum();
        out.insert(format!("{name}.missed_fast"), missed as f64 / ran as f64);
    }
}

/// Kinds of `host.speed` have no names.
fn name(kind: &CoreKind, number: usize) -> String {
    if kind.name.is_empty() {
        format!("{number}")
    } else {
        kind.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Shape;

    fn kind(name: &str, cores: &[u32], speed_ppm: u32) -> CoreKind {
        CoreKind {
            name: name.into(),
            cores: cores.to_vec(),
            speed_ppm,
            frequency_ppm: 1_000_000,
            smt_ppm: 0,
            llcs: 0,
            steps_khz: Vec::new(),
        }
    }

    /// A latency VM (0) and a batch VM (1) on a fast core (CPU 1) and a slow one (CPU 0).
    #[test]
    fn what_runs_on_a_slow_core_misses_a_fast_one_while_that_is_idle_or_runs_batch() {
        let topo = Topology::new(Shape::flat(2));
        let kinds = [kind("slow", &[0], 500_000), kind("fast", &[1], 1_000_000)];
        let mut on = OnKind::new(&kinds, &topo, &[Class::Latency, Class::Batch]).unwrap();
        on.starts(Some(0), 0, 100); // latency on slow, fast idle
        on.starts(Some(1), 1, 110); // fast has batch: still free
        on.ran(1, 1, 130, 20);
        on.starts(Some(0), 1, 130); // fast has latency: not free
        on.ran(0, 1, 170, 40);
        on.starts(None, 1, 170); // idle again
        on.ran(0, 0, 180, 80);
        on.starts(None, 0, 180);
        let mut out = BTreeMap::new();
        on.metrics("web", &[0], 200.0, &mut out);
        on.metrics("build", &[1], 200.0, &mut out);
        assert_eq!(out["web.fast"], 40.0 / 200.0);
        assert_eq!(out["web.on_kind.slow"], 80.0 / 120.0);
        assert_eq!(out["web.on_kind.fast"], 40.0 / 120.0);
        assert_eq!(out["web.missed_fast"], 40.0 / 120.0); // 100 to 130, 170 to 180
        assert_eq!(out["build.on_kind.fast"], 1.0);
        assert!(!out.contains_key("build.missed_fast"));
        on.reset();
        out.clear();
        on.metrics("web", &[0], 200.0, &mut out);
        assert_eq!(out, BTreeMap::from([("web.fast".to_string(), 0.0)]));
        assert!(OnKind::new(&[], &topo, &[]).is_none());
    }
}
