// SPDX-License-Identifier: GPL-2.0-only
//! What happened: the events that enter the trace hash, and can be recorded.
use crate::machine::task::Life;
use crate::words::{CpuId, MachineId, Nanos, TaskId};
use std::sync::{Arc, Mutex, PoisonError};

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

/// Something that is told what happens while it happens, and writes it down somewhere.
pub trait Sink: Send {
    /// A task exists from now on; `entry` is its entry in the statistics of its machine (of the host: the number of its
    /// VM, or one more than the last VM's).
    fn born(&mut self, machine: MachineId, task: TaskId, name: &str, entry: u32);

    /// Anything else. `life` says what became of a task of that machine.
    fn event(&mut self, machine: MachineId, event: &Event, life: &dyn Fn(TaskId) -> Life);
}

/// A sink that all machines of a run share.
#[derive(Clone)]
pub struct SharedSink(Arc<Mutex<dyn Sink>>);

impl std::fmt::Debug for SharedSink {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("SharedSink")
    }
}

impl SharedSink {
    pub fn new(sink: Arc<Mutex<dyn Sink>>) -> Self {
        SharedSink(sink)
    }

    pub(crate) fn with(&self, f: impl FnOnce(&mut dyn Sink)) {
        f(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
