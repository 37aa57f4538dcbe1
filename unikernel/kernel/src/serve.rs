// SPDX-License-Identifier: GPL-2.0-only
//! Requests over UDP, a task each: from the network card, or from clients of its own.
use crate::machine::exit::{Code, refuse};
use crate::machine::nic::Nic;
use crate::machine::thread::Thread;
use crate::machine::{clock, heap, lock::Lock};
use crate::report::{self, Served};
use crate::say;
use crate::switch::{self, New};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use unikernel_service::card::Card;
use unikernel_service::clients::Clients;
use unikernel_service::options::Options;
use unikernel_service::request::{PORT, Request};
use unikernel_service::stack::{Sender, Stack};
use unikernel_service::workload::{Errors, Sizes};

/// A card without interrupts is asked so often, us.
const ASK_US: u64 = 50;
/// At most so many requests are tasks at once, whatever the memory.
const TASKS_MAX: usize = 4096;

/// A card that can be waited for.
trait Line: Card {
    /// Before main waits: when it must look again, us. A time that is now: it need not wait at all.
    fn listen(&mut self, now_us: u64) -> Option<u64>;
    /// After it waited.
    fn ignore(&mut self) {}
    /// Nothing will come any more.
    fn is_done(&self) -> bool {
        false
    }
    /// The request of this sender is not answered.
    fn refuse(&mut self, _: Sender) {}
}

impl Line for Nic {
    fn listen(&mut self, now_us: u64) -> Option<u64> {
        if !self.interrupts() {
            return Some(now_us + ASK_US);
        }
        Nic::listen(self).then_some(now_us)
    }

    fn ignore(&mut self) {
        if self.interrupts() {
            Nic::ignore(self);
        }
    }
}

impl Line for Clients {
    fn listen(&mut self, _: u64) -> Option<u64> {
        self.due_us()
    }

    fn is_done(&self) -> bool {
        Clients::is_done(self)
    }

    fn refuse(&mut self, sender: Sender) {
        self.give_up(sender.port);
    }
}

/// A reply that a task has made: what it says, to whom, and when it was asked for.
struct Reply {
    bytes: Vec<u8>,
    to: Sender,
    since_us: u64,
}

static REPLIES: Lock<Vec<Reply>> = Lock::new(Vec::new());

struct Server<'a, C: Line> {
    options: &'a Options,
    stack: Stack<C>,
    errors: Errors,
    served: Served,
    /// What could not be sent yet.
    waiting: VecDeque<Reply>,
    /// Tasks that are not answered yet, and how many there may be.
    open: usize,
    open_max: usize,
}

