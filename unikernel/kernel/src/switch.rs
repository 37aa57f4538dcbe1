// SPDX-License-Identifier: GPL-2.0-only
//! Who runs next: the scheduler between threads and CPUs. Every trap asks here.
//!
//! The first thread, *main*, is not the scheduler's: it serves the network on CPU 0, before all tasks, and mostly
//! waits. A task that it interrupts goes on afterwards with what is left of its slice: tasks do not preempt each other.
use crate::machine::thread::{Body, Thread};
use crate::machine::{CPUS_MAX, clock, cpu, lapic, lock::Lock, trap};
use alloc::boxed::Box;
use alloc::vec::Vec;
use unikernel_sched::{Counters, Refused, Scheduler, Task};
use unikernel_service::options::Options;

/// Who runs on a CPU.
pub enum Current {
    /// Nobody.
    Idle,
    /// The first thread.
    Main(Box<Thread>),
    /// A task.
    Task(Task<Box<Thread>>),
}

/// Why a trap asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The CPU's timer.
    Timer,
    /// The network card.
    Nic,
    /// Another CPU made something to run.
    Wake,
    /// The thread lets others go first.
    Yield,
    /// The thread (main) waits.
    Wait,
    /// The thread ends.
    Exit,
}

/// What a new task is.
pub struct New {
    /// Who it is.
    pub id: u64,
    /// How long it is thought to run, us.
    pub estimate_us: u64,
    /// Of which class it is.
    pub class: u8,
    /// What it does.
    pub body: Body,
}

/// What became of a task.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Who it was.
    pub id: u64,
    /// When it came, first ran, and was done, ns.
    pub times_ns: [u64; 3],
    /// The level it was done on.
    pub level: usize,
}

/// What is counted here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// The scheduler's.
    pub scheduler: Counters,
    /// Times that a CPU began to run another thread.
    pub switches: u64,
    /// Times that main took CPU 0 from a task.
    pub interrupted: u64,
    /// Interrupts between CPUs.
    pub wakes: u64,
    /// Time that CPUs ran tasks, ns.
    pub tasks_ns: [u64; CPUS_MAX],
    /// Time that main ran, ns.
    pub main_ns: u64,
    /// Tasks that are not done.
    pub alive: u64,
    /// CPUs.
    pub cpus: usize,
}

/// A budget with so little left has ended: the timer counts more coarsely.
const GRAIN_NS: u64 = 1000;
/// No time.
const NEVER: u64 = u64::MAX;
/// Threads that are kept for later tasks.
const SPARE_MAX: usize = 512;

struct State {
    scheduler: Scheduler<Box<Thread>>,
    cpus: usize,
    /// Since when each CPU's current runs.
    since_ns: [u64; CPUS_MAX],
    /// Whether each CPU's timer is set.
    armed: [bool; CPUS_MAX],
    /// Whether each CPU has nothing to run.
    idle: [bool; CPUS_MAX],
    /// Main, while it waits.
    main: Option<Box<Thread>>,
    /// Main is next on CPU 0.
    wanted: bool,
    /// Main is next when CPU 0 has nothing else.
    wanted_soon: bool,
    /// Main is next from then on.
    until_ns: u64,
    /// Main is wanted when all tasks are done.
    wanted_at_end: bool,
    /// The task that main interrupted.
    aside: Option<Task<Box<Thread>>>,
    coalesce_ns: u64,
    #[expect(
        clippy::vec_box,
        reason = "a thread is large, and goes from box to box"
    )]
    spare: Vec<Box<Thread>>,
    counts: Counts,
    outcomes: Option<Vec<Outcome>>,
}

static STATE: Lock<Option<State>> = Lock::new(None);

