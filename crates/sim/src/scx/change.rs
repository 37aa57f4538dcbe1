// SPDX-License-Identifier: GPL-2.0-only
//! A task's nice level, affinity, class or cgroup changes (rows 32, 34). The task is taken off its queue, changed,
//! and put back; the running one is not enqueued again.
use super::consts::*;
use super::kernel::Handle;
use super::pass::Why;
use crate::engine::queue::NEVER;
use crate::machine::MaskId;
use crate::machine::task::{Life, nice_to_load, nice_to_weight};
use crate::machine::vcpu::Call;
use crate::words::{CpuId, SchedClass, TaskId};
use berth_policy::abi::Op;

/// What `begin` found out, for `end`.
struct Change {
    task: TaskId,
    queued: bool,
    running: bool,
    flags: u64,
}

impl Handle {
    fn begin_change(self, task: TaskId, flags: u64) -> Change {
        let hot = &self.tasks.hot[task as usize];
        let (cpu, class) = (hot.cpu, hot.class);
        // A task whose run queue is being chosen is runnable, but on none yet.
        let queued = hot.life == Life::Runnable && self.tasks.ts(task).on_rq != 0;
        let running = self.cpus[cpu as usize].curr == task;
        if queued && class == SchedClass::Ext {
            self.dequeue_task(cpu, task, flags);
            if running {
                // put_prev_task of a task that is not queued any more: charged, nothing else.
                self.update_curr(cpu);
            }
        } else if queued && !running {
            self.dequeue_higher(cpu, task);
        } else if running {
            self.update_curr(cpu);
        }
        Change {
            task,
            queued,
            running,
            flags,
        }
    }

    fn end_change(mut self, c: Change) {
        let hot = &self.tasks.hot[c.task as usize];
        let (cpu, class) = (hot.cpu, hot.class);
        if c.queued {
            if class == SchedClass::Ext {
                self.enqueue_task(cpu, c.task, c.flags | ENQ_NOCLOCK);
            } else if !c.running {
                self.enqueue_higher(cpu, c.task, false);
            }
        }
        if c.running {
            self.cpus[cpu as usize].exec_start = self.now;
            if class == SchedClass::Ext {
                self.set_next_scx(cpu, c.task);
            }
            self.refresh_tick(cpu);
            if cpu != self.exec {
                self.arm(cpu);
            }
        }
    }

    /// The task leaves its autogroup, as every exiting thread does: a change of nothing the policy can see.
    pub fn leave_autogroup(self, task: TaskId) {
        let c = self.begin_change(task, DEQ_SAVE | DEQ_MOVE | DEQ_NOCLOCK);
        self.end_change(c);
    }

    /// The task goes to another cgroup: `join` says so to everybody while the task is off its queue. The running task
    /// may have to make way for others afterwards.
    pub fn move_group(self, task: TaskId, join: impl FnOnce(Handle)) {
        let c = self.begin_change(task, DEQ_SAVE | DEQ_MOVE | DEQ_NOCLOCK);
        join(self);
        let (queued, running) = (c.queued, c.running);
        self.end_change(c);
        let hot = &self.tasks.hot[task as usize];
        let (cpu, class) = (hot.cpu, hot.class);
        if running || queued && self.class_on(cpu) < Some(class) {
            self.resched(cpu);
        }
    }

    /// setpriority
    pub fn set_nice(mut self, task: TaskId, nice: i32) {
        let nice = nice.clamp(-20, 19);
        let hot = &self.tasks.hot[task as usize];
        if hot.life == Life::Free || i32::from(hot.nice) == nice {
            return;
        }
        let ext = hot.class == SchedClass::Ext;
        let c = self.begin_change(task, DEQ_SAVE | DEQ_NOCLOCK);
        self.tasks.hot[task as usize].nice = nice as i8;
        let weight = nice_to_weight(nice);
        let ts = self.tasks.ts(task);
        ts.static_prio = 120 + nice;
        ts.se.load.weight = nice_to_load(nice) << 10;
        if let Some(rest) = self.tasks.rest(task) {
            rest.normal_prio = 120 + nice;
            rest.prio = 120 + nice;
        }
        if ext {
            ts.scx.weight = weight;
            self.op_task(Op::SetWeight, task, weight as u64);
        }
        self.end_change(c);
        self.irq_work();
    }

    /// sched_setaffinity
    pub fn set_affinity(mut self, task: TaskId, mask: MaskId) {
        let hot = &self.tasks.hot[task as usize];
        if hot.life == Life::Free || hot.life == Life::Dead || hot.mask == mask {
            return;
        }
        self.change_mask(task, mask);
        let hot = &self.tasks.hot[task as usize];
        let cpu = hot.cpu;
        if self.masks.get(mask).has(cpu) || hot.life != Life::Runnable {
            return self.irq_work();
        }
        if self.cpus[cpu as usize].curr != task {
            let dst = self.fallback_rq(task);
            self.move_queued(task, dst);
        } else if self.cpus[cpu as usize].paused {
            // The stopper comes when the vCPU has a physical CPU again, which the host is asked for.
            self.cpus[cpu as usize].misplaced = true;
            self.calls.push(Call::Kick(cpu));
        } else {
            self.push_away_there(task, cpu);
        }
        self.irq_work();
    }

