// SPDX-License-Identifier: GPL-2.0-only
//! A request's way to a disk and back: the thread on the path, the queue, the disk, its interrupt, the thread again.
use super::super::{Bus, Device, Event, Taker, Worker};
use super::state::{Disks, Job, Turn};
use crate::words::{Nanos, VmId};
use crate::workload::api::Action;
use berth_scenario::model::DiskPath;
use std::collections::BTreeMap;

/// A disk has served a request (number of the disk).
const SERVED: u16 = 0;
/// The interrupt of a request on the CPU of who waits for it; an interrupt is over (number of the request).
const IRQ_THERE: u16 = 1;
const IRQ_DONE: u16 = 2;
/// What is unwritten is to be written (disk and file).
pub(super) const SWEEP: u16 = 3;

impl Device for Disks {
    type Work = Job;

    fn workers(&self) -> &[Worker] {
        &self.workers
    }

    fn enter(&mut self, job: Job, bus: &mut impl Bus<Job>) {
        let now = bus.now();
        self.flow.enter(now);
        let thread = job.thread as usize;
        if self.turns.len() <= thread {
            self.turns.resize(thread + 1, Turn::default());
        }
        self.turns[thread] = Turn {
            job: Some(job),
            began: now,
            waits: 0,
            throttled: false,
        };
        self.begin(job, bus);
        // Nothing to wait for: it goes on at once.
        let turn = &self.turns[thread];
        if turn.waits == 0 && !turn.throttled {
            self.over(job.thread, now, true);
        }
    }

    fn event(&mut self, event: Event, bus: &mut impl Bus<Job>) {
        match event.what {
            SERVED => self.served(event.number, bus),
            IRQ_THERE => self.irq(event.number, bus),
            IRQ_DONE => self.come_back(event.number, bus),
            _ => self.sweep((event.number >> 16) as u16, event.number & 0xffff, bus),
        }
    }

    /// One request after the other, on its way out or back.
    fn serve(&mut self, worker: u32, bus: &mut impl Bus<Job>) -> Action {
        loop {
            if let Some((request, back)) = self.hands[worker as usize].holds.take() {
                if back {
                    self.complete(request, bus);
                } else {
                    self.queue(request, bus);
                }
                continue;
            }
            let hand = &mut self.hands[worker as usize];
            let of = &mut self.backs[hand.back as usize];
            let Some((request, back)) = of.ring.pop_front() else {
                of.idle.push(worker);
                return Action::Block;
            };
            hand.holds = Some((request, back));
            let disk = self.requests[request as usize].disk;
            let ns = self.disks[usize::from(disk)].spec.per_request_host_ns;
            if ns > 0 {
                return Action::Compute { ns };
            }
        }
    }

    /// Before a step: the call, what is copied for a write, and the requests it needs. Behind it: what is copied for a
    /// read, and the guest's interrupt if it slept ([`Disks::after_ns`]).
    fn guest_ns(&mut self, job: Job, _taker: Taker) -> Nanos {
        let spec = &self.disks[usize::from(job.disk)].spec;
        let (call, submit) = (spec.syscall_ns, spec.submit_ns);
        let copy = if job.write { self.copy_ns(job) } else { 0 };
        call.saturating_add(copy)
            .saturating_add(submit.saturating_mul(self.foreseen(job)))
    }

    fn stop_vm(&mut self, vm: VmId, bus: &mut impl Bus<Job>) {
        let Some(stopped) = self.stopped.get_mut(vm as usize) else {
            return;
        };
        *stopped = true;
        for worker in 0..self.workers.len() {
            if self.workers[worker].vm != vm {
                continue;
            }
            let back = self.hands[worker].back as usize;
            let held = self.hands[worker].holds.take();
            let of = &mut self.backs[back];
            of.idle.retain(|i| self.workers[*i as usize].vm != vm);
            // Nobody serves this ring any more.
            let ring = std::mem::take(&mut of.ring);
            for (request, _) in held.into_iter().chain(ring) {
                self.give_up(request, bus);
            }
        }
        for thread in 0..self.turns.len() as u32 {
            let Some(job) = self.turns[thread as usize].job.filter(|job| job.home == vm) else {
                continue;
            };
            self.over(thread, bus.now(), false);
            bus.lost(job);
        }
        for disk in &mut self.disks {
            for file in disk.files.iter_mut().filter(|file| file.home == vm) {
                file.throttled.clear();
                file.sweep = None;
            }
        }
        for request in self.requests.iter_mut().filter(|r| r.home == vm) {
            request.waiters.clear();
        }
    }

    fn inside(&self) -> impl Iterator<Item = Job> {
        self.turns.iter().filter_map(|turn| turn.job)
    }

    fn measure_from(&mut self, now: Nanos) {
        self.measure_from = now;
        for counter in &mut self.counters {
            (counter.bytes, counter.cached, counter.requests) = ([0; 2], 0, 0);
            counter.took.reset();
            (counter.took_sum, counter.longest) = (0, 0);
        }
        for disk in &mut self.disks {
            disk.present.begin(now);
            disk.working.begin(now);
        }
    }

