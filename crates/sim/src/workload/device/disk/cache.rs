// SPDX-License-Identifier: GPL-2.0-only
//! A VM's page cache for its file on one disk: which blocks are there, and what is to happen to them.
//!
//! Clean blocks form a list, least recently used last: those may be given up. Blocks that are unwritten, being written
//! or being read stay.
use std::ops::Range;

const NONE: u32 = u32::MAX;
const HERE: u8 = 1;
/// Changed since it was last given to the disk.
const DIRTY: u8 = 2;
/// Being written.
const GOING: u8 = 4;
/// Being read; whose request it is stands in `before`.
const COMING: u8 = 8;

/// What a block is to who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Here,
    /// The request of this number brings it.
    Coming(u32),
    Absent,
}

#[derive(Clone, Debug)]
pub(super) struct Cache {
    state: Vec<u8>,
    /// Neighbours in the list of clean blocks.
    before: Vec<u32>,
    after: Vec<u32>,
    first: u32,
    last: u32,
    /// Blocks that fit, and that are there or coming.
    pub room: u32,
    pub used: u32,
    /// Unwritten, and being written.
    pub dirty: u32,
    pub going: u32,
    /// Bit set: unwritten and not being written.
    to_write: Vec<u64>,
    /// Where writing back goes on.
    cursor: u32,
}

impl Cache {
    pub fn new(blocks: u32, room: u32) -> Cache {
        Cache {
            state: vec![0; blocks as usize],
            before: vec![NONE; blocks as usize],
            after: vec![NONE; blocks as usize],
            first: NONE,
            last: NONE,
            room,
            used: 0,
            dirty: 0,
            going: 0,
            to_write: vec![0; (blocks as usize).div_ceil(64)],
            cursor: 0,
        }
    }

    pub fn blocks(&self) -> u32 {
        self.state.len() as u32
    }

    pub fn find(&self, block: u32) -> Found {
        let state = self.state[block as usize];
        if state & HERE != 0 {
            Found::Here
        } else if state & COMING != 0 {
            Found::Coming(self.before[block as usize])
        } else {
            Found::Absent
        }
    }

    fn link(&mut self, block: u32) {
        let old = self.first;
        (self.before[block as usize], self.after[block as usize]) = (NONE, old);
        match old {
            NONE => self.last = block,
            old => self.before[old as usize] = block,
        }
        self.first = block;
    }

    fn unlink(&mut self, block: u32) {
        let (before, after) = (self.before[block as usize], self.after[block as usize]);
        match before {
            NONE => self.first = after,
            before => self.after[before as usize] = after,
        }
        match after {
            NONE => self.last = before,
            after => self.before[after as usize] = before,
        }
    }

    /// A block that is there is used.
    pub fn touch(&mut self, block: u32) {
        if self.state[block as usize] == HERE && self.first != block {
            self.unlink(block);
            self.link(block);
        }
    }

    /// Room for one more block, if need be of the clean one that was not used for longest. `false`: there is none.
    fn make_room(&mut self) -> bool {
        if self.used < self.room {
            self.used += 1;
            return true;
        }
        let old = self.last;
        if old == NONE {
            return false;
        }
        self.unlink(old);
        self.state[old as usize] = 0;
        true
    }

    /// An absent block will be brought by a request. `false`: there is no room, it will not be kept.
    pub fn expect(&mut self, block: u32, request: u32) -> bool {
        let room = self.make_room();
        if room {
            self.state[block as usize] = COMING;
            self.before[block as usize] = request;
        }
        room
    }

    /// That request has brought its blocks, or, given up, never will.
    pub fn came(&mut self, blocks: Range<u32>, request: u32, given_up: bool) {
        for block in blocks {
            let at = block as usize;
            if self.state[at] != COMING || self.before[at] != request {
                continue;
            }
            if given_up {
                self.state[at] = 0;
                self.used -= 1;
            } else {
                self.state[at] = HERE;
                self.link(block);
            }
        }
    }

    fn mark(&mut self, block: u32, to_write: bool) {
        let (word, bit) = (block as usize / 64, 1u64 << (block % 64));
        if to_write {
            self.to_write[word] |= bit;
        } else {
            self.to_write[word] &= !bit;
        }
    }

