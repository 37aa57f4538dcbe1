// SPDX-License-Identifier: GPL-2.0-only
//! What a runner of tasks asks and tells, in the order in which a task meets it; the same for all policies.
use crate::config::{Config, Policy, Refused};
use crate::counters::Counters;
use crate::estimate::Learned;
use crate::fifo::Fifo;
use crate::mqms::Mqms;
use crate::mrsf::Mrsf;
use crate::task::Task;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What policies differ in.
pub(crate) trait Discipline<T>: Send {
    /// In which order a batch that comes at one instant is placed.
    fn order(&self, _: &mut Vec<Task<T>>) {}
    /// Where a new task belongs.
    fn place(&mut self, task: &mut Task<T>);
    /// Into the queue where it belongs.
    fn insert(&mut self, task: Task<T>, now_ns: u64);
    /// Its slice has ended: whether it belongs elsewhere now.
    fn demote(&mut self, _: &mut Task<T>) -> bool {
        false
    }
    /// One that was dispatched does not run any more.
    fn leave(&mut self, _: &Task<T>) {}
    /// What `cpu` runs next.
    fn dispatch(&mut self, cpu: usize, now_ns: u64) -> Option<Task<T>>;
    /// Whether [`Discipline::dispatch`] has something for `cpu`.
    fn serves(&self, cpu: usize) -> bool;
    /// Tasks in each queue.
    fn lengths(&self) -> Vec<usize>;
}

/// A policy at work. Times are of one clock, which never goes back.
pub struct Scheduler<T> {
    policy: Box<dyn Discipline<T>>,
    learned: Option<Learned>,
    counters: Counters,
    queued: u64,
}

impl<T: Send + 'static> Scheduler<T> {
    /// The policy of `config`, with nothing to run.
    ///
    /// # Errors
    /// A value of `config` is wrong.
    pub fn new(config: &Config) -> Result<Scheduler<T>, Refused> {
        config.check()?;
        let policy: Box<dyn Discipline<T>> = match config.policy {
            Policy::Mrsf => Box::new(Mrsf::new(config)),
            Policy::Fcfs => Box::new(Fifo::new(None)),
            Policy::Rr => Box::new(Fifo::new(Some(config.slice_ns))),
            Policy::Mqms => Box::new(Mqms::new(config.mqms_queues, config.cpus, config.slice_ns)),
        };
        let learned = config.learned.then(|| Learned::new(config.slice_ns));
        Ok(Scheduler {
            policy,
            learned,
            counters: Counters::default(),
            queued: 0,
        })
    }

    /// `batch` comes at one instant.
    pub fn admit(&mut self, mut batch: Vec<Task<T>>, now_ns: u64) {
        if let Some(learned) = &self.learned {
            batch
                .iter_mut()
                .for_each(|task| task.estimate_ns = learned.estimate_ns(task.class));
        }
        self.policy.order(&mut batch);
        for mut task in batch {
            self.counters.admitted += 1;
            self.policy.place(&mut task);
            self.insert(task, now_ns);
        }
    }

    /// What `cpu` runs from now on, for [`Task::budget_ns`]; `None`: nothing is there for it.
    pub fn dispatch(&mut self, cpu: usize, now_ns: u64) -> Option<Task<T>> {
        let mut task = self.policy.dispatch(cpu, now_ns)?;
        self.counters.decisions += 1;
        self.queued -= 1;
        task.first_run_ns.get_or_insert(now_ns);
        task.pieces += 1;
        Some(task)
    }

    /// A charged task's budget has ended and it is not done.
    pub fn expire(&mut self, mut task: Task<T>, now_ns: u64) {
        self.policy.leave(&task);
        self.down(&mut task);
        self.insert(task, now_ns);
    }

    /// A charged task lets others go first: behind its equals, with what is left of its slice.
    pub fn give_up(&mut self, task: Task<T>, now_ns: u64) {
        if task.slice_ns == Some(0) {
            return self.expire(task, now_ns);
        }
        self.policy.leave(&task);
        self.insert(task, now_ns);
    }

    /// A charged task waits for something, and is its runner's until [`Scheduler::wake`]. If its budget has just ended,
    /// it is demoted all the same.
    pub fn block(&mut self, task: &mut Task<T>) {
        self.policy.leave(task);
        if task.slice_ns == Some(0) {
            self.down(task);
        }
    }

    /// What a blocked task waited for is there: it goes on at its level, with what is left of its slice.
    pub fn wake(&mut self, task: Task<T>, now_ns: u64) {
        self.insert(task, now_ns);
    }

    /// A charged task is done.
    pub fn finish(&mut self, task: &Task<T>) {
        self.policy.leave(task);
        self.counters.finished[task.level] += 1;
        if let Some(learned) = &mut self.learned {
            learned.learn(task.class, task.attained_ns);
        }
    }

    /// Whether something waits that `cpu` may run.
    pub fn serves(&self, cpu: usize) -> bool {
        self.policy.serves(cpu)
    }

    /// Tasks that wait.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Tasks that wait in each queue.
    pub fn lengths(&self) -> Vec<usize> {
        self.policy.lengths()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn insert(&mut self, task: Task<T>, now_ns: u64) {
        self.queued += 1;
        self.counters.queued_max = self.counters.queued_max.max(self.queued);
        self.policy.insert(task, now_ns);
    }

    fn down(&mut self, task: &mut Task<T>) {
        task.fresh = true;
        self.counters.expired += 1;
        self.counters.demoted += u64::from(self.policy.demote(task));
    }
}
