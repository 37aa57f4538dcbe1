// SPDX-License-Identifier: GPL-2.0-only
//! A parcel's way from a client to a task and back: link, NIC with its interrupt, back end, guest; see
//! `docs/network.md`.
use super::super::{Bus, Device, Event, Place, Taker, Worker};
use super::parcel::Cargo;
use super::state::{Net, Stage};
use crate::words::{Nanos, VmId};
use crate::workload::api::Action;
use berth_scenario::model::NetPath;
use std::collections::BTreeMap;

/// The parcel at the head of the wire has come to the host.
const ARRIVED: u16 = 0;
/// The NIC interrupts for a VM's queue; the second, on the CPU it is meant for.
const NIC_IRQ: u16 = 1;
const NIC_IRQ_HERE: u16 = 2;
/// That interrupt is over.
pub(super) const POLL: u16 = 3;
/// The parcel at the head of the other wire has come to its client.
const ANSWERED: u16 = 4;
/// The softirq of another CPU begins; it has done what it has taken. A dropped parcel is sent again. (With stages.)
pub(super) const SOFTIRQ: u16 = 5;
pub(super) const SOFTIRQ_DONE: u16 = 6;
pub(super) const RESEND: u16 = 7;

impl Device for Net {
    type Work = Cargo;

    fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// A client's request is on the wire; a task's reply leaves the guest.
    fn enter(&mut self, cargo: Cargo, bus: &mut impl Bus<Cargo>) {
        self.look(bus.now());
        let vm = self.stream(cargo).vm;
        match self.ports[vm as usize].back {
            _ if !cargo.out => self.send_in(cargo, bus),
            back if self.detail.is_some() => self.give(back, cargo, bus),
            Some(back) => self.hand_over(back, cargo, bus),
            None => self.send_out(cargo, bus),
        }
    }

    fn event(&mut self, event: Event, bus: &mut impl Bus<Cargo>) {
        self.look(bus.now());
        let vm = event.number;
        match event.what {
            ARRIVED => self.arrived(bus),
            NIC_IRQ => self.nic_irq(vm, false, bus),
            NIC_IRQ_HERE => self.nic_irq(vm, true, bus),
            POLL => self.poll(vm, bus),
            SOFTIRQ => self.softirq(vm, true, bus),
            SOFTIRQ_DONE => self.softirq_done(vm, bus),
            RESEND => self.resend(bus),
            _ => self.answered(bus),
        }
    }

    /// One parcel after the other.
    fn serve(&mut self, worker: u32, bus: &mut impl Bus<Cargo>) -> Action {
        if self.detail.is_some() {
            self.look(bus.now());
            return self.serve_batch(worker, bus);
        }
        loop {
            let hand = &mut self.hands[worker as usize];
            if let Some(parcel) = hand.holds.take() {
                self.leave(Stage::BackEnd, parcel, bus.now());
                if parcel.cargo.out {
                    self.send_out(parcel.cargo, bus);
                } else {
                    self.deliver(parcel.cargo, bus);
                }
                continue;
            }
            let back = &mut self.backs[hand.back as usize];
            let Some(parcel) = back.ring.pop_front() else {
                back.idle.push(worker);
                return Action::Block;
            };
            hand.holds = Some(parcel);
            let packets = self.packets(parcel.cargo);
            let ns = packets.saturating_mul(self.spec.per_packet_host_ns);
            if ns > 0 {
                return Action::Compute { ns };
            }
        }
    }

    /// The packets, and for a request the interrupt if that woke the task (of an assigned device, the interrupt has
    /// been served already).
    fn guest_ns(&mut self, cargo: Cargo, taker: Taker) -> Nanos {
        if self.detail.is_some() {
            return self.guest_stage_ns(cargo, taker);
        }
        let woken = taker.woken;
        let irq = match self.spec.path {
            NetPath::DriverDomain | NetPath::Vhost | NetPath::Emulator if woken => self.spec.irq_ns,
            _ => 0,
        };
        self.packets(cargo)
            .saturating_mul(self.spec.per_packet_guest_ns)
            .saturating_add(irq)
    }

    fn stop_vm(&mut self, vm: VmId, bus: &mut impl Bus<Cargo>) {
        let now = bus.now();
        let Some(port) = self.ports.get_mut(vm as usize) else {
            return;
        };
        port.stopped = true;
        let own = port.back;
        self.lose_held(vm, bus);
        for worker in 0..self.workers.len() {
            if self.workers[worker].vm != vm {
                continue;
            }
            let hand = &mut self.hands[worker];
            let back = hand.back;
            let held = hand.holds.take();
            self.backs[back as usize]
                .idle
                .retain(|i| self.workers[*i as usize].vm != vm);
            // Nobody serves the ring of a VM's own thread any more.
            let ring = if own == Some(back) {
                std::mem::take(&mut self.backs[back as usize].ring)
            } else {
                Default::default()
            };
            let batch = match &mut self.detail {
                Some(detail) => detail.take_back_end(back),
                None => Default::default(),
            };
            for parcel in held.into_iter().chain(ring).chain(batch) {
                self.leave(Stage::BackEnd, parcel, now);
                bus.lost(parcel.cargo);
            }
        }
    }

    fn inside(&self) -> impl Iterator<Item = Cargo> {
        self.parcels().map(|p| p.cargo)
    }

    fn measure_from(&mut self, now: Nanos) {
        self.measure_from = now;
        for counter in &mut self.counters {
            counter.packets = 0;
        }
        if let Some(detail) = &mut self.detail {
            detail.begin_at(now);
        }
    }

