// SPDX-License-Identifier: GPL-2.0-only
//! The words that all rooms of the simulator share: times, numbers, what a thread is. They know nothing of the rooms.
use berth_identity::JobRecord;
pub use berth_identity::Role;

/// Nanoseconds since the machine started.
pub type Nanos = u64;
/// Dense number of a task in its machine; reused after the task has exited.
pub type TaskId = u32;
/// Number of a CPU, from 0.
pub type CpuId = u32;
/// Number of a VM: VM groups in the scenario's order, `count` consecutive numbers each.
pub type VmId = u32;

/// Number of a machine of the run: 0 is the host, 1 + n the machine inside VM n (if it has the guest level).
pub type MachineId = u32;
/// The host.
pub const HOST: MachineId = 0;

/// An interned CPU mask of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaskId(pub u32);

impl MaskId {
    /// Every CPU of the machine.
    pub const ALL: MaskId = MaskId(0);
}

/// The task an action is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    pub task: TaskId,
    /// The workload's own number of it, from [`TaskSpec::token`].
    pub token: u32,
    /// Machine it is a task of.
    pub machine: MachineId,
    /// CPU of that machine it runs on now.
    pub cpu: CpuId,
}

/// Class of a task, from the lowest. All but `Ext` are *higher classes* for sched_ext.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum SchedClass {
    /// SCHED_EXT: scheduled by the policy.
    #[default]
    Ext,
    /// The kernel's own fair class, reduced to round robin (enough to be "another class").
    Fair,
    /// First in, first out.
    Rt,
    /// The stopper thread.
    Stop,
}

/// What a task is doing, as far as it matters to the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Of its time at full speed, what it waits for memory, which is as fast for every kind of core; parts per million,
    /// at most all of it. 0: it computes.
    pub stalled: u32,
    /// Thousandths of instructions per cycle while it does not wait.
    pub ipc: u32,
    /// Bytes it works on over and over; [`Phase::BORN_WITH`]: those of its [`TaskSpec`].
    pub working_set: u64,
}

impl Phase {
    pub const BORN_WITH: u64 = u64::MAX;
}

impl Default for Phase {
    fn default() -> Phase {
        Phase {
            stalled: 0,
            ipc: 1500,
            working_set: Phase::BORN_WITH,
        }
    }
}

/// A thread to be started.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSpec {
    /// The workload's own number for it; comes back in every [`Who`].
    pub token: u32,
    /// `comm`, cut to 15 bytes.
    pub name: String,
    /// The VM whose cgroup and statistics it belongs to; none = a host thread.
    pub vm: Option<VmId>,
    pub role: Role,
    /// It does I/O on behalf of latency-sensitive work (identity flag for policies).
    pub io: bool,
    /// What it is said to gain from fast cores (identity of a vCPU for policies), thousandths.
    pub score_milli: Option<u32>,
    /// -20..=19.
    pub nice: i32,
    /// Slice it asks for with `sched_setattr`, ns; 0 = the policy's default.
    pub slice_ns: Nanos,
    /// CPUs it may use; [`MaskId::ALL`] = every CPU.
    pub affinity: MaskId,
    pub class: SchedClass,
    /// Bound kernel thread (PF_KTHREAD) instead of a user thread.
    pub kthread: bool,
    /// Bytes it works on over and over; none: the host's default.
    pub working_set: Option<u64>,
    pub phase: Phase,
    /// The job that it begins with, as the policy is told; none: it is told nothing.
    pub told: Option<JobRecord>,
}

impl Default for TaskSpec {
    fn default() -> Self {
        TaskSpec {
            token: 0,
            name: String::from("task"),
            vm: None,
            role: Role::Other,
            io: false,
            score_milli: None,
            nice: 0,
            slice_ns: 0,
            affinity: MaskId::ALL,
            class: SchedClass::Ext,
            kthread: false,
            working_set: None,
            phase: Phase::default(),
            told: None,
        }
    }
}
