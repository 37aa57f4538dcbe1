// SPDX-License-Identifier: GPL-2.0-only
//! What happened: the events that enter the trace hash, and can be recorded.
use crate::workload::api::{CpuId, Nanos, TaskId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The CPU changes to this task (its idle task's number is the CPU's).
    Switch = 1,
    /// The task is woken on this CPU's run queue.
    Wake = 2,
    Fork = 3,
    Exit = 4,
    Offline = 5,
    Online = 6,
}

impl Kind {
    /// The kind with this number.
    pub fn of(number: u8) -> Option<Kind> {
        use Kind::{Exit, Fork, Offline, Online, Switch, Wake};
        [Switch, Wake, Fork, Exit, Offline, Online]
            .into_iter()
            .find(|k| *k as u8 == number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub at_ns: Nanos,
    pub kind: Kind,
    pub cpu: CpuId,
    pub task: TaskId,
}
