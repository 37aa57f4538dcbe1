// SPDX-License-Identifier: GPL-2.0-only
//! Tasks with a thread for each request: the clients' thread starts one, which ends with the task's loop.
//!
//! A new thread is a real-time one, as its maker is, until the policy has been told how long its request will take: so
//! the record is there when the policy first sees the thread runnable. A thread that changes its class keeps its CPU,
//! whatever the policy thinks of it; so it then sleeps for a moment, and its request begins when it wakes.
use crate::mailbox::Message;
use crate::metrics::Latencies;
use crate::procfs::{self, ThreadCounters};
use crate::shared::{Shared, Slot};
use crate::worker::{self, Worker};
use crate::{LoadError, sys};
use berth_identity::JobRecord;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{Nanos, Scenario, Step, Task};
use berth_scenario::placement::{self, HostThread};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Threads of requests at a time, of all tasks.
const MOST_ALIVE: u32 = 4096;
/// Long enough for a thread to be asleep before its timer ends.
const NAP_NS: Nanos = 20_000;
/// Between two looks at whether all have ended.
const LOOK_NS: Nanos = 100_000_000;

/// Told a thread's id, and how long its next job will take.
pub type Tell = dyn Fn(i32, &JobRecord) -> io::Result<()> + Send + Sync;

/// How the policy is told of jobs, if it wants to be.
#[derive(Clone, Default)]
pub struct Teller(pub Option<Arc<Tell>>);

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Teller({})", self.0.is_some())
    }
}

/// How long a thread will compute from this step of its loop on, until it takes the next request or begins anew: what
/// it is about to draw.
pub fn ahead(task: &Task, step: usize, rng: &Rng, round: u64) -> Nanos {
    let mut rng = rng.clone();
    let mut ns: Nanos = 0;
    for step in task.steps.iter().skip(step) {
        match step {
            Step::Compute(d) => ns = ns.saturating_add(d.sample(&mut rng, round)),
            // It draws from the same numbers.
            Step::Sleep(d) => _ = d.sample(&mut rng, round),
            Step::Receive(_) | Step::Exit | Step::Busy => break,
            _ => (),
        }
    }
    ns
}

#[derive(Debug, Default)]
struct Threads {
    alive: BTreeMap<i32, Arc<Slot>>,
    /// Ids of all there ever were.
    ids: Vec<i32>,
    /// Of those that have ended.
    counters: ThreadCounters,
    work_ns: u64,
    latencies: Latencies,
}

/// A task of a home of which each request starts a thread.
#[derive(Debug)]
pub struct Birth {
    /// What such a thread is.
    pub thread: HostThread,
    pub home: Option<u32>,
    pub queue: String,
    /// Numbers of task and home in random streams.
    task: u16,
    home_number: u16,
    next: AtomicU32,
    threads: Mutex<Threads>,
}

/// All of a run.
#[derive(Debug, Default)]
pub struct Births {
    pub all: Vec<Birth>,
    /// Threads that are there; whoever waits for the end sleeps on it.
    alive: AtomicU32,
    ordinals: AtomicU32,
}

/// Numbers of a task and of a home in random streams, as the simulator counts them.
pub fn numbers(scenario: &Scenario, home: Option<u32>, task: &str) -> (u16, u16) {
    let task = scenario.tasks.keys().position(|name| name == task);
    let home = home.map_or_else(|| placement::instances(scenario).len(), |vm| vm as usize);
    let number = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    (number(task.unwrap_or(0)), number(home))
}

impl Births {
    /// `threads`: how many there are besides.
    pub fn new(scenario: &Scenario, threads: usize) -> Births {
        let birth = |thread: HostThread| {
            let task = scenario.tasks.get(&thread.name)?;
            let home = thread.vm.as_ref().map(|vm| vm.ordinal);
            let (number, home_number) = numbers(scenario, home, &task.name);
            Some(Birth {
                queue: placement::pool_queue(task)?.to_string(),
                home,
                task: number,
                home_number,
                next: AtomicU32::new(0),
                threads: Mutex::default(),
                thread,
            })
        };
        let all = placement::per_request(scenario, &|_| false);
        Births {
            all: all.into_iter().filter_map(birth).collect(),
            alive: AtomicU32::new(0),
            ordinals: AtomicU32::new(threads as u32),
        }
    }

    /// Which of them the requests to a queue of a home start.
    pub fn at(&self, home: Option<u32>, queue: &str) -> Option<usize> {
        let here = |b: &Birth| b.home == home && b.queue == queue;
        self.all.iter().position(here)
    }

    /// Waits until all their threads have ended; the run must be over.
    pub fn wait(&self) {
        loop {
            let alive = self.alive.load(Ordering::Acquire);
            if alive == 0 {
                return;
            }
            let _ = sys::wait(&[(&self.alive, alive)], Some(sys::now_ns() + LOOK_NS));
        }
    }
}

