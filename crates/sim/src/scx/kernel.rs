// SPDX-License-Identifier: GPL-2.0-only
//! The state of one machine, and the handle through which all code reaches it.
//!
//! Nobody holds a Rust reference to [`Kernel`]: methods are on [`Handle`], see [`Ref`].
use super::consts::*;
use super::dispatch::Dispatch;
use super::dsq::{DsqIx, DsqTable};
use super::idle::IdleMasks;
use super::kick::{Executed, Kicks};
use super::lifecycle::Exit;
use super::mutation::{MUTATIONS, Mutation};
use super::ops::Policy;
use super::spec::MachineSpec;
use super::tick::Grid;
use crate::engine::hash::TraceHash;
use crate::engine::queue::{EventQueue, NEVER, Slot};
use crate::error::SimError;
use crate::machine::cgroup::{CgroupTable, ROOT};
use crate::machine::task::{NONE, set_comm};
use crate::machine::vcpu::{Call, Switched};
use crate::machine::{Cpu, CpuMask, Dense, MaskId, MaskTable, TaskTable, Topology};
use crate::reference::Ref;
use crate::stats::Stats;
use crate::stats::recent::Recent;
use crate::unlikely::unlikely;
use crate::words::{CpuId, HOST, MachineId, Nanos, SchedClass, TaskId, Who};
use berth_policy::kview::{SchedExtEntity, TaskStruct};
use berth_scenario::model::{HostCost, Hz, PleYield};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What an event queue slot stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Free,
    Cpu(CpuId),
    /// A sleeping task's timer.
    Task(TaskId),
    /// [`crate::workload::api::Ctx::at`].
    Token {
        cpu: CpuId,
        token: u64,
    },
    /// A policy's timer, by index.
    Timer(u32),
    Watchdog,
    /// Index into the machine's hotplug list.
    Hotplug(u32),
}

/// Counters of the kernel's `events` file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    pub select_cpu_fallback: u64,
    pub dispatch_local_dsq_offline: u64,
    pub dispatch_keep_last: u64,
    pub enq_skip_exiting: u64,
    pub enq_skip_migration_disabled: u64,
    pub refill_slice_dfl: u64,
    pub bypass_dispatch: u64,
    pub bypass_activate: u64,
    pub bypass_duration: u64,
    pub reenq_immed: u64,
}

/// A guest's: what lies between it and its host.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsGuest {
    /// Index of its first vCPU, see [`crate::guest::World`].
    pub first_vcpu: u32,
    /// vCPUs whose threads are runnable and have no physical CPU.
    pub waiting: u32,
    /// Cost of going in; of an exit and the way back; of an exit to halt, with what the host waits.
    pub entry_ns: Nanos,
    pub exit_ns: Nanos,
    pub halt_ns: Nanos,
    /// A task that spins this long makes its vCPU exit; 0 = never.
    pub ple_window: Nanos,
    /// It is switched off.
    pub off: bool,
    /// See [`MachineSpec::steal_accounting`].
    pub steal_accounting: bool,
}

/// What an event has to look at, all in one place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    pub bypass: bool,
    /// Ticks must be simulated one by one.
    pub real_ticks: bool,
    /// Births, deaths, an exit or an error wait for the end of the event.
    pub attention: bool,
    /// There is a record or a sink.
    pub watched: bool,
    /// The world is too large for the caches: memory is asked for ahead.
    pub ahead: bool,
    /// See [`MachineSpec::slice_timer`].
    pub slice_timer: bool,
}

/// What the policy's own code takes, on a machine that charges for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeCost {
    /// A reschedule comes so much later, because a wake-up or a tick is being worked on.
    pub waking_ns: Nanos,
    /// The policy's calls of kernel functions that [`HostCost::call_ns`] counts.
    pub queue_calls: u64,
    /// What the policy had executed before the present wake-up or tick, and before the present pass.
    pub code_mark: Executed,
    pub pass_mark: Executed,
}

/// The time before the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// What the clock that policies read says at 0.
    pub uptime_ns: Nanos,
    /// How long the policy is in charge before the run, and how much of that is left while it is being loaded.
    pub lead_ns: Nanos,
    pub before_ns: Nanos,
}

