// SPDX-License-Identifier: GPL-2.0-only
//! Births and deaths of tasks: a thread is made and told to the policy, and ends.
use super::consts::*;
use super::kernel::{Handle, Source};
use super::mutation::Mutation;
use super::pass::Why;
use crate::engine::queue::NEVER;
use crate::machine::cgroup::ROOT;
use crate::machine::task::{Life, MARK_VCPU, NONE, Trap, nice_to_load, nice_to_weight, set_comm};
use crate::trace::Kind;
use crate::words::{CpuId, SchedClass, TaskId, TaskSpec};
use berth_policy::abi::Op;
use berth_policy::kview::{ScxExitTaskArgs, ScxInitTaskArgs};

impl Handle {
    /// A new thread, as `clone`: init_task, enable, then its first wake-up. Returns its number.
    pub fn spawn(self, spec: &TaskSpec) -> TaskId {
        let task = self.create_task(spec);
        self.start_task(task);
        task
    }

    /// The record of a new task; nobody can see it yet.
    pub fn create_task(mut self, spec: &TaskSpec) -> TaskId {
        let parent = self.cpus[self.exec as usize].curr;
        let task = self.tasks.alloc();
        let pid = self.new_pid();
        let (ptr, parent_ptr) = (self.tasks.ptr(task), self.tasks.ptr(parent));
        let cgroup = spec.vm.map_or(ROOT, |vm| self.cgroups.of_vm(vm));
        let (tg, set) = self.cgroups.views(cgroup);
        let (signal, mm) = self.cgroups.shared_objects();
        let mask = self.masks.get(spec.affinity);
        let (cpus_ptr, nr) = (mask.as_kernel(), self.masks.count(spec.affinity));
        let start = self.now;
        let home = if mask.has(self.exec) && self.cpus[self.exec as usize].online {
            self.exec
        } else {
            mask.iter()
                .find(|c| self.online.has(*c))
                .unwrap_or(self.exec)
        };
        let nice = spec.nice.clamp(-20, 19);
        let jiffies = self.now;
        let tgid = spec.vm.map_or(pid, |vm| self.cgroups.leader(vm, pid));
        let leader = self
            .population
            .pids
            .get(&tgid)
            .map_or(ptr, |l| self.tasks.ptr(*l));
        let ts = self.tasks.ts(task);
        set_comm(ts, &spec.name);
        self.tasks.set_name(task, &spec.name);
        ts.pid = pid;
        ts.flags = if spec.kthread { PF_KTHREAD } else { 0 };
        ts.static_prio = 120 + nice;
        ts.se.load.weight = nice_to_load(nice) << 10;
        ts.policy = match spec.class {
            SchedClass::Ext => 7,
            SchedClass::Fair => 0,
            SchedClass::Rt | SchedClass::Stop => 1,
        };
        ts.nr_cpus_allowed = nr as i32;
        ts.cpus_ptr = cpus_ptr;
        ts.thread_info.cpu = home;
        ts.wake_cpu = home as i32;
        ts.scx.sticky_cpu = -1;
        ts.scx.holding_cpu = -1;
        ts.scx.runnable_at = jiffies;
        ts.scx.ddsp_dsq_id = DSQ_INVALID;
        ts.scx.slice = self.slice_dfl;
        ts.scx.weight = nice_to_weight(nice);
        ts.se.custom_slice = (spec.slice_ns != 0) as u8;
        ts.se.slice = spec.slice_ns;
        if let Some(rest) = self.tasks.rest(task) {
            rest.tgid = tgid;
            rest.prio = 120 + nice;
            rest.normal_prio = 120 + nice;
            rest.recent_used_cpu = home as i32;
            rest.sched_task_group = tg;
            rest.cgroups = set;
            rest.signal = signal;
            rest.mm = if spec.kthread {
                std::ptr::null_mut()
            } else {
                mm
            };
            rest.real_parent = parent_ptr;
            rest.parent = parent_ptr;
            rest.group_leader = leader;
            rest.start_time = start;
            rest.start_boottime = start;
        }
        let stats = self.stats.index(spec.vm);
        let frozen = self.cgroups.groups[cgroup as usize].frozen;
        let hot = &mut self.tasks.hot[task as usize];
        hot.class = spec.class;
        hot.cpu = home;
        hot.mask = spec.affinity;
        hot.nice = nice as i8;
        hot.stats = stats;
        hot.token = spec.token;
        hot.cgroup = cgroup;
        if frozen {
            hot.trap = Trap::Freezer;
        }
        if let Some(hw) = &mut self.hardware {
            hw.born(task, spec);
        }
        self.population.pids.insert(pid, task);
        self.note(Kind::Fork, home, task);
        self.identify(task, spec);
        task
    }

    /// The rest of a fork.
    pub fn start_task(mut self, task: TaskId) {
        let token = self.tasks.hot[task as usize].token;
        self.init_task(task, true);
        if self.tasks.hot[task as usize].class == SchedClass::Ext {
            self.enable_task(task);
        }
        if self.tasks.hot[task as usize].mark & MARK_VCPU == 0 {
            self.flags.attention = true;
            self.population.born.push((token, task));
        }
        self.activate(task, WAKE_FORK, ENQ_INITIAL | ENQ_NOCLOCK, false);
    }

