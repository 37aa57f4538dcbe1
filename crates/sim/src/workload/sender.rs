// SPDX-License-Identifier: GPL-2.0-only
//! The clients as one real-time thread of the host, as they are in the lab (`berth_loadgen`).
//!
//! It sleeps until a request is due, puts it into its queue, which wakes whom it is for, and has then something to do
//! on its CPU before it sleeps again; an answer that a client waits for wakes it, too. So requests take the CPU from
//! who runs, for a moment, without the policy being asked: threads of such classes do that on hosts, too.
use super::api::{Nanos, SchedClass, TaskId, TaskSpec};
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

/// What the thread has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// A client takes its answer.
    Take,
    /// This client sends a request that was due then.
    Send(u32, Nanos),
    /// Nothing before this instant.
    Until(Nanos),
    /// Nothing before an answer.
    Nothing,
}

impl Sender {
    /// For so many clients.
    pub fn new(askers: usize) -> Sender {
        Sender {
            task: TaskId::MAX,
            due: BinaryHeap::with_capacity(askers),
            answered: false,
        }
    }

    /// Its thread.
    pub fn spec() -> TaskSpec {
        TaskSpec {
            token: SENDER,
            name: "clients".into(),
            class: SchedClass::Rt,
            ..TaskSpec::default()
        }
    }

    /// A client's next request is due then.
    pub fn ask_at(&mut self, asker: u32, at: Nanos) {
        self.due.push(Reverse((at, asker)));
    }

    /// A client has its answer, and asks again then. The thread is to be woken.
    pub fn answered(&mut self, asker: u32, at: Nanos) {
        self.ask_at(asker, at);
        self.answered = true;
    }

    /// What it does now.
    pub fn duty(&mut self, now: Nanos) -> Duty {
        if std::mem::take(&mut self.answered) {
            return Duty::Take;
        }
        match self.due.peek() {
            None => Duty::Nothing,
            Some(Reverse((at, _))) if *at > now => Duty::Until(*at),
            Some(&Reverse((at, asker))) => {
                self.due.pop();
                Duty::Send(asker, at)
            }
        }
    }
}
