// SPDX-License-Identifier: GPL-2.0-only
//! M-RSF: new tasks are dealt to Q1's sub-queues; Q1 and Q2 are ordered by estimated remaining time, and who is not
//! done after one slice there goes a level down; Q3 is first come, first served. Nobody is preempted by an arrival.
//!
//! Not good where estimates are wrong by much (it is then FCFS with more decisions), and not for long tasks under
//! lasting overload: they starve in Q1, which is shortest first (`aging_ns` bounds that).
use crate::config::{Config, Map};
use crate::queue::{Key, Queue};
use crate::scheduler::Discipline;
use crate::{Counters, Task};
use alloc::vec::Vec;

const LEVELS: usize = Counters::LEVELS;
const LAST: usize = LEVELS - 1;

pub(crate) struct Mrsf<T> {
    /// Q1's sub-queues, Q2, Q3.
    queues: Vec<Queue<T>>,
    config: Config,
    deal: usize,
    sequence: u64,
    /// Tasks of each level that wait or run.
    active: [usize; LEVELS],
}

impl<T> Mrsf<T> {
    pub(crate) fn new(config: &Config) -> Mrsf<T> {
        let queues = (0..config.sub_queues + 2)
            .map(|_| Queue::new(config.aging_ns.is_some()))
            .collect();
        Mrsf {
            queues,
            config: config.clone(),
            deal: 0,
            sequence: 0,
            active: [0; LEVELS],
        }
    }

    /// The queues of `level`.
    fn of_level(&self, level: usize) -> core::ops::Range<usize> {
        match level {
            0 => 0..self.config.sub_queues,
            _ => self.config.sub_queues + level - 1..self.config.sub_queues + level,
        }
    }

    fn serves_queue(&self, cpu: usize, queue: usize) -> bool {
        match self.config.map {
            Map::Shared => true,
            Map::PerQueue => queue % self.config.cpus == cpu,
        }
    }

    /// Whether who waits at `level` may run.
    fn open(&self, level: usize) -> bool {
        !self.config.barrier || self.active[..level].iter().all(|active| *active == 0)
    }

    /// What `cpu` runs next by level and order.
    fn first(&self, cpu: usize) -> Option<(usize, Key)> {
        (0..LEVELS)
            .filter(|level| self.open(*level))
            .find_map(|level| {
                let own = self
                    .of_level(level)
                    .filter(|queue| self.serves_queue(cpu, *queue));
                // Equal keys: the lower queue.
                let heads = own
                    .filter_map(|queue| self.queues[queue].head().map(|key| (key.0, queue, key)));
                heads.min().map(|(_, queue, key)| (queue, key))
            })
    }

    /// Who has waited too long for `cpu`, the longest of them.
    fn starved(&mut self, cpu: usize, now_ns: u64) -> Option<(usize, Key)> {
        let aging_ns = self.config.aging_ns?;
        let mut longest: Option<(u64, usize, Key)> = None;
        for queue in 0..self.queues.len() {
            if !self.serves_queue(cpu, queue) {
                continue;
            }
            if let Some((since_ns, key)) = self.queues[queue].oldest()
                && now_ns.saturating_sub(since_ns) > aging_ns
                && longest.is_none_or(|found| since_ns < found.0)
            {
                longest = Some((since_ns, queue, key));
            }
        }
        longest.map(|(_, queue, key)| (queue, key))
    }
}

impl<T: Send> Discipline<T> for Mrsf<T> {
    fn order(&self, batch: &mut Vec<Task<T>>) {
        if self.config.sorted {
            batch.sort_by_key(|task| (task.estimate_ns, task.arrival_ns, task.id));
        }
    }

    fn place(&mut self, task: &mut Task<T>) {
        (task.level, task.queue) = (0, self.deal);
        self.deal = (self.deal + 1) % self.config.sub_queues;
    }

    fn insert(&mut self, mut task: Task<T>, now_ns: u64) {
        task.give(if task.level == LAST {
            self.config.q3_slice_ns
        } else {
            Some(self.config.slice_ns)
        });
        let by = if self.config.sorted && task.level < LAST {
            task.remaining_ns()
        } else {
            0
        };
        self.active[task.level] += 1;
        self.sequence += 1;
        self.queues[task.queue].push((by, self.sequence), task, now_ns);
    }

    fn demote(&mut self, task: &mut Task<T>) -> bool {
        if task.level == LAST {
            return false;
        }
        task.level += 1;
        task.queue = self.of_level(task.level).start;
        true
    }

    fn leave(&mut self, task: &Task<T>) {
        self.active[task.level] -= 1;
    }

    fn dispatch(&mut self, cpu: usize, now_ns: u64) -> Option<Task<T>> {
        let (queue, key) = self.starved(cpu, now_ns).or_else(|| self.first(cpu))?;
        self.queues[queue].take(key)
    }

    fn serves(&self, cpu: usize) -> bool {
        self.first(cpu).is_some()
    }

    fn lengths(&self) -> Vec<usize> {
        self.queues.iter().map(Queue::len).collect()
    }
}
