// SPDX-License-Identifier: GPL-2.0-only
//! The work of a scenario: threads, clients, VMs that start and stop.
use super::api::{Action, CpuId, Ctx, Nanos, Role, TaskId, TaskSpec, Who, Workload};
use super::clients::Clients;
use super::flow::{Flow, Responses};
use super::mail::{Asker, Mail, Message};
use super::program::{Op, Programs};
use crate::machine::MaskId;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{Class, Scenario};
use berth_scenario::placement::{self, HostThread, PlacementError, Work};
use std::collections::BTreeMap;

/// A pool thread between two messages has this as its next step.
const IDLE: u32 = u32::MAX;

/// One thread: what [`Workload::next`] touches.
#[derive(Clone, Debug)]
struct Thread {
    rng: Rng,
    /// Times its steps began anew: position in lists of values.
    round: u64,
    task: TaskId,
    program: u32,
    /// Next step; past the end, the thread begins anew, a pool thread with the next message.
    step: u32,
    /// VM ordinal, or the number of VMs for the host.
    home: u32,
    phases: Box<[Phase]>,
    /// First and number of the queues it serves, in [`ScenarioWorkload::serves`]; 0 = not a pool.
    serves: (u32, u16),
    alive: bool,
    in_hand: Option<Message>,
    /// CPU it was last seen on: where interrupts for it arrive.
    cpu: CpuId,
    /// Position in [`ScenarioWorkload::hosts`].
    host: u32,
}

/// Phase of the timer grid of one period.
#[derive(Clone, Copy, Debug)]
struct Phase {
    period: Nanos,
    at: Nanos,
}

/// A queue that a pool thread serves, and the program that does it.
#[derive(Clone, Copy, Debug)]
struct Served {
    queue: u16,
    program: u32,
}

/// What a thread was started as; not touched while it runs.
#[derive(Clone, Debug)]
struct Host {
    spec: HostThread,
    program: u32,
    serves: (u32, u16),
    /// The thread of the start it descends from.
    root: u32,
}

/// What an event token says; the number is a thread group, VM or asker.
const KIND_SHIFT: u32 = 56;
const KIND_REQUEST: u64 = 0;
/// A request that already moved to the CPU of the thread it is for.
const KIND_REQUEST_HERE: u64 = 1;
const KIND_VM_START: u64 = 2;
const KIND_VM_STOP: u64 = 3;

fn token(kind: u64, number: u32) -> u64 {
    kind << KIND_SHIFT | u64::from(number)
}

/// The work of one run of a scenario.
pub struct ScenarioWorkload {
    scenario: Scenario,
    seed: u64,
    programs: Programs,
    masks: Vec<MaskId>,
    threads: Vec<Thread>,
    /// Slots of threads that have exited.
    free: Vec<u32>,
    /// The threads of the start, then one per kind of forked thread.
    hosts: Vec<Host>,
    /// Threads of the start.
    initial: u32,
    /// Forked kinds: (thread of the start, program) to position in `hosts`.
    children: BTreeMap<(u32, u32), u32>,
    serves: Vec<Served>,
    mail: Mail,
    clients: Clients,
    /// By stream: home and queue.
    targets: Vec<(u32, u16)>,
    nr_vms: u32,
    /// VM ordinal to group.
    groups: Vec<u32>,
    /// By home and queue: where a message sent from there goes.
    routes: Vec<Option<u32>>,
    /// CPU of the thread of each home that last took a message.
    irq_cpu: Vec<CpuId>,
    flow: Flow,
    by_group: Vec<Responses>,
    by_vm: Vec<Option<Responses>>,
    measure_from: Nanos,
    /// Number of threads so far: the ordinal of the next forked one's random stream.
    ordinals: u32,
    /// Response times in the order of replies, if asked for.
    record: Option<Vec<Nanos>>,
}

