// SPDX-License-Identifier: GPL-2.0-only
//! Asking CPUs to reschedule (row 31). A policy's kicks are only noted by the call; an interrupt on the
//! calling CPU carries them out, after the operation and its lock.
use super::consts::*;
use super::dsq::DsqIx;
use super::kernel::{Handle, Kernel};
use super::mutation::Mutation;
use crate::engine::queue::NEVER;
use crate::machine::CpuMask;
use crate::machine::cpu::Rare;
use crate::unlikely::unlikely;
use crate::words::{CpuId, Nanos, SchedClass};

/// Kicks and deferred interrupts of the executing CPU; carried out before its event ends.
#[derive(Debug)]
pub struct Kicks {
    kick: CpuMask,
    idle: CpuMask,
    preempt: CpuMask,
    wait: CpuMask,
    pending: bool,
    /// There is something to carry out.
    asked: bool,
    /// Run queues whose deferred work an interrupt must do.
    deferred: Vec<CpuId>,
    pub reenq_users: Vec<(DsqIx, u64)>,
    /// CPUs in a KICK_WAIT.
    pub waiting: u32,
}

impl Kicks {
    pub fn new(nr_cpus: u32) -> Self {
        let mask = || CpuMask::new(nr_cpus);
        Kicks {
            kick: mask(),
            idle: mask(),
            preempt: mask(),
            wait: mask(),
            pending: false,
            asked: false,
            deferred: Vec::new(),
            reenq_users: Vec::new(),
            waiting: 0,
        }
    }

    pub fn deferred_irq(&mut self, rq: CpuId) {
        if !self.deferred.contains(&rq) {
            self.deferred.push(rq);
            self.asked = true;
        }
    }
}

/// What a policy has executed so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executed {
    insns: u64,
    calls: u64,
}

impl Kernel {
    pub fn executed(&self) -> Executed {
        Executed {
            insns: self.policy.insns(),
            calls: self.code.queue_calls,
        }
    }

    /// How long the policy's code took since then.
    #[inline]
    pub fn code_ns(&self, since: Executed) -> Nanos {
        let all = self.executed();
        all.insns.wrapping_sub(since.insns) * self.cost.insn_ps / 1_000
            + all.calls.wrapping_sub(since.calls) * self.cost.call_ns
    }
}

