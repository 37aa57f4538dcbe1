// SPDX-License-Identifier: GPL-2.0-only
//! A machine with its workload: the loop over events.
//!
//! One event is handled at a time, on the CPU it happens on: a tick, the end of a computation, a timer, an
//! arrival, a reschedule request. Whatever it causes on other CPUs is put into their slot of the queue.
//! `guests`: the same over the events of all machines.
mod guests;

use crate::engine::queue::NEVER;
use crate::error::SimError;
use crate::guest::{World, WorldRef};
use crate::invariants;
use crate::machine::cgroup::PERIOD_US;
use crate::machine::task::{ENDLESS, MARK_LATE, MARK_VCPU, SPINNING, Trap, comm};
use crate::machine::vcpu::Call;
use crate::scx::identity::VmSpec;
use crate::scx::kernel::{Handle, Kernel, Source};
use crate::scx::lifecycle::ExitKind;
use crate::scx::ops::Policy;
use crate::scx::pass::Why;
use crate::scx::spec::MachineSpec;
use crate::stats::Stats;
use crate::stats::on_kind::OnKind;
use crate::trace;
use crate::unlikely::unlikely;
use crate::words::{CpuId, Nanos, TaskId, Who};
use crate::workload::api::{Action, Ctx, MAX_INSTANT_ACTIONS, Workload};
use berth_scenario::model::Class;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Events between two looks at the flag that ends a run early (some hundred microseconds).
pub(crate) const EVENTS_AT_ONCE: u32 = 4096;

/// The window of pause-loop exiting doubles this often at most.
const MOST_SPUN: u8 = 16;

/// A run: the host, the machines inside it, and what their tasks do.
pub struct Simulation<W: Workload> {
    kernel: Handle,
    pub(crate) world: WorldRef,
    /// The workload.
    pub workload: W,
}

// SAFETY: the machine owns its kernel; nothing in it is tied to a thread.
unsafe impl<W: Workload + Send> Send for Simulation<W> {}

impl<W: Workload> Drop for Simulation<W> {
    fn drop(&mut self) {
        for k in self.world.machines.iter().flatten() {
            // SAFETY: made from a box in `new` or `add_guest`, dropped once.
            drop(unsafe { Box::from_raw(k.as_ptr()) });
        }
        // SAFETY: made from a box in `new`, dropped once; its machines are gone.
        drop(unsafe { Box::from_raw(self.world.as_ptr()) });
    }
}

impl<W: Workload> Simulation<W> {
    /// A machine that has just booted: all CPUs idle, no policy, no tasks.
    pub fn new(spec: &MachineSpec, vms: &[VmSpec], workload: W) -> Self {
        let mut kernel = Kernel::new(spec);
        for (i, vm) in (0..).zip(vms) {
            let quota = vm.cap_milli.map(|c| c * PERIOD_US / 1000);
            match spec.shared_cgroups.get(&i) {
                Some(name) => kernel.cgroups.add_vm_within(name),
                None => kernel.cgroups.add_vm(&vm.name, vm.weight, quota),
            };
        }
        let groups: Vec<u32> = vms.iter().map(|v| v.group).collect();
        kernel.stats = Stats::new(&groups, kernel.topo.nr_cpus());
        let classes: Vec<Class> = vms.iter().map(|v| v.class).collect();
        kernel.stats.on_kind = OnKind::new(&spec.cost.kinds, &kernel.topo, &classes);
        let kernel = NonNull::from(Box::leak(kernel));
        // SAFETY: owned by the machine, freed in `drop`; reached through handles only.
        let kernel = unsafe { Handle::new(kernel) };
        let world = World {
            machines: vec![Some(kernel)],
            ..World::default()
        };
        let world = NonNull::from(Box::leak(Box::new(world)));
        // SAFETY: owned by the machine, freed in `drop`; reached through copies only.
        let world = unsafe { WorldRef::new(world) };
        Simulation {
            kernel,
            world,
            workload,
        }
    }

    /// The machine's state, to look at and (in tests) to act on between events.
    pub fn kernel(&self) -> Handle {
        self.kernel
    }

    /// What the workload may do to a machine, on one of its CPUs.
    #[inline(always)]
    fn ctx(&self, k: Handle, cpu: CpuId) -> Ctx {
        Ctx {
            k,
            cpu,
            world: self.world,
        }
    }

    /// End the run with [`SimError::Cancelled`] soon after this flag is set.
    pub fn cancel_by(&mut self, flag: &'static AtomicBool) {
        self.kernel.cancel = Some(flag);
    }

    /// Keep every event of the trace.
    pub fn record(&mut self) {
        self.kernel.written.record = Some(Vec::new());
        self.kernel.flags.watched = true;
    }

