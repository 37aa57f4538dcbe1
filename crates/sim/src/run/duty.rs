// SPDX-License-Identifier: GPL-2.0-only
//! VMs that are frozen by turns, as [`berth_optimiser::duty`] lays them out: a timer of the host's manager writes
//! `cgroup.freeze` at the beginning and end of each.
use crate::error::SimError;
use crate::sim::Simulation;
use crate::words::{Nanos, VmId};
use crate::workload::api::Workload;
use berth_optimiser::CpuSet;
use berth_optimiser::duty::{Turn, turns};

/// Whose turn it is.
pub struct Duty {
    /// Of each VM; none: it is never frozen.
    turns: Vec<Option<Turn>>,
    frozen: Vec<bool>,
    /// When somebody is frozen or thawed next.
    next_ns: Nanos,
}

impl Duty {
    /// Nobody is frozen.
    pub fn new(vms: usize) -> Duty {
        Duty {
            turns: vec![None; vms],
            frozen: vec![false; vms],
            next_ns: Nanos::MAX,
        }
    }

    /// [`Duty::take_turns`] is due then.
    pub fn next_ns(&self) -> Nanos {
        self.next_ns
    }

    /// Each VM's CPUs and the part of the time in which it runs from now on; none: all of it.
    pub fn set(&mut self, vms: impl Iterator<Item = Option<(Option<CpuSet>, f64)>>) {
        let vms: Vec<_> = vms.collect();
        let of = |vm: &'_ Option<(Option<CpuSet>, f64)>| vm.as_ref().map(|(_, fraction)| *fraction);
        let cpus = vms
            .iter()
            .map(|vm| vm.as_ref().and_then(|(cpus, _)| cpus.as_ref()));
        self.turns = turns(cpus.zip(vms.iter().map(of)));
    }

    /// Freezes and thaws whose time it is.
    ///
    /// # Errors
    /// A VM that the machine does not have.
    pub fn take_turns<W: Workload>(&mut self, m: &mut Simulation<W>) -> Result<(), SimError> {
        let k = m.kernel();
        let now = k.now;
        let due = |turn: &Option<Turn>| turn.is_some_and(|turn| !turn.runs(now));
        let frozen: Vec<bool> = self.turns.iter().map(due).collect();
        let next = self.turns.iter().flatten().map(|turn| turn.next(now));
        self.next_ns = next.min().unwrap_or(Nanos::MAX);
        if frozen == self.frozen {
            return Ok(());
        }
        let cpu = k.online.first().unwrap_or(0);
        let done = m.with(cpu, |_, ctx| {
            // Who is frozen first leaves room for who is thawed.
            for on in [true, false] {
                for (vm, now) in frozen.iter().enumerate() {
                    if *now == on && self.frozen[vm] != on {
                        ctx.freeze_vm(vm as VmId, on)?;
                    }
                }
            }
            Ok(())
        });
        self.frozen = frozen;
        done.map_err(|e: crate::workload::api::CgroupError| {
            SimError::Setting(format!("the optimiser cannot freeze a VM: {e}"))
        })
    }
}