    /// The task on a vCPU that has just resumed may have been forbidden it meanwhile.
    #[cold]
    pub(super) fn push_misplaced(mut self, cpu: CpuId) {
        let c = &mut self.cpus[cpu as usize];
        c.misplaced = false;
        let task = c.curr;
        if c.is_idle() || self.masks.get(self.tasks.hot[task as usize].mask).has(cpu) {
            return;
        }
        self.begin(self.now, cpu);
        self.push_away(task);
        self.irq_work();
        self.arm(cpu);
    }

    /// set_cpus_allowed_force: no CPU of the task's mask is online, so it may use every CPU from now on.
    pub fn break_affinity(self, task: TaskId) {
        self.change_mask(task, MaskId::ALL);
    }

    fn change_mask(mut self, task: TaskId, mask: MaskId) {
        let ext = self.tasks.hot[task as usize].class == SchedClass::Ext;
        let c = self.begin_change(task, DEQ_SAVE | DEQ_NOCLOCK);
        let (ptr, nr) = (self.masks.get(mask).as_kernel(), self.masks.count(mask));
        let before = self.tasks.hot[task as usize].could_run_anywhere();
        self.tasks.hot[task as usize].mask = mask;
        let after = self.tasks.hot[task as usize].could_run_anywhere();
        let (now, more) = (self.now, u32::from(after).wrapping_sub(u32::from(before)));
        self.stats.unused.change(now, 0, more);
        let ts = self.tasks.ts(task);
        ts.cpus_ptr = ptr;
        ts.nr_cpus_allowed = nr as i32;
        if ext {
            self.op_task(Op::SetCpumask, task, ptr as u64);
        }
        self.end_change(c);
    }

    /// A queued task goes to another CPU's run queue, through an ordinary enqueue but without
    /// runnable/quiescent.
    pub fn move_queued(mut self, task: TaskId, dst: u32) {
        let src = self.tasks.hot[task as usize].cpu;
        if self.tasks.hot[task as usize].class == SchedClass::Ext {
            self.tasks.hot[task as usize].migrating = true;
            self.dequeue_task(src, task, DEQ_NOCLOCK);
            self.set_task_cpu(task, dst);
            self.enqueue_task(dst, task, 0);
            self.tasks.hot[task as usize].migrating = false;
        } else {
            self.dequeue_higher(src, task);
            self.set_task_cpu(task, dst);
            self.enqueue_higher(dst, task, false);
        }
        let class = self.tasks.hot[task as usize].class;
        if self.class_on(dst) < Some(class) {
            self.resched(dst);
        }
    }

    /// As [`Handle::push_away`], asked for by any CPU: the stopper of the task's own CPU does it.
    fn push_away_there(self, task: TaskId, cpu: u32) {
        let caller = self.exec;
        self.begin(self.now, cpu);
        self.push_away(task);
        if cpu != caller {
            self.irq_work();
            self.arm(cpu);
            self.begin(self.now, caller);
        }
    }

    /// Row 34: the running task must leave its CPU. The stopper preempts it, moves it and goes away again.
    pub fn push_away(mut self, task: TaskId) {
        let cpu = self.tasks.hot[task as usize].cpu;
        let here = cpu == self.exec;
        let stopper = self.stopper(cpu);
        let now = self.now;
        let stats = self.stats.index(None);
        let hot = &mut self.tasks.hot[stopper as usize];
        hot.life = Life::Runnable;
        hot.remaining = 0;
        hot.queued_at = now;
        hot.stats = stats;
        self.begin_wait(stopper, false);
        self.enqueue_higher(cpu, stopper, false);
        self.schedule(cpu, Why::Resched);
        debug_assert_eq!(self.cpus[cpu as usize].curr, stopper);
        let dst = self.fallback_rq(task);
        self.move_queued(task, dst);
        self.schedule(cpu, Why::Sleep);
        if !here {
            self.arm(cpu);
        }
    }

    /// sched_setscheduler
    pub fn set_class(mut self, task: TaskId, class: SchedClass) {
        let hot = &self.tasks.hot[task as usize];
        let old = hot.class;
        if hot.life == Life::Free || hot.life == Life::Dead || old == class {
            return;
        }
        if class == SchedClass::Ext && self.tasks.ts(task).scx.disallow != 0 {
            return;
        }
        let c = self.begin_change(task, DEQ_SAVE | DEQ_MOVE | DEQ_CLASS | DEQ_NOCLOCK);
        if old == SchedClass::Ext {
            self.disable_task(task);
        }
        self.tasks.hot[task as usize].class = class;
        self.tasks.ts(task).policy = match class {
            SchedClass::Ext => 7,
            SchedClass::Fair => 0,
            SchedClass::Rt | SchedClass::Stop => 1,
        };
        if class == SchedClass::Ext {
            if !self.tasks.hot[task as usize].inited {
                self.init_task(task, false);
            }
            self.enable_task(task);
            let ptr = self.tasks.ts(task).cpus_ptr as u64;
            self.op_task(Op::SetCpumask, task, ptr);
        }
        let (queued, running) = (c.queued, c.running);
        self.end_change(c);
        let cpu = self.tasks.hot[task as usize].cpu;
        if queued && (running || self.class_on(cpu) < Some(class)) {
            self.resched(cpu);
        }
        if self.cpus[cpu as usize].curr == task && self.cpus[cpu as usize].run_end != NEVER {
            self.refresh_tick(cpu);
        }
        self.irq_work();
    }
}
