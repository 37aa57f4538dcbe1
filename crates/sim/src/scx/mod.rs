// SPDX-License-Identifier: GPL-2.0-only
//! The kernel of one machine: the scheduler core as far as a sched_ext policy can observe it.
//!
//! ```text
//! spec       what a machine is made from
//! kernel     the state, and the handle through which all code reaches it
//! ops        calling the policy
//! pass       one pass through the scheduler: balance, pick, put, set next, switch
//! enqueue    a task becomes runnable or stops being so; dispatch queues' rules
//! dispatch   what ops.dispatch asked for is carried out
//! birth      forks, exits
//! wake       wake-ups, sleeps, yields
//! change     nice, affinity, class of a task
//! identity   VMs and the machine's shape, told to policies that ask for it
//! select_cpu, idle    the default choice of a CPU, and the masks of idle CPUs
//! kick       reschedule requests between CPUs
//! tick       ticks, charging of slices
//! higher     the classes above sched_ext
//! dsq, ordered        the queues themselves
//! cgroup     what a policy hears of cgroups
//! vcpu       a guest's CPU loses and gets its physical CPU; interrupts that come meanwhile
//! spin       spinning tasks
//! lifecycle  enable, bypass, watchdog, exit
//! calls      programs that the policy's own loader runs around its start
//! kfunc      the functions a policy may call
//! mutation   deliberately wrong variants, which the conformance tests must reject
//! ```
//!
//! What nearly every event runs through, some fifty functions of the crate, is put into one section of the program
//! (`.text.sim`). The hot part of them is about as large as a processor's first cache for code; scattered over a
//! program of megabytes its lines compete for the same places (at two levels 11 misses an event, in one piece 2;
//! `cachegrind` with 32 KB of 8 ways). A section says where code lies, and nothing else.
//!
//! `dequeue_task_inlined` and the others of such names are part of their callers: for the place that nearly every event
//! comes through. Everybody else calls `dequeue_task`, so that there are few copies.
//!
//! Semantics are those of Linux 7.1 and newer, row by row of the conformance checklist. Not modelled: queued
//! (remote) wake-ups, core scheduling, sub-schedulers, tickless CPUs, the deadline server for sched_ext,
//! cpu.max throttling (the kernel's part of it: a policy is told the quota, as in the kernel), node distances
//! beyond "here" and "elsewhere". Older kernel lines differ in some rows; the conformance page lists them.
pub mod birth;
mod calls;
pub mod cgroup;
pub mod change;
pub mod consts;
pub mod dispatch;
pub mod dsq;
pub mod enqueue;
mod freezer;
pub mod hardware;
pub mod higher;
pub mod identity;
pub mod idle;
pub mod kernel;
pub mod kfunc;
pub mod kick;
pub mod lifecycle;
mod look_back;
pub mod mutation;
pub mod ops;
pub mod ordered;
pub mod pass;
pub mod select_cpu;
pub mod spec;
pub mod spin;
pub mod tick;
pub mod timer;
pub mod vcpu;
pub mod wake;

pub use kernel::{Handle, Kernel};
pub use mutation::{MUTATIONS, Mutation};
