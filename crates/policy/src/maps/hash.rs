// SPDX-License-Identifier: GPL-2.0-only
//! HASH, PERCPU_HASH and their LRU forms. Elements live in memory that never moves; walking goes by slot number;
//! slots are given out in ascending order and freed ones are reused last in, first out.
//!
//! Replacing an element of a map that is not per CPU takes a spare cell and makes the old cell the spare, as the
//! kernel's preallocated maps do: a pointer from before the update still sees the old value, until the next one.
use super::memory::{Block, Fields};
use super::{
    BPF_EXIST, BPF_F_LOCK, BPF_F_NO_PREALLOC, BPF_NOEXIST, E2BIG, EEXIST, EINVAL, ENOENT, ENOMEM,
    Element, MapRuntime, Place, kind,
};
use crate::error::{LoadError, Result};
use crate::ir::MapDef;
use std::collections::BTreeMap;

const NONE: u32 = u32::MAX;
/// Memory is taken from the host in pieces of about this many bytes.
const CHUNK_BYTES: usize = 16 << 10;
const CHUNK_CELLS: usize = 64;
/// Keys are built on a BPF stack.
const MAX_KEY: usize = 512;

#[derive(Debug)]
struct Slot {
    /// Memory of the element: key, then one value per copy.
    cell: u32,
    hash: u32,
    /// Next slot of the same bucket, or of the free list.
    next: u32,
    used: bool,
    /// Looked up since the clock hand passed (LRU only).
    referenced: bool,
}

#[derive(Debug)]
pub struct HashMap {
    entries: u32,
    key_size: usize,
    value_size: usize,
    key_space: usize,
    stride: usize,
    /// Values per element: CPUs of a per-CPU map, else 1.
    copies: u32,
    per_cpu: bool,
    lru: bool,
    fields: Fields,
    chunk_cells: usize,
    chunks: Vec<Block>,
    /// Number of each chunk by its base address.
    by_address: BTreeMap<u64, u32>,
    /// Cells given out so far, each with the serial number of the element in it (0 = none).
    serials: Vec<u64>,
    /// Elements made so far.
    made: u64,
    spare: Option<u32>,
    slots: Vec<Slot>,
    free: u32,
    len: u32,
    /// First slot of each bucket; a power of two of them.
    buckets: Vec<u32>,
    /// Where the search for a victim goes on (LRU only).
    hand: u32,
    freed: Vec<*mut u8>,
}

// SAFETY: the pointers in `freed` lead into `chunks`, which moves along.
unsafe impl Send for HashMap {}

impl HashMap {
    /// An empty map of at most `entries` elements.
    ///
    /// # Errors
    /// A definition the kernel would refuse.
    pub fn new(def: &MapDef, entries: u32, nr_cpus: u32) -> Result<HashMap> {
        let wrong = |what: String| Err(LoadError::Setting(format!("map {}: {what}", def.name)));
        if def.key_size == 0 || def.value_size == 0 || entries == 0 {
            return wrong("a hash map needs a key, a value and at least one entry".into());
        }
        if def.key_size as usize > MAX_KEY {
            return wrong(format!(
                "a key of {} bytes does not fit on a BPF stack ({MAX_KEY} bytes)",
                def.key_size
            ));
        }
        let per_cpu = matches!(def.kind, kind::PERCPU_HASH | kind::LRU_PERCPU_HASH);
        let lru = matches!(def.kind, kind::LRU_HASH | kind::LRU_PERCPU_HASH);
        if lru && def.flags & BPF_F_NO_PREALLOC != 0 {
            return wrong("BPF_F_NO_PREALLOC does not go with an LRU map".into());
        }
        let mut map = HashMap {
            entries,
            key_size: def.key_size as usize,
            value_size: def.value_size as usize,
            key_space: (def.key_size as usize).next_multiple_of(8),
            stride: (def.value_size as usize).next_multiple_of(8),
            copies: if per_cpu { nr_cpus.max(1) } else { 1 },
            per_cpu,
            lru,
            fields: Fields::new(def.value_size, &def.timers, &def.kptrs),
            chunk_cells: 0,
            chunks: Vec::new(),
            by_address: BTreeMap::new(),
            serials: Vec::new(),
            made: 0,
            spare: None,
            slots: Vec::new(),
            free: NONE,
            len: 0,
            buckets: vec![NONE; 16],
            hand: 0,
            freed: Vec::new(),
        };
        map.chunk_cells = (CHUNK_BYTES / map.cell_size()).clamp(1, CHUNK_CELLS);
        Ok(map)
    }