    fn metrics(&self, seconds: f64, out: &mut BTreeMap<String, f64>) {
        let now = self.measure_from + (seconds * 1e9).round() as Nanos;
        let busy = self
            .disks
            .iter()
            .map(|disk| disk.working.mean(now, seconds));
        out.insert("host.disk_busy".into(), busy.fold(0.0, f64::max));
        let queue = self
            .disks
            .iter()
            .map(|disk| disk.present.mean(now, seconds));
        out.insert("host.disk_queue".into(), queue.sum());
        for counter in self.counters.iter().filter(|c| c.uses) {
            let mut put = |what: &str, value: f64| {
                out.insert(format!("{}.{what}", counter.name), value);
            };
            let [read, written] = counter.bytes;
            put("read", (read * 8) as f64 / seconds);
            put("written", (written * 8) as f64 / seconds);
            if read > 0 {
                put("cached", counter.cached as f64 / read as f64);
            }
            put("blocks", counter.requests as f64 / seconds);
            put("disk.count", counter.took.len() as f64);
            if counter.took.is_empty() {
                continue;
            }
            put(
                "disk.mean",
                counter.took_sum as f64 / counter.took.len() as f64,
            );
            for (stat, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)] {
                put(
                    &format!("disk.{stat}"),
                    counter.took.value_at_quantile(q) as f64,
                );
            }
            put("disk.max", counter.longest as f64);
        }
    }

    fn violated(&self, now: Nanos) -> Option<String> {
        let begun = self
            .turns
            .iter()
            .filter(|t| t.job.is_some())
            .map(|t| t.began);
        if let Some(what) = self.flow.violated(now, begun) {
            return Some(format!("steps at disks: {what}"));
        }
        for (turn, thread) in self.turns.iter().zip(0u32..) {
            let waits = self
                .requests
                .iter()
                .filter(|r| r.used && r.waiters.contains(&thread));
            let waits = waits.count() as u32;
            if turn.job.is_some() && !self.is_lost(turn) && turn.waits != waits {
                return Some(format!(
                    "a thread waits for {} requests of disks, but {waits} have it in their lists",
                    turn.waits
                ));
            }
        }
        for disk in &self.disks {
            let name = &disk.spec.name;
            let serving = disk.drive.serving.iter().map(|(request, _)| request);
            let there = disk.drive.queue.iter().chain(serving);
            let since = there.clone().map(|r| self.request(*r).since);
            if let Some(what) = disk.flow.violated(now, since) {
                return Some(format!("requests at disk {name}: {what}"));
            }
            if there.count() as u64 != disk.present.now || disk.drive.worked(now) > now {
                return Some(format!(
                    "disk {name} has worked {} ns of {now}, and counts {} requests",
                    disk.drive.worked(now),
                    disk.present.now
                ));
            }
            let caches = disk.files.iter().filter_map(|f| f.cache.as_ref());
            if let Some(what) = caches.filter_map(|c| c.violated()).next() {
                return Some(format!("disk {name}: {what}"));
            }
        }
        None
    }
}

impl Disks {
    /// Its home has stopped, or who moves its blocks has.
    fn is_lost(&self, turn: &Turn) -> bool {
        let stops = |home: u32| self.stopped.get(home as usize) == Some(&true);
        let moves = |job: Job| {
            let back = self.disks[usize::from(job.disk)].back[job.home as usize];
            back.is_some_and(|back| stops(self.backs[back as usize].vm))
        };
        turn.job.is_some_and(|job| stops(job.home) || moves(job))
    }

    fn copy_ns(&self, job: Job) -> Nanos {
        let copy = self.disks[usize::from(job.disk)].spec.copy_ns;
        (u128::from(copy) * u128::from(job.bytes) / 1024).min(1 << 60) as Nanos
    }

    /// CPU time that a task pays when it goes on, ns; see [`Device::guest_ns`].
    pub fn after_ns(&self, job: Job, woken: bool) -> Nanos {
        let spec = &self.disks[usize::from(job.disk)].spec;
        // That of an assigned disk has been served already, and the host's own tasks have no guest.
        let guest = self.group[job.home as usize].is_some() && spec.path != DiskPath::Direct;
        let irq = if woken && guest { spec.irq_ns } else { 0 };
        let copy = if job.write { 0 } else { self.copy_ns(job) };
        copy.saturating_add(irq)
    }

    /// A request sets out.
    pub(super) fn send(&mut self, request: u32, bus: &mut impl Bus<Job>) {
        let of = self.request(request);
        match self.disks[usize::from(of.disk)].back[of.home as usize] {
            Some(back) => self.hand_over(back, request, false, bus),
            None => self.queue(request, bus),
        }
    }

    fn hand_over(&mut self, back: u32, request: u32, comes_back: bool, bus: &mut impl Bus<Job>) {
        if self.stopped[self.backs[back as usize].vm as usize] {
            return self.give_up(request, bus);
        }
        let of = &mut self.backs[back as usize];
        of.ring.push_back((request, comes_back));
        if let Some(worker) = of.idle.pop() {
            bus.wake(worker);
        }
    }