    /// ops.init_task; a refusal ejects the policy.
    pub fn init_task(mut self, task: TaskId, fork: bool) {
        let cgroup = self.tasks.hot[task as usize].cgroup;
        let args = std::cell::UnsafeCell::new(ScxInitTaskArgs {
            fork: fork as u8,
            cgroup: self.cgroups.ptr(cgroup),
        });
        let p = self.tasks.ptr(task) as u64;
        self.tasks.ts(task).scx.disallow = 0;
        let ret = self.with_args(args.get() as u64, size_of::<ScxInitTaskArgs>(), |k| {
            k.op_unlocked(Op::InitTask, [p, args.get() as u64])
        }) as i32;
        if ret != 0 {
            let name = self.name_of(task);
            self.scx_error(format!("ops.init_task() failed ({ret}) for {name}"));
            return;
        }
        if fork && self.tasks.ts(task).scx.disallow != 0 {
            let name = self.name_of(task);
            self.scx_error(format!(
                "ops.init_task() set task->scx.disallow for {name} during fork"
            ));
        }
        self.tasks.hot[task as usize].inited = true;
        let ts = self.tasks.ts(task);
        ts.scx.flags = ts.scx.flags & !TASK_STATE_MASK | TASK_READY | TASK_RESET_RUNNABLE_AT;
    }

    /// Row 33: the task comes under the policy: enable, set_weight.
    pub fn enable_task(mut self, task: TaskId) {
        let nice = self.tasks.hot[task as usize].nice.into();
        let weight = nice_to_weight(nice);
        self.tasks.ts(task).scx.weight = weight;
        if self.wrong(Mutation::WeightBeforeEnable) {
            self.op_task(Op::SetWeight, task, weight as u64);
        }
        self.op_task(Op::Enable, task, 0);
        if !self.wrong(Mutation::WeightBeforeEnable) {
            self.op_task(Op::SetWeight, task, weight as u64);
        }
        self.tasks.hot[task as usize].enabled = true;
        let ts = self.tasks.ts(task);
        ts.scx.flags = ts.scx.flags & !TASK_STATE_MASK | TASK_ENABLED;
    }

    pub fn disable_task(mut self, task: TaskId) {
        self.clear_direct(task);
        self.op_task(Op::Disable, task, 0);
        self.tasks.hot[task as usize].enabled = false;
        let ts = self.tasks.ts(task);
        ts.scx.flags = ts.scx.flags & !TASK_STATE_MASK | TASK_READY;
        // What was left of its slice does not survive (recorded on 7.2, row 33 of the conformance tests).
        ts.scx.slice = 0;
    }

    /// The policy sees the last of a task: disable, exit_task.
    pub fn disable_and_exit_task(mut self, task: TaskId) {
        if !self.tasks.hot[task as usize].inited {
            return;
        }
        if self.tasks.hot[task as usize].enabled {
            self.disable_task(task);
        }
        if self.policy.has(Op::ExitTask) {
            let args = std::cell::UnsafeCell::new(ScxExitTaskArgs { cancelled: 0 });
            self.with_args(args.get() as u64, size_of::<ScxExitTaskArgs>(), |k| {
                k.op_task(Op::ExitTask, task, args.get() as u64);
            });
        }
        self.tasks.hot[task as usize].inited = false;
        let ts = self.tasks.ts(task);
        ts.scx.flags &= !TASK_STATE_MASK;
    }

    /// The running task exits.
    pub fn exit_running(self, cpu: CpuId) {
        let task = self.cpus[cpu as usize].curr;
        self.tasks.ts(task).flags |= PF_EXITING;
        if let Some(rest) = self.tasks.rest(task) {
            rest.exit_state = 16;
        }
        self.leave_autogroup(task);
        self.schedule(cpu, Why::Dead);
    }

    /// A dead task has been switched out for the last time.
    pub fn bury(mut self, task: TaskId) {
        self.disable_and_exit_task(task);
        let pid = self.tasks.ts(task).pid;
        self.population.pids.remove(&pid);
        self.forget(pid);
        let cpu = self.tasks.hot[task as usize].cpu;
        self.note(Kind::Exit, cpu, task);
        let hot = &mut self.tasks.hot[task as usize];
        let (slot, token) = (hot.slot, hot.token);
        hot.slot = NONE;
        if slot != NONE {
            self.queue.release(slot);
            self.source(slot, Source::Free);
        }
        if self.cpus[cpu as usize].last_task == task {
            self.cpus[cpu as usize].last_task = NONE;
        }
        if let Some(i) = self.policy.instance() {
            i.task_gone(task);
        }
        self.population.exited += 1;
        if self.tasks.hot[task as usize].mark & MARK_VCPU == 0 {
            self.flags.attention = true;
            self.population.gone.push((token, task));
        }
        self.tasks.release(task);
    }

    /// Kill a task: it exits when it next runs.
    pub fn kill_task(mut self, task: TaskId) {
        let Some(hot) = self.tasks.hot.get_mut(task as usize) else {
            return;
        };
        match hot.life {
            Life::Asleep => {
                hot.remaining = 0;
                self.leave_freezer(task, Trap::Kill);
                self.wake_task(task, false);
            }
            Life::Runnable => {
                let cpu = hot.cpu;
                self.leave_freezer(task, Trap::Kill);
                if self.cpus[cpu as usize].curr == task {
                    self.sync_work(cpu);
                    if self.cpus[cpu as usize].run_end != NEVER {
                        let now = self.now;
                        let c = &mut self.cpus[cpu as usize];
                        c.run_end = now.max(c.work_start);
                        self.arm(cpu);
                    }
                }
                self.tasks.hot[task as usize].remaining = 0;
            }
            Life::Free | Life::Dead => (),
        }
    }
}
