// SPDX-License-Identifier: GPL-2.0-only
//! The simulator's kernel model held against the kernel, call for call.
//!
//! One policy, `recorder.bpf.c`, writes down every call and does what a script says. A *row* of
//! the checklist is a cast of labelled threads, what each does, and a script. The same object and the same
//! cast run on a real kernel (in the lab's virtual machine, feature `lab`) and in the simulator; the logs
//! must agree: as sequences on one CPU, as partial orders on several. Logs of real kernels are stored in
//! `golden/`, one folder per kernel line, so that comparing takes seconds and no virtual machine.
pub mod golden;
pub mod log;
pub mod recorder;
pub mod report;
pub mod row;
pub mod rows;
pub mod sim;

#[cfg(feature = "lab")]
mod cgroups;
#[cfg(feature = "lab")]
pub mod kernel;
#[cfg(feature = "lab")]
pub mod vm;
