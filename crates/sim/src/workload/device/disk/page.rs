// SPDX-License-Identifier: GPL-2.0-only
//! A step on its way through the page cache: what is there, what is fetched, what is written back.
use super::super::{Bus, Event};
use super::cache::Found;
use super::path::SWEEP;
use super::state::{Aim, Disks, Job};
use berth_scenario::model::Access;
use std::ops::Range;

/// Requests of a file that write back at the same time.
const FLUSHES: u32 = 4;

impl Disks {
    fn blocks_of(&self, job: Job) -> Range<u32> {
        let block = self.disks[usize::from(job.disk)].spec.block_bytes;
        (job.at / block) as u32..(job.at + job.bytes).div_ceil(block) as u32
    }

    /// Blocks of the largest request.
    fn most(&self, disk: u16) -> u32 {
        let spec = &self.disks[usize::from(disk)].spec;
        (spec.request_bytes / spec.block_bytes).clamp(1, u64::from(u32::MAX)) as u32
    }

    /// Requests that a step would have to wait for if it began now, those that others have sent left out.
    pub(super) fn foreseen(&mut self, job: Job) -> u64 {
        let spec = &self.disks[usize::from(job.disk)].spec;
        let (most_bytes, at_once) = (spec.request_bytes, spec.write_back_ns == 0);
        let (blocks, most) = (self.blocks_of(job), self.most(job.disk));
        let Some(file) = self.file(job.disk, job.home) else {
            return 0;
        };
        let Some(cache) = &file.cache else {
            return job.bytes.div_ceil(most_bytes);
        };
        if job.write {
            return if at_once {
                job.bytes.div_ceil(most_bytes)
            } else {
                0
            };
        }
        let (mut requests, mut run) = (0, 0);
        for block in blocks {
            if cache.find(block) != Found::Absent {
                run = 0;
            } else if run % most == 0 {
                (requests, run) = (requests + 1, 1);
            } else {
                run += 1;
            }
        }
        requests
    }

    /// A step begins: what of it the disk has to do is on its way.
    pub(super) fn begin(&mut self, job: Job, bus: &mut impl Bus<Job>) {
        let spec = &self.disks[usize::from(job.disk)].spec;
        let (cached, at_once) = (spec.cache_bytes > 0, spec.write_back_ns == 0);
        if !cached {
            return self.pass(job, job.at..job.at + job.bytes, bus);
        }
        if !job.write {
            self.fetch(job, bus);
        } else if at_once {
            for block in self.blocks_of(job) {
                if let Some(cache) = self.file(job.disk, job.home).and_then(|f| f.cache.as_mut()) {
                    cache.write(block, true);
                }
            }
            self.pass(job, job.at..job.at + job.bytes, bus);
        } else {
            self.put(job, bus);
        }
    }

    /// Part of a file goes past the cache, and the thread waits for it.
    fn pass(&mut self, job: Job, part: Range<u64>, bus: &mut impl Bus<Job>) {
        let most = self.disks[usize::from(job.disk)].spec.request_bytes;
        let mut at = part.start;
        while at < part.end {
            let bytes = most.min(part.end - at);
            let request = self.add(job.disk, job.home, at, bytes, Aim::Past);
            self.wait(job.thread, request);
            self.send(request, bus);
            at += bytes;
        }
    }

    /// Brings absent blocks, of `blocks`, into the cache. Returns whether there was room for all of them. `thread`: who
    /// waits for them, and for those that others bring; what there is no room for is read, too.
    fn bring(
        &mut self,
        (disk, home): (u16, u32),
        blocks: Range<u32>,
        thread: Option<u32>,
        bus: &mut impl Bus<Job>,
    ) -> bool {
        let (most, block_bytes) = (
            self.most(disk),
            self.disks[usize::from(disk)].spec.block_bytes,
        );
        let file_bytes = self.disks[usize::from(disk)].spec.file_bytes;
        let mut at = blocks.start;
        while at < blocks.end {
            let Some(cache) = self.file(disk, home).and_then(|f| f.cache.as_mut()) else {
                return false;
            };
            match cache.find(at) {
                Found::Here => {
                    if thread.is_some() {
                        cache.touch(at);
                    }
                    at += 1;
                    continue;
                }
                Found::Coming(request) => {
                    if let Some(thread) = thread {
                        self.wait(thread, request);
                    }
                    at += 1;
                    continue;
                }
                Found::Absent => {}
            }
            let request = self.add(disk, home, 0, 0, Aim::Fill);
            let first = at;
            let mut room = true;
            if let Some(cache) = self.file(disk, home).and_then(|f| f.cache.as_mut()) {
                while at < blocks.end && at - first < most && cache.find(at) == Found::Absent {
                    room &= cache.expect(at, request);
                    if !room && thread.is_none() {
                        break;
                    }
                    at += 1;
                }
            }
            let begin = u64::from(first) * block_bytes;
            let end = (u64::from(at) * block_bytes).min(file_bytes);
            if begin == end {
                self.remove(request);
                return false;
            }
            let of = &mut self.requests[request as usize];
            (of.at, of.bytes) = (begin, end - begin);
            if let Some(thread) = thread {
                self.wait(thread, request);
            }
            self.send(request, bus);
            if !room && thread.is_none() {
                return false;
            }
        }
        true
    }

