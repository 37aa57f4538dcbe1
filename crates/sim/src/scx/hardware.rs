// SPDX-License-Identifier: GPL-2.0-only
//! What the hardware makes of a switch: SMT siblings slow each other down, cores differ in speed, caches are warmed.
//! A machine without any of this ([`berth_scenario::model::HostCost`]) has no [`Hardware`], and pays one test a switch.
use super::kernel::{Handle, MachineSpec};
use crate::engine::queue::NEVER;
use crate::machine::Topology;
use crate::machine::cache::Caches;
use crate::machine::pace::FULL;
use crate::machine::task::{MARK_VCPU, NONE, SPINNING};
use crate::machine::vcpu::What;
use crate::words::{CpuId, Nanos, TaskId};

/// Hardware that is not simply fast.
pub struct Hardware {
    /// Speed of each CPU alone, parts per million.
    speed: Vec<u32>,
    /// What is left of it for each of n + 1 busy threads of a core; empty: all of it.
    shared: Vec<u32>,
    /// Busy threads of each core.
    busy: Vec<u32>,
    pub caches: Option<Caches>,
    /// Of tasks that do not run: [`crate::machine::pace::Pace::part`].
    parts: Vec<u32>,
}

/// Speed of each of n busy threads of a core, if two have `pair` each: a core with two does 2 `pair` of the work of
/// one, each further thread adds half of what the one before added.
fn shared(pair: u32, threads: u32) -> Vec<u32> {
    let mut gain = 2 * i64::from(pair) - i64::from(FULL);
    let mut total = i64::from(FULL);
    (1..=i64::from(threads))
        .map(|n| {
            let each = total / n;
            total += gain;
            gain /= 2;
            each.max(1) as u32
        })
        .collect()
}

impl Hardware {
    /// None: all CPUs always at full speed, and memory for nothing.
    pub fn new(spec: &MachineSpec, topo: &Topology) -> Option<Box<Hardware>> {
        let cost = &spec.cost;
        let sharing = topo.smt() && cost.smt_ppm != 0 && cost.smt_ppm != FULL;
        if !sharing && cost.speed_ppm.is_empty() && cost.cache.is_none() {
            return None;
        }
        let of_core = |core: u32| cost.speed_ppm.get(core as usize).copied().unwrap_or(FULL);
        Some(Box::new(Hardware {
            speed: (0..topo.nr_cpus())
                .map(|cpu| of_core(topo.core_of(cpu)).max(2))
                .collect(),
            shared: if sharing {
                shared(cost.smt_ppm, spec.shape.threads)
            } else {
                Vec::new()
            },
            busy: vec![0; topo.cores.len()],
            caches: cost.cache.as_ref().map(|c| Caches::new(c, topo)),
            parts: Vec::new(),
        }))
    }

    /// Work per time of a busy CPU, parts per million.
    fn rate(&self, topo: &Topology, cpu: CpuId) -> u32 {
        let speed = self.speed[cpu as usize];
        let busy = self.busy[topo.core_of(cpu) as usize].max(1);
        match self.shared.get(busy as usize - 1) {
            Some(share) => (u64::from(speed) * u64::from(*share) / u64::from(FULL)).max(2) as u32,
            None => speed,
        }
    }
}

impl Handle {
    /// A CPU goes from one task to another (idle tasks included); the first one's work is accounted.
    #[inline(never)]
    pub fn hardware_switch(mut self, cpu: CpuId, prev: TaskId, next: TaskId) {
        let idle = self.cpus.len() as u32;
        let pace = self.cpus[cpu as usize].pace;
        let k = &mut *self;
        let Some(hw) = &mut k.hardware else { return };
        if prev >= idle {
            if hw.parts.len() <= prev as usize {
                hw.parts.resize(prev as usize + 1, 0);
            }
            hw.parts[prev as usize] = pace.part;
            if let Some(caches) = &mut hw.caches {
                caches.leaves(prev, pace.warm);
            }
        }
        let core = k.topo.core_of(cpu);
        let shares = !hw.shared.is_empty() && (prev < idle) != (next < idle);
        if shares {
            let busy = &mut hw.busy[core as usize];
            *busy = if next < idle { *busy - 1 } else { *busy + 1 };
        }
        if next >= idle {
            let from = k.tasks.hot[next as usize].last_cpu;
            let from = (from != NONE).then_some(from);
            let caches = hw.caches.as_mut();
            let warm = caches.map_or(0, |c| c.comes(&k.topo, next, from, cpu));
            let rate = hw.rate(&k.topo, cpu);
            let part = hw.parts.get(next as usize).copied().unwrap_or(0);
            let pace = &mut k.cpus[cpu as usize].pace;
            (pace.rate, pace.warm, pace.part) = (rate, warm, part);
            pace.look();
        }
        if shares {
            self.siblings_changed(cpu, core);
        }
    }

    /// The siblings of a CPU go on at another speed.
    fn siblings_changed(self, cpu: CpuId, core: u32) {
        let mut from = 0;
        loop {
            let next = self.topo.cores[core as usize].iter().find(|c| *c >= from);
            let Some(sibling) = next else { return };
            from = sibling + 1;
            if sibling != cpu && !self.cpus[sibling as usize].is_idle() {
                let rate = (self.hardware.as_ref()).map_or(FULL, |hw| hw.rate(&self.topo, sibling));
                self.set_rate(sibling, rate);
            }
        }
    }

    /// A busy CPU works at this rate from now on: what is done so far is done, the rest is timed anew.
    pub fn set_rate(mut self, cpu: CpuId, rate: u32) {
        if self.cpus[cpu as usize].pace.rate == rate {
            return;
        }
        self.sync_work(cpu);
        let now = self.now;
        let k = &mut *self;
        let c = &mut k.cpus[cpu as usize];
        c.pace.rate = rate;
        c.pace.look();
        let (curr, start, held) = (c.curr, c.work_start.max(now), c.run_end == NEVER);
        let t = &k.tasks.hot[curr as usize];
        let vcpu = t.mark & MARK_VCPU != 0;
        // What the host does for a vCPU, and windows of those that spin, do not depend on speed.
        if !held && !vcpu && t.remaining < SPINNING {
            let end = k.work_end(cpu, curr, start);
            k.cpus[cpu as usize].run_end = end;
            if cpu != k.exec {
                self.arm(cpu);
            }
        }
        if vcpu {
            self.vcpu_switched(cpu, curr, What::Rate { rate });
        }
    }

    /// A guest's CPU gets a physical one that works at this pace.
    pub fn set_pace(mut self, cpu: CpuId, rate: u32, warm: Nanos) {
        let pace = &mut self.cpus[cpu as usize].pace;
        (pace.rate, pace.warm) = (rate, warm);
        pace.look();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_core() {
        assert_eq!(shared(600_000, 2), [FULL, 600_000]);
        // 1, 1.2, 1.3, 1.35 of one thread's work.
        assert_eq!(shared(600_000, 4), [FULL, 600_000, 433_333, 337_500]);
        // Siblings that only get in each other's way.
        assert_eq!(shared(500_000, 2), [FULL, 500_000]);
        assert_eq!(shared(400_000, 3)[2], 233_333);
    }
}
