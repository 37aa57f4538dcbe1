// SPDX-License-Identifier: GPL-2.0-only
//! A virtual CPU: its thread on the host, what became of its time, and what host and guest do to each other in an
//! event, written down until it is over.
use crate::words::{CpuId, MachineId, Nanos, Phase, TaskId};

/// What a vCPU's thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VcpuState {
    /// Not started, or stopped.
    Off,
    /// Its thread sleeps (or is awake and has not been looked at since).
    Halted,
    /// Its thread is runnable and has no physical CPU.
    Waiting,
    /// Its thread has a physical CPU.
    Running,
}

/// One vCPU: its thread on the host and what became of its time. Wall = run + steal + halt.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Vcpu {
    /// Its thread on the host.
    pub task: TaskId,
    pub machine: MachineId,
    /// Number in its guest.
    pub cpu: CpuId,
    pub state: VcpuState,
    /// On the way out of the guest, to halt.
    pub halting: bool,
    /// While halting: from then on the host only waits for an interrupt.
    pub poll_from: Nanos,
    /// Since when it is in this state.
    pub since: Nanos,
    /// Time on a physical CPU, waiting for one, and halted, before `since`; ns.
    pub run_ns: Nanos,
    pub steal_ns: Nanos,
    pub halt_ns: Nanos,
    /// When it was started.
    pub born: Nanos,
}

/// What the host did to a vCPU's thread in the present event.
#[derive(Clone, Copy, Debug)]
pub struct Switched {
    pub vcpu: u32,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub enum What {
    /// It got a CPU, having waited since then; its work begins then ([`crate::engine::queue::NEVER`] = it is held
    /// back).
    In { queued_at: Nanos, start: Nanos },
    /// It lost its CPU.
    Out,
    /// It has the CPU, but is held back from now on.
    Hold,
    /// An interrupt of the host takes this much of its time.
    Delay { ns: Nanos },
    /// It goes on.
    Start { start: Nanos },
    /// Its CPU works at another rate from now on (parts per million).
    Rate { rate: u32 },
    /// Its CPU's caches are to be warmed for so long from now on.
    Warm { warm: Nanos },
}

/// What a guest asks of the host in the present event.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// An interrupt waits for this CPU, which is not running.
    Kick(CpuId),
    /// The task on this CPU has spun for a window.
    Spins(CpuId),
    /// Wake a task of the host.
    WakeHost(TaskId),
    /// The task on this CPU is in another phase than the one before it.
    Phase(CpuId, Phase),
}
