// SPDX-License-Identifier: GPL-2.0-only
//! ARENA: pages of memory that a policy asks for, and pointers that user space and policy share.
//!
//! As in the kernel an arena has 4 GiB of addresses of its own, whatever its size, and on both sides as much as the
//! offset of an instruction can reach. They begin at a multiple of 4 GiB, so that the lower half of an address is that
//! of the *user pointer* (the arena's `map_extra`, and what lies in its memory as a pointer), and arithmetic on either
//! is the same. Only what was asked for has memory: everything else traps, guarded or not.
use super::{EBUSY, EINVAL, MapRuntime, Place};
use crate::error::{LoadError, Result};
use crate::ir::MapDef;
use std::collections::BTreeMap;

/// Bytes.
pub const PAGE: u64 = 4096;
const ALL: u64 = 1 << 32;
/// What an instruction's offset reaches.
const REACH: u64 = 1 << 15;

/// Ranges of pages that do not touch each other: first and number.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    /// Adds pages, of which some may be in already.
    fn add(&mut self, first: u32, count: u32) {
        let (mut start, mut end) = (u64::from(first), u64::from(first) + u64::from(count));
        // What overlaps or touches becomes one.
        while let Some((&at, &n)) = self.0.range(..=end as u32).next_back() {
            let (from, to) = (u64::from(at), u64::from(at) + u64::from(n));
            if to < start || from > end {
                break;
            }
            self.0.remove(&at);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start as u32, (end - start) as u32);
    }

    /// Takes pages out, of which some may not be in.
    fn take(&mut self, first: u32, count: u32) {
        let (start, end) = (u64::from(first), u64::from(first) + u64::from(count));
        while let Some((&at, &n)) = self.0.range(..end as u32).next_back() {
            let to = u64::from(at) + u64::from(n);
            if to <= start {
                break;
            }
            self.0.remove(&at);
            if u64::from(at) < start {
                self.0.insert(at, (start - u64::from(at)) as u32);
            }
            if to > end {
                self.0.insert(end as u32, (to - end) as u32);
            }
        }
    }

    /// The range that a page is in.
    fn around(&self, page: u32) -> Option<(u32, u32)> {
        let (&at, &n) = self.0.range(..=page).next_back()?;
        (page - at < n).then_some((at, n))
    }

    fn has(&self, first: u32, count: u32) -> bool {
        self.around(first)
            .is_some_and(|(at, n)| u64::from(first - at) + u64::from(count) <= u64::from(n))
    }

    /// Where so many fit best, as in the kernel.
    fn best(&self, count: u32) -> Option<u32> {
        let fit = self.0.iter().filter(|(_, n)| **n >= count);
        fit.min_by_key(|(at, n)| (**n, **at)).map(|(at, _)| *at)
    }
}

pub struct Pages {
    /// All of the addresses.
    reserved: *mut libc::c_void,
    /// The multiple of 4 GiB.
    base: u64,
    /// First user pointer.
    user: u64,
    pages: u32,
    free: Ranges,
    /// Those with memory.
    there: Ranges,
    /// Those at the end with the object's own variables, which stay.
    own: u32,
}

// SAFETY: owned memory.
unsafe impl Send for Pages {}

/// Bytes reserved.
const RESERVED: u64 = ALL + 2 * REACH;

impl Pages {
    /// The first user pointer of an arena.
    pub fn user_start(def: &MapDef) -> u64 {
        // Where nothing is said, user space chooses: not where an address's lower half is NULL's, if there is room.
        const CHOSEN: u64 = 1 << 44;
        const FURTHER: u64 = 1 << 20;
        match def.extra {
            0 if u64::from(def.max_entries) * PAGE + FURTHER <= ALL => CHOSEN + FURTHER,
            0 => CHOSEN,
            at => at,
        }
    }

    /// Pages that variables of so many bytes take.
    fn whole(bytes: usize) -> u64 {
        (bytes as u64).div_ceil(PAGE)
    }