    /// It is in the disk's queue.
    fn queue(&mut self, request: u32, bus: &mut impl Bus<Job>) {
        let now = bus.now();
        let of = &mut self.requests[request as usize];
        let (disk, home) = (of.disk, of.home);
        if self.stopped[home as usize] {
            return self.give_up(request, bus);
        }
        (of.place, of.since) = (bus.outside(home), now);
        let disk = &mut self.disks[usize::from(disk)];
        disk.flow.enter(now);
        disk.present.set(disk.present.now + 1, now);
        disk.drive.queue.push_back(request);
        if disk.drive.serving.is_none() {
            self.next(self.requests[request as usize].disk, bus);
        }
    }

    /// The disk takes the next request.
    fn next(&mut self, number: u16, bus: &mut impl Bus<Job>) {
        let disk = &mut self.disks[usize::from(number)];
        let Some(request) = disk.drive.queue.pop_front() else {
            return;
        };
        let of = &self.requests[request as usize];
        let file = disk.file_of[of.home as usize].map_or(0, |f| disk.files[f as usize].begin);
        let end = disk.drive.begin(request, file + of.at, of.bytes, bus.now());
        disk.working.set(1, bus.now());
        let (what, number) = (SERVED, u32::from(number));
        bus.at(of.place, end, Event { what, number });
    }

    /// It has served one: the next, and the interrupt.
    fn served(&mut self, number: u32, bus: &mut impl Bus<Job>) {
        let now = bus.now();
        let disk = &mut self.disks[number as usize];
        let Some((request, _)) = disk.drive.serving.take() else {
            return;
        };
        let of = &self.requests[request as usize];
        disk.flow.leave(of.since, now, true);
        disk.present.set(disk.present.now - 1, now);
        disk.working.set(0, now);
        let (home, back, waiter) = (of.home, disk.back[of.home as usize], of.waiters.first());
        // An assigned disk interrupts who waits, wherever that is.
        let there = match (back, waiter) {
            (None, Some(thread)) => self.turns[*thread as usize]
                .job
                .map(|job| bus.place_of(job)),
            _ => None,
        };
        self.next(number as u16, bus);
        if let Some(counter) = self.counter(home, now) {
            counter.requests += 1;
        }
        let number = request;
        match there {
            Some(place) if place != bus.here() => {
                let what = IRQ_THERE;
                bus.at(place, now, Event { what, number });
            }
            _ => self.irq(request, bus),
        }
    }

    fn irq(&mut self, request: u32, bus: &mut impl Bus<Job>) {
        let disk = usize::from(self.request(request).disk);
        let done = bus.interrupt(self.disks[disk].spec.irq_ns);
        if done > bus.now() {
            let (place, what, number) = (bus.here(), IRQ_DONE, request);
            bus.at(place, done, Event { what, number });
        } else {
            self.come_back(request, bus);
        }
    }

    /// It is on its way back from the disk.
    fn come_back(&mut self, request: u32, bus: &mut impl Bus<Job>) {
        let of = self.request(request);
        match self.disks[usize::from(of.disk)].back[of.home as usize] {
            Some(back) if !self.stopped[of.home as usize] => {
                self.hand_over(back, request, true, bus);
            }
            _ => self.complete(request, bus),
        }
    }

    /// The guest has it: blocks are there or written, threads that waited only for this go on.
    fn complete(&mut self, request: u32, bus: &mut impl Bus<Job>) {
        self.settle(request, false, bus);
        let mut waiters = std::mem::take(&mut self.requests[request as usize].waiters);
        for thread in waiters.drain(..) {
            let turn = &mut self.turns[thread as usize];
            turn.waits -= 1;
            self.go_on(thread, bus);
        }
        self.requests[request as usize].waiters = waiters;
        self.remove(request);
    }

    /// It will never come back: who waits for it waits for ever, as at a disk whose back end is gone.
    fn give_up(&mut self, request: u32, bus: &mut impl Bus<Job>) {
        self.settle(request, true, bus);
        self.remove(request);
    }

    /// The thread's step is over, if it waits for nothing more.
    pub(super) fn go_on(&mut self, thread: u32, bus: &mut impl Bus<Job>) {
        let turn = &self.turns[thread as usize];
        if let (0, false, Some(job)) = (turn.waits, turn.throttled, turn.job) {
            self.over(thread, bus.now(), true);
            bus.done(job);
        }
    }

    /// The disk has nothing more to do with a thread's step.
    fn over(&mut self, thread: u32, now: Nanos, done: bool) {
        let turn = &mut self.turns[thread as usize];
        let Some(_) = turn.job.take() else {
            return;
        };
        (turn.waits, turn.throttled) = (0, false);
        let began = turn.began;
        self.flow.leave(began, now, done);
    }

    /// A step that began then has come to its end: it counts.
    pub fn count(&mut self, job: Job, began: Nanos, now: Nanos) {
        if let Some(counter) = self.counter(job.home, now) {
            let took = now - began;
            counter.bytes[usize::from(job.write)] += job.bytes;
            // An auto-resizing histogram takes every value.
            let _ = counter.took.record(took);
            counter.took_sum += u128::from(took);
            counter.longest = counter.longest.max(took);
        }
    }
}
