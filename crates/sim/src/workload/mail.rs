// SPDX-License-Identifier: GPL-2.0-only
//! Request queues and the threads that wait at them.
//!
//! One FIFO queue per home (a VM, or the host) and queue name; one list of waiting threads per home, longest
//! wait first. As with futexes, putting a message wakes the thread that has waited longest for that queue, and
//! whichever server thread looks first takes the oldest message: a woken thread may find the queue empty and
//! go back to sleep. Messages live in one slab and queues are links through it: putting and taking allocate
//! only when more messages exist at once than ever before.
use super::api::Nanos;

const NONE: u32 = u32::MAX;

/// A request of a client, or a message of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// When it was sent: response times count from here.
    pub sent: Nanos,
    /// Who waits for the answer; `None` for messages of tasks.
    pub from: Option<Asker>,
}

/// Client stream and, for closed loops, the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub stream: u32,
    pub user: u32,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    message: Message,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Fifo {
    head: u32,
    tail: u32,
}

const EMPTY: Fifo = Fifo {
    head: NONE,
    tail: NONE,
};

/// Neighbours of a waiting thread; itself in both if it does not wait.
#[derive(Clone, Copy, Debug)]
struct Links {
    home: u32,
    before: u32,
    after: u32,
}

/// All queues and waiters of a machine.
#[derive(Debug)]
pub(super) struct Mail {
    nr_queues: usize,
    cells: Vec<Cell>,
    free: u32,
    /// By home, then queue.
    queues: Vec<Fifo>,
    /// By home: the waiting threads.
    waiting: Vec<Fifo>,
    /// By thread.
    links: Vec<Links>,
}

impl Mail {
    pub fn new(homes: usize, nr_queues: usize) -> Mail {
        Mail {
            nr_queues,
            cells: Vec::new(),
            free: NONE,
            queues: vec![EMPTY; homes * nr_queues],
            waiting: vec![EMPTY; homes],
            links: Vec::new(),
        }
    }

    /// Puts a message into a queue.
    pub fn put(&mut self, home: u32, queue: u16, message: Message) {
        let cell = Cell {
            message,
            next: NONE,
        };
        let at = if self.free == NONE {
            self.cells.push(cell);
            self.cells.len() as u32 - 1
        } else {
            let at = self.free;
            self.free = self.cells[at as usize].next;
            self.cells[at as usize] = cell;
            at
        };
        let fifo = &mut self.queues[home as usize * self.nr_queues + usize::from(queue)];
        if fifo.head == NONE {
            fifo.head = at;
        } else {
            self.cells[fifo.tail as usize].next = at;
        }
        fifo.tail = at;
    }

    /// Takes the oldest message of these queues (ties: the queue named first) and tells which queue it was in.
    pub fn take(
        &mut self,
        home: u32,
        serves: impl IntoIterator<Item = u16>,
    ) -> Option<(u16, Message)> {
        let base = home as usize * self.nr_queues;
        let mut best: Option<(Nanos, u16)> = None;
        for queue in serves {
            let head = self.queues[base + usize::from(queue)].head;
            if head != NONE {
                let sent = self.cells[head as usize].message.sent;
                if best.is_none_or(|(oldest, _)| sent < oldest) {
                    best = Some((sent, queue));
                }
            }
        }
        let (_, queue) = best?;
        let fifo = &mut self.queues[base + usize::from(queue)];
        let at = fifo.head;
        let cell = &mut self.cells[at as usize];
        fifo.head = cell.next;
        cell.next = self.free;
        self.free = at;
        Some((queue, cell.message))
    }

