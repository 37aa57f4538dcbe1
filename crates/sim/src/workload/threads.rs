// SPDX-License-Identifier: GPL-2.0-only
//! Threads of a scenario: from their description to a task of the machine, forks, VMs that start and stop.
use super::api::{CpuId, Ctx, HOST, MachineId, Nanos, Role, TaskId, TaskSpec};
use super::mail::Message;
use super::net::BackThread;
use super::requests::{KIND_BOOT, token};
use super::scenario::ScenarioWorkload;
use crate::guest::machine_of;
use crate::words::Phase;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{NetPath, Scenario};
use berth_scenario::placement::{self, HostThread, Work};

/// A pool thread between two messages has this as its next step.
pub(super) const IDLE: u32 = u32::MAX;

/// One thread: what [`Workload::next`] touches.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub rng: Rng,
    /// Times its steps began anew: position in lists of values.
    pub round: u64,
    pub task: TaskId,
    pub program: u32,
    /// Next step; past the end, the thread begins anew, a pool thread with the next message.
    pub step: u32,
    /// VM ordinal, or the number of VMs for the host.
    pub home: u32,
    pub phases: Box<[GridPhase]>,
    /// First and number of the queues it serves, in [`ScenarioWorkload::serves`]; 0 = not a pool.
    pub serves: (u32, u16),
    pub alive: bool,
    /// Queue that it waits at in the middle of a loop.
    pub listens: Option<u16>,
    pub in_hand: Option<Message>,
    /// It slept before it took what is in hand.
    pub slept: bool,
    /// It has done the packets of the reply it is about to send.
    pub packed: bool,
    /// It is at a step that shares out work, and has had some of it.
    pub sharing: bool,
    /// Back end it works for, and its number among their threads.
    pub back: Option<(u32, u32)>,
    /// CPU it was last seen on: where interrupts for it arrive.
    pub cpu: CpuId,
    /// Machine it is a task of.
    pub machine: MachineId,
    /// Position in [`ScenarioWorkload::hosts`].
    pub host: u32,
}

/// Phase of the timer grid of one period.
#[derive(Clone, Copy, Debug)]
pub(super) struct GridPhase {
    pub period: Nanos,
    pub at: Nanos,
}

/// A queue that a pool thread serves, and the program that does it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub queue: u16,
    pub program: u32,
}

/// What a thread was started as; not touched while it runs.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub spec: HostThread,
    pub program: u32,
    pub serves: (u32, u16),
    /// The thread of the start it descends from.
    pub root: u32,
    /// See [`Thread::back`].
    pub back: Option<(u32, u32)>,
    /// Barriers and work pools it comes to.
    pub barriers: Vec<u32>,
    pub pools: Vec<u32>,
}

/// The largest working set of what a thread does; none: the host's default.
fn working_set(scenario: &Scenario, work: &Work) -> Option<u64> {
    let names = match work {
        Work::Task(name) => std::slice::from_ref(name),
        Work::Pools(names) => names,
    };
    let said = |name: &String| scenario.tasks.get(name).and_then(|t| t.working_set);
    if names.iter().all(|n| said(n).is_none()) {
        return None;
    }
    let cache = scenario.host.cost.cache.as_ref();
    let default = cache.map_or(0, |c| c.working_set);
    names.iter().map(|n| said(n).unwrap_or(default)).max()
}

/// What the hardware sees of what a thread does; of several pools, of the first.
fn phase(scenario: &Scenario, work: &Work) -> Phase {
    let name = match work {
        Work::Task(name) => Some(name),
        Work::Pools(names) => names.first(),
    };
    let default = Phase::default();
    name.and_then(|n| scenario.tasks.get(n))
        .map_or(default, |t| Phase {
            stalled: t.stall_ppm,
            ipc: t.ipc_milli.unwrap_or(default.ipc),
        })
}

