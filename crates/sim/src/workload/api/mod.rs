// SPDX-License-Identifier: GPL-2.0-only
//! What a workload and the machine say to each other.
//!
//! The machine runs tasks; the workload decides what they do. When the running task has used up what it
//! asked for, the machine calls [`Workload::next`] in the context of that task, on its CPU, and executes
//! the returned [`Action`]. Everything a workload does to the machine goes through [`Ctx`], at the present
//! instant and on the present CPU: a wake-up from `next` is executed by the running task (the waker), one
//! from [`Workload::event`] by an interrupt on the CPU the event was armed for.
//!
//! Rules: no allocation, hashing or formatting in `next` and `event` (they are the event path); the same
//! calls in the same order for the same seed; a task returns [`Action::Block`] only if nothing is there for
//! it, checked in the same call of `next` (there are no lost wake-ups because nothing runs in between).
mod ctx;

pub use crate::machine::cgroup::{Bandwidth, CgroupError};
pub use crate::words::{
    CpuId, HOST, MachineId, MaskId, Nanos, Role, SchedClass, TaskId, TaskSpec, VmId, Who,
};
pub use ctx::Ctx;
use std::collections::BTreeMap;

/// What the running task does next. Zero-length actions are legal; more than [`MAX_INSTANT_ACTIONS`] in a row
/// without time passing stop the run (a workload that never computes nor sleeps).
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Burn this much CPU time (at speed 1), in ns.
    Compute {
        ns: Nanos,
    },
    /// Burn CPU time without end (until killed).
    ComputeForever,
    /// Burn CPU time until somebody calls [`Ctx::release`] for this task, wherever it is then (or kills it): a spin
    /// lock's waiter. The time does not count as work. On a guest CPU with pause-loop exiting, spinning for the
    /// VM's window makes the vCPU's thread yield, again and again.
    Spin,
    /// Sleep until somebody calls [`Ctx::wake`].
    Block,
    /// Sleep until this instant (a timer on the CPU the task runs on); an instant not in the future returns at once.
    SleepUntil {
        at: Nanos,
    },
    /// `sched_yield`.
    Yield,
    /// -20..=19.
    SetNice(i32),
    /// Be in this phase from here on ([`crate::words::Phase`]); without `ipc` that stays as it is.
    Stall {
        stalled: u32,
        ipc: Option<u32>,
    },
    /// Work on so many bytes over and over from here on. A smaller set is a part of a larger one.
    SetWorkingSet(u64),
    /// A mask from [`Ctx::mask`].
    SetAffinity(MaskId),
    /// Change the scheduling class (a thread leaving or joining SCHED_EXT).
    SetClass(SchedClass),
    /// Start one more thread, as `clone` by the running task. It is announced with [`Workload::born`].
    Fork(Box<TaskSpec>),
    Exit,
}

/// Limit of actions in a row that take no time.
pub const MAX_INSTANT_ACTIONS: u32 = 1_000_000;

/// The work of one run.
pub trait Workload {
    /// Called once at time 0, after the policy is in charge and all CPUs idle: create tasks, arm events.
    fn start(&mut self, ctx: &mut Ctx);

    /// A task exists now (from [`Ctx::spawn`] or [`Action::Fork`]); `token` is its [`TaskSpec::token`].
    /// Called before the task can run.
    fn born(&mut self, token: u32, task: TaskId);

    /// A task has exited: its [`TaskId`] may be reused from now on.
    fn died(&mut self, token: u32, task: TaskId);

    /// The running task has done what it asked for (or runs for the first time after birth or sleep).
    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action;

    /// An event of [`Ctx::at`] is due; runs as an interrupt on [`Ctx::cpu`].
    fn event(&mut self, token: u64, now: Nanos, ctx: &mut Ctx);

    /// The warm-up is over: samples before this instant do not count.
    fn measure_from(&mut self, now: Nanos);

    /// At the end: the workload's own metrics (`web.response.p99`, ...), see `berth_results::schema`.
    fn metrics(&self, now: Nanos, out: &mut BTreeMap<String, f64>);

    /// At the end: distributions of its own times, by name (`web.response`).
    fn times(&self, out: &mut BTreeMap<String, berth_results::detail::Distribution>) {
        let _ = out;
    }

    /// An invariant of the workload that does not hold at the end, as one sentence (Little's law, lost requests).
    fn violated(&self, now: Nanos) -> Option<String> {
        let _ = now;
        None
    }
}