/// Tasks that come and go.
#[derive(Debug, Default)]
pub struct Population {
    pub next_pid: i32,
    /// Tasks by pid, for lookups by policies.
    pub pids: std::collections::BTreeMap<i32, TaskId>,
    /// Tasks that have exited in the present pass: freed after the switch.
    pub dead: Vec<TaskId>,
    /// Forked tasks the workload has not been told of yet.
    pub born: Vec<(u32, TaskId)>,
    /// Exited tasks the workload has not been told of yet.
    pub gone: Vec<(u32, TaskId)>,
    /// Tasks that have exited so far.
    pub exited: u64,
}

/// What of a run is written down.
#[derive(Default)]
pub struct Written {
    pub record: Option<Vec<crate::trace::Event>>,
    pub sink: Option<crate::trace::SharedSink>,
}

/// One machine. Reached through [`Handle`] only. What most events touch comes first: [`crate::guest::ahead`] asks for
/// that part's [`Kernel::NEAR`] cache lines before they are needed.
#[repr(C, align(64))]
pub struct Kernel {
    // ---- time, events, who does what
    pub now: Nanos,
    /// CPU that executes the present event.
    pub exec: CpuId,
    /// Number of the machine: 0 is the host.
    pub id: MachineId,
    pub queue: EventQueue,
    pub cpus: Dense<Cpu>,
    pub sources: Dense<Source>,
    pub tasks: TaskTable,
    /// What the present event asks of the host (of a guest).
    pub calls: Vec<Call>,
    /// What the present event did to threads of vCPUs (of the host).
    pub switched: Vec<Switched>,
    /// If [`Flags::ahead`]: the queue whose front was taken last, until its memory has been asked for.
    pub front_taken: Option<DsqIx>,
    pub guest: AsGuest,
    /// Slot of the watchdog's event.
    pub watchdog: Slot,
    pub flags: Flags,
    pub mutation: Option<Mutation>,
    pub hash: TraceHash,
    pub recent: Recent,
    pub code: CodeCost,
    pub start: Before,

    // ---- the machine
    pub topo: Arc<Topology>,
    pub cost: Arc<HostCost>,
    /// Speeds and caches, if they make a difference.
    pub hardware: Option<Box<super::hardware::Hardware>>,
    pub hz: Hz,
    /// Its ticks (at `exact`: 1000 Hz, for the classes above sched_ext).
    pub grid: Grid,

    // ---- sched_ext
    pub policy: Policy,
    pub dsqs: DsqTable,
    pub kicks: Kicks,
    pub dispatch: Dispatch,
    pub idle: IdleMasks,
    pub masks: MaskTable,
    pub runnable_seq: u64,
    pub stats: Stats,
    pub exit: Exit,
    pub events: Events,
    pub slice_dfl: u64,

    // ---- what few events touch
    pub online: CpuMask,
    /// The empty set.
    pub no_cpus: CpuMask,
    pub cgroups: CgroupTable,
    pub timers: super::timer::Timers,
    pub population: Population,
    /// Something that ends the run.
    pub failed: Option<SimError>,
    /// Argument structures of operations in progress: address and size.
    pub args: Vec<(u64, usize)>,
    pub written: Written,
    pub hotplug: Vec<berth_scenario::model::Hotplug>,
    /// See [`MachineSpec::ple_yield`].
    pub ple_yield: PleYield,
    pub seed: u64,
    /// [`crate::workload::api::Ctx::meanwhile`]: CPU, task, nice value.
    pub meanwhile: Option<(CpuId, TaskId, i32)>,
    /// Set from outside to end the run early.
    pub cancel: Option<&'static AtomicBool>,
}

/// A machine, to act on.
pub type Handle = Ref<Kernel>;
/// One CPU of a machine, to act on: whoever looks at a CPU a dozen times looks it up once.
pub type CpuRef = Ref<Cpu>;

/// The costs of a machine on which a sched_ext policy schedules.
/// Machines with the same costs have them once between them.
fn under_a_policy(cost: &HostCost) -> Arc<HostCost> {
    static MADE: Mutex<Vec<Weak<HostCost>>> = Mutex::new(Vec::new());
    let mut cost = cost.clone();
    if cost.ext_wake_ns > 0 {
        (cost.wake_ns, cost.preempt_ns) = (cost.ext_wake_ns, cost.ext_preempt_ns);
    }
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.retain(|c| c.strong_count() > 0);
    let mut all = made.iter().filter_map(Weak::upgrade);
    if let Some(same) = all.find(|c| **c == cost) {
        return same;
    }
    let cost = Arc::new(cost);
    made.push(Arc::downgrade(&cost));
    cost
}

