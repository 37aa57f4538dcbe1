// SPDX-License-Identifier: GPL-2.0-only
//! A second device, in a workload of its own: what the seam says is all that it takes. A card answers after a fixed
//! time, by an interrupt and through one thread of the VMM.
use super::super::api::{Ctx, TaskId, TaskSpec, Who, Workload};
use super::*;
use crate::machine::Shape;
use crate::run::{Options, load_policy};
use crate::{MachineSpec, Simulation};
use std::collections::VecDeque;

const SERVICE_NS: Nanos = 50_000;
const IRQ_NS: Nanos = 3_000;
const HOST_NS: Nanos = 20_000;
const GUEST_NS: Nanos = 5_000;
const GUEST_IRQ_NS: Nanos = 2_000;
const SWITCH_NS: Nanos = 1_500;
const IPI_NS: Nanos = 700;

/// The card serves all at once, its thread one after the other.
#[derive(Default)]
struct Card {
    worker: Vec<Worker>,
    serving: Vec<u32>,
    served: VecDeque<u32>,
    hand: Option<u32>,
    idle: bool,
    stopped: bool,
}

const SERVED: u16 = 0;
const TAKEN: u16 = 1;

/// CPU of the card's interrupts and of its thread.
const VMM_CPU: CpuId = 0;

impl Device for Card {
    /// Who asked.
    type Work = u32;

    fn workers(&self) -> &[Worker] {
        &self.worker
    }

    fn enter(&mut self, asker: u32, bus: &mut impl Bus<u32>) {
        if self.stopped {
            return bus.lost(asker);
        }
        self.serving.push(asker);
        let (at, what) = (bus.now() + SERVICE_NS, SERVED);
        let number = asker;
        bus.at(Place::of_host(VMM_CPU), at, Event { what, number });
    }

    fn event(&mut self, event: Event, bus: &mut impl Bus<u32>) {
        let number = event.number;
        if event.what == SERVED {
            let (at, what) = (bus.interrupt(IRQ_NS), TAKEN);
            return bus.at(bus.here(), at, Event { what, number });
        }
        let before = self.serving.len();
        self.serving.retain(|asker| *asker != number);
        if self.serving.len() < before {
            self.served.push_back(number);
            if std::mem::take(&mut self.idle) {
                bus.wake(0);
            }
        }
    }

    fn serve(&mut self, _worker: u32, bus: &mut impl Bus<u32>) -> Action {
        if let Some(asker) = self.hand.take() {
            bus.done(asker);
        }
        self.hand = self.served.pop_front();
        if self.hand.is_some() {
            return Action::Compute { ns: HOST_NS };
        }
        self.idle = true;
        Action::Block
    }

    fn guest_ns(&mut self, _asker: u32, taker: Taker) -> Nanos {
        if taker.woken { GUEST_IRQ_NS } else { GUEST_NS }
    }

    fn stop_vm(&mut self, _vm: VmId, bus: &mut impl Bus<u32>) {
        self.stopped = true;
        let inside: Vec<u32> = self.inside().collect();
        inside.into_iter().for_each(|asker| bus.lost(asker));
        (self.serving, self.served, self.hand) = Default::default();
    }

    fn inside(&self) -> impl Iterator<Item = u32> {
        let served = self.served.iter().chain(&self.hand);
        self.serving.iter().chain(served).copied()
    }

    fn measure_from(&mut self, _now: Nanos) {}

    fn metrics(&self, _seconds: f64, _out: &mut BTreeMap<String, f64>) {}

    fn violated(&self, _now: Nanos) -> Option<String> {
        None
    }
}

/// Where a task that asks is in its loop: prepare, ask, take the answer.
#[derive(Clone, Copy, Default, PartialEq)]
enum Step {
    #[default]
    Prepare,
    Ask,
    Wait,
}

#[derive(Clone, Copy, Default)]
struct Asker {
    task: TaskId,
    step: Step,
    since: Nanos,
    answered: bool,
}

#[derive(Default)]
struct Askers {
    all: Vec<Asker>,
    vmm: TaskId,
    took: Vec<Nanos>,
    entered: usize,
    done: usize,
    lost: usize,
}

/// Tasks that ask a card, over and over, and the card.
#[derive(Default)]
struct Asking {
    askers: Askers,
    card: Card,
    stop_at: Option<Nanos>,
    /// CPU of the first one that asks.
    first_cpu: CpuId,
}

const VMM: u32 = u32::MAX;
const STOP: u64 = u64::MAX;

struct Wires<'a>(&'a mut Askers, &'a mut Ctx);

impl Bus<u32> for Wires<'_> {
    fn now(&self) -> Nanos {
        self.1.now()
    }
    fn here(&self) -> Place {
        Place::here(self.1)
    }
    fn outside(&self, _vm: VmId) -> Place {
        Place::here(self.1)
    }
    fn place_of(&self, _asker: u32) -> Place {
        Place::here(self.1)
    }
    fn at(&mut self, place: Place, at: Nanos, event: Event) {
        let token = u64::from(event.what) << 32 | u64::from(event.number);
        place.arm(at, token, self.1);
    }
    fn interrupt(&mut self, ns: Nanos) -> Nanos {
        self.1.interrupt(ns)
    }
    fn wake(&mut self, _worker: u32) {
        self.1.wake(self.0.vmm);
    }
    fn done(&mut self, asker: u32) {
        self.0.done += 1;
        self.0.all[asker as usize].answered = true;
        self.1.wake(self.0.all[asker as usize].task);
    }
    fn lost(&mut self, _asker: u32) {
        self.0.lost += 1;
    }
}

