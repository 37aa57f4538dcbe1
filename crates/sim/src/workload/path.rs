// SPDX-License-Identifier: GPL-2.0-only
//! A parcel's way from a client to a task and back: link, NIC with its interrupt, back end, guest; see
//! `docs/network.md`.
use super::api::{Action, Ctx, Nanos, Who};
use super::mail::Message;
use super::net::Stage;
use super::requests::*;
use super::scenario::ScenarioWorkload;
use crate::guest::machine_of;
use berth_scenario::model::NetPath;

impl ScenarioWorkload {
    /// A client sends a request: it is on the wire.
    pub(super) fn send_in(&mut self, message: Message, now: Nanos, ctx: &mut Ctx) {
        let Some(net) = &mut self.net else { return };
        let Some(from) = message.from else { return };
        let stream = &self.clients.streams[from.stream as usize];
        let parcel = net.enter(Stage::WireIn, message, false, now);
        net.wire[0].push_back(parcel);
        let at = net.link.send(false, stream.sizes.bytes[0], now);
        let cpu = net.ports[stream.vm as usize].cpu;
        ctx.at_on(cpu, at, token(KIND_ARRIVED, 0));
    }

    /// The parcel at the head of the wire is in the NIC.
    pub(super) fn arrived(&mut self, now: Nanos, ctx: &mut Ctx) {
        let Some(net) = &mut self.net else { return };
        let Some(parcel) = net.wire[0].pop_front() else {
            return;
        };
        net.leave(Stage::WireIn, parcel, now);
        let Some(from) = parcel.message.from else {
            return;
        };
        let stream = &self.clients.streams[from.stream as usize];
        let vm = stream.vm;
        let group = self.groups[vm as usize] as usize;
        if now >= self.measure_from {
            self.traffic[group].packets += stream.sizes.packets[0];
        }
        let parcel = net.enter(Stage::Nic, parcel.message, false, now);
        let port = &mut net.ports[vm as usize];
        port.rx.push_back(parcel);
        if port.pending {
            return;
        }
        port.pending = true;
        if port.quiet_until > now {
            let (at, cpu) = (port.quiet_until, port.cpu);
            ctx.at_on(cpu, at, token(KIND_NIC_IRQ, vm));
        } else {
            self.nic_irq(vm, false, now, ctx);
        }
    }

    /// The NIC's interrupt for a VM's queue; of an assigned device, it goes to the CPU of the thread it is for.
    pub(super) fn nic_irq(&mut self, vm: u32, moved: bool, now: Nanos, ctx: &mut Ctx) {
        let Some(net) = &self.net else { return };
        if net.spec.path == NetPath::Direct && !moved {
            let first = net.ports[vm as usize].rx.front();
            let queue = first.and_then(|p| Some(self.targets[p.message.from?.stream as usize].1));
            let waiter = queue.and_then(|q| self.waiter(vm, q));
            let cpu = waiter.map_or(self.irq_cpu[vm as usize], |t| self.threads[t as usize].cpu);
            if self.is_inside(vm) {
                ctx.at_in(machine_of(vm), cpu, now, token(KIND_NIC_IRQ_HERE, vm));
                return;
            }
            if cpu != ctx.cpu() {
                ctx.at_on(cpu, now, token(KIND_NIC_IRQ_HERE, vm));
                return;
            }
        }
        let Some(net) = &mut self.net else { return };
        net.ports[vm as usize].quiet_until = now.saturating_add(net.spec.coalesce_ns);
        let done = ctx.interrupt(net.spec.irq_ns);
        if done > now {
            ctx.at(done, token(KIND_POLL, vm));
        } else {
            self.poll(vm, now, ctx);
        }
    }

    /// The interrupt's work is done: everything in the VM's queue goes on.
    pub(super) fn poll(&mut self, vm: u32, now: Nanos, ctx: &mut Ctx) {
        loop {
            let Some(net) = &mut self.net else { return };
            let port = &mut net.ports[vm as usize];
            let Some(parcel) = port.rx.pop_front() else {
                port.pending = false;
                return;
            };
            let back = port.back;
            net.leave(Stage::Nic, parcel, now);
            match back {
                Some(back) => self.hand_over(back, parcel.message, false, now, ctx),
                None => self.deliver(vm, parcel.message, now, ctx),
            }
        }
    }

    /// A parcel for a back end; one of its threads that sleeps is woken.
    fn hand_over(&mut self, back: u32, message: Message, out: bool, now: Nanos, ctx: &mut Ctx) {
        let Some(from) = message.from else { return };
        let vm = self.clients.streams[from.stream as usize].vm;
        let Some(net) = &mut self.net else { return };
        if net.ports[vm as usize].stopped {
            self.flow.leave(message.sent, now, false);
            return;
        }
        let parcel = net.enter(Stage::BackEnd, message, out, now);
        let back = &mut net.backs[back as usize];
        back.ring.push_back(parcel);
        if let Some(thread) = back.idle.pop() {
            self.wake(thread, ctx);
        }
    }

    /// The request is in the guest's memory; the guest is interrupted for it.
    fn deliver(&mut self, vm: u32, message: Message, now: Nanos, ctx: &mut Ctx) {
        let stopped = self
            .net
            .as_ref()
            .is_some_and(|n| n.ports[vm as usize].stopped);
        let Some(from) = message.from else { return };
        if stopped {
            self.flow.leave(message.sent, now, false);
            return;
        }
        let (home, queue) = self.targets[from.stream as usize];
        self.send(home, queue, message, ctx);
    }