/// A thread that is alive, until it is dropped.
struct Alive {
    shared: Arc<Shared>,
    birth: usize,
    tid: i32,
}

impl Drop for Alive {
    fn drop(&mut self) {
        let births = &self.shared.births;
        let counters = procfs::times(self.tid).unwrap_or_default();
        let mut threads = births.all[self.birth].threads();
        if let Some(slot) = threads.alive.remove(&self.tid) {
            threads.counters.add(&counters);
            threads.work_ns += slot.work();
        }
        drop(threads);
        births.alive.fetch_sub(1, Ordering::Release);
        sys::wake(&births.alive, i32::MAX);
    }
}

impl Birth {
    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What its threads have counted so far, and worked.
    pub fn counters(&self) -> (ThreadCounters, u64) {
        let threads = self.threads();
        let (mut counters, mut work) = (threads.counters, threads.work_ns);
        for (tid, slot) in &threads.alive {
            counters.add(&procfs::times(*tid).unwrap_or_default());
            work += slot.work();
        }
        (counters, work)
    }

    pub fn latencies(&self) -> Latencies {
        self.threads().latencies.clone()
    }

    /// Each thread there was, and its id.
    pub fn ids(&self) -> Vec<(HostThread, i32)> {
        let threads = self.threads();
        let of = |tid: &i32| (self.thread.clone(), *tid);
        threads.ids.iter().map(of).collect()
    }
}

/// A request starts a thread. Only the clients' thread calls this.
pub fn begin(shared: &Arc<Shared>, birth: usize, message: Message) {
    let births = &shared.births;
    let it = &births.all[birth];
    if births.alive.load(Ordering::Acquire) >= MOST_ALIVE {
        return shared.note(format!(
            "requests to {} were lost where {MOST_ALIVE} threads were there already",
            it.thread.name
        ));
    }
    let number = it.next.fetch_add(1, Ordering::Relaxed);
    let ordinal = births.ordinals.fetch_add(1, Ordering::Relaxed);
    births.alive.fetch_add(1, Ordering::AcqRel);
    let own = Arc::clone(shared);
    let work = move || {
        let tid = sys::gettid();
        let alive = Alive {
            shared: own,
            birth,
            tid,
        };
        if let Err(e) = live(&alive, number, ordinal, message) {
            let name = &alive.shared.births.all[birth].thread.name;
            alive
                .shared
                .note(format!("a thread of {name} did not do its work: {e}"));
        }
    };
    let builder = std::thread::Builder::new()
        .name(it.thread.name.clone())
        .stack_size(64 << 10);
    if let Err(e) = builder.spawn(work) {
        births.alive.fetch_sub(1, Ordering::Release);
        shared.note(format!(
            "requests to {} found no thread: {e}",
            it.thread.name
        ));
    }
}

/// The life of such a thread.
fn live(alive: &Alive, number: u32, ordinal: u32, message: Message) -> Result<(), LoadError> {
    let Alive { shared, birth, tid } = alive;
    let birth = &shared.births.all[*birth];
    let slot = Arc::new(Slot::alone(birth.thread.clone(), ordinal, *tid));
    {
        let mut threads = birth.threads();
        threads.alive.insert(*tid, Arc::clone(&slot));
        threads.ids.push(*tid);
    }
    let (task, home) = (birth.task, birth.home_number);
    let rng = Rng::new(shared.seed, Stream::Request { task, home, number });
    let Some(of) = shared.scenario.tasks.get(&birth.thread.name) else {
        return Ok(());
    };
    if let Some(estimate) = of.estimate {
        let size_ns = ahead(of, 1, &rng, u64::from(number));
        let stream = Stream::Estimate { task, home, number };
        shared.tell_job(
            *tid,
            &JobRecord {
                size_ns: Rng::new(shared.seed, stream).estimate(estimate, size_ns),
                each: true,
            },
        );
    }
    worker::set_up(shared, &birth.thread)?;
    let failed = |what: &'static str| {
        let thread = birth.thread.name.clone();
        move |source| LoadError::Thread {
            thread,
            what,
            source,
        }
    };
    if !shared.sched_ext {
        sys::become_ordinary().map_err(failed("cannot become an ordinary one"))?;
    }
    sys::wait(&[(shared.stop(), 0)], Some(sys::now_ns() + NAP_NS))
        .map_err(failed("cannot sleep"))?;
    let home = shared.home(&birth.thread);
    home.join(&shared.scenario, &birth.thread, ordinal);
    let worker = Worker::new(Arc::clone(shared), slot, birth.thread.clone());
    let done = worker.answer(rng, number, message);
    home.leave(&shared.scenario, &birth.thread, ordinal);
    birth.threads().latencies.add(&done?);
    Ok(())
}
