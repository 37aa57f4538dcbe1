// SPDX-License-Identifier: GPL-2.0-only
//! What ops.dispatch (and direct dispatch) asked for: recorded first, carried out when the run queue's lock
//! can be dropped. Rows 12, 13, 16, 17 of the checklist.
use super::consts::*;
use super::dsq::DsqIx;
use super::kernel::Handle;
use super::mutation::Mutation;
use crate::machine::task::{NONE, OpsState, comm};
use crate::unlikely::unlikely;
use crate::words::{CpuId, TaskId};

/// One insert waiting for the end of ops.dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    task: TaskId,
    qseq: u64,
    dsq_id: u64,
    enq_flags: u64,
}

/// For which task a direct dispatch may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direct {
    /// Not on the enqueue path.
    #[default]
    No,
    For(TaskId),
    /// It has been asked for already.
    Spent,
}

#[derive(Debug, Default)]
pub struct Dispatch {
    pub buffer: Vec<Pending>,
    /// Tasks dispatched or moved in this round.
    pub nr_tasks: u32,
    /// CPU in ops.dispatch.
    pub cpu: CpuId,
    pub direct: Direct,
}

impl Handle {
    pub fn name_of(self, task: TaskId) -> String {
        let ts = self.tasks.ts(task);
        format!("{}[{}]", comm(ts), ts.pid)
    }

    /// The queue of an id, as a destination from this run queue and for a task on `task_cpu`.
    #[inline(always)]
    pub fn dsq_for_dispatch(self, rq: CpuId, dsq_id: u64, task_cpu: CpuId) -> DsqIx {
        if dsq_id == DSQ_LOCAL {
            return self.dsqs.local(rq);
        }
        self.other_dsq(dsq_id, task_cpu)
    }

