// SPDX-License-Identifier: GPL-2.0-only
//! Threads that begin, from their description to a task of the machine; VMs that start and stop.
use super::api::{Ctx, HOST, Nanos, TaskId, TaskSpec};
use super::events::Event;
use super::mail::Message;
use super::scenario::ScenarioWorkload;
use super::threads::{BEGUN, GridPhase, Host, IDLE, Thread};
use crate::guest::machine_of;
use crate::words::Phase;
use berth_identity::JobRecord;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{Grid, Scenario};
use berth_scenario::placement::{self, Work};

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
            ..default
        })
}

impl ScenarioWorkload {
    /// A slot for one more thread as described by `hosts[host]`, and what the machine wants to know of it.
    /// `ordinal`: number of its random stream.
    pub(super) fn prepare(&mut self, host: u32, ordinal: u32, ctx: &mut Ctx) -> TaskSpec {
        let Host {
            program,
            serves,
            post,
            ..
        } = &self.threads.hosts[host as usize];
        let mut phase_rng = Rng::new(self.homes.seed, Stream::Phase(ordinal));
        // One phase per period, drawn in the order of the steps; pools one after the other.
        let served = self.threads.serves(*serves);
        let mut phases: Vec<GridPhase> = Vec::new();
        let own = (served.is_empty() && post.is_none()).then_some(*program);
        for program in served.iter().map(|s| s.program).chain(own) {
            for &(period, grid) in &self.programs.all[program as usize].timers {
                if !phases.iter().any(|p| (p.period, p.grid) == (period, grid)) {
                    let at = match grid {
                        Grid::Random => phase_rng.below(period),
                        Grid::Start | Grid::StartCatchUp => ctx.now(),
                    };
                    phases.push(GridPhase { period, grid, at });
                }
            }
        }
        let thread = Thread {
            rng: Rng::new(self.homes.seed, Stream::Thread(ordinal)),
            round: 0,
            task: TaskId::MAX,
            program: *program,
            step: if served.is_empty() { 0 } else { IDLE },
            home: self.threads.home_of(host, &self.homes),
            phases: phases.into_boxed_slice(),
            serves: *serves,
            alive: true,
            listens: None,
            in_hand: None,
            asked_ns: 0,
            foreseen: None,
            slept: false,
            packed: false,
            sharing: false,
            post: *post,
            cpu: ctx.cpu(),
            machine: ctx.machine(),
            host,
        };
        let home = thread.home;
        if post.is_none() {
            self.completion.begins(home, ctx.now());
        }
        let slot = self.threads.add(thread);
        self.blocks.forget(slot);
        let host = &self.threads.hosts[host as usize];
        if !self.sync.is_unused() && host.post.is_none() {
            let meets = self.homes.meets(home);
            self.sync.join(slot, meets, &host.barriers, &host.pools);
        }
        let spec = &host.spec;
        let vm = self.homes.vm(home);
        let program = &self.programs.all[host.program as usize];
        let thread = &self.threads[slot];
        // Of one that never takes requests: what it does in all, or in a round.
        let told = program
            .estimate
            .filter(|_| thread.step == 0 && host.post.is_none())
            .map(|of_size| {
                let (task, of) = (host.program as u16, home as u16);
                let stream = Stream::Estimate {
                    task,
                    home: of,
                    number: ordinal,
                };
                let rounds = program.rounds.unwrap_or(1);
                let size = program.ahead(0, &thread.rng, 0).saturating_mul(rounds);
                JobRecord {
                    size_ns: Rng::new(self.homes.seed, stream).estimate(of_size, size),
                    // Rounds without end are jobs that nobody tells of.
                    each: program.rounds.is_some() || program.is_told_of_each(),
                }
            });
        TaskSpec {
            told,
            token: slot,
            name: spec.name.clone(),
            vm: spec.vm.as_ref().map(|vm| vm.ordinal),
            role: spec.role,
            io: vm.is_some_and(|vm| spec.role.vcpu().is_some_and(|v| vm.is_reserved(v))),
            score_milli: vm.and_then(|vm| vm.score_milli(spec.role.vcpu()?)),
            nice: spec.nice,
            affinity: (self.agents.mask(home, host.program))
                .filter(|_| host.post.is_none())
                .unwrap_or_else(|| ctx.mask(&spec.affinity)),
            working_set: working_set(&self.homes.scenario, &spec.work),
            phase: phase(&self.homes.scenario, &spec.work),
            ..TaskSpec::default()
        }
    }

