// SPDX-License-Identifier: GPL-2.0-only
//! A policy's life: enable, watchdog, exit with bypass (rows 33, 36, 37, 38, 40).
use super::consts::*;
use super::kernel::{Handle, Source};
use super::mutation::Mutation;
use crate::error::SimError;
use crate::machine::task::Life;
use crate::trace::Kind;
use crate::words::{CpuId, Nanos, SchedClass, TaskId};
use berth_policy::abi::Op;
use berth_policy::kview::ScxExitInfo;
use berth_scenario::model::Hz;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// The run is over: unregistered from user space.
    Unreg,
    /// scx_bpf_exit
    UnregBpf,
    /// The kernel wants it gone (hotplug).
    UnregKern,
    Error,
    /// scx_bpf_error
    ErrorBpf,
    /// Watchdog.
    Stall,
}

impl ExitKind {
    /// SCX_EXIT_* number.
    pub fn number(self) -> u32 {
        match self {
            ExitKind::Unreg => EXIT_UNREG,
            ExitKind::UnregBpf => EXIT_UNREG_BPF,
            ExitKind::UnregKern => EXIT_UNREG_KERN,
            ExitKind::Error => EXIT_ERROR,
            ExitKind::ErrorBpf => EXIT_ERROR_BPF,
            ExitKind::Stall => EXIT_ERROR_STALL,
        }
    }

    /// The kernel's words.
    pub fn reason(self) -> &'static str {
        match self {
            ExitKind::Unreg => "unregistered from user space",
            ExitKind::UnregBpf => "unregistered from BPF",
            ExitKind::UnregKern => "unregistered from the main kernel",
            ExitKind::Error => "runtime error",
            ExitKind::ErrorBpf => "scx_bpf_error",
            ExitKind::Stall => "runnable task stall",
        }
    }
}

/// How the policy left, if it did. The first reason wins.
#[derive(Debug, Default)]
pub struct Exit {
    pub claim: Option<Box<Claim>>,
    /// Everything about it has been done.
    pub done: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub kind: ExitKind,
    pub code: i64,
    pub message: String,
    pub at_ns: Nanos,
}

impl Exit {
    /// An exit is on its way.
    #[inline]
    pub fn claimed(&self) -> bool {
        self.claim.is_some()
    }
}

impl Handle {
    /// Claim the exit; what it entails follows when the present event is over.
    #[cold]
    pub fn scx_exit(mut self, kind: ExitKind, code: i64, message: String) {
        self.flags.attention = true;
        if self.exit.claim.is_none() {
            let at_ns = self.now;
            self.exit.claim = Some(Box::new(Claim {
                kind,
                code,
                message,
                at_ns,
            }));
        }
    }

    /// The policy takes over a machine: what its loader runs, ops.init, cgroups, existing tasks, watchdog.
    pub fn enable_policy(mut self) {
        let keep = self.policy.has_flag(OPS_KEEP_BUILTIN_IDLE);
        let enabled = !self.policy.has(Op::UpdateIdle) || keep;
        let per_node = self.policy.has_flag(OPS_BUILTIN_IDLE_PER_NODE);
        let k = &mut *self;
        k.idle.enable(&k.topo, &k.online, enabled, per_node);
        if !self.calls_before() {
            return;
        }
        let ret = self.op_unlocked(Op::Init, []) as i32;
        if ret != 0 {
            self.scx_error(format!("ops.init() failed ({ret})"));
            return;
        }
        self.cgroups_init();
        let existing: Vec<TaskId> = self.task_ids().collect();
        for task in &existing {
            self.init_task(*task, false);
        }
        for task in existing {
            if self.tasks.hot[task as usize].class == SchedClass::Ext {
                self.enable_task(task);
                let ptr = self.tasks.ts(task).cpus_ptr as u64;
                self.op_task(Op::SetCpumask, task, ptr);
            }
        }
        let half = self.policy.timeout_ns / 2;
        let slot = self.queue.alloc();
        self.source(slot, Source::Watchdog);
        self.watchdog = slot;
        let at = self.now + half.max(1);
        self.queue.set(slot, at);
        self.calls_after();
        self.irq_work();
    }

