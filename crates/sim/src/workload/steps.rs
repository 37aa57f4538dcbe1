// SPDX-License-Identifier: GPL-2.0-only
//! What a thread does next: the steps of its task, one after the other.
use super::api::{Action, Ctx, HOST, Nanos, Who};
use super::mail::Message;
use super::program::Op;
use super::scenario::ScenarioWorkload;
use super::threads::IDLE;

impl ScenarioWorkload {
    /// See [`super::api::Workload::next`].
    pub(super) fn step(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        let mut rounds = 0;
        self.threads[who.token as usize].cpu = who.cpu;
        if let Some(back) = self.threads[who.token as usize].back {
            return self.move_packets(who, back, now, ctx);
        }
        loop {
            let t = &mut self.threads[who.token as usize];
            let program = &self.programs.all[t.program as usize];
            let Some(op) = program.ops.get(t.step as usize) else {
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
                    self.finish(who.token, now, false, None);
                    if !self.take_message(who) {
                        return Action::Block;
                    }
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
                    return Action::Compute {
                        ns: d.sample(&mut t.rng, t.round),
                    };
                }
                Op::Busy => return Action::ComputeForever,
                Op::Sleep(d) => {
                    let at = now.saturating_add(d.sample(&mut t.rng, t.round));
                    return Action::SleepUntil { at };
                }
                Op::Timer { period_ns } => {
                    let grid = t.phases.iter().find(|p| p.period == *period_ns);
                    let phase = grid.map_or(0, |p| p.at);
                    let at = match now.checked_sub(phase) {
                        None => phase,
                        Some(since) => phase + (since / period_ns + 1) * period_ns,
                    };
                    return Action::SleepUntil { at };
                }
                Op::Reply if self.net.is_none() => self.finish(who.token, now, true, Some(ctx)),
                Op::Reply => {
                    let cost = match &t.in_hand {
                        Some(message) if message.from.is_some() && !t.packed => {
                            let message = *message;
                            self.cost_out(&message)
                        }
                        _ => 0,
                    };
                    let t = &mut self.threads[who.token as usize];
                    if cost > 0 {
                        t.packed = true;
                        t.step -= 1;
                        return Action::Compute { ns: cost };
                    }
                    t.packed = false;
                    self.transmit(who.token, now, ctx);
                }
                Op::Receive(queue) => {
                    let queue = *queue;
                    t.step -= 1;
                    if !self.receive(who, queue, now) {
                        return Action::Block;
                    }
                    self.threads[who.token as usize].step += 1;
                    let ns = self.receive_cost(who.token);
                    if ns > 0 {
                        return Action::Compute { ns };
                    }
                }
                Op::Send(queue) => {
                    let (queue, home) = (*queue, t.home as usize);
                    let route = self.routes[home * self.programs.queues.len() + usize::from(queue)];
                    if let Some(to) = route {
                        let message = Message {
                            sent: now,
                            from: None,
                        };
                        self.send(to, queue, message, ctx);
                    }
                }
                Op::Yield => return Action::Yield,
                Op::SetNice(nice) => {
                    let group = self.groups.get(t.home as usize);
                    let group = group.filter(|_| t.machine == HOST);
                    let vm = group.map_or(0, |g| self.scenario.vms[*g as usize].nice);
                    return Action::SetNice((nice + vm).clamp(-20, 19));
                }
                Op::SetAffinity(mask) => {
                    let masks = match t.machine {
                        HOST => &self.masks,
                        _ => &self.guest_masks[t.home as usize],
                    };
                    return Action::SetAffinity(masks[*mask as usize]);
                }
                Op::Fork(child) => {
                    let (parent, child) = (t.host, *child);
                    if let Some(spec) = self.fork(parent, child, ctx) {
                        return Action::Fork(Box::new(spec));
                    }
                }
                Op::Exit => return self.exit(who, now, ctx),
                _ => {
                    if let Some(action) = self.share(who, now, ctx) {
                        return action;
                    }
                }
            }
        }
    }

    /// The thread has nothing more to do.
    fn exit(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        self.finish(who.token, now, false, None);
        self.leave_shared(who.token, ctx);
        let home = self.threads[who.token as usize].home;
        self.completion.ends(home, now);
        Action::Exit
    }
}