    fn cell_size(&self) -> usize {
        self.key_space + self.stride * self.copies as usize
    }

    /// Address of a cell's key.
    fn key_in(&self, cell: u32) -> *mut u8 {
        let (chunk, n) = (
            cell as usize / self.chunk_cells,
            cell as usize % self.chunk_cells,
        );
        // SAFETY: cells that were given out lie in allocated chunks.
        unsafe { self.chunks[chunk].base().add(n * self.cell_size()) }
    }

    /// Address of a cell's value; `cpu` counts in per-CPU maps only.
    fn value_in(&self, cell: u32, cpu: u32) -> *mut u8 {
        let cpu = if self.per_cpu { cpu as usize } else { 0 };
        // SAFETY: inside the cell.
        unsafe { self.key_in(cell).add(self.key_space + cpu * self.stride) }
    }

    /// FNV-1a with a final mix: fixed, and good enough for the low bits to choose a bucket.
    fn hash(key: &[u8]) -> u32 {
        let mut h = 0xcbf2_9ce4_8422_2325u64;
        for &b in key {
            h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        h ^= h >> 32;
        (h.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// # Safety
    /// `key` is valid for the key size as long as the slice is used.
    unsafe fn key_slice<'k>(&self, key: *const u8) -> &'k [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(key, self.key_size) }
    }

    fn find(&self, key: &[u8], hash: u32) -> Option<u32> {
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE {
            let slot = &self.slots[at as usize];
            // SAFETY: a cell begins with its key.
            if slot.hash == hash && unsafe { self.key_slice(self.key_in(slot.cell)) } == key {
                return Some(at);
            }
            at = slot.next;
        }
        None
    }

    /// Writes `cpu`'s copy of a value; `new` cells also get zeroed special fields and zeroed other copies.
    ///
    /// # Safety
    /// `value` is valid for the value size; it may lie in any cell of this map.
    unsafe fn set(&mut self, cell: u32, value: *const u8, cpu: u32, new: bool) {
        let to = self.value_in(cell, cpu);
        // SAFETY: the caller's promise, and cells of this map.
        unsafe {
            self.fields.copy(value, to);
            if new {
                self.fields.clear(to);
                for other in (0..self.copies)
                    .map(|c| self.value_in(cell, c))
                    .filter(|&o| o != to)
                {
                    other.write_bytes(0, self.value_size);
                }
            }
        }
    }

    /// Puts a key and its first value into a cell.
    unsafe fn fill(&mut self, cell: u32, key: &[u8], value: *const u8, cpu: u32) {
        // SAFETY: the caller's promise: a value; the key was copied out of the map.
        unsafe {
            self.key_in(cell)
                .copy_from_nonoverlapping(key.as_ptr(), key.len());
            self.set(cell, value, cpu, true);
        }
        self.made += 1;
        self.serials[cell as usize] = self.made;
    }

    fn new_cell(&mut self) -> Option<u32> {
        if self.serials.len() == self.chunks.len() * self.chunk_cells {
            let block = Block::zeroed(self.chunk_cells * self.cell_size())?;
            self.by_address
                .insert(block.base() as u64, self.chunks.len() as u32);
            self.chunks.push(block);
        }
        self.serials.push(0);
        Some((self.serials.len() - 1) as u32)
    }

    fn spare_cell(&mut self) -> Option<u32> {
        self.spare.take().or_else(|| self.new_cell())
    }

    /// The element in `cell` is no more.
    fn release(&mut self, cell: u32) {
        self.serials[cell as usize] = 0;
        if self.fields.any() {
            for cpu in (0..self.copies).rev() {
                self.freed.push(self.value_in(cell, cpu));
            }
        }
    }

    /// An unlinked slot with a cell for a new element, or a negative error number.
    fn take_slot(&mut self) -> std::result::Result<u32, i64> {
        if self.free != NONE {
            let slot = self.free;
            self.free = self.slots[slot as usize].next;
            Ok(slot)
        } else if (self.slots.len() as u64) < u64::from(self.entries) {
            let cell = self.new_cell().ok_or(ENOMEM)?;
            self.slots.push(Slot {
                cell,
                hash: 0,
                next: NONE,
                used: false,
                referenced: false,
            });
            Ok((self.slots.len() - 1) as u32)
        } else if self.lru {
            self.evict().ok_or(ENOMEM)
        } else {
            Err(E2BIG)
        }
    }

    /// Second chance: the hand passes elements that were looked up since its last visit. The victim's cell becomes
    /// the spare, so that a value that lies in it can still be copied.
    fn evict(&mut self) -> Option<u32> {
        let cell = self.spare_cell()?;
        loop {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len() as u32;
            if std::mem::take(&mut self.slots[slot as usize].referenced) {
                continue;
            }
            self.unlink(slot);
            let victim = std::mem::replace(&mut self.slots[slot as usize].cell, cell);
            self.release(victim);
            self.spare = Some(victim);
            return Some(slot);
        }
    }

    fn link(&mut self, slot: u32, hash: u32) {
        self.len += 1;
        if self.len as usize > self.buckets.len() {
            self.grow();
        }
        let bucket = self.bucket(hash);
        let first = std::mem::replace(&mut self.buckets[bucket], slot);
        let s = &mut self.slots[slot as usize];
        (s.hash, s.next, s.used, s.referenced) = (hash, first, true, false);
    }

    fn unlink(&mut self, slot: u32) {
        let s = &mut self.slots[slot as usize];
        s.used = false;
        let (hash, after) = (s.hash, s.next);
        let bucket = self.bucket(hash);
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = after;
        } else {
            let mut at = self.buckets[bucket];
            while self.slots[at as usize].next != slot {
                at = self.slots[at as usize].next;
            }
            self.slots[at as usize].next = after;
        }
        self.len -= 1;
    }

    fn grow(&mut self) {
        self.buckets = vec![NONE; self.buckets.len() * 2];
        for slot in 0..self.slots.len() {
            if self.slots[slot].used {
                let bucket = self.bucket(self.slots[slot].hash);
                self.slots[slot].next = std::mem::replace(&mut self.buckets[bucket], slot as u32);
            }
        }
    }

    /// Cell and offset in it of an address. Cells of deleted elements count: the kernel keeps those until the
    /// callback's RCU section ends.
    fn cell_at(&self, addr: u64) -> Option<(u32, usize)> {
        let (&base, &chunk) = self.by_address.range(..=addr).next_back()?;
        let offset = (addr - base) as usize;
        let n = offset / self.cell_size();
        let cell = chunk as usize * self.chunk_cells + n;
        (n < self.chunk_cells && cell < self.serials.len())
            .then(|| (cell as u32, offset % self.cell_size()))
    }
}

impl MapRuntime for HashMap {
    unsafe fn lookup(&mut self, key: *const u8, cpu: u32) -> *mut u8 {
        // SAFETY: the caller's promise: a key.
        let key = unsafe { self.key_slice(key) };
        match self.find(key, Self::hash(key)) {
            Some(slot) if !self.per_cpu || cpu < self.copies => {
                let s = &mut self.slots[slot as usize];
                s.referenced = true;
                let cell = s.cell;
                self.value_in(cell, cpu)
            }
            _ => std::ptr::null_mut(),
        }
    }