    /// Tasks that exist, idle and stopper threads apart, in the order of their numbers.
    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> + '_ {
        (self.cpus.len() as TaskId..self.tasks.len() as TaskId).filter(|t| {
            let hot = &self.tasks.hot[*t as usize];
            hot.life != Life::Free && hot.class != SchedClass::Stop
        })
    }

    /// Row 36: has a task been runnable for too long without running?
    pub fn watchdog(mut self, slot: u32) {
        let timeout = self.policy.timeout_ns;
        let hz = match self.hz {
            Hz::Ticks(hz) => hz as u64,
            Hz::Exact => 1000,
        };
        let jiffies = |ns: Nanos| (ns as u128 * hz as u128 / 1_000_000_000) as u64;
        let exact = self.wrong(Mutation::ExactWatchdog);
        let (now, limit) = (jiffies(self.now), jiffies(timeout));
        let mut stuck: Option<(u64, TaskId)> = None;
        for task in self.task_ids() {
            let hot = &self.tasks.hot[task as usize];
            let running = self.cpus[hot.cpu as usize].curr == task;
            if hot.life != Life::Runnable || hot.class != SchedClass::Ext || running {
                continue;
            }
            let since = if exact {
                jiffies(hot.queued_at)
            } else {
                jiffies(self.tasks.ts(task).scx.runnable_at)
            };
            // The kernel looks run queue by run queue, in the order of becoming runnable.
            let order = ((hot.cpu as u64) << 44) | (hot.runnable_seq & ((1 << 44) - 1));
            if now > since + limit && stuck.is_none_or(|(o, _)| order < o) {
                stuck = Some((order, task));
            }
        }
        if let Some((_, task)) = stuck {
            let since = jiffies(self.tasks.ts(task).scx.runnable_at);
            let ms = (now - since) * 1000 / hz;
            let name = self.name_of(task);
            self.scx_exit(
                ExitKind::Stall,
                0,
                format!("{name} failed to run for {}.{:03}s", ms / 1000, ms % 1000),
            );
            return;
        }
        let step = if exact {
            1_000_000
        } else {
            (timeout / 2).max(1)
        };
        let at = self.now + step;
        self.queue.set(slot, at);
    }

    /// Rows 37: a CPU goes off- or online.
    pub fn set_online(mut self, cpu: CpuId, online: bool) {
        if cpu >= self.topo.nr_cpus() || self.cpus[cpu as usize].online == online {
            return;
        }
        let op = if online {
            Op::CpuOnline
        } else {
            Op::CpuOffline
        };
        self.note(if online { Kind::Online } else { Kind::Offline }, cpu, cpu);
        if online {
            self.cpus[cpu as usize].online = true;
            self.online.set(cpu);
            self.counts_as_idle(cpu, 1);
        }
        if self.policy.has(op) {
            self.op_unlocked(op, [cpu as u64]);
        } else if !self.wrong(Mutation::HotplugIgnored) {
            let going = if online { "online" } else { "offline" };
            self.scx_exit(
                ExitKind::UnregKern,
                ECODE_ACT_RESTART | ECODE_RSN_HOTPLUG,
                format!("cpu {cpu} going {going}, exiting scheduler"),
            );
        }
        if !online {
            self.cpus[cpu as usize].online = false;
            self.online.clear(cpu);
            self.counts_as_idle(cpu, u32::MAX);
            self.evacuate(cpu);
        }
        let k = &mut *self;
        k.idle.update_topology(&k.topo, &k.online);
        if online {
            self.update_idle(cpu, true, false);
            self.resched(cpu);
        } else {
            self.test_and_clear_idle(cpu);
        }
    }

    /// A CPU that idles comes or goes.
    fn counts_as_idle(mut self, cpu: CpuId, more: u32) {
        if self.cpus[cpu as usize].is_idle() {
            let now = self.now;
            self.stats.unused.change(now, more, 0);
        }
    }

    /// All tasks of a dying CPU's run queue go elsewhere.
    fn evacuate(self, cpu: CpuId) {
        if self.online.is_empty() {
            return;
        }
        let here = |k: &Handle, t: &TaskId| {
            let hot = &k.tasks.hot[*t as usize];
            hot.cpu == cpu && hot.life == Life::Runnable
        };
        let curr = self.cpus[cpu as usize].curr;
        let queued: Vec<TaskId> = self.task_ids().filter(|t| here(&self, t)).collect();
        for task in queued {
            if task != curr {
                let dst = self.fallback_rq(task);
                self.move_queued(task, dst);
            }
        }
        if !self.is_idle_task(curr) {
            self.push_away(curr);
        }
        self.arm(cpu);
        // Sleeping tasks wake up elsewhere by themselves.
        self.irq_work();
    }

    /// Row 38: the policy goes: bypass, every task's exit_task, ops.exit. Then nothing calls it any more.
    pub fn disable_policy(mut self) {
        let Some(claim) = self.exit.claim.clone() else {
            return;
        };
        if self.exit.done {
            return;
        }
        self.exit.done = true;
        let exit_first = self.wrong(Mutation::ExitFirst);
        if exit_first {
            self.call_exit(&claim);
        }
        self.enter_bypass();
        let cgroups_last = self.wrong(Mutation::CgroupsExitLast);
        if !cgroups_last {
            self.cgroups_exit();
        }
        let tasks: Vec<TaskId> = self.task_ids().collect();
        for task in tasks {
            if self.tasks.hot[task as usize].class == SchedClass::Ext {
                self.retire(task);
            }
            self.disable_and_exit_task(task);
        }
        if cgroups_last {
            self.cgroups_exit();
        }
        if !exit_first {
            self.call_exit(&claim);
        }
        self.policy.silence();
        if claim.kind != ExitKind::Unreg {
            let policy = self.policy.name.clone();
            self.fail(SimError::PolicyExit {
                policy,
                kind: claim.kind.number(),
                code: claim.code,
                reason: claim.kind.reason(),
                message: claim.message,
                at_ns: claim.at_ns,
            });
        }
    }

    /// The task leaves sched_ext for good, back to the kernel's own class.
    fn retire(mut self, task: TaskId) {
        let hot = &self.tasks.hot[task as usize];
        let (cpu, runnable) = (hot.cpu, hot.life == Life::Runnable);
        let running = self.cpus[cpu as usize].curr == task;
        if runnable {
            self.dequeue_task(cpu, task, DEQ_SAVE | DEQ_MOVE | DEQ_NOCLOCK | DEQ_CLASS);
        }
        if self.tasks.hot[task as usize].enabled {
            self.disable_task(task);
        }
        self.tasks.hot[task as usize].class = SchedClass::Fair;
        if runnable && !running {
            self.enqueue_higher(cpu, task, false);
        }
    }

    /// Nothing is asked of the policy any more: FIFO queues per CPU, short slices.
    pub fn enter_bypass(mut self) {
        self.flags.bypass = true;
        self.slice_dfl = SLICE_BYPASS;
        self.events.bypass_activate += 1;
        for cpu in 0..self.topo.nr_cpus() {
            let mut queued: Vec<(u64, TaskId)> = self
                .task_ids()
                .filter(|t| {
                    let hot = &self.tasks.hot[*t as usize];
                    hot.cpu == cpu
                        && hot.life == Life::Runnable
                        && hot.class == SchedClass::Ext
                        && self.cpus[cpu as usize].curr != *t
                })
                .map(|t| (self.tasks.hot[t as usize].runnable_seq, t))
                .collect();
            queued.sort_unstable();
            for (_, task) in queued.into_iter().rev() {
                self.dequeue_task(cpu, task, DEQ_SAVE | DEQ_MOVE);
                self.enqueue_task(cpu, task, ENQ_RESTORE | ENQ_MOVE | ENQ_NOCLOCK);
            }
            self.resched(cpu);
        }
    }

    fn call_exit(self, claim: &Claim) {
        if !self.policy.has(Op::Exit) {
            return;
        }
        let zero = |s: &str| {
            let mut b = s.as_bytes().to_vec();
            b.push(0);
            b.resize(b.len().max(1024), 0);
            b
        };
        let reason = zero(claim.kind.reason());
        let mut message = zero(&claim.message);
        let mut dump = vec![0u8; 64];
        let mut bt = [0u64; 1];
        let info = std::cell::UnsafeCell::new(ScxExitInfo {
            kind: claim.kind.number(),
            exit_cpu: self.exec as i32,
            exit_code: claim.code,
            reason: reason.as_ptr(),
            bt: bt.as_mut_ptr(),
            bt_len: 0,
            msg: message.as_mut_ptr(),
            dump: dump.as_mut_ptr(),
        });
        let parts = [
            (info.get() as u64, size_of::<ScxExitInfo>()),
            (reason.as_ptr() as u64, reason.len()),
            (message.as_ptr() as u64, message.len()),
            (dump.as_ptr() as u64, dump.len()),
            (bt.as_ptr() as u64, size_of_val(&bt)),
        ];
        let mut k = self;
        k.args.extend(parts);
        k.op_unlocked(Op::Exit, [info.get() as u64]);
        let n = k.args.len() - parts.len();
        k.args.truncate(n);
    }
}
