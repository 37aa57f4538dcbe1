// SPDX-License-Identifier: GPL-2.0-only
//! A workload for hosts with guests: tasks that follow lists of acts, with spin locks and barriers between them.
use crate::shipped;
use berth_policy::needs::Needs;
use berth_policy::policy::Policy;
use berth_scenario::model::{Class, Hz, PleYield};
use berth_sim::guest::GuestSpec;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_guest_policy, load_policy, settle};
use berth_sim::scx::identity::VmSpec;
use berth_sim::trace::SharedSink;
use berth_sim::workload::api::{
    Action, CpuId, Ctx, MachineId, Nanos, Role, TaskId, TaskSpec, VmId, Who, Workload,
};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    Compute(Nanos),
    Busy,
    /// Sleep this long.
    Sleep(Nanos),
    /// Sleep until the next multiple of this.
    Until(Nanos),
    /// Take, and give back, the spin lock of this number.
    Lock(usize),
    Unlock(usize),
    /// Wait (asleep) until this many tasks of the VM are here.
    Barrier(u32),
    /// Write down the present instant.
    Mark,
}

#[derive(Clone, Debug)]
pub struct Part {
    /// VM it belongs to; none: a task of the host.
    pub vm: Option<VmId>,
    /// CPUs of its machine it may use; empty = all.
    pub cpus: Vec<CpuId>,
    pub nice: i32,
    pub acts: Vec<Act>,
}

impl Part {
    pub fn new(vm: Option<VmId>, acts: &[Act]) -> Part {
        Part {
            vm,
            cpus: Vec::new(),
            nice: 0,
            acts: acts.to_vec(),
        }
    }
    pub fn on(mut self, cpus: &[CpuId]) -> Part {
        self.cpus = cpus.to_vec();
        self
    }
    pub fn nice(mut self, nice: i32) -> Part {
        self.nice = nice;
        self
    }
}

#[derive(Clone, Debug, Default)]
struct Actor {
    task: TaskId,
    machine: MachineId,
    at: usize,
    marks: Vec<Nanos>,
}

#[derive(Clone, Debug, Default)]
struct SpinLock {
    held: bool,
    waiting: Vec<u32>,
}

#[derive(Default)]
pub struct Play {
    pub parts: Vec<Part>,
    actors: Vec<Actor>,
    locks: Vec<SpinLock>,
    /// By VM: those who wait at its barrier.
    barriers: BTreeMap<VmId, Vec<u32>>,
    /// When a barrier opened.
    pub opened: Vec<Nanos>,
}

const BOOT: u64 = 1 << 32;

impl Play {
    pub fn new(parts: Vec<Part>) -> Play {
        Play {
            actors: vec![Actor::default(); parts.len()],
            locks: vec![SpinLock::default(); 8],
            barriers: BTreeMap::new(),
            opened: Vec::new(),
            parts,
        }
    }

    pub fn task(&self, part: usize) -> TaskId {
        self.actors[part].task
    }

    pub fn marks(&self, part: usize) -> &[Nanos] {
        &self.actors[part].marks
    }

    fn start_all(&mut self, vm: Option<VmId>, ctx: &mut Ctx) {
        for i in 0..self.parts.len() {
            let part = &self.parts[i];
            if part.vm != vm {
                continue;
            }
            let affinity = ctx.mask(&part.cpus);
            self.actors[i].machine = ctx.machine();
            ctx.spawn(&TaskSpec {
                token: i as u32,
                name: format!("part{i}"),
                nice: self.parts[i].nice,
                affinity,
                ..TaskSpec::default()
            });
        }
    }
}

