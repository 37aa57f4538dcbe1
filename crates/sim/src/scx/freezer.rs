// SPDX-License-Identifier: GPL-2.0-only
//! The freezer: `cgroup.freeze` of a VM's cgroup. Its threads stop: one that runs at once, one that stands in a run
//! queue when it would run next, one that sleeps where it is. What is sent to them meanwhile, and timers that fall due,
//! are there when they run again; one that would have woken wakes when the VM is thawed.
//!
//! To a policy a thread that stops is one that goes to sleep, and one that goes on is one that wakes.
//!
//! Source: `do_freezer_trap` and `freeze_task` of Linux. Deviation: a thread that sleeps is not woken to be stopped (as
//! the kernel does where the sleep is a freezable one; else it is woken for a moment).
use super::kernel::Handle;
use super::pass::Why;
use crate::engine::queue::NEVER;
use crate::machine::cgroup::CgroupError;
use crate::machine::task::{Life, MARK_LATE, NONE, Trap};
use crate::words::{CpuId, TaskId, VmId};

impl Handle {
    /// `cgroup.freeze` of a VM's cgroup.
    pub fn freeze_vm(mut self, vm: VmId, frozen: bool) -> Result<(), CgroupError> {
        let index = self.group_of_vm(vm)?;
        let group = &mut self.cgroups.groups[index as usize];
        if std::mem::replace(&mut group.frozen, frozen) == frozen {
            return Ok(());
        }
        let of_it = |task: &TaskId| self.tasks.hot[*task as usize].cgroup == index;
        let tasks: Vec<TaskId> = self.task_ids().filter(of_it).collect();
        for task in tasks {
            self.freeze_as_group(task);
        }
        self.irq_work();
        Ok(())
    }

    /// The task is frozen or not as its cgroup is.
    pub(super) fn freeze_as_group(mut self, task: TaskId) {
        let hot = &self.tasks.hot[task as usize];
        if matches!(hot.life, Life::Free | Life::Dead) {
            return;
        }
        let (cpu, before) = (hot.cpu, hot.trap);
        match (self.cgroups.groups[hot.cgroup as usize].frozen, before) {
            (true, Trap::None) => self.tasks.hot[task as usize].trap = Trap::Freezer,
            (false, Trap::Freezer | Trap::Stopped) => self.leave_freezer(task, Trap::None),
            _ => return,
        }
        if before == Trap::Stopped {
            self.wake_task(task, false);
        } else if self.cpus[cpu as usize].curr == task {
            self.sync_work(cpu);
            let mut c = self.cpu(cpu);
            if c.run_end != NEVER {
                c.run_end = self.work_end(cpu, task, c.work_start.max(self.now));
                self.arm(cpu);
            }
        }
    }

    /// The task meets this from now on, and not the freezer.
    pub(super) fn leave_freezer(mut self, task: TaskId, trap: Trap) {
        let now = self.now;
        let hot = &mut self.tasks.hot[task as usize];
        let (entry, since) = (hot.stats, hot.queued_at);
        if std::mem::replace(&mut hot.trap, trap) == Trap::Stopped {
            self.stats.frozen(entry, since, now);
        }
    }

    /// The running task stops, with what is left of its work.
    #[cold]
    pub fn stop_frozen(mut self, cpu: CpuId) {
        let now = self.now;
        let task = self.cpus[cpu as usize].curr;
        let hot = &mut self.tasks.hot[task as usize];
        hot.trap = Trap::Stopped;
        hot.queued_at = now;
        hot.instant = 0;
        self.schedule(cpu, Why::Sleep);
    }

    /// A sleeping task of a frozen VM would wake. `false`: it would have done so before.
    #[cold]
    pub(super) fn wake_frozen(mut self, task: TaskId) -> bool {
        let now = self.now;
        let hot = &mut self.tasks.hot[task as usize];
        hot.mark &= !MARK_LATE;
        let slot = hot.slot;
        let first = hot.trap != Trap::Stopped;
        if first {
            hot.trap = Trap::Stopped;
            hot.queued_at = now;
        }
        if slot != NONE {
            self.queue.set(slot, NEVER);
        }
        first
    }
}
