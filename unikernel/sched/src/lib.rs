// SPDX-License-Identifier: GPL-2.0-only
//! The unikernel's scheduler: which task runs next, on which CPU, and for how long. It knows no thread, no timer and no
//! lock: whoever runs tasks asks it ([`Scheduler::dispatch`]) and tells it what became of them. So the same code is
//! driven by the kernel's traps and, on any host, by [`machine`] and the tests.
//!
//! A [`Task`] is owned by whom it is with: by the scheduler while it waits, by the CPU while it runs, by nobody here
//! while it sleeps. That nothing runs twice is therefore a matter of types.
//!
//! Policies: M-RSF (Dong, Yang, Li, DOI 10.11959/j.issn.1000-436x.2024061), FCFS, RR, and MQMS as that paper describes
//! its baseline (not what OSv does).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod config;
mod counters;
mod estimate;
mod fifo;
pub mod machine;
mod mqms;
mod mrsf;
mod queue;
mod scheduler;
mod task;

pub use config::{Config, Map, Policy, Refused};
pub use counters::Counters;
pub use estimate::{CLASSES, Learned};
pub use scheduler::Scheduler;
pub use task::Task;