    /// The user pointer of the object's own variables, which are so many bytes at the end.
    pub fn user_of_variables(def: &MapDef, bytes: usize) -> u64 {
        let before = u64::from(def.max_entries).saturating_sub(Self::whole(bytes));
        Self::user_start(def).wrapping_add(before * PAGE)
    }

    /// Refuses what the kernel would refuse.
    ///
    /// # Errors
    /// In words.
    pub fn check(def: &MapDef) -> std::result::Result<(), &'static str> {
        const MMAPABLE: u32 = 1 << 10;
        let bytes = u64::from(def.max_entries) * PAGE;
        if def.key_size != 0 || def.value_size != 0 || def.max_entries == 0 {
            return Err("an arena has pages, and neither keys nor values");
        }
        if def.flags & MMAPABLE == 0 {
            return Err("an arena needs the flag BPF_F_MMAPABLE");
        }
        if bytes > ALL {
            return Err("an arena has at most 4 GiB");
        }
        let last = Self::user_start(def).checked_add(bytes - 1);
        let start = Self::user_start(def);
        if !start.is_multiple_of(PAGE) || last.is_none_or(|last| last >> 32 != start >> 32) {
            return Err("an arena begins at a whole page and crosses no multiple of 4 GiB");
        }
        Ok(())
    }

    /// An arena in which only the object's own variables, so many bytes, have memory.
    ///
    /// # Errors
    /// The variables do not fit; the host has no such addresses.
    pub fn new(def: &MapDef, variables: usize) -> Result<Pages> {
        let wrong = |what: &str| LoadError::Setting(format!("map {}: {what}", def.name));
        Self::check(def).map_err(wrong)?;
        let own = u32::try_from(Self::whole(variables)).ok();
        let own = own.filter(|own| *own <= def.max_entries);
        let own = own.ok_or_else(|| wrong("its variables are larger than it is"))?;
        let (reserved, base) = reserve().ok_or_else(|| wrong("the host has no 4 GiB for it"))?;
        let mut arena = Pages {
            reserved,
            base,
            user: Self::user_start(def),
            pages: def.max_entries,
            free: Ranges::default(),
            there: Ranges::default(),
            own,
        };
        arena.free.add(0, def.max_entries);
        if own > 0 && !arena.populate(def.max_entries - own, own) {
            return Err(wrong("the host has no memory for its variables"));
        }
        Ok(arena)
    }

    /// What the lower half of a pointer is added to.
    pub fn base(&self) -> *mut u8 {
        self.base as *mut u8
    }

    /// Where the object's own variables are.
    pub fn variables(&self) -> *mut u8 {
        self.address(self.pages - self.own) as *mut u8
    }

    fn address(&self, page: u32) -> u64 {
        self.base + u64::from((self.user + u64::from(page) * PAGE) as u32)
    }

    /// The page of a pointer's lower half.
    fn page(&self, pointer: u64) -> u32 {
        ((pointer as u32).wrapping_sub(self.user as u32)) / PAGE as u32
    }

    /// Gives pages memory, of zeros.
    fn populate(&mut self, first: u32, count: u32) -> bool {
        let at = self.address(first) as *mut libc::c_void;
        let bytes = u64::from(count) * PAGE;
        // SAFETY: addresses of its own, where nothing is.
        let done =
            unsafe { libc::mprotect(at, bytes as usize, libc::PROT_READ | libc::PROT_WRITE) };
        if done == 0 {
            self.free.take(first, count);
            self.there.add(first, count);
        }
        done == 0
    }

    /// `bpf_arena_alloc_pages`: the user pointer, or 0.
    pub fn alloc(&mut self, wanted: u64, count: u32, flags: u64) -> u64 {
        if flags != 0 || count == 0 || count > self.pages {
            return 0;
        }
        let first = match wanted {
            0 => self.free.best(count),
            _ if !wanted.is_multiple_of(PAGE) => None,
            _ => Some(self.page(wanted)).filter(|first| self.free.has(*first, count)),
        };
        match first {
            Some(first) if self.populate(first, count) => {
                (self.user >> 32 << 32) + u64::from(self.address(first) as u32)
            }
            _ => 0,
        }
    }

    /// `bpf_arena_reserve_pages`: they are given to nobody who does not ask for them.
    pub fn reserve(&mut self, wanted: u64, count: u32) -> i64 {
        if count > self.pages {
            return EINVAL;
        }
        if count == 0 {
            return 0;
        }
        let first = self.page(wanted);
        if !wanted.is_multiple_of(PAGE) || first > self.pages - count {
            return EINVAL;
        }
        if !self.free.has(first, count) {
            return EBUSY;
        }
        self.free.take(first, count);
        0
    }

    /// `bpf_arena_free_pages`: those in the arena have no memory any more.
    pub fn release(&mut self, pointer: u64, count: u32) {
        let first = self.page(pointer);
        let end = (u64::from(first) + u64::from(count)).min(u64::from(self.pages - self.own));
        if u64::from(first) >= end {
            return;
        }
        let count = (end - u64::from(first)) as u32;
        let bytes = u64::from(count) * PAGE;
        let at = self.address(first) as *mut libc::c_void;
        // SAFETY: addresses of its own; only the policy has pointers to them, and a trap if it uses one.
        let gone = unsafe {
            libc::mmap(
                at,
                bytes as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        // A host that cannot part with them keeps them.
        if gone == at {
            self.there.take(first, count);
            self.free.add(first, count);
        }
    }
}

/// Addresses without memory: their beginning, and the multiple of 4 GiB among them.
fn reserve() -> Option<(*mut libc::c_void, u64)> {
    let bytes = RESERVED + ALL;
    // SAFETY: new addresses.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let base = (start as u64 + REACH).next_multiple_of(ALL);
    let (from, to) = (base - REACH, base - REACH + RESERVED);
    let give_back = |from: u64, to: u64| {
        if to > from {
            // SAFETY: of those just taken; what cannot be given back is addresses only.
            unsafe { libc::munmap(from as *mut libc::c_void, (to - from) as usize) };
        }
    };
    give_back(start as u64, from);
    give_back(to, start as u64 + bytes);
    Some((from as *mut libc::c_void, base))
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: its own addresses; the instance that could use them ends with it.
        unsafe { libc::munmap(self.reserved, RESERVED as usize) };
    }
}

