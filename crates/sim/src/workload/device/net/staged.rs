// SPDX-License-Identifier: GPL-2.0-only
//! A parcel's way with `net.stages`: batches through interrupt, softirq, back end and guest, each stage paid for by the
//! CPU or thread that does it. Costs: [`super::detail`].
use super::super::{Bus, Place, Taker};
use super::build::in_turn;
use super::detail::{Batch, Part};
use super::parcel::{Cargo, Parcel};
use super::path::{POLL, RESEND, SOFTIRQ, SOFTIRQ_DONE, event};
use super::state::{Net, Stage};
use crate::words::{CpuId, Nanos};
use crate::workload::api::Action;
use berth_scenario::model::NetPath;
use std::collections::VecDeque;

impl Net {
    fn group(&self, vm: u32) -> usize {
        self.ports[vm as usize].group
    }

    /// Moves parcels from one queue to another, up to a batch of packets, and tells what they are.
    fn take(&self, from: &mut VecDeque<Parcel>, to: &mut VecDeque<Parcel>, most: u32) -> Batch {
        let mut batch = Batch {
            opens: true,
            ..Batch::default()
        };
        while batch.packets < u64::from(most)
            && let Some(parcel) = from.pop_front()
        {
            if !parcel.rides {
                let stream = self.stream(parcel.cargo);
                let way = usize::from(parcel.cargo.out);
                batch.add(stream.packets[way], stream.bytes[way]);
            }
            to.push_back(parcel);
        }
        batch
    }

    /// Has a VM's queue of the card no room for one more?
    pub(super) fn card_is_full(&self, vm: u32) -> bool {
        let ring = self.detail.as_ref().map(|d| d.of.ring as usize);
        ring.is_some_and(|ring| self.ports[vm as usize].rx.len() >= ring)
    }

    /// A queue is full: the client will send this again.
    pub(super) fn refuse(&mut self, cargo: Cargo, bus: &mut impl Bus<Cargo>) {
        let (now, vm) = (bus.now(), self.stream(cargo).vm);
        let (group, packets) = (self.group(vm), self.packets(cargo));
        let parcel = self.come(Stage::Resend, cargo, now);
        if let Some(d) = &mut self.detail {
            d.dropped(group, packets);
            d.resends.push_back(parcel);
            let at = now.saturating_add(d.of.resend_ns);
            bus.at(bus.outside(vm), at, event(RESEND, 0));
        }
    }

    pub(super) fn resend(&mut self, bus: &mut impl Bus<Cargo>) {
        let resends = self.detail.as_mut().map(|d| &mut d.resends);
        let Some(parcel) = resends.and_then(VecDeque::pop_front) else {
            return;
        };
        self.leave(Stage::Resend, parcel, bus.now());
        match self.is_stopped(parcel.cargo) {
            true => bus.lost(parcel.cargo),
            false => self.send_in(parcel.cargo, bus),
        }
    }

    /// An interrupt of the card, or its poll that goes on: a batch of a VM's queue is taken.
    pub(super) fn take_from_card(&mut self, vm: u32, bus: &mut impl Bus<Cargo>) {
        let (now, cpu, of) = (bus.now(), bus.here().cpu, (vm, self.group(vm)));
        let Some(mut d) = self.detail.take() else {
            return;
        };
        let most = d.of.batch;
        let mut rx = std::mem::take(&mut self.ports[vm as usize].rx);
        let batch = self.take(&mut rx, &mut d.polled[vm as usize], most);
        self.ports[vm as usize].rx = rx;
        let parts: &[Part] = match (self.spec.path, d.of.rps_cpus.is_empty()) {
            (NetPath::Direct, _) => &[Part::Inject],
            (_, true) => &[Part::Driver, Part::Bridge, Part::Filter, Part::Tap],
            (_, false) => &[Part::Driver],
        };
        d.batched(of.1, &batch);
        let ns = parts.iter().map(|part| d.visit(of, *part, cpu, &batch));
        let ns: Nanos = ns.sum();
        let done = bus.interrupt(ns);
        self.detail = Some(d);
        match done > now {
            true => bus.at(bus.here(), done, event(POLL, vm)),
            false => self.card_done(vm, bus),
        }
    }