impl ScenarioWorkload {
    /// Errors: what cannot be folded onto vCPU threads.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<ScenarioWorkload, PlacementError> {
        let threads = placement::threads(scenario)?;
        let programs = Programs::new(scenario)?;
        let vms = placement::instances(scenario);
        let nr_vms = vms.len() as u32;
        let homes = vms.len() + 1;
        let clients = Clients::new(scenario, seed);
        let targets = clients
            .streams
            .iter()
            // Every client is heard, says the placement.
            .map(|s| (s.vm, programs.queue(&s.queue).unwrap_or(0)))
            .collect();
        let mut routes = Vec::new();
        for from in vms.iter().map(Some).chain([None]) {
            for queue in &programs.queues {
                let home = placement::receiver(scenario, from, queue);
                routes.push(home.map(|vm| vm.unwrap_or(nr_vms)));
            }
        }
        let mut workload = ScenarioWorkload {
            seed,
            mail: Mail::new(homes, programs.queues.len()),
            programs,
            masks: Vec::new(),
            threads: Vec::new(),
            free: Vec::new(),
            hosts: Vec::new(),
            initial: threads.len() as u32,
            children: BTreeMap::new(),
            serves: Vec::new(),
            clients,
            targets,
            nr_vms,
            groups: vms.iter().map(|vm| vm.group as u32).collect(),
            routes,
            irq_cpu: vec![0; homes],
            flow: Flow::default(),
            by_group: vec![Responses::new(3); scenario.vms.len()],
            by_vm: vec![None; vms.len()],
            measure_from: 0,
            ordinals: threads.len() as u32,
            record: None,
            scenario: scenario.clone(),
        };
        for (root, spec) in (0..).zip(threads) {
            workload.describe(spec, root);
        }
        Ok(workload)
    }

    /// Keeps all response times, in the order of the replies (warm-up included).
    pub fn record_responses(&mut self) {
        self.record = Some(Vec::new());
    }

    /// Response times kept, in ns.
    pub fn responses(&self) -> &[Nanos] {
        self.record.as_deref().unwrap_or(&[])
    }

    /// Number of a task's program.
    fn program(&self, task: &str) -> u32 {
        let all = &self.programs.all;
        // Every name is known, says the placement.
        all.binary_search_by(|p| p.task.as_str().cmp(task))
            .unwrap_or(0) as u32
    }

    /// Adds the description of a thread that is, or descends from, the thread `root` of the start.
    fn describe(&mut self, spec: HostThread, root: u32) -> u32 {
        let first = self.serves.len() as u32;
        let program = match &spec.work {
            Work::Task(name) => self.program(name),
            Work::Pools(names) => {
                for name in names {
                    let program = self.program(name);
                    if let Some(queue) = self.programs.all[program as usize].queue {
                        self.serves.push(Served { queue, program });
                    }
                }
                self.program(&names[0])
            }
        };
        let serves = (first, (self.serves.len() as u32 - first) as u16);
        self.hosts.push(Host {
            spec,
            program,
            serves,
            root,
        });
        self.hosts.len() as u32 - 1
    }

    /// A slot for one more thread as described by `hosts[host]`, and what the machine wants to know of it.
    /// `ordinal`: number of its random stream.
    fn prepare(&mut self, host: u32, ordinal: u32, ctx: &mut Ctx) -> TaskSpec {
        let Host {
            spec,
            program,
            serves,
            ..
        } = &self.hosts[host as usize];
        let mut phase_rng = Rng::new(self.seed, Stream::Phase(ordinal));
        // One phase per period, drawn in the order of the steps; pools one after the other.
        let served = &self.serves[serves.0 as usize..][..usize::from(serves.1)];
        let mut phases: Vec<Phase> = Vec::new();
        let own = (served.is_empty()).then_some(*program);
        for program in served.iter().map(|s| s.program).chain(own) {
            for &period in &self.programs.all[program as usize].periods {
                if !phases.iter().any(|p| p.period == period) {
                    let at = phase_rng.below(period);
                    phases.push(Phase { period, at });
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
            in_hand: None,
            cpu: ctx.cpu(),
            host,
        };
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
        let vm = spec.vm.as_ref().map(|vm| &self.scenario.vms[vm.group]);
        TaskSpec {
            token: slot,
            name: spec.name.clone(),
            vm: spec.vm.as_ref().map(|vm| vm.ordinal),
            vcpu: spec.vcpu.unwrap_or(0),
            role: match spec.role {
                placement::Role::Vcpu => Role::Vcpu,
                placement::Role::Other => Role::Other,
            },
            io: vm.is_some_and(|vm| {
                vm.class == Class::Mixed && spec.vcpu.is_some_and(|v| v < vm.reserved_vcpus)
            }),
            nice: spec.nice,
            affinity: ctx.mask(&spec.affinity),
            ..TaskSpec::default()
        }
    }

    /// One more thread of a task in the VM of `parent`.
    fn fork(&mut self, parent: u32, program: u32, ctx: &mut Ctx) -> Option<TaskSpec> {
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

    /// Puts a message into a queue and wakes a thread for it.
    fn send(&mut self, home: u32, queue: u16, message: Message, ctx: &mut Ctx) {
        self.mail.put(home, queue, message);
        if let Some(thread) = self.waiter(home, queue) {
            self.mail.leave(thread);
            ctx.wake(self.threads[thread as usize].task);
        }
    }

    fn waiter(&self, home: u32, queue: u16) -> Option<u32> {
        let serves = |thread: u32| {
            let (first, n) = self.threads[thread as usize].serves;
            let serves = &self.serves[first as usize..][..usize::from(n)];
            serves.iter().any(|s| s.queue == queue)
        };
        self.mail.longest_waiting(home, serves)
    }

    fn request(&mut self, asker: u32, moved: bool, now: Nanos, ctx: &mut Ctx) {
        let from = self.clients.askers[asker as usize];
        let (home, queue) = self.targets[from.stream as usize];
        if !moved {
            // Where the interrupt goes: the CPU of the thread it wakes.
            let waiter = self.waiter(home, queue);
            let cpu = waiter.map_or(ctx.cpu(), |t| self.threads[t as usize].cpu);
            if cpu != ctx.cpu() {
                ctx.at_on(cpu, now, token(KIND_REQUEST_HERE, asker));
                return;
            }
        }
        self.flow.enter(now);
        let message = Message {
            sent: now,
            from: Some(from),
        };
        self.send(home, queue, message, ctx);
        let stream = &mut self.clients.streams[from.stream as usize];
        if stream.is_open()
            && let Some(at) = stream.next(from.user, now)
        {
            let cpu = self.irq_cpu[home as usize];
            ctx.at_on(cpu, at, token(KIND_REQUEST, asker));
        }
    }

    /// The request in hand is over; `answered` or given up.
    fn finish(&mut self, thread: u32, now: Nanos, answered: bool, ctx: Option<&mut Ctx>) {
        let t = &mut self.threads[thread as usize];
        let home = t.home;
        let Some(message) = t.in_hand.take() else {
            return;
        };
        let Some(from) = message.from else { return };
        self.flow.leave(message.sent, now, answered);
        if !answered {
            return;
        }
        let response = now - message.sent;
        if let Some(record) = &mut self.record {
            record.push(response);
        }
        if now >= self.measure_from && home < self.nr_vms {
            let group = self.groups[home as usize] as usize;
            self.by_group[group].record(response);
            if self.scenario.vms[group].count > 1 {
                let vm = &mut self.by_vm[home as usize];
                vm.get_or_insert_with(|| Responses::new(2)).record(response);
            }
        }
        let stream = &mut self.clients.streams[from.stream as usize];
        if let Some(ctx) = ctx
            && !stream.is_open()
            && let Some(at) = stream.next(from.user, now)
        {
            let asker = stream.asker(from.user);
            ctx.at(at, token(KIND_REQUEST, asker));
        }
    }

    /// Gives a pool thread the oldest message in its queues; if there is none, it waits from now on.
    fn take_message(&mut self, who: Who) -> bool {
        let t = &mut self.threads[who.token as usize];
        let (first, n) = t.serves;
        let serves = &self.serves[first as usize..][..usize::from(n)];
        let oldest = self.mail.take(t.home, serves.iter().map(|s| s.queue));
        let Some((queue, message)) = oldest else {
            self.mail.wait(t.home, who.token);
            return false;
        };
        self.irq_cpu[t.home as usize] = who.cpu;
        t.in_hand = Some(message);
        t.step = 0;
        if let Some(served) = serves.iter().find(|s| s.queue == queue) {
            t.program = served.program;
        }
        true
    }

    fn home_of(&self, host: u32) -> u32 {
        let vm = self.hosts[host as usize].spec.vm.as_ref();
        vm.map_or(self.nr_vms, |vm| vm.ordinal)
    }

    fn start_thread(&mut self, host: u32, ctx: &mut Ctx) {
        let spec = self.prepare(host, host, ctx);
        ctx.spawn(&spec);
    }

    fn start_vm(&mut self, home: u32, ctx: &mut Ctx) {
        for host in 0..self.initial {
            if self.home_of(host) == home {
                self.start_thread(host, ctx);
            }
        }
    }

    fn stop_vm(&mut self, home: u32, now: Nanos, ctx: &mut Ctx) {
        for thread in 0..self.threads.len() as u32 {
            let t = &self.threads[thread as usize];
            if t.alive && t.home == home {
                let task = t.task;
                self.finish(thread, now, false, None);
                self.mail.leave(thread);
                ctx.kill(task);
            }
        }
        let all = self.programs.queues.len() as u16;
        while let Some((_, message)) = self.mail.take(home, 0..all) {
            if message.from.is_some() {
                self.flow.leave(message.sent, now, false);
            }
        }
    }
}

impl Workload for ScenarioWorkload {
    fn start(&mut self, ctx: &mut Ctx) {
        let masks = std::mem::take(&mut self.programs.masks);
        self.masks = masks.iter().map(|cpus| ctx.mask(cpus)).collect();
        // Ordinals of random streams are positions in the list of threads, whenever their VM starts.
        for host in 0..self.initial {
            let spec = &self.hosts[host as usize].spec;
            let (start, stop) = (spec.start_ns, spec.stop_ns);
            let home = self.home_of(host);
            let first_of_home = host == 0 || self.home_of(host - 1) != home;
            if start == 0 {
                self.start_thread(host, ctx);
            } else if first_of_home {
                ctx.at(start, token(KIND_VM_START, home));
            }
            if let (Some(stop), true) = (stop, first_of_home) {
                ctx.at(stop, token(KIND_VM_STOP, home));
            }
        }
        for asker in 0..self.clients.askers.len() as u32 {
            let Asker { stream, user } = self.clients.askers[asker as usize];
            if let Some(at) = self.clients.streams[stream as usize].first(user) {
                ctx.at(at, token(KIND_REQUEST, asker));
            }
        }
    }

    fn born(&mut self, thread: u32, task: TaskId) {
        self.threads[thread as usize].task = task;
    }

    fn died(&mut self, thread: u32, _task: TaskId) {
        self.mail.leave(thread);
        self.threads[thread as usize].alive = false;
        self.free.push(thread);
    }

    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        let mut rounds = 0;
        self.threads[who.token as usize].cpu = who.cpu;
        loop {
            let t = &mut self.threads[who.token as usize];
            let program = &self.programs.all[t.program as usize];
            let Some(op) = program.ops.get(t.step as usize) else {
                if t.step != IDLE {
                    t.round += 1;
                    rounds += 1;
                    if rounds > 1 {
                        // Steps that take no time, over and over: let the machine count them.
                        t.step = program.ops.len() as u32;
                        t.round -= 1;
                        return Action::Compute { ns: 0 };
                    }
                }
                if t.serves.1 == 0 {
                    t.step = 0;
                } else {
                    t.step = IDLE;
                    self.finish(who.token, now, false, None);
                    if !self.take_message(who) {
                        return Action::Block;
                    }
                }
                continue;
            };
            t.step += 1;
            match op {
                Op::Compute(d) => {
                    return Action::Compute {
                        ns: d.sample(&mut t.rng, t.round),
                    };
                }
                Op::Busy => return Action::ComputeForever,
                Op::Sleep(d) => {
                    let at = now.saturating_add(d.sample(&mut t.rng, t.round));
                    return Action::SleepUntil { at };
                }
                Op::Timer { period_ns } => {
                    let grid = t.phases.iter().find(|p| p.period == *period_ns);
                    let phase = grid.map_or(0, |p| p.at);
                    let at = match now.checked_sub(phase) {
                        None => phase,
                        Some(since) => phase + (since / period_ns + 1) * period_ns,
                    };
                    return Action::SleepUntil { at };
                }
                Op::Reply => self.finish(who.token, now, true, Some(ctx)),
                Op::Send(queue) => {
                    let (queue, home) = (*queue, t.home as usize);
                    let route = self.routes[home * self.programs.queues.len() + usize::from(queue)];
                    if let Some(to) = route {
                        let message = Message {
                            sent: now,
                            from: None,
                        };
                        self.send(to, queue, message, ctx);
                    }
                }
                Op::Yield => return Action::Yield,
                Op::SetNice(nice) => {
                    let group = self.groups.get(t.home as usize);
                    let vm = group.map_or(0, |g| self.scenario.vms[*g as usize].nice);
                    return Action::SetNice((nice + vm).clamp(-20, 19));
                }
                Op::SetAffinity(mask) => return Action::SetAffinity(self.masks[*mask as usize]),
                Op::Fork(child) => {
                    let (parent, child) = (t.host, *child);
                    if let Some(spec) = self.fork(parent, child, ctx) {
                        return Action::Fork(Box::new(spec));
                    }
                }
                Op::Exit => {
                    self.finish(who.token, now, false, None);
                    return Action::Exit;
                }
            }
        }
    }

    fn event(&mut self, token: u64, now: Nanos, ctx: &mut Ctx) {
        let number = token as u32;
        match token >> KIND_SHIFT {
            KIND_REQUEST => self.request(number, false, now, ctx),
            KIND_REQUEST_HERE => self.request(number, true, now, ctx),
            KIND_VM_START => self.start_vm(number, ctx),
            _ => self.stop_vm(number, now, ctx),
        }
    }

    fn measure_from(&mut self, now: Nanos) {
        self.measure_from = now;
    }

    fn metrics(&self, _now: Nanos, out: &mut BTreeMap<String, f64>) {
        let asked = |vm: &str| self.scenario.clients.iter().any(|c| c.to == vm);
        for (vm, responses) in self.scenario.vms.iter().zip(&self.by_group) {
            if asked(&vm.name) {
                responses.metrics(&vm.name, out);
            }
        }
        for vm in placement::instances(&self.scenario) {
            if let Some(responses) = &self.by_vm[vm.ordinal as usize] {
                responses.metrics(&vm.name, out);
            }
        }
    }

    fn violated(&self, now: Nanos) -> Option<String> {
        let in_hand = self.threads.iter().filter_map(|t| t.in_hand.as_ref());
        let requests = in_hand
            .chain(self.mail.messages())
            .filter(|m| m.from.is_some());
        self.flow.violated(now, requests.map(|m| m.sent))
    }
}