impl MapRuntime for Pages {
    /// Pages with memory, so far as they lie beside each other.
    fn piece(&self, address: u64) -> Option<(u64, u64)> {
        let from = self.base + u64::from(self.user as u32);
        let page = u32::try_from(address.checked_sub(from)? / PAGE).ok()?;
        let (first, count) = self.there.around(page)?;
        let start = self.address(first);
        Some((start, start + u64::from(count) * PAGE))
    }

    fn len(&self) -> u64 {
        self.there.0.values().map(|n| u64::from(*n)).sum()
    }

    fn contains(&self, address: u64, size: u32) -> bool {
        self.piece(address)
            .is_some_and(|(_, end)| end - address >= u64::from(size))
    }

    fn locate(&mut self, _address: u64) -> Option<Place> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn def(pages: u32, extra: u64) -> MapDef {
        MapDef {
            name: "arena".into(),
            kind: super::super::kind::ARENA,
            key_size: 0,
            value_size: 0,
            max_entries: pages,
            flags: 1 << 10,
            timers: Vec::new(),
            kptrs: Vec::new(),
            fields: Vec::new(),
            inner: Vec::new(),
            extra,
        }
    }

    #[test]
    fn ranges_against_a_set() {
        let mut random = 0x9e37_79b9u32;
        let mut next = |n: u32| {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random % n
        };
        let mut ranges = Ranges::default();
        let mut set = [false; 64];
        for _ in 0..5000 {
            let (first, add) = (next(64), next(2) == 0);
            let count = next(64 - first + 1).max(1).min(64 - first);
            for page in &mut set[first as usize..(first + count) as usize] {
                *page = add;
            }
            match add {
                true => ranges.add(first, count),
                false => ranges.take(first, count),
            }
            for (page, is) in set.iter().enumerate() {
                assert_eq!(ranges.around(page as u32).is_some(), *is);
            }
            let mut last = None;
            for (at, n) in &ranges.0 {
                assert!(*n > 0 && last.is_none_or(|end| end < *at), "{ranges:?}");
                last = Some(at + n);
            }
        }
    }

