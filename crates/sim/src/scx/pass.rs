// SPDX-License-Identifier: GPL-2.0-only
//! One pass of a CPU through its scheduler. The order of callbacks is the point (rows 1 to 9, 30):
//! a sleeping task is dequeued first; then the next task is looked for, with ops.dispatch; then the
//! previous task is put back (stopping, enqueue); then the next one is set (running).
use super::consts::*;
use super::kernel::{CpuRef, Handle, Kernel};
use super::mutation::Mutation;
use crate::engine::queue::NEVER;
use crate::error::SimError;
use crate::machine::Distance;
use crate::machine::task::{Life, MARK_VCPU, NONE, SPINNING, Waits};
use crate::machine::vcpu::{Switched, What};
use crate::trace::Kind;
use crate::unlikely::unlikely;
use crate::words::{CpuId, MaskId, Nanos, SchedClass, TaskId};
use berth_policy::abi::Op;
use berth_policy::kview::ScxCpuReleaseArgs;

/// Why the CPU enters its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was asked to reschedule, or the task yielded: the task stays runnable.
    Resched,
    /// The running task sleeps.
    Sleep,
    /// The running task has exited.
    Dead,
}

impl Kernel {
    /// A thread (of this entry of the statistics) has come from another CPU: counted, and what that costs.
    fn migrated(&mut self, entry: u32, from: CpuId, to: CpuId) -> Nanos {
        let distance = self.topo.distance(from, to);
        self.stats.migrated(entry, distance);
        match distance {
            Distance::Same => 0,
            Distance::Core => self.cost.migrate_same_core_ns,
            Distance::Llc => self.cost.migrate_same_llc_ns,
            Distance::Package => self.cost.migrate_same_package_ns,
            Distance::Node => self.cost.migrate_same_node_ns,
            Distance::Far => self.cost.migrate_other_node_ns,
        }
    }
}

impl Kernel {
    /// A switch on a CPU that has seen higher classes; `true`: the next task goes on where they took the CPU from it.
    /// It was interrupted, which is neither a stay in the queue nor a switch.
    #[cold]
    fn put_aside(
        &mut self,
        mut c: CpuRef,
        cpu: CpuId,
        prev: TaskId,
        next: TaskId,
        stays: bool,
    ) -> bool {
        let idle = self.cpus.len() as u32;
        let higher = |t: TaskId| t >= idle && self.tasks.hot[t as usize].class > SchedClass::Ext;
        let aside = &mut c.rare_mut().aside;
        match (higher(prev), higher(next)) {
            (true, true) => false,
            (false, true) => {
                *aside = if stays && prev >= idle { prev } else { NONE };
                false
            }
            (from, false) => {
                let t = &self.tasks.hot[next as usize];
                let again = std::mem::replace(aside, NONE) == next
                    && from
                    && t.last_cpu == cpu
                    && t.waits == Waits::Ready;
                if again {
                    self.stats.still_waits(t.stats, t.queued_at, self.now);
                }
                again
            }
        }
    }
}

