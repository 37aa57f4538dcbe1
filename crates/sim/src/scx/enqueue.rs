// SPDX-License-Identifier: GPL-2.0-only
//! A task becomes runnable, or stops being so; the rules of the dispatch queues.
use super::consts::*;
use super::dispatch::Direct;
use super::dsq::{Cursor, DsqIx};
use super::kernel::Handle;
use super::mutation::Mutation;
use crate::machine::task::{NONE, OpsState, Waits};
use crate::unlikely::unlikely;
use crate::words::{CpuId, SchedClass, TaskId};
use berth_policy::abi::Op;

impl Handle {
    /// The default slice, counted.
    #[inline]
    pub fn refill_slice(mut self, task: TaskId) {
        let slice = self.slice_dfl;
        self.tasks.ts(task).scx.slice = slice;
        if !self.wrong(Mutation::UncountedRefill) {
            self.events.refill_slice_dfl += 1;
        }
    }

    /// Row 21: ops.dequeue for a task that leaves the policy's custody.
    #[inline(always)]
    pub fn call_task_dequeue(self, task: TaskId, deq_flags: u64) {
        let ts = self.tasks.ts(task);
        let hot = &self.tasks.hot[task as usize];
        let custody = ts.scx.flags & TASK_IN_CUSTODY != 0;
        if (!custody && !self.wrong(Mutation::DequeueAlways)) || hot.sticky_cpu >= 0 {
            return;
        }
        self.op_task(Op::Dequeue, task, deq_flags);
        self.tasks.ts(task).scx.flags &= !TASK_IN_CUSTODY;
    }

    /// Put a task into a queue (rows 18, 19, 21).
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn dispatch_enqueue(self, q: DsqIx, task: TaskId, enq_flags: u64) {
        self.dispatch_enqueue_inlined(q, task, enq_flags);
    }

    #[inline(always)]
    pub(super) fn dispatch_enqueue_inlined(mut self, mut q: DsqIx, task: TaskId, enq_flags: u64) {
        let mut flags = enq_flags;
        if unlikely(flags & ENQ_DSQ_PRIQ != 0 && !self.dsqs.is_user(q)) {
            self.scx_error("cannot use vtime ordering for built-in DSQs".into());
            flags &= !ENQ_DSQ_PRIQ;
        }
        let dsq = self.dsqs.get(q);
        let ordered = flags & ENQ_DSQ_PRIQ != 0;
        if unlikely(dsq.nr > 0 && ordered != (dsq.head == NONE)) {
            let (id, what) = (dsq.id, if ordered { "FIFO" } else { "PRIQ" });
            self.scx_error(format!(
                "DSQ ID {id:#018x} already had {what}-enqueued tasks"
            ));
            // The two kinds never share a queue here: the task goes where it is found for certain.
            q = self.global_dsq(self.tasks.hot[task as usize].cpu);
            flags &= !ENQ_DSQ_PRIQ;
        }
        let k = &mut *self;
        if flags & ENQ_DSQ_PRIQ != 0 {
            let mut vtime = k.tasks.ts(task).scx.dsq_vtime;
            if k.wrong(Mutation::UnsignedVtime) {
                vtime >>= 1;
            }
            k.dsqs.insert(&mut k.tasks.hot, q, task, vtime);
        } else {
            let head = flags & (ENQ_HEAD | ENQ_PREEMPT) != 0;
            k.dsqs.push(&mut k.tasks.hot, q, task, head);
        }
        let view = k.dsqs.view(q);
        k.tasks.ts(task).scx.dsq = view;
        self.entered(q, task, flags);
        if self.dsqs.is_local(q) {
            self.local_post_enq(q, task, flags);
        } else if self.dsqs.is_user(q) {
            self.tasks.ts(task).scx.flags |= TASK_IN_CUSTODY;
        } else {
            self.call_task_dequeue(task, 0);
        }
        self.tasks.hot[task as usize].ops_state = OpsState::None;
    }

    #[inline(always)]
    fn entered(self, q: DsqIx, task: TaskId, flags: u64) {
        let immed = flags & ENQ_IMMED != 0 || self.tasks.ts(task).scx.flags & TASK_IMMED != 0;
        if unlikely(immed) {
            self.entered_immed(q, task, flags);
        }
    }

