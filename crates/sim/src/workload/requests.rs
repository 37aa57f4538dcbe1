// SPDX-License-Identifier: GPL-2.0-only
//! Requests and messages on their way through queues to threads, and their ends.
use super::api::{Ctx, Nanos, Who};
use super::flow::Responses;
use super::mail::Message;
use super::scenario::ScenarioWorkload;

/// What an event token says; the number is a thread group, VM or asker.
pub(super) const KIND_SHIFT: u32 = 56;
pub(super) const KIND_REQUEST: u64 = 0;
/// A request that already moved to the CPU of the thread it is for.
pub(super) const KIND_REQUEST_HERE: u64 = 1;
pub(super) const KIND_VM_START: u64 = 2;
pub(super) const KIND_VM_STOP: u64 = 3;
/// The parcel at the head of the wire has come to the host.
pub(super) const KIND_ARRIVED: u64 = 4;
/// The NIC interrupts for a VM's queue; the second, on the CPU it is meant for.
pub(super) const KIND_NIC_IRQ: u64 = 5;
pub(super) const KIND_NIC_IRQ_HERE: u64 = 6;
/// That interrupt is over.
pub(super) const KIND_POLL: u64 = 7;
/// The parcel at the head of the other wire has come to its client.
pub(super) const KIND_ANSWERED: u64 = 8;
/// Inside a VM: it has been switched on.
pub(super) const KIND_BOOT: u64 = 9;

pub(super) fn token(kind: u64, number: u32) -> u64 {
    kind << KIND_SHIFT | u64::from(number)
}

impl ScenarioWorkload {
    /// Puts a message into a queue and wakes a thread for it.
    pub(super) fn send(&mut self, home: u32, queue: u16, message: Message, ctx: &mut Ctx) {
        self.mail.put(home, queue, message);
        if let Some(thread) = self.waiter(home, queue) {
            self.mail.leave(thread);
            self.wake(thread, ctx);
        }
    }

    pub(super) fn waiter(&self, home: u32, queue: u16) -> Option<u32> {
        let serves = |thread: u32| {
            let t = &self.threads[thread as usize];
            let serves = &self.serves[t.serves.0 as usize..][..usize::from(t.serves.1)];
            t.listens == Some(queue) || serves.iter().any(|s| s.queue == queue)
        };
        self.mail.longest_waiting(home, serves)
    }

    pub(super) fn request(&mut self, asker: u32, moved: bool, now: Nanos, ctx: &mut Ctx) {
        let from = self.clients.askers[asker as usize];
        let (home, queue) = self.targets[from.stream as usize];
        // With the guest level, the guest is interrupted where the thread is when it is woken.
        if !moved && self.net.is_none() && !self.is_inside(home) {
            // Where the interrupt goes: the CPU of the thread it wakes.
            let waiter = self.waiter(home, queue);
            let cpu = waiter.map_or(ctx.cpu(), |t| self.threads[t as usize].cpu);
            if cpu != ctx.cpu() {
                ctx.at_on(cpu, now, token(KIND_REQUEST_HERE, asker));
                return;
            }
        }
        if let Some(at) = self.ask(asker, now, ctx) {
            let cpu = self.irq_cpu[home as usize];
            ctx.at_on(cpu, at, token(KIND_REQUEST, asker));
        }
    }

    /// The request that a client was to send at `sent` is sent. When the next one is due, if it does not wait for the answer.
    pub(super) fn ask(&mut self, asker: u32, sent: Nanos, ctx: &mut Ctx) -> Option<Nanos> {
        let from = self.clients.askers[asker as usize];
        let (home, queue) = self.targets[from.stream as usize];
        self.flow.enter_late(sent, ctx.now());
        if sent >= self.measure_from && home < self.nr_vms {
            let group = self.groups[home as usize] as usize;
            self.traffic[group].offered += 1;
        }
        let message = Message {
            sent,
            from: Some(from),
        };
        if self.net.is_some() {
            self.send_in(message, sent, ctx);
        } else {
            self.send(home, queue, message, ctx);
        }
        let stream = &mut self.clients.streams[from.stream as usize];
        if stream.is_open() {
            stream.next(from.user, sent)
        } else {
            None
        }
    }

    /// The request in hand is over; `answered` or given up.
    pub(super) fn finish(
        &mut self,
        thread: u32,
        now: Nanos,
        answered: bool,
        ctx: Option<&mut Ctx>,
    ) {
        let t = &mut self.threads[thread as usize];
        let home = t.home;
        if let Some(message) = t.in_hand.take() {
            self.close(home, message, now, answered, ctx);
        }
    }

    /// A request of a client, sent to this home, leaves the system.
    pub(super) fn close(
        &mut self,
        home: u32,
        message: Message,
        now: Nanos,
        answered: bool,
        ctx: Option<&mut Ctx>,
    ) {
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
            let sizes = &self.clients.streams[from.stream as usize].sizes;
            let traffic = &mut self.traffic[group];
            traffic.answered += 1;
            traffic.bytes += sizes.payload;
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
            if self.sender.is_some() {
                self.answer(asker, at, ctx);
            } else {
                self.at_host(home, at, token(KIND_REQUEST, asker), ctx);
            }
        }
    }

    /// Gives a pool thread the oldest message in its queues; if there is none, it waits from now on.
    pub(super) fn take_message(&mut self, who: Who) -> bool {
        let t = &mut self.threads[who.token as usize];
        let (first, n) = t.serves;
        let serves = &self.serves[first as usize..][..usize::from(n)];
        let oldest = self.mail.take(t.home, serves.iter().map(|s| s.queue));
        let Some((queue, message)) = oldest else {
            self.mail.wait(t.home, who.token);
            t.slept = true;
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

    /// The step `receive` in the middle of a loop: the oldest message of that queue; if there is none, the thread
    /// waits. What it had in hand is given up.
    pub(super) fn receive(&mut self, who: Who, queue: u16, now: Nanos) -> bool {
        self.finish(who.token, now, false, None);
        let t = &mut self.threads[who.token as usize];
        let Some((_, message)) = self.mail.take(t.home, [queue]) else {
            t.listens = Some(queue);
            t.slept = true;
            self.mail.wait(t.home, who.token);
            return false;
        };
        t.listens = None;
        t.in_hand = Some(message);
        true
    }
}