    /// Where a request to a queue of a home starts a thread: what it is started as; none: such a thread takes requests.
    pub(super) fn begins(&self, home: u32, queue: u16) -> Option<u32> {
        self.requests.starts(home, queue)
    }

    /// A request starts a thread, on the machine of its home.
    pub(super) fn begin(&mut self, home: u32, queue: u16, message: Message, ctx: &mut Ctx) {
        let Some(host) = self.begins(home, queue) else {
            return self.requests.give_up(message, ctx.now());
        };
        let program = self.threads.hosts[host as usize].program;
        let number = self.requests.number(home, queue);
        let (task, of) = (program as u16, home as u16);
        let ordinal = self.threads.ordinals;
        self.threads.ordinals += 1;
        let mut spec = self.prepare(host, ordinal, ctx);
        let stream = Stream::Request {
            task,
            home: of,
            number,
        };
        let thread = &mut self.threads[spec.token];
        thread.rng = Rng::new(self.homes.seed, stream);
        // Of listed values, each request has its own; the thread ends with its round.
        thread.round = u64::from(number);
        thread.in_hand = Some(message);
        thread.serves.1 = 0;
        thread.step = BEGUN;
        let program = &self.programs.all[program as usize];
        spec.told = program.estimate.map(|of_size| {
            let size = program.ahead(0, &thread.rng, thread.round);
            let stream = Stream::Estimate {
                task,
                home: of,
                number,
            };
            JobRecord {
                size_ns: Rng::new(self.homes.seed, stream).estimate(of_size, size),
                each: true,
            }
        });
        ctx.spawn(&spec);
    }

    /// The same, by a request that is in its queue.
    pub(super) fn begin_queued(&mut self, home: u32, queue: u16, ctx: &mut Ctx) {
        if let Some((_, message)) = self.requests.mail.take(home, [queue]) {
            self.begin(home, queue, message, ctx);
        }
    }

    /// A thread that takes requests has one in hand now: the policy is told of its size, if it is to be told and was
    /// not when the thread was woken for it.
    pub(super) fn tell_size(&mut self, thread: u32, ctx: &mut Ctx) {
        if self.threads[thread].foreseen.take().is_some() {
            return;
        }
        let t = &self.threads[thread];
        let (machine, task) = (t.machine, t.task);
        if let Some(job) = self.job(thread, t.program, t.step) {
            ctx.tell_job(machine, task, job);
        }
    }

    /// A thread is about to wait for a request: whoever wakes it for one tells the policy of its size first. Of a
    /// thread that serves several queues it is known when it has the request.
    pub(super) fn foresee(&mut self, thread: u32) {
        let t = &self.threads[thread];
        if t.foreseen.is_some() {
            return;
        }
        let (program, step) = match (t.listens, self.threads.serves(t.serves)) {
            (Some(_), _) => (t.program, t.step + 1),
            (None, [one]) => (one.program, 0),
            _ => return,
        };
        self.threads[thread].foreseen = self.job(thread, program, step);
    }

    /// What the policy is told of the job that a thread does from this step of a program on, if it is to be told.
    fn job(&mut self, thread: u32, program: u32, step: u32) -> Option<JobRecord> {
        let t = &self.threads[thread];
        let of = &self.programs.all[program as usize];
        let of_size = of.estimate?;
        let (task, home) = (program as u16, t.home as u16);
        let size = of.ahead(step, &t.rng, t.round);
        let number = self.requests.told(t.home, program);
        let mut rng = Rng::new(self.homes.seed, Stream::Estimate { task, home, number });
        Some(JobRecord {
            size_ns: rng.estimate(of_size, size),
            each: true,
        })
    }

