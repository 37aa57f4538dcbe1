// SPDX-License-Identifier: GPL-2.0-only
//! Looking ahead: thousands of guests do not fit into a processor's caches, and an event that finds its guest in memory
//! waits for some dozen cache lines, one after the other. Which machines and which vCPUs are next is known some events
//! before: their lines are asked for then, all at once. Nothing but time depends on it.
//!
//! Where an address must be read to find the next one, all candidates take one step, then all take the next: their
//! waits overlap.
use super::horizon::{WIDE, adapt};
use super::world::WorldRef;
use crate::machine::task::MARK_VCPU;
use crate::scx::Handle;
use crate::scx::dsq::DsqIx;
use crate::scx::kernel::{Kernel, Source};
use crate::words::{CpuId, HOST, MachineId, Nanos, TaskId};
use berth_policy::instance::Instance;

/// Worlds of fewer machines fit into the caches.
pub const MANY: usize = 100;
/// Cache lines of a structure that is not known better.
const LINE: usize = 64;

/// Ask for `bytes` at an address; any address will do.
#[inline(always)]
fn ask<T>(at: *const T, bytes: usize) {
    let mut offset = 0;
    while offset < bytes {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which does nothing where there is no memory.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>().wrapping_add(offset));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
        offset += LINE;
    }
}

impl Handle {
    /// The machine itself.
    fn ask_machine(self) {
        ask(self.as_ptr(), Kernel::NEAR * LINE);
    }

    /// One of its CPUs, the front of its event queue, and the heads of what hangs on a machine.
    fn ask_cpu(self, cpu: CpuId) {
        if let Some(c) = self.cpus.get(cpu as usize) {
            ask(c, size_of_val(c));
            ask(&raw const self.dsqs.queues[cpu as usize], LINE);
        }
        if self.id != HOST {
            if let Some(i) = self.policy.instance() {
                ask(i, Instance::HEAD);
            }
            // Its own queues are the last ones.
            if let Some(q) = self.dsqs.queues.last() {
                ask(q.ordered(), size_of_val(q.ordered()));
            }
            ask(self.stats.vms.as_ptr(), LINE);
        }
        let (tree, bytes) = self.queue.memory();
        ask(tree, bytes.min(8 * LINE));
    }

    /// A task, as the simulator and as policies see it.
    fn ask_task(self, task: TaskId) {
        if let Some(hot) = self.tasks.hot.get(task as usize) {
            ask(hot, size_of_val(hot));
            ask(self.tasks.ptr(task), self.tasks.stride().min(4 * LINE));
        }
    }

    /// What runs on a CPU, and the first in the policy's queue, which is what runs next.
    fn ask_running(self, cpu: CpuId) {
        let Some(c) = self.cpus.get(cpu as usize) else {
            return;
        };
        self.ask_task(c.curr);
        if let Some(q) = self.dsqs.queues.last() {
            q.ordered().ask_front(ask);
        }
        self.ask_policy(c.curr);
    }

    /// What the policy keeps of a task.
    fn ask_policy(self, task: TaskId) {
        if let Some(i) = self.policy.instance() {
            i.near(task, ask);
        }
    }

    /// The one that runs next, if it is the first in the policy's queue.
    fn ask_first(self) {
        if let Some(q) = self.dsqs.queues.last()
            && let Some(task) = q.ordered().near_front(0)
        {
            self.ask_task(task);
            // What is small has been asked for with the running task's.
            if self.policy.instance().is_some_and(|i| !i.is_small()) {
                self.ask_policy(task);
            }
        }
    }

    /// What its next event is.
    #[inline]
    fn next_source(self) -> Source {
        let slot = self.queue.peek().1;
        // The first slots are the CPUs'.
        if (slot as usize) < self.cpus.len() {
            return Source::Cpu(slot);
        }
        let source = self.sources.get(slot as usize);
        source.copied().unwrap_or(Source::Free)
    }

    /// vCPU of a thread of the host.
    fn vcpu_of(self, task: TaskId) -> Option<u32> {
        let hot = self.tasks.hot.get(task as usize)?;
        (hot.mark & MARK_VCPU != 0).then_some(hot.token)
    }
}