impl Workload for Asking {
    fn start(&mut self, ctx: &mut Ctx) {
        let vmm = ctx.mask(&[VMM_CPU]);
        let role = self.card.workers()[0].role;
        let mut threads = vec![(VMM, vmm, role)];
        for asker in 0..self.askers.all.len() as u32 {
            threads.push((
                asker,
                ctx.mask(&[self.first_cpu + asker]),
                Role::Vcpu(asker),
            ));
        }
        for (token, affinity, role) in threads {
            ctx.spawn(&TaskSpec {
                token,
                affinity,
                role,
                ..TaskSpec::default()
            });
        }
        if let Some(at) = self.stop_at {
            ctx.at(at, STOP);
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        match token {
            VMM => self.askers.vmm = task,
            asker => self.askers.all[asker as usize].task = task,
        }
    }
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        let asker = who.token;
        let taker = |woken| Taker {
            thread: asker,
            cpu: who.cpu,
            woken,
        };
        if asker == VMM {
            return self.card.serve(0, &mut Wires(&mut self.askers, ctx));
        }
        let me = &mut self.askers.all[asker as usize];
        match me.step {
            Step::Prepare => {
                if me.answered {
                    self.askers.took.push(now - me.since);
                }
                (me.step, me.since, me.answered) = (Step::Ask, now, false);
                let ns = self.card.guest_ns(asker, taker(false));
                Action::Compute { ns }
            }
            Step::Ask => {
                me.step = Step::Wait;
                self.askers.entered += 1;
                self.card.enter(asker, &mut Wires(&mut self.askers, ctx));
                Action::Block
            }
            Step::Wait if me.answered => {
                me.step = Step::Prepare;
                let ns = self.card.guest_ns(asker, taker(true));
                Action::Compute { ns }
            }
            Step::Wait => Action::Block,
        }
    }
    fn event(&mut self, token: u64, _: Nanos, ctx: &mut Ctx) {
        let mut wires = Wires(&mut self.askers, ctx);
        if token == STOP {
            return self.card.stop_vm(0, &mut wires);
        }
        let (what, number) = ((token >> 32) as u16, token as u32);
        self.card.event(Event { what, number }, &mut wires);
    }
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

/// So many tasks, each on a CPU of its own from `first_cpu` on, ask until `end`.
fn asking(askers: usize, first_cpu: CpuId, stop_at: Option<Nanos>, end: Nanos) -> Asking {
    let (vm, role) = (0, Role::Emulator);
    let work = Asking {
        askers: Askers {
            all: vec![Asker::default(); askers],
            ..Askers::default()
        },
        card: Card {
            worker: vec![Worker { vm, role }],
            ..Card::default()
        },
        stop_at,
        first_cpu,
    };
    let mut spec = MachineSpec::new(Shape::flat(askers as u32 + 1));
    (spec.cost.switch_ns, spec.cost.wake_ipi_ns) = (SWITCH_NS, IPI_NS);
    let mut m = Simulation::new(&spec, &[], work);
    let all = berth_builtin::all();
    let vtime = all.iter().find(|p| p.name == "vtime").unwrap();
    let policy = vtime.load(&Default::default()).unwrap();
    load_policy(&mut m, &policy, &BTreeMap::new(), &[], &Options::default()).unwrap();
    m.start();
    m.run_until(end).unwrap();
    m.check().unwrap();
    std::mem::take(&mut m.workload)
}

#[test]
fn a_lone_request_takes_the_sum_of_its_ways() {
    let alone = GUEST_NS + SERVICE_NS + IRQ_NS + HOST_NS + GUEST_IRQ_NS;
    // On a CPU of its own, the task is woken by another one; on the thread's, both are switched in each time.
    for (first_cpu, want) in [(1, alone + IPI_NS), (0, alone + 2 * SWITCH_NS)] {
        let work = asking(1, first_cpu, None, 10_000_000);
        let took = &work.askers.took[1..];
        assert!(took.len() > 100, "{}", took.len());
        assert!(took.iter().all(|ns| *ns == want), "{want}: {took:?}");
    }
}

/// Many more askers than the thread can serve: it is the bottleneck, and each interrupt takes its time from it.
#[test]
fn the_thread_of_a_device_bounds_its_rate() {
    let end = 1_000_000_000;
    let work = asking(16, 1, None, end);
    let want = end as f64 / (HOST_NS + IRQ_NS) as f64;
    let rate = work.askers.done as f64;
    assert!((rate / want - 1.0).abs() < 0.001, "{want}: {rate}");
}

#[test]
fn what_is_in_a_device_when_its_vm_stops_is_lost() {
    let work = asking(4, 1, Some(1_000_000), 2_000_000);
    let Askers {
        entered,
        done,
        lost,
        ..
    } = work.askers;
    assert!(done > 20, "{done}");
    assert_eq!((lost, entered), (4, done + 4));
    assert_eq!(work.card.inside().count(), 0);
}
