// SPDX-License-Identifier: GPL-2.0-only
//! The machine as a workload may use it.
use crate::guest::{WorldRef, machine_of};
use crate::machine::cgroup::{Bandwidth, CgroupError};
use crate::machine::task::{Life, Trap};
use crate::machine::vcpu::Call;
use crate::scx::Handle;
use crate::scx::consts::PF_EXITING;
use crate::scx::kick::Executed;
use crate::words::{CpuId, HOST, MachineId, MaskId, Nanos, TaskId, TaskSpec, VmId};
use berth_identity::JobRecord;

/// The machine as the workload may use it.
pub struct Ctx {
    pub(crate) k: Handle,
    pub(crate) cpu: CpuId,
    /// All machines of the run.
    pub(crate) world: WorldRef,
}

impl Ctx {
    /// The present instant, ns.
    pub fn now(&self) -> Nanos {
        self.k.now
    }

    /// CPU that executes this call.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    pub fn nr_cpus(&self) -> u32 {
        self.k.topo.nr_cpus()
    }

    /// Wake a task that sleeps in [`super::Action::Block`] or [`super::Action::SleepUntil`] (whose timer is then void).
    /// The calling CPU is the waker. `false`: it was not asleep, nothing happened.
    pub fn wake(&mut self, task: TaskId) -> bool {
        self.k.wake_task(task, false)
    }

    /// As [`Ctx::wake`], telling that the waker is about to sleep (WF_SYNC, as pipes and sockets do).
    pub fn wake_sync(&mut self, task: TaskId) -> bool {
        self.k.wake_task(task, true)
    }

    /// End the [`super::Action::Spin`] of a task: it goes on when it has (or next gets) a CPU. `false`: it was not
    /// spinning, nothing happened. Of the machine this call is executed on.
    pub fn release(&mut self, task: TaskId) -> bool {
        self.k.release(task)
    }

    /// What the policy's code has executed so far.
    pub(crate) fn executed(&self) -> Executed {
        self.k.executed()
    }

    /// How long the clients' thread goes on having its CPU after it has sent a request (or taken an answer), ns: as
    /// long as whom it woke would have waited for an interrupt's wake-up, the policy's part of it (`since` then) and of
    /// the pass to come included, and `request_ns`.
    pub(crate) fn request_ns(&mut self, since: Executed) -> Nanos {
        let k = &mut *self.k;
        let mut ns = k.cost.wake_ns + k.cost.request_ns;
        if k.cost.insn_ps > 0 {
            ns += k.code_ns(since);
            let c = &mut k.cpus[self.cpu as usize];
            ns += c.pass_ns;
            c.pass_paid = true;
        }
        self.k.in_turns(self.cpu, ns)
    }

    /// An interrupt's handler takes this much of the present CPU's time, ns: the running task's work is put off
    /// by it (its slice pays, as without IRQ time accounting); on an idle CPU, that of the next task. Returns
    /// the instant at which the handler is done: what it causes should be an event ([`Ctx::at`]) then.
    pub fn interrupt(&mut self, ns: Nanos) -> Nanos {
        self.k.interrupt(self.cpu, ns)
    }

    /// End the run with this error (the first one stays): the workload cannot go on (a deadlock, say).
    pub fn fail(&mut self, error: crate::error::SimError) {
        self.k.fail(error);
    }

    /// Call [`super::Workload::event`] with this token at this instant (not before now), as an interrupt on this CPU.
    pub fn at(&mut self, at: Nanos, token: u64) {
        let cpu = self.cpu;
        self.at_on(cpu, at, token);
    }

    /// As [`Ctx::at`], on a given CPU (where a device's interrupts go). Offline: delivered to CPU 0.
    pub fn at_on(&mut self, cpu: CpuId, at: Nanos, token: u64) {
        self.k.arm_token(cpu, at, token);
    }

    /// The machine this call is executed on: the host, or one inside a VM.
    pub fn machine(&self) -> MachineId {
        self.k.id
    }

    /// The machine inside a VM; `None`: the VM has no guest level, its threads are tasks of the host.
    pub fn guest(&self, vm: VmId) -> Option<MachineId> {
        let id = machine_of(vm);
        self.world.guest(id).map(|_| id)
    }

    /// Number of CPUs of a machine of the run; 0: there is no such machine.
    pub fn nr_cpus_of(&self, machine: MachineId) -> u32 {
        let k = self.world.guest(machine);
        k.map_or(0, |k| k.topo.nr_cpus())
    }

    /// As [`Ctx::wake`], for a task of any machine. In another machine it is an interrupt at this instant on the
    /// CPU where the task is: a guest's CPU that is halted is woken for it; one that has lost its physical CPU
    /// takes it when it has one again. From a guest, a task of the host is woken by the physical CPU that runs
    /// the vCPU, after the present event. `false`: it was not asleep.
    pub fn wake_in(&mut self, machine: MachineId, task: TaskId) -> bool {
        if machine == self.k.id {
            return self.wake(task);
        }
        let Some(k) = self.world.guest(machine) else {
            return false;
        };
        if k.tasks
            .hot
            .get(task as usize)
            .is_none_or(|t| t.life != Life::Asleep || t.trap == Trap::Stopped)
        {
            return false;
        }
        if machine == HOST {
            self.k.calls.push(Call::WakeHost(task));
        } else {
            k.arm_sleep(task, self.k.now);
            self.world.touch(k);
        }
        true
    }

    /// As [`Ctx::at_on`], on a CPU of any machine: how a device's interrupt reaches a vCPU.
    pub fn at_in(&mut self, machine: MachineId, cpu: CpuId, at: Nanos, token: u64) {
        if let Some(k) = self.world.guest(machine) {
            k.arm_token(cpu, at.max(self.k.now), token);
            self.world.touch(k);
        }
    }

    /// Switch a VM with the guest level on: the threads of its vCPUs start. Only on the host. Its tasks are
    /// started from inside: with [`Ctx::at_in`] on a CPU of its machine, and [`Ctx::spawn`] in that event.
    pub fn start_vm(&mut self, vm: VmId) {
        self.world.start_vm(vm);
    }

    /// Switch a VM with the guest level off: its vCPUs' threads are killed, its tasks never run again (the
    /// workload is not told of each). Only on the host.
    pub fn stop_vm(&mut self, vm: VmId) {
        self.world.stop_vm(vm);
    }

    /// Start a thread from outside (as the VM's manager would): born asleep, then woken. The machine announces
    /// it with [`super::Workload::born`] before it can run; the number returned is the same.
    pub fn spawn(&mut self, spec: &TaskSpec) -> TaskId {
        self.k.spawn(spec)
    }

    /// Tell the policy of a machine that a task of it begins with this job.
    pub fn tell_job(&mut self, machine: MachineId, task: TaskId, job: JobRecord) {
        if let Some(k) = self.world.guest(machine) {
            k.tell_job(task, job);
        }
    }

    /// Kill a task: it is woken if asleep, and exits when it next runs, without being asked.
    pub fn kill(&mut self, task: TaskId) {
        self.k.kill_task(task);
    }

    /// CPU time a living task of this machine has had so far, ns.
    pub(crate) fn ran(&self, task: TaskId) -> Nanos {
        let hot = &self.k.tasks.hot[task as usize];
        let cpu = &self.k.cpus[hot.cpu as usize];
        // What a vCPU has done is on account when it loses its physical CPU.
        let now = if cpu.curr == task && !cpu.paused {
            self.k.now - cpu.since
        } else {
            0
        };
        hot.runtime + now
    }

    /// The running task has begun to exit (PF_EXITING); what it does until [`super::Action::Exit`] is part of that.
    pub fn exiting(&mut self) {
        let task = self.k.cpus[self.cpu as usize].curr;
        self.k.tasks.ts(task).flags |= PF_EXITING;
    }

    /// For tests of the kernel model: another task's nice value is changed by this CPU while another one is in
    /// the middle of ops.dispatch, at its next call of `scx_bpf_dispatch_nr_slots`. Callbacks take no time, so
    /// that nothing else can come in between.
    pub fn meanwhile(&mut self, task: TaskId, nice: i32) {
        self.k.meanwhile = Some((self.cpu, task, nice));
    }

    /// Change another task's nice value (-20..=19), whatever it is doing, as `setpriority` does.
    pub fn set_nice(&mut self, task: TaskId, nice: i32) {
        self.k.set_nice(task, nice);
    }

    /// The CPUs that a task may use.
    pub fn affinity(&self, task: TaskId) -> MaskId {
        self.k.tasks.hot[task as usize].mask
    }

    /// Change another task's CPUs, whatever it is doing, as `sched_setaffinity` does.
    pub fn set_affinity(&mut self, task: TaskId, mask: MaskId) {
        self.k.set_affinity(task, mask);
    }

    /// Write to `cpu.weight` of a VM's cgroup: 1..=10000. The policy is told (`ops.cgroup_set_weight`) if it is another
    /// weight than before. Errors: as in the kernel, nothing is changed then.
    pub fn set_vm_weight(&mut self, vm: VmId, weight: u32) -> Result<(), CgroupError> {
        self.k.set_vm_weight(vm, weight)
    }

    /// Write to `cpu.max` and `cpu.max.burst` of a VM's cgroup. The policy is told (`ops.cgroup_set_bandwidth`) if
    /// something is different; no throttling but the policy's own follows. Errors: as in the kernel.
    pub fn set_vm_bandwidth(&mut self, vm: VmId, to: Bandwidth) -> Result<(), CgroupError> {
        self.k.set_vm_bandwidth(vm, to)
    }

    /// Write to `cgroup.freeze` of a VM's cgroup: its threads stop, or go on. A VM with a guest level stops as a whole.
    /// Errors: no such VM.
    pub fn freeze_vm(&mut self, vm: VmId, frozen: bool) -> Result<(), CgroupError> {
        self.k.freeze_vm(vm, frozen)
    }

    /// Write to `cpu.idle` of a VM's cgroup. The policy is told (`ops.cgroup_set_idle`), changed or not.
    pub fn set_vm_idle(&mut self, vm: VmId, idle: bool) -> Result<(), CgroupError> {
        self.k.set_vm_idle(vm, idle)
    }

    /// Move tasks, whatever they are doing, to the cgroup of a VM (`None`: the root) in one go, as writing to
    /// `cgroup.procs` does. What the policy hears: `cgroup_prep_move` of all, then `cgroup_move` of each while it is
    /// off its queue. Tasks that are there already or are exiting are passed over. Each task once. Statistics go on
    /// counting a task with the VM it was born in. Errors: no such VM, or the policy refused: nobody moves then.
    pub fn move_to_vm(&mut self, tasks: &[TaskId], vm: Option<VmId>) -> Result<(), CgroupError> {
        self.k.move_to_vm(tasks, vm)
    }

    /// The mask of these CPUs (interned: equal lists give the equal number). Empty = all CPUs. CPUs beyond the
    /// machine are ignored. Not for the event path: make masks in [`super::Workload::start`].
    pub fn mask(&mut self, cpus: &[CpuId]) -> MaskId {
        self.k.mask(cpus)
    }
}