impl WorldRef {
    /// Is it large enough for looking ahead?
    pub fn look_far(self) -> bool {
        let mut host = self.host();
        host.flags.ahead = self.machines.len() > MANY;
        host.flags.ahead
    }

    /// The front of a queue of the host has been taken: those behind it are next. Each is asked for one step deeper
    /// than the one behind it, as they come nearer.
    #[inline]
    pub fn ask_next(self) {
        if let Some(q) = self.host().front_taken.take() {
            self.ask_behind(q);
        }
    }

    #[inline(never)]
    fn ask_behind(self, q: DsqIx) {
        let host = self.host();
        let queue = host.dsqs.get(q).ordered();
        for (depth, step) in [(5, 0), (4, 1), (3, 2), (2, 3), (1, 4), (0, 5)] {
            if let Some(task) = queue.near_front(depth) {
                self.ask_thread(task, step);
            }
        }
    }

    /// What the switch to this thread of the host will need, one step.
    fn ask_thread(self, task: TaskId, step: u32) {
        let host = self.host();
        if step == 0 {
            return host.ask_task(task);
        }
        let Some(index) = host.vcpu_of(task) else {
            return;
        };
        let Some(v) = self.vcpus.get(index as usize) else {
            return;
        };
        if step == 1 {
            return ask(v, size_of_val(v));
        }
        let Some(k) = self.guest(v.machine) else {
            return;
        };
        match step {
            2 => k.ask_machine(),
            3 => k.ask_cpu(v.cpu),
            4 => k.ask_running(v.cpu),
            _ => k.ask_first(),
        }
    }

    /// Ask for what the next events of guests and the next ends of slices on the host will need.
    #[inline]
    pub fn look_ahead(mut self, now: Nanos) {
        if self.ahead.left > 0 {
            self.ahead.left -= 1;
            return;
        }
        self.look(now);
    }

    #[inline(never)]
    fn look(mut self, now: Nanos) {
        let host = self.host();
        let mut ahead = self.ahead;
        let (mut list, mut slots) = ([0; WIDE], [0; WIDE]);
        let n = self.clock.soon(now + ahead.guests, &mut list);
        let list = &list[..n];
        adapt(&mut ahead.guests, n);
        let on_host = list.contains(&HOST);
        let mut m = 0;
        if on_host {
            m = host.queue.soon(now + ahead.host, &mut slots);
            adapt(&mut ahead.host, m);
        }
        let mut threads = [TaskId::MAX; WIDE];
        let machines = || {
            let guests = list.iter().filter(|id| **id != HOST);
            guests.filter_map(|id: &MachineId| self.guest(*id))
        };
        machines().for_each(Handle::ask_machine);
        for (thread, slot) in threads.iter_mut().zip(&slots[..m]) {
            if let Some(c) = host.cpus.get(*slot as usize) {
                *thread = c.curr;
                host.ask_cpu(*slot);
                host.ask_task(c.curr);
            }
        }
        for k in machines() {
            ask(k.queue.memory().0, 6 * LINE);
            ask(
                k.sources.as_ptr().wrapping_add(k.queue.peek().1 as usize),
                1,
            );
        }
        threads[..m].iter().for_each(|t| self.ask_thread(*t, 1));
        for k in machines() {
            match k.next_source() {
                Source::Cpu(cpu) => k.ask_cpu(cpu),
                Source::Task(task) => k.ask_task(task),
                _ => (),
            }
        }
        threads[..m].iter().for_each(|t| self.ask_thread(*t, 2));
        for k in machines() {
            match k.next_source() {
                Source::Cpu(cpu) => k.ask_running(cpu),
                Source::Task(task) => {
                    let cpu = k.tasks.hot.get(task as usize).map_or(0, |t| t.cpu);
                    k.ask_cpu(cpu);
                }
                _ => (),
            }
        }
        threads[..m].iter().for_each(|t| self.ask_thread(*t, 3));
        for k in machines() {
            if let Source::Task(task) = k.next_source() {
                k.ask_policy(task);
            }
            k.ask_first();
        }
        threads[..m].iter().for_each(|t| self.ask_thread(*t, 4));
        ahead.left = n as u32;
        self.ahead = ahead;
    }
}
