// SPDX-License-Identifier: GPL-2.0-only
//! Who reads and writes, and where their requests are. Slots are used again: nothing is allocated once as much is under
//! way as ever before.
use super::super::flow::Flow;
use super::super::{Place, Worker};
use super::cache::Cache;
use super::drive::Drive;
use crate::words::Nanos;
use berth_scenario::dist::Rng;
use berth_scenario::model::{Access, Disk as Spec};
use hdrhistogram::Histogram;
use std::collections::VecDeque;

/// A task's step: a record that is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub thread: u32,
    pub home: u32,
    pub disk: u16,
    pub write: bool,
    /// In the file of its home.
    pub at: u64,
    pub bytes: u64,
}

/// A thread's step under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub job: Option<Job>,
    pub began: Nanos,
    /// Requests that it waits for.
    pub waits: u32,
    /// It waits until less is unwritten.
    pub throttled: bool,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// It brings blocks into the cache.
    Fill,
    /// It brings unwritten blocks to the disk.
    Back,
    /// It passes the cache.
    Past,
}

/// A stretch of a file on its way to the disk and back.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub disk: u16,
    pub home: u32,
    /// In the file.
    pub at: u64,
    pub bytes: u64,
    pub aim: Aim,
    /// Threads that wait for it.
    pub waiters: Vec<u32>,
    /// Where it came to the disk's queue: there its interrupt is.
    pub place: Place,
    pub since: Nanos,
    pub used: bool,
}

/// Where the next record of a program's threads is.
#[derive(Clone, Debug)]
pub(super) struct Next {
    /// Of reading and of writing.
    pub at: [u64; 2],
    pub random: Rng,
}

/// A home's file on a disk.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub home: u32,
    /// Where it begins on the disk.
    pub begin: u64,
    /// By program.
    pub next: Vec<Next>,
    pub cache: Option<Cache>,
    /// Threads that wait until less is unwritten.
    pub throttled: Vec<u32>,
    /// Requests that write back.
    pub flushing: u32,
    /// Blocks that the present sweep still looks at; none: there is no sweep.
    pub sweep: Option<u32>,
    /// The next sweep is armed.
    pub armed: bool,
}

/// A disk, and the files on it.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub spec: Spec,
    pub drive: Drive,
    pub files: Vec<File>,
    /// By home: position of its file.
    pub file_of: Vec<Option<u32>>,
    /// Requests from the queue on until they are served.
    pub flow: Flow,
    /// How many of those there are, and how many in service.
    pub present: Area,
    pub working: Area,
    /// By home: position in [`Disks::backs`]; none: nobody is on the path.
    pub back: Vec<Option<u32>>,
}

/// A number over time, from an instant on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Area {
    pub now: u64,
    since: Nanos,
    from: Nanos,
    area: u128,
}

impl Area {
    fn until(&self, now: Nanos) -> u128 {
        let ns = now.max(self.from) - self.since.max(self.from);
        self.area + u128::from(self.now) * u128::from(ns)
    }

    pub fn set(&mut self, number: u64, now: Nanos) {
        self.area = self.until(now);
        (self.now, self.since) = (number, now);
    }

    /// What was before this instant is left out; it may be yet to come.
    pub fn begin(&mut self, from: Nanos) {
        (self.from, self.area) = (from, 0);
    }

    /// The mean over so many seconds until now.
    pub fn mean(&self, now: Nanos, seconds: f64) -> f64 {
        self.until(now) as f64 / (seconds * 1e9)
    }
}

/// Threads that move blocks, and the ring they serve: a request and whether it comes back.
#[derive(Clone, Debug, Default)]
pub(super) struct BackEnd {
    /// Whose threads they are.
    pub vm: u32,
    pub ring: VecDeque<(u32, bool)>,
    /// Workers of it that sleep.
    pub idle: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hand {
    pub back: u32,
    pub holds: Option<(u32, bool)>,
}

/// What a group of VMs has had since the warm-up.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub name: String,
    /// Some task of it uses a disk.
    pub uses: bool,
    /// Bytes of steps: read, written.
    pub bytes: [u64; 2],
    /// Bytes of reading steps that were in the cache.
    pub cached: u64,
    /// Requests that disks have done.
    pub requests: u64,
    pub took: Histogram<u64>,
    pub took_sum: u128,
    pub longest: Nanos,
}