    /// IMMED: the task must get the CPU at once or go back to the policy (row 23).
    #[cold]
    fn entered_immed(mut self, q: DsqIx, task: TaskId, flags: u64) {
        let ts = self.tasks.ts(task);
        if flags & ENQ_IMMED != 0 {
            if !self.dsqs.is_local(q) {
                return;
            }
            ts.scx.flags |= TASK_IMMED;
        }
        if ts.scx.flags & TASK_IMMED != 0 && self.dsqs.is_local(q) {
            self.cpus[q as usize].nr_immed += 1;
            if self.dsqs.get(q).nr > 1 || !self.rq_is_open(q, flags) {
                self.schedule_reenq_local(q, 0);
            }
        }
    }

    /// Could a task start on this CPU at once?
    fn rq_is_open(self, cpu: CpuId, enq_flags: u64) -> bool {
        let c = &self.cpus[cpu as usize];
        match self.class_on(cpu) {
            Some(class) if class > SchedClass::Ext => false,
            _ if self.higher_waiting(cpu) => false,
            None => true,
            Some(_) => c.in_balance || enq_flags & ENQ_PREEMPT != 0,
        }
    }

    /// Take a task out of its queue.
    #[inline(always)]
    pub fn unlink(mut self, task: TaskId) {
        let k = &mut *self;
        let q = k.tasks.hot[task as usize].dsq;
        k.dsqs.unlink(&mut k.tasks.hot, task);
        let ts = k.tasks.ts(task);
        ts.scx.dsq = std::ptr::null_mut();
        if unlikely(ts.scx.flags & TASK_IMMED != 0) && k.dsqs.is_local(q) {
            k.cpus[q as usize].nr_immed -= 1;
        }
    }

    /// A task reached a local queue: preemption (row 18), or waking the CPU.
    #[inline(always)]
    fn local_post_enq(self, local: DsqIx, task: TaskId, enq_flags: u64) {
        let cpu: CpuId = local;
        self.call_task_dequeue(task, 0);
        let c = self.cpu(cpu);
        if c.in_balance {
            return;
        }
        let curr = c.curr;
        match self.class_on(cpu) {
            None => self.resched(cpu),
            Some(SchedClass::Ext)
                if enq_flags & ENQ_PREEMPT != 0
                    && curr != task
                    && !self.wrong(Mutation::PreemptIsHead) =>
            {
                self.tasks.ts(curr).scx.slice = 0;
                self.resched(cpu);
            }
            _ => (),
        }
    }

    /// The task is taken off whatever queue it is on, or its pending insert is void.
    #[inline(always)]
    pub fn dispatch_dequeue(self, task: TaskId) {
        let hot = &self.tasks.hot[task as usize];
        if hot.dsq != NONE {
            self.unlink(task);
        } else if unlikely(hot.deferred) {
            let rq = hot.cpu;
            self.undefer(rq, task);
        }
    }

    /// A runnable task of this run queue goes to the policy, or past it (rows 9, 15, 25).
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn do_enqueue_task(self, rq: CpuId, task: TaskId, enq_flags: u64, sticky_cpu: i32) {
        self.do_enqueue_task_inlined(rq, task, enq_flags, sticky_cpu);
    }

    #[inline(always)]
    pub(super) fn do_enqueue_task_inlined(
        mut self,
        rq: CpuId,
        task: TaskId,
        enq_flags: u64,
        sticky_cpu: i32,
    ) {
        if unlikely(sticky_cpu == rq as i32) {
            return self.dispatch_enqueue(self.dsqs.local(rq), task, enq_flags);
        }
        self.tasks.ts(task).scx.flags &= !TASK_IMMED;
        if let Some(q) = self.past_the_policy(rq, task) {
            return self.enqueue_past(q, task, enq_flags);
        }
        if !self.is_direct(task) {
            let mut c = self.cpu(rq);
            let qseq = c.ops_qseq;
            c.ops_qseq += 1;
            let hot = &mut self.tasks.hot[task as usize];
            hot.ops_state = OpsState::Queueing;
            hot.qseq = qseq;
            let outer = std::mem::replace(&mut self.dispatch.direct, Direct::For(task));
            self.op_task(Op::Enqueue, task, enq_flags);
            self.dispatch.direct = outer;
            let hot = &mut self.tasks.hot[task as usize];
            if hot.ddsp_dsq == DSQ_INVALID {
                hot.ops_state = OpsState::Queued;
                self.tasks.ts(task).scx.flags |= TASK_IN_CUSTODY;
                return;
            }
        }
        self.direct_dispatch(task, enq_flags);
    }