    /// One more thread of a task in the VM of `parent`.
    pub(super) fn fork(&mut self, parent: u32, program: u32, ctx: &mut Ctx) -> Option<TaskSpec> {
        // What a child inherits is the same for all descendants of one thread.
        let root = self.threads.hosts[parent as usize].root;
        let host = match self.threads.children.get(&(root, program)) {
            Some(&host) => host,
            None => {
                let task = &self.programs.all[program as usize].task;
                let spec = &self.threads.hosts[root as usize].spec;
                let child = placement::forked(&self.homes.scenario, spec, task).ok()?;
                let host = self.threads.describe(child, root, &self.programs);
                self.threads.children.insert((root, program), host);
                host
            }
        };
        let ordinal = self.threads.ordinals;
        self.threads.ordinals += 1;
        Some(self.prepare(host, ordinal, ctx))
    }

    /// A thread of the start begins.
    fn start_thread(&mut self, host: u32, ctx: &mut Ctx) {
        let spec = self.prepare(host, host, ctx);
        ctx.spawn(&spec);
    }

    /// The threads of the start that live in a home, inside its machine or not.
    fn start_threads(&mut self, home: u32, inside: bool, ctx: &mut Ctx) {
        for host in 0..self.threads.initial {
            let (threads, homes) = (&self.threads, &self.homes);
            if threads.home_of(host, homes) == home && threads.lives_inside(host, homes) == inside {
                self.start_thread(host, ctx);
            }
        }
    }

    /// Switches a VM's machine on; its tasks are started by an interrupt on its first CPU.
    fn start_guest(&mut self, home: u32, ctx: &mut Ctx) {
        ctx.start_vm(home);
        let now = ctx.now();
        ctx.at_in(machine_of(home), 0, now, Event::Boot(home).token());
    }

    /// Inside the VM: its tasks begin.
    pub(super) fn boot(&mut self, home: u32, ctx: &mut Ctx) {
        self.masks.start_guest(home, ctx);
        self.start_threads(home, true, ctx);
        self.start_agent(home, ctx);
    }

    /// Threads that are there from the start begin, in the order of the list; others are started and stopped in time.
    pub(super) fn start_homes(&mut self, ctx: &mut Ctx) {
        let mut seen = vec![false; self.homes.count()];
        // What requests start comes last; their homes are to be there, too.
        for host in 0..self.threads.hosts.len() as u32 {
            let spec = &self.threads.hosts[host as usize].spec;
            let (start, stop) = (spec.start_ns, spec.stop_ns);
            let home = self.threads.home_of(host, &self.homes);
            let first_of_home = !std::mem::replace(&mut seen[home as usize], true);
            if start == 0 {
                if first_of_home && self.homes.is_inside(home) {
                    self.start_guest(home, ctx);
                }
                let from_the_start = host < self.threads.initial;
                if from_the_start && !self.threads.lives_inside(host, &self.homes) {
                    self.start_thread(host, ctx);
                }
            } else if first_of_home {
                ctx.at(start, Event::StartVm(home).token());
            }
            if let (Some(stop), true) = (stop, first_of_home) {
                ctx.at(stop, Event::StopVm(home).token());
            }
        }
    }

    pub(super) fn start_vm(&mut self, home: u32, ctx: &mut Ctx) {
        if self.homes.is_inside(home) {
            self.start_guest(home, ctx);
        }
        self.start_threads(home, false, ctx);
    }

    pub(super) fn stop_vm(&mut self, home: u32, now: Nanos, ctx: &mut Ctx) {
        for thread in 0..self.threads.all.len() as u32 {
            let t = &self.threads[thread];
            if !t.alive || t.home != home {
                continue;
            }
            let (task, machine) = (t.task, t.machine);
            self.requests.drop_in_hand(&mut self.threads, thread, now);
            self.requests.mail.leave(thread);
            if machine == HOST {
                ctx.kill(task);
            } else {
                self.threads[thread].alive = false;
            }
        }
        if self.homes.is_inside(home) {
            ctx.stop_vm(home);
            self.agents.stop(home);
        }
        // Those who share locks and the like with others do not stop, says the placement.
        if self.homes.meets_alone(home) {
            self.sync.clear(home);
        }
        let (devices, board) = self.plugged(ctx);
        devices.stop_vm(home, board);
        self.requests.clear(home, now);
    }
}