    /// Any queue but the run queue's own.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn other_dsq(self, dsq_id: u64, task_cpu: CpuId) -> DsqIx {
        if dsq_id & DSQ_FLAG_BUILTIN == 0
            && let Some(q) = self.dsqs.find_user(dsq_id)
        {
            return q;
        }
        if dsq_id & DSQ_LOCAL_ON == DSQ_LOCAL_ON {
            let cpu = (dsq_id & DSQ_LOCAL_CPU_MASK) as i32;
            if !self.ops_cpu_valid(cpu, " in SCX_DSQ_LOCAL_ON dispatch verdict") {
                return self.global_dsq(task_cpu);
            }
            return self.dsqs.local(cpu as u32);
        }
        if dsq_id != DSQ_GLOBAL && !self.wrong(Mutation::LenientQueueId) {
            self.scx_error(format!("non-existent DSQ {dsq_id:#x}"));
        }
        self.global_dsq(task_cpu)
    }

    /// The global queue that a CPU's tasks fall back to.
    #[inline]
    pub fn global_dsq(self, cpu: CpuId) -> DsqIx {
        let node = if self.dsqs.one_node() || self.wrong(Mutation::OneGlobalQueue) {
            0
        } else {
            self.topo.node_of(cpu)
        };
        self.dsqs.global(node)
    }

    /// A CPU number from a policy; a bad one ejects it.
    #[inline]
    pub fn ops_cpu_valid(self, cpu: i32, place: &str) -> bool {
        let valid = (cpu as u32) < self.topo.nr_cpus();
        if unlikely(!valid) {
            self.scx_error(format!("invalid CPU {cpu}{place}"));
        }
        valid
    }

    /// Row 17: may this task be moved to that (other) CPU? `enforce`: a refusal ejects the policy.
    #[inline]
    pub fn can_run_on_remote(mut self, task: TaskId, cpu: CpuId, enforce: bool) -> bool {
        let ts = self.tasks.ts(task);
        if unlikely(ts.migration_disabled != 0) {
            if enforce {
                let (name, from) = (self.name_of(task), self.tasks.hot[task as usize].cpu);
                self.scx_error(format!(
                    "SCX_DSQ_LOCAL[_ON] cannot move migration disabled {name} from CPU {from} to {cpu}"
                ));
            }
            return false;
        }
        let mask = self.tasks.hot[task as usize].mask;
        if unlikely(!self.masks.allows(mask, cpu)) {
            if enforce && !self.wrong(Mutation::RepairAffinity) {
                let name = self.name_of(task);
                self.scx_error(format!(
                    "SCX_DSQ_LOCAL[_ON] target CPU {cpu} not allowed for {name}"
                ));
            }
            return false;
        }
        if unlikely(!self.cpus[cpu as usize].online) {
            if enforce {
                self.events.dispatch_local_dsq_offline += 1;
            }
            return false;
        }
        true
    }

    /// An insert by the policy: on the enqueue path it is a direct dispatch, else it waits in the buffer.
    #[inline(always)]
    pub fn insert_commit(mut self, task: TaskId, dsq_id: u64, enq_flags: u64) {
        match self.dispatch.direct {
            Direct::No => (),
            direct => {
                self.dispatch.direct = Direct::Spent;
                return self.mark_direct(direct, task, dsq_id, enq_flags);
            }
        }
        if unlikely(self.dispatch.buffer.len() >= self.policy.max_batch as usize) {
            self.scx_error("dispatch buffer overflow".into());
            return;
        }
        let qseq = self.tasks.hot[task as usize].qseq;
        let p = Pending {
            task,
            qseq,
            dsq_id,
            enq_flags,
        };
        if self.wrong(Mutation::ImmediateInsert) {
            let cpu = self.dispatch.cpu;
            self.dispatch.nr_tasks += 1;
            return self.finish_dispatch(cpu, p);
        }
        self.dispatch.buffer.push(p);
    }

    #[inline(always)]
    fn mark_direct(mut self, direct: Direct, task: TaskId, dsq_id: u64, enq_flags: u64) {
        if direct != Direct::For(task) {
            return self.wrong_direct(direct, task);
        }
        let hot = &mut self.tasks.hot[task as usize];
        hot.ddsp_dsq = dsq_id;
        hot.ddsp_flags = enq_flags;
        let ts = self.tasks.ts(task);
        ts.scx.ddsp_dsq_id = dsq_id;
        ts.scx.ddsp_enq_flags = enq_flags;
    }

    #[cold]
    fn wrong_direct(self, direct: Direct, task: TaskId) {
        let name = self.name_of(task);
        let message = match direct {
            Direct::For(other) => {
                let scheduled = self.name_of(other);
                format!("scheduling for {scheduled} but trying to direct-dispatch {name}")
            }
            _ => format!("{name} already direct-dispatched"),
        };
        self.scx_error(message);
    }

    #[inline]
    pub fn clear_direct(mut self, task: TaskId) {
        let hot = &mut self.tasks.hot[task as usize];
        if hot.ddsp_dsq != DSQ_INVALID {
            hot.ddsp_dsq = DSQ_INVALID;
            hot.ddsp_flags = 0;
            let ts = self.tasks.ts(task);
            ts.scx.ddsp_dsq_id = DSQ_INVALID;
            ts.scx.ddsp_enq_flags = 0;
        }
    }

    /// Carry out a direct dispatch at enqueue time (row 15), or put it off if it needs another lock (row 16).
    #[inline(always)]
    pub fn direct_dispatch(mut self, task: TaskId, enq_flags: u64) {
        let hot = &self.tasks.hot[task as usize];
        let rq = hot.cpu;
        let (id, flags) = (hot.ddsp_dsq, hot.ddsp_flags | enq_flags);
        let mut q = self.dsq_for_dispatch(rq, id, rq);
        if self.dsqs.is_local(q) && q != self.dsqs.local(rq) {
            let hot = &mut self.tasks.hot[task as usize];
            hot.ops_state = OpsState::None;
            hot.ddsp_flags = flags;
            if self.wrong(Mutation::SynchronousLocalOn) {
                self.clear_direct(task);
                return self.dispatch_to_local(rq, q, task, flags);
            }
            self.defer(rq, task);
            return;
        }
        self.clear_direct(task);
        if self.wrong(Mutation::RepairAffinity) && self.dsqs.is_local(q) {
            let mask = self.tasks.hot[task as usize].mask;
            if !self.masks.get(mask).has(q) {
                q = self.global_dsq(rq);
            }
        }
        self.tasks.hot[task as usize].ops_state = OpsState::None;
        self.dispatch_enqueue_inlined(q, task, flags);
    }

    /// Put a task on its run queue's list of deferred inserts.
    fn defer(mut self, rq: CpuId, task: TaskId) {
        let tail = self.cpus[rq as usize].deferred.tail;
        let hot = &mut self.tasks.hot[task as usize];
        debug_assert!(hot.dsq == NONE && !hot.deferred);
        hot.deferred = true;
        hot.prev = tail;
        hot.next = NONE;
        match tail {
            NONE => self.cpus[rq as usize].deferred.head = task,
            t => self.tasks.hot[t as usize].next = task,
        }
        self.cpus[rq as usize].deferred.tail = task;
        self.schedule_deferred_locked(rq);
    }

    /// Take a task off its run queue's list of deferred inserts.
    pub fn undefer(mut self, rq: CpuId, task: TaskId) {
        let hot = &mut self.tasks.hot[task as usize];
        let (prev, next) = (hot.prev, hot.next);
        hot.deferred = false;
        (hot.prev, hot.next) = (NONE, NONE);
        match prev {
            NONE => self.cpus[rq as usize].deferred.head = next,
            p => self.tasks.hot[p as usize].next = next,
        }
        match next {
            NONE => self.cpus[rq as usize].deferred.tail = prev,
            n => self.tasks.hot[n as usize].prev = prev,
        }
    }

    /// Deferred work of a run queue will be done: by the wake-up or balance in progress, or by an interrupt.
    pub fn schedule_deferred_locked(mut self, rq: CpuId) {
        let c = &mut self.cpus[rq as usize];
        if c.in_wakeup || c.bal_cb_pending {
            return;
        }
        if c.in_balance {
            c.bal_cb_pending = true;
            return;
        }
        self.kicks.deferred_irq(rq);
    }

    /// Do the deferred work of a run queue, whose lock can be dropped now.
    #[inline(always)]
    pub fn run_deferred(self, rq: CpuId) {
        let c = &self.cpus[rq as usize];
        let deferred = c.deferred.head != NONE || c.reenq_local != 0;
        if unlikely(deferred) || unlikely(!self.kicks.reenq_users.is_empty()) {
            self.deferred_work(rq);
        }
    }

    #[inline(never)]
    fn deferred_work(mut self, rq: CpuId) {
        loop {
            let task = self.cpus[rq as usize].deferred.head;
            if task == NONE {
                break;
            }
            self.undefer(rq, task);
            let hot = &self.tasks.hot[task as usize];
            let (id, flags, cpu) = (hot.ddsp_dsq, hot.ddsp_flags, hot.cpu);
            self.clear_direct(task);
            let q = self.dsq_for_dispatch(rq, id, cpu);
            if self.dsqs.is_local(q) {
                self.dispatch_to_local(rq, q, task, flags);
            } else {
                self.dispatch_enqueue(q, task, flags);
            }
        }
        if self.cpus[rq as usize].reenq_local != 0 {
            self.process_reenq_locals(rq);
        }
        if !self.kicks.reenq_users.is_empty() {
            let users = std::mem::take(&mut self.kicks.reenq_users);
            for (q, flags) in users {
                self.reenq_user(q, flags);
            }
        }
    }

    /// Rows 12 and 13: end of a buffered insert.
    fn finish_dispatch(mut self, rq: CpuId, p: Pending) {
        let hot = &self.tasks.hot[p.task as usize];
        if hot.ops_state != OpsState::Queued
            || (hot.qseq != p.qseq && !self.wrong(Mutation::IgnoreQseq))
        {
            return;
        }
        let cpu = hot.cpu;
        let q = self.dsq_for_dispatch(rq, p.dsq_id, cpu);
        self.tasks.hot[p.task as usize].ops_state = OpsState::None;
        if self.dsqs.is_local(q) {
            self.dispatch_to_local(rq, q, p.task, p.enq_flags);
        } else {
            self.dispatch_enqueue(q, p.task, p.enq_flags);
        }
    }

    /// Carry out the buffered inserts, in order.
    #[inline(always)]
    pub fn flush_dispatch(self, rq: CpuId) {
        if !self.dispatch.buffer.is_empty() {
            self.flush(rq);
        }
    }

    #[inline(never)]
    fn flush(mut self, rq: CpuId) {
        let n = self.dispatch.buffer.len();
        for i in 0..n {
            let p = self.dispatch.buffer[i];
            self.finish_dispatch(rq, p);
        }
        self.dispatch.nr_tasks += n as u32;
        self.dispatch.buffer.clear();
    }

    /// Put a task that is on no queue to a local queue, moving it to that CPU's run queue if need be.
    pub fn dispatch_to_local(self, rq: CpuId, local: DsqIx, task: TaskId, enq_flags: u64) {
        let dst: CpuId = local;
        let src = self.tasks.hot[task as usize].cpu;
        if rq == src && rq == dst {
            return self.dispatch_enqueue(local, task, enq_flags);
        }
        if src != dst && !self.can_run_on_remote(task, dst, true) {
            let q = self.global_dsq(src);
            return self.dispatch_enqueue(q, task, enq_flags | ENQ_GDSQ_FALLBACK);
        }
        if src == dst {
            self.dispatch_enqueue(local, task, enq_flags);
        } else {
            self.move_remote_to_local(task, enq_flags, dst);
        }
        if self.class_on(dst).is_none() {
            self.resched(dst);
        }
    }
}