    /// What a thread of a back end does: one parcel after the other.
    pub(super) fn move_packets(
        &mut self,
        who: Who,
        back: (u32, u32),
        now: Nanos,
        ctx: &mut Ctx,
    ) -> Action {
        let (back, hand) = back;
        loop {
            let Some(net) = &mut self.net else {
                return Action::Block;
            };
            if let Some(parcel) = net.hands[hand as usize].take() {
                net.leave(Stage::BackEnd, parcel, now);
                if parcel.out {
                    self.send_out(parcel.message, now, ctx);
                } else if let Some(from) = parcel.message.from {
                    let vm = self.clients.streams[from.stream as usize].vm;
                    self.deliver(vm, parcel.message, now, ctx);
                }
                continue;
            }
            let ring = &mut net.backs[back as usize];
            let Some(parcel) = ring.ring.pop_front() else {
                ring.idle.push(who.token);
                return Action::Block;
            };
            net.hands[hand as usize] = Some(parcel);
            let packets = match parcel.message.from {
                Some(from) => {
                    let sizes = &self.clients.streams[from.stream as usize].sizes;
                    sizes.packets[usize::from(parcel.out)]
                }
                None => 1,
            };
            let ns = packets.saturating_mul(net.spec.per_packet_host_ns);
            if ns > 0 {
                return Action::Compute { ns };
            }
        }
    }

    /// A task's reply leaves the guest.
    pub(super) fn transmit(&mut self, thread: u32, now: Nanos, ctx: &mut Ctx) {
        let t = &mut self.threads[thread as usize];
        let vm = t.home;
        let Some(message) = t.in_hand.take() else {
            return;
        };
        match self.net.as_ref().and_then(|n| n.ports[vm as usize].back) {
            Some(back) => self.hand_over(back, message, true, now, ctx),
            None => self.send_out(message, now, ctx),
        }
    }

    /// A reply is on the wire.
    fn send_out(&mut self, message: Message, now: Nanos, ctx: &mut Ctx) {
        let Some(net) = &mut self.net else { return };
        let Some(from) = message.from else { return };
        let stream = &self.clients.streams[from.stream as usize];
        let group = self.groups[stream.vm as usize] as usize;
        if now >= self.measure_from {
            self.traffic[group].packets += stream.sizes.packets[1];
        }
        let parcel = net.enter(Stage::WireOut, message, true, now);
        net.wire[1].push_back(parcel);
        let at = net.link.send(true, stream.sizes.bytes[1], now);
        let home = stream.vm;
        self.at_host(home, at, token(KIND_ANSWERED, 0), ctx);
    }

    /// The reply at the head of the wire has reached its client.
    pub(super) fn answered(&mut self, now: Nanos, ctx: &mut Ctx) {
        let Some(net) = &mut self.net else { return };
        let Some(parcel) = net.wire[1].pop_front() else {
            return;
        };
        net.leave(Stage::WireOut, parcel, now);
        let Some(from) = parcel.message.from else {
            return;
        };
        let vm = self.clients.streams[from.stream as usize].vm;
        self.close(vm, parcel.message, now, true, Some(ctx));
    }

    /// The VM has stopped: what its own threads and its queue hold is lost.
    pub(super) fn stop_port(&mut self, home: u32, now: Nanos) {
        let Some(net) = &mut self.net else { return };
        let Some(port) = net.ports.get_mut(home as usize) else {
            return;
        };
        port.stopped = true;
        for hand in 0..self.threads.len() {
            let t = &self.threads[hand];
            if !t.alive || t.home != home {
                continue;
            }
            let Some((back, hand)) = t.back else { continue };
            net.backs[back as usize]
                .idle
                .retain(|i| self.threads[*i as usize].home != home);
            if let Some(parcel) = net.hands[hand as usize].take() {
                net.leave(Stage::BackEnd, parcel, now);
                self.flow.leave(parcel.message.sent, now, false);
            }
            // Nobody serves the ring of a VM's own thread any more.
            if net.ports[home as usize].back == Some(back) {
                while let Some(parcel) = net.backs[back as usize].ring.pop_front() {
                    net.leave(Stage::BackEnd, parcel, now);
                    self.flow.leave(parcel.message.sent, now, false);
                }
            }
        }
    }

    /// Time that a thread owes for the packets of the request it has just taken, and for the interrupt if that
    /// woke it (of an assigned device, the interrupt has been served already).
    pub(super) fn receive_cost(&mut self, thread: u32) -> Nanos {
        let t = &mut self.threads[thread as usize];
        let woken = std::mem::take(&mut t.slept);
        let (Some(net), Some(from)) = (&self.net, t.in_hand.and_then(|m| m.from)) else {
            return 0;
        };
        let packets = self.clients.streams[from.stream as usize].sizes.packets[0];
        let irq = match (woken, net.spec.path) {
            (true, NetPath::DriverDomain | NetPath::Vhost | NetPath::Emulator) => net.spec.irq_ns,
            _ => 0,
        };
        packets
            .saturating_mul(net.spec.per_packet_guest_ns)
            .saturating_add(irq)
    }

    /// Time that sending the reply to this request takes the guest.
    pub(super) fn cost_out(&self, message: &Message) -> Nanos {
        let (Some(net), Some(from)) = (&self.net, message.from) else {
            return 0;
        };
        let packets = self.clients.streams[from.stream as usize].sizes.packets[1];
        packets.saturating_mul(net.spec.per_packet_guest_ns)
    }
}