    fn metrics(&self, seconds: f64, out: &mut BTreeMap<String, f64>) {
        for counter in self.counters.iter().filter(|c| c.asked) {
            let name = format!("{}.packets", counter.group);
            out.insert(name, counter.packets as f64 / seconds);
        }
        for (group, counter) in self.counters.iter().enumerate().filter(|(_, c)| c.asked) {
            if let Some(detail) = &self.detail {
                detail.metrics(group, &counter.group, counter.packets, seconds, out);
            }
        }
    }

    fn violated(&self, now: Nanos) -> Option<String> {
        self.little(now)
    }
}

impl Net {
    /// A client sends a request: it is on the wire.
    pub(super) fn send_in(&mut self, cargo: Cargo, bus: &mut impl Bus<Cargo>) {
        let now = bus.now();
        let parcel = self.come(Stage::WireIn, cargo, now);
        self.wire[0].push_back(parcel);
        let stream = &self.streams[cargo.stream as usize];
        let at = self.link.send(false, stream.bytes[0], now);
        let cpu = self.ports[stream.vm as usize].cpu;
        bus.at(Place::of_host(cpu), at, event(ARRIVED, 0));
    }

    /// The parcel at the head of the wire is in the NIC.
    fn arrived(&mut self, bus: &mut impl Bus<Cargo>) {
        let Some(parcel) = self.wire[0].pop_front() else {
            return;
        };
        let now = bus.now();
        self.leave(Stage::WireIn, parcel, now);
        self.count(parcel.cargo, now);
        let vm = self.stream(parcel.cargo).vm;
        if self.card_is_full(vm) {
            return self.refuse(parcel.cargo, bus);
        }
        let parcel = self.come(Stage::Nic, parcel.cargo, now);
        let port = &mut self.ports[vm as usize];
        port.rx.push_back(parcel);
        if port.pending {
            return;
        }
        port.pending = true;
        if port.quiet_until > now {
            bus.at(
                Place::of_host(port.cpu),
                port.quiet_until,
                event(NIC_IRQ, vm),
            );
        } else {
            self.nic_irq(vm, false, bus);
        }
    }

    /// The NIC's interrupt for a VM's queue; of an assigned device, it goes to the CPU of the thread it is for.
    fn nic_irq(&mut self, vm: u32, moved: bool, bus: &mut impl Bus<Cargo>) {
        let now = bus.now();
        let port = &mut self.ports[vm as usize];
        if self.spec.path == NetPath::Direct
            && self.spec.irq_cpus.is_empty()
            && !moved
            && let Some(first) = port.rx.front()
        {
            let place = bus.place_of(first.cargo);
            if place != bus.here() {
                bus.at(place, now, event(NIC_IRQ_HERE, vm));
                return;
            }
        }
        port.quiet_until = now.saturating_add(self.spec.coalesce_ns);
        if self.detail.is_some() {
            return self.take_from_card(vm, bus);
        }
        let done = bus.interrupt(self.spec.irq_ns);
        if done > now {
            bus.at(bus.here(), done, event(POLL, vm));
        } else {
            self.poll(vm, bus);
        }
    }

    /// The interrupt's work is done: everything in the VM's queue goes on.
    fn poll(&mut self, vm: u32, bus: &mut impl Bus<Cargo>) {
        if self.detail.is_some() {
            return self.card_done(vm, bus);
        }
        loop {
            let port = &mut self.ports[vm as usize];
            let Some(parcel) = port.rx.pop_front() else {
                port.pending = false;
                return;
            };
            let back = port.back;
            self.leave(Stage::Nic, parcel, bus.now());
            match back {
                Some(back) => self.hand_over(back, parcel.cargo, bus),
                None => self.deliver(parcel.cargo, bus),
            }
        }
    }

    pub(super) fn is_stopped(&self, cargo: Cargo) -> bool {
        self.ports[self.stream(cargo).vm as usize].stopped
    }

    /// A parcel for a back end; one of its threads that sleeps is woken.
    fn hand_over(&mut self, back: u32, cargo: Cargo, bus: &mut impl Bus<Cargo>) {
        if self.is_stopped(cargo) {
            return bus.lost(cargo);
        }
        let parcel = self.come(Stage::BackEnd, cargo, bus.now());
        let back = &mut self.backs[back as usize];
        back.ring.push_back(parcel);
        if let Some(worker) = back.idle.pop() {
            bus.wake(worker);
        }
    }

    /// The request is in the guest's memory; the guest is interrupted for it.
    pub(super) fn deliver(&mut self, cargo: Cargo, bus: &mut impl Bus<Cargo>) {
        if self.is_stopped(cargo) {
            bus.lost(cargo);
        } else {
            bus.done(cargo);
        }
    }

    /// A reply is on the wire.
    fn send_out(&mut self, cargo: Cargo, bus: &mut impl Bus<Cargo>) {
        let now = bus.now();
        self.count(cargo, now);
        let stream = &self.streams[cargo.stream as usize];
        let at = self.link.send(true, stream.bytes[1], now);
        self.answer_at(cargo, at, bus);
    }

    /// A reply is on the wire, and will have arrived then, not before any other one.
    pub(super) fn answer_at(&mut self, cargo: Cargo, at: Nanos, bus: &mut impl Bus<Cargo>) {
        let parcel = self.come(Stage::WireOut, cargo, bus.now());
        self.wire[1].push_back(parcel);
        let vm = self.streams[cargo.stream as usize].vm;
        bus.at(bus.outside(vm), at, event(ANSWERED, 0));
    }

    /// The reply at the head of the wire has reached its client.
    fn answered(&mut self, bus: &mut impl Bus<Cargo>) {
        if let Some(parcel) = self.wire[1].pop_front() {
            self.leave(Stage::WireOut, parcel, bus.now());
            bus.done(parcel.cargo);
        }
    }
}

pub(super) fn event(what: u16, number: u32) -> Event {
    Event { what, number }
}
