// SPDX-License-Identifier: GPL-2.0-only
//! Requests and messages on their way through queues to threads, and their ends.
use super::api::{CpuId, Ctx, HOST, MachineId, Nanos, Who};
use super::clients::Clients;
use super::events::Event;
use super::homes::Homes;
use super::mail::{Mail, Message};
use super::measured::Measured;
use super::program::Programs;
use super::sender::Sender;
use super::threads::Threads;
use berth_scenario::placement;

/// What a request starts.
#[derive(Clone, Copy, Debug)]
struct Starter {
    /// Its description, in [`Threads::hosts`].
    host: u32,
    machine: MachineId,
    /// How many there have been.
    number: u32,
}

/// Queues, who puts something into them, and what became of it.
pub(super) struct Requests {
    pub clients: Clients,
    /// The clients are a thread.
    pub sender: Option<Sender>,
    pub mail: Mail,
    nr_queues: u16,
    /// By home and queue: where a message sent from there goes.
    routes: Vec<Option<u32>>,
    /// By home and queue: what a request there starts; none: threads take it.
    starts: Vec<Option<Starter>>,
    /// By home and program: how many sizes policies have been told.
    told: Vec<u32>,
    programs: u32,
    /// CPU of the thread of each home that last took a message.
    taken_on: Vec<CpuId>,
    pub measured: Measured,
}

impl Requests {
    pub fn new(homes: &Homes, programs: &Programs, clients: Clients) -> Requests {
        let mut routes = Vec::new();
        for from in homes.vms.iter().map(Some).chain([None]) {
            for queue in &programs.queues {
                let home = placement::receiver(&homes.scenario, from, queue);
                routes.push(home.map(|vm| vm.unwrap_or(homes.host())));
            }
        }
        Requests {
            clients,
            sender: None,
            mail: Mail::new(homes.count(), programs.queues.len()),
            nr_queues: programs.queues.len() as u16,
            routes,
            starts: vec![None; homes.count() * programs.queues.len()],
            told: vec![0; homes.count() * programs.all.len()],
            programs: programs.all.len() as u32,
            taken_on: vec![0; homes.count()],
            measured: Measured::new(homes),
        }
    }

    fn at(&self, home: u32, queue: u16) -> usize {
        home as usize * usize::from(self.nr_queues) + usize::from(queue)
    }

    /// A request to this queue of a home starts a thread as described by `host`.
    pub fn starts_with(&mut self, home: u32, queue: u16, host: u32, machine: MachineId) {
        let at = self.at(home, queue);
        self.starts[at] = Some(Starter {
            host,
            machine,
            number: 0,
        });
    }

    /// What a request starts there.
    pub fn starts(&self, home: u32, queue: u16) -> Option<u32> {
        self.starts[self.at(home, queue)].map(|s| s.host)
    }

    /// Number of the next thread started there.
    pub fn number(&mut self, home: u32, queue: u16) -> u32 {
        let at = self.at(home, queue);
        self.starts[at].as_mut().map_or(0, |s| {
            s.number += 1;
            s.number - 1
        })
    }

    /// Number of the next size that a policy is told of a program.
    pub fn told(&mut self, home: u32, program: u32) -> u32 {
        let told = &mut self.told[(home * self.programs + program) as usize];
        *told += 1;
        *told - 1
    }

    /// The thread that a request started runs for the first time.
    pub fn begun(&mut self, message: Message, now: Nanos) {
        if let Some(from) = message.from {
            let vm = self.clients.streams[from.stream as usize].vm;
            self.measured.begun(vm, now - message.sent, now);
        }
    }

    /// The same has sent its reply, having asked for so much CPU time.
    pub fn served(&mut self, message: Message, asked_ns: Nanos, now: Nanos) {
        if let Some(from) = message.from {
            let vm = self.clients.streams[from.stream as usize].vm;
            let stay = now - message.sent;
            self.measured.waited(vm, stay.saturating_sub(asked_ns), now);
        }
    }

    /// Where a message to this queue goes from this home.
    pub fn route(&self, home: u32, queue: u16) -> Option<u32> {
        self.routes[self.at(home, queue)]
    }

