// SPDX-License-Identifier: GPL-2.0-only
//! A guest's CPU loses its physical CPU (pause) and gets one (resume).
//!
//! Work, slices and the time tasks had go on only while it has one: the guest's task clock leaves stolen time
//! out, as Linux does where the host reports steal time; `now` and timers follow the one clock. An interrupt for
//! a CPU that has no physical CPU waits, in the order of falling due, and is taken when it resumes.
use super::kernel::{Handle, Source};
use crate::engine::queue::{NEVER, Slot};
use crate::machine::task::{MARK_LATE, NONE};
use crate::machine::vcpu::Call;
use crate::unlikely::unlikely;
use crate::words::{CpuId, Nanos};

impl Handle {
    /// The vCPU has no physical CPU from now on.
    #[inline(always)]
    pub fn pause(mut self, now: Nanos, cpu: CpuId) {
        debug_assert!(now >= self.now);
        self.now = now;
        let mut c = self.cpu(cpu);
        if c.paused {
            return;
        }
        if !c.is_idle() {
            self.sync_work(cpu);
            self.update_curr(cpu);
            let k = &mut *self;
            let span = now - c.since;
            c.since = now;
            c.busy_ns += span;
            c.owed = c.work_start.saturating_sub(now);
            c.run_end = NEVER;
            // Nothing is charged while it is paused.
            c.exec_start = NEVER;
            let t = &mut k.tasks.hot[c.curr as usize];
            t.runtime += span;
            k.stats.ran(t.stats, cpu, now, span);
        }
        c.paused = true;
        c.takes_late = false;
        self.queue.set(c.slot, NEVER);
    }

    /// The vCPU has a physical CPU since `now`, and is inside the guest from `start` on.
    #[inline(always)]
    pub fn resume(mut self, now: Nanos, cpu: CpuId, start: Nanos) {
        debug_assert!(now >= self.now);
        self.now = now;
        let mut c = self.cpu(cpu);
        if !c.paused {
            return;
        }
        c.paused = false;
        c.spun = 0;
        if c.resched_at != NEVER {
            c.resched_at = c.resched_at.max(start);
        }
        if !c.is_idle() {
            let away = now - c.since;
            c.since = now;
            c.stolen_ns += away;
            // Without steal accounting, who runs here is charged the absence.
            c.exec_start = if self.guest.steal_accounting {
                now
            } else {
                now - away
            };
            let (curr, work_start) = (c.curr, start + c.owed);
            c.work_start = work_start;
            c.run_end = if unlikely(c.waits()) {
                NEVER
            } else {
                self.work_end(cpu, curr, work_start)
            };
            // A timer for the end of a slice is set by the clock on the wall; a tick looks whether the slice is used
            // up.
            if c.tick_at > now && (!self.flags.slice_timer || c.tick_at == NEVER) {
                self.refresh_tick(cpu);
            }
            // A tick that fell due meanwhile comes at once.
            c.tick_at = c.tick_at.max(start);
        }
        c.takes_late = !c.late.is_empty();
        c.late_at = start;
        self.arm(cpu);
        if unlikely(c.misplaced) {
            self.push_misplaced(cpu);
        }
    }

    /// All vCPUs are preempted: whatever falls due can only wait until one of them has a physical CPU again. So it is
    /// left where it is until then (`Simulation::catch_up`); only the watchdog, which needs no CPU, comes in time.
    #[inline]
    pub fn rests(self) -> bool {
        self.guest.waiting as usize == self.cpus.len()
    }

    /// When the watchdog looks again.
    pub fn watchdog_at(self) -> Nanos {
        if self.watchdog == NONE {
            return NEVER;
        }
        self.queue.time(self.watchdog)
    }

    /// The CPU that takes an event meant for this one: the first online if it is not; `None`: it is not running, and
    /// the event comes late.
    #[inline(always)]
    pub fn taken_by(self, now: Nanos, slot: Slot, cpu: CpuId) -> Option<CpuId> {
        let cpu = if self.cpus[cpu as usize].online {
            cpu
        } else {
            self.online.first().unwrap_or(0)
        };
        if self.cpus[cpu as usize].paused {
            self.come_late(now, slot, cpu);
            return None;
        }
        Some(cpu)
    }

    /// This event is due, but its CPU is not running: it waits, and the host is asked to run the CPU.
    #[inline(always)]
    pub fn come_late(mut self, now: Nanos, slot: Slot, cpu: CpuId) {
        self.now = now;
        self.queue.set(slot, NEVER);
        if let Source::Task(task) = self.sources[slot as usize] {
            self.tasks.hot[task as usize].mark |= MARK_LATE;
        }
        self.cpus[cpu as usize].late.push(slot);
        self.calls.push(Call::Kick(cpu));
    }

    /// [`Handle::arm`] of a CPU that is not running, for which an interrupt waits, or that has late ones to take.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn arm_late(mut self, cpu: CpuId) {
        let c = self.cpu(cpu);
        if c.takes_late {
            if c.late.is_empty() {
                // In the midst of them (`Simulation::late`), which sets the slot after the last.
                return;
            }
            let at = c.resched_at.min(c.run_end).min(c.tick_at).min(c.late_at);
            self.queue.set(c.slot, at);
        } else if c.resched_at != NEVER {
            self.calls.push(Call::Kick(cpu));
        }
    }

    /// Nothing to run and nothing to handle: the CPU halts.
    #[inline]
    pub fn wants_halt(self, cpu: CpuId) -> bool {
        let c = &self.cpus[cpu as usize];
        c.is_idle() && !c.paused && c.resched_at == NEVER && c.late.is_empty()
    }

    /// The host has taken this much time from what runs on this CPU.
    pub fn put_off(mut self, now: Nanos, cpu: CpuId, ns: Nanos) {
        self.now = now;
        self.exec = cpu;
        self.delay(cpu, ns);
        if !self.cpus[cpu as usize].paused {
            self.arm(cpu);
        }
    }

    /// The time an exit from the guest and the way back takes, spent by what runs on this CPU.
    #[inline]
    pub fn charge_exit(self, cpu: CpuId) {
        if self.guest.exit_ns != 0 {
            self.delay(cpu, self.guest.exit_ns);
        }
    }

    /// The work of what runs on this CPU goes on that much later.
    #[cold]
    pub fn delay(mut self, cpu: CpuId, ns: Nanos) {
        if self.cpus[cpu as usize].is_idle() || self.cpus[cpu as usize].paused {
            return;
        }
        self.sync_work(cpu);
        let now = self.now;
        let k = &mut *self;
        let c = &mut k.cpus[cpu as usize];
        c.work_start = c.work_start.max(now) + ns;
        let (curr, start, held) = (c.curr, c.work_start, c.run_end == NEVER);
        if !held {
            let end = k.work_end(cpu, curr, start);
            k.cpus[cpu as usize].run_end = end;
        }
        if cpu != self.exec {
            self.arm(cpu);
        }
    }
}