impl Handle {
    /// The CPU must enter its scheduler: at once if it is this one, else when the IPI arrives.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn resched(mut self, cpu: CpuId) {
        let here = cpu == self.exec;
        let mut takes = self.code.waking_ns;
        if !here {
            takes += self.cost.wake_ipi_ns;
        }
        if self.code.waking_ns > 0 && !self.cpus[cpu as usize].is_idle() {
            takes += self.cost.preempt_ns;
        }
        let code = self.cost.insn_ps > 0 && self.code.waking_ns > 0;
        if unlikely(code) {
            // A pass is one instant here: it is expected to take as long as the last one.
            takes += self.code_ns(self.code.code_mark) + self.cpus[cpu as usize].pass_ns;
        }
        let at = self.now + self.in_turns(cpu, takes);
        let c = &mut self.cpus[cpu as usize];
        if at < c.resched_at {
            c.pass_paid = code;
            c.resched_at = at;
            if !here {
                self.arm(cpu);
                // A guest's IPI takes its sender out of the guest.
                let exec = self.exec;
                self.charge_exit(exec);
            }
        }
    }

    /// scx_bpf_kick_cpu
    pub fn kick_cpu(mut self, cpu: i32, flags: u64) {
        if !self.ops_cpu_valid(cpu, "") || self.flags.bypass {
            return;
        }
        let cpu = cpu as u32;
        if flags & KICK_IDLE != 0 {
            if flags & (KICK_PREEMPT | KICK_WAIT) != 0 {
                self.scx_error("PREEMPT/WAIT cannot be used with SCX_KICK_IDLE".into());
            }
            if self.can_skip_idle_kick(cpu) {
                return;
            }
            self.kicks.idle.set(cpu);
        } else {
            self.kicks.kick.set(cpu);
            if flags & KICK_PREEMPT != 0 {
                self.kicks.preempt.set(cpu);
            }
            if flags & KICK_WAIT != 0 {
                self.kicks.wait.set(cpu);
            }
        }
        self.kicks.pending = true;
        self.kicks.asked = true;
        if self.wrong(Mutation::InlineKick) {
            self.kick_cpus();
        }
    }

    /// It will pass through its scheduler before it goes idle anyway.
    fn can_skip_idle_kick(self, cpu: CpuId) -> bool {
        let c = &self.cpus[cpu as usize];
        !c.is_idle() && !c.in_balance
    }

    /// The interrupts the present event has asked for.
    #[inline(always)]
    pub fn irq_work(self) {
        if unlikely(self.kicks.asked) {
            self.interrupts();
        }
    }

    #[inline(never)]
    fn interrupts(mut self) {
        while self.kicks.pending || !self.kicks.deferred.is_empty() {
            if self.kicks.pending {
                self.kick_cpus();
            }
            if let Some(rq) = self.kicks.deferred.pop() {
                self.run_deferred(rq);
            }
        }
        self.kicks.asked = false;
    }

    #[cold]
    #[inline(never)]
    fn kick_cpus(mut self) {
        self.kicks.pending = false;
        let mut should_wait = false;
        for w in 0..self.kicks.kick.words().len() {
            while self.kicks.kick.words()[w] != 0 {
                let cpu = w as u32 * 64 + self.kicks.kick.words()[w].trailing_zeros();
                self.kicks.kick.clear(cpu);
                self.kicks.idle.clear(cpu);
                should_wait |= self.kick_one(cpu);
            }
        }
        for w in 0..self.kicks.idle.words().len() {
            while self.kicks.idle.words()[w] != 0 {
                let cpu = w as u32 * 64 + self.kicks.idle.words()[w].trailing_zeros();
                self.kicks.idle.clear(cpu);
                let c = &self.cpus[cpu as usize];
                if !self.can_skip_idle_kick(cpu) && (c.online || cpu == self.exec) {
                    self.resched(cpu);
                }
            }
        }
        if should_wait {
            let exec = self.exec;
            self.resched(exec);
        }
    }

    /// `true`: the caller has to wait until this CPU has passed its scheduler.
    fn kick_one(mut self, cpu: CpuId) -> bool {
        let exec = self.exec as usize;
        let preempt = self.kicks.preempt.has(cpu);
        let wait = self.kicks.wait.has(cpu);
        self.kicks.preempt.clear(cpu);
        self.kicks.wait.clear(cpu);
        let class = self.class_on(cpu);
        let c = &self.cpus[cpu as usize];
        if !(c.online || cpu as usize == exec) || class > Some(SchedClass::Ext) {
            return false;
        }
        let (curr, sync) = (c.curr, c.kick_sync);
        let mut should_wait = false;
        if class == Some(SchedClass::Ext) {
            if preempt {
                self.tasks.ts(curr).scx.slice = 0;
            }
            if wait && cpu as usize != exec && !self.wrong(Mutation::NoKickWait) {
                let waits_for = &mut self.cpus[exec].rare_mut().waits_for;
                let first = waits_for.is_empty();
                waits_for.push((cpu, sync));
                self.kicks.waiting += u32::from(first);
                should_wait = true;
            }
        }
        self.resched(cpu);
        should_wait
    }

    /// CPUs this one waits for have passed their scheduler? Then its task may start.
    pub fn wait_over(mut self, cpu: CpuId) -> bool {
        if !self.cpus[cpu as usize].waits() {
            return true;
        }
        let mut waits = std::mem::take(&mut self.cpus[cpu as usize].rare_mut().waits_for);
        waits.retain(|(c, sync)| self.cpus[*c as usize].kick_sync == *sync);
        let over = waits.is_empty();
        if over {
            self.kicks.waiting -= 1;
        }
        self.cpus[cpu as usize].rare_mut().waits_for = waits;
        over
    }

    /// A CPU has passed its scheduler: let those go on that waited for it.
    pub fn release_waiters(self, passed: CpuId) {
        for cpu in 0..self.cpus.len() as u32 {
            let c = &self.cpus[cpu as usize];
            let waits = |r: &Rare| r.waits_for.iter().any(|(w, _)| *w == passed);
            if cpu == passed || !c.rare().is_some_and(waits) {
                continue;
            }
            if self.wait_over(cpu) && self.cpus[cpu as usize].run_end == NEVER {
                self.start_work(cpu);
                if cpu != self.exec {
                    self.arm(cpu);
                }
            }
        }
    }
}