    /// Tell a sink what happens from now on, on the host and in its guests. Before the start.
    pub fn tell(&mut self, sink: &trace::SharedSink) {
        for k in self.world.machines.iter().flatten() {
            let mut k = *k;
            k.written.sink = Some(sink.clone());
            k.flags.watched = true;
        }
    }

    /// The recorded trace so far.
    pub fn trace(&self) -> Vec<trace::Event> {
        self.kernel.written.record.clone().unwrap_or_default()
    }

    /// Load a policy and let it take over.
    pub fn load(&mut self, policy: Policy) {
        self.load_into(self.kernel, policy);
    }

    /// Load a policy into one of the machines.
    pub(crate) fn load_into(&mut self, mut k: Handle, policy: Policy) {
        k.policy = policy;
        if let Some(i) = k.policy.instance() {
            i.set_machine(k.as_ptr().cast());
        }
        let now = k.now;
        // A machine that has been running cannot have been without work.
        k.start.before_ns = if now == 0 { k.start.lead_ns } else { 0 };
        k.begin(now, 0);
        k.enable_policy();
        k.pass_the_lead();
        self.finish(k, 0);
    }

    /// Start the workload.
    pub fn start(&mut self) {
        let k = self.kernel;
        let cpu = k.online.first().unwrap_or(0);
        k.begin(k.now, cpu);
        let mut ctx = self.ctx(k, cpu);
        self.workload.start(&mut ctx);
        self.finish(k, cpu);
        self.world.in_huge_pages();
    }

    /// Act on the host from outside, on one of its CPUs, at the present instant: a manager of VMs, a test's script.
    pub fn with<R>(&mut self, cpu: CpuId, f: impl FnOnce(&mut W, &mut Ctx) -> R) -> R {
        let k = self.kernel;
        k.begin(k.now, cpu);
        let mut ctx = self.ctx(k, cpu);
        let r = f(&mut self.workload, &mut ctx);
        self.finish(k, cpu);
        if self.world.machines.len() > 1 {
            self.settle_switches();
            self.world.touch(k);
        }
        r
    }