    /// A step reads: the blocks that are absent are fetched, and some that come next.
    fn fetch(&mut self, job: Job, bus: &mut impl Bus<Job>) {
        let (of, blocks) = ((job.disk, job.home), self.blocks_of(job));
        let spec = &self.disks[usize::from(job.disk)].spec;
        let ahead = (spec.read_ahead_bytes / spec.block_bytes) as u32;
        let sequential = spec.access == Access::Sequential;
        let now = bus.now();
        let block_bytes = spec.block_bytes;
        let mut here = 0;
        if let Some(cache) = self.file(job.disk, job.home).and_then(|f| f.cache.as_ref()) {
            let found = blocks.clone().filter(|b| cache.find(*b) == Found::Here);
            here = (found.count() as u64 * block_bytes).min(job.bytes);
        }
        if let Some(counter) = self.counter(job.home, now) {
            counter.cached += here;
        }
        self.bring(of, blocks.clone(), Some(job.thread), bus);
        if ahead == 0 || !sequential {
            return;
        }
        let Some(cache) = self.file(job.disk, job.home).and_then(|f| f.cache.as_ref()) else {
            return;
        };
        let end = blocks.end.saturating_add(ahead).min(cache.blocks());
        // Once half of it has been used up, the rest is fetched.
        let half = (blocks.end + ahead / 2).min(end.saturating_sub(1));
        if blocks.end < end && cache.find(half) == Found::Absent {
            self.bring(of, blocks.end..end, None, bus);
        }
    }

    /// A step writes: the blocks are in the cache, and the thread goes on, unless too much is unwritten.
    fn put(&mut self, job: Job, bus: &mut impl Bus<Job>) {
        let (block_bytes, blocks) = (
            self.disks[usize::from(job.disk)].spec.block_bytes,
            self.blocks_of(job),
        );
        // Stretches without room go past the cache.
        let mut past: Option<u32> = None;
        for block in blocks.clone() {
            let kept = self
                .file(job.disk, job.home)
                .and_then(|f| f.cache.as_mut())
                .is_some_and(|cache| cache.write(block, false));
            match past {
                Some(first) if kept => {
                    self.pass_blocks(job, first..block, block_bytes, bus);
                    past = None;
                }
                None if !kept => past = Some(block),
                _ => (),
            }
        }
        if let Some(first) = past {
            self.pass_blocks(job, first..blocks.end, block_bytes, bus);
        }
        if self.unwritten_is_too_much(job.disk, job.home) {
            self.turns[job.thread as usize].throttled = true;
            if let Some(file) = self.file(job.disk, job.home) {
                file.throttled.push(job.thread);
            }
        }
        self.arm(job.disk, job.home, bus);
        self.flush(job.disk, job.home, bus);
    }

    fn pass_blocks(
        &mut self,
        job: Job,
        blocks: Range<u32>,
        block_bytes: u64,
        bus: &mut impl Bus<Job>,
    ) {
        let begin = (u64::from(blocks.start) * block_bytes).max(job.at);
        let end = (u64::from(blocks.end) * block_bytes).min(job.at + job.bytes);
        self.pass(job, begin..end, bus);
    }

    /// Blocks that may be unwritten before writers wait.
    fn most_dirty(&self, disk: u16) -> u64 {
        let spec = &self.disks[usize::from(disk)].spec;
        let room = u128::from(spec.cache_bytes / spec.block_bytes);
        (room * u128::from(spec.dirty_ppm) / 1_000_000).max(1) as u64
    }

    fn unwritten(&mut self, disk: u16, home: u32) -> u64 {
        let file = self.file(disk, home);
        let cache = file.and_then(|f| f.cache.as_ref());
        cache.map_or(0, |c| u64::from(c.dirty) + u64::from(c.going))
    }

