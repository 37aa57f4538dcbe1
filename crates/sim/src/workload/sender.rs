// SPDX-License-Identifier: GPL-2.0-only
//! The clients as one real-time thread of the host, as they are in the lab (`berth_loadgen`).
//!
//! It sleeps until a request is due, puts it into its queue, which wakes whom it is for, and has then something to do
//! on its CPU before it sleeps again; an answer that a client waits for wakes it, too. So requests take the CPU from who runs, for
//! a moment, without the policy being asked: threads of such classes do that on hosts, too.
use super::api::{Action, Ctx, HOST, Nanos, SchedClass, TaskId, TaskSpec};
use super::scenario::ScenarioWorkload;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The workload's number of that thread, which is none of the scenario's.
pub(super) const SENDER: u32 = u32::MAX;

/// What the thread knows.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub task: TaskId,
    /// Requests to send, and by whom, the first one on top.
    due: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Somebody was answered.
    answered: bool,
}

impl ScenarioWorkload {
    /// Starts the thread, if the host's costs have one and there are clients; `false` if not.
    pub(super) fn start_sender(&mut self, ctx: &mut Ctx) -> bool {
        let nr = self.clients.askers.len();
        if self.scenario.host.cost.request_ns == 0 || nr == 0 || self.net.is_some() {
            return false;
        }
        self.sender = Some(Sender {
            task: TaskId::MAX,
            due: BinaryHeap::with_capacity(nr),
            answered: false,
        });
        ctx.spawn(&TaskSpec {
            token: SENDER,
            name: "clients".into(),
            class: SchedClass::Rt,
            ..TaskSpec::default()
        });
        true
    }

    /// A client's next request is due then.
    pub(super) fn ask_at(&mut self, asker: u32, at: Nanos) {
        if let Some(sender) = &mut self.sender {
            sender.due.push(Reverse((at, asker)));
        }
    }

    /// A client has its answer, and asks again then.
    pub(super) fn answer(&mut self, asker: u32, at: Nanos, ctx: &mut Ctx) {
        self.ask_at(asker, at);
        if let Some(sender) = &mut self.sender {
            sender.answered = true;
            ctx.wake_in(HOST, sender.task);
        }
    }

    /// What the thread does next.
    pub(super) fn send_due(&mut self, now: Nanos, ctx: &mut Ctx) -> Action {
        let since = ctx.executed();
        loop {
            let Some(sender) = &mut self.sender else {
                return Action::Block;
            };
            if std::mem::take(&mut sender.answered) {
                break;
            }
            match sender.due.peek() {
                None => return Action::Block,
                Some(Reverse((at, _))) if *at > now => return Action::SleepUntil { at: *at },
                Some(&Reverse((at, asker))) => {
                    sender.due.pop();
                    let stream = self.clients.askers[asker as usize].stream;
                    if self.clients.streams[stream as usize].is_over(now) {
                        // The VM has stopped meanwhile.
                        continue;
                    }
                    if let Some(next) = self.ask(asker, at, ctx) {
                        self.ask_at(asker, next);
                    }
                    break;
                }
            }
        }
        let ns = ctx.request_ns(since);
        Action::Compute { ns }
    }
}
