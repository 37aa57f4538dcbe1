// SPDX-License-Identifier: GPL-2.0-only
//! The optimiser beside a simulated host: every period it sees what a host shows (run time and run delay of each VM,
//! which CPUs are online), and what it decides is done as a host's manager would do it: affinity of threads,
//! `cpu.weight`, `cpu.max`, `cgroup.freeze` by turns. It takes no CPU time.
use super::duty::Duty;
use super::window::settle;
use crate::error::SimError;
use crate::machine::MaskId;
use crate::machine::cgroup::{Bandwidth, PERIOD_US};
use crate::machine::task::Life;
use crate::scx::identity::VmSpec;
use crate::scx::kernel::Handle;
use crate::sim::Simulation;
use crate::words::{CpuId, Nanos, TaskId, VmId};
use crate::workload::api::{Ctx, Workload};
use berth_optimiser::{
    Change, Cpu, CpuSet, Decision, Load, Observation, Optimiser, Promise, Setting, VmSeen,
};
use berth_scenario::model::Scenario;

/// The least `cpu.max`, of a period.
const LEAST_QUOTA_US: u64 = 1_000;

/// The optimiser, and what it knows of the host from its last look.
pub struct Controller {
    optimiser: Optimiser,
    period_ns: Nanos,
    next_ns: Nanos,
    last_ns: Nanos,
    vms: Vec<Watched>,
    /// The host's own threads, at the last look.
    host: Load,
    duty: Duty,
    /// Changes decided in the measured window.
    changes: u64,
    decisions: Vec<Decision>,
}

/// One VM.
struct Watched {
    name: String,
    vcpus: u32,
    promise: Promise,
    /// `cpu.max` of its own, as the scenario has it.
    quota_us: Option<u64>,
    /// Where its manager pinned it; none: not looked at yet.
    pinned: Option<Option<CpuSet>>,
    /// What the optimiser gave its threads.
    mask: MaskId,
    /// At the last look.
    before: Load,
}

impl Controller {
    /// # Errors
    /// A setting out of its range.
    pub fn new(scenario: &Scenario, vms: &[VmSpec]) -> Result<Option<Controller>, SimError> {
        let Some(asked) = &scenario.optimiser else {
            return Ok(None);
        };
        let optimiser = Optimiser::new(asked.settings).map_err(wrong)?;
        let watched = |vm: &VmSpec| Watched {
            name: vm.name.clone(),
            vcpus: vm.vcpus,
            promise: asked.promise(&scenario.vms[vm.group as usize]),
            quota_us: vm.cap_milli.map(|c| c * PERIOD_US / 1000),
            pinned: None,
            mask: MaskId::ALL,
            before: Load::default(),
        };
        Ok(Some(Controller {
            period_ns: asked.settings.period_ns,
            next_ns: asked.settings.period_ns,
            last_ns: 0,
            vms: vms.iter().map(watched).collect(),
            host: Load::default(),
            duty: Duty::new(vms.len()),
            changes: 0,
            decisions: Vec::new(),
            optimiser,
        }))
    }

    /// Runs the machine up to `end`, and looks at it whenever a period is over.
    ///
    /// # Errors
    /// Whatever ended the run, or a decision that the machine refuses.
    pub fn run_until<W: Workload>(
        &mut self,
        m: &mut Simulation<W>,
        end: Nanos,
    ) -> Result<(), SimError> {
        loop {
            let next_ns = self.next_ns.min(self.duty.next_ns());
            if next_ns > end {
                return m.run_until(end);
            }
            m.run_until(next_ns)?;
            if next_ns == self.next_ns {
                self.next_ns += self.period_ns;
                self.look(m)?;
            }
            self.duty.take_turns(m)?;
        }
    }

    /// The machine's statistics begin anew: what they had so far belongs to the next look. To be called right before.
    pub fn before_reset(&mut self, k: Handle) {
        let minus = |before: Load, counted: Load| Load {
            ran_ns: before.ran_ns.wrapping_sub(counted.ran_ns),
            run_delay_ns: before.run_delay_ns.wrapping_sub(counted.run_delay_ns),
        };
        for (vm, entry) in self.vms.iter_mut().zip(0..) {
            vm.before = minus(vm.before, counted(k, entry));
        }
        self.host = minus(self.host, counted(k, k.stats.index(None)));
        self.changes = 0;
    }

    /// Decisions that changed something, and the first of all.
    pub fn into_decisions(self) -> Vec<Decision> {
        self.decisions
    }

