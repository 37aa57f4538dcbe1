// SPDX-License-Identifier: GPL-2.0-only
//! On which CPUs the threads, interrupts and queues of a VM's network path belong, and why: no I/O, no clock.
//!
//! ```text
//! model   what is known of the host and its VMs
//! policy  what can be asked for
//! seat    which CPU, by NUMA node, load, SMT, isolation, kind of core and what others have
//! plan    from what is asked for to a CPU for each thread, interrupt and queue
//! auto    when the whole path is on one CPU, when on two, when nowhere in particular
//! ```
//! After Guo and Hao, whose `taskset` of a VM's process is the policy `paper`; `docs/affinity.md` says what else there
//! is.
pub mod auto;
mod model;
mod plan;
mod policy;
mod seat;

pub use model::{Cpu, Host, Irq, Part, Queue, Thread, Vm};
pub use plan::{Left, Placed, Refusal, Seat, Wanted, plan};
pub use policy::{Ask, Policy};

#[cfg(test)]
mod testing;
