// SPDX-License-Identifier: GPL-2.0-only
//! The specification of a machine.
use super::mutation::Mutation;
use crate::machine::topology::Shape;
use crate::words::{Nanos, VmId};
use berth_policy::needs::Needs;
use berth_scenario::model::{HostCost, Hz, PleYield};
use std::collections::BTreeMap;

/// What a machine is built from.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    pub shape: Shape,
    pub hz: Hz,
    pub cost: HostCost,
    /// Slices end by a timer of their own besides the ticks (HRTICK): exactly, unless a tick is being worked on just
    /// then.
    pub slice_timer: bool,
    /// A guest's: time for which its vCPUs have no physical CPU is charged to nobody; else to who runs there.
    pub steal_accounting: bool,
    /// A host's: what becomes of a vCPU that spins for a window.
    pub ple_yield: PleYield,
    /// Time of the first tick, ns.
    pub tick_phase_ns: Nanos,
    /// How long the policy has been in charge when the run starts, ns.
    pub lead_ns: Nanos,
    /// What the clock that policies read says at the start of the run, ns; at least the lead.
    pub uptime_ns: Nanos,
    /// Tasks expected: room in one piece.
    pub tasks: usize,
    /// What its policy can reach of the kernel's objects ([`berth_policy::policy::Policy::needs`]): less takes less
    /// memory.
    pub needs: Needs,
    /// Cgroups that are not their VMs' own, by name.
    pub shared_cgroups: BTreeMap<VmId, String>,
    /// Part of a VM's memory on each node, parts per million, of those of which it is said.
    pub memory: BTreeMap<VmId, Vec<u32>>,
    pub seed: u64,
    pub mutation: Option<Mutation>,
    /// CPUs going off- and online, in time order.
    pub hotplug: Vec<berth_scenario::model::Hotplug>,
}

impl MachineSpec {
    /// A machine without costs, ticking at 1000 Hz, for any policy.
    pub fn new(shape: Shape) -> Self {
        MachineSpec {
            shape,
            hz: Hz::Ticks(1000),
            cost: HostCost::default(),
            slice_timer: false,
            steal_accounting: true,
            ple_yield: PleYield::Kvm,
            tick_phase_ns: 0,
            lead_ns: 0,
            uptime_ns: 0,
            tasks: 64,
            needs: Needs::ALL,
            shared_cgroups: BTreeMap::new(),
            memory: BTreeMap::new(),
            seed: 1,
            mutation: None,
            hotplug: Vec::new(),
        }
    }
}
