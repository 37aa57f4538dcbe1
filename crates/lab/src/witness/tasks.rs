// SPDX-License-Identifier: GPL-2.0-only
//! Inside a real guest: the threads that do the tasks of its VM, and what each notes.
//!
//! Work is counted in turns of a loop whose speed was measured before, not in CPU time: a guest's kernel may count
//! stolen time as used. A busy thread notes every hole in its own time line; what it ran in a wait is the wait less its
//! holes. The thread that answers sleeps by itself until a request is due: a thread that woke it would be one more to
//! schedule.
use berth_results::guest::Answer;
use berth_scenario::dist::{Arrivals, Rng, Stream};
use berth_scenario::model::{Nanos, Step, Task};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// A hole in a busy thread's time line, at least: less is an interrupt, or the emulator's.
pub const HOLE_NS: Nanos = 400_000;
/// Work between two looks at the clock.
const CHUNK_NS: Nanos = 20_000;

pub fn now_ns() -> Nanos {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid place for the result; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Sleeps until then; not at all if that has passed.
pub fn sleep_until(at_ns: Nanos) {
    let t = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as i64,
        tv_nsec: (at_ns % 1_000_000_000) as i64,
    };
    // SAFETY: `t` outlives the call. Interrupted by a signal it sleeps again.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &t,
            std::ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

fn spin(turns: u64) {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..turns {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}

/// Turns of the loop per microsecond where nobody disturbs: the fastest of 30 tries.
pub fn turns_per_us() -> f64 {
    const TURNS: u64 = 20_000;
    let tries = (0..30).map(|_| {
        let from = now_ns();
        spin(TURNS);
        now_ns() - from
    });
    TURNS as f64 * 1e3 / tries.min().unwrap_or(1).max(1) as f64
}

/// A lock that a waiter sleeps for.
#[derive(Debug, Default)]
struct Lock {
    held: Mutex<bool>,
    free: Condvar,
}

pub fn whole<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has ended the run; nothing was left half done.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// What the threads of the guest share.
#[derive(Debug)]
pub struct Shared {
    pub turns_per_us: f64,
    pub stop: AtomicBool,
    locks: BTreeMap<String, Lock>,
}

impl Shared {
    pub fn new<'a>(tasks: impl Iterator<Item = &'a Task>, turns_per_us: f64) -> Shared {
        let steps = tasks.flat_map(|t| t.first.iter().chain(&t.steps));
        let name = |step: &Step| match step {
            Step::Lock { name } => Some((name.clone(), Lock::default())),
            _ => None,
        };
        Shared {
            turns_per_us,
            stop: AtomicBool::new(false),
            locks: steps.filter_map(name).collect(),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What a thread notes, read by others.
#[derive(Debug, Default)]
pub struct Notes {
    /// Turns of the loop it has done.
    pub turns: AtomicU64,
    /// Busy threads: (begin, length), in order; there when the thread has ended.
    pub holes: Mutex<Vec<(Nanos, Nanos)>>,
    /// The thread that answers: (due, begin of its work, end).
    pub answers: Mutex<Vec<(Nanos, Nanos, Nanos)>>,
}

/// One thread of a task.
pub struct Worker {
    pub shared: Arc<Shared>,
    pub notes: Arc<Notes>,
    pub task: Task,
    pub rng: Rng,
    /// When requests are due, and what that is counted from; of the task that answers them.
    pub requests: Option<(Arrivals, Nanos)>,
}

impl Worker {
    /// Random numbers of the thread with this number.
    pub fn rng(seed: u64, ordinal: u32) -> Rng {
        Rng::new(seed, Stream::Thread(ordinal))
    }

    /// Its steps, until the run ends.
    pub fn run(mut self) {
        // SAFETY: takes one number: wake-ups of this thread's timers are not batched.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
        // SAFETY: plain numbers; 0 names the calling thread. A refused nice value is a wrong recording.
        if self.task.nice != 0
            && unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.task.nice) } != 0
        {
            println!("BERTH-GUEST error nice {} was refused", self.task.nice);
        }
        let task = std::mem::take(&mut self.task);
        let mut round = 0;
        let mut steps = &task.first;
        let (mut due, mut began) = (0, 0);
        loop {
            for step in steps {
                if self.shared.stopped() {
                    return;
                }
                match step {
                    Step::Busy => return self.busy(),
                    Step::Compute(d) => {
                        let ns = d.sample(&mut self.rng, round);
                        self.compute(ns);
                    }
                    Step::Sleep(d) => {
                        let ns = d.sample(&mut self.rng, round);
                        sleep_until(now_ns() + ns);
                    }
                    Step::Receive(_) => {
                        let Some(at) = self.next_request() else {
                            return;
                        };
                        sleep_until(at);
                        (due, began) = (at, now_ns());
                    }
                    Step::Reply => whole(&self.notes.answers).push((due, began, now_ns())),
                    Step::Yield => std::thread::yield_now(),
                    Step::Lock { name } => self.lock(name),
                    Step::Unlock { name } => self.unlock(name),
                    // `Watched::of` has refused any other before the boot.
                    _ => return,
                }
            }
            steps = &task.steps;
            round += 1;
        }
    }

    fn next_request(&mut self) -> Option<Nanos> {
        let (arrivals, from) = self.requests.as_mut()?;
        Some(*from + arrivals.next()?)
    }

    fn compute(&self, ns: Nanos) {
        let turns = (ns as f64 * self.shared.turns_per_us / 1e3) as u64;
        spin(turns);
        self.notes.turns.fetch_add(turns, Ordering::Relaxed);
    }

    fn busy(&self) {
        let turns = ((CHUNK_NS as f64 * self.shared.turns_per_us / 1e3) as u64).max(1);
        let mut holes = Vec::with_capacity(1 << 16);
        let mut last = now_ns();
        while !self.shared.stopped() {
            spin(turns);
            self.notes.turns.fetch_add(turns, Ordering::Relaxed);
            let now = now_ns();
            if now - last > HOLE_NS {
                holes.push((last, now - last));
            }
            last = now;
        }
        *whole(&self.notes.holes) = holes;
    }

    fn lock(&self, name: &str) {
        let Some(lock) = self.shared.locks.get(name) else {
            return;
        };
        let mut held = whole(&lock.held);
        while *held {
            held = lock.free.wait(held).unwrap_or_else(|e| e.into_inner());
        }
        *held = true;
    }

    fn unlock(&self, name: &str) {
        if let Some(lock) = self.shared.locks.get(name) {
            *whole(&lock.held) = false;
            lock.free.notify_one();
        }
    }
}

/// The answers whose requests were due in this window, with what the busiest of these threads ran in each wait.
pub fn answers(
    answered: &[(Nanos, Nanos, Nanos)],
    (from, to): (Nanos, Nanos),
    holes: &[Vec<(Nanos, Nanos)>],
) -> Vec<Answer> {
    let inside = answered.iter().filter(|(due, ..)| (from..to).contains(due));
    let answer = |&(due, began, end): &(Nanos, Nanos, Nanos)| Answer {
        latency_ns: end - due,
        work_ns: end - began,
        hog_ran_ns: holes.iter().map(|h| ran(h, due, began)).max().unwrap_or(0),
    };
    inside.map(answer).collect()
}

/// The time between, less the holes in it.
fn ran(holes: &[(Nanos, Nanos)], from: Nanos, to: Nanos) -> Nanos {
    let first = holes.partition_point(|(at, length)| at + length <= from);
    let overlap = |&(at, length): &(Nanos, Nanos)| (at + length).min(to) - at.max(from).min(to);
    let lost: Nanos = holes[first..]
        .iter()
        .take_while(|(at, _)| *at < to)
        .map(overlap)
        .sum();
    to.saturating_sub(from).saturating_sub(lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::model::{Dist, Sends};

    #[test]
    fn what_a_busy_thread_ran_is_the_wait_less_its_holes() {
        // It stood from 10 to 20 and from 30 to 40.
        let holes = vec![(10, 10), (30, 10)];
        for (wait, expected) in [
            ((0, 5), 5),
            ((0, 15), 10),
            ((12, 18), 0),
            ((15, 35), 10),
            ((22, 28), 6),
            ((5, 50), 25),
            ((45, 50), 5),
        ] {
            assert_eq!(ran(&holes, wait.0, wait.1), expected, "{wait:?}");
        }
        let list = [(12, 18, 20), (45, 50, 60), (99, 99, 100)];
        let got = answers(&list, (0, 90), &[holes, vec![(0, 99)]]);
        assert_eq!(got.len(), 2);
        assert_eq!(
            got[1],
            Answer {
                latency_ns: 15,
                work_ns: 10,
                hog_ran_ns: 5
            }
        );
    }

    #[test]
    fn requests_are_answered_when_due_and_work_is_done() {
        let echo = Task {
            steps: vec![
                Step::Receive("c".into()),
                Step::Compute(Dist::Const(50_000)),
                Step::Reply,
            ],
            ..Task::default()
        };
        let shared = Arc::new(Shared::new(std::iter::once(&echo), turns_per_us()));
        let notes = Arc::new(Notes::default());
        let sends = Sends::Every {
            period_ns: 2_000_000,
            jitter_ppm: 500_000,
        };
        let from = now_ns();
        let worker = Worker {
            shared: Arc::clone(&shared),
            notes: Arc::clone(&notes),
            task: echo,
            rng: Worker::rng(1, 0),
            requests: Arrivals::new(&sends, 1, 0, 0).map(|a| (a, from)),
        };
        let thread = std::thread::spawn(|| worker.run());
        while whole(&notes.answers).len() < 5 {
            std::thread::yield_now();
        }
        shared.stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let due: Vec<u64> = Arrivals::new(&sends, 1, 0, 0).unwrap().take(5).collect();
        let answers = whole(&notes.answers).clone();
        for ((at, began, end), due) in answers.iter().zip(due) {
            assert_eq!(*at, from + due);
            assert!(at <= began && began < end);
        }
        // It may be stopped between the work and its reply.
        let each = (50.0 * shared.turns_per_us) as u64;
        let answered = answers.len() as u64;
        let turns = notes.turns.load(Ordering::Relaxed);
        assert!(
            [answered, answered + 1].contains(&(turns / each)) && turns % each == 0,
            "{turns} turns, {each} each, {answered} answers"
        );
    }

    #[test]
    fn a_lock_has_one_holder() {
        let task = Task {
            steps: vec![
                Step::Lock { name: "l".into() },
                Step::Unlock { name: "l".into() },
            ],
            ..Task::default()
        };
        let shared = Arc::new(Shared::new(std::iter::once(&task), 1.0));
        let worker = || Worker {
            shared: Arc::clone(&shared),
            notes: Arc::default(),
            task: Task::default(),
            rng: Worker::rng(1, 0),
            requests: None,
        };
        let inside = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..3 {
                let (worker, inside) = (worker(), &inside);
                s.spawn(move || {
                    for _ in 0..500 {
                        worker.lock("l");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        worker.unlock("l");
                    }
                });
            }
        });
    }
}
