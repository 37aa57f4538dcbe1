// SPDX-License-Identifier: GPL-2.0-only
//! Locks, barriers, conditions and shared work of real threads, by the rules that the simulator follows
//! (`docs/network.md`, "Threads that wait for each other"): sleeping locks barge and wake in the order of waiting,
//! spin locks are tickets, signals are not kept, chunks are dealt and stolen by [`berth_scenario::chunks`].
//!
//! Whoever sleeps does so on a futex word of its own, so that exactly the chosen thread is woken. The lists
//! themselves are behind short mutexes, as a C library's are.
use crate::sys::{self, Woken};
use berth_scenario::chunks::{Pool, Share};
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{Dist, Scenario, Step, Task};
use berth_scenario::placement::{HostThread, Work};
use berth_scenario::step::Named;
use std::collections::{BTreeMap, VecDeque};
use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a thread sleeps on.
#[derive(Debug, Default)]
pub struct Parker {
    word: AtomicU32,
    /// When it was last woken.
    woken_ns: AtomicU64,
}

impl Parker {
    fn wake(&self) {
        self.woken_ns.store(sys::now_ns(), Ordering::Relaxed);
        sys::change_and_wake(&self.word, 1);
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There was nothing to wait for.
    No,
    /// Woken at this time, ns.
    Woken(u64),
    /// The run, or the VM, is over.
    Over,
}

/// Spins between two looks at whether the run is over.
const SPINS: u32 = 1 << 12;

#[derive(Debug, Default)]
struct Lock {
    /// Held, and who sleeps for it.
    state: Mutex<(bool, VecDeque<Arc<Parker>>)>,
}

#[derive(Debug, Default)]
struct Ticket {
    next: AtomicU32,
    serving: AtomicU32,
}

#[derive(Debug, Default)]
struct Barrier {
    /// Threads that come to it, and those that have come.
    state: Mutex<(usize, Vec<Arc<Parker>>)>,
}

/// What the threads of one home (a VM, or the host) share, by name.
#[derive(Debug, Default)]
pub struct Home {
    locks: BTreeMap<String, Lock>,
    spins: BTreeMap<String, Ticket>,
    barriers: BTreeMap<String, Barrier>,
    conditions: BTreeMap<String, Mutex<VecDeque<Arc<Parker>>>>,
    pools: BTreeMap<String, Mutex<Pool>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere ends the run; the lists are whole all the same.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn steps(task: &Task) -> impl Iterator<Item = &Step> {
    task.first.iter().chain(&task.steps)
}

/// By VM ordinal; `None` is the host's.
pub fn homes(scenario: &Scenario, vms: u32, seed: u64) -> BTreeMap<Option<u32>, Home> {
    let mut pools: Vec<&str> = Vec::new();
    let mut home = |number: u32| {
        let mut home = Home::default();
        for step in scenario.tasks.values().flat_map(steps) {
            match step.named() {
                Named::Locks { name, spins: false } => {
                    home.locks.entry(name.to_string()).or_default();
                }
                Named::Locks { name, spins: true } => {
                    home.spins.entry(name.to_string()).or_default();
                }
                Named::MeetsAt(name) => {
                    home.barriers.entry(name.to_string()).or_default();
                }
                Named::WaitsFor(name) | Named::Wakes(name) => {
                    home.conditions.entry(name.to_string()).or_default();
                }
                Named::Shares(name) => {
                    // Numbers in the order of the tasks' names and steps, as in the simulator.
                    let pool = pools.iter().position(|p| *p == name).unwrap_or_else(|| {
                        pools.push(name);
                        pools.len() - 1
                    });
                    let stream = Stream::Pool {
                        home: number,
                        pool: pool as u32,
                    };
                    home.pools
                        .entry(name.to_string())
                        .or_insert_with(|| Mutex::new(Pool::new(Rng::new(seed, stream))));
                }
                Named::Nothing
                | Named::Takes(_)
                | Named::SendsTo(_)
                | Named::Starts(_)
                | Named::Unlocks(_)
                | Named::Disk(_) => (),
            }
        }
        home
    };
    let mut all: BTreeMap<_, _> = (0..vms).map(|vm| (Some(vm), home(vm))).collect();
    all.insert(None, home(vms));
    all
}

/// The tasks that a thread does.
fn tasks<'a>(scenario: &'a Scenario, thread: &'a HostThread) -> impl Iterator<Item = &'a Task> {
    let names = match &thread.work {
        Work::Task(name) => std::slice::from_ref(name),
        Work::Pools(names) => names,
    };
    names.iter().filter_map(|name| scenario.tasks.get(name))
}

impl Home {
    /// A thread that will come to these barriers and pools.
    pub fn join(&self, scenario: &Scenario, thread: &HostThread, ordinal: u32) {
        self.for_each(scenario, thread, |barrier, pool| {
            if let Some(barrier) = barrier {
                held(&barrier.state).0 += 1;
            }
            if let Some(pool) = pool {
                held(pool).join(ordinal);
            }
        });
    }

