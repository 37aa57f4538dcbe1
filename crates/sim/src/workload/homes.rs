// SPDX-License-Identifier: GPL-2.0-only
//! Where threads live: the VMs of a scenario, and the host beside them. Nothing here changes in a run.
use super::api::{CpuId, Ctx, HOST};
use super::device::Place;
use berth_scenario::model::{Scenario, Vm};
use berth_scenario::placement::{self, VmInstance};
use std::ops::Range;

/// A home is a VM's ordinal, or the number of VMs: the host.
pub(super) struct Homes {
    pub scenario: Scenario,
    pub seed: u64,
    pub vms: Vec<VmInstance>,
    /// By VM: its tasks are tasks of the machine inside it.
    inside: Vec<bool>,
    /// By VM: vCPUs that are there for I/O; none: every vCPU takes interrupts.
    io_vcpus: Vec<Range<CpuId>>,
    host_cpus: u32,
    /// By VM: whose locks and the like its threads share.
    meets: Vec<u32>,
}

impl Homes {
    /// `guest` tells which VM groups have the guest level.
    pub fn new(scenario: &Scenario, seed: u64, guest: &dyn Fn(usize) -> bool) -> Homes {
        let vms = placement::instances(scenario);
        Homes {
            inside: vms.iter().map(|vm| guest(vm.group)).collect(),
            io_vcpus: vms
                .iter()
                .map(|vm| io_vcpus(&scenario.vms[vm.group]))
                .collect(),
            vms,
            scenario: scenario.clone(),
            seed,
            host_cpus: scenario.host.nr_cpus().max(1),
            meets: placement::meeting_places(scenario),
        }
    }

    /// The home that is no VM.
    pub fn host(&self) -> u32 {
        self.vms.len() as u32
    }

    /// The home whose locks, barriers, events and pools of work the threads of this one share.
    pub fn meets(&self, home: u32) -> u32 {
        self.meets.get(home as usize).copied().unwrap_or(home)
    }

    /// Nobody else's threads share them.
    pub fn meets_alone(&self, home: u32) -> bool {
        let with = self.meets(home);
        with == home && self.meets.iter().filter(|m| **m == home).count() <= 1
    }

    /// VMs and host.
    pub fn count(&self) -> usize {
        self.vms.len() + 1
    }

    /// What the scenario says of a VM; none: the host.
    pub fn vm(&self, home: u32) -> Option<&Vm> {
        let vm = self.vms.get(home as usize)?;
        Some(&self.scenario.vms[vm.group])
    }

    /// Is this home a VM with the guest level?
    pub fn is_inside(&self, home: u32) -> bool {
        self.inside.get(home as usize) == Some(&true)
    }

    /// The vCPU that takes a device's interrupt for a thread that is on this one: one of those that are there for I/O,
    /// if there are some (reserved ones: FLMS, decision D14b of its specification; turbo vCPUs: vTurbo).
    pub fn takes_interrupt(&self, home: u32, cpu: CpuId) -> CpuId {
        match self.io_vcpus.get(home as usize) {
            Some(io) if !io.is_empty() && !io.contains(&cpu) => {
                io.start + cpu % (io.end - io.start)
            }
            _ => cpu,
        }
    }

    /// vCPUs of all VMs with the guest level.
    pub fn guest_vcpus(&self) -> usize {
        let inside = (0..self.host()).filter(|vm| self.is_inside(*vm));
        let vcpus = inside
            .filter_map(|vm| self.vm(vm))
            .map(|vm| vm.all_vcpus() as usize);
        vcpus.sum()
    }

    /// A CPU of the host for what happens outside a home, also when its guest asks for it.
    pub fn outside(&self, home: u32, ctx: &Ctx) -> Place {
        if ctx.machine() == HOST {
            Place::here(ctx)
        } else {
            Place::of_host(home % self.host_cpus)
        }
    }
}

/// They are the last ones.
fn io_vcpus(vm: &Vm) -> Range<CpuId> {
    let all = vm.all_vcpus();
    (0..all).find(|v| vm.is_reserved(*v)).unwrap_or(all)..all
}