    /// That batch is done: it goes on, and so does the poll until the queue is empty.
    pub(super) fn card_done(&mut self, vm: u32, bus: &mut impl Bus<Cargo>) {
        let (now, cpu) = (bus.now(), bus.here().cpu);
        while let Some(mut parcel) = self.next_of(|d| &mut d.polled[vm as usize]) {
            self.leave(Stage::Nic, parcel, now);
            parcel.cpu = cpu;
            if self.spec.path == NetPath::Direct {
                self.bring(vm, parcel, bus);
            } else if let Some(rps) = self.rps(vm) {
                let moved = Parcel {
                    cpu,
                    ..self.come(Stage::Softirq, parcel.cargo, now)
                };
                let Some(d) = &mut self.detail else { return };
                d.backlog[vm as usize].push_back(moved);
                if !std::mem::replace(&mut d.soft_pending[vm as usize], true) {
                    bus.at(rps, now, event(SOFTIRQ, vm));
                }
            } else {
                self.put_in_tap(vm, parcel, bus);
            }
        }
        let port = &mut self.ports[vm as usize];
        match port.rx.is_empty() {
            true => port.pending = false,
            false => self.take_from_card(vm, bus),
        }
    }

    fn next_of(
        &mut self,
        queue: impl Fn(&mut super::detail::Detail) -> &mut VecDeque<Parcel>,
    ) -> Option<Parcel> {
        queue(self.detail.as_mut()?).pop_front()
    }

    /// Where a VM's packets are steered (RPS).
    fn rps(&self, vm: u32) -> Option<Place> {
        let cpus = &self.detail.as_ref()?.of.rps_cpus;
        in_turn(cpus, vm).map(Place::of_host)
    }

    /// The softirq of the CPU that packets are steered to takes a batch; `first`: it was called by another CPU.
    pub(super) fn softirq(&mut self, vm: u32, first: bool, bus: &mut impl Bus<Cargo>) {
        let (now, cpu, of) = (bus.now(), bus.here().cpu, (vm, self.group(vm)));
        let Some(mut d) = self.detail.take() else {
            return;
        };
        let mut backlog = std::mem::take(&mut d.backlog[vm as usize]);
        let from = backlog.front().map_or(cpu, |parcel| parcel.cpu);
        let most = d.of.batch;
        let batch = self.take(&mut backlog, &mut d.soft[vm as usize], most);
        d.backlog[vm as usize] = backlog;
        let mut ns = d.read(of.1, Part::Bridge, cpu, from, &batch);
        if first && from != cpu {
            ns += d.wake(of.1, cpu, from);
        }
        for part in [Part::Bridge, Part::Filter, Part::Tap] {
            ns += d.visit(of, part, cpu, &batch);
        }
        let done = bus.interrupt(ns);
        self.detail = Some(d);
        match done > now {
            true => bus.at(bus.here(), done, event(SOFTIRQ_DONE, vm)),
            false => self.softirq_done(vm, bus),
        }
    }

    pub(super) fn softirq_done(&mut self, vm: u32, bus: &mut impl Bus<Cargo>) {
        let (now, cpu) = (bus.now(), bus.here().cpu);
        while let Some(mut parcel) = self.next_of(|d| &mut d.soft[vm as usize]) {
            self.leave(Stage::Softirq, parcel, now);
            parcel.cpu = cpu;
            self.put_in_tap(vm, parcel, bus);
        }
        let Some(d) = &mut self.detail else { return };
        match d.backlog[vm as usize].is_empty() {
            true => d.soft_pending[vm as usize] = false,
            false => self.softirq(vm, false, bus),
        }
    }

    /// Into the queue of a VM's tap.
    fn put_in_tap(&mut self, vm: u32, parcel: Parcel, bus: &mut impl Bus<Cargo>) {
        let (Some(back), Some(d)) = (self.ports[vm as usize].back, &self.detail) else {
            return bus.lost(parcel.cargo);
        };
        if self.is_stopped(parcel.cargo) {
            return bus.lost(parcel.cargo);
        }
        if self.backs[back as usize].ring.len() >= d.of.tap_queue as usize {
            return self.refuse(parcel.cargo, bus);
        }
        let cpu = parcel.cpu;
        let parcel = self.come(Stage::BackEnd, parcel.cargo, bus.now());
        let parcel = Parcel { cpu, ..parcel };
        self.backs[back as usize].ring.push_back(parcel);
        self.wake_back_end(back, bus);
    }