    /// Into this queue without the policy's being asked.
    #[cold]
    fn enqueue_past(self, q: DsqIx, task: TaskId, enq_flags: u64) {
        self.refill_slice(task);
        self.clear_direct(task);
        self.dispatch_enqueue(q, task, enq_flags);
    }

    /// Has the policy said already, in ops.select_cpu, where the task is to go?
    #[inline(always)]
    fn is_direct(self, task: TaskId) -> bool {
        self.tasks.hot[task as usize].ddsp_dsq != DSQ_INVALID
            && !self.wrong(Mutation::EnqueueAfterDirect)
    }

    /// The queue of a task that the policy is not asked about.
    #[inline(always)]
    fn past_the_policy(mut self, rq: CpuId, task: TaskId) -> Option<DsqIx> {
        let local = self.dsqs.local(rq);
        if unlikely(!self.cpu(rq).online) {
            return Some(local);
        }
        if unlikely(self.flags.bypass) {
            self.events.bypass_dispatch += 1;
            return Some(self.dsqs.bypass(rq));
        }
        if self.is_direct(task) {
            return None;
        }
        let ts = self.tasks.ts(task);
        if unlikely(ts.flags & PF_EXITING != 0)
            && !self.policy.has_flag(OPS_ENQ_EXITING)
            && !self.wrong(Mutation::EnqueueExiting)
        {
            self.events.enq_skip_exiting += 1;
            return Some(local);
        }
        if unlikely(ts.migration_disabled != 0)
            && !self.policy.has_flag(OPS_ENQ_MIGRATION_DISABLED)
            && !self.wrong(Mutation::EnqueueExiting)
        {
            self.events.enq_skip_migration_disabled += 1;
            return Some(local);
        }
        (!self.policy.has(Op::Enqueue)).then(|| self.global_dsq(rq))
    }

    #[inline]
    pub fn set_runnable(mut self, task: TaskId) {
        let ts = self.tasks.ts(task);
        if ts.scx.flags & TASK_RESET_RUNNABLE_AT != 0 {
            ts.scx.runnable_at = self.now;
            ts.scx.flags &= !TASK_RESET_RUNNABLE_AT;
        }
        self.runnable_seq += 1;
        let seq = self.runnable_seq;
        self.tasks.hot[task as usize].runnable_seq = seq;
    }

    /// The task joins this run queue (enqueue_task of the class).
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn enqueue_task(self, rq: CpuId, task: TaskId, core_flags: u64) {
        self.enqueue_task_inlined(rq, task, core_flags);
    }

    #[inline(always)]
    pub(super) fn enqueue_task_inlined(mut self, rq: CpuId, task: TaskId, core_flags: u64) {
        let mut sticky = self.tasks.hot[task as usize].sticky_cpu;
        let mut c = self.cpu(rq);
        let flags = core_flags | c.extra_enq_flags;
        if flags & ENQ_WAKEUP != 0 {
            c.in_wakeup = true;
        }
        if unlikely(flags & ENQ_RESTORE != 0)
            && c.curr == task
            && !self.wrong(Mutation::ChangeEnqueues)
        {
            sticky = rq as i32;
        }
        let ts = self.tasks.ts(task);
        if ts.scx.flags & TASK_QUEUED == 0 {
            self.set_runnable(task);
            ts.scx.flags |= TASK_QUEUED;
            c.nr_running += 1;
            c.rq.nr_running += 1;
            if !self.tasks.hot[task as usize].migrating || self.wrong(Mutation::NoisyMigration) {
                self.op_task(Op::Runnable, task, flags);
            }
            // It has arrived: from here on a change of queue is no longer part of the migration.
            self.tasks.hot[task as usize].sticky_cpu = -1;
            self.do_enqueue_task_inlined(rq, task, flags, sticky);
        }
        c.in_wakeup = false;
        if flags & ENQ_CPU_SELECTED != 0 && rq as i32 != self.tasks.ts(task).scx.selected_cpu {
            self.events.select_cpu_fallback += 1;
        }
    }

    /// The policy loses the task, if it has it.
    #[inline(always)]
    pub fn ops_dequeue(mut self, task: TaskId, deq_flags: u64) {
        self.tasks.hot[task as usize].ops_state = OpsState::None;
        self.call_task_dequeue(task, deq_flags);
    }

