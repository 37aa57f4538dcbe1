// SPDX-License-Identifier: GPL-2.0-only
//! The memory of one instance in one piece: tables, data sections and the maps that have a fixed size.
//!
//! A callback touches a few bytes of many things. With thousands of instances alive it finds each of them cold, and
//! what it then pays for is lines and pages, not bytes. So what every callback needs lies together at the start, in a
//! page or two; large arrays follow, of which mostly the first elements are used and the rest is never touched.
use crate::maps::memory::Block;
use std::sync::atomic::{AtomicUsize, Ordering};

const LINE: usize = 64;
const PAGE: usize = 4096;
/// Blocks of a page and more start at another line of the page each, or the same line of a thousand instances would
/// compete for the same few places of a cache.
const COLOURS: usize = 64;

/// Zeroed memory that is given out piece by piece and goes away with the arena. Pieces never move.
#[derive(Debug)]
pub struct Arena {
    first: Block,
    start: usize,
    at: usize,
    end: usize,
    /// What did not fit.
    more: Vec<Block>,
}

impl Arena {
    /// Room for `bytes`; `None` if the host has no such amount of memory.
    pub fn new(bytes: usize) -> Option<Arena> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        // Addresses are no part of any result, so neither is who came first. Smaller ones begin anywhere as it is.
        let start = match bytes {
            ..PAGE => 0,
            _ => MADE.fetch_add(1, Ordering::Relaxed) % COLOURS * LINE,
        };
        Some(Arena {
            first: Block::zeroed(start + bytes)?,
            start,
            at: start,
            end: start + bytes,
            more: Vec::new(),
        })
    }

    /// Its beginning, and how much of it there is in one piece.
    pub fn front(&self) -> (*const u8, usize) {
        let start = self.start;
        // SAFETY: inside the block.
        (unsafe { self.first.base().add(start) }, self.end - start)
    }

    /// `bytes` of zeros at a multiple of `align`, a power of two up to a cache line.
    pub fn take(&mut self, bytes: usize, align: usize) -> Option<*mut u8> {
        debug_assert!(align.is_power_of_two() && align <= LINE);
        let at = self.at.next_multiple_of(align);
        if at + bytes > self.end {
            let block = Block::zeroed(bytes)?;
            let base = block.base();
            self.more.push(block);
            return Some(base);
        }
        self.at = at + bytes;
        // SAFETY: inside the block.
        Some(unsafe { self.first.base().add(at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_and_what_does_not_fit_gets_its_own() {
        let mut arena = Arena::new(200).unwrap();
        let a = arena.take(10, 8).unwrap() as usize;
        let b = arena.take(100, 32).unwrap() as usize;
        let far = arena.take(4096, 64).unwrap() as usize;
        let c = arena.take(64, 8).unwrap() as usize;
        assert_eq!((a % LINE, b - a, c - b), (0, 32, 104));
        assert!(far + 4096 <= a || far >= a + 200, "{far:#x} and {a:#x}");
        assert_eq!(far % LINE, 0);
        // SAFETY: the piece just taken.
        assert!((0..4096).all(|i| unsafe { *(far as *const u8).add(i) } == 0));
    }

    #[test]
    fn arenas_start_at_different_lines() {
        let mut starts: Vec<_> = (0..8)
            .map(|_| Arena::new(1 << 20).unwrap())
            .map(|mut a| (a.take(8, 8).unwrap() as usize % 4096, a))
            .collect();
        starts.sort_by_key(|(line, _)| *line);
        starts.dedup_by_key(|(line, _)| *line);
        assert!(starts.len() >= 4, "{starts:?}");
    }
}
