// SPDX-License-Identifier: GPL-2.0-only
//! Two levels: a virtual machine is one more machine of the same model, whose CPUs are threads of the host.
//!
//! ```text
//! world   all machines and the one clock; what became of the time of the vCPUs
//! power   a VM is switched on and off
//! ahead   memory of what happens next is asked for early; horizon: how far
//! pages   memory of many guests is put into huge pages
//! spin    the exit of a vCPU that spins for long (PLE)
//! ```
//!
//! How a guest's CPU loses and gets its physical CPU is `scx/vcpu`; the loop over the events of all machines, and what
//! one machine's events do to another, `sim/guests`; the guests of a scenario file, `run/guests`.
//!
//! A vCPU is a host task that has work without end. While it has a physical CPU, the guest's CPU of its number
//! has its slot in the guest's queue; otherwise it has none, and what is due for it waits. A guest CPU with
//! nothing to run puts its thread to sleep (halt); an interrupt for it wakes the thread.
pub mod ahead;
mod horizon;
mod pages;
pub mod power;
pub mod spin;
pub mod world;

pub use crate::machine::vcpu::{Vcpu, VcpuState};
pub use world::{World, WorldRef};

use crate::scx::spec::MachineSpec;
use crate::words::{MachineId, Nanos, TaskSpec, VmId};

/// Number of the machine inside a VM.
pub fn machine_of(vm: VmId) -> MachineId {
    vm + 1
}

/// What a guest is built from.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// The machine the guest sees: as many CPUs as the VM has vCPUs, its `hz`, its costs.
    pub machine: MachineSpec,
    /// The host threads of its vCPUs, in order.
    pub threads: Vec<TaskSpec>,
    /// A vCPU that spins for this long exits (pause-loop exiting), ns; 0 = never.
    pub ple_window_ns: Nanos,
    /// Cost of going into the guest and of leaving it, ns.
    pub entry_ns: Nanos,
    pub exit_ns: Nanos,
    /// How long the host waits for an interrupt before it lets the thread of a halted vCPU sleep, ns.
    pub halt_poll_ns: Nanos,
}

impl GuestSpec {
    /// A guest without costs.
    pub fn new(machine: MachineSpec, threads: Vec<TaskSpec>) -> Self {
        GuestSpec {
            machine,
            threads,
            ple_window_ns: 0,
            entry_ns: 0,
            exit_ns: 0,
            halt_poll_ns: 0,
        }
    }
}
