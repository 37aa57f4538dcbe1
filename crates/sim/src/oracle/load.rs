// SPDX-License-Identifier: GPL-2.0-only
//! Loads of queueing theory, as work for the simulated machine: one thread per request, closed cycles, hogs.
//!
//! They bypass scenario, pools and clients on purpose: here the scheduler alone decides who waits.
use super::reference::Request;
use crate::words::{Nanos, TaskId, TaskSpec, Who};
use crate::workload::api::{Action, Ctx, Workload};
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::Dist;
use std::collections::BTreeMap;

/// `n` requests with Poisson arrivals; arrivals and service times from two streams of the seed.
pub fn poisson(seed: u64, n: u64, mean_gap_ns: f64, service: &Dist) -> Vec<Request> {
    let gap = Dist::Exp {
        mean_ns: mean_gap_ns,
    };
    let stream = |i| Rng::new(seed, Stream::Thread(i));
    let (mut arrivals, mut services) = (stream(0), stream(1));
    let mut at = 0;
    (0..n)
        .map(|i| {
            at += gap.sample(&mut arrivals, i);
            Request {
                arrival: at,
                // Nothing that takes no time: it could not be told from a thread that finds no work.
                service: service.sample(&mut services, i).max(1),
            }
        })
        .collect()
}

/// An open system: every request is done by a thread of its own, which sleeps between two requests.
#[derive(Debug)]
pub struct Open {
    requests: Vec<Request>,
    /// 0 until the request is done.
    responses: Vec<Nanos>,
    next: usize,
    threads: Vec<TaskId>,
    /// Request of each thread: number, and whether its service has been asked for.
    hands: Vec<Option<(usize, bool)>>,
    idle: Vec<u32>,
}

impl Open {
    pub fn new(requests: Vec<Request>) -> Open {
        Open {
            responses: vec![0; requests.len()],
            requests,
            next: 0,
            threads: Vec::new(),
            hands: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Response time of each request, in the order of arrival; 0 = not done.
    pub fn responses(&self) -> &[Nanos] {
        &self.responses
    }

    fn arm(&self, ctx: &mut Ctx) {
        if let Some(r) = self.requests.get(self.next) {
            ctx.at(r.arrival, 0);
        }
    }

    fn add_thread(&mut self, ctx: &mut Ctx) -> u32 {
        let token = self.threads.len() as u32;
        self.threads.push(TaskId::MAX);
        self.hands.push(None);
        ctx.spawn(&TaskSpec {
            token,
            name: "request".into(),
            ..TaskSpec::default()
        });
        token
    }
}

impl Workload for Open {
    fn start(&mut self, ctx: &mut Ctx) {
        self.arm(ctx);
    }

    fn born(&mut self, token: u32, task: TaskId) {
        self.threads[token as usize] = task;
    }

    fn died(&mut self, _token: u32, _task: TaskId) {}

    fn next(&mut self, who: Who, now: Nanos, _ctx: &mut Ctx) -> Action {
        let hand = &mut self.hands[who.token as usize];
        match hand {
            Some((request, asked @ false)) => {
                *asked = true;
                Action::Compute {
                    ns: self.requests[*request].service,
                }
            }
            Some((request, true)) => {
                self.responses[*request] = now - self.requests[*request].arrival;
                *hand = None;
                self.idle.push(who.token);
                Action::Block
            }
            None => Action::Block,
        }
    }

    fn event(&mut self, _token: u64, _now: Nanos, ctx: &mut Ctx) {
        let request = self.next;
        self.next += 1;
        match self.idle.pop() {
            Some(thread) => {
                self.hands[thread as usize] = Some((request, false));
                ctx.wake(self.threads[thread as usize]);
            }
            // A new thread is born awake.
            None => {
                let thread = self.threads.len();
                self.add_thread(ctx);
                self.hands[thread] = Some((request, false));
            }
        }
        self.arm(ctx);
    }

    fn measure_from(&mut self, _now: Nanos) {}

    fn metrics(&self, _now: Nanos, _out: &mut BTreeMap<String, f64>) {}
}

/// A closed system: workers think and compute in turn, hogs compute without end.
#[derive(Debug)]
pub struct Closed {
    workers: u32,
    hogs: u32,
    think: Dist,
    service: Dist,
    threads: Vec<Worker>,
    responses: Vec<Nanos>,
}

#[derive(Debug)]
struct Worker {
    rng: Rng,
    /// Thinks begun.
    round: u64,
    /// End of the present think; `None` while it computes.
    wakes: Option<Nanos>,
    /// End of the last one.
    woke: Nanos,
}

impl Closed {
    pub fn new(seed: u64, workers: u32, think: Dist, service: Dist, hogs: u32) -> Closed {
        let worker = |i| Worker {
            rng: Rng::new(seed, Stream::Thread(i)),
            round: 0,
            wakes: None,
            woke: 0,
        };
        Closed {
            workers,
            hogs,
            think,
            service,
            threads: (0..workers).map(worker).collect(),
            responses: Vec::new(),
        }
    }

    /// Time from the end of each think to the end of the computation after it, in the order of the latter.
    pub fn responses(&self) -> &[Nanos] {
        &self.responses
    }
}

impl Workload for Closed {
    fn start(&mut self, ctx: &mut Ctx) {
        for token in 0..self.workers + self.hogs {
            ctx.spawn(&TaskSpec {
                token,
                name: if token < self.workers {
                    "worker"
                } else {
                    "hog"
                }
                .into(),
                ..TaskSpec::default()
            });
        }
    }

    fn born(&mut self, _token: u32, _task: TaskId) {}

    fn died(&mut self, _token: u32, _task: TaskId) {}

    fn next(&mut self, who: Who, now: Nanos, _ctx: &mut Ctx) -> Action {
        let Some(w) = self.threads.get_mut(who.token as usize) else {
            return Action::ComputeForever;
        };
        if let Some(woke) = w.wakes.take() {
            w.woke = woke;
            let ns = self.service.sample(&mut w.rng, w.round).max(1);
            return Action::Compute { ns };
        }
        if w.round > 0 {
            self.responses.push(now - w.woke);
        }
        w.round += 1;
        let at = now + self.think.sample(&mut w.rng, w.round);
        w.wakes = Some(at);
        Action::SleepUntil { at }
    }

    fn event(&mut self, _token: u64, _now: Nanos, _ctx: &mut Ctx) {}

    fn measure_from(&mut self, _now: Nanos) {}

    fn metrics(&self, _now: Nanos, _out: &mut BTreeMap<String, f64>) {}
}
