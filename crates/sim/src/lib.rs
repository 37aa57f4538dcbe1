// SPDX-License-Identifier: GPL-2.0-only
//! The simulator: engine, hardware, sched_ext kernel model, workload, invariants.
//!
//! ```text
//! words       what all rooms share: times, numbers, what a thread is (the ground, with dense, reference, unlikely)
//! engine      time and the event queue; knows nothing of CPUs
//! machine     topology, CPUs, tasks, cgroups: data only
//! scx         the kernel: passes through the scheduler, queues, idle masks, kicks, the policy's calls
//! guest       machines inside VMs: their CPUs are threads of the host; the one clock
//! workload    what tasks do: api (the line between work and machine), device (what tasks and clients give work to),
//!             and on them the work of a scenario
//! sim         a machine with its workload: the loop over events, of one machine and of many
//! run         one simulation: scenario, policy and seed in, record out
//! replicate   many runs at once
//! oracle      truths computed without the simulator, to hold it against
//! witness     what real guests note of themselves, noted of a simulated one
//! stats, trace, invariants, error
//! ```
//!
//! Each room (a folder, or a file here) knows those before it and none after it: `tests/rooms.rs` reads it from the
//! sources.
pub mod dense;
pub mod engine;
pub mod error;
pub mod guest;
pub mod invariants;
pub mod machine;
pub mod oracle;
pub mod record;
pub mod reference;
pub mod replicate;
pub mod run;
pub mod scx;
pub mod sim;
pub mod stats;
#[cfg(test)]
mod testing;
pub mod trace;
mod unlikely;
pub mod witness;
pub mod words;
pub mod workload;

pub use error::SimError;
pub use scx::spec::MachineSpec;
pub use sim::Simulation;