    /// The task leaves this run queue (dequeue_task of the class).
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn dequeue_task(self, rq: CpuId, task: TaskId, core_flags: u64) {
        self.dequeue_task_inlined(rq, task, core_flags);
    }

    #[inline(always)]
    pub(super) fn dequeue_task_inlined(self, rq: CpuId, task: TaskId, core_flags: u64) {
        let mut c = self.cpu(rq);
        let mut flags = core_flags;
        if flags & (DEQ_SLEEP | DEQ_CORE_SCHED_EXEC) == 0 {
            flags |= DEQ_SCHED_CHANGE;
        }
        if unlikely(self.tasks.ts(task).scx.flags & TASK_QUEUED == 0) {
            return;
        }
        self.ops_dequeue(task, flags);
        if c.curr == task {
            self.update_curr(rq);
            self.op_task(Op::Stopping, task, 0);
        }
        if !self.tasks.hot[task as usize].migrating || self.wrong(Mutation::NoisyMigration) {
            self.op_task(Op::Quiescent, task, flags);
        }
        let ts = self.tasks.ts(task);
        if flags & DEQ_SLEEP != 0 {
            ts.scx.flags |= TASK_DEQD_FOR_SLEEP;
        } else {
            ts.scx.flags &= !TASK_DEQD_FOR_SLEEP;
        }
        ts.scx.flags &= !TASK_QUEUED;
        c.nr_running -= 1;
        c.rq.nr_running -= 1;
        self.dispatch_dequeue(task);
        self.clear_direct(task);
    }

