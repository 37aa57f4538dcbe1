// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own choice of a CPU for a waking task (row 29), and asking the policy for its (row 24).
use super::consts::*;
use super::dispatch::Direct;
use super::kernel::Handle;
use super::mutation::Mutation;
use crate::machine::MaskId;
use crate::unlikely::unlikely;
use crate::words::{CpuId, TaskId};
use berth_policy::abi::Op;

/// Is the CPU in a mask of these words?
#[inline]
pub fn bit(words: &[u64], cpu: CpuId) -> bool {
    words[cpu as usize / 64] >> (cpu % 64) & 1 != 0
}

impl Handle {
    /// scx_select_cpu_dfl: an idle CPU for the task, claimed. `cpus_allowed`: a further restriction, words.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn select_cpu_dfl(
        self,
        task: TaskId,
        prev: CpuId,
        wake_flags: u64,
        cpus_allowed: Option<&[u64]>,
        flags: u64,
    ) -> Option<CpuId> {
        if self.nobody_idle() {
            return None;
        }
        let node = self.idle_node(prev);
        let own = self.masks.get(self.tasks.hot[task as usize].mask).words();
        let every = self.masks.get(MaskId::ALL).words();
        let extra = cpus_allowed.unwrap_or(every);
        if own.iter().zip(extra).all(|(a, b)| a & b == 0) {
            return None;
        }
        let prev_ok = bit(cpus_allowed.unwrap_or(own), prev);
        let allowed = [own, extra, every];
        let by_node = self
            .idle
            .by_node
            .then(|| self.topo.nodes[self.topo.node_of(prev) as usize].words());
        let by_llc = self
            .idle
            .by_llc
            .then(|| self.topo.llcs[self.topo.llc_of(prev) as usize].words());

        if wake_flags & WAKE_SYNC != 0 {
            let waker = self.exec;
            if prev_ok
                && self.topo.llc_of(waker) == self.topo.llc_of(prev)
                && self.test_and_clear_idle(prev)
            {
                return Some(prev);
            }
            let waker_node = self.idle_node(waker);
            let exiting = self.tasks.ts(self.cpus[waker as usize].curr).flags & PF_EXITING != 0;
            if !exiting
                && self.dsqs.get(self.dsqs.local(waker)).nr == 0
                && (flags & PICK_IDLE_IN_NODE == 0 || waker_node == node)
                && !self.idle.pair(waker_node).cpu.is_empty()
                && bit(own, waker)
                && bit(extra, waker)
            {
                return Some(waker);
            }
        }
        if self.topo.smt() {
            if prev_ok && self.idle.pair(node).smt.has(prev) && self.test_and_clear_idle(prev) {
                return Some(prev);
            }
            for group in [by_llc, by_node].into_iter().flatten() {
                if let Some(cpu) = self.pick_idle_in_node([own, extra, group], node, PICK_IDLE_CORE)
                {
                    return Some(cpu);
                }
            }
            if let Some(cpu) = self.pick_idle(allowed, node, flags | PICK_IDLE_CORE) {
                return Some(cpu);
            }
            if flags & PICK_IDLE_CORE != 0 {
                return None;
            }
        }
        if prev_ok && self.test_and_clear_idle(prev) {
            return Some(prev);
        }
        if self.topo.smt() {
            let siblings = self.topo.siblings(prev);
            for cpu in siblings.iter() {
                let may = bit(own, cpu) && bit(extra, cpu);
                if cpu != prev && may && self.test_and_clear_idle(cpu) {
                    return Some(cpu);
                }
            }
        }
        for group in [by_llc, by_node].into_iter().flatten() {
            if let Some(cpu) = self.pick_idle_in_node([own, extra, group], node, 0) {
                return Some(cpu);
            }
        }
        self.pick_idle(allowed, node, flags)
    }

    /// select_task_rq: the run queue a waking or new task is put on, and whether the class was asked.
    #[inline(always)]
    pub fn select_task_rq(self, task: TaskId, prev: CpuId, wake_flags: u64) -> (CpuId, bool) {
        let ts = self.tasks.ts(task);
        let mask = self.tasks.hot[task as usize].mask;
        let pinned = ts.nr_cpus_allowed <= 1 || ts.migration_disabled != 0;
        let (mut cpu, mut asked) = (prev, false);
        if !pinned || self.wrong(Mutation::SelectPinned) {
            asked = true;
            cpu = self.select_task_rq_scx(task, prev, wake_flags);
        } else if ts.migration_disabled == 0 {
            cpu = self.masks.get(mask).first().unwrap_or(prev);
        }
        let allowed = |c: CpuId| self.masks.allows(mask, c) && self.cpus[c as usize].online;
        if unlikely(!allowed(cpu)) && ts.migration_disabled == 0 {
            cpu = self.fallback_rq(task);
        }
        self.tasks.ts(task).wake_cpu = cpu as i32;
        (cpu, asked)
    }

    /// An allowed online CPU near the task's last one. If there is none, the task loses its affinity.
    pub fn fallback_rq(self, task: TaskId) -> CpuId {
        if let Some(cpu) = self.allowed_online(task) {
            return cpu;
        }
        self.break_affinity(task);
        self.allowed_online(task).unwrap_or(0)
    }

    fn allowed_online(self, task: TaskId) -> Option<CpuId> {
        let hot = &self.tasks.hot[task as usize];
        let mask = self.masks.get(hot.mask);
        let node = &self.topo.nodes[self.topo.node_of(hot.cpu) as usize];
        let ok = |c: &CpuId| mask.has(*c) && self.online.has(*c);
        node.iter().find(ok).or_else(|| mask.iter().find(ok))
    }

    #[inline(always)]
    fn select_task_rq_scx(mut self, task: TaskId, prev: CpuId, wake_flags: u64) -> CpuId {
        if self.policy.has(Op::SelectCpu) && !self.flags.bypass {
            let outer = std::mem::replace(&mut self.dispatch.direct, Direct::For(task));
            let cpu = self.call_select_cpu(task, prev, wake_flags);
            self.dispatch.direct = outer;
            self.tasks.ts(task).scx.selected_cpu = cpu;
            let wrong = self.wrong(Mutation::LocalIsPrevCpu);
            let hot = &mut self.tasks.hot[task as usize];
            if wrong && hot.ddsp_dsq == DSQ_LOCAL {
                hot.ddsp_dsq = DSQ_LOCAL_ON | prev as u64;
            }
            if self.ops_cpu_valid(cpu, " from ops.select_cpu()") {
                return cpu as u32;
            }
            return prev;
        }
        let cpu = match self.select_cpu_dfl(task, prev, wake_flags, None, 0) {
            Some(cpu) => {
                self.refill_slice(task);
                self.tasks.hot[task as usize].ddsp_dsq = DSQ_LOCAL;
                self.tasks.ts(task).scx.ddsp_dsq_id = DSQ_LOCAL;
                cpu
            }
            None => prev,
        };
        self.tasks.ts(task).scx.selected_cpu = cpu as i32;
        if self.flags.bypass {
            self.events.bypass_dispatch += 1;
        }
        cpu
    }
}
