// SPDX-License-Identifier: GPL-2.0-only
//! The guests of a scenario: their machines and schedulers, and what is told of them at the end.
use super::load::load_guest_policy;
use super::options::Options;
use super::window::settle;
use crate::error::SimError;
use crate::guest::{GuestSpec, WorldRef, machine_of};
use crate::machine::Shape;
use crate::scx::spec::MachineSpec;
use crate::sim::Simulation;
use crate::words::{Nanos, Role, TaskSpec, VmId};
use crate::workload::scenario::ScenarioWorkload;
use berth_policy::instance::Instance;
use berth_scenario::model::{HostCost, Hz, Scenario, Step, Vm};
use berth_scenario::placement::{VmInstance, instances};
use std::collections::BTreeMap;

/// A guest's own costs: speeds, caches and turns are those of the physical CPU under it, which passes them on. Its
/// ticks are no later than there is time between them.
fn inside(host: &HostCost, hz: Hz) -> HostCost {
    let most = match hz {
        Hz::Ticks(hz) => HostCost::most_tick_jitter_ns(hz),
        Hz::Exact => u64::MAX,
    };
    HostCost {
        tick_jitter_ns: host.tick_jitter_ns.min(most),
        tick_skew_ns: 0,
        turn_ns: 0,
        smt_ppm: 0,
        kinds: Vec::new(),
        cache: None,
        ..host.clone()
    }
}

/// The largest working set of a VM's tasks; none: the host's default.
fn working_set(scenario: &Scenario, vm: &Vm) -> Option<u64> {
    let tasks = vm.tasks.iter().filter_map(|t| scenario.tasks.get(t));
    tasks.filter_map(|t| t.working_set).max()
}

/// The thread of a vCPU on the host, as the VM's manager starts it.
fn thread(
    m: &Simulation<ScenarioWorkload>,
    vm: &Vm,
    instance: &VmInstance,
    vcpu: u32,
    working_set: Option<u64>,
) -> TaskSpec {
    TaskSpec {
        name: format!("{}/{vcpu}", instance.name),
        vm: Some(instance.ordinal),
        role: Role::Vcpu(vcpu),
        io: vm.is_reserved(vcpu),
        score_milli: vm.score_milli(vcpu),
        nice: vm.nice,
        affinity: m.kernel().mask(&vm.affinity),
        working_set,
        ..TaskSpec::default()
    }
}

/// Give the VMs of a scenario that have one their machine.
pub fn add(m: &mut Simulation<ScenarioWorkload>, scenario: &Scenario, seed: u64, opts: &Options) {
    let mut steps = scenario
        .tasks
        .values()
        .flat_map(|t| t.first.iter().chain(&t.steps));
    let sets_change = steps.any(|s| matches!(s, Step::Stall(stall) if stall.working_set.is_some()));
    if let Some(hw) = &mut m.kernel().hardware {
        hw.sets_change = sets_change;
    }
    let tasks = m.workload.guest_tasks();
    for instance in instances(scenario) {
        let vm = &scenario.vms[instance.group];
        let Some(guest) = opts.guest(scenario, instance.group) else {
            continue;
        };
        let machine = MachineSpec {
            hz: vm.guest.hz,
            // The timer is Linux's own scheduler's.
            slice_timer: vm.guest.hrtick && vm.guest.policy == "linux" && vm.guest.hz != Hz::Exact,
            steal_accounting: vm.guest.steal_accounting,
            cost: inside(&scenario.host.cost, vm.guest.hz),
            tasks: tasks[instance.ordinal as usize],
            needs: guest.policy.needs(),
            // Each guest has random numbers of its own.
            seed: seed ^ (u64::from(instance.ordinal) + 1) << 32,
            mutation: opts.mutation,
            ..MachineSpec::new(Shape::flat(vm.all_vcpus().max(1)))
        };
        let set = working_set(scenario, vm);
        let threads = (0..vm.all_vcpus())
            .map(|v| thread(m, vm, &instance, v, set))
            .collect();
        let mut spec = GuestSpec::new(machine, threads);
        spec.ple_window_ns = if vm.guest.ple {
            vm.guest.ple_window_ns
        } else {
            0
        };
        (spec.entry_ns, spec.exit_ns) = (
            scenario.host.cost.vm_entry_ns,
            scenario.host.cost.vm_exit_ns,
        );
        spec.halt_poll_ns = vm.guest.halt_poll_ns;
        m.add_guest(instance.ordinal, &instance.name, &spec);
    }
}

/// Load the schedulers of the guests.
///
/// # Errors
/// A parameter that the policy does not have, or a value out of bounds.
pub fn load(
    m: &mut Simulation<ScenarioWorkload>,
    scenario: &Scenario,
    opts: &Options,
) -> Result<(), SimError> {
    // Which scheduler of an object with several: the option is the host's.
    let inside = Options {
        ops_var: None,
        ..opts.clone()
    };
    for instance in instances(scenario) {
        if let Some(guest) = opts.guest(scenario, instance.group) {
            let vm = instance.ordinal;
            load_guest_policy(m, vm, &guest.policy, &guest.params, &inside)
                .map_err(|e| in_guest(&instance.name, e))?;
        }
    }
    Ok(())
}

fn in_guest(vm: &str, error: SimError) -> SimError {
    SimError::Guest {
        vm: vm.to_string(),
        error: Box::new(error),
    }
}