    /// Puts a message into a queue and wakes a thread for it.
    pub fn send(
        &mut self,
        homes: &Homes,
        threads: &Threads,
        home: u32,
        queue: u16,
        message: Message,
        ctx: &mut Ctx,
    ) {
        self.mail.put(home, queue, message);
        if let Some(Starter { machine, .. }) = self.starts[self.at(home, queue)] {
            let cpu = homes.takes_interrupt(home, self.taken_on(home));
            return ctx.at_in(machine, cpu, ctx.now(), Event::Begin(home, queue).token());
        }
        if let Some(thread) = self.waiter(threads, home, queue) {
            self.mail.leave(thread);
            let t = &threads[thread];
            if let Some(job) = t.foreseen {
                ctx.tell_job(t.machine, t.task, job);
            }
            threads.wake(thread, homes, ctx);
        }
    }

    fn waiter(&self, threads: &Threads, home: u32, queue: u16) -> Option<u32> {
        let serves = |thread: u32| {
            let t = &threads[thread];
            let mut served = threads.serves(t.serves).iter();
            t.listens == Some(queue) || served.any(|s| s.queue == queue)
        };
        self.mail.longest_waiting(home, serves)
    }

    /// CPU of the thread that a message for this queue would wake.
    pub fn waits_on(&self, threads: &Threads, home: u32, queue: u16) -> Option<CpuId> {
        let waiter = self.waiter(threads, home, queue)?;
        Some(threads[waiter].cpu)
    }

    /// CPU of the thread of this home that last took a message.
    pub fn taken_on(&self, home: u32) -> CpuId {
        self.taken_on[home as usize]
    }

    /// The request in hand is given up.
    pub fn drop_in_hand(&mut self, threads: &mut Threads, thread: u32, now: Nanos) {
        if let Some(message) = threads[thread].in_hand.take() {
            self.give_up(message, now);
        }
    }

    /// A message will never be answered; that matters for a client's request.
    pub fn give_up(&mut self, message: Message, now: Nanos) {
        if let Some(from) = message.from {
            self.clients.streams[from.stream as usize].unanswered -= 1;
            self.measured.given_up(message.sent, now);
        }
    }

    /// The reply to a client's request has reached it.
    pub fn answered(&mut self, homes: &Homes, message: Message, ctx: &mut Ctx) {
        let Some(from) = message.from else { return };
        let now = ctx.now();
        let stream = &mut self.clients.streams[from.stream as usize];
        stream.unanswered -= 1;
        self.measured
            .answered(stream.vm, message.sent, stream.carried, now);
        if stream.is_open() {
            return;
        }
        let Some(at) = stream.next(from.user, now) else {
            return;
        };
        let asker = stream.asker(from.user);
        match &mut self.sender {
            Some(sender) => {
                sender.answered(asker, at);
                ctx.wake_in(HOST, sender.task);
            }
            None => {
                let place = homes.outside(stream.vm, ctx);
                place.arm(at, Event::Request(asker).token(), ctx);
            }
        }
    }

    /// Gives a pool thread the oldest message in its queues; if there is none, it waits from now on.
    pub fn take(&mut self, threads: &mut Threads, who: Who) -> bool {
        let t = &threads[who.token];
        let (home, serves) = (t.home, threads.serves(t.serves));
        let oldest = self.mail.take(home, serves.iter().map(|s| s.queue));
        let Some((queue, message)) = oldest else {
            self.mail.wait(home, who.token);
            threads[who.token].slept = true;
            return false;
        };
        self.taken_on[home as usize] = who.cpu;
        let program = serves.iter().find(|s| s.queue == queue).map(|s| s.program);
        let t = &mut threads[who.token];
        t.in_hand = Some(message);
        t.step = 0;
        t.program = program.unwrap_or(t.program);
        true
    }

    /// The step `receive` in the middle of a loop: the oldest message of that queue; if there is none, the thread
    /// waits. What it had in hand is given up.
    pub fn receive(&mut self, threads: &mut Threads, thread: u32, queue: u16, now: Nanos) -> bool {
        self.drop_in_hand(threads, thread, now);
        let t = &mut threads[thread];
        let Some((_, message)) = self.mail.take(t.home, [queue]) else {
            t.listens = Some(queue);
            t.slept = true;
            self.mail.wait(t.home, thread);
            return false;
        };
        t.listens = None;
        t.in_hand = Some(message);
        true
    }

    /// A home has stopped: nobody takes what is in its queues.
    pub fn clear(&mut self, home: u32, now: Nanos) {
        while let Some((_, message)) = self.mail.take(home, 0..self.nr_queues) {
            self.give_up(message, now);
        }
    }
}
