// SPDX-License-Identifier: GPL-2.0-only
//! What a host shows of some time: for each VM run time and run delay, which every Linux host counts (`schedstat`,
//! `cpu.stat`), and which CPUs are online.
use crate::cpuset::CpuSet;
use crate::error::Error;
use crate::machine::{Cpu, Machine};
use crate::promise::Promise;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What was seen in `span_ns` up to `at_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// Of any clock that does not go back, ns.
    pub at_ns: u64,
    pub span_ns: u64,
    /// CPUs that are online.
    pub cpus: Vec<Cpu>,
    /// VMs that run now; one that is missing has stopped.
    pub vms: Vec<VmSeen>,
    /// Everything that is no VM.
    #[serde(default)]
    pub host: Load,
    /// Part of the time in which some task waited for a CPU (PSI, `cpu.pressure`, `some`); none: not known. Kept with
    /// the decision for its reader; run delays say the same by VM.
    #[serde(default)]
    pub pressure: Option<f64>,
}

/// Summed over threads, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// On CPUs.
    pub ran_ns: u64,
    /// In run queues (second field of `schedstat`).
    pub run_delay_ns: u64,
}

impl Load {
    /// CPUs that would have been used if there had been nothing to wait for.
    pub fn wanted(self, span_ns: u64) -> f64 {
        (self.ran_ns as f64 + self.run_delay_ns as f64) / span_ns as f64
    }

    /// CPUs used.
    pub fn used(self, span_ns: u64) -> f64 {
        self.ran_ns as f64 / span_ns as f64
    }
}

/// One VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmSeen {
    /// Unique on this host.
    pub name: String,
    pub vcpus: u32,
    #[serde(default)]
    pub promise: Promise,
    /// CPUs to which somebody else pinned it: they are left alone.
    #[serde(default)]
    pub pinned: Option<CpuSet>,
    pub load: Load,
}

impl Observation {
    /// The machine, if all is well.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn check(&self) -> Result<Machine, Error> {
        let machine = Machine::new(&self.cpus)?;
        if self.span_ns == 0 {
            return Err(Error::NoSpan);
        }
        let mut names = BTreeSet::new();
        for vm in &self.vms {
            if !names.insert(vm.name.as_str()) {
                return Err(Error::VmTwice(vm.name.clone()));
            }
            vm.promise.check(&vm.name, vm.vcpus)?;
        }
        Ok(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_observations_are_refused() {
        let vm = |name: &str| VmSeen {
            name: name.into(),
            vcpus: 1,
            promise: Promise::default(),
            pinned: None,
            load: Load::default(),
        };
        let good = Observation {
            at_ns: 0,
            span_ns: 1,
            cpus: Cpu::flat(2),
            vms: vec![vm("a"), vm("b")],
            ..Observation::default()
        };
        assert!(good.check().is_ok());
        let error = |change: &dyn Fn(&mut Observation)| {
            let mut o = good.clone();
            change(&mut o);
            o.check().unwrap_err()
        };
        assert_eq!(error(&|o| o.span_ns = 0), Error::NoSpan);
        assert_eq!(
            error(&|o| o.vms[1].name = "a".into()),
            Error::VmTwice("a".into())
        );
        assert_eq!(error(&|o| o.vms[1].vcpus = 0), Error::NoVcpus("b".into()));
    }

    #[test]
    fn what_is_wanted_is_run_time_and_run_delay() {
        let load = Load {
            ran_ns: 250,
            run_delay_ns: 500,
        };
        assert_eq!((load.wanted(1000), load.used(1000)), (0.75, 0.25));
    }
}
