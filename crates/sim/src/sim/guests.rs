// SPDX-License-Identifier: GPL-2.0-only
//! The loop over the events of all machines, and what one machine's events do to another.
//!
//! Each event belongs to one machine and ends before another machine acts. What it did to another one is
//! written down meanwhile: the host's switches of vCPU threads (`switched`), a guest's kicks of CPUs that have no
//! physical CPU (`calls`), a guest's CPU that has nothing to do. All of it is carried out at the same instant,
//! after the event, until nothing is left.
use super::{EVENTS_AT_ONCE, Simulation};
use crate::engine::hash::TraceHash;
use crate::engine::queue::NEVER;
use crate::error::SimError;
use crate::guest::world::GuestInfo;
use crate::guest::{GuestSpec, WorldRef, machine_of};
use crate::machine::task::{ENDLESS, Life};
use crate::machine::vcpu::{Call, Switched, Vcpu, VcpuState, What};
use crate::scx::Handle;
use crate::scx::hardware::Hardware;
use crate::scx::kernel::Kernel;
use crate::scx::ops::Policy;
use crate::scx::pass::Why;
use crate::stats::Stats;
use crate::words::{CpuId, HOST, Nanos, TaskId, VmId};
use crate::workload::api::Workload;
use std::ptr::NonNull;

impl<W: Workload> Simulation<W> {
    /// Give a VM (by its number) a guest level. Before the start; the workload switches it on with
    /// [`crate::workload::api::Ctx::start_vm`].
    pub fn add_guest(&mut self, vm: VmId, name: &str, spec: &GuestSpec) {
        let mut w = self.world;
        let id = machine_of(vm);
        let mut kernel = Kernel::new(&spec.machine);
        kernel.id = id;
        kernel.stats = Stats::small(kernel.topo.nr_cpus());
        kernel.guest.ple_window = spec.ple_window_ns;
        kernel.guest.entry_ns = spec.entry_ns;
        kernel.guest.exit_ns = spec.exit_ns + spec.entry_ns;
        kernel.guest.halt_ns = spec.exit_ns + spec.halt_poll_ns;
        if w.host()
            .hardware
            .as_ref()
            .is_some_and(|hw| hw.knows_phases())
        {
            let topo = &kernel.topo;
            kernel.hardware = Some(Hardware::of_guest(topo.nr_cpus(), topo.cores.len() as u32));
        }
        kernel.guest.off = true;
        let first = w.vcpus.len() as u32;
        kernel.guest.first_vcpu = first;
        for cpu in 0..kernel.cpus.len() as u32 {
            kernel.cpus[cpu as usize].paused = true;
            w.vcpus.push(Vcpu {
                task: TaskId::MAX,
                machine: id,
                cpu,
                state: VcpuState::Off,
                halting: false,
                poll_from: 0,
                since: 0,
                run_ns: 0,
                steal_ns: 0,
                halt_ns: 0,
                born: 0,
            });
        }
        let kernel = NonNull::from(Box::leak(kernel));
        // SAFETY: owned by the machine, freed when it is dropped; reached through handles only.
        let kernel = unsafe { Handle::new(kernel) };
        if w.machines.len() <= id as usize {
            w.machines.resize(id as usize + 1, None);
            w.guests.resize_with(id as usize, || None);
        }
        w.clock.grow(id);
        w.machines[id as usize] = Some(kernel);
        w.guests[vm as usize] = Some(GuestInfo {
            name: name.to_string(),
            threads: spec.threads.clone(),
            first,
            boosted: 0,
        });
    }

    /// Load the policy of a guest.
    pub fn load_guest(&mut self, vm: VmId, policy: Policy) {
        if let Some(k) = self.guest(vm) {
            self.load_into(k, policy);
        }
    }

    /// The machine inside a VM, if it has one.
    pub fn guest(&self, vm: VmId) -> Option<Handle> {
        self.world.guest(machine_of(vm))
    }

