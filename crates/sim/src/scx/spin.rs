// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that spin until another one lets them go, and when the work of what runs ends. What a processor does about a
//! vCPU that spins for long is [`crate::guest::spin`]'s.
use super::kernel::{Handle, Kernel};
use crate::engine::queue::NEVER;
use crate::machine::task::{SPINNING, Trap};
use crate::unlikely::unlikely;
use crate::words::{CpuId, Nanos, TaskId};

impl Handle {
    /// The task need not spin any longer. `false`: it did not spin.
    pub fn release(mut self, task: TaskId) -> bool {
        let Some(hot) = self.tasks.hot.get(task as usize) else {
            return false;
        };
        if hot.remaining != SPINNING {
            return false;
        }
        let cpu = hot.cpu;
        let on_cpu = self.cpus[cpu as usize].curr == task;
        if on_cpu {
            self.sync_work(cpu);
        }
        self.tasks.hot[task as usize].remaining = 0;
        let now = self.now;
        let c = &mut self.cpus[cpu as usize];
        if on_cpu && !c.paused && c.run_end != NEVER {
            c.run_end = c.work_start.max(now);
            self.arm(cpu);
        }
        true
    }
}

impl Kernel {
    /// When the work that the task on a CPU still has ends, if it begins then.
    #[inline]
    pub fn work_end(&self, cpu: CpuId, task: TaskId, start: Nanos) -> Nanos {
        let hot = &self.tasks.hot[task as usize];
        debug_assert_eq!(hot.cpu, cpu);
        if unlikely(hot.trap != Trap::None) {
            return start;
        }
        let remaining = hot.remaining;
        let c = &self.cpus[cpu as usize];
        if remaining < SPINNING {
            if c.pace.uneven {
                return start + c.pace.span(remaining);
            }
            start + remaining
        } else if remaining == SPINNING && self.guest.ple_window != 0 {
            start + (self.guest.ple_window << c.spun)
        } else {
            NEVER - 1
        }
    }
}
