// SPDX-License-Identifier: GPL-2.0-only
//! Clients ask: by interrupts, by a thread of theirs ([`super::sender`]), or through the network.
use super::api::{Action, Ctx, Nanos};
use super::device::Device;
use super::devices::cargo;
use super::events::Event;
use super::mail::{Asker, Message};
use super::scenario::ScenarioWorkload;
use super::sender::{Duty, Sender};

impl ScenarioWorkload {
    /// Every client's first request.
    pub(super) fn start_clients(&mut self, ctx: &mut Ctx) {
        self.start_sender(ctx);
        for asker in 0..self.requests.clients.askers.len() as u32 {
            let clients = &mut self.requests.clients;
            let Asker { stream, user } = clients.askers[asker as usize];
            let Some(at) = clients.streams[stream as usize].first(user) else {
                continue;
            };
            match &mut self.requests.sender {
                Some(sender) => sender.ask_at(asker, at),
                None => ctx.at(at, Event::Request(asker).token()),
            }
        }
    }

    /// Starts the clients' thread, if the host's costs have one and there are clients.
    fn start_sender(&mut self, ctx: &mut Ctx) {
        let nr = self.requests.clients.askers.len();
        let costs_time = self.homes.scenario.host.cost.request_ns > 0;
        if costs_time && nr > 0 && self.devices.net.is_none() {
            self.requests.sender = Some(Sender::new(nr));
            ctx.spawn(&Sender::spec());
        }
    }

    /// A client's request is due; `moved`: this is the CPU of the thread it is for.
    pub(super) fn request(&mut self, asker: u32, moved: bool, now: Nanos, ctx: &mut Ctx) {
        let requests = &self.requests;
        let from = requests.clients.askers[asker as usize];
        let stream = &requests.clients.streams[from.stream as usize];
        let (home, queue) = (stream.vm, stream.queue);
        // With the guest level, the guest is interrupted where the thread is when it is woken.
        if !moved && self.devices.net.is_none() && !self.homes.is_inside(home) {
            // Where the interrupt goes: the CPU of the thread it wakes.
            let waits = requests.waits_on(&self.threads, home, queue);
            if let Some(cpu) = waits.filter(|cpu| *cpu != ctx.cpu()) {
                ctx.at_on(cpu, now, Event::RequestHere(asker).token());
                return;
            }
        }
        while let Some(at) = self.ask(asker, now, ctx) {
            // A batch arrives together, before anybody is scheduled.
            if at == now && self.begins(home, queue).is_some() {
                continue;
            }
            let cpu = self.requests.taken_on(home);
            ctx.at_on(cpu, at, Event::Request(asker).token());
            return;
        }
    }

    /// The request that a client was to send at `sent` is sent. When the next one is due, if it does not wait for the
    /// answer.
    fn ask(&mut self, asker: u32, sent: Nanos, ctx: &mut Ctx) -> Option<Nanos> {
        let requests = &mut self.requests;
        let from = requests.clients.askers[asker as usize];
        let stream = &requests.clients.streams[from.stream as usize];
        let (home, queue) = (stream.vm, stream.queue);
        if stream.unanswered >= stream.at_most {
            requests.measured.lost(home, sent);
            return requests.clients.next_open(asker, sent);
        }
        requests.clients.streams[from.stream as usize].unanswered += 1;
        requests.measured.comes(home, sent, ctx.now());
        let from = Some(from);
        let message = Message { sent, from };
        let inside = self.homes.is_inside(home);
        if self.devices.net.is_none() && !inside && self.begins(home, queue).is_some() {
            self.begin(home, queue, message, ctx);
            return self.requests.clients.next_open(asker, sent);
        }
        let (devices, mut board) = self.plugged(ctx);
        match (&mut devices.net, cargo(message, false)) {
            (Some(net), Some(cargo)) => net.enter(cargo, &mut board),
            _ => {
                let (homes, threads) = (&self.homes, &self.threads);
                self.requests
                    .send(homes, threads, home, queue, message, ctx);
            }
        }
        self.requests.clients.next_open(asker, sent)
    }

    /// What the clients' thread does next.
    pub(super) fn send_due(&mut self, now: Nanos, ctx: &mut Ctx) -> Action {
        let since = ctx.executed();
        loop {
            let Some(sender) = &mut self.requests.sender else {
                return Action::Block;
            };
            match sender.duty(now) {
                Duty::Nothing => return Action::Block,
                Duty::Until(at) => return Action::SleepUntil { at },
                Duty::Take => break,
                // The VM has stopped meanwhile.
                Duty::Send(asker, _) if self.requests.clients.is_over(asker, now) => (),
                Duty::Send(asker, at) => {
                    if let Some(next) = self.ask(asker, at, ctx)
                        && let Some(sender) = &mut self.requests.sender
                    {
                        sender.ask_at(asker, next);
                    }
                    break;
                }
            }
        }
        let ns = ctx.request_ns(since);
        Action::Compute { ns }
    }
}
