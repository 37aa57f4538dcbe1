// SPDX-License-Identifier: GPL-2.0-only
//! Locks, barriers, conditions and shared work among the threads of one home (a VM, or the host).
//!
//! * **Sleeping locks** barge, as Linux' futexes do: `unlock` frees the lock and wakes the thread that has waited
//!   longest; whoever runs first takes it, and a woken thread that finds it taken waits again, last in line.
//! * **Spin locks** are handed over first come, first served, as queued spin locks are: the next waiter owns the
//!   lock from the unlock on, even if it has no CPU just then (lock-waiter preemption).
//! * **Barriers** open when every thread that has them in its steps has come; threads may be born and die.
//! * **Conditions** keep nothing: a signal that finds nobody waiting is lost.
//! * **Work pools**: see [`berth_scenario::chunks`].
//!
//! Waiting threads are links through one array: nothing is allocated but for births. A thread that can never go
//! on is found when the last edge of the cycle is made: see [`Sync::stuck`].
use berth_scenario::chunks::Pool;
pub(super) use berth_scenario::chunks::Share;
use berth_scenario::dist::Rng;
use berth_scenario::model::Dist;

const NONE: u32 = u32::MAX;

/// What a thread waits for; the number is the object's, over all homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Nothing,
    Lock(u32),
    Spin(u32),
    Barrier(u32),
    Condition(u32),
}

/// Waiting threads, first come first.
#[derive(Clone, Copy, Debug)]
struct Line {
    head: u32,
    tail: u32,
    len: u32,
}

const EMPTY: Line = Line {
    head: NONE,
    tail: NONE,
    len: 0,
};

#[derive(Clone, Copy, Debug)]
struct Lock {
    holder: u32,
    line: Line,
}

#[derive(Clone, Copy, Debug)]
struct Barrier {
    parties: u32,
    line: Line,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    home: u32,
    waits: Waits,
    next: u32,
    /// Locks it holds.
    held: u32,
    alive: bool,
}

/// Threads of a home, and those of them that wait for another one.
#[derive(Clone, Copy, Debug, Default)]
struct Home {
    threads: u32,
    waiting: u32,
}

/// What an unlock does to another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlocked {
    /// Nobody waits.
    Free,
    /// It is woken and tries again.
    Wake(u32),
    /// It owns the spin lock now.
    Handed(u32),
}

/// Numbers of names per home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub locks: u32,
    pub barriers: u32,
    pub conditions: u32,
    pub pools: u32,
}

/// What threads of a home share; see the module's comment.
#[derive(Debug)]
pub(super) struct Sync {
    counts: Counts,
    locks: Vec<Lock>,
    barriers: Vec<Barrier>,
    conditions: Vec<Line>,
    pools: Vec<Pool>,
    threads: Vec<Thread>,
    homes: Vec<Home>,
}

impl Sync {
    /// `rng`: random numbers of the chunks of a pool, by home and pool.
    pub fn new(homes: u32, counts: Counts, rng: impl Fn(u32, u32) -> Rng) -> Sync {
        let lock = Lock {
            holder: NONE,
            line: EMPTY,
        };
        let barrier = Barrier {
            parties: 0,
            line: EMPTY,
        };
        let mut pools = Vec::new();
        for home in 0..homes {
            for pool in 0..counts.pools {
                pools.push(Pool::new(rng(home, pool)));
            }
        }
        Sync {
            counts,
            locks: vec![lock; (homes * counts.locks) as usize],
            barriers: vec![barrier; (homes * counts.barriers) as usize],
            conditions: vec![EMPTY; (homes * counts.conditions) as usize],
            pools,
            threads: Vec::new(),
            homes: vec![Home::default(); homes as usize],
        }
    }

    /// Nothing in the scenario is shared: no thread has to be told.
    pub fn is_unused(&self) -> bool {
        self.counts == Counts::default()
    }

    /// A thread is born in a home, with these barriers and pools in its steps.
    pub fn join(&mut self, thread: u32, home: u32, barriers: &[u32], pools: &[u32]) {
        let new = Thread {
            home,
            waits: Waits::Nothing,
            next: NONE,
            held: 0,
            alive: true,
        };
        while self.threads.len() <= thread as usize {
            self.threads.push(Thread {
                alive: false,
                ..new
            });
        }
        self.threads[thread as usize] = new;
        self.homes[home as usize].threads += 1;
        for b in barriers {
            self.barriers[(home * self.counts.barriers + b) as usize].parties += 1;
        }
        for p in pools {
            self.pools[(home * self.counts.pools + p) as usize].join(thread);
        }
    }