    /// All messages in queues.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.queues.iter().flat_map(|fifo| {
            let cell = |at: u32| self.cells.get(at as usize);
            std::iter::successors(cell(fifo.head), move |c| cell(c.next)).map(|c| &c.message)
        })
    }

    /// The thread begins to wait.
    pub fn wait(&mut self, home: u32, thread: u32) {
        let idle = Links {
            home,
            before: NONE,
            after: NONE,
        };
        while self.links.len() <= thread as usize {
            let own = self.links.len() as u32;
            self.links.push(Links {
                before: own,
                after: own,
                ..idle
            });
        }
        let list = &mut self.waiting[home as usize];
        self.links[thread as usize] = Links {
            before: list.tail,
            ..idle
        };
        if list.head == NONE {
            list.head = thread;
        } else {
            self.links[list.tail as usize].after = thread;
        }
        list.tail = thread;
    }

    /// The thread that has waited longest among those that `serves` accepts; it stays in the list.
    pub fn longest_waiting(&self, home: u32, serves: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.waiting[home as usize].head;
        while at != NONE {
            if serves(at) {
                return Some(at);
            }
            at = self.links[at as usize].after;
        }
        None
    }

    /// The thread waits no longer (woken, or dead). Nothing happens if it did not wait.
    pub fn leave(&mut self, thread: u32) {
        let Some(&links) = self.links.get(thread as usize) else {
            return;
        };
        if links.before == thread {
            return;
        }
        let list = &mut self.waiting[links.home as usize];
        match links.before {
            NONE => list.head = links.after,
            before => self.links[before as usize].after = links.after,
        }
        let list = &mut self.waiting[links.home as usize];
        match links.after {
            NONE => list.tail = links.before,
            after => self.links[after as usize].before = links.before,
        }
        let own = &mut self.links[thread as usize];
        (own.before, own.after) = (thread, thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn message(sent: Nanos) -> Message {
        Message { sent, from: None }
    }

    #[test]
    fn the_oldest_message_of_the_served_queues_comes_first() {
        let mut mail = Mail::new(2, 2);
        mail.put(1, 1, message(1));
        mail.put(1, 0, message(2));
        mail.put(1, 1, message(2));
        mail.put(0, 0, message(0));
        assert_eq!(mail.take(1, [0]), Some((0, message(2))));
        assert_eq!(mail.take(1, [0]), None);
        mail.put(1, 0, message(2));
        assert_eq!(mail.take(1, [0, 1]), Some((1, message(1))));
        assert_eq!(mail.take(1, [0, 1]), Some((0, message(2))));
        assert_eq!(mail.take(1, [0, 1]), Some((1, message(2))));
        assert_eq!(mail.take(1, [0, 1]), None);
    }

    proptest! {
        /// Against plain queues: any sequence of puts, takes, waits and wake-ups.
        #[test]
        fn agrees_with_plain_queues(ops in proptest::collection::vec((0u8..5, 0u32..2, 0u16..3, 0u32..6), 0..200)) {
            let mut mail = Mail::new(2, 3);
            let mut plain: Vec<VecDeque<Message>> = vec![VecDeque::new(); 6];
            let mut waiting: Vec<VecDeque<u32>> = vec![VecDeque::new(); 2];
            for (now, (op, home, queue, thread)) in (0..).zip(ops) {
                // Six threads per home; odd ones serve nothing but queue 0.
                let thread = thread + 6 * home;
                match op {
                    0 => {
                        mail.put(home, queue, message(now));
                        plain[home as usize * 3 + usize::from(queue)].push_back(message(now));
                    }
                    1 => {
                        let at = |q: u16| home as usize * 3 + usize::from(q);
                        let want = (0..3u16)
                            .filter_map(|q| Some((plain[at(q)].front()?.sent, q)))
                            .min();
                        let want = want.and_then(|(_, q)| Some((q, plain[at(q)].pop_front()?)));
                        prop_assert_eq!(mail.take(home, [0, 1, 2]), want);
                    }
                    2 if !waiting[home as usize].contains(&thread) => {
                        mail.wait(home, thread);
                        waiting[home as usize].push_back(thread);
                    }
                    3 => {
                        mail.leave(thread);
                        waiting[home as usize].retain(|t| *t != thread);
                    }
                    _ => {
                        let serves = |t: u32| t.is_multiple_of(2) || queue == 0;
                        let want = waiting[home as usize].iter().copied().find(|t| serves(*t));
                        prop_assert_eq!(mail.longest_waiting(home, serves), want);
                    }
                }
            }
        }
    }
}