impl Kernel {
    /// Cache lines of the part that most events touch.
    pub const NEAR: usize = std::mem::offset_of!(Kernel, events) / 64 + 1;

    pub fn new(spec: &MachineSpec) -> Box<Kernel> {
        let topo = Topology::shared(spec.shape, &spec.cost.kinds);
        let nr = topo.nr_cpus();
        let mut queue = EventQueue::new(nr as usize + spec.tasks + 8);
        let mut sources = Vec::with_capacity(nr as usize + spec.tasks + 8);
        let mut tasks = TaskTable::new(nr, spec.tasks, spec.needs);
        let mut cpus = Vec::with_capacity(nr as usize);
        let mut online = CpuMask::new(nr);
        for cpu in 0..nr {
            let slot = queue.alloc();
            sources.push(Source::Cpu(cpu));
            debug_assert_eq!(slot, cpu);
            let idle = tasks.alloc();
            debug_assert_eq!(idle, cpu);
            let ts = tasks.ts(idle);
            set_comm(ts, &format!("swapper/{cpu}"));
            ts.flags = PF_IDLE | PF_KTHREAD;
            ts.thread_info.cpu = cpu;
            ts.nr_cpus_allowed = 1;
            ts.static_prio = 120;
            ts.on_cpu = 1;
            if let Some(rest) = tasks.rest(idle) {
                rest.prio = 120;
            }
            tasks.hot[idle as usize].cpu = cpu;
            cpus.push(Cpu::new(cpu, slot));
            online.set(cpu);
        }
        let masks = MaskTable::new(nr);
        let cgroups = CgroupTable::new();
        let mut kernel = Box::new(Kernel {
            id: HOST,
            front_taken: None,
            switched: Vec::new(),
            calls: Vec::new(),
            watchdog: NONE,
            guest: AsGuest {
                steal_accounting: spec.steal_accounting,
                ..AsGuest::default()
            },
            flags: Flags {
                slice_timer: spec.slice_timer,
                ..Flags::default()
            },
            code: CodeCost::default(),
            start: Before {
                uptime_ns: spec.uptime_ns,
                lead_ns: spec.lead_ns,
                before_ns: 0,
            },
            population: Population {
                next_pid: 100,
                ..Population::default()
            },
            written: Written::default(),
            now: 0,
            exec: 0,
            queue,
            sources: sources.into(),
            cost: under_a_policy(&spec.cost),
            hardware: super::hardware::Hardware::new(spec, &topo),
            hz: spec.hz,
            ple_yield: spec.ple_yield,
            grid: Grid::new(match spec.hz {
                Hz::Ticks(hz) => hz,
                Hz::Exact => 1000,
            })
            .beginning_at(spec.tick_phase_ns),
            idle: IdleMasks::new(&topo),
            dsqs: DsqTable::new(nr, topo.nr_nodes()),
            kicks: Kicks::new(nr),
            dispatch: Dispatch::default(),
            policy: Policy::default(),
            timers: Default::default(),
            stats: Stats::new(&[], nr),
            recent: Recent::default(),
            events: Events::default(),
            hash: TraceHash::default(),
            exit: Exit::default(),
            slice_dfl: SLICE_DFL,
            mutation: spec.mutation,
            runnable_seq: 0,
            failed: None,
            args: Vec::new(),
            hotplug: spec.hotplug.clone(),
            seed: spec.seed,
            meanwhile: None,
            cancel: None,
            topo,
            cpus: cpus.into(),
            tasks,
            masks,
            no_cpus: CpuMask::new(nr),
            online,
            cgroups,
        });
        for cpu in 0..nr as usize {
            let idle = kernel.tasks.ptr(cpu as TaskId);
            let cgroups = &kernel.cgroups;
            let (tg, set) = cgroups.views(ROOT);
            let ts = kernel.tasks.ts(cpu as TaskId);
            ts.cpus_ptr = kernel.masks.get(MaskId::ALL).as_kernel();
            if let Some(rest) = kernel.tasks.rest(cpu as TaskId) {
                rest.sched_task_group = tg;
                rest.cgroups = set;
                rest.group_leader = idle;
                rest.real_parent = idle;
                rest.parent = idle;
            }
            let rq = &mut kernel.cpus[cpu].rq;
            rq.cpu = cpu as i32;
            rq.curr = idle;
            rq.idle = idle;
        }
        for i in 0..spec.hotplug.len() {
            let slot = kernel.queue.alloc();
            kernel.source(slot, Source::Hotplug(i as u32));
            kernel.queue.set(slot, spec.hotplug[i].at_ns);
        }
        kernel
    }