    fn wake_back_end(&mut self, back: u32, bus: &mut impl Bus<Cargo>) {
        if let Some(worker) = self.backs[back as usize].idle.pop() {
            if let Some(d) = &mut self.detail {
                d.movers[back as usize].woken_by = Some(bus.here().cpu);
            }
            bus.wake(worker);
        }
    }

    /// The guest gives a reply away: to its back end, or to a card of its own.
    pub(super) fn give(&mut self, back: Option<u32>, cargo: Cargo, bus: &mut impl Bus<Cargo>) {
        if self.is_stopped(cargo) {
            return bus.lost(cargo);
        }
        let (now, cpu) = (bus.now(), bus.here().cpu);
        let acknowledges = self.stream(cargo).acknowledges;
        let Some(d) = &mut self.detail else { return };
        if acknowledges && !d.gives(cargo.stream) {
            let held = self.come(Stage::Held, cargo, now);
            let stream = self.next_stream(cargo);
            return stream.into_iter().for_each(|s| s.push_back(held));
        }
        self.pass(back, cargo, (cpu, false), bus);
        while let Some(held) = self.next_stream(cargo).and_then(VecDeque::pop_front) {
            self.leave(Stage::Held, held, now);
            self.pass(back, held.cargo, (cpu, true), bus);
        }
        if let Some(back) = back {
            self.wake_back_end(back, bus);
        }
    }

    /// The acknowledgements of its stream that wait for the next one.
    fn next_stream(&mut self, cargo: Cargo) -> Option<&mut VecDeque<Parcel>> {
        let d = self.detail.as_mut()?;
        Some(&mut d.streams[cargo.stream as usize].held)
    }

    fn pass(
        &mut self,
        back: Option<u32>,
        cargo: Cargo,
        (cpu, rides): (CpuId, bool),
        bus: &mut impl Bus<Cargo>,
    ) {
        let now = bus.now();
        let parcel = Parcel {
            cargo,
            since: now,
            cpu,
            rides,
        };
        let Some(back) = back else {
            return self.onto_wire(parcel, bus);
        };
        self.come(Stage::BackEnd, cargo, now);
        if let Some(d) = &mut self.detail {
            d.sends[back as usize].push_back(parcel);
        }
    }

    /// A VM has stopped with acknowledgements that it had not given.
    pub(super) fn lose_held(&mut self, vm: u32, bus: &mut impl Bus<Cargo>) {
        let now = bus.now();
        for stream in 0..self.streams.len() {
            if self.streams[stream].vm != vm {
                continue;
            }
            while let Some(held) = self.next_of(|d| &mut d.streams[stream].held) {
                self.leave(Stage::Held, held, now);
                bus.lost(held.cargo);
            }
        }
    }

    /// Counting begins, if it is time.
    pub(super) fn look(&mut self, now: Nanos) {
        if let Some(d) = &mut self.detail {
            d.look(now);
        }
    }

