// SPDX-License-Identifier: GPL-2.0-only
//! Threads of a scenario: what each was started as, and where each is.
use super::api::{CpuId, Ctx, HOST, MachineId, Nanos, Role, TaskId};
use super::device::{DEVICES, Post, Worker};
use super::events::Event;
use super::homes::Homes;
use super::mail::Message;
use super::program::Programs;
use berth_identity::JobRecord;
use berth_scenario::dist::Rng;
use berth_scenario::model::Grid;
use berth_scenario::placement::{self, HostThread, Work};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// A pool thread between two messages has this as its next step.
pub(super) const IDLE: u32 = u32::MAX;
/// The first step of a thread that a request has started.
pub(super) const BEGUN: u32 = u32::MAX - 1;

/// One thread: what [`super::api::Workload::next`] touches.
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
    /// First and number of the queues it serves, in [`Threads::serves`]; 0 = not a pool.
    pub serves: (u32, u16),
    pub alive: bool,
    /// Queue that it waits at in the middle of a loop.
    pub listens: Option<u16>,
    pub in_hand: Option<Message>,
    /// CPU time that the request in hand has asked for so far, ns.
    pub asked_ns: Nanos,
    /// The job of the request that it waits for, of which whoever wakes it tells the policy; taken when it has it.
    pub foreseen: Option<JobRecord>,
    /// It slept before it took what is in hand.
    pub slept: bool,
    /// It has done the packets of the reply it is about to send.
    pub packed: bool,
    /// It is at a step that shares out work, and has had some of it.
    pub sharing: bool,
    /// What it does for a device, if it is the device's.
    pub post: Option<Post>,
    /// CPU it was last seen on: where interrupts for it arrive.
    pub cpu: CpuId,
    /// Machine it is a task of.
    pub machine: MachineId,
    /// Position in [`Threads::hosts`].
    pub host: u32,
}

/// The timer of one period and kind of grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct GridPhase {
    pub period: Nanos,
    pub grid: Grid,
    /// Phase of a random grid; of one from the thread's start the last point.
    pub at: Nanos,
}

impl GridPhase {
    /// Until when a thread sleeps that comes to it; none: it is late, and goes on.
    pub fn next(&mut self, now: Nanos) -> Option<Nanos> {
        if self.grid.is_random() {
            return Some(match now.checked_sub(self.at) {
                None => self.at,
                Some(since) => self.at + (since / self.period + 1) * self.period,
            });
        }
        self.at = self.at.saturating_add(self.period);
        if now < self.at {
            return Some(self.at);
        }
        if self.grid == Grid::Start {
            self.at = now;
        }
        None
    }
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
    /// See [`Thread::post`].
    pub post: Option<Post>,
    /// Barriers and work pools it comes to.
    pub barriers: Vec<u32>,
    pub pools: Vec<u32>,
}

/// The threads of a run.
#[derive(Default)]
pub(super) struct Threads {
    pub all: Vec<Thread>,
    /// Slots of threads that have exited.
    free: Vec<u32>,
    /// The threads of the start, then one per kind of forked thread.
    pub hosts: Vec<Host>,
    /// Threads of the start: those of the scenario, then the devices'.
    pub initial: u32,
    /// Forked kinds: (thread of the start, program) to position in `hosts`.
    pub children: BTreeMap<(u32, u32), u32>,
    serves: Vec<Served>,
    /// Number of threads so far: the ordinal of the next forked one's random stream.
    pub ordinals: u32,
    /// By device and worker: its thread, once it has started.
    workers: [Vec<u32>; DEVICES],
}

impl Index<u32> for Threads {
    type Output = Thread;

    fn index(&self, thread: u32) -> &Thread {
        &self.all[thread as usize]
    }
}

impl IndexMut<u32> for Threads {
    fn index_mut(&mut self, thread: u32) -> &mut Thread {
        &mut self.all[thread as usize]
    }
}

/// Adds what is not there yet.
fn merge(list: &mut Vec<u32>, more: &[u32]) {
    for number in more {
        if !list.contains(number) {
            list.push(*number);
        }
    }
}