impl Handle {
    /// The pass.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn schedule(mut self, cpu: CpuId, why: Why) {
        let mut c = self.cpu(cpu);
        c.resched_at = NEVER;
        let prev = c.curr;
        let class = self.class_on(cpu);
        if unlikely(self.cost.insn_ps > 0) {
            self.code.pass_mark = self.executed();
        }
        if class.is_some() {
            self.sync_work(cpu);
            if why != Why::Resched {
                let (life, state) = match why {
                    Why::Dead => (Life::Dead, 0x80),
                    _ => (Life::Asleep, 1),
                };
                self.tasks.hot[prev as usize].life = life;
                let ts = self.tasks.ts(prev);
                (ts.__state, ts.on_rq) = (state, 0);
                if class == Some(SchedClass::Ext) && !self.wrong(Mutation::DispatchBeforeDequeue) {
                    self.dequeue_task_inlined(cpu, prev, DEQ_SLEEP | DEQ_NOCLOCK);
                }
            }
        }
        let next = self.pick_next(c, cpu, prev, class);
        if why != Why::Resched
            && self.wrong(Mutation::DispatchBeforeDequeue)
            && class == Some(SchedClass::Ext)
        {
            self.dequeue_task(cpu, prev, DEQ_SLEEP | DEQ_NOCLOCK);
        }
        if next == prev {
            if self.is_idle_task(next) {
                self.update_idle(cpu, true, false);
            } else if unlikely(c.waits()) {
                // A KICK_WAIT: the task goes on when the others have passed their schedulers.
                c.run_end = NEVER;
                self.vcpu_switched(cpu, next, What::Hold);
            } else if c.run_end == NEVER {
                self.start_work(cpu);
            }
        } else {
            // The policy sees the previous task as the CPU's current one until all of this is over.
            self.put_prev(cpu, prev, next);
            self.set_next(cpu, prev, next);
            self.account_switch(c, cpu, prev, next);
        }
        // Requests made so far meant this pass.
        c.resched_at = NEVER;
        c.pass_paid = false;
        self.refresh_tick(cpu);
        if unlikely(self.kicks.waiting > 0) {
            self.release_waiters(cpu);
        }
        if unlikely(c.bal_cb_pending) {
            c.bal_cb_pending = false;
            self.run_deferred(cpu);
        }
        self.irq_work();
        if unlikely(why == Why::Dead) {
            self.bury(prev);
        }
    }

    /// The task to run next: higher classes, then sched_ext, then idle.
    #[inline(always)]
    fn pick_next(
        self,
        mut c: CpuRef,
        cpu: CpuId,
        prev: TaskId,
        class: Option<SchedClass>,
    ) -> TaskId {
        if let Some(next) = self.pick_higher(c, cpu, prev, class) {
            return next;
        }
        c.kick_sync += 1;
        if self.wrong(Mutation::EnqueueBeforeDispatch) {
            self.enqueue_early(cpu, prev);
        }
        self.balance(c, cpu, prev, class == Some(SchedClass::Ext));
        if c.bal_keep && class == Some(SchedClass::Ext) {
            if self.tasks.ts(prev).scx.slice == 0 {
                let restart = self.wrong(Mutation::KeepLastRestarts);
                if restart {
                    self.op_task(Op::Stopping, prev, 1);
                }
                self.refill_slice(prev);
                if restart {
                    self.op_task(Op::Running, prev, 0);
                }
            }
            return prev;
        }
        match self.dsqs.first(self.dsqs.local(cpu)) {
            Some(task) => {
                if self.tasks.ts(task).scx.slice == 0 {
                    self.refill_slice(task);
                }
                task
            }
            None => c.idle,
        }
    }

    /// Row 1's mistake: put the preempted task back before anything is looked for.
    #[cold]
    fn enqueue_early(self, cpu: CpuId, prev: TaskId) {
        let ts = self.tasks.ts(prev);
        if self.class_on(cpu) != Some(SchedClass::Ext) || ts.scx.flags & TASK_QUEUED == 0 {
            return;
        }
        self.update_curr(cpu);
        if self.tasks.ts(prev).scx.slice == 0 {
            self.op_task(Op::Stopping, prev, 1);
            self.set_runnable(prev);
            self.do_enqueue_task(cpu, prev, 0, -1);
        }
    }

    /// balance_one: make sure that something is in the local queue, or that the previous task goes on.
    #[inline(always)]
    fn balance(self, mut c: CpuRef, cpu: CpuId, prev: TaskId, prev_ext: bool) {
        c.in_balance = true;
        c.bal_keep = false;
        if unlikely(c.cpu_released) {
            c.cpu_released = false;
            self.op_cpu(Op::CpuAcquire, cpu, 0);
        }
        let found = self.balance_sources(c, cpu, prev, prev_ext);
        if unlikely(c.nr_immed > 0) && found && self.dsqs.get(self.dsqs.local(cpu)).nr > 1 {
            self.schedule_reenq_local(cpu, 0);
        }
        c.in_balance = false;
    }

    /// Sources in order (rows 3 to 8); `true`: something to run.
    #[inline(always)]
    fn balance_sources(mut self, mut c: CpuRef, cpu: CpuId, prev: TaskId, prev_ext: bool) -> bool {
        let queued = |k: Handle| prev_ext && k.tasks.ts(prev).scx.flags & TASK_QUEUED != 0;
        if prev_ext {
            self.update_curr(cpu);
            if queued(self)
                && self.tasks.ts(prev).scx.slice != 0
                && !self.flags.bypass
                && !self.wrong(Mutation::DispatchDespiteSlice)
            {
                c.bal_keep = true;
                return true;
            }
        }
        let local = self.dsqs.local(cpu);
        if self.dsqs.get(local).nr > 0 && !self.wrong(Mutation::DispatchDespiteLocal) {
            return true;
        }
        if self.dispatch_rounds(c, cpu, prev, prev_ext) {
            return true;
        }
        if queued(self)
            && (!self.policy.has_flag(OPS_ENQ_LAST)
                || self.flags.bypass
                || self.wrong(Mutation::IgnoreEnqLast))
        {
            c.bal_keep = true;
            self.events.dispatch_keep_last += 1;
            return true;
        }
        false
    }

    #[inline(always)]
    fn dispatch_rounds(mut self, mut c: CpuRef, cpu: CpuId, prev: TaskId, prev_ext: bool) -> bool {
        let (local, global) = (self.dsqs.local(cpu), self.global_dsq(cpu));
        if self.consume(cpu, global, 0) {
            return true;
        }
        if unlikely(self.flags.bypass) {
            let q = self.dsqs.bypass(cpu);
            return self.consume(cpu, q, 0);
        }
        if unlikely(!self.policy.has(Op::Dispatch)) || unlikely(!c.online) {
            return false;
        }
        self.dispatch.cpu = cpu;
        let prev_ptr = if prev_ext {
            self.tasks.ptr(prev) as u64
        } else {
            0
        };
        let mut rounds = DSP_MAX_LOOPS;
        loop {
            self.dispatch.nr_tasks = 0;
            self.op_cpu(Op::Dispatch, cpu, prev_ptr);
            self.flush_dispatch(cpu);
            let ts = self.tasks.ts(prev);
            if prev_ext && ts.scx.flags & TASK_QUEUED != 0 && ts.scx.slice != 0 {
                let beaten = self.wrong(Mutation::LocalBeatsRenewed) && self.dsqs.get(local).nr > 0;
                c.bal_keep = !beaten;
                return true;
            }
            if self.dsqs.get(local).nr > 0 || self.consume(cpu, global, 0) {
                return true;
            }
            if self.dispatch.nr_tasks == 0 || self.failed.is_some() {
                return false;
            }
            rounds -= 1;
            if rounds == 0 {
                self.kick_cpu(cpu as i32, 0);
                return false;
            }
        }
    }

    /// The class's put_prev_task.
    #[inline(always)]
    pub fn put_prev(self, cpu: CpuId, prev: TaskId, next: TaskId) {
        if self.is_idle_task(prev) {
            if !self.wrong(Mutation::LateUpdateIdle) {
                self.update_idle(cpu, false, true);
            }
            return;
        }
        if unlikely(self.tasks.hot[prev as usize].class != SchedClass::Ext) {
            return self.put_higher(cpu, prev, next);
        }
        self.cpu(cpu).kick_sync += 1;
        self.update_curr(cpu);
        let next_class = (!self.is_idle_task(next)).then(|| self.tasks.hot[next as usize].class);
        let ts = self.tasks.ts(prev);
        // Row 1's mistake has put it back already.
        let early = self.wrong(Mutation::EnqueueBeforeDispatch)
            && (!ts.scx.dsq.is_null() || ts.scx.flags & TASK_IN_CUSTODY != 0);
        if ts.scx.flags & TASK_QUEUED != 0 && !early {
            self.op_task(Op::Stopping, prev, 1);
            self.set_runnable(prev);
            let ts = self.tasks.ts(prev);
            if ts.scx.slice != 0 && !self.flags.bypass && !self.wrong(Mutation::EnqueueOnPreempt) {
                if unlikely(ts.scx.flags & TASK_IMMED != 0) {
                    ts.scx.flags |= TASK_REENQ_PREEMPTED;
                    self.do_enqueue_task(cpu, prev, ENQ_REENQ, -1);
                    self.tasks.ts(prev).scx.flags &= !TASK_REENQ_MASK;
                } else {
                    let q = self.dsqs.local(cpu);
                    self.dispatch_enqueue(q, prev, ENQ_HEAD);
                }
            } else {
                let last = if next_class.is_none() { ENQ_LAST } else { 0 };
                self.do_enqueue_task_inlined(cpu, prev, last, -1);
            }
        }
        if unlikely(next_class > Some(SchedClass::Ext)) {
            self.release_cpu(cpu, next);
        }
    }

    /// Row 22: tell the policy, once, that a higher class has the CPU.
    pub fn release_cpu(mut self, cpu: CpuId, next: TaskId) {
        if !self.policy.has(Op::CpuRelease) && !self.policy.has(Op::CpuAcquire) {
            return;
        }
        if self.cpus[cpu as usize].cpu_released && !self.wrong(Mutation::ReleaseRepeats) {
            return;
        }
        if self.policy.has(Op::CpuRelease) {
            let args = ScxCpuReleaseArgs {
                reason: match self.tasks.hot[next as usize].class {
                    SchedClass::Stop => 2,
                    SchedClass::Rt => 0,
                    _ => 3,
                },
                task: self.tasks.ptr(next),
            };
            let args = std::cell::UnsafeCell::new(args);
            self.with_args(args.get() as u64, size_of::<ScxCpuReleaseArgs>(), |k| {
                k.op_cpu(Op::CpuRelease, cpu, args.get() as u64);
            });
        }
        self.cpus[cpu as usize].cpu_released = true;
    }

    /// The class's set_next_task.
    #[inline(always)]
    pub fn set_next(mut self, cpu: CpuId, prev: TaskId, next: TaskId) {
        if self.is_idle_task(next) {
            return self.update_idle(cpu, true, true);
        }
        self.cpus[cpu as usize].exec_start = self.now;
        if self.tasks.hot[next as usize].class == SchedClass::Ext {
            self.set_next_scx(cpu, next);
        }
        if self.wrong(Mutation::LateUpdateIdle) && self.is_idle_task(prev) {
            self.update_idle(cpu, false, true);
        }
    }

    #[inline(always)]
    pub fn set_next_scx(mut self, cpu: CpuId, task: TaskId) {
        let ts = self.tasks.ts(task);
        if ts.scx.flags & TASK_QUEUED != 0 {
            self.ops_dequeue(task, DEQ_CORE_SCHED_EXEC);
            self.dispatch_dequeue(task);
        }
        self.cpus[cpu as usize].exec_start = self.now;
        ts.se.exec_start = self.task_clock(cpu);
        if ts.scx.flags & TASK_QUEUED != 0 {
            self.op_task(Op::Running, task, 0);
        }
        self.tasks.ts(task).scx.flags |= TASK_RESET_RUNNABLE_AT;
    }

    /// Who has the CPU from now on: statistics, costs, the workload's demand.
    #[inline(always)]
    fn account_switch(mut self, mut c: CpuRef, cpu: CpuId, prev: TaskId, next: TaskId) {
        debug_assert!(!c.paused, "machine {} CPU {cpu} at {}", self.id, self.now);
        let now = self.now;
        let k = &mut *self;
        let span = now - c.since;
        c.since = now;
        c.curr = next;
        c.switches += 1;
        c.run_end = NEVER;
        c.rq.curr = k.tasks.ptr(next);
        let idle = k.cpus.len() as u32;
        let stays = k.tasks.hot[prev as usize].life == Life::Runnable;
        let again = unlikely(c.rare().is_some()) && k.put_aside(c, cpu, prev, next, stays);
        if let Some(blame) = &mut k.stats.blame {
            let entry = |t: TaskId| (t >= idle).then(|| k.tasks.hot[t as usize].stats);
            let (prev, next) = (entry(prev), entry(next));
            blame.switch(cpu, now, prev, stays, next);
        }
        let mut waiting = 0u32;
        if prev < idle {
            c.idle_ns += span;
        } else {
            c.busy_ns += span;
            let ts = k.tasks.ts(prev);
            ts.on_cpu = 0;
            let t = &mut k.tasks.hot[prev as usize];
            t.runtime += span;
            t.last_cpu = cpu;
            k.stats.ran(t.stats, cpu, now, span);
            if stays {
                t.queued_at = now;
                t.waits = Waits::Ready;
                if t.mask == MaskId::ALL {
                    waiting = 1;
                }
            }
            if t.mark & MARK_VCPU != 0 {
                k.switched.push(Switched {
                    vcpu: t.token,
                    what: What::Out,
                });
            }
            if let Some(rest) = k.tasks.rest(prev) {
                rest.nivcsw += u64::from(stays);
                rest.nvcsw += u64::from(!stays);
            }
        }
        if let Some(on_kind) = &mut k.stats.on_kind {
            let entry = (next >= idle).then(|| k.tasks.hot[next as usize].stats);
            on_kind.starts(entry, cpu, now);
        }
        if next >= idle && k.tasks.hot[next as usize].could_run_anywhere() {
            waiting = waiting.wrapping_sub(1);
        }
        let idles = if c.online {
            u32::from(next < idle).wrapping_sub(u32::from(prev < idle))
        } else {
            0
        };
        if idles | waiting != 0 {
            k.stats.unused.change(now, idles, waiting);
        }
        k.note(Kind::Switch, cpu, next);
        if k.hardware.is_some() {
            self.hardware_switch(cpu, prev, next);
        }
        if next < idle {
            return;
        }
        let k = &mut *self;
        let t = &mut k.tasks.hot[next as usize];
        let fits = t.cpu == cpu && t.life == Life::Runnable && k.masks.allows(t.mask, cpu);
        if unlikely(!fits) {
            return self.broken_switch(cpu, next);
        }
        let woken = t.waits == Waits::Woken;
        t.waits = Waits::No;
        let (since, entry, from) = (t.queued_at, t.stats, t.last_cpu);
        let vcpu = (t.mark & MARK_VCPU != 0).then_some(t.token);
        let longest = !again && k.stats.waited(entry, since, now, woken);
        let look_back = longest || now >= k.recent.due;
        k.tasks.ts(next).on_cpu = 1;
        let mut cost = 0;
        if c.last_task != next {
            cost = k.cost.switch_ns;
            c.last_task = next;
        }
        // What threads of higher classes have to do has their sleeps in it.
        if unlikely(k.cost.sleep_ns > 0)
            && woken
            && k.tasks.hot[next as usize].class == SchedClass::Ext
        {
            cost += k.cost.sleep_ns;
        }
        if unlikely(k.cost.insn_ps > 0) {
            let code = k.code_ns(k.code.pass_mark);
            // A higher class is switched in without the policy's being asked.
            if k.tasks.hot[next as usize].class == SchedClass::Ext {
                c.pass_ns = code;
            }
            if !std::mem::take(&mut c.pass_paid) {
                cost += code;
            }
        }
        let mut cost = self.in_turns(cpu, cost);
        let k = &mut *self;
        if from != cpu && from != NONE {
            cost += k.migrated(entry, from, cpu);
        }
        let start = now.max(c.irq_until) + cost;
        c.work_start = start;
        if start > now
            && let Some(blame) = &mut k.stats.blame
        {
            blame.costs_until(cpu, start);
        }
        let held = c.waits();
        if !held {
            c.run_end = k.work_end(cpu, next, start);
        }
        if let Some(vcpu) = vcpu {
            let start = if held { NEVER } else { start };
            let queued_at = since;
            k.switched.push(Switched {
                vcpu,
                what: What::In { queued_at, start },
            });
        }
        if unlikely(look_back) {
            self.look_back(next, longest);
        }
    }

    /// The host did this to a task: written down, if it is a vCPU's thread.
    #[cold]
    pub(super) fn vcpu_switched(mut self, cpu: CpuId, task: TaskId, what: What) {
        debug_assert_eq!(self.cpus[cpu as usize].curr, task);
        let t = &self.tasks.hot[task as usize];
        if t.mark & MARK_VCPU != 0 {
            let vcpu = t.token;
            self.switched.push(Switched { vcpu, what });
        }
    }

    /// The running task works from now on (it was held back by a KICK_WAIT).
    pub fn start_work(mut self, cpu: CpuId) {
        if self.cpus[cpu as usize].is_idle() || !self.wait_over(cpu) {
            return;
        }
        let now = self.now;
        let k = &mut *self;
        let c = &mut k.cpus[cpu as usize];
        if c.paused {
            return;
        }
        c.work_start = c.work_start.max(now);
        let (curr, start) = (c.curr, c.work_start);
        let end = k.work_end(cpu, curr, start);
        k.cpus[cpu as usize].run_end = end;
        self.vcpu_switched(cpu, curr, What::Start { start });
    }

    /// The running task's work up to now is done.
    #[inline]
    pub fn sync_work(mut self, cpu: CpuId) {
        let mut c = self.cpu(cpu);
        let k = &mut *self;
        let now = k.now;
        if unlikely(c.run_end == NEVER) {
            // Held back: nothing is done yet.
            c.work_start = c.work_start.max(now);
            return;
        }
        if now > c.work_start {
            let mut done = now - c.work_start;
            c.work_start = now;
            let t = &mut k.tasks.hot[c.curr as usize];
            if unlikely(c.pace.uneven) {
                done = c.pace.work(done, t.remaining);
            }
            if t.remaining < SPINNING {
                t.remaining = t.remaining.saturating_sub(done);
            } else if unlikely(t.remaining == SPINNING) {
                return;
            }
            k.stats.worked(t.stats, done);
        }
    }

    /// [`crate::workload::api::Ctx::interrupt`].
    pub fn interrupt(mut self, cpu: CpuId, ns: Nanos) -> Nanos {
        let now = self.now;
        let idle = self.cpus[cpu as usize].is_idle();
        if !idle {
            self.sync_work(cpu);
        }
        let k = &mut *self;
        let c = &mut k.cpus[cpu as usize];
        c.irq_until = c.irq_until.max(now) + ns;
        if !idle && ns > 0 {
            c.work_start = c.work_start.max(now) + ns;
            let (curr, start, held) = (c.curr, c.work_start, c.run_end == NEVER);
            if !held {
                k.cpus[cpu as usize].run_end = k.work_end(cpu, curr, start);
            }
            self.vcpu_switched(cpu, curr, What::Delay { ns });
        }
        self.cpus[cpu as usize].irq_until
    }

    /// An invariant of every switch does not hold.
    #[cold]
    fn broken_switch(mut self, cpu: CpuId, next: TaskId) {
        let t = &self.tasks.hot[next as usize];
        let what = if t.life != Life::Runnable {
            "is not runnable".to_string()
        } else if t.cpu != cpu {
            format!("belongs to CPU {}", t.cpu)
        } else {
            "may not run there".to_string()
        };
        let name = self.name_of(next);
        let (at_ns, seed) = (self.now, self.seed);
        self.fail(SimError::Invariant {
            what: format!("CPU {cpu} was given task {name}, which {what}"),
            at_ns,
            seed,
        });
    }
}
