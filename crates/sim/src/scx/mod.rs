// SPDX-License-Identifier: GPL-2.0-only
//! The sched_ext kernel model.
use crate::machine::MaskId;
use crate::workload::api::{CpuId, Nanos, TaskId, TaskSpec};

/// The kernel of one machine, as its parts and the workload reach it.
#[derive(Clone, Copy)]
pub struct Handle {
    pub(crate) now: Nanos,
    pub(crate) nr_cpus: u32,
}

impl Handle {
    pub(crate) fn wake_task(self, _task: TaskId, _cpu: CpuId, _sync: bool) -> bool {
        unimplemented!("the kernel model follows")
    }
    pub(crate) fn arm_token(self, _cpu: CpuId, _at: Nanos, _token: u64) {
        unimplemented!("the kernel model follows")
    }
    pub(crate) fn spawn(self, _spec: &TaskSpec, _cpu: CpuId) -> TaskId {
        unimplemented!("the kernel model follows")
    }
    pub(crate) fn kill_task(self, _task: TaskId, _cpu: CpuId) {
        unimplemented!("the kernel model follows")
    }
    pub(crate) fn mask(self, _cpus: &[CpuId]) -> MaskId {
        unimplemented!("the kernel model follows")
    }
}
