// SPDX-License-Identifier: GPL-2.0-only
//! Who waited for whom, from the observer's log: the simulator's account ([`Blame`]), kept from what a kernel showed.
//!
//! What runs and is none of the scenario's threads (kernel threads, the clients' thread) is the host's. So the account
//! has more than the stays of [`crate::observe`]: a thread that was interrupted waited for the host meanwhile. It is
//! the kernel's own run delay (schedstat), cut by cause.
use crate::cast::Cast;
use berth_results::blame::Blame;
use std::collections::BTreeMap;

/// The account of a run.
#[derive(Debug)]
pub(crate) struct Account {
    blame: Blame,
    /// Threads that wait, and the CPU on whose run queue each does.
    waiting: BTreeMap<u32, u16>,
    /// The measured window.
    window: (u64, u64),
    begun: bool,
    ended: bool,
}

/// What a CPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Idle,
    /// None of the scenario's threads.
    Outside,
    Thread(u32),
}

impl Account {
    pub fn new(cast: &Cast, cpus: u32, window: (u64, u64)) -> Account {
        let groups: Vec<u32> = cast.vms.iter().map(|(_, group)| *group).collect();
        Account {
            blame: Blame::new(&groups, cpus),
            waiting: BTreeMap::new(),
            window,
            begun: false,
            ended: false,
        }
    }

    /// Time goes on to here: the ends of the window are accounted for.
    pub fn at(&mut self, now: u64) {
        if !self.begun && now >= self.window.0 {
            self.begun = true;
            self.blame.settle(self.window.0);
            self.blame.reset();
        }
        if !self.ended && now >= self.window.1 {
            self.ended = true;
            self.blame.settle(self.window.1);
        }
    }

    fn entry(cast: &Cast, tid: u32) -> u32 {
        cast.members.get(&tid).map_or(cast.host(), |m| m.entry)
    }

    /// A thread begins to wait on this CPU, or goes over to it.
    pub fn waits(&mut self, cast: &Cast, tid: u32, cpu: u16, now: u64) {
        if self.ended {
            return;
        }
        let entry = Account::entry(cast, tid);
        match self.waiting.insert(tid, cpu) {
            Some(old) if old == cpu => return,
            Some(old) => self.blame.leave(old.into(), entry, now),
            None => (),
        }
        self.blame.enter(cpu.into(), entry, now);
    }

    /// A waiting thread goes over to this CPU's run queue; others are left alone.
    pub fn moves(&mut self, cast: &Cast, tid: u32, cpu: u16, now: u64) {
        if self.waiting.contains_key(&tid) {
            self.waits(cast, tid, cpu, now);
        }
    }

    /// The CPU changes from one to another; `stays`: the previous one waits from now on.
    pub fn switch(&mut self, cast: &Cast, cpu: u16, now: u64, (prev, stays): (On, bool), next: On) {
        if self.ended {
            return;
        }
        let of = |on: On| match on {
            On::Idle => None,
            On::Outside => Some(cast.host()),
            On::Thread(tid) => Some(Account::entry(cast, tid)),
        };
        // What is switched in waited here until now, for however short a time.
        match next {
            On::Thread(tid) => {
                self.waits(cast, tid, cpu, now);
                self.waiting.remove(&tid);
            }
            On::Outside => self.blame.enter(cpu.into(), cast.host(), now),
            On::Idle => (),
        }
        let mut stays = stays;
        if let On::Thread(tid) = prev {
            // Seen to wait although it ran: its switch was not seen.
            if let Some(old) = self.waiting.remove(&tid) {
                self.blame.leave(old.into(), of(prev).unwrap_or(0), now);
            }
            if stays {
                self.waiting.insert(tid, cpu);
            }
        } else {
            stays = false;
        }
        self.blame
            .switch(cpu.into(), now, of(prev), stays, of(next));
    }

    /// The rows, after the last event.
    pub fn finish(mut self) -> Blame {
        self.at(self.window.1);
        self.blame
    }
}
