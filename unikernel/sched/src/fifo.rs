// SPDX-License-Identifier: GPL-2.0-only
//! FCFS and RR: one queue in order of arrival for all CPUs; RR has a slice, FCFS none.
use crate::Task;
use crate::queue::Queue;
use crate::scheduler::Discipline;
use alloc::vec;
use alloc::vec::Vec;

pub(crate) struct Fifo<T> {
    queue: Queue<T>,
    slice_ns: Option<u64>,
    sequence: u64,
}

impl<T> Fifo<T> {
    pub(crate) fn new(slice_ns: Option<u64>) -> Fifo<T> {
        Fifo {
            queue: Queue::new(false),
            slice_ns,
            sequence: 0,
        }
    }
}

impl<T: Send> Discipline<T> for Fifo<T> {
    fn place(&mut self, _: &mut Task<T>) {}

    fn insert(&mut self, mut task: Task<T>, now_ns: u64) {
        task.give(self.slice_ns);
        self.sequence += 1;
        self.queue.push((0, self.sequence), task, now_ns);
    }

    fn dispatch(&mut self, _: usize, _: u64) -> Option<Task<T>> {
        let head = self.queue.head()?;
        self.queue.take(head)
    }

    fn serves(&self, _: usize) -> bool {
        self.queue.len() > 0
    }

    fn lengths(&self) -> Vec<usize> {
        vec![self.queue.len()]
    }
}
