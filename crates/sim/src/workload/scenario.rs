// SPDX-License-Identifier: GPL-2.0-only
//! The work of a scenario: threads, clients, VMs that start and stop.
use super::api::{Action, CpuId, Ctx, Nanos, Role, TaskId, Who, Workload};
use super::clients::Clients;
use super::completion::Completion;
use super::flow::{Flow, Responses};
use super::mail::{Asker, Mail};
use super::net::Net;
use super::program::Programs;
use super::requests::*;
use super::sender::{SENDER, Sender};
use super::sync::Sync;
use super::threads::{Host, Served, Thread};
use crate::machine::MaskId;
use berth_results::detail::Distribution;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::Scenario;
use berth_scenario::placement::{self, HostThread, PlacementError, Work};
use std::collections::BTreeMap;

/// The work of one run of a scenario.
pub struct ScenarioWorkload {
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
    pub(super) programs: Programs,
    pub(super) masks: Vec<MaskId>,
    pub(super) threads: Vec<Thread>,
    /// Slots of threads that have exited.
    pub(super) free: Vec<u32>,
    /// The threads of the start, then one per kind of forked thread.
    pub(super) hosts: Vec<Host>,
    /// Threads of the start.
    pub(super) initial: u32,
    /// Forked kinds: (thread of the start, program) to position in `hosts`.
    pub(super) children: BTreeMap<(u32, u32), u32>,
    pub(super) serves: Vec<Served>,
    pub(super) mail: Mail,
    pub(super) clients: Clients,
    /// The clients are a thread.
    pub(super) sender: Option<Sender>,
    /// By stream: home and queue.
    pub(super) targets: Vec<(u32, u16)>,
    pub(super) nr_vms: u32,
    /// VM ordinal to group.
    pub(super) groups: Vec<u32>,
    /// By home and queue: where a message sent from there goes.
    pub(super) routes: Vec<Option<u32>>,
    /// CPU of the thread of each home that last took a message.
    pub(super) irq_cpu: Vec<CpuId>,
    pub(super) flow: Flow,
    pub(super) by_group: Vec<Responses>,
    pub(super) by_vm: Vec<Option<Responses>>,
    pub(super) measure_from: Nanos,
    /// Number of threads so far: the ordinal of the next forked one's random stream.
    pub(super) ordinals: u32,
    /// Response times in the order of replies, if asked for.
    pub(super) record: Option<Vec<Nanos>>,
    /// `None`: requests are interrupts, nothing lies between clients and tasks.
    pub(super) net: Option<Net>,
    pub(super) sync: Sync,
    /// By VM group, since the warm-up.
    pub(super) traffic: Vec<Traffic>,
    /// By VM: its tasks are tasks of the machine inside it.
    pub(super) inside: Vec<bool>,
    /// By VM with a guest, once it has started: the masks of the programs there.
    pub(super) guest_masks: Vec<Vec<MaskId>>,
    /// CPUs of the programs' masks.
    pub(super) mask_cpus: Vec<Vec<CpuId>>,
    pub(super) host_cpus: u32,
    pub(super) completion: Completion,
}

/// What clients and a VM group have exchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Requests that were due.
    pub offered: u64,
    /// Requests answered, and the bytes they carried.
    pub answered: u64,
    pub bytes: u64,
    /// Packets that the NIC received for it or sent from it.
    pub packets: u64,
}

