// SPDX-License-Identifier: GPL-2.0-only
//! MQMS as the M-RSF paper describes its baseline: several queues, each with a policy of its own (FCFS and RR, in turn)
//! and a CPU; tasks are dealt in a circle and stay where they are. Without the balancer. Not what OSv does.
use crate::Task;
use crate::queue::Queue;
use crate::scheduler::Discipline;
use alloc::vec::Vec;

pub(crate) struct Mqms<T> {
    queues: Vec<Queue<T>>,
    cpus: usize,
    slice_ns: u64,
    deal: usize,
    sequence: u64,
}

impl<T> Mqms<T> {
    pub(crate) fn new(queues: usize, cpus: usize, slice_ns: u64) -> Mqms<T> {
        Mqms {
            queues: (0..queues).map(|_| Queue::new(false)).collect(),
            cpus,
            slice_ns,
            deal: 0,
            sequence: 0,
        }
    }

    /// Of the queues of `cpu` the one whose head is there longest.
    fn of(&self, cpu: usize) -> Option<usize> {
        let own = (0..self.queues.len()).filter(|queue| queue % self.cpus == cpu);
        own.filter_map(|queue| Some((self.queues[queue].head()?, queue)))
            .min()
            .map(|(_, queue)| queue)
    }
}

impl<T: Send> Discipline<T> for Mqms<T> {
    fn place(&mut self, task: &mut Task<T>) {
        task.queue = self.deal;
        self.deal = (self.deal + 1) % self.queues.len();
    }

    fn insert(&mut self, mut task: Task<T>, now_ns: u64) {
        task.give((task.queue % 2 == 1).then_some(self.slice_ns));
        self.sequence += 1;
        self.queues[task.queue].push((0, self.sequence), task, now_ns);
    }

    fn dispatch(&mut self, cpu: usize, _: u64) -> Option<Task<T>> {
        let queue = self.of(cpu)?;
        let head = self.queues[queue].head()?;
        self.queues[queue].take(head)
    }

    fn serves(&self, cpu: usize) -> bool {
        self.of(cpu).is_some()
    }

    fn lengths(&self) -> Vec<usize> {
        self.queues.iter().map(Queue::len).collect()
    }
}