    /// Hash of everything that happened so far, in all machines.
    pub fn trace_hash(&self) -> u64 {
        let mut machines = self.world.machines.iter().flatten();
        let mut hash = machines.next().map_or(TraceHash::default(), |k| k.hash);
        for k in machines {
            hash.add(k.hash.finish());
        }
        hash.finish()
    }

    /// All machines of the run and their vCPUs.
    pub fn world(&self) -> WorldRef {
        self.world
    }

    /// Handle some thousand events of all machines up to this instant; `false`: there is nothing more to do.
    #[inline(always)]
    pub(crate) fn world_events(&mut self, end: Nanos) -> bool {
        let mut w = self.world;
        self.settle_switches();
        w.touch(w.host());
        let far = w.look_far();
        for i in 0..EVENTS_AT_ONCE {
            let (at, machine) = w.clock.peek();
            if w.stop || at > end {
                w.events += u64::from(i);
                return false;
            }
            let Some(k) = w.guest(machine) else {
                return false;
            };
            if far {
                w.look_ahead(at);
            }
            let (mut due, mut slot) = k.queue.peek();
            if due < at {
                // It rested, and its watchdog is due.
                self.catch_up(k, at);
                (due, slot) = k.queue.peek();
            }
            debug_assert_eq!((due, true), (at, at >= w.host().now), "machine {machine}");
            self.event_inlined(k, due, slot);
            if machine != HOST {
                self.after_guest(k);
            }
            self.settle_switches();
            if far {
                w.ask_next();
            }
            w.touch(k);
        }
        w.events += u64::from(EVENTS_AT_ONCE);
        true
    }

    /// What fell due before now in a guest none of whose vCPUs had a physical CPU: it goes to the CPU it is for, and
    /// waits.
    pub(crate) fn catch_up(&mut self, mut k: Handle, now: Nanos) {
        let mut w = self.world;
        loop {
            let (due, slot) = k.queue.peek();
            if due >= now {
                return;
            }
            let at = due.max(k.now);
            self.event(k, at, slot);
            // Kicks: its vCPUs are awake, all of them.
            k.calls.clear();
            w.events += 1;
        }
    }

    /// What ended the run, if something did.
    pub(crate) fn ended(&mut self) -> Result<(), SimError> {
        let w = self.world;
        for mut k in w.machines.iter().copied().flatten() {
            if let Some(e) = k.failed.take() {
                return Err(if k.id == HOST {
                    e
                } else {
                    let guest = w.guests[k.id as usize - 1].as_ref();
                    SimError::Guest {
                        vm: guest.map_or(String::new(), |g| g.name.clone()),
                        error: Box::new(e),
                    }
                });
            }
        }
        Ok(())
    }

    /// A guest's event is over: interrupts for CPUs that are not running, and the halt of its own CPU.
    #[inline]
    fn after_guest(&mut self, mut k: Handle) {
        let mut i = 0;
        while let Some(call) = k.calls.get(i).copied() {
            self.call(k, call);
            i += 1;
        }
        k.calls.clear();
        let cpu = k.exec;
        if k.wants_halt(cpu) {
            self.halt(k, cpu);
        }
    }

    /// CPU of the host on which a guest's present event happens, if its vCPU is running.
    fn place_of(&self, k: Handle) -> Option<CpuId> {
        let w = self.world;
        let v = &w.vcpus[(k.guest.first_vcpu + k.exec) as usize];
        (v.state == VcpuState::Running).then(|| w.host().tasks.hot[v.task as usize].cpu)
    }

