// SPDX-License-Identifier: GPL-2.0-only
//! A scenario's VMs as real KVM micro-VMs: the same threads, names and cgroups as without KVM, but each vCPU thread
//! sits in `KVM_RUN`, and the work is done by a tiny guest (`guest.c`). See `docs/kvm.md`.
mod echo;
mod layout;
mod machine;
mod memory;
mod plan;
mod process;
mod program;
mod speed;
mod vcpu;

pub use echo::Echo;
pub(crate) use machine::Machine;
pub(crate) use memory::Counter;
pub(crate) use process::{Process, Say};
pub(crate) use vcpu::Vcpu;

use crate::LoadError;
use crate::form::Form;
use crate::sys::Clock;
use berth_scenario::model::Scenario;
use kvm_ioctls::Kvm;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// What can be wrong with KVM here, or with a scenario for it.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    /// The scenario needs something a micro-VM has not.
    #[error("a micro-VM cannot do {0}")]
    Unfit(String),
    #[error("/dev/kvm cannot be used here: {what}: {source}")]
    Device {
        what: &'static str,
        source: io::Error,
    },
    #[error("vCPU {thread}: {what}")]
    Guest { thread: String, what: String },
}

fn device(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> KvmError {
    move |e| KvmError::Device {
        what,
        source: io::Error::from_raw_os_error(e.errno()),
    }
}

/// `/dev/kvm`, if micro-VMs can be made with it.
///
/// # Errors
/// It is missing, may not be opened, or lacks something.
pub fn open() -> Result<Kvm, KvmError> {
    let kvm = Kvm::new().map_err(device("it cannot be opened"))?;
    for (has, what) in [
        (kvm_ioctls::Cap::Irqchip, "it has no interrupt controller"),
        (kvm_ioctls::Cap::Irqfd, "it has no irqfd"),
        (kvm_ioctls::Cap::IrqRouting, "it has no interrupt routing"),
        (
            kvm_ioctls::Cap::TscDeadlineTimer,
            "it has no deadline timer",
        ),
    ] {
        if !kvm.check_extension(has) {
            return Err(KvmError::Device {
                what,
                source: io::ErrorKind::Unsupported.into(),
            });
        }
    }
    Ok(kvm)
}

/// Who does what, if micro-VMs can do all of it.
///
/// # Errors
/// What they cannot.
pub(crate) fn fits(scenario: &Scenario) -> Result<Vec<plan::Placed>, LoadError> {
    let plan = plan::plan(scenario)?;
    match plan::unfit(scenario, &plan) {
        Some(what) => Err(KvmError::Unfit(what).into()),
        None => Ok(plan),
    }
}

/// Learns how fast guests compute here, which the first run does otherwise: before a policy schedules.
///
/// # Errors
/// KVM does not work here.
pub fn measure_speed(clock: Clock) -> Result<(), KvmError> {
    speed::Speed::here(&open()?, clock).map(|_| ())
}

/// A scenario's VMs as micro-VMs.
///
/// # Errors
/// KVM does not work here, or the scenario does not fit.
pub(crate) fn form(scenario: &Scenario, seed: u64) -> Result<Form, LoadError> {
    let plan = fits(scenario)?;
    let device = open()?;
    let speed = speed::Speed::here(&device, Clock::Cpu)?;
    let mut of_vm: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (ordinal, placed) in (0..).zip(&plan) {
        if let Some(vm) = &placed.thread.vm {
            of_vm.entry(vm.ordinal).or_default().push((ordinal, placed));
        }
    }
    let mut machines = BTreeMap::new();
    let (all, least, most) = speed.turns_per_second();
    let millions = |turns: u64| turns as f64 / 1e6;
    let mut notes = vec![format!(
        "vCPUs are those of real KVM micro-VMs; with all CPUs busy a guest's work loop turns {:.0} million times a \
         second of CPU time ({:.0} to {:.0} by CPU)",
        millions(all),
        millions(least),
        millions(most)
    )];
    for (vm, placed) in of_vm {
        let (machine, said) = Machine::new(speed, scenario, seed, &placed)?;
        notes.extend(said);
        machines.insert(vm, Arc::new(machine));
    }
    Ok(Form {
        threads: plan.into_iter().map(|p| p.thread).collect(),
        machines,
        notes,
    })
}