    /// A thread has died (its steps forbid that while it holds a lock). A barrier that waited for nobody but it
    /// opens: its waiters are then given to `wake`.
    pub fn leave(&mut self, thread: u32, barriers: &[u32], pools: &[u32], wake: impl FnMut(u32)) {
        let Some(t) = self.threads.get_mut(thread as usize).filter(|t| t.alive) else {
            return;
        };
        t.alive = false;
        let home = t.home;
        self.homes[home as usize].threads -= 1;
        let mut wake = wake;
        for b in barriers {
            let b = (home * self.counts.barriers + b) as usize;
            self.barriers[b].parties -= 1;
            if self.barriers[b].line.len > 0
                && self.barriers[b].line.len == self.barriers[b].parties
            {
                self.open(b, &mut wake);
            }
        }
        for p in pools {
            self.pools[(home * self.counts.pools + p) as usize].leave(thread);
        }
    }

    /// All threads of a home are gone at once: everything there is free again.
    pub fn clear(&mut self, home: u32) {
        let own = |n: u32| (home * n) as usize..((home + 1) * n) as usize;
        for lock in &mut self.locks[own(self.counts.locks)] {
            (lock.holder, lock.line) = (NONE, EMPTY);
        }
        for barrier in &mut self.barriers[own(self.counts.barriers)] {
            (barrier.parties, barrier.line) = (0, EMPTY);
        }
        self.conditions[own(self.counts.conditions)].fill(EMPTY);
        for pool in &mut self.pools[own(self.counts.pools)] {
            pool.clear();
        }
        for t in self.threads.iter_mut().filter(|t| t.home == home) {
            t.alive = false;
        }
        self.homes[home as usize] = Home::default();
    }

    fn wait(&mut self, thread: u32, waits: Waits) {
        let t = &mut self.threads[thread as usize];
        t.waits = waits;
        t.next = NONE;
        self.homes[t.home as usize].waiting += 1;
        let line = match waits {
            Waits::Nothing => return,
            Waits::Lock(l) | Waits::Spin(l) => &mut self.locks[l as usize].line,
            Waits::Barrier(b) => &mut self.barriers[b as usize].line,
            Waits::Condition(c) => &mut self.conditions[c as usize],
        };
        let last = line.tail;
        line.tail = thread;
        line.len += 1;
        if last == NONE {
            line.head = thread;
        } else {
            self.threads[last as usize].next = thread;
        }
    }

    /// The first of a line goes on.
    fn pop(threads: &mut [Thread], homes: &mut [Home], line: &mut Line) -> Option<u32> {
        if line.head == NONE {
            return None;
        }
        let first = line.head;
        let t = &mut threads[first as usize];
        line.head = t.next;
        line.len -= 1;
        if line.head == NONE {
            line.tail = NONE;
        }
        t.waits = Waits::Nothing;
        homes[t.home as usize].waiting -= 1;
        Some(first)
    }

    /// Takes a lock, or waits for it: `spins` burning CPU, else asleep. A sleeper tries again once woken.
    pub fn lock(&mut self, thread: u32, lock: u32, spins: bool) -> bool {
        let t = &mut self.threads[thread as usize];
        let number = t.home * self.counts.locks + lock;
        let l = &mut self.locks[number as usize];
        if l.holder == NONE {
            l.holder = thread;
            t.held += 1;
            return true;
        }
        let waits = if spins {
            Waits::Spin(number)
        } else {
            Waits::Lock(number)
        };
        self.wait(thread, waits);
        false
    }

    /// Gives a lock back. Nothing happens if another thread holds it.
    pub fn unlock(&mut self, thread: u32, lock: u32) -> Unlocked {
        let t = &mut self.threads[thread as usize];
        let l = &mut self.locks[(t.home * self.counts.locks + lock) as usize];
        if l.holder != thread {
            return Unlocked::Free;
        }
        l.holder = NONE;
        t.held -= 1;
        let spins = match l.line.head {
            NONE => return Unlocked::Free,
            first => matches!(self.threads[first as usize].waits, Waits::Spin(_)),
        };
        match Sync::pop(&mut self.threads, &mut self.homes, &mut l.line) {
            Some(next) if spins => {
                l.holder = next;
                self.threads[next as usize].held += 1;
                Unlocked::Handed(next)
            }
            Some(next) => Unlocked::Wake(next),
            None => Unlocked::Free,
        }
    }

