// SPDX-License-Identifier: GPL-2.0-only
//! The FIFO queues of one VM: clients and tasks put messages in, vCPU threads take the oldest.
//!
//! Putting never blocks: the real-time generator must not wait for a thread that the scheduler under
//! test has preempted. Only takers of the same VM share a lock.
use crate::sys::{self, Woken};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A request of a client, or a message of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// When it was due, as its sender scheduled it: response times count from here.
    pub arrival_ns: u64,
    /// When it was put into the queue and a waiter was woken.
    pub sent_ns: u64,
    /// Client and user that wait for the answer; `None` for messages of tasks.
    pub client: Option<Asker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Asker {
    /// Position of the stream in the generator's list.
    pub stream: usize,
    /// User of a closed-loop client.
    pub user: u32,
}

#[derive(Debug)]
struct Queue {
    name: String,
    sender: Sender<Message>,
    /// Counts the messages put; waiters sleep on it.
    puts: AtomicU32,
}

#[derive(Debug)]
pub struct Mailbox {
    queues: Vec<Queue>,
    inbox: Mutex<Vec<(Receiver<Message>, Option<Message>)>>,
}

/// A message taken, and whether the thread slept before it came.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub message: Message,
    pub queue: usize,
    pub slept: bool,
}

impl Mailbox {
    pub fn new(names: Vec<String>) -> Mailbox {
        let mut queues = Vec::new();
        let mut inbox = Vec::new();
        for name in names {
            let (sender, receiver) = channel();
            queues.push(Queue {
                name,
                sender,
                puts: AtomicU32::new(0),
            });
            inbox.push((receiver, None));
        }
        Mailbox {
            queues,
            inbox: Mutex::new(inbox),
        }
    }

    /// Position of a queue.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.queues.iter().position(|q| q.name == name)
    }

    /// Puts a message and wakes one waiter. `sent_ns` is filled in here.
    pub fn put(&self, queue: usize, mut message: Message) {
        let queue = &self.queues[queue];
        message.sent_ns = sys::now_ns();
        // The receiver lives as long as the mailbox, so sending cannot fail.
        if queue.sender.send(message).is_ok() {
            sys::change_and_wake(&queue.puts, 1);
        }
    }

    /// Takes the oldest message of these queues (ties: the queue named first); waits for one until
    /// `stop` changes from 0 or `deadline_ns` passes, then gives `None`.
    pub fn take(
        &self,
        serves: &[usize],
        stop: &AtomicU32,
        deadline_ns: Option<u64>,
    ) -> io::Result<Option<Taken>> {
        let mut slept = false;
        loop {
            let mut words: Vec<(&AtomicU32, u32)> = serves
                .iter()
                .map(|q| {
                    (
                        &self.queues[*q].puts,
                        self.queues[*q].puts.load(Ordering::Acquire),
                    )
                })
                .collect();
            if stop.load(Ordering::Acquire) != 0 {
                return Ok(None);
            }
            if let Some((queue, message)) = self.oldest(serves) {
                return Ok(Some(Taken {
                    message,
                    queue,
                    slept,
                }));
            }
            words.push((stop, 0));
            match sys::wait(&words, deadline_ns)? {
                Woken::Timeout => return Ok(None),
                Woken::Wake => slept = true,
                Woken::Changed => (),
            }
        }
    }

    fn oldest(&self, serves: &[usize]) -> Option<(usize, Message)> {
        let mut inbox = self.inbox.lock().unwrap_or_else(|e| e.into_inner());
        for q in serves {
            let (receiver, head) = &mut inbox[*q];
            if head.is_none() {
                *head = receiver.try_recv().ok();
            }
        }
        let best = serves
            .iter()
            .filter(|q| inbox[**q].1.is_some())
            .min_by_key(|q| inbox[**q].1.map(|m| m.sent_ns))?;
        inbox[*best].1.take().map(|m| (*best, m))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(arrival_ns: u64) -> Message {
        Message {
            arrival_ns,
            sent_ns: 0,
            client: None,
        }
    }

    #[test]
    fn the_oldest_message_of_the_served_queues_comes_first() {
        let m = Mailbox::new(vec!["a".into(), "b".into()]);
        let stop = AtomicU32::new(0);
        m.put(1, message(1));
        m.put(0, message(2));
        m.put(1, message(3));
        let take = |serves: &[usize]| {
            m.take(serves, &stop, Some(0))
                .unwrap()
                .map(|t| t.message.arrival_ns)
        };
        assert_eq!(take(&[0]), Some(2));
        assert_eq!(take(&[0]), None);
        assert_eq!(take(&[0, 1]), Some(1));
        assert_eq!(take(&[0, 1]), Some(3));
        assert_eq!(m.position("b"), Some(1));
    }

    #[test]
    fn every_message_is_taken_once_whoever_waits() {
        let m = Mailbox::new(vec!["a".into(), "b".into()]);
        let stop = AtomicU32::new(0);
        let taken = AtomicU32::new(0);
        let sum = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while let Some(t) = m.take(&[0, 1], &stop, None).unwrap() {
                        sum.fetch_add(t.message.arrival_ns, Ordering::Relaxed);
                        if taken.fetch_add(1, Ordering::Relaxed) + 1 == 2_000 {
                            sys::change_and_wake(&stop, i32::MAX);
                        }
                    }
                });
            }
            for i in 1..=2_000 {
                m.put((i % 2) as usize, message(i));
            }
        });
        assert_eq!(taken.into_inner(), 2_000);
        assert_eq!(sum.into_inner(), 2_000 * 2_001 / 2);
    }
}