    /// Handle all events up to this instant (inclusive), which is the present one afterwards.
    ///
    /// # Errors
    /// Whatever ended the run before: the policy's exit or trap, a broken invariant, a livelock, a cancellation.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn run_until(&mut self, end: Nanos) -> Result<(), SimError> {
        let k = self.kernel;
        if end > k.queue.horizon() {
            return Err(SimError::TooLong {
                horizon_ns: k.queue.horizon(),
            });
        }
        // A few thousand events at a time; between them somebody may have asked to stop.
        while self.events(end) {
            if k.cancel.is_some_and(|c| c.load(Ordering::Relaxed)) {
                return Err(SimError::Cancelled { at_ns: k.now });
            }
        }
        self.ended()?;
        for id in 0..self.world.machines.len() {
            let Some(k) = self.world.machines[id] else {
                continue;
            };
            if k.rests() && !k.guest.off {
                self.catch_up(k, end + 1);
            }
            if k.now < end {
                let exec = k.exec;
                k.begin(end, exec);
            }
        }
        Ok(())
    }

    /// Handle some thousand events up to this instant; `false`: there is nothing more to do.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn events(&mut self, end: Nanos) -> bool {
        if self.world.machines.len() > 1 {
            return self.world_events(end);
        }
        let k = self.kernel;
        for i in 0..EVENTS_AT_ONCE {
            let (at, slot) = k.queue.peek();
            if k.failed.is_some() || k.exit.done || at > end {
                self.world.events += u64::from(i);
                return false;
            }
            self.event_inlined(k, at, slot);
        }
        self.world.events += u64::from(EVENTS_AT_ONCE);
        true
    }

    /// Handle one event of a machine.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub(crate) fn event(&mut self, k: Handle, at: Nanos, slot: u32) {
        self.event_inlined(k, at, slot);
    }

    #[inline(always)]
    pub(crate) fn event_inlined(&mut self, k: Handle, at: Nanos, slot: u32) {
        let mut cpu = slot;
        // The first slots are the CPUs'.
        if (slot as usize) < k.cpus.len() {
            k.begin(at, cpu);
            let c = k.cpu(cpu);
            if c.tick_at <= at {
                k.tick(cpu);
            } else if c.takes_late && c.late_at <= at && c.resched_at.min(c.run_end) > at {
                return self.late(k, at, cpu);
            }
        } else if let Source::Task(task) = k.sources[slot as usize] {
            let home = k.tasks.hot[task as usize].cpu;
            let Some(taker) = k.taken_by(at, slot, home) else {
                return;
            };
            cpu = taker;
            k.begin(at, cpu);
            k.charge_exit(cpu);
            k.wake_task(task, false);
        } else {
            return self.rare_event(k, at, slot);
        }
        self.finish_inlined(k, cpu);
    }

    /// An event that is neither a CPU's nor a sleeping task's.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn rare_event(&mut self, mut k: Handle, at: Nanos, slot: u32) {
        match k.sources[slot as usize] {
            Source::Cpu(_) | Source::Task(_) => (),
            Source::Token { cpu, token } => {
                let Some(cpu) = k.taken_by(at, slot, cpu) else {
                    return;
                };
                k.queue.release(slot);
                k.source(slot, Source::Free);
                k.begin(at, cpu);
                k.charge_exit(cpu);
                let mut ctx = self.ctx(k, cpu);
                self.workload.event(token, at, &mut ctx);
                self.finish(k, cpu);
            }
            Source::Timer(index) => {
                let cpu = k.timer_cpu(index);
                if k.cpus[cpu as usize].paused {
                    return k.come_late(at, slot, cpu);
                }
                k.queue.set(slot, NEVER);
                k.begin(at, cpu);
                k.timer_fire(index);
                self.finish(k, cpu);
            }
            Source::Watchdog => {
                k.queue.set(slot, NEVER);
                let cpu = k.online.first().unwrap_or(0);
                k.begin(at, cpu);
                k.watchdog(slot);
                self.finish(k, cpu);
            }
            Source::Hotplug(index) => {
                k.queue.set(slot, NEVER);
                let h = k.hotplug[index as usize];
                let cpu = k.online.iter().find(|c| *c != h.cpu).unwrap_or(0);
                k.begin(at, cpu);
                k.set_online(h.cpu, h.online);
                self.finish(k, cpu);
            }
            Source::Free => k.queue.set(slot, NEVER),
        }
    }

    /// A guest's CPU takes the interrupts that fell due while it had no physical CPU.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn late(&mut self, k: Handle, at: Nanos, cpu: CpuId) {
        let mut c = k.cpu(cpu);
        let mut due = std::mem::take(&mut c.late);
        for slot in due.iter() {
            let stale = match k.sources[slot as usize] {
                // Woken by something else meanwhile.
                Source::Task(task) => k.tasks.hot[task as usize].mark & MARK_LATE == 0,
                _ => false,
            };
            if !stale {
                self.event(k, at, slot);
            }
        }
        k.begin(at, cpu);
        due.clear();
        if c.late.is_empty() {
            c.late = due;
        }
        c.takes_late = false;
        k.arm(cpu);
    }

    /// The rest of an event on this CPU: what its task wants next, reschedules, interrupts; then its next
    /// event goes into the queue.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub(crate) fn finish(&mut self, k: Handle, cpu: CpuId) {
        self.finish_inlined(k, cpu);
    }

    #[inline(always)]
    fn finish_inlined(&mut self, k: Handle, cpu: CpuId) {
        let c = k.cpu(cpu);
        k.irq_work();
        loop {
            if unlikely(k.flags.attention) && self.attend(k) {
                break;
            }
            if c.run_end <= k.now {
                self.next_action(k, cpu);
            } else if c.resched_at <= k.now && !c.paused {
                k.schedule(cpu, Why::Resched);
            } else {
                break;
            }
        }
        k.arm(cpu);
    }

    /// Tell the workload of births and deaths, let the policy go; `true`: the run is over.
    #[cold]
    fn attend(&mut self, mut k: Handle) -> bool {
        k.flags.attention = false;
        for (token, task) in std::mem::take(&mut k.population.born) {
            self.workload.born(token, task);
        }
        for (token, task) in std::mem::take(&mut k.population.gone) {
            self.workload.died(token, task);
        }
        if k.failed.is_none() && k.exit.claimed() && !k.exit.done {
            k.disable_policy();
        }
        let over = k.failed.is_some() || k.exit.done;
        // No machine goes on.
        self.world.stop |= over;
        over
    }

    /// The running task has done what it asked for.
    #[inline(always)]
    fn next_action(&mut self, mut k: Handle, cpu: CpuId) {
        let mut c = k.cpu(cpu);
        k.sync_work(cpu);
        let task = c.curr;
        let hot = &mut k.tasks.hot[task as usize];
        match hot.trap {
            Trap::None => (),
            Trap::Kill => return k.exit_running(cpu),
            Trap::Freezer | Trap::Stopped => return k.stop_frozen(cpu),
        }
        if hot.remaining != 0 || hot.mark & MARK_VCPU != 0 {
            return self.outside(k, cpu, task);
        }
        hot.instant += 1;
        if unlikely(hot.instant > MAX_INSTANT_ACTIONS) {
            return self.livelock(k, task);
        }
        let who = Who {
            task,
            token: hot.token,
            machine: k.id,
            cpu,
        };
        let now = k.now;
        let mut ctx = self.ctx(k, cpu);
        let action = self.workload.next(who, now, &mut ctx);
        match action {
            Action::Compute { ns } => {
                let hot = &mut k.tasks.hot[task as usize];
                hot.remaining = ns;
                if ns > 0 {
                    hot.instant = 0;
                }
                let start = c.work_start.max(now);
                c.work_start = start;
                c.run_end = start + ns.min(ENDLESS / 4);
                if unlikely(c.pace.uneven) {
                    c.run_end = start + c.pace.span(ns);
                }
            }
            Action::ComputeForever => {
                let hot = &mut k.tasks.hot[task as usize];
                hot.remaining = ENDLESS;
                hot.instant = 0;
                c.work_start = c.work_start.max(now);
                c.run_end = NEVER - 1;
            }
            Action::Block => {
                k.tasks.hot[task as usize].instant = 0;
                k.schedule(cpu, Why::Sleep);
            }
            Action::SleepUntil { at } => {
                if at > now {
                    k.tasks.hot[task as usize].instant = 0;
                    k.arm_sleep(task, at);
                    k.schedule(cpu, Why::Sleep);
                }
            }
            other => self.rare_action(k, cpu, task, other),
        }
    }

    #[cold]
    fn rare_action(&mut self, mut k: Handle, cpu: CpuId, task: TaskId, action: Action) {
        match action {
            Action::Spin => {
                let now = k.now;
                let hot = &mut k.tasks.hot[task as usize];
                hot.remaining = SPINNING;
                hot.instant = 0;
                let c = &mut k.cpus[cpu as usize];
                c.work_start = c.work_start.max(now);
                let start = c.work_start;
                let end = k.work_end(cpu, task, start);
                k.cpus[cpu as usize].run_end = end;
            }
            Action::Yield => k.yield_running(cpu),
            Action::SetNice(nice) => k.set_nice(task, nice),
            Action::Stall { stalled, ipc } => k.set_stall(cpu, task, stalled, ipc),
            Action::SetWorkingSet(bytes) => k.set_working_set(cpu, task, bytes),
            Action::SetAffinity(mask) => k.set_affinity(task, mask),
            Action::SetClass(class) => k.set_class(task, class),
            Action::Fork(spec) => {
                k.spawn(&spec);
            }
            Action::Exit => k.exit_running(cpu),
            Action::Compute { .. }
            | Action::ComputeForever
            | Action::Block
            | Action::SleepUntil { .. } => (),
        }
    }

    /// The end of something that is not a task's own action: a vCPU's way out of the guest, or a window of a
    /// task that spins.
    #[cold]
    fn outside(&mut self, mut k: Handle, cpu: CpuId, task: TaskId) {
        let hot = &k.tasks.hot[task as usize];
        if hot.mark & MARK_VCPU != 0 {
            return self.vcpu_action(k, cpu, task);
        }
        let spins = hot.remaining == SPINNING;
        let start = k.cpus[cpu as usize].work_start.max(k.now);
        if spins && k.guest.ple_window != 0 {
            let c = &mut k.cpus[cpu as usize];
            c.spun = (c.spun + 1).min(MOST_SPUN);
        }
        let end = k.work_end(cpu, task, start);
        k.cpus[cpu as usize].run_end = end;
        if spins && k.guest.ple_window != 0 {
            k.calls.push(Call::Spins(cpu));
        }
    }

    #[cold]
    fn livelock(&mut self, mut k: Handle, task: TaskId) {
        let name = comm(k.tasks.ts(task));
        let at_ns = k.now;
        k.fail(SimError::Livelock {
            task: name,
            actions: MAX_INSTANT_ACTIONS,
            at_ns,
        });
    }

    /// Unregister the policy, as the loader's end does: exit_task for all, then exit.
    ///
    /// # Errors
    /// As [`Simulation::run_until`].
    pub fn unload(&mut self) -> Result<(), SimError> {
        let mut k = self.kernel;
        k.begin(k.now, 0);
        k.scx_exit(ExitKind::Unreg, 0, String::new());
        k.disable_policy();
        self.world.stop = true;
        match k.failed.take() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Check every invariant of the machine as a whole.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), SimError> {
        for k in self.world.machines.iter().copied().flatten() {
            invariants::check(k)?;
        }
        self.world.check()?;
        if let Some(what) = self.workload.violated(self.kernel.now) {
            return Err(SimError::Invariant {
                what,
                at_ns: self.kernel.now,
                seed: self.kernel.seed,
            });
        }
        Ok(())
    }
}