    fn open(&mut self, barrier: usize, wake: &mut impl FnMut(u32)) {
        let line = &mut self.barriers[barrier].line;
        while let Some(thread) = Sync::pop(&mut self.threads, &mut self.homes, line) {
            wake(thread);
        }
    }

    /// Comes to a barrier. `true`: it was the last one, the others are given to `wake`; else it waits.
    pub fn barrier(&mut self, thread: u32, barrier: u32, mut wake: impl FnMut(u32)) -> bool {
        let number = self.threads[thread as usize].home * self.counts.barriers + barrier;
        let b = &self.barriers[number as usize];
        if b.line.len + 1 >= b.parties {
            self.open(number as usize, &mut wake);
            return true;
        }
        self.wait(thread, Waits::Barrier(number));
        false
    }

    /// Waits for the next signal.
    pub fn wait_for(&mut self, thread: u32, condition: u32) {
        let number = self.threads[thread as usize].home * self.counts.conditions + condition;
        self.wait(thread, Waits::Condition(number));
    }

    /// The thread that has waited longest goes on.
    pub fn signal(&mut self, home: u32, condition: u32) -> Option<u32> {
        let line = &mut self.conditions[(home * self.counts.conditions + condition) as usize];
        Sync::pop(&mut self.threads, &mut self.homes, line)
    }

    /// See [`Pool::take`].
    pub fn chunk(
        &mut self,
        thread: u32,
        pool: u32,
        comes: bool,
        chunks: u32,
        each: &Dist,
    ) -> Share {
        let home = self.threads[thread as usize].home;
        let pool = &mut self.pools[(home * self.counts.pools + pool) as usize];
        pool.take(thread, comes, chunks, each)
    }

    /// What the thread waits for.
    pub fn waits(&self, thread: u32) -> Waits {
        let t = self.threads.get(thread as usize);
        t.map_or(Waits::Nothing, |t| t.waits)
    }

    /// Who holds a lock.
    pub fn holder(&self, lock: u32) -> Option<u32> {
        let holder = self.locks.get(lock as usize)?.holder;
        (holder != NONE).then_some(holder)
    }

    /// Name of an object in the list of its kind, and what kind it is.
    pub fn name_of(&self, waits: Waits) -> usize {
        let name = |number: u32, names: u32| (number % names.max(1)) as usize;
        match waits {
            Waits::Nothing => 0,
            Waits::Lock(n) | Waits::Spin(n) => name(n, self.counts.locks),
            Waits::Barrier(n) => name(n, self.counts.barriers),
            Waits::Condition(n) => name(n, self.counts.conditions),
        }
    }

    /// After a thread has begun to wait: can it never go on? Then the threads that wait for each other, it first.
    ///
    /// Two cases, each complete. (1) Every thread of the home waits for another one: nobody is left to go on.
    /// (2) A cycle: who waits for a lock waits for its holder, who waits at a barrier for every thread that has
    /// not come. (Who waits for a condition may be woken by anybody who runs.) The thread makes the last edge of
    /// such a cycle only if the holder of its lock waits itself, or if it comes to a barrier while it holds a
    /// lock or while others wait at another barrier; nothing else is looked at.
    pub fn stuck(&self, thread: u32, at_barrier: impl Fn(u32, u32) -> bool) -> Option<Vec<u32>> {
        let t = &self.threads[thread as usize];
        let home = &self.homes[t.home as usize];
        if home.waiting == home.threads {
            let all = (0..self.threads.len() as u32).filter(|o| {
                let o = &self.threads[*o as usize];
                o.alive && o.home == t.home
            });
            let mut all: Vec<u32> = all.collect();
            all.sort_by_key(|o| *o != thread);
            return Some(all);
        }
        let suspicious = match t.waits {
            Waits::Lock(l) | Waits::Spin(l) => {
                let holder = self.locks[l as usize].holder;
                holder != NONE && self.threads[holder as usize].waits != Waits::Nothing
            }
            Waits::Barrier(b) => t.held > 0 || self.others_wait(t.home, b),
            Waits::Nothing | Waits::Condition(_) => false,
        };
        if !suspicious {
            return None;
        }
        let mut seen = vec![false; self.threads.len()];
        let mut path = vec![thread];
        self.leads_back(thread, thread, &at_barrier, &mut seen, &mut path)
            .then_some(path)
    }