impl ScenarioWorkload {
    /// Errors: what cannot be folded onto vCPU threads.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<ScenarioWorkload, PlacementError> {
        ScenarioWorkload::with_guests(scenario, seed, &|_| false)
    }

    /// As [`ScenarioWorkload::new`]; `guest` tells which VM groups have the guest level: the tasks of their VMs are
    /// tasks of the machine inside, which the [`crate::Machine`] must have been given.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn with_guests(
        scenario: &Scenario,
        seed: u64,
        guest: &dyn Fn(usize) -> bool,
    ) -> Result<ScenarioWorkload, PlacementError> {
        let threads = placement::threads_where(scenario, guest)?;
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
        let nr_cpus = scenario.host.nr_cpus();
        let has_work = |vm: u32, vcpu: u32| {
            let of = |t: &HostThread| t.vm.as_ref().is_some_and(|v| v.ordinal == vm);
            threads.iter().any(|t| of(t) && t.role == Role::Vcpu(vcpu))
        };
        let (net, back_threads) = match Net::new(scenario, nr_cpus, has_work)? {
            Some((net, threads)) => (Some(net), threads),
            None => (None, Vec::new()),
        };
        let sync = Sync::new(homes as u32, programs.names.counts(), |home, pool| {
            Rng::new(seed, Stream::Pool { home, pool })
        });
        let mut workload = ScenarioWorkload {
            net,
            sync,
            traffic: vec![Traffic::default(); scenario.vms.len()],
            inside: vms.iter().map(|vm| guest(vm.group)).collect(),
            guest_masks: vec![Vec::new(); vms.len()],
            mask_cpus: Vec::new(),
            host_cpus: nr_cpus.max(1),
            completion: Completion::new(homes),
            seed,
            mail: Mail::new(homes, programs.queues.len()),
            programs,
            masks: Vec::new(),
            threads: Vec::new(),
            free: Vec::new(),
            hosts: Vec::new(),
            initial: (threads.len() + back_threads.len()) as u32,
            children: BTreeMap::new(),
            serves: Vec::new(),
            clients,
            sender: None,
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
        for (hand, back) in (0..).zip(back_threads) {
            workload.describe_back_end(&back, hand);
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

    /// Number of host threads at the start, vCPUs of guests included.
    pub fn host_threads(&self) -> usize {
        let own = (0..self.initial).filter(|h| !self.lives_inside(*h)).count();
        let inside = self.inside.iter().zip(&self.groups).filter(|(i, _)| **i);
        let vcpus = inside.map(|(_, g)| self.scenario.vms[*g as usize].vcpus as usize);
        own + vcpus.sum::<usize>()
    }

    /// Number of tasks inside a VM at the start.
    pub fn guest_tasks(&self, vm: u32) -> usize {
        let of = |h: &u32| self.home_of(*h) == vm && self.lives_inside(*h);
        (0..self.initial).filter(of).count()
    }

    /// Number of a task's program.
    pub(super) fn program(&self, task: &str) -> u32 {
        let all = &self.programs.all;
        // Every name is known, says the placement.
        all.binary_search_by(|p| p.task.as_str().cmp(task))
            .unwrap_or(0) as u32
    }

    /// Adds the description of a thread that is, or descends from, the thread `root` of the start.
    pub(super) fn describe(&mut self, spec: HostThread, root: u32) -> u32 {
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
        let mut shared = (Vec::new(), Vec::new());
        let served = self.serves[first as usize..].iter().map(|s| s.program);
        for p in served.chain([program]) {
            let p = &self.programs.all[p as usize];
            shared.0.extend(
                p.barriers
                    .iter()
                    .filter(|b| !shared.0.contains(*b))
                    .copied()
                    .collect::<Vec<_>>(),
            );
            shared.1.extend(
                p.pools
                    .iter()
                    .filter(|b| !shared.1.contains(*b))
                    .copied()
                    .collect::<Vec<_>>(),
            );
        }
        self.hosts.push(Host {
            spec,
            program,
            serves,
            root,
            back: None,
            barriers: shared.0,
            pools: shared.1,
        });
        self.hosts.len() as u32 - 1
    }
}

impl Workload for ScenarioWorkload {
    fn start(&mut self, ctx: &mut Ctx) {
        let masks = std::mem::take(&mut self.programs.masks);
        self.masks = masks.iter().map(|cpus| ctx.mask(cpus)).collect();
        self.mask_cpus = masks;
        // Ordinals of random streams are positions in the list of threads, whenever their VM starts.
        let mut seen = vec![false; self.nr_vms as usize + 1];
        for host in 0..self.initial {
            let spec = &self.hosts[host as usize].spec;
            let (start, stop) = (spec.start_ns, spec.stop_ns);
            let home = self.home_of(host);
            let first_of_home = !seen[home as usize];
            if start == 0 {
                if first_of_home && self.is_inside(home) {
                    self.start_guest(home, ctx);
                }
                if !self.lives_inside(host) {
                    self.start_thread(host, ctx);
                }
            } else if first_of_home {
                ctx.at(start, token(KIND_VM_START, home));
            }
            if let (Some(stop), true) = (stop, first_of_home) {
                ctx.at(stop, token(KIND_VM_STOP, home));
            }
            seen[home as usize] = true;
        }
        let thread = self.start_sender(ctx);
        for asker in 0..self.clients.askers.len() as u32 {
            let Asker { stream, user } = self.clients.askers[asker as usize];
            match self.clients.streams[stream as usize].first(user) {
                Some(at) if thread => self.ask_at(asker, at),
                Some(at) => ctx.at(at, token(KIND_REQUEST, asker)),
                None => (),
            }
        }
    }

    fn born(&mut self, thread: u32, task: TaskId) {
        if let (SENDER, Some(sender)) = (thread, &mut self.sender) {
            sender.task = task;
            return;
        }
        self.threads[thread as usize].task = task;
    }

    fn died(&mut self, thread: u32, _task: TaskId) {
        if thread == SENDER {
            self.sender = None;
            return;
        }
        self.mail.leave(thread);
        self.threads[thread as usize].alive = false;
        self.free.push(thread);
    }

    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        if who.token == SENDER {
            return self.send_due(now, ctx);
        }
        self.step(who, now, ctx)
    }

    fn event(&mut self, token: u64, now: Nanos, ctx: &mut Ctx) {
        let number = token as u32;
        match token >> KIND_SHIFT {
            KIND_REQUEST => self.request(number, false, now, ctx),
            KIND_REQUEST_HERE => self.request(number, true, now, ctx),
            KIND_ARRIVED => self.arrived(now, ctx),
            KIND_NIC_IRQ => self.nic_irq(number, false, now, ctx),
            KIND_NIC_IRQ_HERE => self.nic_irq(number, true, now, ctx),
            KIND_POLL => self.poll(number, now, ctx),
            KIND_ANSWERED => self.answered(now, ctx),
            KIND_VM_START => self.start_vm(number, ctx),
            KIND_BOOT => self.boot(number, ctx),
            _ => self.stop_vm(number, now, ctx),
        }
    }

    fn measure_from(&mut self, now: Nanos) {
        self.measure_from = now;
        self.traffic.fill(Traffic::default());
    }

    fn metrics(&self, now: Nanos, out: &mut BTreeMap<String, f64>) {
        let asked = |vm: &str| self.scenario.clients.iter().any(|c| c.to == vm);
        let seconds = now.saturating_sub(self.measure_from).max(1) as f64 / 1e9;
        let vms = self.scenario.vms.iter().zip(&self.by_group);
        for ((vm, responses), traffic) in vms.zip(&self.traffic) {
            if !asked(&vm.name) {
                continue;
            }
            responses.metrics(&vm.name, out);
            let offered = format!("{}.response.offered", vm.name);
            out.insert(offered, traffic.offered as f64);
            let mut rate = |what: &str, n: u64| {
                out.insert(format!("{}.{what}", vm.name), n as f64 / seconds);
            };
            rate("requests", traffic.answered);
            rate("throughput", traffic.bytes * 8);
            if self.net.is_some() {
                rate("packets", traffic.packets);
            }
        }
        let vms = placement::instances(&self.scenario);
        let groups: Vec<String> = self.scenario.vms.iter().map(|vm| vm.name.clone()).collect();
        self.completion.metrics(&vms, &groups, out);
        for vm in vms {
            if let Some(responses) = &self.by_vm[vm.ordinal as usize] {
                responses.metrics(&vm.name, out);
            }
        }
    }

    fn times(&self, out: &mut BTreeMap<String, Distribution>) {
        for (vm, responses) in self.scenario.vms.iter().zip(&self.by_group) {
            responses.times(&vm.name, out);
        }
    }

    fn violated(&self, now: Nanos) -> Option<String> {
        let in_hand = self.threads.iter().filter_map(|t| t.in_hand.as_ref());
        let outside = self
            .net
            .iter()
            .flat_map(|n| n.parcels().map(|p| &p.message));
        let requests = in_hand
            .chain(self.mail.messages())
            .chain(outside)
            .filter(|m| m.from.is_some());
        let whole = self.flow.violated(now, requests.map(|m| m.sent));
        whole.or_else(|| self.net.as_ref()?.violated(now))
    }
}