    /// Say what a slot stands for.
    pub fn source(&mut self, slot: Slot, source: Source) {
        if self.sources.len() <= slot as usize {
            self.sources.resize(slot as usize + 1, Source::Free);
        }
        self.sources[slot as usize] = source;
    }

    /// Is this deliberate mistake on?
    #[inline(always)]
    pub fn wrong(&self, m: Mutation) -> bool {
        MUTATIONS && self.mutation == Some(m)
    }

    #[inline(always)]
    pub fn is_idle_task(&self, task: TaskId) -> bool {
        (task as usize) < self.cpus.len()
    }

    /// Class of the task that has the CPU; `None` = idle.
    #[inline]
    pub fn class_on(&self, cpu: CpuId) -> Option<SchedClass> {
        let curr = self.cpus[cpu as usize].curr;
        (!self.is_idle_task(curr)).then(|| self.tasks.hot[curr as usize].class)
    }

    /// Jiffies since the start (at `exact`, of a 1000 Hz clock).
    pub fn jiffies(&self) -> u64 {
        let hz = match self.hz {
            Hz::Ticks(hz) => hz as u64,
            Hz::Exact => 1000,
        };
        (self.now as u128 * hz as u128 / 1_000_000_000) as u64
    }

    /// The error that ends the run; the first one stays.
    #[cold]
    pub fn fail(&mut self, e: SimError) {
        self.flags.attention = true;
        if self.failed.is_none() {
            self.failed = Some(e);
        }
    }

    /// What happened, for the trace hash and the recorded trace.
    #[inline(always)]
    pub fn note(&mut self, kind: crate::trace::Kind, cpu: CpuId, task: TaskId) {
        let word = ((kind as u64) << 56) | ((cpu as u64) << 32) | task as u64;
        self.hash.add(self.now);
        self.hash.add(word);
        self.recent.push(self.now, word);
        if self.flags.watched {
            self.write_down(kind, cpu, task);
        }
    }

    #[cold]
    fn write_down(&mut self, kind: crate::trace::Kind, cpu: CpuId, task: TaskId) {
        let event = crate::trace::Event {
            at_ns: self.now,
            kind,
            cpu,
            task,
        };
        if let Some(record) = &mut self.written.record {
            record.push(event);
        }
        if kind == crate::trace::Kind::Fork {
            self.tell_born(task);
        } else if let Some(sink) = &self.written.sink {
            let life = |t: TaskId| self.tasks.hot[t as usize].life;
            sink.with(|sink| sink.event(self.id, &event, &life));
        }
    }

    /// The sink learns of a task.
    fn tell_born(&self, task: TaskId) {
        if let Some(sink) = &self.written.sink {
            let entry = self.tasks.hot[task as usize].stats;
            sink.with(|sink| sink.born(self.id, task, &self.tasks.name(task), entry));
        }
    }

    pub fn who(&self, task: TaskId) -> Who {
        let t = &self.tasks.hot[task as usize];
        Who {
            task,
            token: t.token,
            machine: self.id,
            cpu: t.cpu,
        }
    }
}

impl Handle {
    /// One of its CPUs, to look at or change more than once.
    #[inline(always)]
    pub fn cpu(mut self, cpu: CpuId) -> CpuRef {
        // SAFETY: a machine's CPUs are as many as it was built with, so they never move.
        unsafe { CpuRef::new(self.cpus.place(cpu as usize)) }
    }

    /// Begin an event: the clock moves, and this CPU executes what follows.
    #[inline]
    pub fn begin(mut self, now: Nanos, cpu: CpuId) {
        debug_assert!(now >= self.now);
        self.now = now;
        self.exec = cpu;
        let clock = self.clock(now);
        self.policy.set_clock(clock, cpu);
    }