    fn call(&mut self, k: Handle, call: Call) {
        let w = self.world;
        let host = w.host();
        let task = match call {
            Call::Kick(cpu) => {
                let v = &w.vcpus[(k.guest.first_vcpu + cpu) as usize];
                match v.state {
                    VcpuState::Halted => (),
                    VcpuState::Running if v.halting => return self.cut_poll(k.now, v.task),
                    _ => return,
                }
                v.task
            }
            Call::Spins(cpu) => {
                let v = &w.vcpus[(k.guest.first_vcpu + cpu) as usize];
                if v.state == VcpuState::Running && !k.cpus[cpu as usize].paused {
                    let host_cpu = host.tasks.hot[v.task as usize].cpu;
                    k.charge_exit(cpu);
                    w.pause_loop_exit(k, cpu);
                    self.finish(host, host_cpu);
                    w.touch(host);
                }
                return;
            }
            Call::Phase(cpu, phase) => {
                let task = w.vcpus[(k.guest.first_vcpu + cpu) as usize].task;
                let host_cpu = host.tasks.hot[task as usize].cpu;
                host.begin(k.now, host_cpu);
                host.set_phase(task, phase);
                self.finish(host, host_cpu);
                w.touch(host);
                return;
            }
            Call::WakeHost(task) => task,
        };
        if host.tasks.hot[task as usize].life != Life::Asleep {
            return;
        }
        let here = self.place_of(k);
        let cpu = here.unwrap_or(host.tasks.hot[task as usize].cpu);
        host.begin(k.now, cpu);
        host.wake_task(task, false);
        self.finish(host, cpu);
        w.touch(host);
    }

    /// An interrupt for a vCPU whose host thread still looks for one: it need not look any longer.
    fn cut_poll(&mut self, now: Nanos, task: TaskId) {
        let w = self.world;
        let mut host = w.host();
        let cpu = host.tasks.hot[task as usize].cpu;
        host.begin(now, cpu);
        host.sync_work(cpu);
        let index = host.tasks.hot[task as usize].token;
        let from = w.vcpus[index as usize].poll_from;
        let c = &mut host.cpus[cpu as usize];
        if c.curr == task && c.run_end != NEVER {
            c.run_end = c.run_end.min(c.work_start.max(from));
            let left = c.run_end - c.work_start;
            host.tasks.hot[task as usize].remaining = left;
        }
        self.finish(host, cpu);
        w.touch(host);
    }