    /// It comes no more: who waits for nobody but it goes on.
    pub fn leave(&self, scenario: &Scenario, thread: &HostThread, ordinal: u32) {
        self.for_each(scenario, thread, |barrier, pool| {
            if let Some(barrier) = barrier {
                let mut state = held(&barrier.state);
                state.0 = state.0.saturating_sub(1);
                if !state.1.is_empty() && state.1.len() >= state.0 {
                    state.1.drain(..).for_each(|p| p.wake());
                }
            }
            if let Some(pool) = pool {
                held(pool).leave(ordinal);
            }
        });
    }

    /// Every barrier and pool of the thread, once.
    fn for_each(
        &self,
        scenario: &Scenario,
        thread: &HostThread,
        mut each: impl FnMut(Option<&Barrier>, Option<&Mutex<Pool>>),
    ) {
        let mut seen = Vec::new();
        for step in tasks(scenario, thread).flat_map(steps) {
            let (Step::Barrier { name } | Step::Chunks { name, .. }) = step else {
                continue;
            };
            if seen.contains(&(step.word(), name)) {
                continue;
            }
            seen.push((step.word(), name));
            match step {
                Step::Barrier { .. } => each(self.barriers.get(name), None),
                _ => each(None, self.pools.get(name)),
            }
        }
    }

    /// Takes a lock, asleep while another thread holds it.
    pub fn lock(&self, name: &str, me: &Arc<Parker>, end: &End<'_>) -> io::Result<Waited> {
        let Some(lock) = self.locks.get(name) else {
            return Ok(Waited::No);
        };
        let mut waited = Waited::No;
        loop {
            let word = me.word.load(Ordering::Acquire);
            {
                let mut state = held(&lock.state);
                if !state.0 {
                    state.0 = true;
                    return Ok(waited);
                }
                state.1.push_back(Arc::clone(me));
            }
            waited = end.wait(me, word)?;
            if waited == Waited::Over {
                return Ok(waited);
            }
        }
    }

    /// Takes a spin lock, burning CPU time while another thread holds it.
    pub fn spin(&self, name: &str, end: &End<'_>) -> Waited {
        let Some(lock) = self.spins.get(name) else {
            return Waited::No;
        };
        let ticket = lock.next.fetch_add(1, Ordering::Relaxed);
        loop {
            for _ in 0..SPINS {
                if lock.serving.load(Ordering::Acquire) == ticket {
                    return Waited::No;
                }
                spin_loop();
            }
            if end.is_over() {
                return Waited::Over;
            }
        }
    }

    /// Gives back a lock of either kind.
    pub fn unlock(&self, name: &str) {
        if let Some(lock) = self.spins.get(name) {
            lock.serving.fetch_add(1, Ordering::Release);
        }
        if let Some(lock) = self.locks.get(name) {
            let mut state = held(&lock.state);
            state.0 = false;
            let next = state.1.pop_front();
            drop(state);
            if let Some(next) = next {
                next.wake();
            }
        }
    }

    /// Comes to a barrier.
    pub fn barrier(&self, name: &str, me: &Arc<Parker>, end: &End<'_>) -> io::Result<Waited> {
        let Some(barrier) = self.barriers.get(name) else {
            return Ok(Waited::No);
        };
        let word = me.word.load(Ordering::Acquire);
        let mut state = held(&barrier.state);
        if state.1.len() + 1 >= state.0 {
            let all = std::mem::take(&mut state.1);
            drop(state);
            all.iter().for_each(|p| p.wake());
            return Ok(Waited::No);
        }
        state.1.push(Arc::clone(me));
        drop(state);
        end.wait(me, word)
    }

    /// Waits for the next signal.
    pub fn wait(&self, name: &str, me: &Arc<Parker>, end: &End<'_>) -> io::Result<Waited> {
        let Some(line) = self.conditions.get(name) else {
            return Ok(Waited::No);
        };
        let word = me.word.load(Ordering::Acquire);
        held(line).push_back(Arc::clone(me));
        end.wait(me, word)
    }

    /// Wakes the thread that has waited longest; `all`: every one.
    pub fn signal(&self, name: &str, all: bool) {
        let Some(line) = self.conditions.get(name) else {
            return;
        };
        let n = if all { usize::MAX } else { 1 };
        let woken: Vec<_> = {
            let mut line = held(line);
            let n = n.min(line.len());
            line.drain(..n).collect()
        };
        woken.iter().for_each(|p| p.wake());
    }