    /// What policies read as the time at an instant of the run.
    #[inline]
    pub fn clock(self, now: Nanos) -> Nanos {
        now + self.start.uptime_ns - self.start.before_ns
    }

    /// The task clock of a CPU (`rq->clock_task`), by which run time is charged: in a guest that accounts for steal it
    /// stands still while the vCPU has no physical CPU.
    #[inline]
    pub fn task_clock(self, cpu: CpuId) -> Nanos {
        let clock = self.clock(self.now);
        if !self.guest.steal_accounting {
            return clock;
        }
        let c = &self.cpus[cpu as usize];
        let away = if unlikely(c.paused) && !c.is_idle() {
            self.now - c.since
        } else {
            0
        };
        clock - c.stolen_ns - away
    }

    /// What another CPU does in the middle of the operation in progress (tests of the kernel model only).
    #[cold]
    pub fn race(mut self) {
        let Some((cpu, task, nice)) = self.meanwhile.take() else {
            return;
        };
        let (exec, rq) = (self.exec, self.policy.locked_rq.take());
        self.begin(self.now, cpu);
        self.set_nice(task, nice);
        self.begin(self.now, exec);
        self.policy.locked_rq = rq;
    }

    /// Put the CPU's next event into the queue.
    #[inline]
    pub fn arm(mut self, cpu: CpuId) {
        let c = self.cpu(cpu);
        if c.paused | c.takes_late {
            return self.arm_late(cpu);
        }
        let at = c.resched_at.min(c.run_end).min(c.tick_at);
        self.queue.set(c.slot, at);
    }

    /// Call [`crate::workload::api::Workload::event`] then and there.
    pub fn arm_token(mut self, cpu: CpuId, at: Nanos, token: u64) {
        let slot = self.queue.alloc();
        let cpu = if self.cpus.get(cpu as usize).is_some_and(|c| c.online) {
            cpu
        } else {
            0
        };
        self.source(slot, Source::Token { cpu, token });
        let at = at.max(self.now);
        self.queue.set(slot, at);
    }

    pub fn mask(mut self, cpus: &[CpuId]) -> MaskId {
        self.masks.intern(cpus)
    }

    /// Time at which the machine has nothing more to do.
    pub fn next_event(self) -> Option<(Nanos, Slot)> {
        let (at, slot) = self.queue.peek();
        (at != NEVER).then_some((at, slot))
    }

    /// The CPU's stopper thread.
    pub fn stopper(mut self, cpu: CpuId) -> TaskId {
        let stopper = self.cpus[cpu as usize].rare_mut().stopper;
        if stopper != NONE {
            return stopper;
        }
        let task = self.tasks.alloc();
        let pid = self.new_pid();
        let ptr = self.tasks.ptr(task);
        let (tg, set) = self.cgroups.views(ROOT);
        let all = self.masks.get(MaskId::ALL).as_kernel();
        let ts = self.tasks.ts(task);
        set_comm(ts, &format!("migration/{cpu}"));
        ts.flags = PF_KTHREAD;
        ts.pid = pid;
        ts.nr_cpus_allowed = 1;
        ts.cpus_ptr = all;
        ts.thread_info.cpu = cpu;
        if let Some(rest) = self.tasks.rest(task) {
            rest.tgid = pid;
            rest.group_leader = ptr;
            rest.real_parent = ptr;
            rest.parent = ptr;
            rest.sched_task_group = tg;
            rest.cgroups = set;
        }
        let hot = &mut self.tasks.hot[task as usize];
        hot.class = SchedClass::Stop;
        hot.cpu = cpu;
        let entry = self.stats.index(None);
        self.tasks.hot[task as usize].stats = entry;
        self.cpus[cpu as usize].rare_mut().stopper = task;
        self.tell_born(task);
        task
    }

    pub fn new_pid(mut self) -> i32 {
        self.population.next_pid += 1;
        self.population.next_pid
    }
}