    fn unwritten_is_too_much(&mut self, disk: u16, home: u32) -> bool {
        self.unwritten(disk, home) > self.most_dirty(disk)
    }

    /// A sweep will begin, if something is to be written and none is armed.
    fn arm(&mut self, disk: u16, home: u32, bus: &mut impl Bus<Job>) {
        let after = self.disks[usize::from(disk)].spec.write_back_ns;
        let number = self.disks[usize::from(disk)].file_of[home as usize].unwrap_or(0);
        let Some(file) = self.file(disk, home) else {
            return;
        };
        let dirty = file.cache.as_ref().is_some_and(|c| c.dirty > 0);
        if !dirty || file.armed {
            return;
        }
        file.armed = true;
        let (place, at) = (bus.outside(home), bus.now().saturating_add(after));
        let number = u32::from(disk) << 16 | number;
        bus.at(
            place,
            at,
            Event {
                what: SWEEP,
                number,
            },
        );
    }

    /// What is unwritten since long is written, once around the file.
    pub(super) fn sweep(&mut self, disk: u16, file: u32, bus: &mut impl Bus<Job>) {
        let Some(of) = self.disks[usize::from(disk)].files.get_mut(file as usize) else {
            return;
        };
        let home = of.home;
        of.armed = false;
        of.sweep = of.cache.as_ref().map(|c| c.blocks());
        if self.stopped[home as usize] {
            return;
        }
        self.flush(disk, home, bus);
        self.arm(disk, home, bus);
    }

    /// Sends what is to be written back: while a sweep is on, or much is unwritten.
    pub(super) fn flush(&mut self, disk: u16, home: u32, bus: &mut impl Bus<Job>) {
        let (much, most) = (self.most_dirty(disk) / 2, self.most(disk));
        let block_bytes = self.disks[usize::from(disk)].spec.block_bytes;
        let file_bytes = self.disks[usize::from(disk)].spec.file_bytes;
        loop {
            let unwritten = self.unwritten(disk, home);
            let Some(file) = self.file(disk, home) else {
                return;
            };
            let Some(cache) = file.cache.as_mut() else {
                return;
            };
            if file.flushing >= FLUSHES || (unwritten <= much && file.sweep.is_none()) {
                return;
            }
            let mut all = None;
            let sweep = if unwritten > much {
                &mut all
            } else {
                &mut file.sweep
            };
            let found = cache.take_dirty(most, sweep);
            let Some(blocks) = found else {
                file.sweep = None;
                return;
            };
            file.flushing += 1;
            let begin = u64::from(blocks.start) * block_bytes;
            let end = (u64::from(blocks.end) * block_bytes).min(file_bytes);
            let request = self.add(disk, home, begin, end - begin, Aim::Back);
            self.send(request, bus);
        }
    }

    /// The blocks of a request that is over.
    fn blocks_of_request(&self, request: u32) -> Range<u32> {
        let of = self.request(request);
        let block = self.disks[usize::from(of.disk)].spec.block_bytes;
        (of.at / block) as u32..(of.at + of.bytes).div_ceil(block) as u32
    }

    /// The cache hears that a request is over.
    pub(super) fn settle(&mut self, request: u32, given_up: bool, bus: &mut impl Bus<Job>) {
        let (disk, home, aim) = {
            let of = self.request(request);
            (of.disk, of.home, of.aim)
        };
        let blocks = self.blocks_of_request(request);
        let Some(file) = self.file(disk, home) else {
            return;
        };
        let Some(cache) = file.cache.as_mut() else {
            return;
        };
        match aim {
            Aim::Past => {}
            Aim::Fill => cache.came(blocks, request, given_up),
            Aim::Back => {
                file.flushing -= 1;
                cache.went(blocks);
                if given_up || self.stopped[home as usize] {
                    return;
                }
                self.flush(disk, home, bus);
                if !self.unwritten_is_too_much(disk, home) {
                    self.release(disk, home, bus);
                }
            }
        }
    }

    /// Less is unwritten: who waited for that goes on.
    fn release(&mut self, disk: u16, home: u32, bus: &mut impl Bus<Job>) {
        let Some(file) = self.file(disk, home) else {
            return;
        };
        let mut all = std::mem::take(&mut file.throttled);
        for thread in all.drain(..) {
            self.turns[thread as usize].throttled = false;
            self.go_on(thread, bus);
        }
        if let Some(file) = self.file(disk, home) {
            file.throttled = all;
        }
    }
}