impl ScenarioWorkload {
    /// A slot for one more thread as described by `hosts[host]`, and what the machine wants to know of it.
    /// `ordinal`: number of its random stream.
    pub(super) fn prepare(&mut self, host: u32, ordinal: u32, ctx: &mut Ctx) -> TaskSpec {
        let Host {
            spec,
            program,
            serves,
            back,
            ..
        } = &self.hosts[host as usize];
        let mut phase_rng = Rng::new(self.seed, Stream::Phase(ordinal));
        // One phase per period, drawn in the order of the steps; pools one after the other.
        let served = &self.serves[serves.0 as usize..][..usize::from(serves.1)];
        let mut phases: Vec<GridPhase> = Vec::new();
        let own = (served.is_empty() && back.is_none()).then_some(*program);
        for program in served.iter().map(|s| s.program).chain(own) {
            for &period in &self.programs.all[program as usize].periods {
                if !phases.iter().any(|p| p.period == period) {
                    let at = phase_rng.below(period);
                    phases.push(GridPhase { period, at });
                }
            }
        }
        let thread = Thread {
            rng: Rng::new(self.seed, Stream::Thread(ordinal)),
            round: 0,
            task: TaskId::MAX,
            program: *program,
            step: if served.is_empty() { 0 } else { IDLE },
            home: spec.vm.as_ref().map_or(self.nr_vms, |vm| vm.ordinal),
            phases: phases.into_boxed_slice(),
            serves: *serves,
            alive: true,
            listens: None,
            in_hand: None,
            slept: false,
            packed: false,
            sharing: false,
            back: *back,
            cpu: ctx.cpu(),
            machine: ctx.machine(),
            host,
        };
        if back.is_none() {
            self.completion.begins(thread.home, ctx.now());
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.threads[slot as usize] = thread;
                slot
            }
            None => {
                self.threads.push(thread);
                self.threads.len() as u32 - 1
            }
        };
        if !self.sync.is_unused() && back.is_none() {
            let host = &self.hosts[host as usize];
            let home = self.threads[slot as usize].home;
            self.sync.join(slot, home, &host.barriers, &host.pools);
        }
        let vm = spec.vm.as_ref().map(|vm| &self.scenario.vms[vm.group]);
        TaskSpec {
            token: slot,
            name: spec.name.clone(),
            vm: spec.vm.as_ref().map(|vm| vm.ordinal),
            role: spec.role,
            io: vm.is_some_and(|vm| spec.role.vcpu().is_some_and(|v| vm.is_reserved(v))),
            nice: spec.nice,
            affinity: ctx.mask(&spec.affinity),
            working_set: working_set(&self.scenario, &spec.work),
            phase: phase(&self.scenario, &spec.work),
            ..TaskSpec::default()
        }
    }

    /// One more thread of a task in the VM of `parent`.
    pub(super) fn fork(&mut self, parent: u32, program: u32, ctx: &mut Ctx) -> Option<TaskSpec> {
        // What a child inherits is the same for all descendants of one thread.
        let root = self.hosts[parent as usize].root;
        let host = match self.children.get(&(root, program)) {
            Some(&host) => host,
            None => {
                let task = &self.programs.all[program as usize].task;
                let spec = &self.hosts[root as usize].spec;
                let child = placement::forked(&self.scenario, spec, task).ok()?;
                let host = self.describe(child, root);
                self.children.insert((root, program), host);
                host
            }
        };
        let ordinal = self.ordinals;
        self.ordinals += 1;
        Some(self.prepare(host, ordinal, ctx))
    }

    /// Adds the description of a thread that moves packets: it belongs to the VM, like every thread of it.
    pub(super) fn describe_back_end(&mut self, thread: &BackThread, hand: u32) {
        let vms = placement::instances(&self.scenario);
        let instance = &vms[thread.vm as usize];
        let vm = &self.scenario.vms[instance.group];
        let (role, what) = match (thread.vcpu, self.scenario.net.path) {
            (Some(vcpu), _) => (Role::Vcpu(vcpu), vcpu.to_string()),
            (None, NetPath::Emulator) => (Role::Emulator, "emulator".to_string()),
            (None, _) => (Role::Vhost, "vhost".to_string()),
        };
        let spec = HostThread {
            name: format!("{}/{what}", instance.name),
            vm: Some(instance.clone()),
            role,
            work: Work::Pools(Vec::new()),
            affinity: vm.affinity.clone(),
            nice: vm.nice,
            weight: vm.weight,
            cgroup: instance.name.clone(),
            start_ns: vm.start_ns,
            stop_ns: vm.stop_ns,
        };
        let root = self.hosts.len() as u32;
        self.hosts.push(Host {
            spec,
            program: 0,
            serves: (0, 0),
            root,
            back: Some((thread.back, hand)),
            barriers: Vec::new(),
            pools: Vec::new(),
        });
    }

    /// Wakes a thread, wherever it lives.
    pub(super) fn wake(&self, thread: u32, ctx: &mut Ctx) {
        let t = &self.threads[thread as usize];
        ctx.wake_in(t.machine, t.task);
    }

    /// Is this home a VM with the guest level?
    pub(super) fn is_inside(&self, home: u32) -> bool {
        self.inside.get(home as usize) == Some(&true)
    }

    /// Is this thread a task of the machine inside its VM? (Threads that move packets are the host's.)
    pub(super) fn lives_inside(&self, host: u32) -> bool {
        self.hosts[host as usize].back.is_none() && self.is_inside(self.home_of(host))
    }

    /// An event outside the guests: on a CPU of the host, also when a guest asks for it.
    pub(super) fn at_host(&self, home: u32, at: Nanos, token: u64, ctx: &mut Ctx) {
        if ctx.machine() == HOST {
            ctx.at(at, token);
        } else {
            ctx.at_in(HOST, home % self.host_cpus, at, token);
        }
    }

    /// Switches a VM's machine on; its tasks are started by an interrupt on its first CPU.
    pub(super) fn start_guest(&mut self, home: u32, ctx: &mut Ctx) {
        ctx.start_vm(home);
        let now = ctx.now();
        ctx.at_in(machine_of(home), 0, now, token(KIND_BOOT, home));
    }

    /// Inside the VM: its tasks begin.
    pub(super) fn boot(&mut self, home: u32, ctx: &mut Ctx) {
        self.guest_masks[home as usize] =
            self.mask_cpus.iter().map(|cpus| ctx.mask(cpus)).collect();
        for host in 0..self.initial {
            if self.home_of(host) == home && self.lives_inside(host) {
                self.start_thread(host, ctx);
            }
        }
    }

    pub(super) fn home_of(&self, host: u32) -> u32 {
        let vm = self.hosts[host as usize].spec.vm.as_ref();
        vm.map_or(self.nr_vms, |vm| vm.ordinal)
    }

    pub(super) fn start_thread(&mut self, host: u32, ctx: &mut Ctx) {
        let spec = self.prepare(host, host, ctx);
        ctx.spawn(&spec);
    }

    pub(super) fn start_vm(&mut self, home: u32, ctx: &mut Ctx) {
        if self.is_inside(home) {
            self.start_guest(home, ctx);
        }
        for host in 0..self.initial {
            if self.home_of(host) == home && !self.lives_inside(host) {
                self.start_thread(host, ctx);
            }
        }
    }

    pub(super) fn stop_vm(&mut self, home: u32, now: Nanos, ctx: &mut Ctx) {
        for thread in 0..self.threads.len() as u32 {
            let t = &self.threads[thread as usize];
            if t.alive && t.home == home {
                let (task, machine) = (t.task, t.machine);
                self.finish(thread, now, false, None);
                self.mail.leave(thread);
                if machine == HOST {
                    ctx.kill(task);
                } else {
                    self.threads[thread as usize].alive = false;
                }
            }
        }
        if self.is_inside(home) {
            ctx.stop_vm(home);
        }
        self.sync.clear(home);
        self.stop_port(home, now);
        let all = self.programs.queues.len() as u16;
        while let Some((_, message)) = self.mail.take(home, 0..all) {
            if message.from.is_some() {
                self.flow.leave(message.sent, now, false);
            }
        }
    }
}