    /// Threads wait at another barrier of the home.
    fn others_wait(&self, home: u32, barrier: u32) -> bool {
        let first = home * self.counts.barriers;
        (first..first + self.counts.barriers)
            .any(|b| b != barrier && self.barriers[b as usize].line.len > 0)
    }

    /// Depth first from `from` along "needs"; `path` is the way so far.
    #[cold]
    fn leads_back(
        &self,
        from: u32,
        goal: u32,
        at_barrier: &impl Fn(u32, u32) -> bool,
        seen: &mut [bool],
        path: &mut Vec<u32>,
    ) -> bool {
        let needs: Vec<u32> = match self.threads[from as usize].waits {
            Waits::Lock(l) | Waits::Spin(l) => self.holder(l).into_iter().collect(),
            Waits::Barrier(b) => {
                let home = self.threads[from as usize].home;
                let name = b % self.counts.barriers.max(1);
                let missing = |o: &u32| {
                    let t = &self.threads[*o as usize];
                    t.alive
                        && t.home == home
                        && t.waits != Waits::Barrier(b)
                        && at_barrier(*o, name)
                };
                (0..self.threads.len() as u32).filter(missing).collect()
            }
            Waits::Nothing | Waits::Condition(_) => Vec::new(),
        };
        for o in needs {
            if o == goal {
                return true;
            }
            if std::mem::replace(&mut seen[o as usize], true) {
                continue;
            }
            path.push(o);
            if self.leads_back(o, goal, at_barrier, seen, path) {
                return true;
            }
            path.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::dist::{Rng as Random, Stream};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn sync(counts: Counts, threads: u32) -> Sync {
        let mut s = Sync::new(2, counts, |h, p| Random::new(1, Stream::Thread(h * 8 + p)));
        let barriers: Vec<u32> = (0..counts.barriers).collect();
        let pools: Vec<u32> = (0..counts.pools).collect();
        for t in 0..threads {
            s.join(t, 1, &barriers, &pools);
        }
        s
    }

    #[test]
    fn a_sleeping_lock_barges_and_a_spin_lock_is_handed_over() {
        let counts = Counts {
            locks: 2,
            ..Counts::default()
        };
        let mut s = sync(counts, 3);
        assert!(s.lock(0, 0, false));
        assert!(!s.lock(1, 0, false));
        assert!(!s.lock(2, 0, false));
        assert_eq!(s.unlock(0, 0), Unlocked::Wake(1));
        // Thread 0 is faster; thread 1 lines up again, behind thread 2.
        assert!(s.lock(0, 0, false));
        assert!(!s.lock(1, 0, false));
        assert_eq!(s.unlock(0, 0), Unlocked::Wake(2));
        assert!(s.lock(2, 0, false));
        assert_eq!(s.unlock(0, 0), Unlocked::Free, "not its own");
        assert_eq!(s.unlock(2, 0), Unlocked::Wake(1));

        assert!(s.lock(0, 1, true));
        assert!(!s.lock(1, 1, true));
        assert!(!s.lock(2, 1, true));
        assert_eq!(s.unlock(0, 1), Unlocked::Handed(1));
        assert_eq!(s.holder(2 + 1), Some(1), "before it has run at all");
        assert!(!s.lock(0, 1, true));
        assert_eq!(s.unlock(1, 1), Unlocked::Handed(2));
        assert_eq!(s.unlock(2, 1), Unlocked::Handed(0));
        assert_eq!(s.unlock(0, 1), Unlocked::Free);
    }

    #[test]
    fn a_barrier_opens_when_all_have_come_or_the_missing_one_dies() {
        let counts = Counts {
            barriers: 1,
            ..Counts::default()
        };
        let mut s = sync(counts, 3);
        let mut woken = Vec::new();
        assert!(!s.barrier(2, 0, |_| unreachable!()));
        assert!(!s.barrier(0, 0, |_| unreachable!()));
        assert!(s.barrier(1, 0, |t| woken.push(t)));
        assert_eq!(woken, [2, 0]);
        assert!(!s.barrier(1, 0, |_| unreachable!()));
        assert!(!s.barrier(0, 0, |_| unreachable!()));
        s.leave(2, &[0], &[], |t| woken.push(t));
        assert_eq!(woken[2..], [1, 0]);
        s.leave(1, &[0], &[], |_| unreachable!());
        assert!(s.barrier(0, 0, |_| unreachable!()), "alone");
    }

    #[test]
    fn signals_are_not_kept() {
        let counts = Counts {
            conditions: 1,
            ..Counts::default()
        };
        let mut s = sync(counts, 2);
        assert_eq!(s.signal(1, 0), None);
        s.wait_for(1, 0);
        s.wait_for(0, 0);
        assert_eq!(s.signal(0, 0), None, "another home's");
        assert_eq!(
            (s.signal(1, 0), s.signal(1, 0), s.signal(1, 0)),
            (Some(1), Some(0), None)
        );
    }

    #[test]
    fn a_cycle_is_found_when_its_last_edge_is_made() {
        let counts = Counts {
            locks: 2,
            barriers: 2,
            ..Counts::default()
        };
        // Threads 0 to 2 come to barrier 0, thread 3 is busy with something else.
        let comes = |t: u32, b: u32| b == 0 && t < 3 || b == 1 && t < 2;
        let fresh = || {
            let mut s = sync(counts, 0);
            for t in 0..4 {
                let at: Vec<u32> = (0..2).filter(|b| comes(t, *b)).collect();
                s.join(t, 1, &at, &[]);
            }
            s
        };
        // Two locks in opposite order.
        let mut s = fresh();
        assert!(s.lock(0, 0, false) && s.lock(1, 1, true));
        assert!(!s.lock(0, 1, true));
        assert_eq!(s.stuck(0, comes), None);
        assert!(!s.lock(1, 0, false));
        assert_eq!(s.stuck(1, comes), Some(vec![1, 0]));
        // A barrier under a lock that another party needs: either may be last.
        let mut s = fresh();
        assert!(s.lock(0, 0, false) && !s.lock(1, 0, false));
        assert_eq!(s.stuck(1, comes), None);
        assert!(!s.barrier(0, 0, |_| unreachable!()));
        assert_eq!(s.stuck(0, comes), Some(vec![0, 1]));
        let mut s = fresh();
        assert!(s.lock(0, 0, false) && !s.barrier(0, 0, |_| unreachable!()));
        assert_eq!(s.stuck(0, comes), None);
        assert!(!s.lock(1, 0, false));
        assert_eq!(s.stuck(1, comes), Some(vec![1, 0]));
        // Two barriers in opposite order.
        let mut s = fresh();
        assert!(!s.barrier(0, 0, |_| unreachable!()) && !s.barrier(1, 1, |_| unreachable!()));
        assert_eq!(s.stuck(1, comes), Some(vec![1, 0]));
        // Thread 2 comes to barrier 0 too, and the busy thread waits for a lock: nobody is left.
        let mut s = fresh();
        assert!(s.lock(0, 0, false) && !s.lock(3, 0, false) && !s.lock(2, 0, false));
        assert!(!s.lock(1, 0, false));
        assert_eq!(s.stuck(1, comes), None, "the holder runs");
    }

    #[test]
    fn nobody_left_to_signal_is_a_deadlock() {
        let counts = Counts {
            conditions: 1,
            ..Counts::default()
        };
        let mut s = sync(counts, 2);
        s.wait_for(0, 0);
        assert_eq!(s.stuck(0, |_, _| false), None);
        s.wait_for(1, 0);
        assert_eq!(s.stuck(1, |_, _| false), Some(vec![1, 0]));
    }

    proptest! {
        /// Locks against a plain model: one holder, first come first served, nobody forgotten.
        #[test]
        fn locks_agree_with_plain_lines(spins: bool, ops in proptest::collection::vec((0u32..5, 0u32..2), 0..200)) {
            let counts = Counts { locks: 2, ..Counts::default() };
            let mut s = sync(counts, 5);
            let mut holder = [None; 2];
            let mut line: [VecDeque<u32>; 2] = Default::default();
            for (t, l) in ops {
                if s.waits(t) != Waits::Nothing {
                    continue;
                }
                let at = l as usize;
                if holder[at] == Some(t) {
                    holder[at] = None;
                    let next = line[at].pop_front();
                    let want = match next {
                        None => Unlocked::Free,
                        Some(n) if spins => {
                            holder[at] = next;
                            Unlocked::Handed(n)
                        }
                        Some(n) => Unlocked::Wake(n),
                    };
                    prop_assert_eq!(s.unlock(t, l), want);
                } else {
                    let free = holder[at].is_none();
                    prop_assert_eq!(s.lock(t, l, spins), free);
                    if free { holder[at] = Some(t) } else { line[at].push_back(t) }
                }
                for l in 0..2 {
                    prop_assert_eq!(s.holder(2 + l), holder[l as usize]);
                }
            }
        }
    }
}
