// SPDX-License-Identifier: GPL-2.0-only
//! What the hardware makes of a switch: who runs where, at which rate ([`crate::machine::rate`]), with which caches;
//! and what policies are told of capacities and frequencies. A machine without any of this
//! ([`berth_scenario::model::HostCost`]) has no [`Hardware`], and pays one test a switch.
use super::kernel::{Handle, Kernel};
use super::spec::MachineSpec;
use crate::engine::queue::NEVER;
use crate::machine::Topology;
use crate::machine::cache::Caches;
use crate::machine::memory::Memory;
use crate::machine::pmu::{Doing, Pmu};
use crate::machine::rate::{CAPACITY, FULL, Kind, Phase, Steps, rate};
use crate::machine::task::{MARK_VCPU, NONE, SPINNING};
use crate::machine::vcpu::{Call, What};
use crate::words::{CpuId, HOST, Nanos, TaskId, TaskSpec, VmId};

/// Hardware that is not simply fast.
pub struct Hardware {
    kinds: Vec<Kind>,
    /// Kind of each core: index into `kinds`.
    of_core: Vec<u32>,
    /// None: all cores always run at the same frequency.
    steps: Option<Box<Steps>>,
    /// Busy threads of each core.
    busy: Vec<u32>,
    pub caches: Option<Caches>,
    /// Of tasks that do not run: [`crate::machine::pace::Pace::part`].
    parts: Vec<u32>,
    /// Of tasks; those beyond are in the default phase.
    phases: Vec<Phase>,
    pub pmu: Option<Pmu>,
    /// Where VMs' memory is, if that is said of any.
    memory: Option<Box<Memory>>,
    /// Phases may change working sets.
    pub sets_change: bool,
    /// A guest's: in which phase each of its CPUs is, as the host has been told.
    told: Vec<Phase>,
}

impl Hardware {
    /// A guest's, whose host has to know what its tasks do: the rest is the host's.
    pub fn of_guest(nr_cpus: u32, nr_cores: u32) -> Box<Hardware> {
        Box::new(Hardware {
            kinds: vec![Kind::new(FULL, FULL, 0, 1)],
            of_core: vec![0; nr_cores as usize],
            steps: None,
            busy: Vec::new(),
            caches: None,
            parts: Vec::new(),
            phases: Vec::new(),
            pmu: None,
            memory: None,
            sets_change: false,
            told: vec![Phase::default(); nr_cpus as usize],
        })
    }

    /// Does it make a difference here in which phase a task is?
    pub fn knows_phases(&self) -> bool {
        let sets = self.sets_change && self.caches.is_some();
        let counts = self.pmu.is_some() || self.memory.is_some();
        sets || counts || self.kinds.iter().any(|k| k.alone() != FULL)
    }

    /// None: all CPUs always at full speed, and memory for nothing.
    pub fn new(spec: &MachineSpec, topo: &Topology) -> Option<Box<Hardware>> {
        let (cost, threads) = (&spec.cost, spec.shape.threads);
        let plain = Kind::new(FULL, FULL, cost.smt_ppm, threads);
        let kinds = cost
            .kinds
            .iter()
            .map(|k| Kind::of(k, cost.smt_ppm, threads));
        let mut all: Vec<Kind> = kinds.collect();
        let pmu = cost.pmu_noise_ppm;
        let uniform = all.is_empty() && plain.is_plain() && spec.memory.is_empty();
        if uniform && cost.cache.is_none() && pmu.is_none() {
            return None;
        }
        let memory = || Memory::new(&spec.memory, cost.remote_ppm, topo.nr_nodes());
        let of_core = (0..topo.cores.len() as u32).map(|core| {
            let own = cost.kinds.iter().position(|k| k.cores.contains(&core));
            own.unwrap_or(cost.kinds.len()) as u32
        });
        let of_core: Vec<u32> = of_core.collect();
        if of_core.contains(&(all.len() as u32)) {
            all.push(plain);
        }
        let steps = Steps::new(&cost.kinds, &mut all, &of_core, topo.nr_cpus());
        Some(Box::new(Hardware {
            kinds: all,
            of_core,
            steps,
            busy: vec![0; topo.cores.len()],
            caches: cost.cache.as_ref().map(|c| Caches::new(c, topo)),
            parts: Vec::new(),
            phases: Vec::new(),
            pmu: pmu.map(|noise| Pmu::new(topo.nr_cpus(), noise, spec.seed)),
            memory: (!spec.memory.is_empty()).then(|| Box::new(memory())),
            sets_change: false,
            told: Vec::new(),
        }))
    }

    /// A task is born.
    pub fn born(&mut self, task: TaskId, spec: &TaskSpec) {
        if let Some(caches) = &mut self.caches {
            caches.born(task, spec.working_set);
        }
        if let Some(memory) = &mut self.memory {
            memory.born(task, spec.vm);
        }
        self.set_phase(task, spec.phase);
    }

