// SPDX-License-Identifier: GPL-2.0-only
//! What a thread does next: the steps of its task, one after the other.
use super::api::{Action, Ctx, HOST, Nanos, Who};
use super::device::{Device, Taker};
use super::devices::cargo;
use super::mail::Message;
use super::program::Op;
use super::scenario::ScenarioWorkload;
use super::threads::{BEGUN, GridPhase, IDLE};

impl ScenarioWorkload {
    /// See [`super::api::Workload::next`].
    pub(super) fn step(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        let mut rounds = 0;
        loop {
            let t = &mut self.threads[who.token];
            let program = &self.programs.all[t.program as usize];
            let Some(op) = program.ops.get(t.step as usize) else {
                if t.step == BEGUN {
                    t.step = 0;
                    if let Some(message) = t.in_hand {
                        self.requests.begun(message, now);
                    }
                    let ns = self.receive_cost(who.token);
                    if ns > 0 {
                        return Action::Compute { ns };
                    }
                    continue;
                }
                if t.step != IDLE {
                    t.round += 1;
                    rounds += 1;
                    if program.rounds.is_some_and(|all| t.round >= all) {
                        return self.exit(who, now, ctx);
                    }
                    if rounds > 1 {
                        // Steps that take no time, over and over: let the machine count them.
                        t.step = program.ops.len() as u32;
                        t.round -= 1;
                        return Action::Compute { ns: 0 };
                    }
                }
                if t.serves.1 == 0 {
                    t.step = program.again;
                } else {
                    t.step = IDLE;
                    let (requests, threads) = (&mut self.requests, &mut self.threads);
                    requests.drop_in_hand(threads, who.token, now);
                    if !requests.take(threads, who) {
                        self.foresee(who.token);
                        return Action::Block;
                    }
                    self.tell_size(who.token, ctx);
                    let ns = self.receive_cost(who.token);
                    if ns > 0 {
                        return Action::Compute { ns };
                    }
                }
                continue;
            };
            t.step += 1;
            match op {
                Op::Compute(d) => {
                    let ns = d.sample(&mut t.rng, t.round);
                    t.asked_ns = t.asked_ns.saturating_add(ns);
                    return Action::Compute { ns };
                }
                Op::Busy => return Action::ComputeForever,
                Op::Sleep(d) => {
                    let at = now.saturating_add(d.sample(&mut t.rng, t.round));
                    return Action::SleepUntil { at };
                }
                Op::Begin(sleep) => {
                    let slept = sleep.as_ref().map(|d| d.sample(&mut t.rng, t.round));
                    let at = now.saturating_add(slept.unwrap_or(0));
                    let from_start = t.phases.iter_mut().filter(|p| !p.grid.is_random());
                    from_start.for_each(|p| p.at = at);
                    if slept.is_some() {
                        return Action::SleepUntil { at };
                    }
                }
                Op::Timer { period_ns, grid } => {
                    let is = |p: &&mut GridPhase| (p.period, p.grid) == (*period_ns, *grid);
                    let timer = t.phases.iter_mut().find(is);
                    if let Some(at) = timer.and_then(|timer| timer.next(now)) {
                        return Action::SleepUntil { at };
                    }
                }
                Op::Reply => {
                    if let Some(ns) = self.reply(who.token, ctx) {
                        return Action::Compute { ns };
                    }
                }
                Op::Receive(queue) => {
                    let queue = *queue;
                    t.step -= 1;
                    let requests = &mut self.requests;
                    if !requests.receive(&mut self.threads, who.token, queue, now) {
                        self.foresee(who.token);
                        return Action::Block;
                    }
                    self.threads[who.token].step += 1;
                    self.tell_size(who.token, ctx);
                    let ns = self.receive_cost(who.token);
                    if ns > 0 {
                        return Action::Compute { ns };
                    }
                }
                Op::Send(queue) => {
                    let queue = *queue;
                    if let Some(to) = self.requests.route(t.home, queue) {
                        let (sent, from) = (now, None);
                        let message = Message { sent, from };
                        let (homes, threads) = (&self.homes, &self.threads);
                        self.requests.send(homes, threads, to, queue, message, ctx);
                    }
                }
                Op::Yield => return Action::Yield,
                Op::SetNice(nice) => {
                    let vm = self.homes.vm(t.home).filter(|_| t.machine == HOST);
                    let vm = vm.map_or(0, |vm| vm.nice);
                    return Action::SetNice((nice + vm).clamp(-20, 19));
                }
                Op::Stall(stall) => {
                    return Action::Stall {
                        stalled: stall.ppm,
                        ipc: stall.ipc_milli,
                    };
                }
                Op::SetWorkingSet(bytes) => return Action::SetWorkingSet(*bytes),
                Op::SetAffinity(mask) => {
                    let mask = self.masks.get(t.machine, t.home, *mask);
                    return Action::SetAffinity(mask);
                }
                Op::Fork(child) => {
                    let (parent, child) = (t.host, *child);
                    if let Some(spec) = self.fork(parent, child, ctx) {
                        return Action::Fork(Box::new(spec));
                    }
                }
                Op::Exit => return self.exit(who, now, ctx),
                Op::Disk(disk, write, bytes) => {
                    let record = (*disk, *write, *bytes);
                    if let Some(action) = self.record(who, record, now, ctx) {
                        return action;
                    }
                }
                Op::Shared(_) => {
                    if let Some(action) = self.share(who, now, ctx) {
                        return action;
                    }
                }
            }
        }
    }

    /// The thread has nothing more to do.
    fn exit(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        self.requests
            .drop_in_hand(&mut self.threads, who.token, now);
        self.leave_shared(who.token, ctx);
        let t = &self.threads[who.token];
        self.agents
            .ends(t.home, t.host, &self.threads, ctx.ran(who.task));
        self.completion.ends(self.threads[who.token].home, now);
        Action::Exit
    }

    /// The request in hand is answered. First the CPU time that sending the reply takes, if any, ns: then the step is
    /// asked for once more.
    fn reply(&mut self, thread: u32, ctx: &mut Ctx) -> Option<Nanos> {
        let t = &mut self.threads[thread];
        let cargo = t.in_hand.and_then(|message| cargo(message, true));
        if let (Some(net), Some(cargo), false) = (&mut self.devices.net, cargo, t.packed) {
            let (cpu, woken) = (t.cpu, false);
            let ns = net.guest_ns(cargo, Taker { thread, cpu, woken });
            if ns > 0 {
                t.packed = true;
                t.step -= 1;
                return Some(ns);
            }
        }
        t.packed = false;
        let message = t.in_hand.take()?;
        if self.programs.all[t.program as usize].per_request {
            self.requests.served(message, t.asked_ns, ctx.now());
        }
        let (devices, mut board) = self.plugged(ctx);
        match (&mut devices.net, cargo) {
            (Some(net), Some(cargo)) => net.enter(cargo, &mut board),
            _ => self.requests.answered(&self.homes, message, ctx),
        }
        None
    }

    /// CPU time that a thread owes for the request it has just taken, ns.
    fn receive_cost(&mut self, thread: u32) -> Nanos {
        let t = &mut self.threads[thread];
        let woken = std::mem::take(&mut t.slept);
        let cargo = t.in_hand.and_then(|message| cargo(message, false));
        let cpu = t.cpu;
        match (&mut self.devices.net, cargo) {
            (Some(net), Some(cargo)) => net.guest_ns(cargo, Taker { thread, cpu, woken }),
            _ => 0,
        }
    }
}