    /// Its run queue changes; it must not be queued anywhere.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn set_task_cpu(mut self, task: TaskId, cpu: CpuId) {
        let k = &mut *self;
        let hot = &mut k.tasks.hot[task as usize];
        let old = std::mem::replace(&mut hot.cpu, cpu);
        if hot.waits != Waits::No
            && let Some(blame) = &mut k.stats.blame
        {
            blame.leave(old, hot.stats, k.now);
            blame.enter(cpu, hot.stats, k.now);
        }
        let ts = self.tasks.ts(task);
        ts.thread_info.cpu = cpu;
        ts.wake_cpu = cpu as i32;
        ts.se.nr_migrations += 1;
    }

    /// Row 20: a task on no queue is re-homed to another CPU's run queue and local queue, without
    /// runnable/quiescent.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn move_remote_to_local(mut self, task: TaskId, enq_flags: u64, dst: CpuId) {
        let src = self.tasks.hot[task as usize].cpu;
        let hot = &mut self.tasks.hot[task as usize];
        hot.sticky_cpu = dst as i32;
        hot.migrating = true;
        self.dequeue_task(src, task, 0);
        self.set_task_cpu(task, dst);
        self.cpus[dst as usize].extra_enq_flags = enq_flags;
        self.enqueue_task(dst, task, 0);
        self.cpus[dst as usize].extra_enq_flags = 0;
        self.tasks.hot[task as usize].migrating = false;
    }

    /// A task of this CPU, just taken out of its queue, goes to the CPU's local queue.
    #[inline(always)]
    fn move_local_to_local(mut self, task: TaskId, enq_flags: u64, cpu: CpuId) {
        let q = self.dsqs.local(cpu);
        let head = enq_flags & (ENQ_HEAD | ENQ_PREEMPT) != 0;
        let k = &mut *self;
        k.dsqs.push(&mut k.tasks.hot, q, task, head);
        let view = k.dsqs.view(q);
        k.tasks.ts(task).scx.dsq = view;
        self.entered(q, task, enq_flags);
        self.local_post_enq(q, task, enq_flags);
    }

    /// Row 20: the first task of a queue that may run here goes to this CPU's local queue.
    #[inline(always)]
    pub fn consume(self, cpu: CpuId, q: DsqIx, enq_flags: u64) -> bool {
        self.dsqs.get(q).nr > 0 && self.take_first(cpu, q, enq_flags)
    }

    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn take_first(mut self, cpu: CpuId, q: DsqIx, enq_flags: u64) -> bool {
        let mut at = self.dsqs.first(q);
        if self.flags.ahead && at.is_some() {
            self.front_taken = Some(q);
        }
        while let Some(task) = at {
            if unlikely(self.exit.claimed()) && self.dsqs.get(q).id != DSQ_BYPASS {
                return false;
            }
            if self.tasks.hot[task as usize].cpu == cpu {
                self.unlink(task);
                self.move_local_to_local(task, enq_flags, cpu);
                return true;
            }
            if self.can_run_on_remote(task, cpu, false) {
                self.unlink(task);
                self.move_remote_to_local(task, enq_flags, cpu);
                return true;
            }
            if self.wrong(Mutation::OnlyFirstTask) {
                return false;
            }
            at = self.dsqs.following(&self.tasks.hot, task);
        }
        false
    }

    /// A task on a (non-local) queue goes to another queue.
    pub fn move_between(self, task: TaskId, dst: DsqIx, enq_flags: u64) {
        let src_rq = self.tasks.hot[task as usize].cpu;
        let (mut dst, mut flags) = (dst, enq_flags);
        if self.dsqs.is_local(dst) && dst != src_rq && !self.can_run_on_remote(task, dst, true) {
            dst = self.global_dsq(src_rq);
            flags |= ENQ_GDSQ_FALLBACK;
        }
        self.unlink(task);
        if !self.dsqs.is_local(dst) {
            self.dispatch_enqueue(dst, task, flags);
        } else if dst == src_rq {
            self.move_local_to_local(task, flags, src_rq);
        } else {
            self.move_remote_to_local(task, flags, dst);
        }
    }

    // ---- re-enqueueing (row 23)

    /// The local queue's tasks will be given back to the policy, as far as the flags say.
    pub fn schedule_reenq_local(mut self, cpu: CpuId, flags: u64) {
        if self.flags.bypass {
            return;
        }
        self.cpus[cpu as usize].reenq_local |= flags | 1 << 63;
        self.schedule_deferred_locked(cpu);
    }

    pub fn process_reenq_locals(mut self, cpu: CpuId) {
        let mut rounds = 0;
        while self.cpus[cpu as usize].reenq_local != 0 {
            let flags = std::mem::take(&mut self.cpus[cpu as usize].reenq_local) & !(1 << 63);
            rounds += 1;
            if rounds > 256 {
                self.scx_error(format!(
                    "SCX_ENQ_REENQ on SCX_DSQ_LOCAL repeated {rounds} times"
                ));
                return;
            }
            self.reenq_local(cpu, flags);
        }
    }

    /// Give tasks of a local queue back to the policy; their number.
    pub fn reenq_local(mut self, cpu: CpuId, flags: u64) -> u32 {
        let open = self.rq_is_open(cpu, 0);
        let q = self.dsqs.local(cpu);
        let mut taken: Vec<(TaskId, u32)> = Vec::new();
        let mut at = self.dsqs.first(q);
        let mut first = true;
        while let Some(task) = at {
            at = self.dsqs.following(&self.tasks.hot, task);
            let immed = self.tasks.ts(task).scx.flags & TASK_IMMED != 0;
            if immed && (!first || !open) {
                self.events.reenq_immed += 1;
                taken.push((task, TASK_REENQ_IMMED));
            } else if flags & REENQ_ANY != 0 {
                taken.push((task, TASK_REENQ_KFUNC));
            }
            first = false;
        }
        for (task, _) in &taken {
            self.unlink(*task);
        }
        for (task, reason) in &taken {
            self.tasks.ts(*task).scx.flags |= reason;
            self.do_enqueue_task(cpu, *task, ENQ_REENQ, -1);
            self.tasks.ts(*task).scx.flags &= !TASK_REENQ_MASK;
        }
        taken.len() as u32
    }

    /// Give all tasks of a user queue back to the policy.
    pub fn reenq_user(self, q: DsqIx, flags: u64) {
        if flags & REENQ_ANY == 0 {
            return;
        }
        let mut cursor = Cursor::new(self.dsqs.get(q), false);
        while !self.flags.bypass
            && let Some(task) = self.dsqs.next(&self.tasks.hot, q, &mut cursor)
        {
            let rq = self.tasks.hot[task as usize].cpu;
            self.unlink(task);
            self.tasks.ts(task).scx.flags |= TASK_REENQ_KFUNC;
            self.do_enqueue_task(rq, task, ENQ_REENQ, -1);
            self.tasks.ts(task).scx.flags &= !TASK_REENQ_MASK;
        }
    }
}
