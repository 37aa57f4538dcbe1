// SPDX-License-Identifier: GPL-2.0-only
//! A queue of tasks by key, first come first served among equals; one whose keys are all alike is a FIFO.
use crate::Task;
use alloc::collections::{BTreeMap, VecDeque};

/// Smaller first: what the order is by, then when it was put in.
pub(crate) type Key = (i64, u64);

pub(crate) struct Queue<T> {
    tasks: BTreeMap<Key, Task<T>>,
    /// Since when each has waited, in that order; some have left. Empty where nobody asks for the oldest.
    since: VecDeque<(u64, Key)>,
    remembers: bool,
}

impl<T> Queue<T> {
    /// An empty one; `remembers`: [`Queue::oldest`] will be asked.
    pub(crate) fn new(remembers: bool) -> Queue<T> {
        Queue {
            tasks: BTreeMap::new(),
            since: VecDeque::new(),
            remembers,
        }
    }

    pub(crate) fn push(&mut self, key: Key, task: Task<T>, now_ns: u64) {
        if self.remembers {
            self.since.push_back((now_ns, key));
        }
        self.tasks.insert(key, task);
    }

    pub(crate) fn head(&self) -> Option<Key> {
        self.tasks.first_key_value().map(|(key, _)| *key)
    }

    /// Since when who is there longest has waited, and its key.
    pub(crate) fn oldest(&mut self) -> Option<(u64, Key)> {
        while let Some(first) = self.since.front() {
            if self.tasks.contains_key(&first.1) {
                return Some(*first);
            }
            self.since.pop_front();
        }
        None
    }

    pub(crate) fn take(&mut self, key: Key) -> Option<Task<T>> {
        self.tasks.remove(&key)
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }
}