    /// The thread's next chunk, see [`Pool::take`].
    pub fn chunk(&self, name: &str, ordinal: u32, comes: bool, chunks: u32, each: &Dist) -> Share {
        match self.pools.get(name) {
            Some(pool) => held(pool).take(ordinal, comes, chunks, each),
            None => Share::Done,
        }
    }
}

/// Until when a thread may wait.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Changes from 0 when the run is over.
    pub stop: &'a AtomicU32,
    /// End of its VM, if it has one.
    pub at_ns: Option<u64>,
}

impl End<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0 || self.at_ns.is_some_and(|ns| sys::now_ns() >= ns)
    }

    /// Sleeps until the word is no longer this.
    fn wait(&self, me: &Parker, word: u32) -> io::Result<Waited> {
        while me.word.load(Ordering::Acquire) == word {
            if self.is_over() {
                return Ok(Waited::Over);
            }
            if sys::wait(&[(&me.word, word), (self.stop, 0)], self.at_ns)? == Woken::Timeout {
                return Ok(Waited::Over);
            }
        }
        Ok(Waited::Woken(me.woken_ns.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::model::Vm;

    /// A home whose one task has these steps, `threads` of which have joined.
    fn home(steps: Vec<Step>, threads: u32) -> (Scenario, Home) {
        let task = Task {
            name: "t".into(),
            threads: Some(threads),
            steps,
            ..Task::default()
        };
        let vm = Vm {
            name: "v".into(),
            vcpus: threads,
            tasks: vec!["t".into()],
            ..Vm::default()
        };
        let scenario = Scenario {
            vms: vec![vm],
            tasks: [("t".to_string(), task)].into(),
            ..Scenario::default()
        };
        let home = homes(&scenario, 1, 1).remove(&Some(0)).unwrap();
        let list = berth_scenario::placement::threads(&scenario).unwrap();
        for (i, thread) in (0..).zip(&list) {
            home.join(&scenario, thread, i);
        }
        (scenario, home)
    }

    fn name() -> String {
        "x".into()
    }

    #[test]
    fn one_thread_at_a_time_holds_a_lock() {
        let (_, home) = home(
            vec![
                Step::Lock { name: name() },
                Step::Unlock { name: name() },
                Step::Spin { name: "s".into() },
                Step::Unlock { name: "s".into() },
            ],
            4,
        );
        let stop = AtomicU32::new(0);
        let end = End {
            stop: &stop,
            at_ns: None,
        };
        // Read and written in two steps: any overlap loses a count.
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        let add = |count: &AtomicU64| {
            let n = count.load(Ordering::Relaxed);
            spin_loop();
            count.store(n + 1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let me = Arc::default();
                    for i in 0..2_000 {
                        home.lock("x", &me, &end).unwrap();
                        add(&counts[0]);
                        home.unlock("x");
                        // Fewer: where CPUs are few, whoever waits in vain burns its slice.
                        if i % 100 == 0 {
                            home.spin("s", &end);
                            add(&counts[1]);
                            home.unlock("s");
                        }
                    }
                });
            }
        });
        assert_eq!(counts.map(AtomicU64::into_inner), [8_000, 80]);
    }

    #[test]
    fn nobody_leaves_a_barrier_before_all_have_come() {
        let (scenario, home) = home(vec![Step::Barrier { name: name() }], 3);
        let stop = AtomicU32::new(0);
        let end = End {
            stop: &stop,
            at_ns: None,
        };
        let rounds: [AtomicU32; 3] = Default::default();
        let list = berth_scenario::placement::threads(&scenario).unwrap();
        std::thread::scope(|scope| {
            for me in 0..3 {
                let (home, rounds, end, list, scenario) = (&home, &rounds, &end, &list, &scenario);
                scope.spawn(move || {
                    let parker = Arc::default();
                    // The last one ends earlier: the others go on by themselves.
                    let n = if me == 2 { 100 } else { 200 };
                    for round in 0..n {
                        rounds[me].store(round + 1, Ordering::SeqCst);
                        home.barrier("x", &parker, end).unwrap();
                        let others = if round < 100 { 3 } else { 2 };
                        for other in &rounds[..others] {
                            assert!(other.load(Ordering::SeqCst) > round);
                        }
                    }
                    home.leave(scenario, &list[me], me as u32);
                });
            }
        });
        assert_eq!(rounds.map(AtomicU32::into_inner), [200, 200, 100]);
    }

    #[test]
    fn signals_wake_one_or_all_and_the_end_everybody() {
        let (_, home) = home(
            vec![Step::Wait { name: name() }, Step::Signal { name: name() }],
            3,
        );
        let stop = AtomicU32::new(0);
        let end = End {
            stop: &stop,
            at_ns: None,
        };
        let woken = AtomicU32::new(0);
        let waiting = || held(&home.conditions["x"]).len();
        let until = |n: usize| {
            while waiting() != n {
                std::thread::yield_now();
            }
        };
        home.signal("x", true);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let me = Arc::default();
                    while let Waited::Woken(at) = home.wait("x", &me, &end).unwrap() {
                        assert!(at > 0);
                        woken.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            until(3);
            home.signal("x", false);
            while woken.load(Ordering::SeqCst) != 1 {
                std::thread::yield_now();
            }
            until(3);
            home.signal("x", true);
            while woken.load(Ordering::SeqCst) != 4 {
                std::thread::yield_now();
            }
            sys::change_and_wake(&stop, i32::MAX);
        });
        assert_eq!(woken.into_inner(), 4);
    }
}