impl Workload for Play {
    fn start(&mut self, ctx: &mut Ctx) {
        self.start_all(None, ctx);
        let mut vms: Vec<VmId> = self.parts.iter().filter_map(|p| p.vm).collect();
        vms.sort_unstable();
        vms.dedup();
        for vm in vms {
            let machine = ctx.guest(vm).expect("every VM has a guest");
            ctx.start_vm(vm);
            ctx.at_in(machine, 0, 0, BOOT + u64::from(vm));
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        self.actors[token as usize].task = task;
    }
    fn died(&mut self, _: u32, _: TaskId) {}

    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        let i = who.token as usize;
        assert_eq!(who.machine, self.actors[i].machine);
        loop {
            let a = &mut self.actors[i];
            let part = &self.parts[i];
            if a.at == part.acts.len() {
                a.at = 0;
            }
            let act = part.acts[a.at];
            a.at += 1;
            match act {
                Act::Compute(ns) => return Action::Compute { ns },
                Act::Busy => return Action::ComputeForever,
                Act::Sleep(ns) => return Action::SleepUntil { at: now + ns },
                Act::Until(period) => {
                    let at = (now / period + 1) * period;
                    return Action::SleepUntil { at };
                }
                Act::Lock(l) => {
                    let lock = &mut self.locks[l];
                    if lock.held {
                        lock.waiting.push(who.token);
                        return Action::Spin;
                    }
                    lock.held = true;
                }
                Act::Unlock(l) => {
                    let lock = &mut self.locks[l];
                    if lock.waiting.is_empty() {
                        lock.held = false;
                    } else {
                        // Passed on, as by a ticket lock.
                        let next = lock.waiting.remove(0);
                        assert!(ctx.release(self.actors[next as usize].task));
                    }
                }
                Act::Barrier(n) => {
                    let vm = part.vm.unwrap_or(0);
                    let here = self.barriers.entry(vm).or_default();
                    if here.len() as u32 + 1 < n {
                        here.push(who.token);
                        return Action::Block;
                    }
                    self.opened.push(now);
                    for other in std::mem::take(here) {
                        let a = &self.actors[other as usize];
                        assert!(ctx.wake_in(a.machine, a.task));
                    }
                }
                Act::Mark => a.marks.push(now),
            }
        }
    }
    fn event(&mut self, token: u64, _: Nanos, ctx: &mut Ctx) {
        self.start_all(Some((token - BOOT) as VmId), ctx);
    }
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

/// A VM of the stage.
#[derive(Clone, Debug)]
pub struct Room {
    pub vcpus: u32,
    pub weight: u32,
    pub cap_milli: Option<u64>,
    /// Host CPUs of each vCPU; empty = all.
    pub pins: Vec<Vec<CpuId>>,
    /// Nice of its threads.
    pub nice: i32,
}

impl Room {
    pub fn new(vcpus: u32) -> Room {
        Room {
            vcpus,
            weight: 100,
            cap_milli: None,
            pins: Vec::new(),
            nice: 0,
        }
    }
}

/// A host with guests.
#[derive(Clone, Debug)]
pub struct Stage {
    pub cpus: u32,
    pub hz: Hz,
    pub guest_hz: Hz,
    pub host: &'static str,
    pub guest: &'static str,
    pub host_params: Vec<(&'static str, String)>,
    pub guest_params: Vec<(&'static str, String)>,
    pub rooms: Vec<Room>,
    pub entry_ns: Nanos,
    pub exit_ns: Nanos,
    pub ple_window_ns: Nanos,
    pub ple_yield: PleYield,
    pub halt_poll_ns: Nanos,
    pub steal_accounting: bool,
    /// Machines have of their tasks only what their policies reach.
    pub sized: bool,
}

impl Stage {
    pub fn new(cpus: u32, rooms: Vec<Room>) -> Stage {
        Stage {
            cpus,
            hz: Hz::Exact,
            guest_hz: Hz::Exact,
            host: "vtime",
            guest: "vtime",
            host_params: Vec::new(),
            guest_params: Vec::new(),
            rooms,
            entry_ns: 0,
            exit_ns: 0,
            ple_window_ns: 0,
            ple_yield: PleYield::Kvm,
            halt_poll_ns: 0,
            steal_accounting: true,
            sized: false,
        }
    }

    /// What a machine under this policy has of its tasks.
    fn needs(&self, policy: &Policy) -> Needs {
        if self.sized {
            policy.needs()
        } else {
            Needs::ALL
        }
    }

    /// The machine, started.
    pub fn open(&self, parts: Vec<Part>) -> Simulation<Play> {
        let host = shipped::policy(self.host);
        self.open_under(&host, parts)
    }

    /// The same, with this policy on the host.
    pub fn open_under(&self, host: &Policy, parts: Vec<Part>) -> Simulation<Play> {
        let mut m = self.made(host, parts);
        m.start();
        m
    }

    /// The same, with somebody who is told what happens.
    pub fn open_watched(&self, parts: Vec<Part>, sink: &SharedSink) -> Simulation<Play> {
        let mut m = self.made(&shipped::policy(self.host), parts);
        m.tell(sink);
        m.start();
        m
    }

    fn made(&self, host: &Policy, parts: Vec<Part>) -> Simulation<Play> {
        let policy = shipped::policy(self.guest);
        let spec = MachineSpec {
            hz: self.hz,
            ple_yield: self.ple_yield,
            needs: self.needs(host),
            ..MachineSpec::new(Shape::flat(self.cpus))
        };
        let vms: Vec<VmSpec> = self
            .rooms
            .iter()
            .enumerate()
            .map(|(i, r)| VmSpec {
                name: format!("vm{i}"),
                group: i as u32,
                class: Class::Batch,
                weight: r.weight,
                cap_milli: r.cap_milli,
                vcpus: r.vcpus,
            })
            .collect();
        let mut m = Simulation::new(&spec, &vms, Play::new(parts));
        for (i, r) in self.rooms.iter().enumerate() {
            let thread = |v: u32| TaskSpec {
                name: format!("vm{i}/{v}"),
                vm: Some(i as u32),
                role: Role::Vcpu(v),
                nice: r.nice,
                affinity: m.kernel().mask(r.pins.get(v as usize).map_or(&[], |p| p)),
                ..TaskSpec::default()
            };
            let machine = MachineSpec {
                hz: self.guest_hz,
                steal_accounting: self.steal_accounting,
                needs: self.needs(&policy),
                ..MachineSpec::new(Shape::flat(r.vcpus))
            };
            let mut spec = GuestSpec::new(machine, (0..r.vcpus).map(thread).collect());
            spec.entry_ns = self.entry_ns;
            spec.exit_ns = self.exit_ns;
            spec.ple_window_ns = self.ple_window_ns;
            spec.halt_poll_ns = self.halt_poll_ns;
            m.add_guest(i as u32, &vms[i].name, &spec);
        }
        let params = |list: &[(&'static str, String)]| {
            let pairs = list.iter().map(|(k, v)| (k.to_string(), v.clone()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let opts = Options::default();
        let of_host = params(&self.host_params);
        load_policy(&mut m, host, &of_host, &vms, &opts).expect("the host's policy fits");
        let guest = params(&self.guest_params);
        for i in 0..self.rooms.len() as u32 {
            load_guest_policy(&mut m, i, &policy, &guest, &opts).expect("the guest's policy fits");
        }
        m
    }
}

/// CPU time a part has had so far, ns.
pub fn had(m: &Simulation<Play>, part: usize) -> Nanos {
    let k = match m.workload.parts[part].vm {
        None => m.kernel(),
        Some(vm) => m.guest(vm).expect("a guest"),
    };
    settle(k);
    k.tasks.hot[m.workload.task(part) as usize].runtime
}