    unsafe fn update(&mut self, key: *const u8, value: *const u8, flags: u64, cpu: u32) -> i64 {
        let in_place = self.per_cpu || flags & BPF_F_LOCK != 0;
        let flags = if self.per_cpu {
            flags
        } else {
            flags & !BPF_F_LOCK
        };
        if flags > BPF_EXIST || (self.per_cpu && cpu >= self.copies) {
            return EINVAL;
        }
        // The key may lie in the element that goes away.
        let mut room = [0u8; MAX_KEY];
        let own = &mut room[..self.key_size];
        // SAFETY: the caller's promise: a key.
        own.copy_from_slice(unsafe { self.key_slice(key) });
        let hash = Self::hash(own);
        let Some(slot) = self.find(own, hash) else {
            if flags == BPF_EXIST {
                return ENOENT;
            }
            return match self.take_slot() {
                Ok(slot) => {
                    // SAFETY: the caller's promise: a value.
                    unsafe { self.fill(self.slots[slot as usize].cell, own, value, cpu) };
                    self.link(slot, hash);
                    0
                }
                Err(e) => e,
            };
        };
        if flags == BPF_NOEXIST {
            return EEXIST;
        }
        self.slots[slot as usize].referenced = true;
        if in_place {
            // SAFETY: the caller's promise: a value.
            unsafe { self.set(self.slots[slot as usize].cell, value, cpu, false) };
            return 0;
        }
        let Some(cell) = self.spare_cell() else {
            return ENOMEM;
        };
        // SAFETY: the caller's promise: a value.
        unsafe { self.fill(cell, own, value, cpu) };
        let old = std::mem::replace(&mut self.slots[slot as usize].cell, cell);
        self.release(old);
        self.spare = Some(old);
        0
    }