/// What the guests had counted when the measured window began.
pub struct Before {
    at_ns: Nanos,
    vcpus: Vec<(Nanos, Nanos, Nanos)>,
    switches: Vec<u64>,
    /// By VM, tasks moved by its agent; none: it has none.
    moved: Vec<Option<u64>>,
    /// By VM, what its guest's policy has counted.
    counters: Vec<Vec<(String, u64)>>,
}

fn switches(w: WorldRef, vm: VmId) -> u64 {
    let k = w.guest(machine_of(vm));
    k.map_or(0, |k| k.cpus.iter().map(|c| c.switches).sum())
}

/// What the policy of a VM's guest has counted since it was loaded; nothing: it has none, or it is the kernel's own.
fn counters(w: WorldRef, vm: VmId) -> Vec<(String, u64)> {
    let k = w.guest(machine_of(vm));
    k.and_then(|k| k.policy.instance().map(Instance::counters))
        .unwrap_or_default()
}

impl Before {
    /// Now; what guests count of their tasks begins anew.
    pub fn of(m: &Simulation<ScenarioWorkload>) -> Before {
        let w = m.world();
        for mut k in w.machines.iter().skip(1).copied().flatten() {
            settle(k);
            k.stats.reset();
        }
        Before {
            at_ns: w.host().now,
            vcpus: (0..w.vcpus.len() as u32).map(|v| w.times(v)).collect(),
            switches: (0..w.guests.len() as u32)
                .map(|vm| switches(w, vm))
                .collect(),
            moved: m.workload.moved(),
            counters: (0..w.guests.len() as u32)
                .map(|vm| counters(w, vm))
                .collect(),
        }
    }

    /// Per VM with a guest, and per group: shares of wall time, and what the guest itself counts.
    pub fn metrics(
        &self,
        m: &Simulation<ScenarioWorkload>,
        scenario: &Scenario,
        out: &mut BTreeMap<String, f64>,
    ) {
        let (w, moved) = (m.world(), m.workload.moved());
        let span = (w.host().now - self.at_ns).max(1) as f64;
        for k in w.machines.iter().skip(1).copied().flatten() {
            settle(k);
        }
        let moved = |vms: &[VmId]| -> Option<u64> {
            let of = |vm: &VmId| Some(moved[*vm as usize]? - self.moved[*vm as usize].unwrap_or(0));
            vms.iter().map(of).sum()
        };
        let one = |name: &str, vms: &[VmId], out: &mut BTreeMap<String, f64>| {
            self.of_vms(w, name, vms, span, out);
            if let Some(moved) = moved(vms).filter(|_| !vms.is_empty()) {
                out.insert(format!("{name}.guest.moved"), moved as f64 / (span / 1e9));
            }
        };
        let all = instances(scenario);
        for (g, group) in scenario.vms.iter().enumerate() {
            let members: Vec<&VmInstance> = all.iter().filter(|i| i.group == g).collect();
            if members.len() > 1 {
                for i in &members {
                    one(&i.name, &[i.ordinal], out);
                }
            }
            let list: Vec<VmId> = members.iter().map(|i| i.ordinal).collect();
            one(&group.name, &list, out);
            for (counter, n) in self.counted(w, &list) {
                let name = format!("{}.guest.policy.{counter}", group.name);
                out.insert(name, n as f64 / (span / 1e9));
            }
        }
    }

    /// What the policies of these VMs' guests have counted since then, in sum.
    fn counted(&self, w: WorldRef, vms: &[VmId]) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for vm in vms {
            // Where no VM has a guest nothing is kept of them.
            let then = self.counters.get(*vm as usize).into_iter().flatten();
            for ((name, now), (_, then)) in counters(w, *vm).into_iter().zip(then) {
                *sum.entry(name).or_default() += now.wrapping_sub(*then);
            }
        }
        sum
    }

    fn of_vms(
        &self,
        w: WorldRef,
        name: &str,
        vms: &[VmId],
        span: f64,
        out: &mut BTreeMap<String, f64>,
    ) {
        let (mut run, mut steal, mut halt, mut n) = (0, 0, 0, 0u64);
        let (mut work, mut passes, mut migrations) = (0, 0, 0);
        for vm in vms {
            let Some(k) = w.guest(machine_of(*vm)) else {
                continue;
            };
            for v in k.guest.first_vcpu..k.guest.first_vcpu + k.cpus.len() as u32 {
                let (now, then) = (w.times(v), self.vcpus[v as usize]);
                run += now.0 - then.0;
                steal += now.1 - then.1;
                halt += now.2 - then.2;
                n += 1;
            }
            let counters = &k.stats.vms[0];
            work += counters.work_ns;
            migrations += counters.migrations;
            passes += switches(w, *vm) - self.switches[*vm as usize];
        }
        if n == 0 {
            return;
        }
        let wall = n as f64 * span;
        let mut put = |what: &str, value: f64| {
            out.insert(format!("{name}.{what}"), value);
        };
        put("run", run as f64 / wall);
        put("steal", steal as f64 / wall);
        put("halt", halt as f64 / wall);
        // What its tasks got done: costs and spinning excluded.
        put("work", work as f64);
        put("guest.switches", passes as f64 / (span / 1e9));
        put("guest.migrations", migrations as f64 / (span / 1e9));
    }
}