/// Makes the scheduler that `options` ask for.
///
/// # Errors
/// They ask for one that cannot be.
pub fn init(options: &Options, cpus: usize) -> Result<(), Refused> {
    let scheduler = Scheduler::new(&options.config(cpus))?;
    let state = State {
        scheduler,
        cpus,
        since_ns: [clock::now_ns(); CPUS_MAX],
        armed: [false; CPUS_MAX],
        idle: core::array::from_fn(|cpu| cpu > 0 && cpu < cpus),
        main: None,
        wanted: false,
        wanted_soon: false,
        until_ns: NEVER,
        wanted_at_end: false,
        aside: None,
        coalesce_ns: options.coalesce_us * 1000,
        spare: Vec::new(),
        counts: Counts::default(),
        outcomes: None,
    };
    STATE.with(|place| *place = Some(state));
    Ok(())
}

fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(|state| f(state.as_mut().expect("init is called first")))
}

/// What goes on in place of `current`, which the trap took CPU `cpu` from.
pub fn switch(cpu: usize, why: Why, current: Current) -> Current {
    STATE.with(|state| match state {
        Some(state) => state.switch(cpu, why, current),
        None => current,
    })
}

/// Tasks that come at one instant. Main's.
pub fn admit(batch: Vec<New>) {
    if batch.is_empty() {
        return;
    }
    with(|state| {
        let now_ns = clock::now_ns();
        state.counts.alive += batch.len() as u64;
        let tasks = batch.into_iter().map(|new| {
            let mut thread = state.spare.pop().unwrap_or_else(Thread::new);
            thread.begin(new.body);
            let mut task = Task::new(new.id, now_ns, new.estimate_us.saturating_mul(1000), thread);
            task.class = new.class;
            task
        });
        let tasks = tasks.collect();
        state.scheduler.admit(tasks, now_ns);
        state.wake_others(0);
    });
}

/// Main waits until `until_us`, until somebody wants it ([`want_main`], the network card), or, with `soon`, until CPU 0
/// has nothing else to run.
pub fn wait_until(until_us: u64, soon: bool) {
    with(|state| (state.until_ns, state.wanted_soon) = (until_us.saturating_mul(1000), soon));
    trap::wait();
}

/// Main waits until all tasks are done.
pub fn wait_for_tasks() {
    with(|state| state.wanted_at_end = true);
    while with(|state| state.counts.alive) > 0 {
        wait_until(NEVER, false);
    }
    with(|state| state.wanted_at_end = false);
}

/// There is something for main.
pub fn want_main() {
    with(|state| state.want_main(cpu::index(), clock::now_ns()));
}

/// Outcomes are kept from now on; room for `tasks` of them.
pub fn keep_outcomes(tasks: usize) {
    with(|state| state.outcomes = Some(Vec::with_capacity(tasks)));
}

/// The outcomes that were kept.
pub fn outcomes() -> Vec<Outcome> {
    with(|state| state.outcomes.take()).unwrap_or_default()
}

/// What was counted so far.
pub fn counts() -> Counts {
    with(|state| Counts {
        scheduler: state.scheduler.counters(),
        cpus: state.cpus,
        ..state.counts
    })
}

/// Tasks that wait in each queue.
pub fn lengths() -> Vec<usize> {
    with(|state| state.scheduler.lengths())
}

impl State {
    fn switch(&mut self, cpu: usize, why: Why, current: Current) -> Current {
        let now_ns = clock::now_ns();
        if why == Why::Nic {
            self.want_main(cpu, now_ns);
        }
        let next = match self.leave(cpu, why, current, now_ns) {
            Some(stays) => stays,
            None => {
                self.counts.switches += 1;
                self.next(cpu, now_ns)
            }
        };
        self.since_ns[cpu] = now_ns;
        self.idle[cpu] = matches!(next, Current::Idle);
        if matches!(why, Why::Timer | Why::Yield) {
            self.wake_others(cpu);
        }
        self.arm(cpu, &next, now_ns);
        next
    }