impl Handle {
    /// May a policy touch this memory of the machine? It may read what the kernel shows it, and write what the
    /// verifier lets it write of a task (slice, vtime, disallow) and of the arguments of its operation.
    pub fn may_touch(self, addr: u64, size: usize, write: bool) -> bool {
        let within = |p: *const u8, len: usize| {
            let offset = (addr as usize).wrapping_sub(p as usize);
            offset < len && size <= len - offset
        };
        if let Some((base, _)) = self.tasks.regions().find(|(p, n)| within(*p, *n)) {
            let offset = (addr as usize - base as usize) % self.tasks.stride();
            let fits = |start: usize, len: usize| offset >= start && offset + size <= start + len;
            let scx = std::mem::offset_of!(TaskStruct, scx);
            return fits(0, self.tasks.stride())
                && (!write
                    || fits(scx + std::mem::offset_of!(SchedExtEntity, slice), 8)
                    || fits(scx + std::mem::offset_of!(SchedExtEntity, dsq_vtime), 8)
                    || fits(scx + std::mem::offset_of!(SchedExtEntity, disallow), 1));
        }
        if self.args.iter().any(|(p, n)| within(*p as *const u8, *n)) {
            return true;
        }
        !write
            && (self.masks.regions().any(|(p, n)| within(p, n))
                || self.idle.regions().any(|(p, n)| within(p, n))
                || [&self.online, &self.no_cpus]
                    .iter()
                    .any(|m| within(m.words().as_ptr().cast(), size_of_val(m.words())))
                || self.cgroups.regions().any(|(p, n)| within(p, n))
                || self.dsqs.regions().any(|(p, n)| within(p, n))
                || self
                    .cpus
                    .iter()
                    .any(|c| within((&raw const c.rq).cast(), size_of_val(&c.rq))))
    }

    /// The piece of memory, `[start, end)`, around an address, all of which a policy may read as long as the machine
    /// is: task structures, masks, run queues.
    pub fn lasting_piece(self, addr: u64) -> Option<(u64, u64)> {
        let words = |m: &CpuMask| (m.words().as_ptr().cast(), size_of_val(m.words()));
        let tasks = self.tasks.regions();
        let masks = self.masks.regions().chain(self.idle.regions());
        let masks = masks.chain([&self.online, &self.no_cpus].map(words));
        let queues = self.cpus.iter();
        let queues = queues.map(|c| ((&raw const c.rq).cast::<u8>(), size_of_val(&c.rq)));
        tasks
            .chain(masks)
            .chain(queues)
            .map(|(p, n)| (p as u64, p as u64 + n as u64))
            .find(|(start, end)| (*start..*end).contains(&addr))
    }
}

#[cfg(test)]
mod tests {
    use crate::sim::Simulation;
    use crate::testing::{Cast, one_cpu};
    use crate::workload::api::Action;

    /// What guarded code remembers of the machine is there as long as it, and all of it may be read.
    #[test]
    fn a_piece_lasts_and_may_be_read() {
        let mut cast = Cast::default();
        for (name, start_ns) in [("first", 1_000), ("second", 2_000_000)] {
            cast.add(name, start_ns, &[Action::ComputeForever], true);
        }
        let mut m = Simulation::new(&one_cpu(), &[], cast);
        m.start();
        m.run_until(1_000_000).unwrap();
        let k = m.kernel();
        let mask = k.masks.get(crate::words::MaskId::ALL).words().as_ptr() as u64;
        let queue = (&raw const k.cpus[0].rq) as u64;
        let task = k.tasks.regions().next().unwrap().0 as u64;
        let online = k.online.words().as_ptr() as u64;
        let all = [mask, queue, task, online];
        let before = all.map(|at| k.lasting_piece(at).unwrap());
        for (at, (start, end)) in all.into_iter().zip(before) {
            assert!((start..end).contains(&at) && (end - start) % 8 == 0);
            for word in (start..end).step_by(8) {
                assert!(k.may_touch(word, 8, false), "{word:x} of {start:x}-{end:x}");
            }
            // Its ends are its own: what lies beyond is another piece or nobody's.
            assert_ne!(k.lasting_piece(end).map(|p| p.0), Some(start));
        }
        // The policy's arguments are gone after the call, and what is nobody's is none.
        assert_eq!(k.lasting_piece(&raw const mask as u64), None);
        // Another thread, another mask, and time: they are where they were.
        m.kernel().mask(&[0]);
        m.run_until(20_000_000).unwrap();
        let k = m.kernel();
        assert_eq!(all.map(|at| k.lasting_piece(at).unwrap()), before);
    }
}