    /// What the thread of a back end does next: a batch from the tap, or one from the guest, in turn.
    pub(super) fn serve_batch(&mut self, worker: u32, bus: &mut impl Bus<Cargo>) -> Action {
        let back = self.hands[worker as usize].back;
        let vm = self.workers[worker as usize].vm;
        let of = (vm, self.group(vm));
        loop {
            while let Some(mut parcel) = self.next_of(|d| &mut d.taken[back as usize]) {
                self.leave(Stage::BackEnd, parcel, bus.now());
                parcel.cpu = bus.here().cpu;
                match parcel.cargo.out {
                    true => self.onto_wire(parcel, bus),
                    false => self.bring(vm, parcel, bus),
                }
            }
            let Some(mut d) = self.detail.take() else {
                return Action::Block;
            };
            let mut ring = std::mem::take(&mut self.backs[back as usize].ring);
            let mut sends = std::mem::take(&mut d.sends[back as usize]);
            let out = match (ring.is_empty(), sends.is_empty()) {
                (true, true) => None,
                (false, false) => Some(!d.movers[back as usize].sent),
                (_, nothing_to_send) => Some(!nothing_to_send),
            };
            let ns = out.map(|out| {
                let from = if out { &mut sends } else { &mut ring };
                let brought_by = from.front().map_or(0, |parcel| parcel.cpu);
                let most = d.of.batch;
                let batch = self.take(from, &mut d.taken[back as usize], most);
                let cpu = bus.here().cpu;
                let parts: &[Part] = match out {
                    true => &[
                        Part::Copy,
                        Part::Tap,
                        Part::Filter,
                        Part::Bridge,
                        Part::Driver,
                    ],
                    false => &[Part::Copy, Part::Inject],
                };
                let mut ns = d.begins(of.1, back, cpu, out);
                if batch.packets > 0 {
                    ns += d.read(of.1, Part::Copy, cpu, brought_by, &batch);
                    ns += parts
                        .iter()
                        .map(|part| d.visit(of, *part, cpu, &batch))
                        .sum::<Nanos>();
                    d.batched(of.1, &batch);
                }
                ns
            });
            d.sends[back as usize] = sends;
            self.backs[back as usize].ring = ring;
            self.detail = Some(d);
            match ns {
                None => {
                    self.backs[back as usize].idle.push(worker);
                    return Action::Block;
                }
                Some(0) => (),
                Some(ns) => return Action::Compute { ns },
            }
        }
    }

    /// The guest has a request.
    fn bring(&mut self, vm: u32, parcel: Parcel, bus: &mut impl Bus<Cargo>) {
        if let Some(d) = &mut self.detail {
            d.delivered[vm as usize] = parcel.cpu;
            d.streams[parcel.cargo.stream as usize].waits += 1;
        }
        self.deliver(parcel.cargo, bus);
    }

    /// A reply leaves; an acknowledgement that goes along takes nothing of the wire.
    fn onto_wire(&mut self, parcel: Parcel, bus: &mut impl Bus<Cargo>) {
        let now = bus.now();
        let (last, cargo) = (self.detail.as_ref().map_or(0, |d| d.last_out), parcel.cargo);
        let at = match parcel.rides && last > now {
            true => last,
            false => {
                self.count(cargo, now);
                let bytes = self.stream(cargo).bytes[1];
                self.link.send(true, bytes, now)
            }
        };
        if let Some(d) = &mut self.detail {
            d.last_out = at;
        }
        self.answer_at(cargo, at, bus);
    }

    /// CPU time of a guest's task for a request that it has taken, or for the reply that it gives: see
    /// [`super::super::Device::guest_ns`].
    pub(super) fn guest_stage_ns(&mut self, cargo: Cargo, taker: Taker) -> Nanos {
        let Taker { thread, cpu, woken } = taker;
        let stream = *self.stream(cargo);
        let (vm, group) = (stream.vm, self.group(stream.vm));
        let back = self.ports[vm as usize].back;
        let Some(d) = &mut self.detail else { return 0 };
        let way = usize::from(cargo.out);
        let mut batch = Batch::default();
        batch.add(stream.packets[way], stream.bytes[way]);
        if !cargo.out {
            let waits = &mut d.streams[cargo.stream as usize].waits;
            *waits = waits.saturating_sub(1);
            batch.opens = d.takes(thread, batch.packets, woken);
            let from = d.delivered[vm as usize];
            let mut ns = d.sits(group, thread, cpu);
            if woken {
                ns += d.wake(group, cpu, from);
            }
            ns += d.read(group, Part::Guest, cpu, from, &batch);
            return ns + d.visit((vm, group), Part::Guest, cpu, &batch);
        }
        if stream.acknowledges && d.holds(cargo.stream) {
            return 0;
        }
        batch.opens = back.is_none_or(|back| d.sends[back as usize].is_empty());
        let ns = d.sits(group, thread, cpu) + d.visit((vm, group), Part::Guest, cpu, &batch);
        match back {
            Some(_) => ns + d.visit((vm, group), Part::Inject, cpu, &batch),
            None => ns,
        }
    }
}