impl Threads {
    /// Adds the description of a thread that is, or descends from, the thread `root` of the start.
    pub fn describe(&mut self, spec: HostThread, root: u32, programs: &Programs) -> u32 {
        let first = self.serves.len() as u32;
        let program = match &spec.work {
            Work::Task(name) => programs.number(name),
            Work::Pools(names) => {
                for name in names {
                    let program = programs.number(name);
                    if let Some(queue) = programs.all[program as usize].queue {
                        self.serves.push(Served { queue, program });
                    }
                }
                programs.number(&names[0])
            }
        };
        let serves = (first, (self.serves.len() as u32 - first) as u16);
        let (mut barriers, mut pools) = (Vec::new(), Vec::new());
        let served = self.serves[first as usize..].iter().map(|s| s.program);
        for p in served.chain([program]) {
            let p = &programs.all[p as usize];
            merge(&mut barriers, &p.barriers);
            merge(&mut pools, &p.pools);
        }
        self.hosts.push(Host {
            spec,
            program,
            serves,
            root,
            post: None,
            barriers,
            pools,
        });
        self.hosts.len() as u32 - 1
    }

    /// Adds the description of a device's thread: it belongs to the VM, like every thread of it.
    pub fn describe_worker(&mut self, worker: &Worker, post: Post, homes: &Homes) {
        let instance = &homes.vms[worker.vm as usize];
        let vm = &homes.scenario.vms[instance.group];
        let what = match worker.role {
            Role::Vcpu(vcpu) => vcpu.to_string(),
            role => role.word().to_string(),
        };
        let spec = HostThread {
            name: format!("{}/{what}", instance.name),
            vm: Some(instance.clone()),
            role: worker.role,
            work: Work::Pools(Vec::new()),
            affinity: match worker.role {
                Role::Vcpu(_) => vm.affinity.clone(),
                _ => placement::backend_affinity(vm).to_vec(),
            },
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
            post: Some(post),
            barriers: Vec::new(),
            pools: Vec::new(),
        });
    }

    /// The queues that a thread serves as a pool.
    pub fn serves(&self, of: (u32, u16)) -> &[Served] {
        &self.serves[of.0 as usize..][..usize::from(of.1)]
    }

    /// Puts a new thread into a slot.
    pub fn add(&mut self, thread: Thread) -> u32 {
        let post = thread.post;
        let slot = match self.free.pop() {
            Some(slot) => {
                self[slot] = thread;
                slot
            }
            None => {
                self.all.push(thread);
                self.all.len() as u32 - 1
            }
        };
        if let Some(Post { device, worker }) = post {
            let slots = &mut self.workers[device as usize];
            slots.resize(slots.len().max(worker as usize + 1), u32::MAX);
            slots[worker as usize] = slot;
        }
        slot
    }

    /// A thread has exited.
    pub fn remove(&mut self, thread: u32) {
        self[thread].alive = false;
        self.free.push(thread);
    }

    /// Wakes a thread, wherever it lives; one inside a VM from outside by an interrupt.
    pub fn wake(&self, thread: u32, homes: &Homes, ctx: &mut Ctx) {
        let t = &self[thread];
        let from_outside = t.machine != HOST && t.machine != ctx.machine();
        let cpu = homes.takes_interrupt(t.home, t.cpu);
        if from_outside && cpu != t.cpu {
            let wake = Event::Wake(thread, t.task as u16);
            ctx.at_in(t.machine, cpu, ctx.now(), wake.token());
        } else {
            ctx.wake_in(t.machine, t.task);
        }
    }

    /// An interrupt for this thread was taken by another vCPU of its VM. `task`: the low half of what it was then.
    pub fn wake_inside(&self, thread: u32, task: u16, ctx: &mut Ctx) {
        let t = &self[thread];
        if t.alive && t.task as u16 == task {
            ctx.wake(t.task);
        }
    }

    /// Wakes a device's thread.
    pub fn wake_worker(&self, post: Post, homes: &Homes, ctx: &mut Ctx) {
        let thread = self.workers[post.device as usize][post.worker as usize];
        self.wake(thread, homes, ctx);
    }

    pub fn home_of(&self, host: u32, homes: &Homes) -> u32 {
        let vm = self.hosts[host as usize].spec.vm.as_ref();
        vm.map_or(homes.host(), |vm| vm.ordinal)
    }

    /// Is this thread a task of the machine inside its VM? (Devices' threads are the host's.)
    pub fn lives_inside(&self, host: u32, homes: &Homes) -> bool {
        self.hosts[host as usize].post.is_none() && homes.is_inside(self.home_of(host, homes))
    }
}
