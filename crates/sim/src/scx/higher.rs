// SPDX-License-Identifier: GPL-2.0-only
//! The classes above sched_ext, as far as a policy notices them: they take the CPU away (row 22). The stop and
//! real-time classes run to completion, first come first served; the fair class takes turns.
use super::kernel::{CpuRef, Handle};
use crate::machine::task::{Life, NONE};
use crate::words::{CpuId, SchedClass, TaskId};

fn index(class: SchedClass) -> usize {
    class as usize - 1
}

impl Handle {
    #[inline]
    pub fn higher_waiting(self, cpu: CpuId) -> bool {
        let rare = self.cpus[cpu as usize].rare();
        rare.is_some_and(|r| r.higher.iter().any(|l| l.head != NONE))
    }

    /// A task of a higher class waits on this CPU.
    pub fn enqueue_higher(mut self, cpu: CpuId, task: TaskId, at_head: bool) {
        let i = index(self.tasks.hot[task as usize].class);
        let k = &mut *self;
        let list = &mut k.cpus[cpu as usize].rare_mut().higher[i];
        let (prev, next) = if at_head {
            (NONE, list.head)
        } else {
            (list.tail, NONE)
        };
        match prev {
            NONE => list.head = task,
            p => k.tasks.hot[p as usize].next = task,
        }
        match next {
            NONE => list.tail = task,
            n => k.tasks.hot[n as usize].prev = task,
        }
        let t = &mut k.tasks.hot[task as usize];
        (t.prev, t.next) = (prev, next);
    }

    pub fn dequeue_higher(mut self, cpu: CpuId, task: TaskId) {
        let k = &mut *self;
        let t = &mut k.tasks.hot[task as usize];
        let (prev, next, class) = (t.prev, t.next, t.class);
        (t.prev, t.next) = (NONE, NONE);
        let list = &mut k.cpus[cpu as usize].rare_mut().higher[index(class)];
        match prev {
            NONE => list.head = next,
            p => k.tasks.hot[p as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            n => k.tasks.hot[n as usize].prev = prev,
        }
    }

    /// The task of a higher class that runs next, if there is one.
    #[inline(always)]
    pub fn pick_higher(
        self,
        c: CpuRef,
        cpu: CpuId,
        prev: TaskId,
        class: Option<SchedClass>,
    ) -> Option<TaskId> {
        // Most CPUs never see one.
        if class <= Some(SchedClass::Ext) && c.rare().is_none() {
            return None;
        }
        let prev_class = class.filter(|class| {
            *class > SchedClass::Ext && self.tasks.hot[prev as usize].life == Life::Runnable
        });
        if prev_class.is_none() && !self.higher_waiting(cpu) {
            return None;
        }
        self.pick_waiting(cpu, prev, prev_class)
    }

    #[cold]
    fn pick_waiting(
        mut self,
        cpu: CpuId,
        prev: TaskId,
        prev_class: Option<SchedClass>,
    ) -> Option<TaskId> {
        for class in [SchedClass::Stop, SchedClass::Rt, SchedClass::Fair] {
            let rare = self.cpus[cpu as usize].rare_mut();
            let head = rare.higher[index(class)].head;
            if prev_class == Some(class) {
                let turn = class == SchedClass::Fair
                    && head != NONE
                    && self.now - self.cpus[cpu as usize].rare_mut().fair_since >= 1;
                if !turn {
                    return Some(prev);
                }
            }
            if head != NONE {
                self.dequeue_higher(cpu, head);
                let now = self.now;
                self.cpus[cpu as usize].rare_mut().fair_since = now;
                return Some(head);
            }
        }
        None
    }

    /// A task of a higher class is switched out.
    pub fn put_higher(self, cpu: CpuId, prev: TaskId, next: TaskId) {
        self.update_curr(cpu);
        let hot = &self.tasks.hot[prev as usize];
        if hot.life == Life::Runnable {
            let preempted =
                !self.is_idle_task(next) && self.tasks.hot[next as usize].class > hot.class;
            self.enqueue_higher(cpu, prev, preempted);
        }
    }

    /// CPU for a waking task of a higher class: its last one if it can have it at once, an idle one, else its last one.
    pub fn select_higher(self, task: TaskId) -> CpuId {
        let hot = &self.tasks.hot[task as usize];
        let mask = self.masks.get(hot.mask);
        let ok = |c: CpuId| mask.has(c) && self.cpus[c as usize].online;
        if hot.class == SchedClass::Stop {
            return hot.cpu;
        }
        let there = self.class_on(hot.cpu);
        // A real-time task takes its CPU from who is there, if that is not another one.
        let takes = hot.class == SchedClass::Rt && there < Some(SchedClass::Rt);
        if ok(hot.cpu) && (there.is_none() || takes) {
            return hot.cpu;
        }
        mask.iter()
            .find(|c| ok(*c) && self.cpus[*c as usize].is_idle())
            .unwrap_or(if ok(hot.cpu) {
                hot.cpu
            } else {
                self.fallback_rq(task)
            })
    }
}
