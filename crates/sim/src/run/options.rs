// SPDX-License-Identifier: GPL-2.0-only
//! How to run: what is asked for, and the machine and the VMs of a scenario.
use crate::machine::Shape;
use crate::scx::identity::VmSpec;
use crate::scx::mutation::Mutation;
use crate::scx::spec::MachineSpec;
use crate::trace;
use crate::words::VmId;
use berth_policy::needs::Needs;
use berth_policy::policy::Policy;
use berth_scenario::dist::{Rng, Stream, lead_ns, uptime_ns};
use berth_scenario::model::{Host, Hz, Scenario, VmRole};
use berth_scenario::placement::{VmInstance, instances};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Interpret the policy, checking every access: slower; errors name function, file and line.
    pub checked: bool,
    /// Slices end by a timer besides the ticks, as those of Linux's own scheduler do from 7.2 on
    /// ([`MachineSpec::slice_timer`]).
    pub slice_timer: bool,
    /// A deliberately wrong kernel model (tests of tests).
    pub mutation: Option<Mutation>,
    /// Which scheduler of the object, if it has several.
    pub ops_var: Option<String>,
    /// Keep the trace ([`super::run_traced`]).
    pub record: bool,
    /// Told what happens. A run with one is not repeated in checked mode when the policy fails.
    pub sink: Option<trace::SharedSink>,
    /// By VM group: the scheduler inside. Without one, or for driver domains, a VM's tasks are folded onto its vCPU
    /// threads (see [`berth_scenario::placement`]).
    pub guests: Vec<Option<GuestPolicy>>,
    /// Set from outside (Ctrl-C) to end a run early, with [`crate::SimError::Cancelled`].
    pub cancel: Option<&'static AtomicBool>,
}

/// The scheduler inside the VMs of a group.
#[derive(Clone)]
pub struct GuestPolicy {
    pub policy: Policy,
    pub params: BTreeMap<String, String>,
}

impl std::fmt::Debug for GuestPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GuestPolicy({}, {:?})", self.policy.hash(), self.params)
    }
}

impl Options {
    /// The scheduler inside the VMs of this group, if they have one.
    pub fn guest(&self, scenario: &Scenario, group: usize) -> Option<&GuestPolicy> {
        let folded = scenario.vms[group].role == VmRole::Driver;
        self.guests.get(group)?.as_ref().filter(|_| !folded)
    }
}

/// Kernels from this line on end the slices of their own scheduler by a timer, not only at ticks (HRTICK);
/// sched_ext policies are not concerned. The lab shows it: five hogs on one CPU are switched 1,413 times a second.
const TIMER_SINCE: (u32, u32) = (7, 2);

/// What the machine does for the kernel's own scheduler only, which a policy stands in for.
pub fn kernel_scheduler(host: &mut Host, opts: &mut Options) {
    host.cost.own_scheduler();
    let mut line = host.kernel.split('.').map(|n| n.parse().unwrap_or(0));
    let line = (line.next().unwrap_or(0), line.next().unwrap_or(0));
    opts.slice_timer = line >= TIMER_SINCE;
}

/// The machine of a scenario's host.
pub fn machine_spec(host: &Host, seed: u64, opts: &Options) -> MachineSpec {
    let ticks = host.hz != Hz::Exact;
    MachineSpec {
        shape: Shape {
            nodes: host.nodes,
            packages: host.packages,
            llcs: host.llcs,
            cores: host.cores,
            threads: host.threads,
        },
        hz: host.hz,
        slice_timer: opts.slice_timer && ticks,
        steal_accounting: true,
        ple_yield: host.ple_yield.unwrap_or_default(),
        cost: host.cost.clone(),
        tick_phase_ns: match host.hz {
            // A real machine's ticks know nothing of when the work begins.
            Hz::Ticks(hz) => {
                Rng::new(seed, Stream::Ticks).below(1_000_000_000 / u64::from(hz.max(1)))
            }
            Hz::Exact => 0,
        },
        // Nor does what the policy does by timers of its own.
        lead_ns: if ticks { lead_ns(seed) } else { 0 },
        uptime_ns: if ticks { uptime_ns(seed) } else { 0 },
        tasks: 64,
        needs: Needs::ALL,
        shared_cgroups: BTreeMap::new(),
        memory: BTreeMap::new(),
        seed,
        mutation: opts.mutation,
        hotplug: host.hotplug.clone(),
    }
}

/// The cgroups that VMs of a scenario share.
pub fn shared_cgroups(scenario: &Scenario) -> BTreeMap<VmId, String> {
    let name = |v: VmInstance| Some((v.ordinal, scenario.vms[v.group].cgroup.clone()?));
    instances(scenario).into_iter().filter_map(name).collect()
}

/// Where the memory of a scenario's VMs is, of those that say it.
pub fn memory(scenario: &Scenario) -> BTreeMap<VmId, Vec<u32>> {
    let of = |v: VmInstance| (v.ordinal, scenario.vms[v.group].memory_ppm.clone());
    let all = instances(scenario).into_iter().map(of);
    all.filter(|(_, parts)| !parts.is_empty()).collect()
}

/// The VMs of a scenario, in the order of their numbers.
pub fn vm_specs(scenario: &Scenario) -> Vec<VmSpec> {
    let of = |v: VmInstance| {
        let vm = &scenario.vms[v.group];
        VmSpec {
            name: v.name,
            group: v.group as u32,
            class: vm.class,
            weight: vm.weight,
            cap_milli: vm.cap_milli,
            vcpus: vm.vcpus,
        }
    };
    instances(scenario).into_iter().map(of).collect()
}