    /// The vCPU halts: out of the guest, and its thread sleeps.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn halt(&mut self, k: Handle, cpu: CpuId) {
        let mut w = self.world;
        let v = &mut w.vcpus[(k.guest.first_vcpu + cpu) as usize];
        if v.state != VcpuState::Running {
            return;
        }
        let task = v.task;
        let mut host = w.host();
        let host_cpu = host.tasks.hot[task as usize].cpu;
        if host.cpus[host_cpu as usize].curr != task {
            // What this event woke on the host has its CPU already; the guest hears of it next, and halts when it is
            // back.
            return;
        }
        let now = k.now;
        host.begin(now, host_cpu);
        // An interrupt's handler may still be at work.
        let busy = k.cpus[cpu as usize].irq_until.saturating_sub(now);
        let out = k.guest.halt_ns + busy;
        if out == 0 {
            host.schedule(host_cpu, Why::Sleep);
        } else {
            w.vcpus[(k.guest.first_vcpu + cpu) as usize].halting = true;
            k.pause(now, cpu);
            host.sync_work(host_cpu);
            host.tasks.hot[task as usize].remaining = out;
            let c = &mut host.cpus[host_cpu as usize];
            c.work_start = c.work_start.max(now);
            let start = c.work_start;
            if c.run_end != NEVER {
                c.run_end = start + out;
            }
            let v = &mut w.vcpus[(k.guest.first_vcpu + cpu) as usize];
            v.poll_from = start + busy + k.guest.exit_ns - k.guest.entry_ns;
        }
        self.finish(host, host_cpu);
        w.touch(host);
    }

    /// The thread of a vCPU has done what it had to do outside the guest: it sleeps, or goes back.
    #[cold]
    pub(crate) fn vcpu_action(&mut self, mut host: Handle, cpu: CpuId, task: TaskId) {
        let mut w = self.world;
        let index = host.tasks.hot[task as usize].token;
        let v = &mut w.vcpus[index as usize];
        v.halting = false;
        let (machine, vcpu) = (v.machine, v.cpu);
        let Some(k) = w.guest(machine) else { return };
        host.tasks.hot[task as usize].remaining = ENDLESS;
        let c = &k.cpus[vcpu as usize];
        if c.is_idle() && c.resched_at == NEVER && c.late.is_empty() {
            host.schedule(cpu, Why::Sleep);
            return;
        }
        let now = host.now;
        let c = &mut host.cpus[cpu as usize];
        c.work_start = c.work_start.max(now);
        c.run_end = NEVER - 1;
        let start = c.work_start;
        host.switched.push(Switched {
            vcpu: index,
            what: What::Start { start },
        });
    }

    /// Carry out what the host's events did to vCPUs.
    #[inline(always)]
    pub(super) fn settle_switches(&mut self) {
        let host = self.world.host();
        if !host.switched.is_empty() {
            self.settle(host);
        }
    }

    #[inline(never)] // most events of a guest switch nothing on the host
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn settle(&mut self, mut host: Handle) {
        let mut i = 0;
        while let Some(s) = host.switched.get(i).copied() {
            self.switched(s);
            i += 1;
        }
        host.switched.clear();
    }

    fn switched(&mut self, s: Switched) {
        let mut w = self.world;
        let host = w.host();
        let now = host.now;
        let v = &mut w.vcpus[s.vcpu as usize];
        let (machine, cpu, halting, thread) = (v.machine, v.cpu, v.halting, v.task);
        let before = v.state;
        let Some(mut k) = w.guest(machine) else {
            return;
        };
        if matches!(s.what, What::In { .. }) && before == VcpuState::Waiting {
            if k.rests() && !k.guest.off {
                self.catch_up(k, now);
            }
            k.guest.waiting -= 1;
        }
        let v = &mut w.vcpus[s.vcpu as usize];
        let mut started = None;
        match s.what {
            What::In { queued_at, start } => {
                if v.state == VcpuState::Halted {
                    v.halt_ns += queued_at - v.since;
                    v.steal_ns += now - queued_at;
                } else {
                    v.steal_ns += now - v.since;
                }
                v.since = now;
                v.state = VcpuState::Running;
                started = (start != NEVER).then_some(start);
            }
            What::Out => {
                v.run_ns += now - v.since;
                v.since = now;
                v.state = match host.tasks.hot[v.task as usize].life {
                    Life::Runnable => VcpuState::Waiting,
                    Life::Asleep => VcpuState::Halted,
                    _ => VcpuState::Off,
                };
                if v.state == VcpuState::Waiting {
                    k.guest.waiting += 1;
                }
            }
            What::Hold => (),
            What::Delay { ns } => {
                k.put_off(now, cpu, ns);
                w.touch(k);
                return;
            }
            What::Start { start } => started = Some(start),
            What::Rate { rate } => {
                k.now = now;
                if !k.cpus[cpu as usize].paused {
                    k.set_rate(cpu, rate);
                    k.arm(cpu);
                }
                w.touch(k);
                return;
            }
            What::Warm { warm } => {
                k.now = now;
                if !k.cpus[cpu as usize].paused {
                    k.set_warm(cpu, warm);
                    k.arm(cpu);
                }
                w.touch(k);
                return;
            }
        }
        match started {
            Some(start) if !halting => {
                let pace = host.cpus[host.tasks.hot[thread as usize].cpu as usize].pace;
                k.set_pace(cpu, pace.rate, pace.warm);
                k.resume(now, cpu, start + k.guest.entry_ns);
                if k.wants_halt(cpu) && !k.guest.off {
                    self.halt(k, cpu);
                }
            }
            Some(_) => return,
            None => k.pause(now, cpu),
        }
        w.touch(k);
    }
}