    /// `current`, if it goes on; else it is where it belongs.
    fn leave(&mut self, cpu: usize, why: Why, current: Current, now_ns: u64) -> Option<Current> {
        let ran_ns = now_ns - self.since_ns[cpu];
        match current {
            Current::Idle => None,
            Current::Main(thread) => {
                self.counts.main_ns += ran_ns;
                if why != Why::Wait {
                    return Some(Current::Main(thread));
                }
                self.main = Some(thread);
                None
            }
            Current::Task(mut task) => {
                self.counts.tasks_ns[cpu] += ran_ns;
                task.charge(ran_ns);
                match why {
                    Why::Exit => self.finish(task, cpu, now_ns),
                    Why::Yield | Why::Wait => self.scheduler.give_up(task, now_ns),
                    _ if task.budget_ns().is_some_and(|left_ns| left_ns <= GRAIN_NS) => {
                        self.scheduler.expire(task, now_ns);
                    }
                    _ if cpu == 0 && self.main_is_due(now_ns) => {
                        self.counts.interrupted += 1;
                        self.aside = Some(task);
                    }
                    _ => return Some(Current::Task(task)),
                }
                None
            }
        }
    }

    fn finish(&mut self, task: Task<Box<Thread>>, cpu: usize, now_ns: u64) {
        self.scheduler.finish(&task);
        self.counts.alive -= 1;
        if let Some(outcomes) = &mut self.outcomes {
            let first_run_ns = task.first_run_ns().unwrap_or(now_ns);
            let times_ns = [task.arrival_ns, first_run_ns, now_ns];
            outcomes.push(Outcome {
                id: task.id,
                times_ns,
                level: task.level(),
            });
        }
        if self.spare.len() < SPARE_MAX {
            self.spare.push(task.payload);
        }
        if self.counts.alive == 0 && self.wanted_at_end {
            self.wanted = true;
            self.wake_first(cpu);
        }
    }

    fn next(&mut self, cpu: usize, now_ns: u64) -> Current {
        if cpu == 0 {
            if self.main_is_due(now_ns) {
                return self.main();
            }
            if let Some(task) = self.aside.take() {
                return Current::Task(task);
            }
        }
        match self.scheduler.dispatch(cpu, now_ns) {
            Some(task) => Current::Task(task),
            None if cpu == 0 && self.wanted_soon && self.main.is_some() => self.main(),
            None => Current::Idle,
        }
    }

    fn main(&mut self) -> Current {
        (self.wanted, self.wanted_soon, self.until_ns) = (false, false, NEVER);
        self.main.take().map_or(Current::Idle, Current::Main)
    }

    fn main_is_due(&self, now_ns: u64) -> bool {
        self.main.is_some() && (self.wanted || now_ns >= self.until_ns)
    }

    /// There is something for main: it is next if nothing runs on CPU 0, else a little later.
    fn want_main(&mut self, cpu: usize, now_ns: u64) {
        if self.main.is_none() || self.idle[0] {
            self.wanted = true;
        } else if !self.wanted_soon {
            self.wanted_soon = true;
            self.until_ns = self.until_ns.min(now_ns + self.coalesce_ns);
        } else {
            return;
        }
        if self.main.is_some() {
            self.wake_first(cpu);
        }
    }

    /// Has CPU 0 look, unless this is it.
    fn wake_first(&mut self, cpu: usize) {
        if cpu != 0 {
            self.counts.wakes += 1;
            cpu::wake(0);
        }
    }

    /// Has idle CPUs look that have something to run.
    fn wake_others(&mut self, cpu: usize) {
        let mut queued = self.scheduler.queued();
        for other in (0..self.cpus).filter(|other| *other != cpu) {
            if queued > 0 && self.idle[other] && self.scheduler.serves(other) {
                queued -= 1;
                self.idle[other] = false;
                self.counts.wakes += 1;
                cpu::wake(other);
            }
        }
    }

    /// Sets the CPU's timer to the end of the budget of who runs next, or to when main is due.
    fn arm(&mut self, cpu: usize, next: &Current, now_ns: u64) {
        let budget_ns = if let Current::Task(task) = next {
            task.budget_ns()
        } else {
            None
        };
        let main_ns = (cpu == 0 && self.main.is_some() && self.until_ns != NEVER)
            .then(|| self.until_ns - now_ns.min(self.until_ns));
        match budget_ns.into_iter().chain(main_ns).min() {
            Some(ns) => lapic::arm(ns),
            None if self.armed[cpu] => lapic::disarm(),
            None => {}
        }
        self.armed[cpu] = budget_ns.is_some() || main_ns.is_some();
    }
}
