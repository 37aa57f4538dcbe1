// SPDX-License-Identifier: GPL-2.0-only
//! The machine: everything that needs `unsafe`, behind functions that do not. What the rest of the kernel gets of it:
//! a command line and CPUs ([`start`]), a clock ([`clock`]), threads ([`thread`]) that traps switch ([`trap`]), memory
//! ([`heap`]), a lock ([`lock`]), a network card ([`nic`]), words on the serial port and an end ([`serial`], [`exit`]).
pub mod acpi;
pub mod clock;
pub mod cpu;
pub mod exit;
pub mod heap;
pub mod lapic;
pub mod lock;
pub mod nic;
mod pci;
mod port;
pub mod serial;
mod smp;
mod start;
pub mod thread;
pub mod trap;

/// CPUs that are used at most.
pub const CPUS_MAX: usize = 8;