impl<'a, C: Line> Server<'a, C> {
    fn new(options: &'a Options, card: C, mac: [u8; 6]) -> Server<'a, C> {
        let seed = options.seed ^ clock::now_ns();
        let stack = Stack::new(
            card,
            mac,
            options.ip,
            options.gateway,
            seed,
            clock::now_us(),
        );
        let errors = Errors::new(options.seed, options.sigma());
        let open_max = (heap::bytes() / 2 / Thread::BYTES).clamp(16, TASKS_MAX);
        Server {
            options,
            stack,
            errors,
            served: Served::default(),
            waiting: VecDeque::new(),
            open: 0,
            open_max,
        }
    }

    /// Serves until `requests` are answered, or the card has no more.
    fn run(&mut self) {
        loop {
            let start_us = clock::now_us();
            self.stack.poll(start_us);
            let taken = self.take_requests(start_us);
            let sent = self.send_replies();
            let (options, served) = (self.options, self.served);
            let text = |refused| report::text(options, &served, refused);
            let asked = self.stack.answer(start_us, text);
            let enough = self.options.requests > 0 && self.served.replies >= self.options.requests;
            let open = self.open > 0;
            if enough || !open && self.waiting.is_empty() && self.stack.card().is_done() {
                return;
            }
            let now_us = clock::now_us();
            if taken + sent + asked > 0 {
                // While there are tasks the network takes at most half of CPU 0: a flood must not stop them.
                if open {
                    let pause_us = (now_us - start_us).max(self.options.coalesce_us);
                    switch::wait_until(now_us + pause_us, true);
                }
                continue;
            }
            if !self.waiting.is_empty() {
                // The card needs some time.
                switch::wait_until(now_us + ASK_US, true);
                continue;
            }
            let due_us = self.stack.card().listen(now_us);
            if due_us.is_none_or(|due_us| due_us > now_us) {
                switch::wait_until(due_us.unwrap_or(u64::MAX), false);
            }
            self.stack.card().ignore();
        }
    }

    fn take_requests(&mut self, now_us: u64) -> usize {
        let mut batch = Vec::new();
        let mut taken = 0;
        while let Some((bytes, to)) = self.stack.request() {
            taken += 1;
            self.served.requests += 1;
            let request = Request::read(&bytes);
            let work_us = u64::from(request.work_us);
            if work_us > self.options.work_max_us {
                self.served.refused += 1;
                self.stack.card().refuse(to);
                continue;
            }
            let reply = Reply {
                bytes,
                to,
                since_us: now_us,
            };
            if self.options.inline {
                clock::work_us(work_us);
                self.waiting.push_back(reply);
                continue;
            }
            if self.open + self.waiting.len() >= self.open_max {
                self.served.dropped += 1;
                self.stack.card().refuse(reply.to);
                continue;
            }
            self.open += 1;
            batch.push(New {
                id: self.served.requests,
                estimate_us: self.errors.estimate_us(work_us as f64),
                class: request.class,
                body: Box::new(move || {
                    clock::work_us(work_us);
                    REPLIES.with(|replies| replies.push(reply));
                    switch::want_main();
                }),
            });
        }
        switch::admit(batch);
        taken
    }

    fn send_replies(&mut self) -> usize {
        let replies = REPLIES.with(core::mem::take);
        self.open -= replies.len();
        self.waiting.extend(replies);
        let mut sent = 0;
        while let Some(reply) = self.waiting.front() {
            let now_us = clock::now_us();
            if !self.stack.reply(&reply.bytes, reply.to, now_us) {
                break;
            }
            let response_us = now_us - reply.since_us;
            let (sum_us, max_us) = self.served.response_us;
            self.served.response_us = (sum_us + response_us, max_us.max(response_us));
            self.served.replies += 1;
            self.waiting.pop_front();
            sent += 1;
        }
        sent
    }

    fn report(&self) {
        for line in report::text(self.options, &self.served, self.stack.refused()).lines() {
            say!("{line}");
        }
    }
}

/// Serves whoever asks over the network card.
pub fn serve(options: &Options) -> Code {
    let nic = Nic::find().unwrap_or_else(|why| refuse(Code::Machine, format_args!("{why}")));
    let (mac, interrupts) = (nic.mac(), nic.interrupts());
    clock::measure_work();
    let mut server = Server::new(options, nic, mac);
    let [a, b, c, d] = options.ip;
    let how = if interrupts { "interrupts" } else { "polled" };
    say!(
        "ready at {a}.{b}.{c}.{d}:{PORT}, {how}, after {} us",
        clock::now_us()
    );
    server.run();
    server.report();
    Code::Done
}

/// Serves clients of its own.
pub fn closed(options: &Options) -> Code {
    const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
    let (me, server) = Clients::ends(MAC, options.ip, options.gateway);
    let wanted = options.closed_requests();
    let sizes = Sizes::new(options.seed, options.mean_us, 0.0);
    clock::measure_work();
    let start_us = clock::now_us();
    let clients = Clients::new(
        me,
        server,
        start_us,
        options.clients as usize,
        options.rtt_us,
        wanted,
        sizes,
    );
    let mut server = Server::new(options, clients, MAC);
    server.run();
    let elapsed_us = clock::now_us() - start_us;
    let mut responses_us = server.stack.card().take_responses_us();
    responses_us.sort_unstable();
    let count = responses_us.len();
    let quantile = |part: usize| {
        responses_us
            .get((count * part / 1000).min(count.saturating_sub(1)))
            .copied()
            .unwrap_or(0)
    };
    let sum_us: u64 = responses_us.iter().map(|us| u64::from(*us)).sum();
    let (refused, wrong) = (server.stack.card().refused(), server.stack.card().wrong());
    server.report();
    say!(
        "closed: replies={count} refused={refused} wrong={wrong} elapsed_us={elapsed_us} replies_per_s={} \
         response_us_mean={} response_us_p50={} response_us_p99={} response_us_max={}",
        count as u64 * 1_000_000 / elapsed_us.max(1),
        sum_us / count.max(1) as u64,
        quantile(500),
        quantile(990),
        quantile(1000),
    );
    if count as u64 + refused == wanted && wrong == 0 {
        Code::Done
    } else {
        Code::Failed
    }
}