    unsafe fn delete(&mut self, key: *const u8) -> i64 {
        // SAFETY: the caller's promise: a key.
        let key = unsafe { self.key_slice(key) };
        let Some(slot) = self.find(key, Self::hash(key)) else {
            return ENOENT;
        };
        self.unlink(slot);
        self.release(self.slots[slot as usize].cell);
        self.slots[slot as usize].next = self.free;
        self.free = slot;
        0
    }

    fn freed(&mut self) -> Option<*mut u8> {
        self.freed.pop()
    }

    fn next(&mut self, cursor: &mut u64, cpu: u32) -> Option<Element> {
        let from = usize::try_from(*cursor).ok()?;
        let found = self.slots.get(from..)?.iter().position(|s| s.used)?;
        *cursor = (from + found + 1) as u64;
        let cell = self.slots[from + found].cell;
        (!self.per_cpu || cpu < self.copies).then(|| Element {
            key: self.key_in(cell),
            value: self.value_in(cell, cpu),
        })
    }

    fn len(&self) -> u64 {
        self.len.into()
    }

    fn contains(&self, address: u64, size: u32) -> bool {
        let Some((_, offset)) = self.cell_at(address) else {
            return false;
        };
        let size = size as usize;
        match offset.checked_sub(self.key_space) {
            None => offset + size <= self.key_size,
            Some(in_values) => in_values % self.stride + size <= self.value_size,
        }
    }

    fn locate(&mut self, address: u64) -> Option<Place> {
        let (cell, offset) = self.cell_at(address)?;
        let in_values = offset.checked_sub(self.key_space)?;
        let (copy, offset) = (in_values / self.stride, in_values % self.stride);
        let serial = self.serials[cell as usize];
        (serial != 0 && offset < self.value_size).then(|| Place {
            // Copies of a per-CPU value count as elements of their own.
            element: serial * u64::from(self.copies) + copy as u64,
            offset: offset as u32,
            key: self.key_in(cell),
            value: self.value_in(cell, copy as u32),
        })
    }
}
