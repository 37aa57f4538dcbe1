// SPDX-License-Identifier: GPL-2.0-only
//! The steps that involve other threads of the home: locks, barriers, conditions, shared work. The rules are in
//! [`super::sync`].
use super::api::{Action, Ctx, Nanos, Who};
use super::program::{Op, Shared};
use super::scenario::ScenarioWorkload;
use super::sync::{Share, Unlocked, Waits};
use crate::error::SimError;

impl ScenarioWorkload {
    /// Does the thread's present step (the one before its next); `None`: it goes on with the next one.
    pub(super) fn share(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Option<Action> {
        let me = who.token;
        let t = &self.threads[me];
        let home = self.homes.meets(t.home);
        let Op::Shared(op) = &self.programs.all[t.program as usize].ops[t.step as usize - 1] else {
            return None; // Asked for shared steps only.
        };
        let (sync, threads) = (&mut self.sync, &self.threads);
        let mut wake = |other: u32| {
            ctx.wake(threads[other].task);
        };
        let waits = match op {
            Shared::Lock(lock) => {
                if sync.lock(me, *lock, false) {
                    return None;
                }
                // Once awake, it tries again.
                self.threads[me].step -= 1;
                Action::Block
            }
            Shared::Spin(lock) => {
                if sync.lock(me, *lock, true) {
                    return None;
                }
                Action::Spin
            }
            Shared::Unlock(lock) => {
                match sync.unlock(me, *lock) {
                    Unlocked::Free => (),
                    Unlocked::Wake(other) => wake(other),
                    Unlocked::Handed(other) => {
                        ctx.release(threads[other].task);
                    }
                }
                return None;
            }
            Shared::Barrier(barrier) => {
                if sync.barrier(me, *barrier, wake) {
                    return None;
                }
                Action::Block
            }
            Shared::Wait(condition) => {
                sync.wait_for(me, *condition);
                Action::Block
            }
            Shared::Signal(condition) => {
                if let Some(other) = sync.signal(home, *condition) {
                    wake(other);
                }
                return None;
            }
            Shared::Broadcast(condition) => {
                while let Some(other) = sync.signal(home, *condition) {
                    wake(other);
                }
                return None;
            }
            Shared::Chunks { pool, chunks, each } => {
                let t = &mut self.threads[me];
                return match sync.chunk(me, *pool, !t.sharing, *chunks, each) {
                    Share::Done => {
                        t.sharing = false;
                        None
                    }
                    Share::Chunk { ns, .. } => {
                        t.sharing = true;
                        t.step -= 1;
                        Some(Action::Compute { ns })
                    }
                };
            }
        };
        let at_barrier = |thread: u32, barrier: u32| {
            let host = self.threads[thread].host;
            self.threads.hosts[host as usize]
                .barriers
                .contains(&barrier)
        };
        if let Some(stuck) = self.sync.stuck(me, at_barrier) {
            let what = self.deadlock(&stuck);
            ctx.fail(SimError::Deadlock { what, at_ns: now });
        }
        Some(waits)
    }

    /// The thread ends: who waits at a barrier for nobody but it goes on.
    pub(super) fn leave_shared(&mut self, thread: u32, ctx: &mut Ctx) {
        let threads = &self.threads;
        let host = &self.threads.hosts[threads[thread].host as usize];
        self.sync
            .leave(thread, &host.barriers, &host.pools, |other| {
                ctx.wake(threads[other].task);
            });
    }

    /// Who waits for what, as one sentence.
    #[cold]
    fn deadlock(&self, stuck: &[u32]) -> String {
        const SHOWN: usize = 4;
        let thread = |t: u32| {
            let t = &self.threads[t];
            let task = &self.programs.all[t.program as usize].task;
            format!(
                "`{task}` ({})",
                self.threads.hosts[t.host as usize].spec.name
            )
        };
        let names = &self.programs.names;
        let mut parts = Vec::new();
        for &t in stuck.iter().take(SHOWN) {
            let waits = self.sync.waits(t);
            let at = self.sync.name_of(waits);
            parts.push(match waits {
                Waits::Lock(l) | Waits::Spin(l) => {
                    let kind = if waits == Waits::Spin(l) {
                        "spin lock"
                    } else {
                        "lock"
                    };
                    let holder = self.sync.holder(l).map(thread).unwrap_or_default();
                    format!(
                        "{} waits for {kind} `{}`, held by {holder}",
                        thread(t),
                        names.locks[at]
                    )
                }
                Waits::Barrier(_) => {
                    format!("{} waits at barrier `{}`", thread(t), names.barriers[at])
                }
                Waits::Condition(_) => {
                    format!(
                        "{} waits for `{}`, which nobody left can signal",
                        thread(t),
                        names.conditions[at]
                    )
                }
                Waits::Nothing => continue,
            });
        }
        if stuck.len() > SHOWN {
            parts.push(format!("and so do {} more threads", stuck.len() - SHOWN));
        }
        parts.join(", ")
    }
}