/// All disks.
#[derive(Debug)]
pub struct Disks {
    pub(super) disks: Vec<Disk>,
    /// By thread.
    pub(super) turns: Vec<Turn>,
    pub(super) requests: Vec<Request>,
    pub(super) free: Vec<u32>,
    pub(super) backs: Vec<BackEnd>,
    pub(super) workers: Vec<Worker>,
    /// By worker.
    pub(super) hands: Vec<Hand>,
    /// By home: it has stopped.
    pub(super) stopped: Vec<bool>,
    /// By home: position of its group's counter; none: the host.
    pub(super) group: Vec<Option<usize>>,
    pub(super) counters: Vec<Counter>,
    /// Steps from the call on until they go on.
    pub(super) flow: Flow,
    pub(super) measure_from: Nanos,
}

impl Disks {
    pub(super) fn request(&self, number: u32) -> &Request {
        &self.requests[number as usize]
    }

    /// A new request.
    pub(super) fn add(&mut self, disk: u16, home: u32, at: u64, bytes: u64, aim: Aim) -> u32 {
        let place = Place::of_host(0);
        let new = |waiters| Request {
            disk,
            home,
            at,
            bytes,
            aim,
            waiters,
            place,
            since: 0,
            used: true,
        };
        match self.free.pop() {
            Some(slot) => {
                let old = &mut self.requests[slot as usize];
                let waiters = std::mem::take(&mut old.waiters);
                *old = new(waiters);
                slot
            }
            None => {
                self.requests.push(new(Vec::new()));
                self.requests.len() as u32 - 1
            }
        }
    }

    /// It is over.
    pub(super) fn remove(&mut self, number: u32) {
        let request = &mut self.requests[number as usize];
        request.waiters.clear();
        request.used = false;
        self.free.push(number);
    }

    /// A thread waits for a request.
    pub(super) fn wait(&mut self, thread: u32, number: u32) {
        let waiters = &mut self.requests[number as usize].waiters;
        if !waiters.contains(&thread) {
            waiters.push(thread);
            self.turns[thread as usize].waits += 1;
        }
    }

    pub(super) fn file(&mut self, disk: u16, home: u32) -> Option<&mut File> {
        let disk = &mut self.disks[usize::from(disk)];
        let at = disk.file_of[home as usize]?;
        disk.files.get_mut(at as usize)
    }

    /// The next record of a program's threads in a home.
    pub fn job(
        &mut self,
        (thread, home, program): (u32, u32, u32),
        (disk, write, bytes): (u16, bool, u64),
    ) -> Job {
        let of = &self.disks[usize::from(disk)].spec;
        let (size, random) = (of.file_bytes, of.access == Access::Random);
        let bytes = bytes.min(size);
        let mut at = 0;
        if let Some(file) = self.file(disk, home) {
            let next = &mut file.next[program as usize];
            if random {
                at = next.random.below((size / bytes.max(1)).max(1)) * bytes;
            } else {
                let next = &mut next.at[usize::from(write)];
                if *next + bytes > size {
                    *next = 0;
                }
                at = *next;
                *next += bytes;
            }
        }
        Job {
            thread,
            home,
            disk,
            write,
            at,
            bytes,
        }
    }

    /// The thread's step is not over.
    pub fn waits(&self, thread: u32) -> bool {
        let turn = self.turns.get(thread as usize);
        turn.is_some_and(|turn| turn.job.is_some())
    }

    pub(super) fn counter(&mut self, home: u32, now: Nanos) -> Option<&mut Counter> {
        if now < self.measure_from {
            return None;
        }
        let group = (*self.group.get(home as usize)?)?;
        self.counters.get_mut(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_begins_when_it_is_told() {
        let mut area = Area::default();
        area.begin(100);
        area.set(3, 10);
        area.set(1, 150);
        assert_eq!((area.until(150), area.until(200)), (150, 200));
        assert_eq!(area.mean(200, 100e-9), 2.0);
        let mut late = Area::default();
        late.set(7, 5);
        late.begin(100);
        assert_eq!((late.until(60), late.until(101)), (0, 7));
    }
}
