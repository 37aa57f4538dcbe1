// SPDX-License-Identifier: GPL-2.0-only
//! A task becomes runnable, begins to wait, sets its timer, yields.
use super::consts::*;
use super::kernel::{Handle, Source};
use super::mutation::Mutation;
use super::pass::Why;
use crate::engine::queue::NEVER;
use crate::machine::task::{Life, MARK_LATE, NONE, Trap, Waits};
use crate::trace::Kind;
use crate::unlikely::unlikely;
use crate::words::{CpuId, MaskId, Nanos, SchedClass, TaskId};
use berth_policy::abi::Op;

impl Handle {
    /// Wake a sleeping task; the executing CPU is the waker (row 26). `false`: it was not asleep.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn wake_task(mut self, task: TaskId, sync: bool) -> bool {
        let Some(hot) = self.tasks.hot.get_mut(task as usize) else {
            return false;
        };
        if unlikely(hot.life != Life::Asleep) {
            return false;
        }
        if unlikely(matches!(hot.trap, Trap::Freezer | Trap::Stopped)) {
            return self.wake_frozen(task);
        }
        let slot = hot.slot;
        hot.mark &= !MARK_LATE;
        if slot != NONE {
            self.queue.set(slot, NEVER);
        }
        let outer = self.exec;
        if self.wrong(Mutation::WakeOnWakee) {
            let (now, cpu) = (self.now, self.tasks.hot[task as usize].cpu);
            self.begin(now, cpu);
        }
        let flags = WAKE_TTWU | if sync { WAKE_SYNC } else { 0 };
        self.activate(task, flags, ENQ_WAKEUP | ENQ_NOCLOCK, true);
        if self.wrong(Mutation::WakeOnWakee) {
            let (now, cpu) = (self.now, self.exec);
            self.irq_work();
            self.begin(now, outer);
            self.arm(cpu);
        }
        true
    }

    /// A task becomes runnable: choose a run queue, enqueue, preempt, do deferred work.
    #[inline(always)]
    pub(super) fn activate(mut self, task: TaskId, wake_flags: u64, enq_flags: u64, woken: bool) {
        let now = self.now;
        let outer = self.code.waking_ns;
        if woken {
            self.code.waking_ns = self.cost.wake_ns;
            if unlikely(self.cost.insn_ps > 0) {
                self.code.code_mark = self.executed();
            }
        }
        let hot = &mut self.tasks.hot[task as usize];
        hot.life = Life::Runnable;
        hot.queued_at = now;
        let (class, prev) = (hot.class, hot.cpu);
        self.tasks.ts(task).__state = 0;
        let mut flags = enq_flags;
        let cpu = if class == SchedClass::Ext {
            let (cpu, asked) = self.select_task_rq(task, prev, wake_flags);
            if asked {
                flags |= ENQ_CPU_SELECTED;
            }
            cpu
        } else {
            self.select_higher(task)
        };
        self.note(Kind::Wake, cpu, task);
        if cpu != prev {
            self.set_task_cpu(task, cpu);
            flags |= ENQ_MIGRATED;
        }
        self.begin_wait(task, woken);
        self.tasks.ts(task).on_rq = 1;
        if class == SchedClass::Ext {
            self.enqueue_task_inlined(cpu, task, flags);
            if self.class_on(cpu).is_none() {
                self.resched(cpu);
            }
        } else {
            self.enqueue_higher(cpu, task, false);
            if self.class_on(cpu) < Some(class) {
                if self.cpus[cpu as usize].nr_immed > 0 {
                    self.schedule_reenq_local(cpu, 0);
                }
                self.resched(cpu);
            }
        }
        let at = self.tasks.hot[task as usize].cpu;
        self.run_deferred(cpu);
        if at != cpu {
            self.run_deferred(at);
        }
        self.irq_work();
        self.code.waking_ns = outer;
    }

    /// The task waits on its run queue from now on.
    #[inline]
    pub fn begin_wait(mut self, task: TaskId, woken: bool) {
        let k = &mut *self;
        let hot = &mut k.tasks.hot[task as usize];
        debug_assert_eq!(hot.waits, Waits::No);
        hot.waits = if woken { Waits::Woken } else { Waits::Ready };
        if hot.mask == MaskId::ALL {
            k.stats.unused.change(k.now, 0, 1);
        }
        if let Some(blame) = &mut k.stats.blame {
            blame.enter(hot.cpu, hot.stats, k.now);
        }
    }

    /// Let the sleeping task's timer go off then.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn arm_sleep(mut self, task: TaskId, at: Nanos) {
        if unlikely(self.tasks.hot[task as usize].slot == NONE) {
            let slot = self.queue.alloc();
            self.source(slot, Source::Task(task));
            self.tasks.hot[task as usize].slot = slot;
        }
        let slot = self.tasks.hot[task as usize].slot;
        self.queue.set(slot, at);
    }

    /// Row 35: sched_yield.
    pub fn yield_running(self, cpu: CpuId) {
        let task = self.cpus[cpu as usize].curr;
        if self.tasks.hot[task as usize].class == SchedClass::Ext {
            self.update_curr(cpu);
            if self.policy.has(Op::Yield) {
                self.op_task(Op::Yield, task, 0);
            } else if !self.wrong(Mutation::YieldKeepsSlice) {
                self.tasks.ts(task).scx.slice = 0;
            }
        }
        self.schedule(cpu, Why::Resched);
    }
}