    /// Changes in the measured window.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    fn look<W: Workload>(&mut self, m: &mut Simulation<W>) -> Result<(), SimError> {
        let k = m.kernel();
        settle(k);
        let threads = threads(k, self.vms.len());
        let seen = self.observation(k, &threads);
        let decision = self.optimiser.observe(&seen).map_err(wrong)?;
        let cpu = k.online.first().unwrap_or(0);
        let refused = m.with(cpu, |_, ctx| {
            let changes = decision.iter().flat_map(|d| &d.changes);
            let refused = changes
                .map(|c| self.change(c, &threads, ctx))
                .find_map(Result::err);
            self.follow(&threads, ctx);
            refused
        });
        if let Some(error) = refused {
            return Err(error);
        }
        self.duty.set(self.vms.iter().map(|vm| {
            let (setting, _) = self.optimiser.explain(&vm.name)?;
            Some((setting.cpus.clone(), setting.run_fraction?))
        }));
        if let Some(decision) = decision
            && (self.decisions.is_empty() || !decision.changes.is_empty())
        {
            self.changes += decision.changes.len() as u64;
            self.decisions.push(decision);
        }
        Ok(())
    }

    /// What the host shows of the time since the last look.
    fn observation(&mut self, k: Handle, threads: &[Vec<TaskId>]) -> Observation {
        let since = |before: &mut Load, now: Load| {
            let load = Load {
                ran_ns: now.ran_ns.wrapping_sub(before.ran_ns),
                run_delay_ns: now.run_delay_ns.wrapping_sub(before.run_delay_ns),
            };
            *before = now;
            load
        };
        let mut vms = Vec::new();
        for ((vm, entry), threads) in self.vms.iter_mut().zip(0..).zip(threads) {
            let load = since(&mut vm.before, counted(k, entry));
            if threads.is_empty() {
                (vm.pinned, vm.mask) = (None, MaskId::ALL);
                continue;
            }
            let pinned = vm.pinned.get_or_insert_with(|| pinned(k, threads)).clone();
            vms.push(VmSeen {
                name: vm.name.clone(),
                vcpus: vm.vcpus,
                promise: vm.promise,
                pinned,
                load,
            });
        }
        let host = since(&mut self.host, counted(k, k.stats.index(None)));
        let span_ns = k.now - std::mem::replace(&mut self.last_ns, k.now);
        Observation {
            at_ns: k.now,
            span_ns,
            cpus: k.online.iter().map(|cpu| of_cpu(k, cpu)).collect(),
            vms,
            host,
            pressure: None,
        }
    }

    /// Does what was decided for a VM.
    fn change(
        &mut self,
        change: &Change,
        threads: &[Vec<TaskId>],
        ctx: &mut Ctx,
    ) -> Result<(), SimError> {
        let Some(id) = self.vms.iter().position(|vm| vm.name == change.vm) else {
            return Ok(());
        };
        let vm = &mut self.vms[id];
        let refused = |e: crate::machine::cgroup::CgroupError| {
            SimError::Setting(format!("the optimiser cannot change VM {}: {e}", change.vm))
        };
        let Setting {
            cpus, weight, cap, ..
        } = &change.to;
        if change.from.cpus != *cpus {
            let mask = match cpus {
                Some(cpus) => ctx.mask(&cpus.iter().collect::<Vec<CpuId>>()),
                None => MaskId::ALL,
            };
            let before = std::mem::replace(&mut vm.mask, mask);
            for task in &threads[id] {
                if ctx.affinity(*task) == before {
                    ctx.set_affinity(*task, mask);
                }
            }
        }
        if change.from.weight != *weight {
            ctx.set_vm_weight(id as VmId, *weight).map_err(refused)?;
        }
        if change.from.cap != *cap {
            let quota_us = cap.map(|cap| ((cap * PERIOD_US as f64) as u64).max(LEAST_QUOTA_US));
            let to = Bandwidth {
                // What the scenario caps stays capped.
                quota_us: [quota_us, vm.quota_us].into_iter().flatten().min(),
                ..Bandwidth::default()
            };
            ctx.set_vm_bandwidth(id as VmId, to).map_err(refused)?;
        }
        Ok(())
    }

    /// Threads that a VM has started since go where it is. Those that chose CPUs themselves stay there.
    fn follow(&self, threads: &[Vec<TaskId>], ctx: &mut Ctx) {
        for (vm, threads) in self.vms.iter().zip(threads) {
            let pinned = vm.pinned.as_ref().is_some_and(Option::is_some);
            if vm.mask == MaskId::ALL || pinned {
                continue;
            }
            for task in threads {
                if ctx.affinity(*task) == MaskId::ALL {
                    ctx.set_affinity(*task, vm.mask);
                }
            }
        }
    }
}

fn wrong(error: berth_optimiser::Error) -> SimError {
    SimError::Setting(format!("optimiser: {error}"))
}

/// Run time and run delay of an entry of the statistics, as far as they are on account.
fn counted(k: Handle, entry: u32) -> Load {
    let c = &k.stats.vms[entry as usize];
    Load {
        ran_ns: c.ran_ns,
        run_delay_ns: c.waited_ns,
    }
}

fn of_cpu(k: Handle, cpu: CpuId) -> Cpu {
    Cpu {
        cpu,
        core: k.topo.core_of(cpu),
        llc: k.topo.llc_of(cpu),
        node: k.topo.node_of(cpu),
        capacity: k.capacity(cpu),
    }
}

/// The living threads of each VM.
fn threads(k: Handle, vms: usize) -> Vec<Vec<TaskId>> {
    let mut all = vec![Vec::new(); vms];
    for task in k.task_ids() {
        let hot = &k.tasks.hot[task as usize];
        if hot.life != Life::Dead
            && let Some(list) = all.get_mut(hot.stats as usize)
        {
            list.push(task);
        }
    }
    all
}

/// The CPUs to which all threads of a VM are pinned; `None`: some may run everywhere.
fn pinned(k: Handle, threads: &[TaskId]) -> Option<CpuSet> {
    let masks = || threads.iter().map(|task| k.tasks.hot[*task as usize].mask);
    if masks().any(|mask| mask == MaskId::ALL) {
        return None;
    }
    CpuSet::of(masks().flat_map(|mask| k.masks.get(mask).iter().collect::<Vec<_>>()))
}