    fn set_phase(&mut self, task: TaskId, phase: Phase) {
        let at = task as usize;
        if self.phases.len() <= at {
            if phase == Phase::default() {
                return;
            }
            self.phases.resize(at + 1, Phase::default());
        }
        self.phases[at] = phase;
    }

    fn phase(&self, task: TaskId) -> Phase {
        self.phases.get(task as usize).copied().unwrap_or_default()
    }

    fn kind(&self, core: u32) -> &Kind {
        &self.kinds[self.of_core[core as usize] as usize]
    }

    /// The part of a task's memory that is on another node than this CPU, parts per million, if that is said.
    fn away(&self, topo: &Topology, cpu: CpuId, task: TaskId) -> Option<u32> {
        self.memory.as_ref()?.away(task, topo.node_of(cpu))
    }

    /// Where the memory of a VM is, if that is said: the part on each node, parts per million.
    pub fn memory_of(&self, vm: VmId) -> Option<&[u32]> {
        self.memory.as_ref()?.parts(vm)
    }

    /// Work per time of a CPU on which this task runs, parts per million.
    fn rate(&self, topo: &Topology, cpu: CpuId, task: TaskId) -> u32 {
        let core = topo.core_of(cpu);
        let wait = match &self.memory {
            None => u64::from(FULL),
            Some(memory) => memory.wait(self.away(topo, cpu, task).unwrap_or(0)),
        };
        let busy = self.busy[core as usize];
        rate(self.kind(core), self.phase(task), busy, wait)
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
        if self.id != HOST {
            return self.tell_phase(cpu, next);
        }
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
            let away = hw.away(&k.topo, cpu, next);
            let caches = hw.caches.as_mut();
            let warm = caches.map_or(0, |c| c.comes(&k.topo, next, from, cpu, away));
            let rate = hw.rate(&k.topo, cpu, next);
            let part = hw.parts.get(next as usize).copied().unwrap_or(0);
            let pace = &mut k.cpus[cpu as usize].pace;
            (pace.rate, pace.warm, pace.part) = (rate, warm, part);
            pace.look();
        }
        self.count_events(cpu);
        if shares {
            self.siblings_changed(cpu, core);
        }
    }

    /// A guest's CPU goes to another task: its host is told what that one does. An idle CPU keeps the phase it was in.
    fn tell_phase(mut self, cpu: CpuId, next: TaskId) {
        let idle = self.cpus.len() as u32;
        let k = &mut *self;
        let Some(hw) = &mut k.hardware else { return };
        let phase = hw.phase(next);
        if next >= idle && hw.told[cpu as usize] != phase {
            hw.told[cpu as usize] = phase;
            k.calls.push(Call::Phase(cpu, phase));
        }
    }

    /// A task is in another phase from now on.
    pub fn set_phase(mut self, task: TaskId, phase: Phase) {
        let k = &mut *self;
        let Some(hw) = &mut k.hardware else { return };
        let before = hw.phase(task).working_set;
        hw.set_phase(task, phase);
        if before != phase.working_set {
            self.warm_anew(task, phase.working_set);
        }
        let k = &mut *self;
        let Some(hw) = &mut k.hardware else { return };
        let cpu = k.tasks.hot[task as usize].cpu;
        if k.cpus[cpu as usize].curr != task {
            return;
        }
        let rate = hw.rate(&k.topo, cpu, task);
        self.set_rate(cpu, rate);
        self.count_events(cpu);
    }

    /// The task that runs here waits for memory for this part of its time from now on, and has `ipc` when it does not,
    /// if that is said; a guest's host is told.
    pub fn set_stall(mut self, cpu: CpuId, task: TaskId, stalled: u32, ipc: Option<u32>) {
        let id = self.id;
        let Some(hw) = &mut self.hardware else { return };
        let before = hw.phase(task);
        let phase = Phase {
            stalled,
            ipc: ipc.unwrap_or(before.ipc),
            ..before
        };
        if id == HOST {
            return self.set_phase(task, phase);
        }
        hw.set_phase(task, phase);
        self.tell_phase(cpu, task);
    }

    /// `scx_bpf_cpuperf_set`: a CPU is to have this performance, 1024 being all that the fastest can. Its core, which
    /// has one clock for all its threads, gives the most of what is asked of them, from now on.
    #[cold]
    pub fn ask_performance(mut self, cpu: CpuId, perf: u32) {
        let k = &mut *self;
        let core = k.topo.core_of(cpu);
        let capacity = k.capacity(cpu);
        let Some(hw) = &mut k.hardware else { return };
        let Some(steps) = &mut hw.steps else { return };
        steps.asked[cpu as usize] = perf;
        let threads = k.topo.cores[core as usize].iter();
        let asked = threads.map(|c| steps.asked[c as usize]).max();
        let kind = steps.kind(core, asked.unwrap_or(perf), capacity);
        let before = hw.of_core[core as usize];
        let Some(kind) = kind.filter(|kind| *kind != before) else {
            return;
        };
        hw.of_core[core as usize] = kind;
        let mut from = 0;
        loop {
            let next = self.topo.cores[core as usize].iter().find(|c| *c >= from);
            let Some(thread) = next else { return };
            from = thread + 1;
            let curr = self.cpus[thread as usize].curr;
            if !self.cpus[thread as usize].is_idle() {
                let hw = self.hardware.as_ref();
                let rate = hw.map_or(FULL, |hw| hw.rate(&self.topo, thread, curr));
                self.set_rate(thread, rate);
                // Who waits for memory all the time works no faster, and has more cycles.
                self.count_events(thread);
            }
        }
    }

    /// The task that runs here works on so many bytes from now on; a guest's host is told.
    pub fn set_working_set(mut self, cpu: CpuId, task: TaskId, bytes: u64) {
        let id = self.id;
        let Some(hw) = &mut self.hardware else { return };
        let phase = Phase {
            working_set: bytes,
            ..hw.phase(task)
        };
        if id == HOST {
            return self.set_phase(task, phase);
        }
        hw.set_phase(task, phase);
        self.tell_phase(cpu, task);
    }

    /// A task has another working set. If it runs, it is as if it left its CPU and came back at once: what it has
    /// brought in by now is there, and what is missing of the new set is brought from now on.
    #[cold]
    fn warm_anew(mut self, task: TaskId, bytes: u64) {
        let bytes = (bytes != Phase::BORN_WITH).then_some(bytes);
        let cpu = self.tasks.hot[task as usize].cpu;
        let runs = self.cpus[cpu as usize].curr == task;
        if runs {
            self.sync_work(cpu);
        }
        let k = &mut *self;
        let Some(hw) = &mut k.hardware else { return };
        let away = hw.away(&k.topo, cpu, task);
        let Some(caches) = &mut hw.caches else { return };
        if !runs {
            return caches.set_working_set(task, bytes);
        }
        caches.leaves(task, k.cpus[cpu as usize].pace.warm);
        caches.set_working_set(task, bytes);
        let warm = caches.comes(&k.topo, task, Some(cpu), cpu, away);
        self.set_warm(cpu, warm);
    }

    /// A busy CPU's caches are to be warmed for so long from now on.
    pub fn set_warm(mut self, cpu: CpuId, warm: Nanos) {
        if self.cpus[cpu as usize].pace.warm != warm {
            self.sync_work(cpu);
            let pace = &mut self.cpus[cpu as usize].pace;
            pace.warm = warm;
            pace.look();
            self.timed_anew(cpu, What::Warm { warm });
        }
    }

    /// The CPU's counters go on with what it does now.
    fn count_events(mut self, cpu: CpuId) {
        let k = &mut *self;
        let Some(hw) = &mut k.hardware else { return };
        if hw.pmu.is_none() {
            return;
        }
        let c = &k.cpus[cpu as usize];
        let doing = (c.curr >= k.cpus.len() as u32).then(|| {
            let clock = hw.kind(k.topo.core_of(cpu)).alone();
            let away = hw.away(&k.topo, cpu, c.curr).unwrap_or(0);
            Doing::new(c.curr, hw.phase(c.curr), c.pace.rate, clock, away)
        });
        if let Some(pmu) = &mut hw.pmu {
            pmu.begins(cpu, k.now, doing, c.pace.warm);
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
                let curr = self.cpus[sibling as usize].curr;
                let hw = self.hardware.as_ref();
                let rate = hw.map_or(FULL, |hw| hw.rate(&self.topo, sibling, curr));
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
        let pace = &mut self.cpus[cpu as usize].pace;
        pace.rate = rate;
        pace.look();
        self.timed_anew(cpu, What::Rate { rate });
    }

    /// The rest of what a busy CPU does takes another time than before; `what` its vCPU is told, if it is one.
    #[inline(always)]
    fn timed_anew(mut self, cpu: CpuId, what: What) {
        let now = self.now;
        let k = &mut *self;
        let c = &mut k.cpus[cpu as usize];
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
        self.count_events(cpu);
        if vcpu {
            self.vcpu_switched(cpu, curr, what);
        }
    }

    /// A guest's CPU gets a physical one that works at this pace.
    pub fn set_pace(mut self, cpu: CpuId, rate: u32, warm: Nanos) {
        let pace = &mut self.cpus[cpu as usize].pace;
        (pace.rate, pace.warm) = (rate, warm);
        pace.look();
    }
}