    /// A block is written by a task. `clean`: it goes to the disk at once, so that it is as the disk's. `false`: there
    /// is no room for it.
    pub fn write(&mut self, block: u32, clean: bool) -> bool {
        let at = block as usize;
        let state = self.state[at];
        if state & (HERE | COMING) == 0 && !self.make_room() {
            return false;
        }
        if clean {
            if state == HERE {
                self.touch(block);
            } else if state & HERE == 0 {
                self.state[at] = HERE;
                self.link(block);
            }
            return true;
        }
        if state == HERE {
            self.unlink(block);
        }
        if state & DIRTY == 0 {
            self.dirty += 1;
        }
        self.state[at] = HERE | DIRTY | (state & GOING);
        if state & GOING == 0 {
            self.mark(block, true);
        }
        true
    }

    /// The next block to be written, from where the last stretch ended, within so many blocks from there on; how many
    /// were passed over.
    fn next_to_write(&self, within: u32) -> Option<u32> {
        let (from, end) = (
            self.cursor,
            self.cursor.saturating_add(within).min(self.blocks()),
        );
        let mut block = from;
        while block < end {
            let word = self.to_write[block as usize / 64] >> (block % 64);
            if word != 0 {
                let found = block + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            block = (block / 64 + 1) * 64;
        }
        None
    }

    /// The next stretch to be written, of so many blocks at most: it is being written from now on. `sweep`: so many
    /// blocks are still looked at, the passed ones counted off; none: all.
    pub fn take_dirty(&mut self, most: u32, sweep: &mut Option<u32>) -> Option<Range<u32>> {
        for _ in 0..2 {
            let within = sweep
                .unwrap_or(self.blocks())
                .min(self.blocks() - self.cursor);
            let found = self.next_to_write(within);
            let Some(first) = found else {
                if let Some(left) = sweep {
                    *left -= within;
                }
                self.cursor = (self.cursor + within) % self.blocks().max(1);
                if *sweep == Some(0) {
                    return None;
                }
                continue;
            };
            let mut end = first;
            while end < self.blocks()
                && end - first < most
                && self.to_write[end as usize / 64] & 1 << (end % 64) != 0
            {
                self.state[end as usize] = HERE | GOING;
                self.mark(end, false);
                end += 1;
            }
            self.dirty -= end - first;
            self.going += end - first;
            if let Some(left) = sweep {
                *left -= (end - self.cursor).min(*left);
            }
            self.cursor = if end == self.blocks() { 0 } else { end };
            return Some(first..end);
        }
        None
    }

    /// A stretch has been written.
    pub fn went(&mut self, blocks: Range<u32>) {
        self.going -= blocks.len() as u32;
        for block in blocks {
            let at = block as usize;
            self.state[at] &= !GOING;
            if self.state[at] & DIRTY == 0 {
                self.link(block);
            } else {
                self.mark(block, true);
            }
        }
    }

    /// What does not add up, if anything.
    pub fn violated(&self) -> Option<String> {
        let count = |bits: u8| self.state.iter().filter(|s| **s & bits != 0).count() as u32;
        let clean = self.state.iter().filter(|s| **s == HERE).count() as u32;
        let (mut listed, mut block) = (0, self.first);
        while block != NONE && listed <= clean {
            listed += 1;
            block = self.after[block as usize];
        }
        let want = (count(HERE | COMING), count(DIRTY), count(GOING), clean);
        let have = (self.used, self.dirty, self.going, listed);
        if have != want || self.used > self.room {
            return Some(format!(
                "a page cache of {} blocks has (used, unwritten, going, clean) {want:?}, but counted {have:?}",
                self.room
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(cache: &Cache) -> Vec<u32> {
        (0..cache.blocks())
            .filter(|b| cache.find(*b) == Found::Here)
            .collect()
    }

    fn read(cache: &mut Cache, block: u32) {
        if cache.find(block) == Found::Here {
            return cache.touch(block);
        }
        cache.expect(block, 7);
        cache.came(block..block + 1, 7, false);
    }

    #[test]
    fn the_least_recently_used_clean_block_is_given_up() {
        let mut c = Cache::new(100, 3);
        for block in [10, 20, 30, 10, 40] {
            read(&mut c, block);
        }
        assert_eq!(here(&c), [10, 30, 40]);
        assert!(c.write(30, false));
        read(&mut c, 50);
        read(&mut c, 60);
        // 30 is unwritten and stays.
        assert_eq!(here(&c), [30, 50, 60]);
        assert_eq!(c.violated(), None);
    }

    #[test]
    fn what_is_unwritten_is_never_given_up() {
        let mut c = Cache::new(100, 2);
        assert!(c.write(1, false) && c.write(2, false));
        assert!(!c.write(3, false) && !c.expect(4, 0));
        let mut all = None;
        assert_eq!(c.take_dirty(10, &mut all), Some(1..3));
        assert!(!c.write(3, false));
        c.went(1..3);
        assert!(c.write(3, false));
        assert_eq!((c.used, c.dirty, c.going), (2, 1, 0));
        assert_eq!(c.violated(), None);
    }

    #[test]
    fn a_block_changed_while_it_is_written_is_written_again() {
        let mut c = Cache::new(200, 200);
        c.write(70, false);
        let mut all = None;
        assert_eq!(c.take_dirty(10, &mut all), Some(70..71));
        c.write(70, false);
        assert_eq!(c.take_dirty(10, &mut all), None);
        assert_eq!((c.going, c.violated()), (1, None));
        c.went(70..71);
        assert_eq!((c.dirty, c.going), (1, 0));
        assert_eq!(c.take_dirty(10, &mut all), Some(70..71));
        c.went(70..71);
        assert_eq!((c.dirty, c.violated()), (0, None));
    }

    #[test]
    fn a_sweep_ends_where_it_began() {
        let mut c = Cache::new(130, 130);
        for block in [0, 1, 64, 129] {
            c.write(block, false);
        }
        let mut sweep = Some(130);
        let mut found = Vec::new();
        while let Some(blocks) = c.take_dirty(4, &mut sweep) {
            // Changed behind the sweep: for the next one.
            c.went(blocks.clone());
            c.write(blocks.start, false);
            found.push(blocks);
        }
        assert_eq!(found, [0..2, 64..65, 129..130]);
        assert_eq!((sweep, c.dirty, c.violated()), (Some(0), 3, None));
    }

    #[test]
    fn a_request_that_is_given_up_leaves_nothing() {
        let mut c = Cache::new(10, 10);
        assert!(c.expect(3, 5) && c.expect(4, 5));
        assert_eq!(c.find(3), Found::Coming(5));
        // Overwritten meanwhile: it is there, whatever the disk brings.
        c.write(4, false);
        c.came(3..5, 5, true);
        assert_eq!(
            (c.find(3), c.find(4), c.used),
            (Found::Absent, Found::Here, 1)
        );
        assert_eq!(c.violated(), None);
    }

    #[test]
    fn a_request_brings_what_was_asked_of_it() {
        let mut c = Cache::new(10, 10);
        assert!(c.expect(3, 5));
        c.came(3..4, 6, false);
        assert_eq!(c.find(3), Found::Coming(5));
        c.came(3..4, 5, false);
        assert_eq!((c.find(3), c.violated()), (Found::Here, None));
    }

    #[test]
    fn a_stretch_is_no_longer_than_a_request() {
        let mut c = Cache::new(10, 10);
        (2..7).for_each(|block| _ = c.write(block, false));
        let mut all = None;
        let mut next = || c.take_dirty(2, &mut all);
        assert_eq!(
            [next(), next(), next(), next()],
            [Some(2..4), Some(4..6), Some(6..7), None]
        );
    }

    #[test]
    fn what_goes_to_the_disk_at_once_is_clean() {
        let mut c = Cache::new(10, 2);
        assert!(c.write(1, true) && c.write(2, true) && c.write(3, true));
        assert_eq!((here(&c), c.dirty, c.violated()), (vec![2, 3], 0, None));
    }
}
