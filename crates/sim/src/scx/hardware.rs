// SPDX-License-Identifier: GPL-2.0-only
//! What the hardware makes of a switch: who runs where, at which rate ([`crate::machine::rate`]), with which caches;
//! and what policies are told of capacities and frequencies. A machine without any of this
//! ([`berth_scenario::model::HostCost`]) has no [`Hardware`], and pays one test a switch.
use super::kernel::{Handle, Kernel, MachineSpec};
use crate::engine::queue::NEVER;
use crate::machine::Topology;
use crate::machine::cache::Caches;
use crate::machine::rate::{CAPACITY, FULL, Kind, Phase, rate};
use crate::machine::task::{MARK_VCPU, NONE, SPINNING};
use crate::machine::vcpu::What;
use crate::words::{CpuId, Nanos, TaskId};

/// Hardware that is not simply fast.
pub struct Hardware {
    kinds: Vec<Kind>,
    /// Kind of each core: index into `kinds`.
    of_core: Vec<u32>,
    /// Busy threads of each core.
    busy: Vec<u32>,
    pub caches: Option<Caches>,
    /// Of tasks that do not run: [`crate::machine::pace::Pace::part`].
    parts: Vec<u32>,
}

impl Hardware {
    /// None: all CPUs always at full speed, and memory for nothing.
    pub fn new(spec: &MachineSpec, topo: &Topology) -> Option<Box<Hardware>> {
        let (cost, threads) = (&spec.cost, spec.shape.threads);
        let plain = Kind::new(FULL, FULL, cost.smt_ppm, threads);
        let kinds = cost
            .kinds
            .iter()
            .map(|k| Kind::of(k, cost.smt_ppm, threads));
        let mut all: Vec<Kind> = kinds.collect();
        if all.is_empty() && plain.is_plain() && cost.cache.is_none() {
            return None;
        }
        let of_core = (0..topo.cores.len() as u32).map(|core| {
            let own = cost.kinds.iter().position(|k| k.cores.contains(&core));
            own.unwrap_or(cost.kinds.len()) as u32
        });
        let of_core: Vec<u32> = of_core.collect();
        if of_core.contains(&(all.len() as u32)) {
            all.push(plain);
        }
        Some(Box::new(Hardware {
            kinds: all,
            of_core,
            busy: vec![0; topo.cores.len()],
            caches: cost.cache.as_ref().map(|c| Caches::new(c, topo)),
            parts: Vec::new(),
        }))
    }

    fn kind(&self, core: u32) -> &Kind {
        &self.kinds[self.of_core[core as usize] as usize]
    }

    /// Work per time of a busy CPU, parts per million.
    fn rate(&self, topo: &Topology, cpu: CpuId) -> u32 {
        let core = topo.core_of(cpu);
        // Tasks of scenarios have no phases: they compute.
        rate(self.kind(core), Phase::default(), self.busy[core as usize])
    }
}

impl Kernel {
    /// What the kernel says that a CPU can do, 1 to 1024: the fastest of the machine. A guest's are all alike.
    pub fn capacity(&self, cpu: CpuId) -> u32 {
        let hw = self.hardware.as_ref();
        hw.map_or(CAPACITY, |hw| {
            hw.kind(self.topo.core_of(cpu)).capacity(&hw.kinds)
        })
    }

    /// The CPU's frequency, 1 to 1024: its own highest.
    pub fn frequency(&self, cpu: CpuId) -> u32 {
        let hw = self.hardware.as_ref();
        hw.map_or(CAPACITY, |hw| hw.kind(self.topo.core_of(cpu)).frequency())
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
        let shares = hw.kind(core).shares() && (prev < idle) != (next < idle);
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