    #[test]
    fn pages_as_in_the_kernel() {
        let start = (1u64 << 44) + 0x5000;
        let mut arena = Pages::new(&def(16, start), 5000).unwrap();
        assert_eq!(arena.len(), 2, "its own variables");
        assert_eq!(arena.alloc(0, 2, 0), start);
        assert_eq!(arena.alloc(0, 1, 0), start + 2 * PAGE);
        assert_eq!(arena.alloc(start + 8 * PAGE, 2, 0), start + 8 * PAGE);
        assert_eq!(arena.alloc(start + 9 * PAGE, 1, 0), 0, "it is given away");
        assert_eq!(arena.alloc(start + 10 * PAGE + 1, 1, 0), 0, "no page");
        assert_eq!(arena.alloc(start + 13 * PAGE, 2, 0), 0, "its variables");
        assert_eq!(arena.alloc(start + 16 * PAGE, 1, 0), 0, "outside");
        assert_eq!((arena.alloc(0, 0, 0), arena.alloc(0, 1, 1)), (0, 0));
        // Five pages are free between, four at the end: those fit better.
        assert_eq!(arena.alloc(0, 3, 0), start + 10 * PAGE);
        assert_eq!(arena.reserve(start + 3 * PAGE, 5), 0);
        assert_eq!(arena.reserve(start + 3 * PAGE, 1), EBUSY);
        assert_eq!(arena.reserve(start + 3 * PAGE + 8, 1), EINVAL);
        assert_eq!(arena.reserve(start + 15 * PAGE, 2), EINVAL);
        assert_eq!(arena.alloc(0, 2, 0), 0, "one is left");
        let first = arena.base() as u64 + 0x5000;
        // SAFETY: pages with memory.
        unsafe {
            assert_eq!(*(first as *const u64), 0);
            *(first as *mut u64) = 7;
        }
        assert!(arena.contains(first, 8) && arena.contains(first + 3 * PAGE - 8, 8));
        assert!(!arena.contains(first + 3 * PAGE - 7, 8) && !arena.contains(first - 1, 1));
        // By the lower half; beyond the end is cut, and its own variables stay.
        arena.release(0x5000, 1);
        assert!(!arena.contains(first, 1));
        arena.release(start + 12 * PAGE, 1000);
        assert!(arena.contains(arena.variables() as u64, 8192));
        assert_eq!(arena.alloc(0, 1, 0), start);
        // SAFETY: given anew.
        assert_eq!(unsafe { *(first as *const u64) }, 0, "zeros again");
    }

    #[test]
    fn what_is_no_arena() {
        let said = |def: &MapDef| Pages::check(def).unwrap_err();
        assert!(said(&def(0, 0)).contains("pages"));
        assert!(said(&def((1 << 20) + 1, 0)).contains("4 GiB"));
        assert!(said(&def(2, (1 << 44) - PAGE)).contains("crosses"));
        assert!(said(&def(2, 5)).contains("whole page"));
        assert!(
            said(&MapDef {
                flags: 0,
                ..def(2, 0)
            })
            .contains("MMAPABLE")
        );
        assert!(Pages::check(&def(1 << 20, 1 << 44)).is_ok());
        assert!(
            Pages::new(&def(1, 0), 5000).is_err(),
            "variables of two pages"
        );
        assert_ne!(Pages::user_start(&def(1 << 16, 0)) as u32, 0);
    }
}
